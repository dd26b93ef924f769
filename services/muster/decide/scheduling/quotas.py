"""Quota that is kept for who waited too long: what a capability leaves goes to it first, as it comes free.

A gang that waits longer than it should goes before the others of its queue, but a large one that only a capability holds
back would never start while smaller ones take what comes free one by one. So what it asks is set aside under every
capability above it, for everybody but itself: what runs ends, nothing new comes in beside it, and then it starts. It waits
for its max-wait and the longest job that ran then, at the most.

As many gangs at once as may have reservations, those that have waited longest; none that could never start as it is.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from muster.decide.asks import Ask
from muster.decide.reasons import Reason
from muster.decide.room import Room
from muster.decide.scheduling.holds import Held
from muster.decide.scheduling.state import least_charge
from muster.decide.shares import Amounts, Tree
from muster.model.units import GangKey, QueueName
from muster.model.workloads import Queue


class Quotas:
    """The capabilities of one decision, with what is set aside taken off; `release` puts them back."""

    def __init__(
        self, tree: Tree, room: Room, asks: Sequence[Ask], *, promoted: Mapping[GangKey, float], most: int
    ) -> None:
        """``promoted``: gangs that waited too long, and since when; at most so many get quota set aside."""
        self._tree = tree
        self._room = room
        self._plain: dict[QueueName, Queue] = dict(tree.queues)
        waiting = [ask for ask in asks if ask.gang.key in promoted and self._limited(ask)]
        waiting.sort(key=lambda ask: (promoted[ask.gang.key], ask.gang.key))
        self._kept: dict[GangKey, tuple[Ask, Amounts]] = {
            ask.gang.key: (ask, least_charge(room, ask)) for ask in waiting[:most] if self._possible(ask)
        }
        self._set_aside()

    def _limited(self, ask: Ask) -> bool:
        return bool(ask.minimum) and any(self._plain[name].capability for name in self._tree.path(ask.gang.queue))

    def _possible(self, ask: Ask) -> bool:
        """Whether it could start in queues that use nothing."""
        charge = least_charge(self._room, ask)
        return all(
            charge.get(resource, 0) <= limit
            for name in self._tree.path(ask.gang.queue)
            for resource, limit in self._plain[name].capability.amounts.items()
        )

    def _set_aside(self, *, before: GangKey | None = None) -> None:
        """For all of them; at the turn of one of them, for those that have waited longer."""
        queues = dict(self._plain)
        for key, (ask, charge) in self._kept.items():
            if key == before:
                break
            for name in self._tree.path(ask.gang.queue):
                limits = queues[name].capability
                if limits:
                    less = {resource: limit - charge.get(resource, 0) for resource, limit in limits.amounts.items()}
                    capability = msgspec.structs.replace(limits, amounts=less)
                    queues[name] = msgspec.structs.replace(queues[name], capability=capability)
        self._tree.queues = queues

    @contextlib.contextmanager
    def turn(self, ask: Ask) -> Iterator[None]:
        """The gang's turn: its own quota is there for it."""
        if ask.gang.key not in self._kept:
            yield
            return
        self._set_aside(before=ask.gang.key)
        try:
            yield
        finally:
            self._set_aside()

    def started(self, ask: Ask) -> None:
        """The gang was placed: what it uses is used now."""
        if self._kept.pop(ask.gang.key, None) is not None:
            self._set_aside()

    def keeps_out(self, ask: Ask) -> Held | None:
        """Why the gang waits, when it is only for quota that is kept for others."""
        if not self._kept or ask.gang.key in self._kept:
            return None
        charge = least_charge(self._room, ask)
        if self._tree.over_capability(ask.gang.queue, charge) is None:
            return None
        aside, self._tree.queues = self._tree.queues, self._plain
        plainly = self._tree.over_capability(ask.gang.queue, charge)
        self._tree.queues = aside
        if plainly is not None:
            return None
        path = set(self._tree.path(ask.gang.queue))
        key, queue = next(
            (key, name)
            for key, (one, _) in self._kept.items()
            for name in self._tree.path(one.gang.queue)
            if name in path and self._plain[name].capability
        )
        message = f"what is left of the limit of queue {queue} is kept for {key}, which has waited too long"
        return Held(Reason.HELD_FOR_OTHERS, message, {"held_for": key, "queue": queue})

    def release(self) -> None:
        """Nothing is set aside any more."""
        self._kept.clear()
        self._tree.queues = self._plain
