"""Which node, and which card, is filled first.

Binpack: the fuller a node is after the pod, the better, weighted by policy. Before that: preferences of the pod's own; and a pod
without cards keeps away from nodes with cards, most of all from those with many untouched ones.
Shares go to the used card that they leave least of; an untouched card is opened last.
When the mix of requests is known, nodes and cards are filled first where the expected loss of card room rises least instead.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.decide.fleet import CPU, MEMORY, PODS, Fleet, Floats, Ints
from muster.decide.looks import Numbers
from muster.decide.placement.feasibility import EVERY_ROW, admission, avoided, pods_in, preference, share_fits
from muster.decide.placement.fragmentation import Mix, card_costs, row_costs
from muster.decide.room import Room
from muster.model.pods import Request, Shape
from muster.model.policy import Packing

NOWHERE = -1e9
"""Lower than any score."""


class CardSlots(NamedTuple):
    """Cards that take a share, best first: row, position, how many shares each takes, whether it is opened by it."""

    rows: Ints
    positions: Ints
    fits: Ints
    fresh: npt.NDArray[np.bool_]


def fullness(room: Room, shape: Shape, packing: Packing) -> Floats:
    """How full each row would be with one more pod, 0 … 1, over the resources that the pod asks for.

    Kept with the room and renewed only for rows that changed since the last time it was asked for.
    """
    if room.fleet.vector(shape.request) is None:
        return np.zeros(room.fleet.size, dtype=np.float64)
    request = shape.request
    key = ("fullness", request, packing)
    looked = room.by_look(key, lambda numbers: _fullness(room.fleet, numbers, request, packing))
    if looked is not None:
        return looked
    known = room.scores.get(key)
    if known is None:
        scores = _fullness(room.fleet, _numbers(room, EVERY_ROW), request, packing)
    else:
        since, scores = known
        renewed = np.array(sorted(set(room.changed[since:])), dtype=np.int64)
        if renewed.size:
            scores = scores.copy()
            scores[renewed] = _fullness(room.fleet, _numbers(room, renewed), request, packing)
    room.scores[key] = (len(room.changed), scores)
    return scores


def _numbers(room: Room, rows: Ints | slice) -> Numbers:
    fleet = room.fleet
    return Numbers(room.free[rows], fleet.total[rows], room.whole_free[rows], fleet.allocatable_cards[rows])


def _fullness(fleet: Fleet, numbers: Numbers, request: Request, packing: Packing) -> Floats:
    vector = fleet.vector(request)
    assert vector is not None
    free, totals = numbers.free, numbers.total
    result = np.zeros(free.shape[0], dtype=np.float64)
    weights = {CPU: packing.cpu, MEMORY: packing.memory}
    weight_sum = 0
    for dimension in np.flatnonzero(vector).tolist():
        if dimension == PODS:
            continue
        weight = weights.get(dimension, 1)
        total = np.maximum(totals[:, dimension], 1)
        result += weight * (total - free[:, dimension] + vector[dimension]) / total
        weight_sum += weight
    if request.cards or request.share is not None:
        cards = np.maximum(numbers.allocatable_cards, 1)
        result += packing.gpu * (cards - numbers.whole_free + request.cards) / cards
        weight_sum += packing.gpu
    return np.asarray(np.round(result / max(weight_sum, 1), 9), dtype=np.float64)


def _scores(room: Room, shape: Shape, packing: Packing, mix: Mix | None) -> Floats:
    """What is best first by row: the expected loss of card room, negated, or fullness where no mix is known."""
    if not packing.weight:
        return np.zeros(room.fleet.size)
    if mix is None or shape.request.share is not None or room.fleet.vector(shape.request) is None:
        return fullness(room, shape, packing)
    return np.asarray(-np.round(row_costs(room, mix, shape.request), 9), dtype=np.float64)


def best_row(room: Room, shape: Shape, packing: Packing, fits: Ints, *, mix: Mix | None = None) -> int:
    """The row where the next pod goes, of those where any fits; the same as the first of `order_rows`."""
    fleet = room.fleet
    with_cards = bool(shape.request.cards or shape.request.share is not None)
    if with_cards and packing.weight and _unswayed(fleet, shape):
        return _first(room, np.where(fits > 0, _scores(room, shape, packing, mix), NOWHERE))
    return int(order_rows(room, shape, packing, np.flatnonzero(fits), mix=mix)[0])


def next_row(room: Room, shape: Shape, packing: Packing) -> int | None:
    """What `best_row` says of all rows where a pod fits that only numbers limit; None where that has to be asked.

    -1: it fits nowhere.
    """
    fleet, request = room.fleet, shape.request
    vector = fleet.vector(request)
    plain = request.cards and not shape.namespace and not shape.host_ports
    if vector is None or not packing.weight or not plain or not _unswayed(fleet, shape):
        return None

    def scores(numbers: Numbers) -> Floats:
        fits = pods_in(numbers, vector, request.cards) > 0
        return np.where(fits, _fullness(fleet, numbers, request, packing), NOWHERE)

    found = room.by_look(("next", shape, packing), scores, admission(fleet, shape).rows, NOWHERE, own=True)
    if found is None:
        return None
    row = _first(room, found)
    return row if found[row] > NOWHERE else -1


def _first(room: Room, scores: Floats) -> int:
    """The row with the highest score; of several, the first in rank."""
    best = np.flatnonzero(scores == scores.max())
    return int(best[0] if best.size == 1 else best[room.ranks[best].argmin()])


def _unswayed(fleet: Fleet, shape: Shape) -> bool:
    """Whether no row is avoided or liked by the shape itself: then only fullness and the row number decide."""
    key = ("unswayed", shape.tolerations, shape.preferred_nodes)
    found = fleet.memo.get(key)
    if found is None:
        found = fleet.memo[key] = not (avoided(fleet, shape).any() or preference(fleet, shape).any())
    return bool(found)


def order_rows(
    room: Room, shape: Shape, packing: Packing, rows: Ints, *, most: int | None = None, mix: Mix | None = None
) -> Ints:
    """The rows, best first; of more than ``most`` only those that can be among the best so many."""
    fleet = room.fleet
    score = _scores(room, shape, packing, mix)[rows]
    with_cards = bool(shape.request.cards or shape.request.share is not None)
    if with_cards and _unswayed(fleet, shape):
        if most is not None and most < rows.size:
            # A partial sort finds the few that are needed.
            kept = score >= np.partition(score, rows.size - most)[rows.size - most]
            rows, score = rows[kept], score[kept]
        return np.asarray(rows[np.lexsort((room.ranks[rows], -score))], dtype=np.int64)
    keys: list[npt.NDArray[np.generic]] = [room.ranks[rows], -score]
    if not with_cards:
        if mix is None:
            keys.append(np.clip(room.whole_free[rows], 0, None))
        keys.append(fleet.allocatable_cards[rows] > 0)
    keys += [-preference(fleet, shape)[rows], avoided(fleet, shape)[rows]]
    return np.asarray(rows[np.lexsort(keys)], dtype=np.int64)


def order_cards(
    room: Room,
    shape: Shape,
    packing: Packing,
    rows: Ints,
    *,
    largest_first: bool = False,
    most: int | None = None,
    mix: Mix | None = None,
) -> CardSlots:
    """The cards of these rows that take a share of the shape, best first; when ``most`` is 1, perhaps only the best.

    ``largest_first`` puts the cards first on which the share is the smallest part (for a queue close to its capability).
    """
    fleet, request = room.fleet, shape.request
    share = request.share
    assert share is not None
    costs = None
    if mix is not None and packing.weight:
        costs = np.round(card_costs(room, mix, request), 9)
        if most == 1 and not largest_first and _unswayed(fleet, shape):
            return _best_card(room, costs, rows)
    fits = share_fits(room, request)[rows]
    where, positions = np.nonzero(fits)
    at = rows[where]
    memory_total = np.maximum(fleet.card_memory[at, positions], 1)
    left = (room.card_memory[at, positions] - share.memory_mib) / memory_total
    left += (room.card_core[at, positions] - share.core_percent) / 100
    fresh = room.card_users[at, positions] == 0
    score = fullness(room, shape, packing)[at]
    keys: list[npt.NDArray[np.generic]] = [
        positions,
        room.ranks[at],
        *(
            (np.where(fresh, 0.0, np.round(left, 9)), -score * fresh, fresh)
            if costs is None
            else (costs[at, positions],)
        ),
        -preference(fleet, shape)[at],
        avoided(fleet, shape)[at],
    ]
    if largest_first:
        keys.append(-memory_total)
    order = np.lexsort(keys)
    return CardSlots(at[order], positions[order], fits[where, positions][order], fresh[order])


def _best_card(room: Room, costs: Floats, rows: Ints) -> CardSlots:
    among = costs[rows]
    where = position = 0
    if among.size:
        best = np.flatnonzero(among.min(axis=1) == among.min())
        where = int(best[room.ranks[rows[best]].argmin()])
        position = int(among[where].argmin())
    if not among.size or not np.isfinite(among[where, position]):
        none = np.zeros(0, dtype=np.int64)
        return CardSlots(none, none, none, none.astype(np.bool_))
    row = rows[where]
    one = np.ones(1, dtype=np.int64)
    return CardSlots(one * row, one * position, one, room.card_users[[row], [position]] == 0)
