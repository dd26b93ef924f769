"""Gangs as demands on slots.

entry   a gang with a topology wish: counts per role and pool, all of it or nothing
bag     equal gangs without a wish: how many of them run; their pods are told apart only by kind (size, mask)
aside   a gang that slots cannot tell: shares, host ports, hungry roles, wishes down to the node. Where the greedy put it,
it stays, and its room is not in the profile; where it was not placed, the fix-up tries it
follower   a role without cards in a gang that slots can tell: it is placed by true capacity after the cards
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.decide.asks import Ask, RoleAsk
from muster.decide.placement.engine.profile import slot_size, tellable
from muster.decide.placement.exact import Item
from muster.decide.placement.greedy import Landed
from muster.decide.room import Room
from muster.decide.topology import resolve
from muster.model.pods import Shape
from muster.model.topology import NODE_NAMES
from muster.model.units import GangKey, NodeName

BAGS_FROM = 100
"""Up to so many gangs each is a bag of its own, with its own value; in larger batches equal gangs are worth the least of them."""


class Kind(NamedTuple):
    """What a pod without a topology wish is to the profile."""

    size: int
    mask: int


class Part(NamedTuple):
    """A role's pods in the minimum phase."""

    role: int
    shape: Shape
    size: int
    least: int
    most: int
    required: int | None
    """Own topology levels of the role."""
    preferred: int | None


class Entry(NamedTuple):
    """A gang with a topology wish."""

    item: Item
    parts: tuple[Part, ...]
    minimum: int
    """Pods with cards of the minimum phase."""
    required: int | None
    preferred: int | None
    followers: tuple[tuple[int, int], ...]
    """(role, pods) without cards."""


class Bag(NamedTuple):
    """Equal gangs without a wish, in the order in which they are admitted."""

    items: tuple[Item, ...]
    parts: tuple[Part, ...]
    fixed: int
    """The first so many must be admitted."""
    value: int
    followers: tuple[tuple[int, int], ...]


class Demands(NamedTuple):
    """A batch in terms of slots."""

    entries: tuple[Entry, ...]
    bags: tuple[Bag, ...]
    aside: tuple[Item, ...]


def levels_wished(room: Room, asks: Iterable[Ask]) -> set[int]:
    """Every topology level that a gang or role of these names."""
    found: set[int] = set()
    for ask in asks:
        for wish in (ask.gang.topology, *(role.topology for role in ask.roles)):
            resolved = resolve(room.fleet, wish)
            found |= {level for level in (resolved.required, resolved.preferred) if level is not None}
    return {level for level in found if not _is_node(room, level)}


def _is_node(room: Room, level: int) -> bool:
    hierarchy = room.fleet.topology.hierarchy
    return level >= len(hierarchy) or not hierarchy[level].asked_as.isdisjoint(NODE_NAMES)


def can_be_told(room: Room, ask: Ask, ordinary: frozenset[Shape]) -> bool:
    """Whether slots can tell this gang's minimum phase."""
    asked = [role for role in ask.roles if role.waiting and (role.need or ask.need)]
    if not any(role.shape.request.cards for role in asked):
        return False
    if any(role.whole and len(role.waiting) > role.need for role in asked):
        return False
    for role in asked:
        if role.shape.request.cards or role.shape.request.share is not None:
            if not tellable(role.shape) or role.shape not in ordinary:
                return False
        elif role.shape.host_ports or role.shape.claims or role.shape.has_terms:
            return False
    for wish in (ask.gang.topology, *(role.topology for role in ask.roles)):
        resolved = resolve(room.fleet, wish)
        if resolved.unknown or any(
            level is not None and _is_node(room, level) for level in (resolved.required, resolved.preferred)
        ):
            return False
    return True


def demands_of(
    room: Room,
    items: Sequence[Item],
    *,
    ordinary: frozenset[Shape],
    landed: Mapping[GangKey, Sequence[Landed]],
    aside: frozenset[GangKey],
) -> Demands:
    """Sort the items into entries, bags and those that stand aside."""
    entries: list[Entry] = []
    apart: list[Item] = []
    alike: dict[object, list[tuple[Item, tuple[Part, ...], tuple[tuple[int, int], ...]]]] = defaultdict(list)
    for item in items:
        ask = item.ask
        if ask.gang.key in aside or not can_be_told(room, ask, ordinary):
            apart.append(item)
            continue
        wish = resolve(room.fleet, ask.gang.topology)
        wished = wish.required is not None or wish.preferred is not None
        parts, followers = _parts(room, ask, landed.get(ask.gang.key))
        minimum = ask.minimum - sum(count for _, count in followers)
        if not parts or not minimum:
            apart.append(item)  # its minimum needs no card
            continue
        parts = _tightened(parts, minimum)
        wished = wished or any(part.required is not None or part.preferred is not None for part in parts)
        if wished or any(part.least != part.most for part in parts):
            entries.append(Entry(item, parts, minimum, wish.required, wish.preferred, followers))
        else:
            key: object = (
                ask.gang.queue,
                ask.gang.priority,
                ask.gang.broken,
                parts,
                followers,
                item.value.bit_length(),
            )
            if len(items) <= BAGS_FROM:
                key = ask.gang.key
            alike[key].append((item, parts, followers))
    bags = []
    for same in alike.values():
        inside = sorted(same, key=lambda one: (not one[0].fixed, -one[0].value))
        bags.append(
            Bag(
                items=tuple(item for item, _, _ in inside),
                parts=inside[0][1],
                fixed=sum(item.fixed for item, _, _ in inside),
                value=min(item.value for item, _, _ in inside),
                followers=inside[0][2],
            )
        )
    return Demands(tuple(entries), tuple(bags), tuple(apart))


def _parts(
    room: Room, ask: Ask, landed: Sequence[Landed] | None
) -> tuple[tuple[Part, ...], tuple[tuple[int, int], ...]]:
    """The roles with cards, and how many pods of the roles without; where the greedy placed it, the counts are its own."""
    flexible = ask.need - sum(role.need for role in ask.roles)
    followers = []
    for number, role in enumerate(ask.roles):
        if role.shape.request.cards or not role.waiting:
            continue
        placed = None if landed is None else sum(one.role == number for one in landed)
        count = role.need + _spare(role, flexible) if placed is None else placed
        flexible -= count - role.need
        if count:
            followers.append((number, count))
    parts = []
    for number, role in enumerate(ask.roles):
        if not role.shape.request.cards:
            continue
        most = role.need + _spare(role, flexible)
        if most:
            wish = resolve(room.fleet, role.topology)
            size = slot_size(role.shape.request.cards)
            parts.append(Part(number, role.shape, size, role.need, most, wish.required, wish.preferred))
    return tuple(parts), tuple(followers)


def _spare(role: RoleAsk, flexible: int) -> int:
    """Pods above its own need that a role may give to the gang's minimum; a slice gives none."""
    return 0 if role.whole else max(0, min(flexible, len(role.waiting) - role.need))


def _tightened(parts: Sequence[Part], minimum: int) -> tuple[Part, ...]:
    """Bounds that follow from the others: what all other roles together cannot give, this one must."""
    most = sum(part.most for part in parts)
    least = sum(part.least for part in parts)
    tight = (
        part._replace(
            least=max(part.least, minimum - (most - part.most)), most=min(part.most, minimum - (least - part.least))
        )
        for part in parts
    )
    return tuple(part for part in tight if part.most)


def rows_named(room: Room, names: Iterable[NodeName]) -> list[int]:
    """Rows of the nodes that exist."""
    return [room.fleet.row_of[name] for name in names if name in room.fleet.row_of]
