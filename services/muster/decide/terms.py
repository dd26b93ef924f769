"""Which terms between pods matter now (see `muster.decide.neighbours.asked_labels`), followed as pods come, change and go.

    waiting   pods of ours that are to be placed; some have terms of their own, some mount claims
    keepers   standing pods whose anti-affinity keeps others away

Nothing is looked through again unless one of the pods that can matter changed.
"""

from collections.abc import Collection

from muster.decide.neighbours import Asked, asked_labels, matches
from muster.model.pods import Pod, PodTerm, keeps_away


class Terms:
    """The pods that terms are about."""

    def __init__(self, scheduler_names: Collection[str]) -> None:
        self._ours = frozenset(scheduler_names)
        self._waiting: dict[str, Pod] = {}
        self._keepers: dict[str, Pod] = {}
        self._wishing: dict[str, Pod] = {}
        self.mounting: dict[str, Pod] = {}
        """Waiting pods that mount claims."""
        self._fresh: list[Pod] = []
        """Pods that began to wait since `asked` was last told."""
        self._gone = False
        self._changed = False
        self._last: Asked | None = None

    def change(self, key: str, before: Pod | None, after: Pod | None) -> None:
        """A pod is now so; None: it is gone."""
        self._keep(key, before, after)
        waits = after is not None and self._waits(after)
        if not waits:
            self._gone |= self._waiting.pop(key, None) is not None
            self._changed |= self._wishing.pop(key, None) is not None
            self.mounting.pop(key, None)
            return
        assert after is not None
        known = self._waiting.get(key)
        self._waiting[key] = after
        if known is None or (known.namespace, known.labels) != (after.namespace, after.labels):
            self._gone |= known is not None
            self._fresh.append(after)
        if after.shape.claims:
            self.mounting[key] = after
        else:
            self.mounting.pop(key, None)
        wished = self._wishing.get(key)
        if after.shape.has_terms:
            self._changed |= wished is None or wished.shape != after.shape
            self._wishing[key] = after
        elif wished is not None:
            self._changed = True
            del self._wishing[key]

    def _waits(self, pod: Pod) -> bool:
        return pod.node is None and not pod.finished and pod.scheduler_name in self._ours

    def _keep(self, key: str, before: Pod | None, after: Pod | None) -> None:
        if after is not None and after.shape.pod_terms and after.holds_room and keeps_away(after.shape.pod_terms):
            known = self._keepers.get(key)
            self._changed |= known is None or before is None or _as_keeper(known) != _as_keeper(after)
            self._keepers[key] = after
        elif self._keepers.pop(key, None) is not None:
            self._changed = True

    def asked(self) -> Asked | None:
        """What terms that matter look at; None when none does."""
        if self._changed or self._may_differ():
            keepers = sorted(self._keepers.values(), key=lambda pod: (pod.created, pod.key, pod.uid))
            # Without keepers only what pods wish themselves is asked about.
            waiting = self._waiting if self._keepers else self._wishing
            self._last = asked_labels(keepers, waiting.values())
        self._fresh.clear()
        self._gone = self._changed = False
        return self._last

    def _may_differ(self) -> bool:
        """Whether waiting pods that came or went are, or were, what a keeper keeps away."""
        if not self._keepers or not (self._fresh or self._gone):
            return False
        if self._last is not None:
            return not self._wishing
        against: dict[tuple[str, tuple[PodTerm, ...]], None] = {
            (one.namespace, keeps_away(one.shape.pod_terms)): None for one in self._keepers.values()
        }
        return any(
            matches(term, namespace, pod.namespace, pod.labels)
            for namespace, terms in against
            for term in terms
            for pod in self._fresh
        )


def _as_keeper(pod: Pod) -> tuple[object, ...]:
    return pod.namespace, pod.shape.pod_terms, pod.created, pod.uid
