"""The cheapest set of units that suffices for a gang.

Units are added in the order of what they cost until the gang fits and the law allows it, then every unit that is not needed
is dropped again. This is tried with several orders: by cost alone, with the largest first among equal priorities (one large job
may do instead of two small ones), and for each promising node, or domain, with what stands there first; the cheapest plan
stays. Nothing is proposed that was not placed whole in the trial.

Cost: the highest priority that is hit first, then what donors fall below their claims, gangs ended, pods, cards; then the lower
queue priority, the queue further above its share.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.asks import Ask
from muster.decide.placement.feasibility import admission, capacity
from muster.decide.placement.greedy import Landed
from muster.decide.preemption.law import below_common, donor_above, in_queue, lawful, reclaimable
from muster.decide.preemption.trial import Trial
from muster.decide.preemption.victims import Unit, may_leave, over_share, surplus_left, unit_of, units_of
from muster.decide.shares import smallest_charge
from muster.decide.topology import domains, resolve
from muster.model.gangs import Gang, Member
from muster.model.units import GangKey

MOST_PLACES_TRIED = 24
EVERY_STEP = 16
LONG_PLAN = 64

Cost = tuple[tuple[int, float, int, int, int, int, float], ...]


class Plan(NamedTuple):
    """Units that leave, and where the gang goes then."""

    units: tuple[Unit, ...]
    landed: tuple[Landed, ...]
    cost: Cost


class Planner:
    """Searches plans for one gang."""

    def __init__(self, trial: Trial, ask: Ask, gangs: Sequence[Gang], *, preempt: bool, reclaim: bool) -> None:
        self.trial = trial
        self.tree = trial.tree
        self.ask = ask
        fleet = trial.room.fleet
        self.asked = sorted({name for role in ask.roles for name in smallest_charge(fleet, role.shape.request)})
        units = [
            unit
            for gang in gangs
            if gang.key != ask.gang.key and gang.queue in self.tree.queues and may_leave(gang, fleet)
            for unit in units_of(gang, fleet)
        ]
        units = [
            unit
            for unit in units
            if (preempt and in_queue(ask, unit)) or (reclaim and reclaimable(self.tree, ask, unit))
        ]
        self.units = sorted(units, key=self._order)

    def _order(self, unit: Unit) -> tuple[int, bool, int, float, int, int, int, str]:
        queue = self.tree.queues[unit.gang.queue]
        other = unit.gang.queue != self.ask.gang.queue
        return (
            unit.gang.priority,
            unit.core,
            queue.priority if other else 0,
            -over_share(self.tree, unit.gang.queue, unit.charge) if other else 0.0,
            len(unit.members),
            unit.charge.get("gpu", 0),
            -unit.gang.order,
            unit.gang.key,  # equal units of one gang keep their order: the latest pod first
        )

    def best(self) -> Plan | None:
        """The cheapest plan found, or None when nothing that may leave suffices."""
        if not self.units:
            return None
        best: Plan | None = None
        largest = sorted(self.units, key=lambda unit: (unit.gang.priority, unit.core, -unit.charge.get("gpu", 0)))
        for order in [self.units, largest, *self._orders_by_place()]:
            if best is not None and len(best.units) > LONG_PLAN:
                break  # other orders would hardly differ, and each costs as much again
            plan = self._plan(order)
            if plan is not None and (best is None or plan.cost < best.cost):
                best = plan
        return best

    def _orders_by_place(self) -> list[list[Unit]]:
        """For each node that the gang could use (each domain, where it requires one), what stands there first.

        Nodes with the cheapest occupants come first; domains with the most room for the gang.
        """
        fleet = self.trial.room.fleet
        waiting = [role for role in self.ask.roles if role.waiting]
        useful = np.logical_or.reduce([admission(fleet, role.shape).rows for role in waiting])
        level = resolve(fleet, self.ask.gang.topology).required
        codes = np.arange(fleet.size) if level is None else domains(fleet, level)
        price: dict[int, int] = {}
        for rank, unit in enumerate(self.units):
            for row in unit.rows:
                if useful[row] and codes[row] >= 0:
                    price.setdefault(int(codes[row]), rank)
        fits = np.sum([capacity(self.trial.room, role.shape) for role in waiting], axis=0)
        free: dict[int, int] = defaultdict(int)
        if level is not None:
            for code, number in zip(codes.tolist(), fits.tolist(), strict=True):
                free[code] += number
        places = sorted(price, key=lambda code: (-free[code], price[code], code))[:MOST_PLACES_TRIED]
        orders = []
        for place in places:
            there = [any(int(codes[row]) == place for row in unit.rows) for unit in self.units]
            inside = [unit for unit, here in zip(self.units, there, strict=True) if here]
            orders.append([*inside, *(unit for unit, here in zip(self.units, there, strict=True) if not here)])
        return orders

    def _plan(self, order: Sequence[Unit]) -> Plan | None:
        chosen = self._enough(order)
        return self._drop(chosen) if chosen else None

    def _enough(self, order: Sequence[Unit]) -> list[Unit] | None:
        """Units from the front of the order until they suffice; None when all of them do not."""
        chosen: list[Unit] = []
        leaving: dict[GangKey, list[Member]] = {}
        due = 1
        mark = self.trial.without(())
        for unit in order:
            gone = leaving.setdefault(unit.gang.key, [])
            step = self._step(unit, gone)
            if step is None or not self._donor_gives(step):
                continue
            self.trial.without((step,))
            chosen.append(step)
            gone += step.members
            if len(chosen) < due or not self._may_fit():
                continue
            # Up to a few units every step is tried; after that ever larger ones, since what is too much is dropped again.
            due = len(chosen) + max(1, len(chosen) // EVERY_STEP)
            self.trial.put_back(chosen, mark)
            if self._sufficient(chosen):
                return chosen
            self.trial.without(chosen)
        self.trial.put_back(chosen, mark)
        return chosen if chosen and self._sufficient(chosen) else None

    def _may_fit(self) -> bool:
        """The quick test before a placement is tried: is there room for each role by itself, as the room is now?"""
        total = 0
        for role in self.ask.roles:
            if not role.waiting:
                continue
            fits = int(capacity(self.trial.room, role.shape).sum())
            if fits < role.need:
                return False
            total += min(fits, len(role.waiting))
        return total >= self.ask.minimum

    def _sufficient(self, units: Sequence[Unit]) -> bool:
        landed = self.trial.fits(self.ask, units)
        return landed is not None and self._allowed(units, landed)

    def _donor_gives(self, unit: Unit) -> bool:
        """Whether the unit's queue is above its claim, with usage as it is now."""
        return unit.gang.queue == self.ask.gang.queue or donor_above(self.tree, self.ask, unit, self.asked)

    def _step(self, unit: Unit, gone: Sequence[Member]) -> Unit | None:
        """The unit as it can leave now: a surplus pod while there is surplus, or everything that is left."""
        if unit.core:
            rest = [member for member in unit.members if member not in gone]
            return unit_of(unit.gang, rest, self.trial.room.fleet, core=True) if rest else None
        if surplus_left(unit.gang, [*gone, *unit.members]) < 0:
            return None
        return unit

    def _allowed(self, units: Sequence[Unit], landed: Sequence[Landed]) -> bool:
        """Judged with everybody there: the room and the usage must be as they are today."""
        taken = self.trial.taken(self.ask, landed)
        return lawful(self.tree, self.ask, units, self.trial.charge(self.ask, landed), taken)

    def _drop(self, chosen: Sequence[Unit]) -> Plan | None:
        """Leave out every unit that is not needed, the dearest first."""
        kept = list(chosen)
        landed = self.trial.fits(self.ask, kept)
        rows = {one.row for one in landed or ()}
        # Most of a long list stands where the gang does not go at all.
        near = {unit.gang.key for unit in kept if rows.intersection(unit.rows)}
        close = [unit for unit in kept if unit.gang.key in near]
        if len(close) < len(kept) and self._sufficient(close):
            kept = close
        needed = self._needed(kept)
        for unit in sorted(kept, key=self._order, reverse=True):
            rest = [one for one in kept if one is not unit]
            if not unit.core and any(one.core and one.gang.key == unit.gang.key for one in rest):
                continue  # the gang ends anyway, and ends whole
            if unit.core:
                # Without the core its surplus may stay or go as before.
                rest = [one for one in rest if one.gang.key != unit.gang.key or not one.core]
            if unit.key in needed:
                continue
            if self._sufficient(rest):
                kept = rest
        landed = self.trial.fits(self.ask, kept)
        if landed is None or not self._allowed(kept, landed):
            return None
        return Plan(tuple(kept), tuple(landed), self._cost(kept))

    def _needed(self, kept: Sequence[Unit]) -> set[object]:
        """Units without whose leaving there is no room even when all others leave: those need no further look."""
        if len(kept) <= EVERY_STEP:
            return set()
        room = self.trial.room
        mark = self.trial.without(kept)
        needed: set[object] = set()
        for unit in kept:
            here = room.mark()
            self.trial.stay(unit)
            if not self._may_fit():
                needed.add(unit.key)
            room.rollback(here)
        self.trial.put_back(kept, mark)
        return needed

    def _cost(self, units: Sequence[Unit]) -> Cost:
        levels: dict[int, list[float]] = {}
        for unit in units:
            level = levels.setdefault(unit.gang.priority, [0, 0, 0, 0, 0.0])
            other = unit.gang.queue != self.ask.gang.queue
            level[0] += unit.core
            level[1] += len(unit.members)
            level[2] += unit.charge.get("gpu", 0)
            level[3] += self.tree.queues[unit.gang.queue].priority if other else 0
            level[4] -= over_share(self.tree, unit.gang.queue, unit.charge) if other else 0.0
        below = self._below_claim(units)
        return tuple(
            # What donors fall below their claims counts once, before the number of gangs that end.
            (priority, below if number == 0 else 0.0, int(one[0]), int(one[1]), int(one[2]), int(one[3]), one[4])
            for number, (priority, one) in enumerate(sorted(levels.items(), reverse=True))
        )

    def _below_claim(self, units: Sequence[Unit]) -> float:
        """How far donors end below their claims, as parts of them, summed; 0 when every donor keeps its share."""
        cross = [unit for unit in units if unit.gang.queue != self.ask.gang.queue]
        levels = {level for unit in cross for level in below_common(self.tree, unit.gang.queue, self.ask.gang.queue)}
        for unit in cross:
            self.tree.charge(unit.gang.queue, unit.charge, -1)
        below = 0.0
        for level in sorted(levels):
            for resource in self.asked:
                claim = self.tree.claim(level, resource) if self.tree.governed(level, resource) else 0
                if claim:
                    below += max(0.0, (claim - self.tree.usage[level].get(resource, 0)) / claim)
        for unit in cross:
            self.tree.charge(unit.gang.queue, unit.charge, 1)
        return round(below, 9)
