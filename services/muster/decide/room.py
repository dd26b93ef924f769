"""Free room per node: the one place where usage is computed.

    free[row, dimension]      allocatable minus what is held; below zero when a node shrank under its pods
    card_memory/core[row, p]  what is free of one card
    card_users[row, p]        how many pods are on it; 0: untouched, it can be taken whole

Held is what any pod holds that is not finished (also while it leaves, and on a node that is not ready), what open LEDGER
entries promise, and what others were promised. A dimension that is below zero blocks only those who ask for it.
Every change is journalled, so that a trial can be rolled back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from muster.decide.card_looks import CardLooks
from muster.decide.fleet import Fleet, Floats, Ints, Mask
from muster.decide.looks import Looks, Numbers, Values
from muster.decide.neighbours import Neighbours
from muster.model.gangs import Gang, Member, MemberState
from muster.model.pods import CardUse, Kind, Request, Shape
from muster.model.snapshot import Hold, Occupant, Snapshot
from muster.model.units import NodeName, PodUid

EVERY_ROW = slice(None)
FEW = 5
"""So few pods are taken faster one by one."""
HOLDING = frozenset({MemberState.BOUND, MemberState.ASSUMED, MemberState.LEAVING})

Ports = tuple[tuple[str, int, str], ...]


class Held(NamedTuple):
    """Room of one pod on one node."""

    node: NodeName
    request: Request
    cards: tuple[CardUse, ...]
    ports: Ports
    kind: Kind | None = None


class Taken(NamedTuple):
    """One journalled change: how a row looked before."""

    row: int
    free: Ints
    card_memory: Ints
    card_core: Ints
    card_users: Ints
    whole_free: int
    ports: frozenset[tuple[str, int, str]] | None
    kind: Kind | None
    kinds: int


class TakenTogether(NamedTuple):
    """The same for many rows that changed at once."""

    rows: Ints
    free: Ints
    card_memory: Ints
    card_core: Ints
    card_users: Ints
    whole_free: Ints
    ports: Mapping[int, frozenset[tuple[str, int, str]] | None]
    kinds: Sequence[tuple[Kind, int, int]]
    """(kind, row, how many came)"""


class Pod(NamedTuple):
    """One pod to take room for."""

    row: int
    shape: Shape
    cards: Sequence[CardUse]


def held_by(snapshot: Snapshot) -> Iterable[Held]:
    """Every piece of room that is held in the snapshot."""
    terms = snapshot.pod_terms
    for gang in snapshot.gangs:
        for _, held in held_by_gang(gang, terms=terms):
            yield held
    for occupant in snapshot.occupants:
        yield held_by_occupant(occupant, terms=terms)
    for hold in snapshot.holds:
        yield held_by_hold(hold)


def held_by_gang(gang: Gang, *, terms: bool) -> Iterable[tuple[PodUid, Held]]:
    """What the members of a gang hold; ``terms``: terms between pods play a part."""
    shapes = {role.name: role.shape for role in gang.roles}
    for member in gang.members:
        if member.node is not None and member.state in HOLDING:
            shape = shapes.get(member.role, Shape())
            kind = member_kind(gang, member) if terms else None
            yield member.uid, Held(member.node, shape.request, member.cards, shape.host_ports, kind)


def held_by_occupant(occupant: Occupant, *, terms: bool) -> Held:
    """What a pod outside our gangs holds."""
    kind: Kind | None = None
    if terms and not occupant.promised:
        kind = Kind(
            namespace=occupant.key.partition("/")[0],
            labels=tuple(sorted(occupant.labels.items())),
            terms=occupant.pod_terms,
            leaving=occupant.leaving,
        )
    return Held(occupant.node, occupant.request, occupant.cards, occupant.host_ports, kind)


def held_by_hold(hold: Hold) -> Held:
    """What an open entry holds for a pod that does not stand there."""
    return Held(hold.node, hold.request, hold.cards, ())


def member_kind(gang: Gang, member: Member) -> Kind:
    """What a standing member is to terms of other pods."""
    leaving = member.state is MemberState.LEAVING
    return Kind(namespace=gang.namespace, labels=member.labels, terms=member.pod_terms, leaving=leaving)


class Room:
    """What is free on every node of a fleet; `take` and `give` change single rows.

    Without ``held`` it is the emptied cluster, in which what could ever fit is tried.
    """

    def __init__(self, fleet: Fleet, held: Iterable[Held] | None = None) -> None:
        self.fleet = fleet
        self.free = fleet.total.copy()
        self.card_memory = np.where(fleet.card_usable, fleet.card_memory, 0)
        self.card_core = np.where(fleet.card_usable, fleet.card_core, 0)
        self.card_users = np.zeros_like(fleet.card_memory)
        self.lost_users = np.zeros(fleet.size, dtype=np.int64)
        """Whole or shared cards in use that the node does not list any more."""
        self.ports: dict[int, frozenset[tuple[str, int, str]]] = {}
        self._journal: list[Taken | TakenTogether] = []
        self.changed: list[int] = []
        """Rows in the order of their changes, rolled back ones again: what was derived before is renewed from its end."""
        self.derived: dict[object, tuple[int, Ints]] = {}
        """What others derived from the room: how far `changed` was read, and the value by row."""
        self.scores: dict[object, tuple[int, Floats]] = {}
        """The same for values that are no whole numbers."""
        self.looks: Looks | None = None
        """See `look_at`."""
        self._card_looks: CardLooks | None = None
        self.is_sample = False
        """Its rows are looks, not nodes (see `muster.decide.card_looks`): nothing derived from it is kept."""
        self.ranks: Ints = np.arange(fleet.size, dtype=np.int64)
        """By row: which of nodes that are equally good is taken first; see `muster.decide.canonical`."""
        self._whole = held is not None
        self.neighbours: Neighbours | None = None
        """Who stands where, once a pod of a kind was loaded or taken; None while terms between pods play no part."""
        self._load(held or ())
        self.whole_free: Ints = self._untouched(EVERY_ROW)

    def _untouched(self, rows: Ints | slice) -> Ints:
        """Cards that can be given whole on these rows."""
        fleet, used = self.fleet, self.card_users[rows] > 0
        untouched = (fleet.card_usable[rows] & ~used).sum(axis=1)
        touched = used.sum(axis=1) + self.lost_users[rows]
        return np.asarray(np.minimum(untouched, fleet.allocatable_cards[rows] - touched), dtype=np.int64)

    def reload(self, fleet: Fleet, rows: Sequence[int], held: Iterable[Held]) -> None:
        """These rows anew: as the fleet has them, with everything that is held there, and nothing else. No change is under way.

        ``fleet`` is the room's own, or one that was renewed from it; another one's derived values are forgotten.
        """
        if self._journal:
            raise ValueError(f"{len(self._journal)} changes of the room are not rolled back; reload needs none")
        if fleet is not self.fleet:
            self.fleet = fleet
            self.forget()
            if self.neighbours is not None:
                self.neighbours.fleet = fleet
        where = np.asarray(rows, dtype=np.int64)
        usable = fleet.card_usable[where]
        self.free[where] = fleet.total[where]
        self.card_memory[where] = np.where(usable, fleet.card_memory[where], 0)
        self.card_core[where] = np.where(usable, fleet.card_core[where], 0)
        self.card_users[where] = 0
        self.lost_users[where] = 0
        for row in rows:
            self.ports.pop(row, None)
        if self.neighbours is not None:
            for counts in self.neighbours.counts.values():
                counts[where] = 0
        self._load(held)
        self.whole_free[where] = self._untouched(where)
        self.changed.extend(rows)

    def forget(self) -> None:
        """Forget what was derived, so that it does not grow without end in a room that is kept."""
        self.changed, self.derived, self.scores = [], {}, {}
        self.look_away()

    def look_at(self) -> None:
        """From here on judge nodes that look alike once: worth it when many pods are to be placed."""
        if self.looks is None and self.fleet.size:
            fleet = self.fleet
            numbers = Numbers(self.free, fleet.total, self.whole_free, fleet.allocatable_cards)
            self.looks = Looks(fleet, numbers, len(self.changed))

    def by_look(
        self,
        key: object,
        compute: Callable[[Numbers], Values],
        rows: Mask | None = None,
        outside: float = 0,
        *,
        own: bool = False,
    ) -> Values | None:
        """A value that depends on a node's numbers alone, by row; see `Looks.values`. None when nobody looks at them."""
        if self.looks is None:
            return None
        self.looks.follow(self.changed)
        return self.looks.values(key, compute, rows, outside, own=own)

    def look_away(self) -> None:
        """Judge every node by itself again."""
        self.looks, self._card_looks = None, None

    def card_looks(self) -> CardLooks | None:
        """The same card by card; None when nobody looks."""
        if self._card_looks is None and self.looks is not None:
            self._card_looks = CardLooks(self)
        return self._card_looks

    def as_of(self, mark: int) -> "Room":
        """A room of its own, as this one was at the mark."""
        room = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(room, name, value.copy())
        room.ports = dict(self.ports)
        room.neighbours = self.neighbours.copy() if self.neighbours is not None else None
        room._journal, room.changed = list(self._journal), []  # noqa: SLF001  (one of our own)
        room.derived, room.scores = {}, {}
        room.look_away()
        room.rollback(mark)
        return room

    @classmethod
    def of(cls, snapshot: Snapshot, fleet: Fleet | None = None) -> "Room":
        """The free room of a snapshot."""
        return cls(fleet or Fleet(snapshot.nodes, snapshot.topology_levels, snapshot.hypernodes), held_by(snapshot))

    def _load(self, held: Iterable[Held]) -> None:
        fleet, row_of = self.fleet, self.fleet.row_of
        rows_of: dict[Request, list[int]] = defaultdict(list)
        unknown: list[tuple[int, Request]] = []
        rows: list[int] = []
        positions: list[int] = []
        uses: list[CardUse] = []
        for node, request, cards, ports, kind in held:
            row = row_of.get(node)
            if row is None:
                continue
            rows_of[request].append(row)
            if cards:
                position_of = fleet.position_of[row]
                for use in cards:
                    position = position_of.get(use.index)
                    if position is None:
                        self.lost_users[row] += 1
                    else:
                        rows.append(row)
                        positions.append(position)
                        uses.append(use)
            elif request.cards or request.share:
                unknown.append((row, request))
            if ports:
                self.ports[row] = self.ports.get(row, frozenset()) | frozenset(ports)
            if kind is not None:
                self._stands(kind, row, 1)
        self._take_amounts(rows_of)
        if rows:
            self._use_cards(np.asarray(rows), np.asarray(positions), uses)
        for row, request in unknown:
            self._guess(row, request)

    def _stands(self, kind: Kind, row: int, number: int) -> None:
        self.around().add(kind, row, number)

    def around(self) -> Neighbours:
        """Who stands where; in a room that was given nothing that stands, unmet wishes for company are passed over."""
        if self.neighbours is None:
            self.neighbours = Neighbours(self.fleet, whole=self._whole)
        return self.neighbours

    def _use_cards(self, rows: Ints, positions: Ints, uses: Sequence[CardUse]) -> None:
        fleet = self.fleet
        memory, core = fleet.card_memory[rows, positions], fleet.card_core[rows, positions]
        whole = np.array([use.whole for use in uses], dtype=np.bool_)
        if not whole.all():
            memory = np.where(whole, memory, np.array([use.memory_mib for use in uses], dtype=np.int64))
            core = np.where(whole, core, np.array([use.core_percent for use in uses], dtype=np.int64))
        cards, at = np.unique(rows * fleet.width + positions, return_inverse=True)
        where = cards // fleet.width, cards % fleet.width
        self.card_memory[where] -= np.bincount(at, weights=memory).astype(np.int64)
        self.card_core[where] -= np.bincount(at, weights=core).astype(np.int64)
        self.card_users[where] += np.bincount(at)

    def _known_part(self, request: Request) -> Ints:
        """The vector of a held request that names a resource no node has any more."""
        dimensions = self.fleet.dimensions
        vector = np.zeros(len(dimensions), dtype=np.int64)
        vector[:3] = request.cpu, request.memory, 1
        for name, amount in request.extended:
            if name in dimensions:
                vector[dimensions[name]] = amount
        return vector

    def _guess(self, row: int, request: Request) -> None:
        """A pod whose cards nobody told: it is given the lowest untouched ones, so that the count is right."""
        usable = self.fleet.card_usable[row]
        if request.share is not None:
            share = request.share
            fits = usable & (self.card_memory[row] >= share.memory_mib) & (self.card_core[row] >= share.core_percent)
            where = np.flatnonzero(fits)
            used = self.card_users[row, where] > 0
            chosen = where[np.argsort(~used, kind="stable")][: share.count]
            self.card_memory[row, chosen] -= share.memory_mib
            self.card_core[row, chosen] -= share.core_percent
            self.card_users[row, chosen] += 1
            self.lost_users[row] += share.count - chosen.size
            return
        where = np.flatnonzero(usable & (self.card_users[row] == 0))[: request.cards]
        self.card_memory[row, where] = 0
        self.card_core[row, where] = 0
        self.card_users[row, where] += 1
        self.lost_users[row] += request.cards - where.size

    def mark(self) -> int:
        """A point to roll back to."""
        return len(self._journal)

    def rollback(self, mark: int) -> None:
        """Undo every change since the mark."""
        while len(self._journal) > mark:
            taken = self._journal.pop()
            where = taken.row if isinstance(taken, Taken) else taken.rows
            self.free[where] = taken.free
            self.card_memory[where] = taken.card_memory
            self.card_core[where] = taken.card_core
            self.card_users[where] = taken.card_users
            self.whole_free[where] = taken.whole_free
            if isinstance(taken, TakenTogether):
                self.changed.extend(taken.rows.tolist())
                for kind, row, number in taken.kinds:
                    self._stands(kind, row, -number)
                for row, ports in taken.ports.items():
                    self._set_ports(row, ports)
                continue
            self.changed.append(taken.row)
            if taken.kind is not None:
                self._stands(taken.kind, taken.row, -taken.kinds)
            self._set_ports(taken.row, taken.ports)

    def _set_ports(self, row: int, ports: frozenset[tuple[str, int, str]] | None) -> None:
        if ports is None:
            self.ports.pop(row, None)
        else:
            self.ports[row] = ports

    def _record(self, row: int, kind: Kind | None, kinds: int) -> None:
        self.changed.append(row)
        self._journal.append(
            Taken(
                row,
                self.free[row].copy(),
                self.card_memory[row].copy(),
                self.card_core[row].copy(),
                self.card_users[row].copy(),
                int(self.whole_free[row]),
                self.ports.get(row),
                kind,
                kinds,
            )
        )

    def take(
        self, row: int, request: Request, cards: Sequence[CardUse], *, ports: Ports = (), kind: Kind | None = None
    ) -> None:
        """Hold the room of one pod."""
        self._change(row, request, cards, sign=-1, kind=kind)
        if ports:
            self.ports[row] = self.ports.get(row, frozenset()) | frozenset(ports)

    def give(
        self, row: int, request: Request, cards: Sequence[CardUse], *, ports: Ports = (), kind: Kind | None = None
    ) -> None:
        """Free the room of one pod that held exactly this."""
        self._change(row, request, cards, sign=1, kind=kind)
        if ports:
            self.ports[row] = self.ports.get(row, frozenset()) - frozenset(ports)

    def take_together(self, pods: Sequence[Pod]) -> None:
        """Hold the room of many pods at once; the same as taking them one by one."""
        if len(pods) < FEW:
            for row, shape, cards in pods:
                self.take(row, shape.request, cards, ports=shape.host_ports, kind=shape.kind)
            return
        rows, times = np.unique([pod.row for pod in pods], return_counts=True)
        kinds = [(pod.shape.kind, pod.row, 1) for pod in pods if pod.shape.kind is not None]
        ported = [pod for pod in pods if pod.shape.host_ports]
        self._journal.append(
            TakenTogether(
                rows,
                self.free[rows],
                self.card_memory[rows],
                self.card_core[rows],
                self.card_users[rows],
                self.whole_free[rows],
                {pod.row: self.ports.get(pod.row) for pod in ported},
                kinds,
            )
        )
        self.changed.extend(rows.tolist())
        for pod in ported:
            self.ports[pod.row] = self.ports.get(pod.row, frozenset()) | frozenset(pod.shape.host_ports)
        rows_of: dict[Request, list[int]] = defaultdict(list)
        on: list[int] = []
        positions: list[int] = []
        uses: list[CardUse] = []
        position_of = self.fleet.position_of
        for row, shape, cards in pods:
            rows_of[shape.request].append(row)
            if cards:
                here = position_of[row]
                known = [use for use in cards if use.index in here]
                positions += [here[use.index] for use in known]
                on += [row] * len(known)
                uses += known
        for kind, row, number in kinds:
            self._stands(kind, row, number)
        if len(rows_of) == 1:
            self._take_amount(next(iter(rows_of)), rows, times)
        else:
            self._take_amounts(rows_of)
        if on:
            self._use_cards(np.asarray(on), np.asarray(positions), uses)
            self.whole_free[rows] = self._untouched(rows)

    def _take_amounts(self, rows_of: Mapping[Request, Sequence[int]]) -> None:
        for request, where in rows_of.items():
            self._take_amount(request, *np.unique(where, return_counts=True))

    def _take_amount(self, request: Request, rows: Ints, times: Ints) -> None:
        vector = self.fleet.vector(request)
        if vector is None:
            vector = self._known_part(request)
        self.free[rows] -= times[:, None] * vector

    def _change(self, row: int, request: Request, cards: Sequence[CardUse], *, sign: int, kind: Kind | None) -> None:
        self._record(row, kind, -sign)
        if kind is not None:
            self._stands(kind, row, -sign)
        fleet = self.fleet
        vector = fleet.vector(request)
        if vector is None:
            vector = self._known_part(request)
        free = self.free[row]
        if sign < 0:
            free -= vector
        else:
            free += vector
        if not cards:
            return
        position_of = fleet.position_of[row]
        if cards[0].whole:
            # A pod's cards are all whole or all shared.
            known = [position_of[use.index] for use in cards if use.index in position_of]
            if sign < 0 and len(known) == 1 and self._take_untouched(row, known[0]):
                return
            where = known[0] if len(known) == 1 else np.array(known, dtype=np.int64)  # one is faster without an array
            self.card_memory[row, where] += sign * fleet.card_memory[row, where]
            self.card_core[row, where] += sign * fleet.card_core[row, where]
            self.card_users[row, where] -= sign
        else:
            for use in cards:
                position = position_of.get(use.index)
                if position is not None:
                    self.card_memory[row, position] += sign * use.memory_mib
                    self.card_core[row, position] += sign * use.core_percent
                    self.card_users[row, position] -= sign
        self._refresh(row)

    def _take_untouched(self, row: int, position: int) -> bool:
        """Take one untouched card whole; False, with nothing done, when it is not untouched."""
        if self.card_users[row, position] or not self.fleet.card_usable[row, position]:
            return False
        self.card_memory[row, position] -= self.fleet.card_memory[row, position]
        self.card_core[row, position] -= self.fleet.card_core[row, position]
        self.card_users[row, position] = 1
        self.whole_free[row] -= 1  # one untouched card less, one in use more: both bounds fall by one
        return True

    def _refresh(self, row: int) -> None:
        used = self.card_users[row] > 0
        untouched = np.count_nonzero(self.fleet.card_usable[row] & ~used)
        touched = np.count_nonzero(used) + int(self.lost_users[row])
        self.whole_free[row] = min(untouched, int(self.fleet.allocatable_cards[row]) - touched)

    def untouched(self) -> Mask:
        """Cards [row, position] that nobody is on and that can be used."""
        return np.asarray(self.fleet.card_usable & (self.card_users == 0), dtype=np.bool_)

    def whole_cards(self, row: int, count: int) -> tuple[CardUse, ...]:
        """``count`` untouched cards of one node, of one link group where one has enough (the tightest), lowest first."""
        usable = self.fleet.card_usable[row] & (self.card_users[row] == 0)
        return self.fleet.cards_of(row, usable.tobytes(), count)

    def whole_cards_each(self, row: int, count: int, pods: int) -> list[tuple[CardUse, ...]]:
        """The same for pods that follow each other on one node; nothing is taken."""
        if not count:
            return [()] * pods
        fleet = self.fleet
        usable = bytearray((fleet.card_usable[row] & (self.card_users[row] == 0)).tobytes())
        chosen = []
        for _ in range(pods):
            cards = fleet.cards_of(row, bytes(usable), count)
            for use in cards:
                usable[fleet.position_of[row][use.index]] = 0
            chosen.append(cards)
        return chosen
