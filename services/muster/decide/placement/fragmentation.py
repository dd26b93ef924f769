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

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.card_looks import Compute
from muster.decide.fleet import CPU, MEMORY, Fleet, Floats, Ints
from muster.decide.memory import request_of_mix
from muster.decide.room import Room
from muster.model.pods import Request, Share
from muster.model.units import Bytes, CardCount, MilliCpu

LEAST_SEEN = 50
"""Fewer requests than this tell too little: placement then goes by fullness alone."""
RARE = 0.005
"""A request for all cards of a node is expected at least this often, also before one was seen: whole nodes are hard to get back."""
KINDS = 32
"""So many kinds of request are told apart; rarer ones are merged by the cards they ask."""
FULL_CORE = 100.0
NEVER = np.inf
MOST = 1e15
"""Pods that nothing limits."""
LITTLE = 1e-12
ROUNDING = 1e-9
"""Amounts are whole numbers: this undoes only the rounding of a division."""
LOOK = np.array([256.0, 2.0, 1.0, 2.0**27])
"""Memory, core, untouched and whole memory of a card as one number, exact below 2^53."""


class Mix:
    """The requests for cards that were seen, as columns; a kind is one column. Requests without cards take no card room."""

    def __init__(self, requests: Mapping[Request, float], widths: Collection[int] = ()) -> None:
        kinds = _kinds({**requests, **_whole_nodes(requests, widths)})
        total = sum(weight for _, weight in kinds)
        self.weight: Floats = np.array([weight / total for _, weight in kinds])
        self.cards: Floats = np.array([float(one.cards) for one, _ in kinds])
        self.memory: Floats = np.array([float(one.share.memory_mib) if one.share else 0.0 for one, _ in kinds])
        self.core: Floats = np.array([float(one.share.core_percent) if one.share else 0.0 for one, _ in kinds])
        # What is asked, inverted, so that what limits is one product; what is not asked limits nothing.
        self.per_cpu = _inverted([one.cpu for one, _ in kinds])
        self.per_memory = _inverted([one.memory for one, _ in kinds])
        self.per_cards = _inverted([one.cards for one, _ in kinds])
        self.per_card_memory = _inverted([one.share.memory_mib if one.share else 0 for one, _ in kinds])
        self.per_card_core = _inverted([one.share.core_percent if one.share else 0 for one, _ in kinds])
        self.shared = self.cards == 0


def _inverted(amounts: Sequence[int]) -> Floats:
    return np.array([1 / amount if amount else MOST for amount in amounts])


def mix_of(seen: Mapping[str, int], fleet: Fleet, *, least: int = LEAST_SEEN) -> Mix | None:
    """The mix of a core's memory (keys of `muster.decide.memory.mix_key`); None when too few requests for cards were seen."""
    requests: dict[Request, int] = {}
    for key, times in seen.items():
        request = request_of_mix(key)
        if request is not None and (request.cards or request.share is not None):
            requests[request] = requests.get(request, 0) + times
    if sum(requests.values()) < least:
        return None
    return Mix(requests, {width for width in np.unique(fleet.allocatable_cards).tolist() if width > 1})


def _whole_nodes(requests: Mapping[Request, float], widths: Collection[int]) -> dict[Request, float]:
    """Requests as wide as a node where fewer were seen than are expected anyway, with the CPU and memory that cards usually go with."""
    total = sum(requests.values())
    shares = [one.share.core_percent / FULL_CORE if one.share else one.cards for one in requests]
    cards = max(sum(times * part for times, part in zip(requests.values(), shares, strict=True)), total)
    cpu = sum(one.cpu * times for one, times in requests.items()) / cards
    memory = sum(one.memory * times for one, times in requests.items()) / cards
    missing = {}
    for width in sorted(widths):
        lacking = RARE * total - sum(times for one, times in requests.items() if one.cards == width)
        if lacking > 0:
            whole = Request(cpu=MilliCpu(int(cpu * width)), memory=Bytes(int(memory * width)), cards=CardCount(width))
            missing[whole] = requests.get(whole, 0) + lacking
    return missing


