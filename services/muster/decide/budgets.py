"""PodDisruptionBudgets joined with the pods that they cover: pods of ours that stand, as only those may be victims.

Pods come and go by the thousand, budgets by the dozen: a pod is compared with the budgets of its namespace alone.
"""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from muster.decide.selecting import selects
from muster.model.budgets import Budget
from muster.model.pods import Pod
from muster.model.units import PodUid


def covers(budget: Budget, pod: Pod) -> bool:
    """Whether an eviction of this pod has to respect the budget."""
    if budget.selects_nothing or pod.namespace != budget.namespace:
        return False
    return selects(budget.selector, pod.labels)


def budgets_of(budgets: Iterable[Budget], standing: Iterable[Pod]) -> tuple[Budget, ...]:
    """The budgets with the pods that they cover, by namespace and name. ``standing`` are the pods of ours that hold room."""
    pods = tuple(standing)
    return tuple(
        msgspec.structs.replace(budget, pods=tuple(sorted(pod.uid for pod in pods if covers(budget, pod))))
        for budget in sorted(budgets, key=lambda one: (one.namespace, one.name))
    )


class Budgets:
    """The same, by what changed."""

    def __init__(self, pods: Mapping[str, Pod], stands: Callable[[Pod], bool]) -> None:
        """``pods``: all pods by key, looked at and never changed; ``stands``: whether a pod is ours and holds room."""
        self._pods = pods
        self._stands = stands
        self._budgets: dict[str, dict[str, Budget]] = {}
        """By namespace and key."""
        self._covered: dict[str, set[PodUid]] = {}
        self._all: tuple[Budget, ...] | None = ()

    def change(self, key: str, after: Budget | None) -> None:
        """A budget is now so; None: it is gone."""
        self._all = None
        namespace = key.partition("/")[0]
        mine = self._budgets.setdefault(namespace, {})
        before = mine.pop(key, None)
        if after is None:
            self._covered.pop(key, None)
            if not mine:
                del self._budgets[namespace]
            return
        mine[key] = after
        if before is None or (before.selector, before.selects_nothing) != (after.selector, after.selects_nothing):
            self._covered[key] = {pod.uid for pod in self._pods.values() if self._stands(pod) and covers(after, pod)}

    def change_pod(self, before: Pod | None, after: Pod | None) -> None:
        """A pod is now so; None: it was not there, or is gone."""
        pod = after if after is not None else before
        mine = self._budgets.get(pod.namespace) if pod is not None else None
        if mine is None:
            return
        was = before if before is not None and self._stands(before) else None
        now = after if after is not None and self._stands(after) else None
        if was is not None and now is not None and (was.uid, was.labels) == (now.uid, now.labels):
            return
        for key, budget in mine.items():
            covered = self._covered[key]
            if was is not None and was.uid in covered:
                covered.discard(was.uid)
                self._all = None
            if now is not None and covers(budget, now):
                covered.add(now.uid)
                self._all = None

    def all(self) -> tuple[Budget, ...]:
        """Every budget with the pods that it covers, by namespace and name."""
        if self._all is None:
            every = [budget for mine in self._budgets.values() for budget in mine.values()]
            self._all = tuple(
                msgspec.structs.replace(one, pods=tuple(sorted(self._covered[one.key])))
                for one in sorted(every, key=lambda one: (one.namespace, one.name))
            )
        return self._all
