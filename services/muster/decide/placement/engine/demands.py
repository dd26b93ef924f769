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
from muster.decide.topology import Wish, resolve
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


class Told(NamedTuple):
    """What slots know of a gang; nothing (``parts`` empty) of one that stands aside."""

    item: Item
    parts: tuple[Part, ...]
    minimum: int
    wish: Wish
    followers: tuple[tuple[int, int], ...]

    @property
    def wished(self) -> bool:
        """Whether it matters where, or how many of which role: it is an entry."""
        return (
            self.wish.required is not None
            or self.wish.preferred is not None
            or any(
                part.required is not None or part.preferred is not None or part.least != part.most
                for part in self.parts
            )
        )


def told_of(room: Room, item: Item, *, ordinary: frozenset[Shape], landed: Mapping[GangKey, Sequence[Landed]]) -> Told:
    """A gang in slots."""
    ask = item.ask
    if not can_be_told(room, ask, ordinary):
        return Told(item, (), 0, Wish(), ())
    parts, followers = _parts(room, ask, landed.get(ask.gang.key))
    minimum = ask.minimum - sum(count for _, count in followers)
    if not minimum:
        return Told(item, (), 0, Wish(), ())  # its minimum needs no card
    return Told(item, _tightened(parts, minimum), minimum, resolve(room.fleet, ask.gang.topology), followers)


def demands_of(told: Iterable[Told], aside: frozenset[GangKey]) -> Demands:
    """Sort the gangs into entries, bags and those that stand aside."""
    told = list(told)
    entries: list[Entry] = []
    apart: list[Item] = []
    alike: dict[object, list[Told]] = defaultdict(list)
    for one in told:
        item, gang = one.item, one.item.ask.gang
        if not one.parts or gang.key in aside:
            apart.append(item)
        elif one.wished:
            entries.append(Entry(item, one.parts, one.minimum, one.wish.required, one.wish.preferred, one.followers))
        elif len(told) <= BAGS_FROM:
            alike[gang.key].append(one)
        else:
            worth = item.value.bit_length()
            alike[gang.queue, gang.priority, gang.broken, one.parts, one.followers, worth].append(one)
    bags = []
    for same in alike.values():
        inside = sorted(same, key=lambda one: (not one.item.fixed, -one.item.value))
        bags.append(
            Bag(
                items=tuple(one.item for one in inside),
                parts=inside[0].parts,
                fixed=sum(one.item.fixed for one in inside),
                value=min(one.item.value for one in inside),
                followers=inside[0].followers,
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
