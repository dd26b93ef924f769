"""Free room per node: the one place where usage is computed.

    free[row, dimension]      allocatable minus what is held; below zero when a node shrank under its pods
    card_memory/core[row, p]  what is free of one card
    card_users[row, p]        how many pods are on it; 0: untouched, it can be taken whole

Held is what any pod holds that is not finished (also while it leaves, and on a node that is not ready), what open LEDGER
entries promise, and what others were promised. A dimension that is below zero blocks only those who ask for it.
Every change is journalled, so that a trial can be rolled back.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.fleet import Fleet, Floats, Ints, Mask
from muster.model.gangs import MemberState
from muster.model.pods import CardUse, Request, Shape
from muster.model.snapshot import Snapshot
from muster.model.units import NodeName

HOLDING = frozenset({MemberState.BOUND, MemberState.ASSUMED, MemberState.LEAVING})

Ports = tuple[tuple[str, int, str], ...]


class Held(NamedTuple):
    """Room of one pod on one node."""

    node: NodeName
    request: Request
    cards: tuple[CardUse, ...]
    ports: Ports


class Taken(NamedTuple):
    """One journalled change: how a row looked before."""

    row: int
    free: Ints
    card_memory: Ints
    card_core: Ints
    card_users: Ints
    whole_free: int
    ports: frozenset[tuple[str, int, str]] | None


def held_by(snapshot: Snapshot) -> Iterable[Held]:
    """Every piece of room that is held in the snapshot."""
    for gang in snapshot.gangs:
        shapes = {role.name: role.shape for role in gang.roles}
        for member in gang.members:
            if member.node is not None and member.state in HOLDING:
                shape = shapes.get(member.role, Shape())
                yield Held(member.node, shape.request, member.cards, shape.host_ports)
    for occupant in snapshot.occupants:
        yield Held(occupant.node, occupant.request, occupant.cards, occupant.host_ports)
    for hold in snapshot.holds:
        yield Held(hold.node, hold.request, hold.cards, ())


class Room:
    """What is free on every node of a fleet; `take` and `give` change single rows."""

    def __init__(self, fleet: Fleet, held: Iterable[Held] = ()) -> None:
        self.fleet = fleet
        self.free = fleet.total.copy()
        self.card_memory = np.where(fleet.card_usable, fleet.card_memory, 0)
        self.card_core = np.where(fleet.card_usable, fleet.card_core, 0)
        self.card_users = np.zeros_like(fleet.card_memory)
        self.lost_users = np.zeros(fleet.size, dtype=np.int64)
        """Whole or shared cards in use that the node does not list any more."""
        self.ports: dict[int, frozenset[tuple[str, int, str]]] = {}
        self._journal: list[Taken] = []
        self.changed: list[int] = []
        """Rows in the order of their changes, rolled back ones again: what was derived before is renewed from its end."""
        self.derived: dict[object, tuple[int, Ints]] = {}
        """What others derived from the room: how far `changed` was read, and the value by row."""
        self.scores: dict[object, tuple[int, Floats]] = {}
        """The same for values that are no whole numbers."""
        self._load(held)
        untouched = (fleet.card_usable & (self.card_users == 0)).sum(axis=1)
        touched = (self.card_users > 0).sum(axis=1) + self.lost_users
        self.whole_free: Ints = np.minimum(untouched, fleet.allocatable_cards - touched)

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
        memory: list[int] = []
        core: list[int] = []
        for node, request, cards, ports in held:
            row = row_of.get(node)
            if row is None:
                continue
            rows_of[request].append(row)
            for use in cards:
                position = fleet.position_of[row].get(use.index)
                if position is None:
                    self.lost_users[row] += 1
                    continue
                rows.append(row)
                positions.append(position)
                memory.append(int(fleet.card_memory[row, position]) if use.whole else use.memory_mib)
                core.append(int(fleet.card_core[row, position]) if use.whole else use.core_percent)
            if not cards and (request.cards or request.share):
                unknown.append((row, request))
            if ports:
                self.ports[row] = self.ports.get(row, frozenset()) | frozenset(ports)
        for request, where in rows_of.items():
            vector = fleet.vector(request)
            if vector is None:
                vector = self._known_part(request)
            np.subtract.at(self.free, np.asarray(where), vector)
        if rows:
            np.subtract.at(self.card_memory, (rows, positions), memory)
            np.subtract.at(self.card_core, (rows, positions), core)
            np.add.at(self.card_users, (rows, positions), 1)
        for row, request in unknown:
            self._guess(row, request)

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
            row = taken.row
            self.changed.append(row)
            self.free[row] = taken.free
            self.card_memory[row] = taken.card_memory
            self.card_core[row] = taken.card_core
            self.card_users[row] = taken.card_users
            self.whole_free[row] = taken.whole_free
            if taken.ports is None:
                self.ports.pop(row, None)
            else:
                self.ports[row] = taken.ports

    def _record(self, row: int) -> None:
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
            )
        )

    def take(self, row: int, request: Request, cards: Sequence[CardUse], *, ports: Ports = ()) -> None:
        """Hold the room of one pod."""
        self._change(row, request, cards, sign=-1)
        if ports:
            self.ports[row] = self.ports.get(row, frozenset()) | frozenset(ports)

    def give(self, row: int, request: Request, cards: Sequence[CardUse], *, ports: Ports = ()) -> None:
        """Free the room of one pod that held exactly this."""
        self._change(row, request, cards, sign=1)
        if ports:
            self.ports[row] = self.ports.get(row, frozenset()) - frozenset(ports)

    def _change(self, row: int, request: Request, cards: Sequence[CardUse], *, sign: int) -> None:
        self._record(row)
        fleet = self.fleet
        vector = fleet.vector(request)
        self.free[row] += sign * (vector if vector is not None else self._known_part(request))
        for use in cards:
            position = fleet.position_of[row].get(use.index)
            if position is None:
                continue
            self.card_memory[row, position] += sign * (
                fleet.card_memory[row, position] if use.whole else use.memory_mib
            )
            self.card_core[row, position] += sign * (fleet.card_core[row, position] if use.whole else use.core_percent)
            self.card_users[row, position] -= sign
        if cards:
            self._refresh(row)

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
        fleet = self.fleet
        where = (fleet.card_usable[row] & (self.card_users[row] == 0)).nonzero()[0].tolist()
        by_group: dict[int, list[int]] = {}
        for position, group in zip(where, fleet.link_group[row, where].tolist(), strict=True):
            by_group.setdefault(group, []).append(position)
        enough = [group for group, inside in by_group.items() if len(inside) >= count]
        chosen = by_group[min(enough, key=lambda group: (len(by_group[group]), group))] if enough else where
        return tuple(fleet.whole_card(row, position) for position in chosen[:count])
