"""What DELETE means: at once, after a grace period, or when the last finalizer is gone.

pod with a node, grace > 0     deletionTimestamp = now + grace; the kubelet's second delete (grace 0) removes it
pod without a node, or over    grace counts as 0
grace 0                        MODIFIED with deletionTimestamp, then DELETED
finalizers (or Foreground/     deletionTimestamp only; the update that removes the last one removes the object
  Orphan propagation)
namespace                      phase Terminating until spec.finalizers is emptied through the finalize subresource
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.simulator.clock import parse_timestamp, timestamp
from muster.simulator.errors import JsonObject
from muster.simulator.resources import ResourceType
from muster.simulator.watching import Record

if TYPE_CHECKING:
    from muster.simulator.store import Store

DEFAULT_GRACE = 30
_PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}


def finished(resource_type: ResourceType, obj: Mapping[str, Any]) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if "deletionTimestamp" not in metadata or metadata.get("finalizers"):
        return False
    if resource_type.key == "namespaces":
        return not (obj.get("spec") or {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _pod_grace(pod: Mapping[str, Any], asked: int | None) -> int:
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return 0
    if asked is not None:
        return max(0, asked)
    configured = spec.get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE if configured is None else max(1, configured)


def deleted_status(resource_type: ResourceType, obj: Mapping[str, Any]) -> JsonObject:
    """The success Status that answers a delete."""
    metadata = obj["metadata"]
    details: JsonObject = {"name": metadata["name"], "kind": resource_type.plural, "uid": metadata["uid"]}
    if resource_type.group:
        details["group"] = resource_type.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def delete(
    store: "Store",
    resource_type: ResourceType,
    old: Record,
    *,
    grace_period: int | None,
    propagation: str,
    dry_run: bool,
) -> JsonObject:
    """Carry out a delete whose preconditions hold; the object while it exists (pods, namespaces: always), else a Status."""
    is_pod = resource_type.key == "pods"
    grace = _pod_grace(old.obj, grace_period) if is_pod else 0
    metadata = old.obj["metadata"]
    finalizers = list(metadata.get("finalizers") or [])
    added = _PROPAGATION_FINALIZERS.get(propagation)
    if added and added not in finalizers and "deletionTimestamp" not in metadata:
        finalizers.append(added)
    marked = _marked(store, resource_type, old.obj, grace=grace, finalizers=finalizers)
    waits = grace > 0 or bool(finalizers) or not finished(resource_type, marked)
    current = store.commit_update(resource_type, old, marked, dry_run=dry_run) if waits or is_pod else old
    if waits:
        return current.obj
    if dry_run:
        return current.obj if is_pod else deleted_status(resource_type, old.obj)
    removed = store.commit_removal(resource_type, current)
    return removed.obj if is_pod or resource_type.key == "namespaces" else deleted_status(resource_type, old.obj)


def _marked(
    store: "Store", resource_type: ResourceType, obj: JsonObject, *, grace: int, finalizers: list[str]
) -> JsonObject:
    """The object as it looks once its deletion is asked for; a second delete may only shorten the wait."""
    metadata = dict(obj["metadata"])
    due = store.clock.now() + grace
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = timestamp(due)
        metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata and resource_type.generation:
            metadata["generation"] += 1
    elif grace < metadata.get("deletionGracePeriodSeconds", 0):
        metadata["deletionTimestamp"] = timestamp(min(due, parse_timestamp(metadata["deletionTimestamp"])))
        metadata["deletionGracePeriodSeconds"] = grace
    if finalizers:
        metadata["finalizers"] = finalizers
    marked = {**obj, "metadata": metadata}
    if resource_type.key == "namespaces":
        marked["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return marked
