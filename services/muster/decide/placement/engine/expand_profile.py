"""Counts per pool become pods on nodes and cards: largest slots first, each on the node with the least effective room that holds it.

Because slot sizes divide each other, a pod of k takes exactly k' ÷ k … slots of every smaller size wherever it is put, so what
the profile promised is always found. Roles without cards follow, by true capacity and within the gang's domain; a gang whose
followers find no room is left out.
"""

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from muster.decide.asks import Ask
from muster.decide.placement.engine.demands import Kind
from muster.decide.placement.engine.plan import Batch, Plan
from muster.decide.placement.greedy import Greedy, Landed
from muster.decide.room import Pod, Room
from muster.model.units import GangKey


class PartOf(NamedTuple):
    """A part of an entry."""

    entry: int
    part: int
    told: str = "part"
    """Named tuples of equal numbers are equal: this one must never be taken for a kind."""


Owner = PartOf | Kind


def rows_of(batch: Batch, plan: Plan) -> dict[Owner, list[int]]:
    """A row for every pod of the plan; raises AssertionError when the profile promised what is not there."""
    pools, ranks = batch.pools, batch.room.ranks
    wanted: list[list[tuple[int, Owner, int]]] = [[] for _ in range(pools.total)]
    for number, counts in plan.placed.items():
        parts = batch.demands.entries[number].parts
        for (at, pool), count in counts.items():
            wanted[pool].append((parts[at].size, PartOf(number, at), count))
    for kind, flow in plan.flows.items():
        for pool in flow.nonzero()[0].tolist():
            wanted[pool].append((kind.size, kind, int(flow[pool])))
    result: dict[Owner, list[int]] = defaultdict(list)
    for pool, inside in enumerate(wanted):
        rooms = (
            sorted((int(pools.free[row]), int(ranks[row]), row) for row in pools.rows[pool].tolist()) if inside else []
        )
        for size, owner, count in sorted(inside, key=lambda one: -one[0]):
            for _ in range(count):
                at = bisect.bisect_left(rooms, (size, -1, -1))
                assert at < len(rooms), f"no slot of {size} in pool {pool}: the profile promised one"
                free, rank, row = rooms.pop(at)
                if free > size:
                    bisect.insort(rooms, (free - size, rank, row))
                result[owner].append(row)
    return result


def landed_of(batch: Batch, plan: Plan) -> Iterator[tuple[Ask, list[Landed]]]:
    """Every admitted gang with its pods with cards, cards not yet chosen."""
    rows = rows_of(batch, plan)
    for number in plan.placed:
        entry = batch.demands.entries[number]
        yield (
            entry.item.ask,
            [
                Landed(part.role, row, ())
                for at, part in enumerate(entry.parts)
                for row in sorted(rows.get(PartOf(number, at), ()))
            ],
        )
    waiting = {kind: iter(rows[kind]) for kind in plan.flows}
    for bag, admitted in zip(batch.demands.bags, plan.admitted, strict=True):
        for item in bag.items[:admitted]:
            landed = []
            for part in bag.parts:
                source = waiting[batch.kind(part)]
                landed += [Landed(part.role, next(source), ()) for _ in range(part.most)]
            yield item.ask, landed


def _with_cards(room: Room, gangs: Iterable[tuple[Ask, list[Landed]]]) -> dict[GangKey, tuple[Ask, list[Landed]]]:
    """Choose the cards of these pods and take their room, all together."""
    fleet = room.fleet
    untouched = room.untouched()
    usable: dict[int, bytearray] = {}
    pods: list[Pod] = []
    standing: dict[GangKey, tuple[Ask, list[Landed]]] = {}
    for ask, landed in gangs:
        placed = []
        for one in landed:
            shape = ask.roles[one.role].shape
            left = usable.get(one.row)
            if left is None:
                left = usable[one.row] = bytearray(untouched[one.row].tobytes())
            cards = fleet.cards_of(one.row, bytes(left), shape.request.cards)
            for use in cards:
                left[fleet.position_of[one.row][use.index]] = 0
            placed.append(Landed(one.role, one.row, cards))
            pods.append(Pod(one.row, shape, cards))
        standing[ask.gang.key] = ask, placed
    room.take_together(pods)
    return standing


def arrange(batch: Batch, plan: Plan, greedy: Greedy) -> dict[GangKey, tuple[Ask, list[Landed]]]:
    """The plan on nodes, taken in the room; gangs whose followers find no room are missing."""
    room = batch.room
    standing = _with_cards(room, landed_of(batch, plan))
    followers = [(entry.item.ask, entry.followers) for entry in batch.demands.entries if entry.followers]
    followers += [(item.ask, bag.followers) for bag in batch.demands.bags if bag.followers for item in bag.items]
    for ask, roles in followers:
        if ask.gang.key not in standing:
            continue
        landed = standing[ask.gang.key][1]
        more = greedy.beside(ask, landed, roles)
        if more is not None:
            landed += more
            continue
        for one in landed:
            shape = ask.roles[one.role].shape
            room.give(one.row, shape.request, one.cards, ports=shape.host_ports, kind=shape.kind)
        del standing[ask.gang.key]
    return standing
