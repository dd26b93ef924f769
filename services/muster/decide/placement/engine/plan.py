"""A plan on pools: how many pods of which role of an entry stand where, how many gangs of a bag run, how kinds spread.

    placed[entry]           {(part, pool): pods}; an entry that is not in it is not admitted
    admitted[bag]           gangs of the bag that run: its first so many
    flows[kind][pool]       pods of a kind (all bags together)

`Batch` joins the profile, the demands and what queues may still take; plans are changed only by whole answers.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.fleet import Ints, Mask
from muster.decide.placement.engine.demands import Bag, Entry, Kind, Part, demands_of, levels_wished, told_of
from muster.decide.placement.engine.profile import Pools, effective, ordinary, pools_of, slot_size, tellable
from muster.decide.placement.exact import Item, Limit
from muster.decide.placement.greedy import Landed
from muster.decide.room import Pod, Room
from muster.decide.shares import Amounts, base_charge
from muster.model.pods import Shape
from muster.model.units import GangKey

Counts = dict[tuple[int, int], int]


class Plan(NamedTuple):
    """One arrangement of a batch."""

    placed: dict[int, Counts]
    admitted: tuple[int, ...]
    flows: dict[Kind, Ints]


class Rate(NamedTuple):
    """What the demands take of one limit; only limits that could bind are kept."""

    amount: int
    entries: dict[int, tuple[int, tuple[int, ...]]]
    """By entry: followers together, and one pod of each part."""
    bags: dict[int, int]


class Batch:
    """A batch as slots: profile, demands, rates. The aside gangs' places are taken in the room."""

    def __init__(
        self,
        room: Room,
        items: Sequence[Item],
        *,
        limits: Sequence[Limit],
        landed: Mapping[GangKey, Sequence[Landed]],
        charges: Mapping[GangKey, Amounts],
        blocked: Mapping[Shape, Mask],
    ) -> None:
        self.room = room
        self.landed = landed
        self.charges = charges
        shapes = _shapes(items)
        self.ordinary, self.amounts = ordinary(room, shapes)
        told = [told_of(room, item, ordinary=self.ordinary, landed=landed) for item in items]
        aside: frozenset[GangKey] = frozenset()
        self.demands = demands_of(told, aside)
        self._take_aside(frozenset())
        while spilled := self._spilled():
            aside |= spilled
            self.demands = demands_of(told, aside)
            self._take_aside(spilled)
        kept = [shape for shape in shapes if shape in self.ordinary]
        asks = [entry.item.ask for entry in self.demands.entries]
        self.pools: Pools = pools_of(room, kept, self.amounts, levels=levels_wished(room, asks), blocked=blocked)
        self.kinds = [self._kinds(bag) for bag in self.demands.bags]
        """By bag: how many pods of which kind each of its gangs has."""
        self.rates = self._rates(limits)

    def _take_aside(self, only: frozenset[GangKey]) -> None:
        """Hold the room of gangs that stand aside (all of them when none are named)."""
        self.room.take_together(
            [
                Pod(one.row, item.ask.roles[one.role].shape, one.cards)
                for item in self.demands.aside
                if not only or item.ask.gang.key in only
                for one in self.landed.get(item.ask.gang.key, ())
            ]
        )

    def _spilled(self) -> frozenset[GangKey]:
        """Gangs with pods on a row that slots cannot tell: effective cards or rounded slots do not hold what stands there."""
        size = self.room.fleet.size
        told = [*(e.item for e in self.demands.entries), *(i for bag in self.demands.bags for i in bag.items)]
        on_row: dict[int, Ints] = {}
        for item in told:
            for one in self.landed.get(item.ask.gang.key, ()):
                cards = item.ask.roles[one.role].shape.request.cards
                if cards:
                    on_row.setdefault(slot_size(cards), np.zeros(size, dtype=np.int64))[one.row] += 1
        free = effective(self.room, self.amounts)
        wrong = np.zeros(size, dtype=np.bool_)
        for least in on_row:
            needed = sum((k // least * counts for k, counts in on_row.items() if k >= least), np.zeros(size, np.int64))
            wrong |= needed > free // least
        rows = set(np.flatnonzero(wrong).tolist())
        return frozenset(
            item.ask.gang.key
            for item in told
            if rows
            and any(
                one.row in rows and item.ask.roles[one.role].shape.request.cards
                for one in self.landed.get(item.ask.gang.key, ())
            )
        )

    def kind(self, part: Part) -> Kind:
        """The kind that a part without a wish flows as."""
        return Kind(part.size, self.pools.mask_of[part.shape])

    def _kinds(self, bag: Bag) -> tuple[tuple[Kind, int], ...]:
        kinds: dict[Kind, int] = defaultdict(int)
        for part in bag.parts:
            kinds[self.kind(part)] += part.most
        return tuple(kinds.items())

    def first_plan(self) -> Plan:
        """The arrangement that the greedy made."""
        placed: dict[int, Counts] = {}
        for number, entry in enumerate(self.demands.entries):
            key = entry.item.ask.gang.key
            if key in self.landed:
                part_of = {part.role: at for at, part in enumerate(entry.parts)}
                placed[number] = self._counts(self.landed[key], part_of)
        flows: dict[Kind, Ints] = {}
        admitted = []
        for bag in self.demands.bags:
            kinds = {part.role: self.kind(part) for part in bag.parts}
            for kind in kinds.values():
                flows.setdefault(kind, np.zeros(self.pools.total, dtype=np.int64))
            running = [item for item in bag.items if item.ask.gang.key in self.landed]
            admitted.append(len(running))
            for item in running:
                for one in self.landed[item.ask.gang.key]:
                    if one.role in kinds:
                        flows[kinds[one.role]][self.pools.of_row[one.row]] += 1
        return Plan(placed, tuple(admitted), flows)

    def _counts(self, landed: Sequence[Landed], part_of: Mapping[int, int]) -> Counts:
        counts: Counts = defaultdict(int)
        for one in landed:
            if one.role in part_of:
                counts[part_of[one.role], int(self.pools.of_row[one.row])] += 1
        return dict(counts)

    def _rates(self, limits: Sequence[Limit]) -> list[Rate]:
        apart = {item.ask.gang.key for item in self.demands.aside if item.ask.gang.key in self.landed}
        rates = []
        for limit in limits:
            aside = sum(self.charges[key].get(limit.resource, 0) for key in apart & limit.gangs)
            rate = Rate(limit.amount - aside, {}, {})
            most = 0
            for number, entry in enumerate(self.demands.entries):
                if entry.item.ask.gang.key in limit.gangs:
                    pods = tuple(base_charge(part.shape.request).get(limit.resource, 0) for part in entry.parts)
                    fixed = _followers_charge(entry, limit.resource)
                    if fixed or any(pods):
                        rate.entries[number] = fixed, pods
                        most += fixed + sum(part.most * one for part, one in zip(entry.parts, pods, strict=True))
            for number, bag in enumerate(self.demands.bags):
                if bag.items[0].ask.gang.key in limit.gangs:
                    each = _followers_charge(bag, limit.resource) + sum(
                        part.most * base_charge(part.shape.request).get(limit.resource, 0) for part in bag.parts
                    )
                    if each:
                        rate.bags[number] = each
                        most += each * len(bag.items)
            if most > rate.amount:
                rates.append(rate)
        return rates

    def usage(self, plan: Plan, rate: Rate) -> int:
        """What the plan takes of a limit."""
        total = sum(each * plan.admitted[bag] for bag, each in rate.bags.items())
        for number, (fixed, pods) in rate.entries.items():
            counts = plan.placed.get(number)
            if counts is not None:
                total += fixed + sum(pods[part] * count for (part, _), count in counts.items())
        return total

    def loads(self, plan: Plan) -> dict[int, Ints]:
        """Pods per slot size and pool."""
        loads = {size: np.zeros(self.pools.total, dtype=np.int64) for size in self.pools.sizes}
        for kind, flow in plan.flows.items():
            loads[kind.size] += flow
        for number, counts in plan.placed.items():
            parts = self.demands.entries[number].parts
            for (part, pool), count in counts.items():
                loads[parts[part].size][pool] += count
        return loads

    def opened(self, loads: Mapping[int, Ints]) -> Ints:
        """The fewest nodes that an untouched pool opens for these loads; 0 in other pools."""
        nodes = np.zeros(self.pools.total, dtype=np.int64)
        for size in self.pools.sizes:
            needed = sum((k // size * count for k, count in loads.items() if k >= size), np.zeros_like(nodes))
            each = np.maximum(self.pools.width // size, 1)
            nodes = np.maximum(nodes, -(-needed // each))
        return np.where(self.pools.untouched, nodes, 0)

    def wrong(self, plan: Plan) -> list[str]:
        """What the plan breaks, recounted; a sound plan breaks nothing (used by tests)."""
        problems = []
        loads = self.loads(plan)
        for size in self.pools.sizes:
            needed = sum(
                (k // size * count for k, count in loads.items() if k >= size), np.zeros(self.pools.total, np.int64)
            )
            problems += [
                f"pool {pool}: {needed[pool]} slots of {size} of {self.pools.slots[size][pool]}"
                for pool in np.flatnonzero(needed > self.pools.slots[size]).tolist()
            ]
        problems += [
            f"limit {rate.amount}: {self.usage(plan, rate)} taken"
            for rate in self.rates
            if self.usage(plan, rate) > max(rate.amount, 0)
        ]
        for kind, flow in plan.flows.items():
            wanted = sum(
                plan.admitted[number] * sum(part.most for part in bag.parts if self.kind(part) == kind)
                for number, bag in enumerate(self.demands.bags)
            )
            if int(flow.sum()) != wanted or (flow < 0).any():
                problems.append(f"{kind}: {flow.sum()} flow, {wanted} admitted")
            if (flow[~self.pools.masks[kind.mask]] > 0).any():
                problems.append(f"{kind}: outside its mask")
        for number, counts in plan.placed.items():
            problems += self._entry_wrong(self.demands.entries[number], counts)
        return problems

    def _entry_wrong(self, entry: Entry, counts: Counts) -> list[str]:
        problems = []
        name = entry.item.ask.gang.key
        if sum(counts.values()) != entry.minimum:
            problems.append(f"{name}: {sum(counts.values())} pods of {entry.minimum}")
        for at, part in enumerate(entry.parts):
            mine = {pool: count for (one, pool), count in counts.items() if one == at}
            if not part.least <= sum(mine.values()) <= part.most:
                problems.append(f"{name}: {sum(mine.values())} of role {part.role}")
            problems += [f"{name}: pool {pool} refuses it" for pool in mine if not self.allows(part, pool)]
            if part.required is not None and not self._one_domain(part.required, mine):
                problems.append(f"{name}: role {part.role} in several domains")
        if entry.required is not None and not self._one_domain(entry.required, {pool for _, pool in counts}):
            problems.append(f"{name}: in several domains")
        return problems

    def allows(self, part: Part, pool: int) -> bool:
        """Whether the predicates of a part hold in a pool."""
        return bool(self.pools.masks[self.pools.mask_of[part.shape]][pool])

    def _one_domain(self, level: int, pools: "Mapping[int, int] | set[int]") -> bool:
        codes = {int(self.pools.required[level][pool]) for pool in pools}
        return len(codes) <= 1 and -1 not in codes


def _followers_charge(demand: Entry | Bag, resource: str) -> int:
    roles = (demand.item if isinstance(demand, Entry) else demand.items[0]).ask.roles
    return sum(count * base_charge(roles[role].shape.request).get(resource, 0) for role, count in demand.followers)


def _shapes(items: Sequence[Item]) -> list[Shape]:
    """Shapes that slots may tell, each once, in the order of the items."""
    found: dict[Shape, None] = {}
    for item in items:
        for role in item.ask.roles:
            if role.waiting and tellable(role.shape):
                found.setdefault(role.shape)
    return list(found)
