"""The disruption controller: keeps the status of PodDisruptionBudgets, which the eviction subresource goes by.

    expectedPods, desiredHealthy   from minAvailable, or maxUnavailable and percents of the replicas of the pods' controllers
    currentHealthy                 pods that are Ready, not being deleted, and not just evicted
    disruptionsAllowed             what is healthy beyond what is desired

Percents and maxUnavailable need controllers with replicas; where a pod has none (a Job's, a bare pod) nothing may be
evicted, and the condition DisruptionAllowed says SyncFailed: that is what the real controller does.
"""

import math
from typing import Any

from muster.simulator.clock import parse_timestamp, timestamp
from muster.simulator.controllers.work_queue import WorkQueue
from muster.simulator.errors import ApiError
from muster.simulator.pods import PDB_KEY as BUDGETS
from muster.simulator.pods import is_ready
from muster.simulator.selectors import selector_predicate
from muster.simulator.store import Store
from muster.simulator.timers import Timers

Object = dict[str, Any]
SCALED = {"ReplicaSet": "replicasets.apps", "StatefulSet": "statefulsets.apps", "Deployment": "deployments.apps"}
DISRUPTED_SECONDS = 120.0
"""A pod whose eviction was granted but that is not being deleted by then counts as healthy again."""


class Unscaled(Exception):  # noqa: N818  (a finding about pods, not an error)
    """A pod's controller has no replicas."""


class Disruption:
    """See the module."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._queue = WorkQueue[tuple[str, str]](timers, self._sync)
        store.subscribe(BUDGETS, self._on_budget)
        store.subscribe("pods", self._on_pod)

    def _on_budget(self, event: str, budget: Object, old: Object | None) -> None:
        if event != "DELETED" and (
            old is None or old["metadata"].get("generation") != budget["metadata"].get("generation")
        ):
            self._queue.add((budget["metadata"]["namespace"], budget["metadata"]["name"]))

    def _on_pod(self, event: str, pod: Object, old: Object | None) -> None:
        if event == "MODIFIED" and old is not None and _seen(pod) == _seen(old):
            return
        for budget in self._store.list(BUDGETS, pod["metadata"]["namespace"]):
            if any(one is not None and covers(budget, one) for one in (pod, old)):
                self._queue.add((budget["metadata"]["namespace"], budget["metadata"]["name"]))

    def _sync(self, key: tuple[str, str]) -> None:
        budget = self._store.find(BUDGETS, *key)
        if budget is None or "deletionTimestamp" in budget["metadata"]:
            return
        now = self._store.clock.now()
        pods = [pod for pod in self._store.list("pods", key[0]) if covers(budget, pod)]
        before = budget.get("status") or {}
        status = self._status(budget, pods, now)
        left = [parse_timestamp(at) + DISRUPTED_SECONDS - now for at in status["disruptedPods"].values()]
        if left:
            self._queue.add_after(key, max(0.1, min(left)))
        if {name: before.get(name) for name in status} == status:
            return
        try:
            # A merge patch: what is not disrupted any more has to be named to go.
            disrupted = {**dict.fromkeys(before.get("disruptedPods") or {}), **status["disruptedPods"]}
            self._store.patch(BUDGETS, *key, {"status": {**status, "disruptedPods": disrupted}}, subresource="status")
        except ApiError as error:
            if error.code not in {404, 409}:
                raise

    def _status(self, budget: Object, pods: list[Object], now: float) -> Object:
        spec, before = budget["spec"], budget.get("status") or {}
        by_name = {pod["metadata"]["name"]: pod for pod in pods}
        disrupted = {
            name: at
            for name, at in (before.get("disruptedPods") or {}).items()
            if name in by_name
            and "deletionTimestamp" not in by_name[name]["metadata"]
            and parse_timestamp(at) + DISRUPTED_SECONDS > now
        }
        healthy = sum(
            is_ready(pod) and "deletionTimestamp" not in pod["metadata"] and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        problem = ""
        try:
            expected, desired = self._wanted(spec, pods)
        except Unscaled as found:
            expected, desired, problem = len(pods), len(pods), str(found)
        allowed = max(0, healthy - desired) if expected and not problem else 0
        reason = "SyncFailed" if problem else "SufficientPods" if allowed else "InsufficientPods"
        return {
            "expectedPods": expected,
            "desiredHealthy": desired,
            "currentHealthy": healthy,
            "disruptionsAllowed": allowed,
            "disruptedPods": disrupted,
            "observedGeneration": budget["metadata"].get("generation", 1),
            "conditions": _conditions(before, reason, problem, allowed=bool(allowed), now=now),
        }

    def _wanted(self, spec: Object, pods: list[Object]) -> tuple[int, int]:
        """Expected pods, and how many of them must be healthy."""
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if isinstance(least, int):
            return len(pods), least
        expected = self._replicas(pods)
        if isinstance(least, str):
            return expected, _part(least, expected)
        allowed = most if isinstance(most, int) else _part(most, expected) if isinstance(most, str) else 0
        return expected, max(0, expected - allowed)

    def _replicas(self, pods: list[Object]) -> int:
        """Replicas of the controllers of these pods. Raises Unscaled."""
        counted: dict[str, int] = {}
        for pod in pods:
            metadata = pod["metadata"]
            owner = next((one for one in metadata.get("ownerReferences") or () if one.get("controller")), None)
            found = None
            if owner is not None and owner["kind"] in SCALED:
                found = self._store.find(SCALED[owner["kind"]], metadata["namespace"], owner["name"])
            if owner is None or found is None:
                whose = f"{owner['kind']} {owner['name']}" if owner is not None else "no controller"
                raise Unscaled(f"pod {metadata['name']} has {whose}, which has no scale")
            counted[owner["uid"]] = int((found.get("spec") or {}).get("replicas", 1))
        return sum(counted.values())


def covers(budget: Object, pod: Object) -> bool:
    """Whether the budget is about this pod; one without a selector is about none."""
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and selector_predicate(selector)(pod["metadata"].get("labels") or {})


def _part(percent: str, whole: int) -> int:
    return math.ceil(whole * int(percent.rstrip("%")) / 100)


def _conditions(before: Object, reason: str, problem: str, *, allowed: bool, now: float) -> list[Object]:
    status = "True" if allowed else "False"
    old = next((one for one in before.get("conditions") or () if one.get("type") == "DisruptionAllowed"), None)
    if old is not None and (old.get("status"), old.get("reason"), old.get("message")) == (status, reason, problem):
        return [old]
    return [
        {
            "type": "DisruptionAllowed",
            "status": status,
            "reason": reason,
            "message": problem,
            "lastTransitionTime": timestamp(now),
        }
    ]


def _seen(pod: Object) -> tuple[Any, ...]:
    return pod["metadata"].get("deletionTimestamp"), is_ready(pod), pod["metadata"].get("labels")