def _kinds(requests: Mapping[Request, float]) -> list[tuple[Request, float]]:
    """The most frequent requests, and the rest merged by what they ask of cards with their mean CPU and memory."""
    often = sorted(requests.items(), key=lambda item: (-item[1], _card_part(item[0]), item[0].cpu, item[0].memory))
    kinds = often[:KINDS]
    merged: dict[tuple[int, int, int], list[tuple[Request, float]]] = {}
    for request, times in often[KINDS:]:
        merged.setdefault(_card_part(request), []).append((request, times))
    for group in list(merged.values())[:KINDS]:
        times = sum(count for _, count in group)
        cpu = MilliCpu(int(sum(one.cpu * count for one, count in group) / times))
        memory = Bytes(int(sum(one.memory * count for one, count in group) / times))
        first = group[0][0]
        kinds.append((Request(cpu=cpu, memory=memory, cards=first.cards, share=first.share), times))
    return kinds


def _card_part(request: Request) -> tuple[int, int, int]:
    share = request.share or Share()
    return request.cards, share.memory_mib, share.core_percent


class _Cards(NamedTuple):
    """Cards, as arrays of any shape: what is free of memory and core, whether nobody is on it, and the whole of its memory."""

    memory: Floats
    core: Floats
    untouched: Floats
    whole: Floats

    def idle(self) -> Floats:
        """What is free of each, in cards: the side that ends first counts."""
        sides = np.where(self.whole > 0, self.memory / np.maximum(self.whole, 1), 1.0)
        return np.maximum(np.minimum(sides, self.core / FULL_CORE), 0)

    def takes(self, mix: Mix) -> Floats:
        """How many pods of each kind (last axis) each card takes; a kind of whole cards counts untouched ones."""
        memory = np.floor(self.memory[..., None] * mix.per_card_memory + ROUNDING)
        core = np.floor(self.core[..., None] * mix.per_card_core + ROUNDING)
        limited = np.maximum(np.minimum(np.minimum(memory, core), MOST), 0)
        return np.where(mix.shared, limited, self.untouched[..., None])


class _Nodes(NamedTuple):
    """Rows as a placement finds or leaves them."""

    idle: Floats
    """[row], in cards"""
    takes: Floats
    """[row, kind]: pods that the cards take; for a kind of whole cards the untouched cards"""
    cpu: Floats
    memory: Floats

    def lost(self, mix: Mix, size: Floats) -> Floats:
        """Expected room lost by row; ``size`` [row, kind] is what one pod uses, in cards."""
        pods = np.where(mix.shared, self.takes, np.floor(self.takes * mix.per_cards + ROUNDING))
        np.minimum(pods, np.maximum(self.cpu, LITTLE)[:, None] * mix.per_cpu, out=pods)
        np.minimum(pods, np.maximum(self.memory, LITTLE)[:, None] * mix.per_memory, out=pods)
        use = np.minimum(pods * size, self.idle[:, None])
        return np.asarray(self.idle - np.sqrt(self.idle[:, None] * use) @ mix.weight, dtype=np.float64)


def _cards(room: Room, rows: Ints) -> _Cards:
    fleet = room.fleet
    usable = fleet.card_usable[rows]
    return _Cards(
        memory=np.where(usable, room.card_memory[rows], 0).astype(np.float64),
        core=np.where(usable, room.card_core[rows], 0).astype(np.float64),
        untouched=(usable & (room.card_users[rows] == 0)).astype(np.float64),
        whole=fleet.card_memory[rows].astype(np.float64),
    )


