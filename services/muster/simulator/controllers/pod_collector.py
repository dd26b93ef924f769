"""Pods bound to nodes that do not exist: failed and removed by force when the node has been missing for a while."""

from typing import Any

from muster.simulator.controllers.taint_eviction import disrupt
from muster.simulator.controllers.work_queue import WorkQueue
from muster.simulator.errors import ApiError
from muster.simulator.store import Store
from muster.simulator.timers import Timers

Object = dict[str, Any]
QUARANTINE_SECONDS = 40.0


class PodCollector:
    """What kube-controller-manager's pod garbage collector does for orphaned pods."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._queue = WorkQueue[str](timers, self._sync)
        store.subscribe("nodes", self._on_node)
        store.subscribe("pods", self._on_pod)
        for pod in store.list("pods"):
            self._on_pod("ADDED", pod, None)

    def _on_node(self, event: str, node: Object, _old: Object | None) -> None:
        if event == "DELETED":
            self._queue.add_after(node["metadata"]["name"], QUARANTINE_SECONDS)

    def _on_pod(self, event: str, pod: Object, old: Object | None) -> None:
        node = pod["spec"].get("nodeName")
        newly_bound = node and (old is None or not old["spec"].get("nodeName"))
        if event != "DELETED" and newly_bound and self._store.find("nodes", None, node) is None:
            self._queue.add_after(node, QUARANTINE_SECONDS)

    def _sync(self, node: str) -> None:
        if self._store.find("nodes", None, node) is not None:
            return
        for pod in self._store.list("pods"):
            if pod["spec"].get("nodeName") != node:
                continue
            metadata = pod["metadata"]
            if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
                disrupt(
                    self._store, pod, reason="DeletionByPodGC", message="PodGC: node no longer exists", phase="Failed"
                )
            try:
                self._store.delete(
                    "pods",
                    metadata["namespace"],
                    metadata["name"],
                    grace_period=0,
                    preconditions={"uid": metadata["uid"]},
                )
            except ApiError as error:
                # Writing the status may have led to the pod's removal.
                if error.code not in {404, 409}:
                    raise
