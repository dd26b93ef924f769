"""Slot profiles: the free room as counts of slots, exact for card counts that divide each other.

    size      1, 2, 4, 8, 16 … cards; a pod of 3 takes a slot of 4, of 5 … 7 one of 8
    pool      rows of one cell (same domains, same predicates of every shape asked for) and one tier: partly used, or untouched
              with the same number of cards
    slots_k   Σ over a pool's rows of ⌊free ÷ k⌋

Counts c_k fit into a pool exactly when for every k: Σ over k' ≥ k of (k' ÷ k)·c_k' ≤ slots_k. CPU, memory and pod numbers are
in *effective* free cards: min(free cards, free cpu ÷ the most cpu per card that anyone here asks, …). That is sound; roles
that ask much more per card than others would shrink every node, so they are not told in slots at all (`ordinary`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.fleet import PODS, Ints, Mask
from muster.decide.placement.feasibility import admission, capacity
from muster.decide.room import Room
from muster.decide.topology import domains, preferred_domains
from muster.model.pods import Request, Shape

LOSS_PER_THOUSAND = 10
"""A role that costs more effective cards than this by its hunger alone is not told in slots."""


def slot_size(cards: int) -> int:
    """The slot that a pod of so many cards takes: the next power of two."""
    return 1 << (cards - 1).bit_length()


def tellable(shape: Shape) -> bool:
    """Whether slots can tell such a pod at all: whole cards, nothing that is counted per node."""
    whole = shape.request.share is None and shape.request.cards > 0
    return whole and not shape.host_ports and not shape.claims and not shape.has_terms


def between_pods(shape: Shape) -> bool:
    """Whether where it may stand, and where others may, depends on where pods stand."""
    return any(term.weight == 0 for term in shape.pod_terms) or any(one.required for one in shape.spread)


def per_card(room: Room, request: Request) -> Ints | None:
    """Amounts per card of the pod's slot, rounded up, by dimension; None when it asks something no node has."""
    vector = room.fleet.vector(request)
    if vector is None:
        return None
    amounts = -(-vector // slot_size(request.cards))
    amounts[PODS] = 1
    return np.asarray(amounts, dtype=np.int64)


def effective(room: Room, amounts: Ints) -> Ints:
    """Free cards of every row when each takes so much of every dimension."""
    cards = np.clip(room.whole_free, 0, None)
    for dimension in np.flatnonzero(amounts).tolist():
        cards = np.minimum(cards, np.clip(room.free[:, dimension], 0, None) // amounts[dimension])
    return np.asarray(cards, dtype=np.int64)


def ordinary(room: Room, shapes: Iterable[Shape]) -> tuple[frozenset[Shape], Ints]:
    """Shapes that may share one amount per card without shrinking the nodes much, and that amount.

    The hungriest leave first: by how many effective cards they alone cost against those that ask less.
    """
    amounts = {shape: found for shape in shapes if (found := per_card(room, shape.request)) is not None}
    base = np.zeros(len(room.fleet.dimensions), dtype=np.int64)
    base[PODS] = 1
    totals = {shape: int(effective(room, np.maximum(base, one)).sum()) for shape, one in amounts.items()}
    kept: list[Shape] = []
    most, before = base, int(effective(room, base).sum())
    for shape in sorted(amounts, key=lambda one: (-totals[one], one.request.cards, str(one.request))):
        wider = np.maximum(most, amounts[shape])
        after = int(effective(room, wider).sum())
        if kept and before - after > before * LOSS_PER_THOUSAND // 1000:
            continue
        kept.append(shape)
        most, before = wider, after
    return frozenset(kept), most


class Pools(NamedTuple):
    """The profile; a pool is a number, all arrays are by pool unless said otherwise."""

    sizes: tuple[int, ...]
    """Slot sizes asked for, largest first."""
    rows: tuple[Ints, ...]
    of_row: Ints
    """[row] its pool; -1: no effective free card, or nobody may use it."""
    free: Ints
    """[row] effective free cards."""
    slots: dict[int, Ints]
    untouched: Mask
    nodes: Ints
    width: Ints
    """Free cards of each node of an untouched pool; 0 in a partly used one."""
    masks: dict[int, Mask]
    """By mask number."""
    mask_of: dict[Shape, int]
    required: dict[int, Ints]
    """[level] the domain of the pool, -1: outside."""
    preferred: dict[int, Ints]
    alike: Ints
    """Pools of equal numbers take the same pods and are as wide: merged, they lose nothing but where they are."""
    unit: Ints
    """The narrowest domain that any wish here names: what a subset is made of."""

    @property
    def total(self) -> int:
        """How many pools."""
        return len(self.rows)


def pools_of(
    room: Room,
    shapes: Sequence[Shape],
    per_card_amounts: Ints,
    *,
    levels: Iterable[int],
    blocked: Mapping[Shape, Mask],
) -> Pools:
    """Group the rows that any of these shapes may use; pools are ordered by the ranks of their rows."""
    fleet = room.fleet
    free = effective(room, per_card_amounts)
    allowed: list[Mask] = []
    mask_of: dict[Shape, int] = {}
    known: dict[bytes, int] = {}
    for shape in shapes:
        # Whatever else refuses a row that has the room (pods that stand there and keep others away).
        rows = admission(fleet, shape).rows & ((capacity(room, shape) > 0) | (free < slot_size(shape.request.cards)))
        if shape in blocked:
            rows = rows & ~blocked[shape]
        number = known.setdefault(rows.tobytes(), len(known))
        if number == len(allowed):
            allowed.append(rows)
        mask_of[shape] = number
    table = np.array(allowed, dtype=np.bool_).reshape(len(allowed), fleet.size)
    free = np.where(table.any(axis=0), free, 0) if allowed else np.zeros(fleet.size, dtype=np.int64)
    untouched = room.free[:, PODS] == fleet.total[:, PODS]
    used = np.flatnonzero(free > 0)
    ordered = sorted(set(levels))
    keys = [domains(fleet, level)[used] for level in ordered]
    keys += [preferred_domains(fleet, level)[used] for level in ordered]
    keys += [mask[used].astype(np.int64) for mask in allowed]
    keys += [untouched[used].astype(np.int64), np.where(untouched[used], free[used], 0)]
    stacked = np.array(keys, dtype=np.int64).T
    _, first, inverse = np.unique(stacked, axis=0, return_index=True, return_inverse=True)
    ranks = np.full(first.size, fleet.size, dtype=np.int64)
    np.minimum.at(ranks, inverse.ravel(), room.ranks[used])
    order = np.argsort(ranks)
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    of_used = place[inverse.ravel()]
    of_row = np.full(fleet.size, -1, dtype=np.int64)
    of_row[used] = of_used
    by_pool = np.argsort(of_used, kind="stable")
    borders = np.searchsorted(of_used[by_pool], np.arange(len(order) + 1))
    rows_of = tuple(used[by_pool[borders[one] : borders[one + 1]]] for one in range(len(order)))
    head = np.array([rows[0] for rows in rows_of], dtype=np.int64)
    sizes = tuple(sorted({slot_size(shape.request.cards) for shape in shapes}, reverse=True))
    count = len(order)
    preferred = {level: preferred_domains(fleet, level)[head] for level in ordered}
    return Pools(
        sizes=sizes,
        rows=rows_of,
        of_row=of_row,
        free=free,
        slots={
            size: np.bincount(of_used, weights=free[used] // size, minlength=count).astype(np.int64) for size in sizes
        },
        untouched=untouched[head],
        nodes=np.array([rows.size for rows in rows_of], dtype=np.int64),
        width=np.where(untouched[head], free[head], 0),
        masks={number: mask[head] for number, mask in enumerate(allowed)},
        mask_of=mask_of,
        required={level: domains(fleet, level)[head] for level in ordered},
        preferred=preferred,
        alike=_alike(untouched[head], free[head], table[:, head]),
        unit=met(preferred[ordered[-1]] if ordered else np.arange(count, dtype=np.int64)),
    )


def _alike(untouched: Mask, free: Ints, masks: Mask) -> Ints:
    states = np.concatenate([untouched[:, None], np.where(untouched, free, 0)[:, None], masks.T], axis=1)
    return np.unique(states.astype(np.int64), axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def met(codes: Ints) -> Ints:
    """Codes in the order in which pools meet them."""
    known: dict[int, int] = {}
    return np.array([known.setdefault(int(code), len(known)) for code in codes], dtype=np.int64)
