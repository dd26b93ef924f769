"""What may still be taken, unit by unit: the law's word on each donor as its usage goes down, and budgets."""

from collections.abc import Iterable, Sequence

from muster.decide.asks import Ask
from muster.decide.preemption.allowances import Allowances
from muster.decide.preemption.law import donor_above, donor_keeps
from muster.decide.preemption.victims import Unit
from muster.decide.shares import Tree


class Donors:
    """Everybody who could give something to one gang."""

    def __init__(self, tree: Tree, ask: Ask, asked: Sequence[str], allowances: Allowances) -> None:
        self.tree = tree
        self.ask = ask
        self.asked = asked
        """Resources that the gang asks."""
        self.allowances = allowances
        self.second = False
        """Donors give as the second case of the law allows, not as the first."""

    def give(self, unit: Unit) -> bool:
        """Whether the law and budgets let the unit leave, with what was taken until now."""
        if self.allowances.refuses((unit,)):
            return False
        if unit.owed or unit.gang.queue == self.ask.gang.queue:
            return True
        return (donor_keeps if self.second else donor_above)(self.tree, self.ask, unit, self.asked)

    def take(self, unit: Unit) -> None:
        """The unit leaves."""
        self.tree.charge(unit.gang.queue, unit.charge, -1)
        self.allowances.take(unit)

    def put_back(self, units: Iterable[Unit]) -> None:
        """They stay after all."""
        for unit in units:
            self.tree.charge(unit.gang.queue, unit.charge, 1)
            self.allowances.take(unit, -1)
