"""Nodes cleared for pods that are all alike: which of them, so that least is lost.

    row      gives the pods that fit on it once everything that may leave it has left; costs the units on it that still stand
    greedy   the cheapest row for what it gives, again and again; a gang that ends makes its other rows cheaper
    exact    where each row gives one pod and the rows of a domain are few: every choice of rows at once

A gang gives surplus pods of a row as long as it has surplus, else it leaves whole, and all its rows are cheaper then.
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np

from muster.decide.fleet import Fleet, Ints, Mask
from muster.decide.preemption.victims import Unit, surplus_left, unit_of
from muster.decide.shares import Tree
from muster.model.gangs import Member
from muster.model.units import GangKey

MOST_CHOICES = 20_000
Weight = Callable[[Unit], float]


class Clearing:
    """The rows of one domain and what stands on them."""

    def __init__(self, fleet: Fleet, units: Sequence[Unit], rows: Mask, fits: Ints, weight: Weight) -> None:
        """``fits``: pods by row once all these units left."""
        self.fleet = fleet
        self.rows = rows
        self.fits = fits
        self.weight = weight
        self.cores = {unit.gang.key: unit for unit in units if unit.core}
        self.surplus: dict[GangKey, list[Unit]] = {}
        self.on: dict[int, set[GangKey]] = {}
        for unit in units:
            if not unit.core:
                self.surplus.setdefault(unit.gang.key, []).append(unit)
            for row in unit.rows:
                if rows[row]:
                    self.on.setdefault(row, set()).add(unit.gang.key)

    def cheapest(self, now: Ints, wanted: int, gives: Callable[[Unit], bool], tree: Tree) -> list[Unit] | None:
        """Units whose leaving clears enough rows, None when the donors may not give enough; usage is left as it was."""
        exact = self._exact(now, wanted) if not self.surplus else None
        if exact is not None:
            taken = []
            for unit in exact:
                if not gives(unit):
                    break
                tree.charge(unit.gang.queue, unit.charge, -1)
                taken.append(unit)
            for unit in taken:
                tree.charge(unit.gang.queue, unit.charge, 1)
            if len(taken) == len(exact):
                return exact
        return self._greedy(now, wanted, gives, tree)

    # --- every choice ------------------------------------------------------------------------------------------------

    def _exact(self, now: Ints, wanted: int) -> list[Unit] | None:
        rows = [row for row in np.flatnonzero(self.rows & (self.fits > 0)).tolist() if not now[row]]
        free = int(now[self.rows].sum())
        pick = wanted - free
        if pick <= 0 or pick > len(rows) or comb(len(rows), pick) > MOST_CHOICES:
            return None
        if int(self.fits[self.rows].max(initial=0)) > 1:
            return None
        keys = sorted({key for row in rows for key in self.on.get(row, ())})
        number = {key: at for at, key in enumerate(keys)}
        stands = np.zeros((len(rows), len(keys)), dtype=np.float32)
        for at, row in enumerate(rows):
            for key in self.on.get(row, ()):
                stands[at, number[key]] = 1
        choices = np.array(list(combinations(range(len(rows)), pick)), dtype=np.int64)
        chosen = np.zeros((len(choices), len(rows)), dtype=np.float32)
        chosen[np.arange(len(choices))[:, None], choices] = 1
        hit = chosen @ stands > 0
        costs = hit @ np.array([self.weight(self.cores[key]) for key in keys])
        best = int(np.argmin(costs))
        return [self.cores[key] for at, key in enumerate(keys) if hit[best, at]]

    # --- greedily ----------------------------------------------------------------------------------------------------

    def _greedy(self, now: Ints, wanted: int, gives: Callable[[Unit], bool], tree: Tree) -> list[Unit] | None:
        gone: dict[GangKey, list[Member]] = {}
        taken: dict[GangKey, list[Unit]] = {}
        candidates = np.flatnonzero(self.rows & (self.fits > now)).tolist()
        free = int(now[self.rows].sum())
        waiting: list[tuple[float, int]] = []
        price: dict[int, float] = {}
        for row in candidates:
            price[row] = self._price(row, gone) / float(self.fits[row] - now[row])
            heapq.heappush(waiting, (price[row], row))
        charged: list[Unit] = []
        done: set[int] = set()
        while free < wanted and waiting:
            cost, row = heapq.heappop(waiting)
            if row in done or cost > price[row]:
                continue
            done.add(row)
            steps = self._clear(row, gone)
            if steps is None or not self._may_give(steps, gives, tree):
                continue
            free += int(self.fits[row] - now[row])
            again: set[int] = set()
            for unit in steps:
                tree.charge(unit.gang.queue, unit.charge, -1)
                charged.append(unit)
                key = unit.gang.key
                gone.setdefault(key, []).extend(unit.members)
                taken.setdefault(key, []).append(unit)
                again.update(one for one in unit.rows if one in price and one not in done)
            for one in again:
                price[one] = self._price(one, gone) / float(self.fits[one] - now[one])
                heapq.heappush(waiting, (price[one], one))
        for unit in charged:
            tree.charge(unit.gang.queue, unit.charge, 1)
        if free < wanted:
            return None
        return [unit for units in taken.values() for unit in units]

    @staticmethod
    def _may_give(steps: Sequence[Unit], gives: Callable[[Unit], bool], tree: Tree) -> bool:
        left = []
        allowed = True
        for unit in steps:
            allowed = allowed and gives(unit)
            tree.charge(unit.gang.queue, unit.charge, -1)
            left.append(unit)
        for unit in left:
            tree.charge(unit.gang.queue, unit.charge, 1)
        return allowed

    def _price(self, row: int, gone: dict[GangKey, list[Member]]) -> float:
        steps = self._clear(row, gone)
        return sum(self.weight(unit) for unit in steps) if steps is not None else float("inf")

    def _clear(self, row: int, gone: dict[GangKey, list[Member]]) -> list[Unit] | None:
        """The units that must still leave to clear the row; None when a gang cannot leave whole."""
        steps: list[Unit] = []
        for key in sorted(self.on.get(row, ())):
            left = gone.get(key, [])
            extra = self.surplus.get(key)
            core = self.cores.get(key)
            if core is not None and not extra and not left:
                steps.append(core)
                continue
            here = [unit for unit in extra or () if row in unit.rows and unit.members[0] not in left]
            stays = [m for m, at in zip(core.members, core.at, strict=True) if at == row] if core is not None else []
            if all(member in left for member in stays) and not here:
                continue
            members = [member for unit in here for member in unit.members]
            alone = bool(here) and all(m in left or m in members for m in stays)
            if alone and surplus_left(here[0].gang, [*left, *members]) >= 0:
                steps += here
                continue
            if core is None:
                return None
            spare: list[Member] = []
            for unit in extra or ():  # surplus leaves before the gang ends, whatever row it is on
                if unit.members[0] not in left and surplus_left(core.gang, [*left, *spare, *unit.members]) >= 0:
                    spare += unit.members
                    steps.append(unit)
            rest = [member for member in core.members if member not in left and member not in spare]
            if rest:
                last = unit_of(core.gang, rest, self.fleet, core=True)
                steps.append(last._replace(lost=core.lost, restarts=core.restarts))
        return steps
