"""Whether units suffice for a gang: the room, the law, and what may be moved for what is gained."""

from collections.abc import Sequence

import numpy as np

from muster.decide.asks import Ask
from muster.decide.fleet import Ints
from muster.decide.placement.feasibility import capacity
from muster.decide.placement.greedy import Landed
from muster.decide.preemption.law import lawful
from muster.decide.preemption.trial import Trial
from muster.decide.preemption.victims import Unit
from muster.decide.topology import domains, resolve
from muster.model.units import ONE_CARD


class Judge:
    """Judges for one gang, with room and usage as they are today."""

    def __init__(self, trial: Trial, ask: Ask, *, moved_per_gained: float = 0.0, moved_always: int = 0) -> None:
        """``moved_per_gained``: cards that units may hold per card that the gang gains; 0: no limit.

        ``moved_always``: as many cards as that may move however few the gang gains.
        """
        self.trial = trial
        self.ask = ask
        self.most = moved_per_gained
        self.always = moved_always
        fleet = trial.room.fleet
        level = resolve(fleet, ask.gang.topology).required
        codes = None if level is None else domains(fleet, level)
        if codes is not None and ask.standing:
            stands = {int(codes[fleet.row_of[name]]) for name in ask.standing if name in fleet.row_of}
            codes = np.where(np.isin(codes, list(stands)), 0, -1) if len(stands) == 1 else np.full(fleet.size, -1)
        self.codes: Ints | None = codes
        """Domains, of which one has to hold everything; None: anywhere."""
        self._inside: Ints | None = None if codes is None else np.flatnonzero(codes >= 0)

    def may_fit(self) -> bool:
        """The quick test before a placement is tried: is there a domain with room for each role by itself, as it is now?"""
        total: Ints | int = 0
        possible: np.ndarray[tuple[int], np.dtype[np.bool_]] | bool = True
        for role in self.ask.roles:
            if not role.waiting:
                continue
            blocked = self.trial.blocked.get(role.shape)
            fits = capacity(self.trial.room, role.shape, None if blocked is None else ~blocked)
            sums: Ints | int = int(fits.sum())
            if self.codes is not None and self._inside is not None:
                sums = np.bincount(self.codes[self._inside], weights=fits[self._inside]).astype(np.int64)
            possible = possible & (sums >= role.need)
            total = total + np.minimum(sums, len(role.waiting))
        return bool(np.any(possible & (total >= self.ask.minimum)))

    def landed(self, units: Sequence[Unit]) -> list[Landed] | None:
        """Where the gang would go if these units left and the law allows it; None when it does not or there is no room."""
        landed = self.trial.fits(self.ask, units)
        return landed if landed is not None and self._lawful(units, landed) else None

    def _lawful(self, units: Sequence[Unit], landed: Sequence[Landed]) -> bool:
        """Judged with everybody there: the room and the usage must be as they are today."""
        taken = self.trial.taken(self.ask, landed)
        return lawful(self.trial.tree, self.ask, units, self.trial.charge(self.ask, landed), taken)

    def proportionate(self, units: Sequence[Unit], landed: Sequence[Landed]) -> bool:
        """Whether not too many cards move for those that the gang gains."""
        moved = sum(unit.charge.get("gpu", 0) for unit in units)
        most = self.most_moved(self.trial.charge(self.ask, landed).get("gpu", 0))
        return not most or moved <= most

    def most_moved(self, gained: int) -> int:
        """Millionths of cards that may move for so many that are gained; 0: no limit."""
        return max(int(self.most * (gained or ONE_CARD)), self.always * ONE_CARD) if self.most else 0

    def without_spare(self, units: Sequence[Unit], order: Sequence[Unit]) -> list[Unit]:
        """The units without those that are not needed, tried in this order; a core's surplus leaves with it or not at all."""
        spare, needed = self._looks_spare(units, order)
        if not spare:
            return list(units)
        rest = [unit for unit in units if not any(one is unit for one in spare)]
        if self.landed(rest) is not None:
            return rest
        # The quick look saw room that no placement can use, or that the law does not allow: one after the other then.
        for unit in order:
            if unit.key in needed or _leaves_with_core(unit, units):
                continue
            rest = [one for one in units if one is not unit]
            if self.landed(rest) is not None:
                return self.without_spare(rest, [one for one in order if one is not unit])
        return list(units)

    def _looks_spare(self, units: Sequence[Unit], order: Sequence[Unit]) -> tuple[list[Unit], set[object]]:
        """Units that may all stay together by the quick test, and keys of those that may not even stay alone."""
        room = self.trial.room
        mark = self.trial.without(units)
        needed: set[object] = set()
        spare: list[Unit] = []
        kept = list(units)
        for unit in order:
            if _leaves_with_core(unit, kept):
                continue
            here = room.mark()
            self.trial.stay(unit)
            if self.may_fit():
                spare.append(unit)
                kept = [one for one in kept if one is not unit]
                continue
            room.rollback(here)
            if not spare:
                needed.add(unit.key)
        self.trial.put_back(units, mark)
        return spare, needed


def _leaves_with_core(unit: Unit, kept: Sequence[Unit]) -> bool:
    """Whether the unit is surplus of a gang that ends, and so ends whole."""
    return not unit.core and any(one.core and one.gang.key == unit.gang.key for one in kept)
