"""The two pod subresources a scheduler lives by: binding and eviction.

A Binding sets nodeName, merges its annotations and adds PodScheduled in one write. It is refused (409) for a bound,
deleted or gated pod and when its metadata carries a uid or resourceVersion that is not the pod's; a cordoned or missing
node is not looked at, as in the real server. An eviction is a delete that disruption budgets may refuse (429): pods that
have not started, have ended or are being deleted are free; so are pods that are not ready where the budget says so, or
while enough others are healthy.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.simulator.clock import timestamp
from muster.simulator.errors import ApiError, JsonObject, bad_request, conflict, invalid, required, too_many_requests
from muster.simulator.selectors import selector_predicate
from muster.simulator.watching import Record

if TYPE_CHECKING:
    from muster.simulator.store import Store

PDB_KEY = "poddisruptionbudgets.policy"
PROCESSED_WITHIN = 10
"""Seconds that a client is told to wait for the disruption controller."""


def with_condition(pod: Mapping[str, Any], condition: JsonObject) -> JsonObject:
    """The pod's status with a condition set, replacing one of the same type."""
    status = dict(pod.get("status") or {})
    others = [old for old in status.get("conditions") or [] if old.get("type") != condition["type"]]
    status["conditions"] = [*others, condition]
    return status


def _precondition(name: str, label: str, wanted: str, found: str) -> ApiError:
    return conflict(
        "pods/binding",
        name,
        message=f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {found}",
    )


def bind(store: "Store", namespace: str, name: str, binding: Mapping[str, Any], *, dry_run: bool = False) -> None:
    """Assign a pod to a node; ApiError 400, 404, 409, 422."""
    metadata = binding.get("metadata") or {}
    target = binding.get("target") or {}
    node = target.get("name")
    if metadata.get("name") not in {None, "", name}:
        raise bad_request(f"metadata.name: {metadata['name']!r} does not match the pod on the URL ({name})")
    if not node:
        raise invalid("Binding", name, errors=[required("target.name")])
    if target.get("kind") not in {None, "", "Node"}:
        raise bad_request(f"target.kind: {target['kind']!r} must be Node")
    pod_type = store.registry.get("pods")
    old = store.record(pod_type, namespace, name)
    _check_bindable(old, metadata)
    pod_metadata = dict(old.obj["metadata"])
    annotations = metadata.get("annotations")
    if annotations:
        pod_metadata["annotations"] = {**(pod_metadata.get("annotations") or {}), **annotations}
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(store.clock.now()),
    }
    if "generation" in pod_metadata:
        condition["observedGeneration"] = pod_metadata["generation"]
    new = {
        **old.obj,
        "metadata": pod_metadata,
        "spec": {**old.obj["spec"], "nodeName": node},
        "status": with_condition(old.obj, condition),
    }
    store.commit_update(pod_type, old, new, dry_run=dry_run)


def _check_bindable(old: Record, metadata: Mapping[str, Any]) -> None:
    pod_metadata, spec = old.obj["metadata"], old.obj["spec"]
    name = pod_metadata["name"]
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = metadata.get(field)
        if wanted and wanted != pod_metadata[field]:
            raise _precondition(name, label, wanted, pod_metadata[field])
    if "deletionTimestamp" in pod_metadata:
        raise conflict("pods/binding", name, message=f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise conflict("pods/binding", name, message=f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict("pods/binding", name, message=f"pod {name} has non-empty .spec.schedulingGates")


def evict(store: "Store", namespace: str, name: str, eviction: Mapping[str, Any], *, dry_run: bool = False) -> None:
    """Delete a pod if the disruption budgets of its namespace allow; ApiError 404, 409, 429, 500."""
    given = (eviction.get("metadata") or {}).get("name")
    if given not in {None, "", name}:
        raise bad_request(f"name in URL does not match name in Eviction object: {given!r}, {name!r}")
    options = eviction.get("deleteOptions") or {}
    pod_type = store.registry.get("pods")
    old = store.record(pod_type, namespace, name)
    metadata = old.obj["metadata"]
    preconditions = options.get("preconditions") or {}
    for field, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        wanted = preconditions.get(field)
        if wanted and wanted != metadata[field]:
            raise conflict(
                "pods",
                name,
                message=f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {metadata[field]}",
            )
    over = (old.obj.get("status") or {}).get("phase") in {"Succeeded", "Failed", "Pending"}
    if not over and "deletionTimestamp" not in metadata:
        _take_from_budget(store, namespace, old, dry_run=dry_run)
    if "deletionTimestamp" not in metadata:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(store.clock.now()),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        marked = {**old.obj, "metadata": dict(metadata), "status": with_condition(old.obj, condition)}
        store.commit_update(pod_type, old, marked, dry_run=dry_run)
    store.delete(
        "pods",
        namespace,
        name,
        grace_period=options.get("gracePeriodSeconds"),
        propagation=options.get("propagationPolicy") or "Background",
        dry_run=dry_run,
    )


def _take_from_budget(store: "Store", namespace: str, pod: Record, *, dry_run: bool) -> None:
    labels = pod.obj["metadata"].get("labels") or {}
    budgets = [
        budget
        for budget in store.list(PDB_KEY, namespace)
        if (selector := (budget.get("spec") or {}).get("selector")) is not None and selector_predicate(selector)(labels)
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        raise ApiError(
            500,
            "InternalError",
            message="This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )
    budget = budgets[0]
    status = budget.get("status") or {}
    name = budget["metadata"]["name"]
    if not is_ready(pod.obj) and _spares_unready(budget["spec"], status):
        return
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _over_budget(
            f"The disruption budget {name} is still being processed by the server.", retry_after=PROCESSED_WITHIN
        )
    if status.get("disruptionsAllowed", 0) <= 0:
        raise _over_budget(
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods "
            f"and has {status.get('currentHealthy', 0)} currently"
        )
    taken = {
        **status,
        "disruptionsAllowed": status["disruptionsAllowed"] - 1,
        "disruptedPods": {
            **(status.get("disruptedPods") or {}),
            pod.obj["metadata"]["name"]: timestamp(store.clock.now()),
        },
    }
    store.update(PDB_KEY, {**budget, "status": taken}, subresource="status", dry_run=dry_run)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod's condition Ready is True."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _spares_unready(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether a pod that is not ready may be evicted whatever is allowed (unhealthyPodEvictionPolicy)."""
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = status.get("desiredHealthy", 0)
    return bool(desired > 0 and status.get("currentHealthy", 0) >= desired)


def _over_budget(why: str, *, retry_after: int | None = None) -> ApiError:
    return too_many_requests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        retry_after=retry_after,
        causes=[{"reason": "DisruptionBudget", "message": why}],
    )
