"""Free room per node: the one place where usage is computed.

    held ──► Stock (arrays by node and card) ──► take, give ──► mark, rollback

What counts as held: `muster.decide.held`; the arrays: `muster.decide.stock`. Every change is journalled, so that a trial can
be rolled back, and noted, so that what was derived from the room is renewed for the rows that changed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from muster.decide.card_looks import CardLooks
from muster.decide.fleet import Fleet, Floats, Ints, Mask
from muster.decide.held import Held, Ports, held_by
from muster.decide.looks import Looks, Numbers, Values
from muster.decide.stock import Stock
from muster.model.pods import CardUse, Kind, Request, Shape
from muster.model.snapshot import Snapshot

FEW = 5
"""So few pods are taken faster one by one."""


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


class Room(Stock):
    """What is free on every node of a fleet; `take` and `give` change single rows.

    Without ``held`` it is the emptied cluster, in which what could ever fit is tried.
    """

    def __init__(self, fleet: Fleet, held: Iterable[Held] | None = None) -> None:
        super().__init__(fleet, held)
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
