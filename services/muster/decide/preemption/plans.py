"""The cheapest set of units that suffices for a gang.

Units are added in the order of what they cost until the gang fits and the law allows it, then every unit that is not needed
is dropped again. This is tried with several orders: by cost alone, with the largest first among equal priorities (one large job
may do instead of two small ones), and for each promising node with what stands there first; the cheapest plan stays. Nothing is proposed that was not placed whole in the trial.

Cost: the highest priority that is hit first, then what donors fall below their claims, gangs ended, pods, cards; then the lower queue priority, the queue further
above its share.
"""

from collections.abc import Sequence
from typing import NamedTuple

from muster.decide.asks import Ask
from muster.decide.fleet import Ints
from muster.decide.placement.feasibility import admission
from muster.decide.placement.greedy import Landed
from muster.decide.preemption.law import below_common, donor_above, in_queue, lawful, reclaimable
from muster.decide.preemption.trial import Trial
from muster.decide.preemption.victims import Unit, may_leave, over_share, surplus_left, unit_of, units_of
from muster.decide.shares import smallest_charge
from muster.model.gangs import Gang, Member
from muster.model.units import GangKey

MOST_NODES_TRIED = 24

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
        for order in [self.units, largest, *self._orders_by_node()]:
            plan = self._plan(order)
            if plan is not None and (best is None or plan.cost < best.cost):
                best = plan
        return best

    def _orders_by_node(self) -> list[list[Unit]]:
        """For each node that the gang could use, what stands there first; the nodes with the cheapest occupants first."""
        fleet = self.trial.room.fleet
        useful: Ints = sum(
            (admission(fleet, role.shape).rows.astype("int64") for role in self.ask.roles if role.waiting),
            start=fleet.allocatable_cards * 0,
        )
        price: dict[int, int] = {}
        for rank, unit in enumerate(self.units):
            for row in unit.rows:
                if useful[row] and row not in price:
                    price[row] = rank
        rows = sorted(price, key=lambda row: (price[row], row))[:MOST_NODES_TRIED]
        return [
            [*(u for u in self.units if row in u.rows), *(u for u in self.units if row not in u.rows)] for row in rows
        ]

    def _plan(self, order: Sequence[Unit]) -> Plan | None:
        chosen: list[Unit] = []
        leaving: dict[GangKey, list[Member]] = {}
        for unit in order:
            gone = leaving.setdefault(unit.gang.key, [])
            step = self._step(unit, gone)
            if step is None or not self._donor_gives(step, chosen):
                continue
            chosen.append(step)
            gone += step.members
            landed = self.trial.fits(self.ask, chosen)
            if landed is not None and self._allowed(chosen, landed):
                return self._drop(chosen)
        return None

    def _donor_gives(self, unit: Unit, chosen: Sequence[Unit]) -> bool:
        """Whether the unit's queue is still above its claim when what was chosen before has left."""
        if unit.gang.queue == self.ask.gang.queue:
            return True
        for one in chosen:
            self.tree.charge(one.gang.queue, one.charge, -1)
        above = donor_above(self.tree, self.ask, unit, self.asked)
        for one in chosen:
            self.tree.charge(one.gang.queue, one.charge, 1)
        return above

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
        for unit in sorted(chosen, key=self._order, reverse=True):
            rest = [one for one in kept if one is not unit]
            if not unit.core and any(one.core and one.gang.key == unit.gang.key for one in rest):
                continue  # the gang ends anyway, and ends whole
            if unit.core:
                # Without the core its surplus may stay or go as before.
                rest = [one for one in rest if one.gang.key != unit.gang.key or not one.core]
            landed = self.trial.fits(self.ask, rest)
            if landed is not None and self._allowed(rest, landed):
                kept = rest
        landed = self.trial.fits(self.ask, kept)
        if landed is None or not self._allowed(kept, landed):
            return None
        return Plan(tuple(kept), tuple(landed), self._cost(kept))

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