def _held(room: Room, mix: Mix, rows: Ints) -> Floats:
    """What of `_Nodes` comes from the cards, as one array [row, 1 + kinds]: idle, takes."""
    cards = _cards(room, rows)
    # Most cards look alike, so what they take is worked out once for each look.
    looks = np.stack([side.ravel() for side in cards], axis=1) @ LOOK
    _, first, number = np.unique(looks, return_index=True, return_inverse=True)
    alike = _Cards(*(side.ravel()[first] for side in cards))
    of_look = np.concatenate([alike.idle()[:, None], alike.takes(mix)], axis=1)
    held = np.zeros((rows.size, 1 + mix.weight.size))
    for position in range(cards.memory.shape[1]):
        held += of_look[number.reshape(cards.memory.shape)[:, position]]
    # Where a device plugin knows no shares, a share takes nothing.
    held[:, 1:] *= room.fleet.shares_cards[rows][:, None] | ~mix.shared
    return held


def _nodes(room: Room, mix: Mix, rows: Ints) -> _Nodes:
    held = _part(room, ("card room", mix), lambda at, renewed: _held(at, mix, renewed), rows)
    free = room.free[rows]
    return _Nodes(held[:, 0], held[:, 1:], free[:, CPU].astype(np.float64), free[:, MEMORY].astype(np.float64))


def _sizes(room: Room, mix: Mix, rows: Ints) -> Floats:
    """What one pod of each kind uses on each row, in cards."""
    whole = np.maximum(room.fleet.card_memory[rows].max(axis=1, initial=0), 1)
    return np.where(mix.shared, np.maximum(mix.memory / whole[:, None], mix.core / FULL_CORE), mix.cards)


def expected_loss(room: Room, mix: Mix, rows: Ints) -> Floats:
    """Room of each of these rows that the mix is expected not to use, in cards; between 0 and what is idle."""
    return _part(room, ("lost", mix), lambda at, renewed: _lost(at, mix, renewed), rows)


def _lost(room: Room, mix: Mix, rows: Ints) -> Floats:
    return _nodes(room, mix, rows).lost(mix, _sizes(room, mix, rows))


def row_costs(room: Room, mix: Mix, request: Request) -> Floats:
    """By how much one more pod of a request for whole cards (or none) raises each row's expected loss, in cards.

    Only meaningful where it fits. Kept with the room and renewed for rows that changed.
    """
    return _kept(room, ("row costs", mix, request), lambda at, rows: _row_costs(at, mix, request, rows))


def _row_costs(room: Room, mix: Mix, request: Request, rows: Ints) -> Floats:
    before = _nodes(room, mix, rows)
    size = _sizes(room, mix, rows)
    idle, takes = before.idle, before.takes
    if request.cards:
        # The untouched cards of a node are alike: the first stands for those that will be given.
        cards = _cards(room, rows)
        first = np.arange(rows.size), cards.untouched.argmax(axis=1)
        given = _Cards(*(side[first] for side in cards))
        kinds = room.fleet.shares_cards[rows][:, None] | ~mix.shared
        idle = np.maximum(idle - request.cards * given.idle(), 0)
        takes = np.maximum(takes - request.cards * given.takes(mix) * kinds, 0)
    after = _Nodes(idle, takes, before.cpu - request.cpu, before.memory - request.memory)
    return after.lost(mix, size) - expected_loss(room, mix, rows)


def card_costs(room: Room, mix: Mix, request: Request) -> Floats:
    """The same for a share on each card, as [row, position]; infinite where the card does not take it."""
    return _kept(room, ("card costs", mix, request), lambda at, rows: _card_costs(at, mix, request, rows))


