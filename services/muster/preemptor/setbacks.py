"""Plans that were refused or led nowhere: the same plan is not proposed again while everything it looked at is the same.

What the core's digest does not tell (budgets, pauses) makes all of them void when it changes. Time is not in the digest
either, though protections end and limits fall by it: so a setback ends after a while, a longer one each time.
"""

from typing import NamedTuple

import msgspec

from muster.decide.memory import CoreMemory
from muster.decide.preemption import tried
from muster.model.ledger import Plan
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey

SHORTEST = 30.0
"""Seconds."""
LONGEST = 600.0


class Setback(NamedTuple):
    """One gang's plan that led nowhere; times by the monotonic clock."""

    digest: str
    until: float
    lasts: float


class Setbacks:
    """By gang."""

    def __init__(self) -> None:
        self._setbacks: dict[GangKey, Setback] = {}
        self._around: tuple[object, ...] = ()

    def follow(self, snapshot: Snapshot) -> None:
        """Budgets and pauses are now so."""
        around = (tuple((budget.key, budget.allowed) for budget in snapshot.budgets), snapshot.pauses)
        if around != self._around:
            self._around = around
            self._setbacks.clear()

    def clear(self) -> None:
        """Nothing that was found out counts any more."""
        self._setbacks.clear()

    def add(self, plan: Plan, snapshot: Snapshot, now: float, *, shortest: float = SHORTEST) -> None:
        """This plan was refused, or is given back; the first time it counts for `shortest` seconds."""
        digest = tried(CoreMemory(), plan, snapshot).tried[plan.gang]
        before = self._setbacks.get(plan.gang)
        if before is not None and before.digest == digest:
            if now < before.until:
                return
            lasts = min(LONGEST, 2 * before.lasts)
        else:
            lasts = shortest
        self._setbacks[plan.gang] = Setback(digest, now + lasts, lasts)

    def next_end(self, after: float) -> float:
        """When the next of those ends that counted at this moment; infinite when none did."""
        return min((one.until for one in self._setbacks.values() if one.until > after), default=float("inf"))

    def known_to(self, memory: CoreMemory, now: float) -> CoreMemory:
        """The memory, with the setbacks that still count."""
        counting = {gang: one.digest for gang, one in self._setbacks.items() if now < one.until}
        return msgspec.structs.replace(memory, tried={**memory.tried, **counting}) if counting else memory
