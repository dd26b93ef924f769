"""The cheapest set of units that suffices for a gang.

    domains     each that could hold the gang if everything that may leave left, cheapest bound first (see `places`)
    rows        one kind of pod: nodes are cleared one after the other, the cheapest for what it gives first (see `clearing`)
    units       otherwise: units are added in the order of what they cost until the gang fits, in several orders
    choices     of few units, every set of them that is cheaper than what was found (see `choices`)
    ──► every unit that is not needed is dropped again; the cheapest plan stays

Nothing is proposed that was not placed whole in the trial. What plans cost: `muster.decide.preemption.costs`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.asks import Ask
from muster.decide.fleet import Ints
from muster.decide.placement.feasibility import capacity
from muster.decide.placement.greedy import Landed
from muster.decide.preemption.allowances import Allowances
from muster.decide.preemption.candidates import Bounds, balanced, bounds_of, order_of
from muster.decide.preemption.choices import choices
from muster.decide.preemption.clearing import Clearing, weight
from muster.decide.preemption.costs import Price, cost_of
from muster.decide.preemption.donors import Donors
from muster.decide.preemption.judging import Judge
from muster.decide.preemption.places import Place, places_of
from muster.decide.preemption.trial import Trial
from muster.decide.preemption.victims import Unit, surplus_left, unit_of
from muster.decide.room import Room
from muster.decide.shares import smallest_charge
from muster.model.gangs import Member
from muster.model.units import GangKey

MOST_PLACES_TRIED = 24
MOST_DOMAINS_TRIED = 6
MOST_DOMAINS_SOLVED = 200
MOST_CHOICES = 512
MOST_LOOKS = 1500
"""Sets of victims that may be tried out, one by one, for all gangs of one look for plans."""
FIRSTS_TRIED = 24
FEW_UNITS = 240
EVERY_STEP = 16
LONG_PLAN = 64
FEW_NODES = 4


class Found(NamedTuple):
    """Units that leave, and where the gang goes then."""

    units: tuple[Unit, ...]
    landed: tuple[Landed, ...]
    cost: Price


class Effort:
    """What a look for plans may still spend on trying out every set of victims; counted, so that a replay is the same."""

    def __init__(self, looks: int = MOST_LOOKS) -> None:
        self.left = looks

    def spend(self) -> bool:
        """Whether there is one more; it is spent then."""
        self.left -= 1
        return self.left >= 0


class Planner:
    """Searches plans for one gang among these units."""

    def __init__(
        self,
        trial: Trial,
        empty: Room,
        ask: Ask,
        units: Iterable[Unit],
        *,
        allowances: Allowances,
        moved_per_gained: float = 0.0,
        moved_always: int = 0,
        effort: Effort | None = None,
    ) -> None:
        """``effort`` is shared by the gangs of one look for plans."""
        self.effort = effort or Effort()
        self.trial = trial
        self.tree = trial.tree
        self.empty = empty
        self.ask = ask
        self.judge = Judge(trial, ask, moved_per_gained=moved_per_gained, moved_always=moved_always)
        fleet = trial.room.fleet
        self.asked = sorted({name for role in ask.roles for name in smallest_charge(fleet, role.shape.request)})
        self.units = balanced(self.tree, ask, tuple(units))
        self.donors = Donors(trial.tree, ask, self.asked, allowances)
        self._by_code: dict[int, list[Unit]] | None = None

    def _order(self, unit: Unit) -> object:
        return order_of(self.tree, self.ask, unit)

    def best(self) -> Found | None:
        """The cheapest plan found, or None when nothing that may leave suffices."""
        if not self.units:
            return None
        bounds = bounds_of(self.trial, self.empty, self.ask, self.units)
        places = places_of(self.judge, self.units, bounds)
        if not places:
            return None
        best: Found | None = None
        # The second case only where the first allows nothing: it asks for more, and gives less.
        for second in (False, True):
            self.donors.second = second
            across = any(one.gang.queue != self.ask.gang.queue for one in self.units)
            if best is None and (not second or across):
                best = self._search(bounds, places)
            if best is None and across:
                best = self._first_of_donors(places)
        return self._any_cheaper(best)

    def _any_cheaper(self, best: Found | None) -> Found | None:
        """Of few units, the cheapest set of all that suffices; otherwise what was found."""
        few = choices(self.units, self.trial.room.fleet, MOST_CHOICES)
        if few is None:
            return best
        priced = [(self.cost_of(some), number, some) for number, some in enumerate(few) if some]
        for cost, _, some in sorted(priced, key=lambda one: one[:2]):
            if best is not None and cost >= best.cost:
                return best
            if self.donors.allowances.refuses(some):
                continue
            if not self.effort.spend():
                return best
            landed = self.judge.landed(some)
            if landed is not None and self.judge.proportionate(some, landed):
                return Found(some, tuple(landed), cost)
        return best

    def _search(self, bounds: Bounds, places: Sequence[Place]) -> Found | None:
        if self._clears:
            best = self._by_clearing(bounds, places)
            if best is not None and (self._whole_rows(bounds) or len(best.units) > LONG_PLAN):
                return best
        else:
            best = None
        if self.judge.codes is not None:
            for place in places[:MOST_DOMAINS_TRIED]:
                if best is None or bounds.priorities[place.rank] <= max(unit.rank for unit in best.units):
                    best = _cheaper(best, self._inside(place))
            return best
        largest = sorted(self.units, key=lambda unit: (unit.rank, unit.core, -unit.charge.get("gpu", 0)))
        for order in (self.units, largest):
            best = _cheaper(best, self._plan(order))
            if best is not None and len(best.units) > LONG_PLAN:
                return best  # other orders would hardly differ, and each costs as much again
        if best is not None and len({one.row for one in best.landed}) > FEW_NODES:
            return best  # what stands on one node first says little about a gang on many
        for order in self._orders_by_place():
            best = _cheaper(best, self._plan(order))
        return best

    def _by_clearing(self, bounds: Bounds, places: Sequence[Place]) -> Found | None:
        """The best of what clearing nodes gives in each domain; domains whose bound is above what is known are passed over."""
        now = capacity(self.trial.room, next(role.shape for role in self.ask.roles if role.waiting))
        for lowest in (True, False):
            known: list[tuple[int, float, int, Place, list[Unit]]] = []
            over: list[tuple[int, float, int, Place, list[Unit]]] = []
            most = self._most_moved
            for place in places:
                rank = place.rank if lowest else len(bounds.priorities) - 1
                if known and (rank, place.estimate) >= min(known)[:2]:
                    break
                if len(known) >= MOST_DOMAINS_SOLVED:
                    break
                limit = bounds.priorities[rank]
                allowed = [unit for unit in self._on(place) if unit.rank <= limit]
                clearing = Clearing(self.trial.room.fleet, allowed, place.rows, bounds.fits[rank][0], limit)
                chosen = clearing.cheapest(now, self.ask.minimum, self.donors, most=most)
                if chosen:
                    score = sum(weight(unit, limit) for unit in chosen)
                    # Too much may move until what is spare has been dropped; it tells nothing of other domains.
                    moved = sum(unit.charge.get("gpu", 0) for unit in chosen)
                    (over if most and moved > most else known).append((rank, score, place.code, place, chosen))
            best_first = sorted(known, key=_by_score)[:MOST_DOMAINS_TRIED] + sorted(over, key=_by_score)[:2]
            for _, _, _, place, chosen in best_first:
                self.trial.only = place.rows
                found = self._drop(chosen)
                self.trial.only = None
                if found is not None:
                    return found
        return None

    @property
    def _most_moved(self) -> int:
        """Millionths of cards that may move at the most; 0: no limit."""
        shape = next(role.shape for role in self.ask.roles if role.waiting)
        return self.judge.most_moved(
            self.ask.minimum * smallest_charge(self.trial.room.fleet, shape.request).get("gpu", 0)
        )

    def _on(self, place: Place) -> list[Unit]:
        """Units with pods in a domain, in their order."""
        if self.judge.codes is None:
            return self.units
        if self._by_code is None:
            self._by_code = {}
            codes = self.judge.codes.tolist()
            for unit in self.units:
                for code in {codes[row] for row in unit.rows}:
                    self._by_code.setdefault(code, []).append(unit)
        return self._by_code.get(place.code, [])

    def _inside(self, place: Place) -> Found | None:
        self.trial.only = place.rows
        found = self._plan(self._on(place))
        self.trial.only = None
        return found

    def _first_of_donors(self, places: Sequence[Place]) -> Found | None:
        """A donor gives only while it is above its share, so that whoever gives first may keep another from giving: others first."""
        inside = np.logical_or.reduce([place.rows for place in places])
        few = [unit for unit in self.units if inside[list(unit.rows)].any()]
        firsts = list(dict.fromkeys(unit.gang.key for unit in few if unit.gang.queue != self.ask.gang.queue))
        for first in firsts[: FIRSTS_TRIED if len(few) <= FEW_UNITS else 2]:
            mine = [unit for unit in few if unit.gang.key == first]  # its surplus leaves before it ends, as ever
            found = self._plan([*mine, *(unit for unit in few if unit.gang.key != first)])
            if found is not None:
                return found
        return None

    # --- places ------------------------------------------------------------------------------------------------------

    def _waiting_fits(self, bounds: Bounds) -> tuple[Ints, ...]:
        return bounds.fits[-1]

    @property
    def _clears(self) -> bool:
        """Whether nodes can be cleared for it one by one: all its pods that wait are alike and stand for themselves."""
        waiting = [role for role in self.ask.roles if role.waiting]
        shape = waiting[0].shape
        return len(waiting) == 1 and shape.request.share is None and not shape.namespace and not shape.host_ports

    def _whole_rows(self, bounds: Bounds) -> bool:
        """Whether a node takes one pod at the most, so that what was found by clearing nodes is not improved by trying units."""
        return bool(bounds.fits[-1][0].max(initial=0) <= 1)

    def _orders_by_place(self) -> list[list[Unit]]:
        """For each node that the gang could use, what stands there first; nodes with the cheapest occupants come first."""
        if self.judge.codes is not None:
            return []
        waiting = [role for role in self.ask.roles if role.waiting]
        price: dict[int, int] = {}
        useful = np.logical_or.reduce([capacity(self.empty, role.shape) > 0 for role in waiting])
        for rank, unit in enumerate(self.units):
            for row in unit.rows:
                if useful[row]:
                    price.setdefault(row, rank)
        fits = np.sum([capacity(self.trial.room, role.shape) for role in waiting], axis=0)
        most = MOST_PLACES_TRIED if len(self.units) <= 10 * MOST_PLACES_TRIED else MOST_DOMAINS_TRIED
        orders = []
        for place in sorted(price, key=lambda row: (-int(fits[row]) if len(waiting) > 1 else 0, price[row], row))[
            :most
        ]:
            there = [place in unit.rows for unit in self.units]
            inside = [unit for unit, here in zip(self.units, there, strict=True) if here]
            orders.append([*inside, *(unit for unit, here in zip(self.units, there, strict=True) if not here)])
        return orders

    # --- one order ---------------------------------------------------------------------------------------------------

    def _plan(self, order: Sequence[Unit]) -> Found | None:
        chosen = self._enough(order)
        return self._drop(chosen) if chosen else None

    def _enough(self, order: Sequence[Unit]) -> list[Unit] | None:
        """Units from the front of the order until they suffice; None when all of them do not."""
        allowances = self.donors.allowances
        chosen: list[Unit] = []
        enough = self._first_enough(order, chosen)
        for unit in chosen:
            allowances.take(unit, -1)
        return chosen if enough else None

    def _first_enough(self, order: Sequence[Unit], chosen: list[Unit]) -> bool:
        allowances = self.donors.allowances
        leaving: dict[GangKey, list[Member]] = {}
        due = 1
        mark = self.trial.without(())
        for unit in order:
            gone = leaving.setdefault(unit.gang.key, [])
            step = self._step(unit, gone)
            if step is None or not self.donors.give(step):
                continue
            self.trial.without((step,))
            allowances.take(step)
            chosen.append(step)
            gone += step.members
            if len(chosen) < due or not self.judge.may_fit():
                continue
            # Up to a few units every step is tried; after that ever larger ones, since what is too much is dropped again.
            due = len(chosen) + max(1, len(chosen) // EVERY_STEP)
            self.trial.put_back(chosen, mark)
            if self.judge.landed(chosen) is not None:
                return True
            self.trial.without(chosen)
        self.trial.put_back(chosen, mark)
        return self.judge.landed(chosen) is not None

    def _step(self, unit: Unit, gone: Sequence[Member]) -> Unit | None:
        """The unit as it can leave now: a surplus pod while there is surplus, or everything that is left."""
        if unit.core:
            if not gone:
                return unit
            rest = [member for member in unit.members if member not in gone]
            return _rest(unit, rest, self.trial) if rest else None
        if surplus_left(unit.gang, [*gone, *unit.members]) < 0:
            return None
        return unit

    def _drop(self, chosen: Sequence[Unit]) -> Found | None:
        """Leave out every unit that is not needed, the dearest first."""
        kept = list(chosen)
        landed = self.judge.landed(kept)
        if landed is None:
            return None
        rows = {one.row for one in landed}
        # Most of a long list stands where the gang does not go at all.
        near = {unit.gang.key for unit in kept if rows.intersection(unit.rows)}
        close = [unit for unit in kept if unit.gang.key in near]
        if len(close) < len(kept) and self.judge.landed(close) is not None:
            kept = close
        kept = self.judge.without_spare(kept, sorted(kept, key=self._order, reverse=True))  # type: ignore[arg-type]
        landed = self.judge.landed(kept)
        if landed is None or not self.judge.proportionate(kept, landed):
            return None
        return Found(tuple(kept), tuple(landed), self.cost_of(kept))

    def cost_of(self, units: Sequence[Unit]) -> Price:
        """What plans are compared by, see `costs`."""
        return cost_of(self.tree, self.ask, self.asked, units)


def _by_score(one: tuple[int, float, int, Place, list[Unit]]) -> tuple[int, float, int]:
    return one[:3]


def _rest(unit: Unit, rest: Sequence[Member], trial: Trial) -> Unit:
    left = unit_of(unit.gang, rest, trial.room.fleet, core=True)
    return left._replace(lost=unit.lost, restarts=unit.restarts)


def _cheaper(best: Found | None, found: Found | None) -> Found | None:
    return found if best is None or (found is not None and found.cost < best.cost) else best
