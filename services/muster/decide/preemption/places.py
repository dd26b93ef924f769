"""Domains that could hold a gang if everything that may leave left, and the least that a plan in each can cost.

The bound of a domain: for each of its rows what clearing it costs, of which a gang on several rows of the domain carries a part
on each; the cheapest rows for what they give, until enough pods would fit. Where clearing a node gives one pod, no plan in the
domain is cheaper than that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.fleet import Floats, Ints, Mask
from muster.decide.placement.feasibility import capacity
from muster.decide.preemption.candidates import Bounds
from muster.decide.preemption.clearing import weight
from muster.decide.preemption.judging import Judge
from muster.decide.preemption.victims import Unit


class Place(NamedTuple):
    """A domain in which the gang could stand."""

    code: int
    rank: int
    """Number of the first priority up to which everything that leaves could suffice."""
    estimate: float
    rows: Mask


def places_of(judge: Judge, units: Sequence[Unit], bounds: Bounds) -> list[Place]:
    """Domains that could hold the gang, those first that hit the lowest priority, then those with the least to clear."""
    room, ask = judge.trial.room, judge.ask
    fleet = room.fleet
    codes = np.zeros(fleet.size, dtype=np.int64) if judge.codes is None else judge.codes
    inside = np.flatnonzero(codes >= 0)
    waiting = [role for role in ask.roles if role.waiting]
    first: dict[int, int] = {}
    for number, fits in enumerate(bounds.fits):
        total: Ints = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
        possible = np.ones(total.size, dtype=np.bool_)
        for role, one in zip(waiting, fits, strict=True):
            sums = np.bincount(codes[inside], weights=one[inside], minlength=total.size).astype(np.int64)
            possible &= sums >= role.need
            total = total + np.minimum(sums, len(role.waiting))
        possible &= total >= ask.minimum
        for code in np.flatnonzero(possible).tolist():
            first.setdefault(code, number)
    if not first:
        return []
    price = _prices(fleet.size, units, bounds, codes)
    now = np.sum([capacity(room, role.shape) for role in waiting], axis=0)
    places = []
    for code, number in first.items():
        rows = codes == code
        gain = np.maximum(np.sum(bounds.fits[number], axis=0) - now, 0)
        missing = ask.minimum - int(now[rows].sum())
        estimate = _cheapest(price[number], gain, np.flatnonzero(rows & (gain > 0)), missing)
        places.append(Place(code, number, estimate, rows))
    return sorted(places, key=lambda one: (one.rank, one.estimate, one.code))


def _prices(size: int, units: Sequence[Unit], bounds: Bounds, codes: Ints) -> list[Floats]:
    """What clearing each row costs up to each priority: of a gang on several rows of a domain each carries its part.

    So the sum over some rows of a domain is never above what clearing them costs. Surplus counts nothing here.
    """
    cores = [unit for unit in units if unit.core]
    rows = np.array([row for unit in cores for row in unit.rows], dtype=np.int64)
    owner = np.repeat(np.arange(len(cores)), [len(unit.rows) for unit in cores])
    with_surplus = {unit.gang.key for unit in units if not unit.core}
    width = int(codes.max(initial=0)) + 2
    _, pair, times = np.unique(owner * width + codes[rows] + 1, return_inverse=True, return_counts=True)
    priority = np.array([unit.rank for unit in cores])
    prices: list[Floats] = []
    for limit in bounds.priorities:
        each = np.array([0.0 if unit.gang.key in with_surplus else weight(unit, limit) for unit in cores])
        each = np.where(priority <= limit, each, 0.0)
        parts = each[owner] / times[pair] if cores else np.zeros(0)
        prices.append(np.bincount(rows, weights=parts, minlength=size).astype(np.float64))
    return prices


def _cheapest(price: Floats, gain: Ints, rows: Ints, missing: int) -> float:
    """The least that clearing some of these rows can cost until so many pods more fit."""
    if missing <= 0:
        return 0.0
    each = price[rows] / gain[rows]
    order = np.argsort(each, kind="stable")
    taken = np.minimum(gain[rows][order], np.maximum(0, missing - np.cumsum(gain[rows][order]) + gain[rows][order]))
    return float((each[order] * taken).sum())
