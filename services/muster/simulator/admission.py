"""Admission: what happens to an object between the request and the table.

    namespace exists and is not terminating → (custom) prune, default, check the schema
                                            → (built-in) defaults, priority of pods, validation → status as the type wants it

The functions get private objects and change them in place; on an update only parts that differ from the old object are
copied and worked on, so a status write pays nothing for a big spec.
"""

from typing import TYPE_CHECKING

import orjson

from muster.simulator import defaults, validation
from muster.simulator.definitions import CRD_KEY, check_definition, complete_definition
from muster.simulator.errors import FieldError, JsonObject, forbidden, invalid, not_found
from muster.simulator.resources import ResourceType
from muster.simulator.schema import apply_schema

if TYPE_CHECKING:
    from muster.simulator.store import Store

PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"
# Kinds whose status is kept when they are created: the kubelet registers a node with its capacity.
_STATUS_ON_CREATE = frozenset({"nodes"})


def system_priority_classes() -> tuple[JsonObject, ...]:
    """The two classes every cluster has."""
    described = {
        "system-cluster-critical": (
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        "system-node-critical": (
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    }
    return tuple(
        {"metadata": {"name": name}, "value": value, "description": text} for name, (value, text) in described.items()
    )


def admit_create(resource_type: ResourceType, obj: JsonObject, *, store: "Store") -> None:
    """Complete and check a new object in place; ApiError 403, 404, 422."""
    metadata = obj["metadata"]
    name = metadata["name"]
    if resource_type.namespaced:
        _check_namespace(resource_type, metadata["namespace"], name, store)
    if resource_type.status and resource_type.key not in _STATUS_ON_CREATE:
        obj.pop("status", None)
    if resource_type.custom:
        _apply_custom_schema(resource_type, obj)
        _refuse(resource_type, name, validation.metadata_errors(resource_type, obj))
        return
    if resource_type.key == CRD_KEY:
        check_definition(obj)
        complete_definition(obj)
        return
    defaults.apply_defaults(resource_type.key, obj)
    if resource_type.key == "pods":
        _resolve_priority(obj, store)
        defaults.start_pod(obj)
    elif resource_type.key == "nodes":
        defaults.start_node(obj)
        obj["status"] = defaults.node_quantities(obj)["status"]
    elif resource_type.key == "namespaces":
        defaults.start_namespace(obj)
    _refuse(resource_type, name, validation.creation_errors(resource_type, obj, store=store))


def admit_update(
    resource_type: ResourceType, new: JsonObject, old: JsonObject, *, subresource: str | None, store: "Store"
) -> JsonObject:
    """Complete and check a changed object; the answer is the object to store; ApiError 403, 422."""
    if new == old:
        return new
    name = new["metadata"]["name"]
    if resource_type.custom:
        new = _fresh(new)
        _apply_custom_schema(resource_type, new)
        return new
    if resource_type.key == CRD_KEY:
        if new.get("spec") != old.get("spec"):
            check_definition(new)
            new = _fresh(new)
            complete_definition(new)
        return new
    if subresource == "status" and new.get("spec") is old.get("spec"):
        return defaults.node_quantities(new) if resource_type.key == "nodes" else new
    if any(new.get(part) is not old.get(part) for part in new if part not in {"metadata", "status"}):
        new = _fresh(new)
        defaults.apply_defaults(resource_type.key, new)
        if resource_type.key == "pods":
            defaults.keep_admitted(new, old)
    _refuse(resource_type, name, validation.update_errors(resource_type, new, old, store=store))
    return new


def _fresh(obj: JsonObject) -> JsonObject:
    copied: JsonObject = orjson.loads(orjson.dumps(obj))
    return copied


def _refuse(resource_type: ResourceType, name: str, errors: list[FieldError]) -> None:
    if errors:
        raise invalid(resource_type.kind, name, group=resource_type.group, errors=errors)


def _apply_custom_schema(resource_type: ResourceType, obj: JsonObject) -> None:
    version = resource_type.version(resource_type.storage_version) or resource_type.versions[0]
    if version.schema is not None:
        _refuse(resource_type, obj["metadata"]["name"], apply_schema(version.schema, obj))


def _check_namespace(resource_type: ResourceType, namespace: str, name: str, store: "Store") -> None:
    found = store.find("namespaces", None, namespace)
    if found is None:
        raise not_found("namespaces", namespace)
    if "deletionTimestamp" in found["metadata"]:
        refused = forbidden(
            resource_type.plural,
            name,
            group=resource_type.group,
            message=f"unable to create new content in namespace {namespace} because it is being terminated",
        )
        assert refused.details is not None
        refused.details["causes"] = [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ]
        raise refused


def _resolve_priority(pod: JsonObject, store: "Store") -> None:
    """The Priority admission plugin: class name → number and preemption policy."""
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    class_name = spec.get("priorityClassName")
    if class_name:
        found = store.find(PRIORITY_CLASSES, None, class_name)
        if found is None:
            raise forbidden(
                "pods", pod["metadata"]["name"], message=f"no PriorityClass with name {class_name} was found"
            )
    else:
        chosen = [candidate for candidate in store.objects(PRIORITY_CLASSES) if candidate.get("globalDefault")]
        found = min(chosen, key=lambda candidate: int(candidate["value"])) if chosen else None
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    priority = int(found["value"]) if found is not None else 0
    policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    for field, computed, text in (
        ("priority", priority, "the integer value of priority"),
        ("preemptionPolicy", policy, "the string value of PreemptionPolicy"),
    ):
        given = spec.get(field)
        if given is not None and given != computed:
            raise forbidden(
                "pods",
                pod["metadata"]["name"],
                message=f"{text} ({given}) must not be provided in pod spec; priority admission controller computed "
                f"{computed} from the given PriorityClass name",
            )
        spec[field] = computed
