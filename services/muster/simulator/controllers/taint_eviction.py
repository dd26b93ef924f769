"""Pods on nodes with NoExecute taints: deleted at once, or when the time they tolerate the taint is over."""

from collections.abc import Mapping
from typing import Any

from muster.simulator.clock import timestamp
from muster.simulator.errors import ApiError
from muster.simulator.kubelet_admission import tolerates
from muster.simulator.pods import with_condition
from muster.simulator.store import Store
from muster.simulator.timers import Timer, Timers

Object = dict[str, Any]
Taints = tuple[tuple[str, str], ...]


class TaintEviction:
    """Follows NoExecute taints of nodes and the pods bound to them."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers
        self._tainted: dict[str, list[Mapping[str, Any]]] = {}
        self._pending: dict[str, tuple[str, Timer]] = {}
        store.subscribe("nodes", self._on_node)
        store.subscribe("pods", self._on_pod)
        for node in store.list("nodes"):
            self._on_node("ADDED", node, None)

    def _on_node(self, event: str, node: Object, _old: Object | None) -> None:
        name = node["metadata"]["name"]
        taints = [] if event == "DELETED" else no_execute(node)
        if taints == self._tainted.get(name, []):
            return
        if taints:
            self._tainted[name] = taints
        else:
            self._tainted.pop(name, None)
        for uid, (pod_node, timer) in list(self._pending.items()):
            if pod_node == name:
                timer.cancel()
                del self._pending[uid]
        if taints:
            for pod in self._store.list("pods"):
                if pod["spec"].get("nodeName") == name:
                    self._consider(pod)

    def _on_pod(self, event: str, pod: Object, old: Object | None) -> None:
        if event == "DELETED":
            pending = self._pending.pop(pod["metadata"]["uid"], None)
            if pending is not None:
                pending[1].cancel()
        elif pod["spec"].get("nodeName") in self._tainted and (old is None or not old["spec"].get("nodeName")):
            self._consider(pod)

    def _consider(self, pod: Object) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        seconds = tolerated_seconds(pod, self._tainted[node])
        if seconds is None or uid in self._pending or "deletionTimestamp" in pod["metadata"]:
            return
        self._pending[uid] = (node, self._timers.after(seconds, lambda: self._evict(pod)))

    def _evict(self, pod: Object) -> None:
        metadata = pod["metadata"]
        self._pending.pop(metadata["uid"], None)
        current = self._store.find("pods", metadata["namespace"], metadata["name"])
        if (
            current is None
            or current["metadata"]["uid"] != metadata["uid"]
            or "deletionTimestamp" in current["metadata"]
        ):
            return
        disrupt(
            self._store,
            current,
            reason="DeletionByTaintManager",
            message="Taint manager: deleting due to NoExecute taint",
        )
        try:
            self._store.delete("pods", metadata["namespace"], metadata["name"], preconditions={"uid": metadata["uid"]})
        except ApiError as error:
            # Writing the condition may have led to the pod's removal.
            if error.code not in {404, 409}:
                raise


def no_execute(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The node's NoExecute taints."""
    return [taint for taint in node["spec"].get("taints") or () if taint["effect"] == "NoExecute"]


def tolerated_seconds(pod: Mapping[str, Any], taints: list[Mapping[str, Any]]) -> float | None:
    """How long the pod may stay under these taints; None: for ever."""
    tolerations = pod["spec"].get("tolerations") or ()
    least: float | None = None
    for taint in taints:
        matching = [toleration for toleration in tolerations if tolerates(toleration, taint)]
        if not matching:
            return 0.0
        for toleration in matching:
            seconds = toleration.get("tolerationSeconds")
            if seconds is not None:
                least = max(0.0, float(seconds)) if least is None else min(least, max(0.0, float(seconds)))
    return least


def disrupt(store: Store, pod: Mapping[str, Any], *, reason: str, message: str, phase: str | None = None) -> None:
    """Set the DisruptionTarget condition, and a phase when one is given."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(store.clock.now()),
    }
    status: Object = {"conditions": with_condition(pod, condition)["conditions"]}
    if phase is not None:
        status["phase"] = phase
    metadata = pod["metadata"]
    store.patch("pods", metadata["namespace"], metadata["name"], {"status": status}, subresource="status")
