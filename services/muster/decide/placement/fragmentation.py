"""How much card room a placement is expected to cost those who come next.

After FGD (Weng, Yang et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023): idle room counts as lost to a request that cannot use it, weighted by how often such requests are seen; the
pod goes where the expectation rises least. FGD calls a node's room usable or not; here it is counted how many such pods fit:

    idle    what is free of a node's cards, in cards
    use(m)  of it, what pods like m would use if only they came: as many as the cards take and CPU and memory allow,
            fractions included where CPU or memory is what ends first
    lost  = Σ weight(m) · (idle - √(idle · use(m)))

The root is there because pods of one kind never come alone: what one kind leaves, another takes, so that the first part of
the room that a kind can use is worth more than the last. Selectors of the requests seen are not part of the mix.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from muster.decide.fleet import CPU, MEMORY, Floats, Ints
from muster.decide.memory import request_of_mix
from muster.decide.room import Room
from muster.model.pods import Request, Share

LEAST_SEEN = 100
"""Fewer requests than this tell too little: placement then goes by fullness alone."""
KINDS = 32
"""So many kinds of request are told apart; rarer ones are merged by the cards they ask."""
FULL_CORE = 100.0
NEVER = np.inf


class Mix:
    """The requests for cards that were seen, as columns; a kind is one column. Requests without cards take no card room."""

    def __init__(self, requests: Mapping[Request, int]) -> None:
        kinds = _kinds(requests)
        total = sum(weight for _, weight in kinds)
        self.weight: Floats = np.array([weight / total for _, weight in kinds])
        self.cards: Floats = np.array([float(one.cards) for one, _ in kinds])
        self.memory: Floats = np.array([float(one.share.memory_mib) if one.share else 0.0 for one, _ in kinds])
        self.core: Floats = np.array([float(one.share.core_percent) if one.share else 0.0 for one, _ in kinds])
        # Per pod, inverted, so that what limits is one product; 0 asked limits nothing.
        self.per_cpu: Floats = np.array([1 / one.cpu if one.cpu else NEVER for one, _ in kinds])
        self.per_memory: Floats = np.array([1 / one.memory if one.memory else NEVER for one, _ in kinds])
        self.shared = self.cards == 0


def mix_of(seen: Mapping[str, int], *, least: int = LEAST_SEEN) -> Mix | None:
    """The mix of a core's memory (keys of `muster.decide.memory.mix_key`); None when too few requests for cards were seen."""
    requests: dict[Request, int] = {}
    for key, times in seen.items():
        request = request_of_mix(key)
        if request is not None and (request.cards or request.share is not None):
            requests[request] = requests.get(request, 0) + times
    return Mix(requests) if sum(requests.values()) >= least else None


def _kinds(requests: Mapping[Request, int]) -> list[tuple[Request, int]]:
    """The most frequent requests, and the rest merged by what they ask of cards with their mean CPU and memory."""
    often = sorted(requests.items(), key=lambda item: (-item[1], _card_part(item[0]), item[0].cpu, item[0].memory))
    kinds = often[:KINDS]
    merged: dict[tuple[int, int, int], list[tuple[Request, int]]] = {}
    for request, times in often[KINDS:]:
        merged.setdefault(_card_part(request), []).append((request, times))
    for group in list(merged.values())[:KINDS]:
        times = sum(count for _, count in group)
        cpu = sum(one.cpu * count for one, count in group) // times
        memory = sum(one.memory * count for one, count in group) // times
        first = group[0][0]
        kinds.append((Request(cpu=cpu, memory=memory, cards=first.cards, share=first.share), times))  # type: ignore[arg-type]
    return kinds


def _card_part(request: Request) -> tuple[int, int, int]:
    share = request.share or Share()
    return request.cards, share.memory_mib, share.core_percent