def _card_costs(room: Room, mix: Mix, request: Request, rows: Ints) -> Floats:
    share = request.share
    assert share is not None
    nodes, cards = _nodes(room, mix, rows), _cards(room, rows)
    size = _sizes(room, mix, rows)
    fits = (cards.memory >= share.memory_mib) & (cards.core >= max(share.core_percent, 1))
    fits &= (cards.untouched == 0) | (room.whole_free[rows] > 0)[:, None]
    fits &= room.fleet.shares_cards[rows][:, None]
    # Cards of one node that look the same cost the same: only the first of them is judged.
    looks = np.stack(cards, axis=-1) @ LOOK
    first = (looks[:, :, None] == looks[:, None, :]).argmax(axis=2)
    where, position = np.nonzero(fits & (first == np.arange(first.shape[1])))
    found = _Cards(*(side[where, position] for side in cards))
    left = _Cards(found.memory - share.memory_mib, found.core - share.core_percent, np.zeros(where.size), found.whole)
    after = _Nodes(
        np.maximum(nodes.idle[where] - found.idle() + left.idle(), 0),
        nodes.takes[where] - found.takes(mix) + left.takes(mix),
        nodes.cpu[where] - request.cpu,
        nodes.memory[where] - request.memory,
    )
    costs = np.full(cards.memory.shape, NEVER)
    costs[where, position] = after.lost(mix, size[where]) - expected_loss(room, mix, rows)[where]
    return np.take_along_axis(costs, first, axis=1)


def _part(room: Room, key: object, compute: Compute, rows: Ints) -> Floats:
    """The value of these rows."""
    return compute(room, rows) if room.is_sample else _kept(room, key, compute)[rows]


def _kept(room: Room, key: object, compute: Compute) -> Floats:
    looks = room.card_looks()
    if looks is not None:
        return looks.values(key, compute)
    known = room.scores.get(key)
    if known is None:
        alike, number = _alike(room)
        costs = compute(room, alike)[number]
    else:
        since, costs = known
        renewed = np.array(sorted(set(room.changed[since:])), dtype=np.int64)
        if renewed.size:
            costs = costs.copy()
            costs[renewed] = compute(room, renewed)
    room.scores[key] = (len(room.changed), costs)
    return costs


def _alike(room: Room) -> tuple[Ints, Ints]:
    """A row for each look that nodes have, and the number of each row's look: alike nodes are judged once.

    Kept with the room until a row changes.
    """
    at, first = room.derived.get("alike", (-1, None))
    if first is not None and at == len(room.changed):
        return first, room.derived["look"][1]
    first, number = _looks(room)
    room.derived["alike"], room.derived["look"] = (len(room.changed), first), (len(room.changed), number)
    return first, number


def _looks(room: Room) -> tuple[Ints, Ints]:
    fleet = room.fleet
    every = np.arange(fleet.size)
    if not fleet.size:
        return every, every
    state = _states(room)
    _, first, number = np.unique(state[:, 0], return_index=True, return_inverse=True)
    return (first, number) if (state[first[number]] == state).all() else (every, every)


def _states(room: Room) -> Ints:
    """All that costs depend on, by row, after one number for it; kept with the room, renewed for rows that changed."""
    since, state = room.derived.get("states", (0, None))
    if state is None:
        state = _states_of(room, np.arange(room.fleet.size))
    else:
        rows = np.array(sorted(set(room.changed[since:])), dtype=np.int64)
        if rows.size:
            state[rows] = _states_of(room, rows)
    room.derived["states"] = len(room.changed), state
    return state


def _states_of(room: Room, rows: Ints) -> Ints:
    fleet = room.fleet
    sides = [fleet.card_usable, room.card_memory, room.card_core, room.card_users > 0, fleet.card_memory]
    node = np.stack([room.free[rows, CPU], room.free[rows, MEMORY], room.whole_free[rows], fleet.shares_cards[rows]], 1)
    state = np.concatenate([*(side[rows] for side in sides), node], axis=1).astype(np.int64)
    # Wrapping multiplication by powers of an odd number; two states may share one by chance.
    hashes = np.cumprod(np.full(state.shape[1], 0x5851F42D4C957F2D, dtype=np.int64))
    return np.concatenate([(state @ hashes)[:, None], state], axis=1)
