"""Nodes whose kubelet is silent or not ready: conditions and taints, as kube-controller-manager's node controllers set them.

Ready=True      no taint of ours
Ready=False     not-ready:NoSchedule at once, not-ready:NoExecute when it lasts
lease silent    after `GRACE_SECONDS` Ready=Unknown, its pods not ready, unreachable:NoSchedule and :NoExecute
cordoned        unschedulable:NoSchedule
"""

from collections.abc import Mapping
from typing import Any

from muster.simulator.clock import parse_timestamp, timestamp
from muster.simulator.controllers.work_queue import WorkQueue
from muster.simulator.defaults import NOT_READY, UNREACHABLE
from muster.simulator.node_status import LEASE_NAMESPACE
from muster.simulator.pods import with_condition
from muster.simulator.store import Store
from muster.simulator.timers import Timers

Node = dict[str, Any]
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
OWN_TAINTS = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE})
GRACE_SECONDS = 40.0
NOT_READY_LASTS_SECONDS = 5.0
LEASES = "leases.coordination.k8s.io"


class NodeLifecycle:
    """Watches leases and Ready conditions; writes conditions and taints."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers
        self._heard: dict[str, float] = {}
        self._queue = WorkQueue[str](timers, self._sync, batch_seconds=0.01)
        store.subscribe("nodes", self._on_node)
        store.subscribe(LEASES, self._on_lease)
        for node in store.list("nodes"):
            self._on_node("ADDED", node, None)

    def _on_node(self, event: str, node: Node, _old: Node | None) -> None:
        name = node["metadata"]["name"]
        if event == "DELETED":
            self._heard.pop(name, None)
            self._queue.forget(name)
            return
        if event == "ADDED":
            self._heard[name] = self._store.clock.now()
            self._timers.after(GRACE_SECONDS, lambda: self._check(name, node["metadata"]["uid"]))
        if wanted_taints(node, self._store.clock.now()) != taints_of(node) or _age_matters(node):
            self._queue.add(name)

    def _on_lease(self, event: str, lease: Mapping[str, Any], _old: Mapping[str, Any] | None) -> None:
        metadata = lease["metadata"]
        if event != "DELETED" and metadata["namespace"] == LEASE_NAMESPACE and metadata["name"] in self._heard:
            self._heard[metadata["name"]] = self._store.clock.now()

    def _check(self, name: str, uid: str) -> None:
        node = self._store.find("nodes", None, name)
        if node is None or node["metadata"]["uid"] != uid:
            return
        silent = self._store.clock.now() - self._heard[name]
        wait = GRACE_SECONDS - silent
        if wait <= 0:
            if ready_status(node) != "Unknown":
                self._mark_unknown(node)
            wait = GRACE_SECONDS
        self._timers.after(wait, lambda: self._check(name, uid))

    def _mark_unknown(self, node: Node) -> None:
        name = node["metadata"]["name"]
        now = timestamp(self._store.clock.now())
        unknown = {
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": now,
        }
        conditions = [{**condition, **unknown} for condition in (node.get("status") or {}).get("conditions") or ()]
        if not any(condition["type"] == "Ready" for condition in conditions):
            conditions.append({"type": "Ready", "lastHeartbeatTime": now, **unknown})
        self._store.patch("nodes", None, name, {"status": {"conditions": conditions}}, subresource="status")
        for pod in self._store.list("pods"):
            if pod["spec"].get("nodeName") != name or not _is_ready(pod):
                continue
            not_ready = {
                "type": "Ready",
                "status": "False",
                "reason": "NodeNotReady",
                "message": "Node is not ready",
                "lastProbeTime": None,
                "lastTransitionTime": now,
            }
            status = {"conditions": with_condition(pod, not_ready)["conditions"]}
            metadata = pod["metadata"]
            self._store.patch("pods", metadata["namespace"], metadata["name"], {"status": status}, subresource="status")

    def _sync(self, name: str) -> None:
        node = self._store.find("nodes", None, name)
        if node is None:
            return
        now = self._store.clock.now()
        wanted = wanted_taints(node, now)
        if wanted != taints_of(node):
            self._store.patch("nodes", None, name, {"spec": {"taints": wanted}})
        if _age_matters(node):
            wait = NOT_READY_LASTS_SECONDS - (now - _ready_since(node))
            if wait > 0:
                self._queue.add_after(name, wait)


def wanted_taints(node: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    """The node's taints as they should be: others' kept in place, ours by its condition and cordon."""
    wanted: list[tuple[str, str]] = []
    ready = ready_status(node)
    if ready == "Unknown":
        wanted += [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    elif ready != "True":
        wanted.append((NOT_READY, "NoSchedule"))
        if ready == "False" and now - _ready_since(node) >= NOT_READY_LASTS_SECONDS:
            wanted.append((NOT_READY, "NoExecute"))
    if node["spec"].get("unschedulable"):
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    kept = [
        taint
        for taint in taints_of(node)
        if taint["key"] not in OWN_TAINTS or (taint["key"], taint["effect"]) in wanted
    ]
    present = {(taint["key"], taint["effect"]) for taint in kept}
    added = [{"key": k, "effect": e, "timeAdded": timestamp(now)} for k, e in wanted if (k, e) not in present]
    return kept + added


def taints_of(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The node's taints."""
    return list(node["spec"].get("taints") or ())


def ready_status(node: Mapping[str, Any]) -> str:
    """True, False, Unknown, or empty when nobody has reported yet."""
    return str((_ready(node) or {}).get("status", ""))


def _ready(node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == "Ready"), None)


def _ready_since(node: Mapping[str, Any]) -> float:
    # The API demands no time of a condition: one without it counts as old.
    moment = (_ready(node) or {}).get("lastTransitionTime")
    return parse_timestamp(moment) if moment else 0.0


def _age_matters(node: Mapping[str, Any]) -> bool:
    return ready_status(node) == "False" and not any(
        taint["key"] == NOT_READY and taint["effect"] == "NoExecute" for taint in taints_of(node)
    )


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
