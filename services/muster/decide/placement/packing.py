"""Which node, and which card, is filled first.

Binpack: the fuller a node is after the pod, the better, weighted by policy. Before that: preferences of the pod's own; and a pod
without cards keeps away from nodes with cards, most of all from those with many untouched ones.
Shares go to the used card that they leave least of; an untouched card is opened last.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.decide.fleet import CPU, MEMORY, PODS, Ints
from muster.decide.placement.feasibility import avoided, preference, share_fits
from muster.decide.room import Room
from muster.model.pods import Shape
from muster.model.policy import Packing

Floats = npt.NDArray[np.float64]


class CardSlots(NamedTuple):
    """Cards that take a share, best first: row, position, how many shares each takes, whether it is opened by it."""

    rows: Ints
    positions: Ints
    fits: Ints
    fresh: npt.NDArray[np.bool_]


def fullness(room: Room, shape: Shape, packing: Packing) -> Floats:
    """How full each row would be with one more pod, 0 … 1, over the resources that the pod asks for."""
    fleet, request = room.fleet, shape.request
    vector = fleet.vector(request)
    result = np.zeros(fleet.size, dtype=np.float64)
    if vector is None:
        return result
    weights = {CPU: packing.cpu, MEMORY: packing.memory}
    weight_sum = 0
    for dimension in np.flatnonzero(vector):
        if dimension == PODS:
            continue
        weight = weights.get(int(dimension), 1)
        total = np.maximum(fleet.total[:, dimension], 1)
        result += weight * (total - room.free[:, dimension] + vector[dimension]) / total
        weight_sum += weight
    if request.cards or request.share is not None:
        cards = np.maximum(fleet.allocatable_cards, 1)
        result += packing.gpu * (cards - room.whole_free + request.cards) / cards
        weight_sum += packing.gpu
    return result / max(weight_sum, 1)


def order_rows(room: Room, shape: Shape, packing: Packing, rows: Ints) -> Ints:
    """The rows, best first."""
    score = np.round(fullness(room, shape, packing)[rows], 9)
    if not packing.weight:
        score = np.zeros_like(score)
    keys: list[npt.NDArray[np.generic]] = [rows, -score]
    if not shape.request.cards and shape.request.share is None:
        keys += [np.clip(room.whole_free[rows], 0, None), room.fleet.allocatable_cards[rows] > 0]
    keys += [-preference(room.fleet, shape)[rows], avoided(room.fleet, shape)[rows]]
    return np.asarray(rows[np.lexsort(keys)], dtype=np.int64)


def order_cards(room: Room, shape: Shape, packing: Packing, rows: Ints, *, largest_first: bool = False) -> CardSlots:
    """The cards of these rows that take a share of the shape, best first.

    ``largest_first`` puts the cards first on which the share is the smallest part (for a queue close to its capability).
    """
    fleet, request = room.fleet, shape.request
    share = request.share
    assert share is not None
    fits = share_fits(room, request)[rows]
    where, positions = np.nonzero(fits)
    at = rows[where]
    memory_total = np.maximum(fleet.card_memory[at, positions], 1)
    left = (room.card_memory[at, positions] - share.memory_mib) / memory_total
    left += (room.card_core[at, positions] - share.core_percent) / 100
    fresh = room.card_users[at, positions] == 0
    score = np.round(fullness(room, shape, packing)[at], 9)
    keys: list[npt.NDArray[np.generic]] = [
        positions,
        at,
        np.where(fresh, 0.0, np.round(left, 9)),
        -score * fresh,
        fresh,
        -preference(fleet, shape)[at],
        avoided(fleet, shape)[at],
    ]
    if largest_first:
        keys.append(-memory_total)
    order = np.lexsort(keys)
    return CardSlots(at[order], positions[order], fits[where, positions][order], fresh[order])
