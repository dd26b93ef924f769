"""Checks of pod specs: containers, resources, tolerations, and what an update of a pod may change."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from muster.model.quantity import QuantityError, parse_quantity
from muster.simulator.errors import (
    FieldError,
    JsonObject,
    forbidden_field,
    invalid_value,
    required,
    unsupported_value,
)

LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage", "storage"})
_POD_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


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
    elif not LABEL.match(name) or len(name) > 63:
        errors.append(invalid_value(f"{path}.name", name, detail=LABEL_TEXT))
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


def pod_change_errors(new: JsonObject, old: Mapping[str, Any]) -> list[FieldError]:
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
