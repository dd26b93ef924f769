"""Which pools an entry may use in one problem: whole domains of its required level, or pools of its preferred one.

A domain is a candidate when the *total over its pools* holds the entry; a pool alone need not (judging pools one by one loses
every gang that spans a partly used and an untouched tier, or two card models of one spine).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.fleet import Ints, Mask
from muster.decide.placement.engine.demands import Entry, rows_named
from muster.decide.placement.engine.plan import Batch
from muster.decide.topology import domains


class Choice(NamedTuple):
    """The pools of an entry: by required domain, or all under None."""

    groups: tuple[tuple[int | None, tuple[int, ...]], ...]

    @property
    def pools(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(pool for _, inside in self.groups for pool in inside)


def free_slots(batch: Batch, constant: Mapping[int, Ints]) -> dict[int, Ints]:
    """Slots left by pods that do not move in this problem."""
    left = {}
    for size, slots in batch.pools.slots.items():
        used = sum((k // size * count for k, count in constant.items() if k >= size), np.zeros_like(slots))
        left[size] = np.clip(slots - used, 0, None)
    return left


def choice_of(
    batch: Batch, entry: Entry, *, region: Mask, left: Mapping[int, Ints], now: Iterable[int], most: int, turn: int
) -> Choice | None:
    """The pools of an entry within a region: where it stands now, then the tightest domains, then some others by turn.

    ``most`` domains are taken (0: all). None when no domain holds it.
    """
    pools = batch.pools
    usable = np.zeros(pools.total, dtype=np.bool_)
    per_part = []
    for part in entry.parts:
        mask = region & pools.masks[pools.mask_of[part.shape]] & (left[part.size] > 0)
        mask &= _near(batch, entry.item.ask.roles[part.role].standing, part.required)
        per_part.append(np.where(mask, left[part.size], 0))
        usable |= mask
    usable &= _near(batch, entry.item.ask.standing, entry.required)
    level = entry.required if entry.required is not None else entry.preferred
    codes = pools.unit if level is None else (pools.required if entry.required is not None else pools.preferred)[level]
    usable &= codes >= 0
    if not usable.any():
        return None
    size = int(codes.max()) + 1
    sums = [np.bincount(codes[usable], weights=one[usable], minlength=size) for one in per_part]
    total = sum((np.minimum(one, part.most) for one, part in zip(sums, entry.parts, strict=True)), np.zeros(size))
    now_codes = {int(codes[pool]) for pool in now}
    if entry.required is not None:
        holds = np.all([one >= part.least for one, part in zip(sums, entry.parts, strict=True)], axis=0)
        chosen = np.flatnonzero(holds & (total >= entry.minimum)).tolist()
    else:
        chosen = np.flatnonzero(total > 0).tolist()
        if total.sum() < entry.minimum:
            return None
    if not chosen:
        return None
    slack = np.sum(sums, axis=0)
    place = {int(code): at for at, code in reversed(list(enumerate(codes.tolist())))}
    if entry.required is not None:
        chosen.sort(key=lambda code: (code not in now_codes, slack[code], place[code]))
    else:
        chosen.sort(
            key=lambda code: (code not in now_codes, -min(float(total[code]), entry.minimum), slack[code], place[code])
        )
    if most and len(chosen) > most:
        chosen = _some(
            chosen, most, len(now_codes), turn, needed=entry.minimum, total=total, whole=entry.required is None
        )
    by_code: dict[int, list[int]] = {code: [] for code in chosen}
    for pool in np.flatnonzero(usable).tolist():
        code = int(codes[pool])
        if code in by_code:
            by_code[code].append(pool)
    if entry.required is None:
        return Choice(((None, tuple(pool for inside in by_code.values() for pool in inside)),))
    return Choice(tuple((code, tuple(inside)) for code, inside in by_code.items()))


def _some(
    chosen: Sequence[int], most: int, here: int, turn: int, *, needed: int, total: np.ndarray, whole: bool
) -> list[int]:
    """The first two thirds in order, the rest spread over what follows, so that not all gangs look at the same domains."""
    first = max(here, most - most // 3)
    rest = list(chosen[first:])
    spread = [
        rest[(turn * 7 + step * max(1, len(rest) // max(1, most - first))) % len(rest)] for step in range(most - first)
    ]
    some = list(dict.fromkeys([*chosen[:first], *spread]))
    if whole:
        # Pods may spread over several: enough of them for the gang, twice over.
        held = sum(float(total[code]) for code in some)
        for code in chosen:
            if held >= 2 * needed:
                break
            if code not in some:
                some.append(code)
                held += float(total[code])
    return some


def _near(batch: Batch, standing: Sequence[str], level: int | None) -> Mask:
    """Pools that a required level leaves when pods stand already."""
    pools = batch.pools
    rows = rows_named(batch.room, standing)  # type: ignore[arg-type]
    if level is None or not rows:
        return np.ones(pools.total, dtype=np.bool_)
    here = set(domains(batch.room.fleet, level)[rows].tolist())
    if len(here) != 1 or -1 in here:
        return np.zeros(pools.total, dtype=np.bool_)
    return np.asarray(pools.required[level] == here.pop(), dtype=np.bool_)
