"""What the nodes of a fleet have left, by node and by card, loaded from what is held.

    free[row, dimension]      allocatable minus what is held; below zero when a node shrank under its pods
    card_memory/core[row, p]  what is free of one card
    card_users[row, p]        how many pods are on it; 0: untouched, it can be taken whole

A dimension that is below zero blocks only those who ask for it. Changes, and going back on them: `muster.decide.room`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from muster.decide.fleet import Fleet, Ints, Mask
from muster.decide.held import Held
from muster.decide.neighbours import Neighbours
from muster.model.pods import CardUse, Kind, Request

EVERY_ROW = slice(None)


class Stock:
    """The arrays, and what is computed from them alone.

    Without ``held`` it is the emptied cluster, in which what could ever fit is tried.
    """

    def __init__(self, fleet: Fleet, held: Iterable[Held] | None) -> None:
        self.fleet = fleet
        self.free = fleet.total.copy()
        self.card_memory = np.where(fleet.card_usable, fleet.card_memory, 0)
        self.card_core = np.where(fleet.card_usable, fleet.card_core, 0)
        self.card_users = np.zeros_like(fleet.card_memory)
        self.lost_users = np.zeros(fleet.size, dtype=np.int64)
        """Whole or shared cards in use that the node does not list any more."""
        self.ports: dict[int, frozenset[tuple[str, int, str]]] = {}
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

    def _take_amounts(self, rows_of: Mapping[Request, Sequence[int]]) -> None:
        for request, where in rows_of.items():
            self._take_amount(request, *np.unique(where, return_counts=True))

    def _take_amount(self, request: Request, rows: Ints, times: Ints) -> None:
        vector = self.fleet.vector(request)
        if vector is None:
            vector = self._known_part(request)
        self.free[rows] -= times[:, None] * vector

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
