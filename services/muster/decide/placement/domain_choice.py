"""Which domains a gang or a role tries, and in which order.

required    domains that may hold what is needed; the one where pods of it stand, when some do
preferred   the narrowest domain that holds all of it, the tightest of those; when none does, few narrow ones of the
required one, the roomiest first
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from muster.decide.fleet import Ints, Mask
from muster.decide.room import Room
from muster.decide.topology import Wish, domains, narrow_domains, resolve, steps
from muster.model.pods import Shape, TopologyWish
from muster.model.units import NodeName


def rows_of(room: Room, names: Sequence[NodeName]) -> list[int]:
    """Rows of the nodes that exist."""
    row_of = room.fleet.row_of
    return [row_of[name] for name in names if name in row_of]


def bound_rows(room: Room, wish: Wish, rows: Sequence[int]) -> Mask | None:
    """The only rows that a required level leaves when pods stand already; None when it leaves all."""
    if wish.required is None or not rows:
        return None
    codes = domains(room.fleet, wish.required)
    here = set(codes[list(rows)].tolist())
    if len(here) != 1 or -1 in here:
        return np.zeros(room.fleet.size, dtype=np.bool_)
    return np.asarray(codes == here.pop(), dtype=np.bool_)


def holding(
    room: Room,
    codes: Ints,
    capacities: Sequence[Ints],
    counts: Sequence[int],
    near: set[int],
    *,
    total: int = 0,
    roomiest: bool = False,
) -> list[int]:
    """Domains that may hold these counts of each role: those with standing pods first, then the tightest (or roomiest)."""
    inside = codes >= 0
    size = int(codes.max(initial=-1)) + 1
    if not size:
        return []
    sums = np.array(
        [np.bincount(codes[inside], weights=fits[inside], minlength=size) for fits in capacities], dtype=np.int64
    ).reshape(len(capacities), size)
    wanted = np.asarray(counts, dtype=np.int64)[:, None]
    holds = (sums >= wanted).all(axis=0) & (sums.sum(axis=0) >= total)
    chosen = np.flatnonzero(holds)
    left = (sums - wanted)[:, chosen]
    if roomiest:
        left = -left
    far = np.array([code not in near for code in chosen.tolist()], dtype=np.bool_) if near else np.zeros(chosen.size)
    if chosen.size < 2:
        return [int(code) for code in chosen]
    return [int(code) for code in chosen[np.lexsort((domain_ranks(room, codes)[chosen], *left[::-1], far))]]


def domain_ranks(room: Room, codes: Ints) -> Ints:
    """By domain code: the rank of the first of its nodes."""
    inside = codes >= 0
    ranks = np.full(int(codes.max(initial=-1)) + 1, codes.size, dtype=np.int64)
    np.minimum.at(ranks, codes[inside], room.ranks[inside])
    return ranks


def candidates(
    room: Room,
    capacity: Callable[[Shape, Mask | None], Ints],
    topology: TopologyWish,
    parts: Sequence[tuple[Shape, int, int]],
    *,
    standing: Sequence[int],
    minimum: int,
    inside: Mask | None,
) -> Iterator[tuple[Mask | None, Ints | None]]:
    """Rows to try, best first, with the narrow domains to use few of (None: it does not matter).

    ``parts``: (shape, pods that would best be together, pods that must be) by role; ``standing``: rows of pods that stand;
    ``inside``: the rows that are left to it.
    """
    fleet = room.fleet
    wish = resolve(fleet, topology)
    if wish.unknown:
        return
    if wish.required is None and wish.preferred is None:
        yield inside, None
        return
    bound = bound_rows(room, wish, standing)
    base = bound if inside is None else (inside if bound is None else inside & bound)
    if wish.required is not None:
        within = domains(fleet, wish.required) >= 0
        base = within if base is None else base & within
    capacities = [capacity(shape, base) for shape, _, _ in parts]
    for codes in steps(fleet, wish):
        near = set(codes[list(standing)].tolist())
        for code in holding(room, codes, capacities, [count for _, count, _ in parts], near):
            rows = codes == code
            yield rows if base is None else rows & base, None
    cluster = narrow_domains(fleet, wish)
    if wish.required is None:
        yield base, cluster
        return
    codes = domains(fleet, wish.required)
    needs = [need for _, _, need in parts]
    for code in holding(room, codes, capacities, needs, set(), total=minimum, roomiest=True):
        rows = codes == code
        yield rows if base is None else rows & base, cluster
