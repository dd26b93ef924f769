"""What PodDisruptionBudgets still allow: how many pods of each may be evicted, less those that open plans evict already."""

from collections.abc import Collection, Iterable

from muster.decide.preemption.victims import Unit
from muster.model.budgets import Budget
from muster.model.units import PodUid


class Allowances:
    """Evictions that are left by budget; units are taken out of them and put back."""

    def __init__(self, budgets: Iterable[Budget], promised: Collection[PodUid] = ()) -> None:
        """``promised``: victims of open plans that still stand."""
        self._of: dict[PodUid, list[str]] = {}
        self._left: dict[str, int] = {}
        for budget in budgets:
            self._left[budget.key] = budget.allowed - sum(uid in promised for uid in budget.pods)
            for uid in budget.pods:
                self._of.setdefault(uid, []).append(budget.key)

    def refuses(self, units: Iterable[Unit]) -> str:
        """Why not all of these may be evicted now, '' when they may."""
        asked: dict[str, int] = {}
        for unit in units if self._of else ():
            for member in unit.members:
                mine = self._of.get(member.uid, [])
                if len(mine) > 1:
                    return f"{member.name} is covered by several budgets ({', '.join(mine)}): it cannot be evicted"
                for key in mine:
                    asked[key] = asked.get(key, 0) + 1
        for key, number in asked.items():
            if number > self._left[key]:
                left = max(0, self._left[key])
                return f"PodDisruptionBudget {key} allows {left} evictions now, {number} would be needed"
        return ""

    def take(self, unit: Unit, times: int = 1) -> None:
        """A unit is evicted; -1: it is not after all."""
        for member in unit.members if self._of else ():
            for key in self._of.get(member.uid, ()):
                self._left[key] -= times
