"""Muster with a look-ahead of one window of arrivals and a bounded number of moves, on the same core code.

    a window arrives ─► placed in several orders, the best is kept ─► for pods that failed, room is made by moving others
                     ─► what is left of the moves goes to pods whose place costs most against a better one

Kept is the order that places most demand, then the one that loses least room. A move takes a placed pod off its node and places it
anew with the same greedy; each is counted, also those that made room. No pod is ever evicted for another, a pod that failed when
its window was decided is not tried again, and within a window larger pods may be served before smaller ones that came earlier:
an advantage that one-by-one policies do not have.
"""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from loadtest.openb.muster_runs import Muster
from loadtest.openb.trace import CARD, Kind, Order, Trace
from muster.decide.placement.feasibility import admission, capacity
from muster.decide.placement.fragmentation import card_costs, expected_loss, row_costs
from muster.decide.placement.greedy import Landed
from muster.model.pods import CardUse
from muster.model.units import CardIndex, MiB

TRIES = 12
"""Pods looked at for making room for one that failed."""
NODES = 150
"""Nodes looked at for that."""
LOOKS = 4
"""Pods looked at per move that is left, when places are improved."""
WORTH = 0.02
"""Cards of expected loss that a move must save."""


class Placed(NamedTuple):
    """A pod and where it is."""

    kind: int
    row: int
    cards: tuple[CardUse, ...]