class _Cards(NamedTuple):
    """Card states, of any shape: what is free of memory and core, whether nobody is on it, and the whole of its memory."""

    memory: Floats
    core: Floats
    untouched: Floats
    whole: Floats

    def idle(self) -> Floats:
        """What is free of each, in cards: the side that ends first counts."""
        sides = np.where(self.whole > 0, self.memory / np.maximum(self.whole, 1), 1.0)
        return np.clip(np.minimum(sides, self.core / FULL_CORE), 0, None)

    def takes(self, mix: Mix) -> Floats:
        """How many pods of each kind (last axis) each card takes; a kind of whole cards counts untouched ones."""
        takes = np.broadcast_to(self.untouched[..., None], (*self.untouched.shape, mix.weight.size)).copy()
        shared = np.flatnonzero(mix.shared)
        fits = np.full((*self.untouched.shape, shared.size), NEVER)
        for free, asked in ((self.memory, mix.memory[shared]), (self.core, mix.core[shared])):
            limits = np.flatnonzero(asked > 0)
            # Amounts are whole numbers: the small addition only undoes the rounding of the division.
            fits[..., limits] = np.minimum(fits[..., limits], np.floor(free[..., None] / asked[limits] + 1e-9))
        fits = np.where(np.isinf(fits), (self.core > 0)[..., None], fits)
        takes[..., shared] = np.clip(fits, 0, None)
        return takes


class _Nodes(NamedTuple):
    """Rows before a placement."""

    cards: _Cards
    takes: Floats
    """[row, card, kind]"""
    idle: Floats
    """[row, card]"""


def _nodes(room: Room, mix: Mix, rows: Ints) -> _Nodes:
    fleet = room.fleet
    usable = fleet.card_usable[rows]
    cards = _Cards(
        memory=np.where(usable, room.card_memory[rows], 0).astype(np.float64),
        core=np.where(usable, room.card_core[rows], 0).astype(np.float64),
        untouched=(usable & (room.card_users[rows] == 0)).astype(np.float64),
        whole=fleet.card_memory[rows].astype(np.float64),
    )
    takes = cards.takes(mix)
    # Where a device plugin knows no shares, a share takes nothing.
    takes *= fleet.shares_cards[rows][:, None, None] | ~mix.shared
    return _Nodes(cards, takes, cards.idle())


def _lost(mix: Mix, idle: Floats, takes: Floats, size: Floats, *, cpu: Floats, memory: Floats) -> Floats:
    """Expected room lost: ``takes`` and ``size`` [node, kind], the rest [node]."""
    pods = np.where(mix.shared, takes, np.floor(takes / np.maximum(mix.cards, 1) + 1e-9))
    pods = np.minimum(pods, np.maximum(cpu, 0)[:, None] * mix.per_cpu)
    pods = np.minimum(pods, np.maximum(memory, 0)[:, None] * mix.per_memory)
    use = np.minimum(pods * size, idle[:, None])
    return np.asarray(idle - np.sqrt(idle[:, None] * use) @ mix.weight, dtype=np.float64)


def _sizes(room: Room, mix: Mix, rows: Ints) -> Floats:
    """What one pod of each kind uses on each row, in cards."""
    whole = np.maximum(room.fleet.card_memory[rows].max(axis=1, initial=0), 1).astype(np.float64)
    return np.where(mix.shared, np.maximum(mix.memory / whole[:, None], mix.core / FULL_CORE), mix.cards)


def expected_loss(room: Room, mix: Mix, rows: Ints) -> Floats:
    """Room of each of these rows that the mix is expected not to use, in cards; between 0 and what is idle."""
    nodes = _nodes(room, mix, rows)
    cpu, memory = _free(room, rows)
    return _lost(mix, nodes.idle.sum(axis=1), nodes.takes.sum(axis=1), _sizes(room, mix, rows), cpu=cpu, memory=memory)


def _free(room: Room, rows: Ints) -> tuple[Floats, Floats]:
    # A nothing of CPU with a kind that asks none: 0 · inf; the least amount keeps it defined.
    free = np.maximum(room.free[rows], 1e-9)
    return free[:, CPU], free[:, MEMORY]


