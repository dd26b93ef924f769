"""Everything that may leave for a gang, in the order of what it costs, and what would be free without it.

    order    priority, surplus before cores, queue priority, most over share, work lost, restarts, pods, cards
    bounds   if everything up to a priority left: how many pods of each role would fit on each row (never too few, often too many)

A domain that could not hold the gang even then needs no trial; the first priority at which it could is the least that a plan
there has to hit.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from muster.decide.asks import Ask, RoleAsk
from muster.decide.fleet import PODS, Fleet, Ints, Mask
from muster.decide.placement.feasibility import admission, capacity
from muster.decide.preemption.law import reclaimable
from muster.decide.preemption.protection import Protection
from muster.decide.preemption.trial import Trial
from muster.decide.preemption.victims import Unit, over_share, priced, units_of
from muster.decide.room import Room
from muster.decide.shares import Tree
from muster.model.gangs import Gang
from muster.model.units import GangKey, NodeName, QueueName

Owes = Callable[[GangKey, Unit], bool]
"""Whether a unit has to leave for a gang whatever the priorities and queues; see `muster.decide.waiting.eviction`."""
KEPT_AT_LEAST = 1000
Kept = dict[GangKey, tuple[Gang, tuple[NodeName, ...], list[Unit]]]
"""Units of gangs that are still the same, on the same nodes; a caller that keeps it saves making them again."""


class Supply:
    """The units of every gang that may lose pods, made when first asked for."""

    def __init__(self, gangs: Iterable[Gang], *, fleet: Fleet, protection: Protection, restarts: dict[GangKey, int], busy: Mask, now: float, kept: Kept | None = None, owes: Owes | None = None) -> None:  # fmt: skip
        self._gangs = tuple(gangs)
        self._fleet = fleet
        self._protection = protection
        self._restarts = restarts
        self._busy = busy
        self._now = now
        self._owes = owes
        self._units: dict[GangKey, list[Unit]] = {}
        self._kept: Kept = {} if kept is None else kept
        if len(self._kept) > 2 * len(self._gangs) + KEPT_AT_LEAST:
            self._kept.clear()

    def for_ask(self, ask: Ask, tree: Tree, *, preempt: bool, reclaim: bool) -> list[Unit]:
        """The units that may leave for a gang, as far as queues and priorities tell."""
        found: list[Unit] = []
        for gang in self._gangs:
            if gang.key == ask.gang.key or gang.queue not in tree.queues:
                continue
            across = gang.queue != ask.gang.queue
            lawful = reclaim if across else preempt and gang.priority < ask.gang.priority
            if not (lawful or (preempt and self._owes)):
                continue
            units = self.of(gang)
            if preempt and self._owes:
                units = [unit._replace(owed=True) if self._owes(ask.gang.key, unit) else unit for unit in units]
            if units and not (lawful and (not across or reclaimable(tree, ask, units[0]))):
                units = [unit for unit in units if unit.owed]
            found += units
        return found

    def of(self, gang: Gang) -> list[Unit]:
        """The units of one gang; none when it is left alone, or stands where nothing is planned now."""
        known = self._units.get(gang.key)
        if known is None:
            known = []
            if not self._protection.refuses(gang):
                known = priced(self._made(gang), self._restarts.get(gang.key, 0), self._now)
                if self._busy.any() and any(self._busy[list(unit.rows)].any() for unit in known):
                    known = []
            self._units[gang.key] = known
        return known

    def _made(self, gang: Gang) -> list[Unit]:
        kept = self._kept.get(gang.key)
        if kept is not None and kept[0] is gang and kept[1] is self._fleet.names:
            return kept[2]
        units = units_of(gang, self._fleet)
        if all(role.shape.request.share is None for role in gang.roles):  # a share is charged by the card it is on
            self._kept[gang.key] = gang, self._fleet.names, units
        return units


def order_of(tree: Tree, ask: Ask, unit: Unit) -> tuple[int, bool, int, float, int, int, int, int, int, str]:
    """What the unit costs, dearest last."""
    other = unit.gang.queue != ask.gang.queue
    return (
        unit.rank,
        unit.core,
        tree.queues[unit.gang.queue].priority if other else 0,
        -over_share(tree, unit.gang.queue, unit.charge) if other else 0.0,
        unit.lost,
        unit.restarts,
        len(unit.members),
        unit.charge.get("gpu", 0),
        -unit.gang.order,
        unit.gang.key,  # equal units of one gang keep their order: the latest pod first
    )


def balanced(tree: Tree, ask: Ask, units: Sequence[Unit]) -> list[Unit]:
    """Units in their order, but of donors that are otherwise alike the one gives next that is then most over its share."""
    ordered = sorted(units, key=lambda unit: order_of(tree, ask, unit))
    if len({unit.gang.queue for unit in ordered}) < 2:
        return ordered
    result: list[Unit] = []
    for _, group in groupby(ordered, key=lambda unit: order_of(tree, ask, unit)[:3]):
        lines: dict[QueueName, deque[Unit]] = {}
        for unit in group:
            lines.setdefault(unit.gang.queue, deque()).append(unit)
        while lines:
            name = min(lines, key=lambda queue: order_of(tree, ask, lines[queue][0]))
            unit = lines[name].popleft()
            tree.charge(name, unit.charge, -1)
            result.append(unit)
            if not lines[name]:
                del lines[name]
    for unit in result:
        tree.charge(unit.gang.queue, unit.charge, 1)
    return result


class Bounds(NamedTuple):
    """How many pods of each role (with pods that wait) would fit, by row, if everything up to a priority left."""

    priorities: tuple[int, ...]
    fits: tuple[tuple[Ints, ...], ...]
    """By priority, then by role."""


def bounds_of(trial: Trial, empty: Room, ask: Ask, units: Sequence[Unit]) -> Bounds:
    """The bounds for one gang."""
    room, fleet = trial.room, trial.room.fleet
    free, whole = room.free.copy(), room.whole_free.copy()
    priorities = tuple(sorted({unit.rank for unit in units}))
    seen: set[GangKey] = set()
    of_priority: dict[int, list[Unit]] = {priority: [] for priority in priorities}
    for unit in units:
        if unit.core:
            seen.add(unit.gang.key)
            of_priority[unit.rank].append(unit)
    for unit in units:
        if unit.gang.key not in seen:  # a core holds its surplus too
            of_priority[unit.rank].append(unit)
    waiting = [role for role in ask.roles if role.waiting]
    fits = []
    for priority in priorities:
        _free(free, whole, fleet, of_priority[priority])
        fits.append(tuple(_fits(trial, empty, role, free, whole) for role in waiting))
    return Bounds(priorities, tuple(fits))


def _free(free: Ints, whole: Ints, fleet: Fleet, units: Sequence[Unit]) -> None:
    rows: list[int] = []
    cards: list[int] = []
    vectors: list[int] = []
    known: dict[int, int] = {}
    table: list[Ints] = []
    for unit in units:
        at_role: dict[str, int] = {}
        for role in unit.gang.roles:
            number = known.get(id(role.shape.request))
            if number is None:
                vector = fleet.vector(role.shape.request)
                if vector is None:  # it names a resource that no node has any more
                    vector = np.zeros(free.shape[1], dtype=np.int64)
                    vector[:3] = role.shape.request.cpu, role.shape.request.memory, 1
                number = known[id(role.shape.request)] = len(table)
                table.append(vector)
            at_role[role.name] = number
        rows += unit.at
        vectors += [at_role[member.role] for member in unit.members]
        cards += [len(member.cards) for member in unit.members]
    if rows:
        where = np.asarray(rows)
        np.add.at(free, where, np.asarray(table)[vectors])
        whole += np.bincount(where, weights=cards, minlength=fleet.size).astype(np.int64)
        np.minimum(whole, fleet.allocatable_cards, out=whole)


def _fits(trial: Trial, empty: Room, role: RoleAsk, free: Ints, whole: Ints) -> Ints:
    fleet, shape = trial.room.fleet, role.shape
    request = shape.request
    vector = fleet.vector(request)
    if vector is None:
        return np.zeros(fleet.size, dtype=np.int64)
    rows = admission(fleet, shape).rows
    blocked = trial.blocked.get(shape)
    if blocked is not None:
        rows = rows & ~blocked
    fits = np.where(rows, free[:, PODS], 0)
    for dimension in np.flatnonzero(vector):
        if dimension != PODS:
            fits = np.minimum(fits, free[:, dimension] // vector[dimension])
    if request.share is not None:
        fits = np.minimum(fits, capacity(empty, shape))
    elif request.cards:
        fits = np.minimum(fits, whole // request.cards)
    return np.maximum(fits, 0)
