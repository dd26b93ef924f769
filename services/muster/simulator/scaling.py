"""The scale subresource: autoscaling/v1 Scale read from, and written to, the paths a type declares."""

from collections.abc import Mapping, Sequence
from typing import Any

from muster.simulator.errors import FieldError, JsonObject, invalid, invalid_value, no_such_path, required
from muster.simulator.resources import ResourceType


def _at(obj: Mapping[str, Any], path: str) -> Any:
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _with(obj: Mapping[str, Any], steps: Sequence[str], value: Any) -> JsonObject:
    """A copy of `obj` in which only the path is new."""
    copy = dict(obj)
    copy[steps[0]] = value if len(steps) == 1 else _with(obj.get(steps[0]) or {}, steps[1:], value)
    return copy


def _selector_text(selector: Any) -> str:
    if isinstance(selector, str):
        return selector
    labels = (selector or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def scale_of(resource_type: ResourceType, obj: JsonObject) -> JsonObject:
    """The Scale of an object; 404 when its type has none."""
    paths = resource_type.scale
    if paths is None:
        raise no_such_path()
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    metadata = obj["metadata"]
    status: JsonObject = {"replicas": _at(obj, paths.status_replicas) or 0}
    selector = _at(obj, paths.label_selector) if paths.label_selector else _at(obj, "spec.selector")
    if selector:
        status["selector"] = _selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": _at(obj, paths.spec_replicas) or 0},
        "status": status,
    }


def with_scale(resource_type: ResourceType, old: JsonObject, scale: JsonObject) -> JsonObject:
    """The object with the replicas a Scale asks for; 422 when it asks for nonsense."""
    paths = resource_type.scale
    if paths is None:
        raise no_such_path()
    replicas = (scale.get("spec") or {}).get("replicas")
    errors: list[FieldError] = []
    if replicas is None:
        errors.append(required("spec.replicas"))
    elif isinstance(replicas, bool) or not isinstance(replicas, int) or replicas < 0:
        errors.append(invalid_value("spec.replicas", replicas, detail="must be greater than or equal to 0"))
    if errors:
        raise invalid("Scale", old["metadata"]["name"], group="autoscaling", errors=errors)
    new = _with(old, paths.spec_replicas.split("."), replicas)
    new["metadata"] = dict(old["metadata"])
    return new
