"""Checks of built-in kinds, worded as the real server words them.

Covered is what a scheduler, its tests and its users run into: names and labels, pods, batch Jobs, nodes, priority
classes. Everything else is stored as given.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.simulator.errors import (
    FieldError,
    JsonObject,
    forbidden_field,
    invalid_value,
    required,
    unsupported_value,
)
from muster.simulator.pod_validation import LABEL, LABEL_TEXT, pod_change_errors, pod_spec_errors
from muster.simulator.resources import ResourceType

if TYPE_CHECKING:
    from muster.simulator.store import Store

_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_QUALIFIED = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_FREE_NAMES = frozenset(
    {
        f"{plural}.rbac.authorization.k8s.io"
        for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
    }
)
HIGHEST_USER_PRIORITY = 1_000_000_000


def metadata_errors(resource_type: ResourceType, obj: Mapping[str, Any]) -> list[FieldError]:
    """Name, labels and annotations of any object."""
    metadata = obj["metadata"]
    name = metadata["name"]
    errors: list[FieldError] = []
    if resource_type.key == "namespaces":
        if not LABEL.match(name) or len(name) > 63:
            errors.append(invalid_value("metadata.name", name, detail=LABEL_TEXT))
    elif resource_type.key not in _FREE_NAMES and (not _SUBDOMAIN.match(name) or len(name) > 253):
        errors.append(invalid_value("metadata.name", name, detail=_SUBDOMAIN_TEXT))
    errors += label_errors(metadata.get("labels"), "metadata.labels")
    errors += _owner_errors(metadata.get("ownerReferences") or ())
    annotations = metadata.get("annotations")
    if (
        isinstance(annotations, dict)
        and sum(len(key) + len(str(value)) for key, value in annotations.items()) > 262_144
    ):
        errors.append(
            FieldError("metadata.annotations", "FieldValueTooLong", "Too long: may not be more than 262144 bytes")
        )
    return errors


def _owner_errors(owners: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    errors = [
        required(f"metadata.ownerReferences[{index}].{field}")
        for index, owner in enumerate(owners)
        for field in ("apiVersion", "kind", "name", "uid")
        if not owner.get(field)
    ]
    controllers = [owner.get("name") for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        detail = f"Only one reference can have Controller set to true. Found {len(controllers)}: {controllers}"
        errors.append(invalid_value("metadata.ownerReferences", list(owners), detail=detail))
    return errors


def label_errors(labels: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    """Keys and values of a label map."""
    errors: list[FieldError] = []
    for key, value in (labels or {}).items():
        if not _QUALIFIED.match(key):
            errors.append(
                invalid_value(path, key, detail="name part must consist of alphanumeric characters, '-', '_' or '.'")
            )
        if not isinstance(value, str) or not _LABEL_VALUE.match(value) or len(value) > 63:
            errors.append(invalid_value(path, value, detail=_LABEL_VALUE_TEXT))
    return errors


def creation_errors(resource_type: ResourceType, obj: JsonObject, *, store: "Store") -> list[FieldError]:
    """What is wrong with a new object of a built-in kind."""
    errors = metadata_errors(resource_type, obj)
    match resource_type.key:
        case "pods":
            errors += pod_spec_errors(obj.get("spec"), "spec")
        case "jobs.batch":
            errors += _job_errors(obj)
        case "nodes":
            errors += _taint_errors(obj)
        case "priorityclasses.scheduling.k8s.io":
            errors += _priority_class_errors(obj, store)
        case "leases.coordination.k8s.io":
            errors += _lease_errors(obj)
        case "events":
            errors += _event_errors(obj)
        case _:
            pass
    return errors


def update_errors(
    resource_type: ResourceType, new: JsonObject, old: Mapping[str, Any], *, store: "Store"
) -> list[FieldError]:
    """What is wrong with a change of an object of a built-in kind."""
    errors: list[FieldError] = []
    if new["metadata"].get("labels") != old["metadata"].get("labels"):
        errors += label_errors(new["metadata"].get("labels"), "metadata.labels")
    if new["metadata"].get("ownerReferences") != old["metadata"].get("ownerReferences"):
        errors += _owner_errors(new["metadata"].get("ownerReferences") or ())
    if resource_type.key == "leases.coordination.k8s.io":
        return errors + _lease_errors(new)
    if new.get("spec") == old.get("spec") and resource_type.key != "priorityclasses.scheduling.k8s.io":
        return errors
    match resource_type.key:
        case "pods":
            errors += pod_change_errors(new["spec"], old["spec"])
        case "jobs.batch":
            errors += _job_errors(new) + _job_change_errors(new, old)
        case "nodes":
            errors += _taint_errors(new)
        case "priorityclasses.scheduling.k8s.io":
            if new.get("value") != old.get("value"):
                errors.append(forbidden_field("value", "may not be changed in an update."))
            errors += _priority_class_errors(new, store)
        case _:
            pass
    return errors


def _job_errors(job: JsonObject) -> list[FieldError]:
    spec = job.get("spec") or {}
    errors: list[FieldError] = []
    for field in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        value = spec.get(field)
        if value is not None and value < 0:
            errors.append(invalid_value(f"spec.{field}", value, detail="must be greater than or equal to 0"))
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        errors.append(required("spec.completions", "when completion mode is Indexed"))
    template_spec = (spec.get("template") or {}).get("spec")
    errors += pod_spec_errors(template_spec, "spec.template.spec")
    if isinstance(template_spec, dict) and template_spec.get("restartPolicy") == "Always":
        errors.append(unsupported_value("spec.template.spec.restartPolicy", "Always", allowed=("OnFailure", "Never")))
    return errors


_SUSPENDED_CHANGES = ("nodeSelector", "tolerations", "affinity", "schedulingGates", "containers")


def _job_change_errors(new: JsonObject, old: Mapping[str, Any]) -> list[FieldError]:
    """Selector, template and completions are fixed; a suspended job that never ran may change where its pods go."""
    before, after = old["spec"], new["spec"]
    elastic = before.get("completionMode") == "Indexed" and after.get("completions") == after.get("parallelism")
    fixed = ("selector", "completionMode") if elastic else ("selector", "completionMode", "completions")
    errors = [
        invalid_value(f"spec.{field}", after.get(field), detail="field is immutable")
        for field in fixed
        if before.get(field) != after.get(field)
    ]
    template_before, template_after = before.get("template") or {}, after.get("template") or {}
    if before.get("suspend") and not (old.get("status") or {}).get("startTime"):
        template_before, template_after = _placement_free(template_before), _placement_free(template_after)
    if template_before != template_after:
        errors.append(invalid_value("spec.template", after.get("template"), detail="field is immutable"))
    return errors


def _placement_free(template: Mapping[str, Any]) -> JsonObject:
    spec = {key: value for key, value in (template.get("spec") or {}).items() if key not in _SUSPENDED_CHANGES}
    return {**template, "metadata": None, "spec": spec}


def _lease_errors(lease: JsonObject) -> list[FieldError]:
    spec = lease.get("spec") or {}
    errors: list[FieldError] = []
    for field, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
        value = spec.get(field)
        if value is not None and value < least:
            detail = "must be greater than 0" if least else "must be greater than or equal to 0"
            errors.append(invalid_value(f"spec.{field}", value, detail=detail))
    return errors


def _event_errors(event: JsonObject) -> list[FieldError]:
    """An event lives in the namespace of what it is about; events of cluster-wide objects live in default."""
    involved, own = (event.get("involvedObject") or {}).get("namespace"), event["metadata"]["namespace"]
    if involved != own and not (not involved and own in {"default", "kube-system"}):
        return [invalid_value("involvedObject.namespace", involved or "", detail="does not match event.namespace")]
    return []


def _taint_errors(node: JsonObject) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate((node.get("spec") or {}).get("taints") or ()):
        where = f"spec.taints[{index}]"
        effect = taint.get("effect")
        if not taint.get("key"):
            errors.append(required(f"{where}.key"))
        if effect not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
            errors.append(
                unsupported_value(
                    f"{where}.effect", effect or "", allowed=("NoSchedule", "PreferNoSchedule", "NoExecute")
                )
            )
        identity = (taint.get("key") or "", effect or "")
        if identity in seen:
            errors.append(
                FieldError(
                    where, "FieldValueDuplicate", "Duplicate value: taints must be unique by key and effect pair"
                )
            )
        seen.add(identity)
    return errors


def _priority_class_errors(obj: JsonObject, store: "Store") -> list[FieldError]:
    name, value = obj["metadata"]["name"], obj.get("value")
    errors: list[FieldError] = []
    if not isinstance(value, int) or isinstance(value, bool):
        return [required("value")]
    if name.startswith("system-"):
        if name not in {"system-node-critical", "system-cluster-critical"}:
            errors.append(
                forbidden_field(
                    "metadata.name", "priority class names with 'system-' prefix are reserved for system use only"
                )
            )
    elif value > HIGHEST_USER_PRIORITY:
        errors.append(
            forbidden_field("value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}")
        )
    if obj.get("globalDefault"):
        other = next(
            (
                found["metadata"]["name"]
                for found in store.objects("priorityclasses.scheduling.k8s.io")
                if found.get("globalDefault") and found["metadata"]["name"] != name
            ),
            None,
        )
        if other is not None:
            errors.append(forbidden_field("globalDefault", f"PriorityClass {other} is already marked as globalDefault"))
    return errors