class Windows:
    """Places windows of arrivals."""

    def __init__(self, trace: Trace, order: Order, *, moves: int) -> None:
        self.trace = trace
        self.core = Muster(trace, order)
        self.room = self.core.room
        self.every_row = np.arange(self.room.fleet.size)
        self.moves = moves
        self.moved = 0
        self.pods: list[Placed] = []
        self.random = random.Random(order.seed)

    def place(self, arrivals: Sequence[int]) -> list[bool]:
        """Place a window; which of its pods have a place."""
        places = self._best_order(arrivals)
        left = self.moves
        hopeless: set[int] = set()
        for number in self._largest_first(range(len(arrivals)), arrivals):
            kind = arrivals[number]
            if places[number] is None and left > 0 and kind not in hopeless:
                found = self._with_moves(kind, left)
                if found is None:
                    # Room only shrinks within a window: what found none will find none for another of its kind.
                    hopeless.add(kind)
                    continue
                places[number], used = found
                left -= used
        self.core.saw([kind for kind, place in zip(arrivals, places, strict=True) if place is not None])
        self.pods += [place for place in places if place is not None]
        self._improve(left)
        return [place is not None for place in places]

    def _largest_first(self, numbers: Sequence[int], arrivals: Sequence[int]) -> list[int]:
        kinds = self.trace.kinds
        return sorted(
            numbers, key=lambda number: (kinds[arrivals[number]].demand, kinds[arrivals[number]].cpu), reverse=True
        )

    def _best_order(self, arrivals: Sequence[int]) -> list[Placed | None]:
        numbers = range(len(arrivals))
        best: tuple[float, float] | None = None
        kept: list[Placed | None] = []
        mark = self.room.mark()
        for sequence in (list(numbers), self._largest_first(numbers, arrivals)):
            places: list[Placed | None] = [None] * len(arrivals)
            for number in sequence:
                places[number] = self._land(arrivals[number])
            demand = sum(self.trace.kinds[place.kind].demand for place in places if place is not None)
            score = (float(demand), -self._loss())
            if best is None or score > best:
                best, kept = score, places
            self.room.rollback(mark)
        for place in kept:
            if place is not None:
                self.room.take(place.row, self.core.shapes[place.kind].request, place.cards)
        return kept

    def _loss(self) -> float:
        mix = self.core.greedy.mix
        return float(expected_loss(self.room, mix, self.every_row).sum()) if mix is not None else 0.0

    def _land(self, kind: int) -> Placed | None:
        landed: list[Landed] | None = self.core.greedy.minimum(self.core.asks[kind])
        return Placed(kind, landed[0].row, landed[0].cards) if landed else None

    def _take_off(self, pod: Placed) -> None:
        self.room.give(pod.row, self.core.shapes[pod.kind].request, pod.cards)

    def _with_moves(self, kind: int, budget: int) -> tuple[Placed, int] | None:
        """A place for a pod after moving others away, and how many were moved."""
        for numbers in self._in_the_way(kind, budget):
            mark = self.room.mark()
            away = [self.pods[number] for number in numbers]
            for pod in away:
                self._take_off(pod)
            place = self._on_row(kind, away[0].row)
            if place is not None:
                anew = [self._land(pod.kind) for pod in away]
                if all(one is not None for one in anew):
                    for number, one in zip(numbers, anew, strict=True):
                        assert one is not None
                        self.pods[number] = one
                    self.moved += len(numbers)
                    return place, len(numbers)
            self.room.rollback(mark)
        return None

    def _on_row(self, kind: int, row: int) -> Placed | None:
        shape, request = self.core.shapes[kind], self.core.shapes[kind].request
        if capacity(self.room, shape)[row] <= 0:
            return None
        cards: tuple[CardUse, ...] = ()
        if request.share is not None:
            free = np.where(
                self.room.card_memory[row] >= request.share.memory_mib, self.room.card_memory[row], CARD + 1
            )
            index = CardIndex(int(self.room.fleet.card_index[row, int(free.argmin())]))
            cards = (CardUse(index=index, memory_mib=MiB(request.share.memory_mib)),)
        elif request.cards:
            cards = self.room.whole_cards(row, request.cards)
        self.room.take(row, request, cards)
        return Placed(kind, row, cards)

    def _in_the_way(self, kind: int, budget: int) -> Iterator[list[int]]:
        """Pods of one node, by number, without which the pod might fit there; those easiest to place elsewhere first."""
        by_row: dict[int, list[int]] = {}
        for number, pod in enumerate(self.pods):
            by_row.setdefault(pod.row, []).append(number)
        rows = admission(self.room.fleet, self.core.shapes[kind]).rows
        asked = self.trace.kinds[kind]
        found: list[tuple[int, int, list[int]]] = []
        # Nodes with most idle room promise most; the others are not looked at.
        idle = np.where(rows, self.room.card_memory.sum(axis=1), -1)
        for row in np.argsort(-idle, kind="stable")[:NODES].tolist():
            numbers = by_row.get(row)
            if not numbers or idle[row] < 0:
                continue
            chosen = self._few(asked, row, numbers)
            if chosen and len(chosen) <= budget:
                found.append((len(chosen), sum(self.trace.kinds[self.pods[one].kind].demand for one in chosen), chosen))
        found.sort()
        for _, _, chosen in found[:TRIES]:
            yield chosen

    def _few(self, asked: Kind, row: int, numbers: Sequence[int]) -> list[int]:
        """As few pods of a node as make enough room there; smallest first."""
        cpu, memory, milli, cards = asked.cpu, asked.memory * 2**20, asked.milli, asked.cards
        free_cpu, free_memory = int(self.room.free[row, 0]), int(self.room.free[row, 1])
        free = self.room.card_memory[row].copy()
        chosen: list[int] = []
        for number in sorted(numbers, key=lambda one: self.trace.kinds[self.pods[one].kind].demand):
            enough = int((free >= max(milli, 1)).sum()) >= cards
            if enough and free_cpu >= cpu and free_memory >= memory:
                break
            pod = self.pods[number]
            kind = self.trace.kinds[pod.kind]
            helps_cards = not enough and kind.cards > 0
            helps_node = (free_cpu < cpu or free_memory < memory) and kind.cpu > 0
            if not (helps_cards or helps_node):
                continue
            chosen.append(number)
            free_cpu, free_memory = free_cpu + kind.cpu, free_memory + kind.memory * 2**20
            for use in pod.cards:
                free[self.room.fleet.position_of[row][use.index]] += use.memory_mib
        enough = int((free >= max(milli, 1)).sum()) >= cards
        return chosen if enough and free_cpu >= cpu and free_memory >= memory else []

    def _improve(self, moves: int) -> None:
        """Move pods to places that lose less room."""
        mix = self.core.greedy.mix
        if mix is None:
            return
        for _ in range(moves * LOOKS):
            if moves <= 0:
                return
            number = self.random.randrange(len(self.pods))
            pod = self.pods[number]
            request = self.core.shapes[pod.kind].request
            mark = self.room.mark()
            self._take_off(pod)
            if request.share is not None:
                position = self.room.fleet.position_of[pod.row][pod.cards[0].index]
                here = float(card_costs(self.room, mix, request)[pod.row, position])
            else:
                here = float(row_costs(self.room, mix, request)[pod.row])
            anew = self._land(pod.kind)
            assert anew is not None
            self.room.rollback(mark + 1)
            if request.share is not None:
                position = self.room.fleet.position_of[anew.row][anew.cards[0].index]
                there = float(card_costs(self.room, mix, request)[anew.row, position])
            else:
                there = float(row_costs(self.room, mix, request)[anew.row])
            if here - there < WORTH:
                self.room.rollback(mark)
                continue
            self.room.take(anew.row, request, anew.cards)
            self.pods[number] = anew
            self.moved += 1
            moves -= 1
