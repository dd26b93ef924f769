"""Checks of built-in kinds, worded as the real server words them.

Covered is what a scheduler, its tests and its users run into: names and labels, pods (containers, resources, what an
update may change), batch Jobs, nodes, priority classes. Everything else is stored as given.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.model.quantity import QuantityError, parse_quantity
from muster.simulator.errors import (
    FieldError,
    JsonObject,
    forbidden_field,
    invalid_value,
    required,
    unsupported_value,
)
from muster.simulator.resources import ResourceType

if TYPE_CHECKING:
    from muster.simulator.store import Store

_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
_QUALIFIED = re.compile(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
_SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
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
_STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})
_POD_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
HIGHEST_USER_PRIORITY = 1_000_000_000


def metadata_errors(resource_type: ResourceType, obj: Mapping[str, Any]) -> list[FieldError]:
    """Name, labels and annotations of any object."""
    metadata = obj["metadata"]
    name = metadata["name"]
    errors: list[FieldError] = []
    if resource_type.key == "namespaces":
        if not _LABEL.match(name) or len(name) > 63:
            errors.append(invalid_value("metadata.name", name, detail=_LABEL_TEXT))
    elif resource_type.key not in _FREE_NAMES and (not _SUBDOMAIN.match(name) or len(name) > 253):
        errors.append(invalid_value("metadata.name", name, detail=_SUBDOMAIN_TEXT))
    errors += label_errors(metadata.get("labels"), "metadata.labels")
    annotations = metadata.get("annotations")
    if (
        isinstance(annotations, dict)
        and sum(len(key) + len(str(value)) for key, value in annotations.items()) > 262_144
    ):
        errors.append(
            FieldError("metadata.annotations", "FieldValueTooLong", "Too long: may not be more than 262144 bytes")
        )
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
    if new.get("spec") == old.get("spec") and resource_type.key != "priorityclasses.scheduling.k8s.io":
        return errors
    match resource_type.key:
        case "pods":
            errors += _pod_change_errors(new["spec"], old["spec"])
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


def pod_spec_errors(spec: Any, path: str) -> list[FieldError]:
    """What is wrong with a PodSpec, of a pod or a template."""
    if not isinstance(spec, dict) or not spec.get("containers"):
        return [required(f"{path}.containers")]
    errors: list[FieldError] = []
    names: set[str] = set()
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            errors += _container_errors(container, f"{path}.{field}[{index}]", names)
    if spec["restartPolicy"] not in {"Always", "OnFailure", "Never"}:
        errors.append(
            unsupported_value(f"{path}.restartPolicy", spec["restartPolicy"], allowed=("Always", "OnFailure", "Never"))
        )
    if spec["terminationGracePeriodSeconds"] is not None and spec["terminationGracePeriodSeconds"] < 0:
        errors.append(
            invalid_value(
                f"{path}.terminationGracePeriodSeconds",
                spec["terminationGracePeriodSeconds"],
                detail="must be greater than or equal to 0",
            )
        )
    if spec.get("nodeName") and spec.get("schedulingGates"):
        errors.append(forbidden_field(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return errors + _toleration_errors(spec.get("tolerations") or (), f"{path}.tolerations")


def _container_errors(container: Any, path: str, names: set[str]) -> list[FieldError]:
    errors: list[FieldError] = []
    name = container.get("name")
    if not name:
        errors.append(required(f"{path}.name"))
    elif not _LABEL.match(name) or len(name) > 63:
        errors.append(invalid_value(f"{path}.name", name, detail=_LABEL_TEXT))
    elif name in names:
        errors.append(FieldError(f"{path}.name", "FieldValueDuplicate", f'Duplicate value: "{name}"'))
    names.add(name or "")
    if not container.get("image"):
        errors.append(required(f"{path}.image"))
    resources = container.get("resources") or {}
    return errors + _resource_errors(
        resources.get("limits") or {}, resources.get("requests") or {}, f"{path}.resources"
    )


def _resource_errors(limits: Mapping[str, Any], requests: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    amounts: dict[str, dict[str, Any]] = {"limits": {}, "requests": {}}
    for part, quantities in (("limits", limits), ("requests", requests)):
        for name, text in quantities.items():
            where = f"{path}.{part}[{name}]" if "/" in name else f"{path}.{part}.{name}"
            try:
                amount = amounts[part][name] = parse_quantity(text)
            except QuantityError:
                errors.append(
                    invalid_value(
                        where,
                        text,
                        detail="quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                    )
                )
                continue
            if amount < 0:
                errors.append(invalid_value(where, text, detail="must be greater than or equal to 0"))
            elif _extended(name) and amount != int(amount):
                errors.append(invalid_value(where, text, detail="must be an integer"))
            elif "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
                errors.append(invalid_value(where, name, detail="must be a standard resource for containers"))
    for name, amount in amounts["requests"].items():
        limit = amounts["limits"].get(name)
        where = f"{path}.requests"
        if limit is None:
            if _extended(name):
                errors.append(
                    FieldError(
                        f"{path}.limits",
                        "FieldValueRequired",
                        "Required value: Limit must be set for non overcommitable resources",
                    )
                )
        elif _extended(name) and limit != amount:
            errors.append(
                invalid_value(where, str(requests[name]), detail=f"must be equal to {name} limit of {limits[name]}")
            )
        elif amount > limit:
            errors.append(
                invalid_value(
                    where, str(requests[name]), detail=f"must be less than or equal to {name} limit of {limits[name]}"
                )
            )
    return errors


def _extended(name: str) -> bool:
    return "/" in name and "kubernetes.io/" not in name


def _toleration_errors(tolerations: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        where = f"{path}[{index}]"
        operator = toleration.get("operator") or "Equal"
        if operator not in {"Equal", "Exists"}:
            errors.append(unsupported_value(f"{where}.operator", operator, allowed=("Equal", "Exists")))
        if operator == "Exists" and toleration.get("value"):
            errors.append(
                invalid_value(f"{where}.operator", toleration, detail="value must be empty when `operator` is 'Exists'")
            )
        if not toleration.get("key") and operator != "Exists":
            errors.append(
                invalid_value(
                    f"{where}.operator",
                    operator,
                    detail='operator must be Exists when `key` is empty, which means "match all values and all keys"',
                )
            )
    return errors


def _pod_change_errors(new: JsonObject, old: Mapping[str, Any]) -> list[FieldError]:
    """Only a few fields of a pod's spec may change; scheduling gates may only go, and open the node selector."""
    errors: list[FieldError] = []
    gates = new.get("schedulingGates") or []
    if any(gate not in (old.get("schedulingGates") or []) for gate in gates):
        errors.append(
            forbidden_field("spec.schedulingGates", "only deletion is allowed, but found new scheduling gates")
        )
    if (old.get("tolerations") or []) != (new.get("tolerations") or []) and any(
        toleration not in (new.get("tolerations") or []) for toleration in old.get("tolerations") or ()
    ):
        errors.append(
            forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        )
    ignored = {"containers", "initContainers", "activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if old.get("schedulingGates"):
        ignored |= {"nodeSelector", "affinity"}
    changed = [key for key in sorted({*new, *old} - ignored) if (new.get(key) or None) != (old.get(key) or None)]
    for field in ("containers", "initContainers"):
        before, after = old.get(field) or [], new.get(field) or []
        if [{**container, "image": ""} for container in before] != [{**container, "image": ""} for container in after]:
            changed.append(field)
    if changed:
        errors.append(forbidden_field("spec", f"{_POD_CHANGE}\n changed: {', '.join(changed)}"))
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