def row_costs(room: Room, mix: Mix, request: Request) -> Floats:
    """By how much one more pod of a request for whole cards (or none) raises each row's expected loss, in cards.

    Only meaningful where it fits. Kept with the room and renewed for rows that changed.
    """
    return _kept(room, ("row costs", mix, request), lambda rows: _row_costs(room, mix, request, rows))


def _row_costs(room: Room, mix: Mix, request: Request, rows: Ints) -> Floats:
    nodes = _nodes(room, mix, rows)
    cpu, memory = _free(room, rows)
    size = _sizes(room, mix, rows)
    idle, takes = nodes.idle.sum(axis=1), nodes.takes.sum(axis=1)
    before = _lost(mix, idle, takes, size, cpu=cpu, memory=memory)
    if request.cards:
        # The cards are alike but for their memory; the first untouched ones stand for those that will be given.
        untouched = nodes.cards.untouched > 0
        given = untouched & (np.cumsum(untouched, axis=1) <= request.cards)
        idle = idle - np.where(given, nodes.idle, 0).sum(axis=1)
        takes = takes - np.where(given[..., None], nodes.takes, 0).sum(axis=1)
    cpu, memory = np.maximum(cpu - request.cpu, 1e-9), np.maximum(memory - request.memory, 1e-9)
    return np.asarray(_lost(mix, idle, takes, size, cpu=cpu, memory=memory) - before, dtype=np.float64)


def card_costs(room: Room, mix: Mix, request: Request) -> Floats:
    """The same for a share on each card, as [row, position]; infinite where the card does not take it."""
    return _kept(room, ("card costs", mix, request), lambda rows: _card_costs(room, mix, request, rows))


def _card_costs(room: Room, mix: Mix, request: Request, rows: Ints) -> Floats:
    share = request.share
    assert share is not None
    nodes = _nodes(room, mix, rows)
    cards = nodes.cards
    cpu, memory = _free(room, rows)
    size = _sizes(room, mix, rows)
    idle, takes = nodes.idle.sum(axis=1), nodes.takes.sum(axis=1)
    before = _lost(mix, idle, takes, size, cpu=cpu, memory=memory)
    fits = (cards.memory >= share.memory_mib) & (cards.core >= max(share.core_percent, 1))
    fits &= (cards.untouched == 0) | (room.whole_free[rows] > 0)[:, None]
    first = _first_alike(cards)
    fits &= first == np.arange(first.shape[1])
    where, position = np.nonzero(fits)
    used = _Cards(
        cards.memory[where, position] - share.memory_mib,
        cards.core[where, position] - share.core_percent,
        np.zeros(where.size),
        cards.whole[where, position],
    )
    after = _lost(
        mix,
        np.maximum(idle[where] - nodes.idle[where, position] + used.idle(), 0),
        takes[where] - nodes.takes[where, position] + used.takes(mix),
        size[where],
        cpu=np.maximum(cpu[where] - request.cpu, 1e-9),
        memory=np.maximum(memory[where] - request.memory, 1e-9),
    )
    costs = np.full(cards.memory.shape, NEVER)
    costs[where, position] = after - before[where]
    return np.take_along_axis(costs, first, axis=1)


def _first_alike(cards: _Cards) -> Ints:
    """For each card the first of its node that looks the same: those after it cost as much and need not be judged."""
    state = np.stack([cards.memory, cards.core, cards.untouched, cards.whole], axis=-1)
    same = (state[:, :, None] == state[:, None, :]).all(axis=-1)
    return np.asarray(same.argmax(axis=2), dtype=np.int64)


def _kept(room: Room, key: object, compute: Callable[[Ints], Floats]) -> Floats:
    known = room.scores.get(key)
    if known is None:
        costs = compute(np.arange(room.fleet.size))
    else:
        since, costs = known
        renewed = np.array(sorted(set(room.changed[since:])), dtype=np.int64)
        if renewed.size:
            costs = costs.copy()
            costs[renewed] = compute(renewed)
    room.scores[key] = (len(room.changed), costs)
    return costs
