"""Nodes cleared for pods that are all alike: which of them, so that least is lost.

    row      gives the pods that fit on it once everything that may leave it has left; costs the units on it that still stand
    greedy   the cheapest row for what it gives, again and again; a gang that ends makes its other rows cheaper
    exact    where each row gives one pod and the rows of a domain are few: every choice of rows at once

A gang gives surplus pods of a row as long as it has surplus, else it leaves whole, and all its rows are cheaper then.
"""

import heapq
from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

from muster.decide.fleet import Fleet, Ints, Mask
from muster.decide.preemption.donors import Donors
from muster.decide.preemption.victims import Unit, surplus_left, unit_of
from muster.model.gangs import Member
from muster.model.units import GangKey

MOST_CHOICES = 20_000
LOWER = 1e-12


def weight(unit: Unit, limit: int) -> float:
    """What a unit costs as one number: work lost, restarts, a gang that ends, pods; next to nothing below the priority given."""
    cost = (
        unit.lost * 1e6 + unit.restarts * 1e5 + unit.core * 1e3 + len(unit.members) + 1e-9 * unit.charge.get("gpu", 0)
    )
    return cost if unit.rank == limit else cost * LOWER


class Clearing:
    """The rows of one domain and what stands on them."""

    def __init__(self, fleet: Fleet, units: Sequence[Unit], rows: Mask, fits: Ints, limit: int) -> None:
        """``fits``: pods by row once all these units left. ``limit``: the priority whose cost counts."""
        self.fleet = fleet
        self.rows = rows
        self.fits = fits
        self.limit = limit
        self.cores = {unit.gang.key: unit for unit in units if unit.core}
        self.surplus: dict[GangKey, list[Unit]] = {}
        self.on: dict[int, set[GangKey]] = {}
        for unit in units:
            if not unit.core:
                self.surplus.setdefault(unit.gang.key, []).append(unit)
            for row in unit.rows:
                if rows[row]:
                    self.on.setdefault(row, set()).add(unit.gang.key)

    def cheapest(self, now: Ints, wanted: int, donors: Donors, *, most: int) -> list[Unit] | None:
        """Units whose leaving clears enough rows, None when the donors may not give enough; those are left as they were.

        ``most``: cards in millionths that they may hold together; 0: no limit. Only every choice at once looks at it.
        """
        exact = self._exact(now, wanted, most) if not self.surplus else None
        if exact is not None and self._may_give(exact, donors):
            return exact
        return self._greedy(now, wanted, donors)

    # --- every choice ------------------------------------------------------------------------------------------------

    def _exact(self, now: Ints, wanted: int, most: int) -> list[Unit] | None:
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
        chosen = self._choices(len(rows), pick)
        hit = chosen @ stands > 0
        costs = hit @ np.array([weight(self.cores[key], self.limit) for key in keys])
        if most:
            moved = hit @ np.array([self.cores[key].charge.get("gpu", 0) for key in keys], dtype=np.float64)
            costs = np.where(moved <= most, costs, np.inf)
        best = int(np.argmin(costs))
        if not np.isfinite(costs[best]):
            return None
        return [self.cores[key] for at, key in enumerate(keys) if hit[best, at]]

    def _choices(self, rows: int, pick: int) -> npt.NDArray[np.float32]:
        """Every choice of so many rows, as 0 and 1."""
        key = ("choices", rows, pick)
        known = self.fleet.memo.get(key)
        if known is None:
            choices = np.array(list(combinations(range(rows), pick)), dtype=np.int64)
            known = np.zeros((len(choices), rows), dtype=np.float32)
            known[np.arange(len(choices))[:, None], choices] = 1
            self.fleet.memo[key] = known
        assert isinstance(known, np.ndarray)
        return known

    # --- greedily ----------------------------------------------------------------------------------------------------

    def _greedy(self, now: Ints, wanted: int, donors: Donors) -> list[Unit] | None:
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
            if steps is None or not self._may_give(steps, donors):
                continue
            free += int(self.fits[row] - now[row])
            again: set[int] = set()
            for unit in steps:
                donors.take(unit)
                charged.append(unit)
                key = unit.gang.key
                gone.setdefault(key, []).extend(unit.members)
                taken.setdefault(key, []).append(unit)
                again.update(one for one in unit.rows if one in price and one not in done)
            for one in again:
                price[one] = self._price(one, gone) / float(self.fits[one] - now[one])
                heapq.heappush(waiting, (price[one], one))
        donors.put_back(charged)
        if free < wanted:
            return None
        return [unit for units in taken.values() for unit in units]

    @staticmethod
    def _may_give(steps: Sequence[Unit], donors: Donors) -> bool:
        taken: list[Unit] = []
        for unit in steps:
            if not donors.give(unit):
                break
            donors.take(unit)
            taken.append(unit)
        donors.put_back(taken)
        return len(taken) == len(steps)

    def _price(self, row: int, gone: dict[GangKey, list[Member]]) -> float:
        steps = self._clear(row, gone)
        return sum(weight(unit, self.limit) for unit in steps) if steps is not None else float("inf")

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
