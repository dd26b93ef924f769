"""Order: who is tried first.

    broken gangs that can be healed
    then queue by queue: within its share before over it, lowest usage over share, higher queue priority …
    … and inside a queue: who waited longer than it should, then higher gang priority, earlier submission

Queues are compared on every level of the tree, siblings with siblings, and again after every placement.
"""

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from muster.decide.asks import Ask
from muster.decide.shares import Amounts, Tree
from muster.model.gangs import Gang
from muster.model.units import GangKey, QueueName

INFINITE = 10**12


def gang_key_order(gang: Gang) -> tuple[int, float, int, str]:
    """Inside a queue: priority (higher first), waiting time (longer first), creation order, name."""
    return -gang.priority, gang.submitted, gang.order, gang.key


class Ratio:
    """Usage over share as it stands, above and below the line: compared exactly, never divided."""

    __slots__ = ("above", "below")

    def __init__(self, above: int, below: int) -> None:
        """``below`` is more than 0."""
        self.above = above
        self.below = below

    def __lt__(self, other: "Ratio") -> bool:
        """By value."""
        return self.above * other.below < other.above * self.below

    def __eq__(self, other: object) -> bool:
        """By value."""
        return isinstance(other, Ratio) and self.above * other.below == other.above * self.below

    def __hash__(self) -> int:
        """Of the value."""
        return hash(Fraction(self.above, self.below))


class QueueRank(NamedTuple):
    """How a queue stands among its siblings; the smallest goes first."""

    over: bool
    ratio: Ratio
    priority: int
    head: tuple[float, int, str]
    name: QueueName


class Line:
    """The gangs that still wait for their turn, by queue; `next` takes the one whose turn it is."""

    def __init__(
        self,
        tree: Tree,
        asks: Iterable[Ask],
        charge: Callable[[Ask], Amounts],
        *,
        promoted: Mapping[GangKey, float] | None = None,
    ) -> None:
        """``promoted``: gangs that go before the others of their queue, each with the moment since when it has waited."""
        self.tree = tree
        self.charge = charge
        self.waiting: dict[QueueName, list[Ask]] = {}
        first = promoted or {}

        def turn(ask: Ask) -> tuple[float, tuple[int, float, int, str]]:
            return first.get(ask.gang.key, INFINITE), gang_key_order(ask.gang)

        for ask in sorted(asks, key=turn, reverse=True):
            self.waiting.setdefault(ask.gang.queue, []).append(ask)
        self._charges: dict[GangKey, Amounts] = {}
        self._ranks: dict[QueueName, tuple[QueueRank, QueueName] | None] = {}

    def next(self) -> Ask | None:
        """The gang whose turn it is; it leaves the line."""
        best: tuple[QueueRank, QueueName] | None = None
        for name in self.tree.children.get(None, []):
            found = self._rank(name)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        if best is None:
            return None
        queue = best[1]
        ask = self.waiting[queue].pop()
        self.changed(queue)
        return ask

    def again(self, ask: Ask) -> None:
        """Put a gang back at the head of its queue: it has more to ask."""
        self.waiting[ask.gang.queue].append(ask)
        self._charges.pop(ask.gang.key, None)
        self.changed(ask.gang.queue)

    def changed(self, queue: QueueName) -> None:
        """The usage or the line of a queue changed: it and its parents are ranked anew."""
        for name in self.tree.path(queue):
            self._ranks.pop(name, None)

    def _rank(self, name: QueueName) -> tuple[QueueRank, QueueName] | None:
        """The rank of a queue by the gang that would be next in it or below it."""
        if name in self._ranks:
            return self._ranks[name]
        leaf: QueueName | None = name if self.waiting.get(name) else None
        below: QueueRank | None = None
        for child in self.tree.children.get(name, []):
            found = self._rank(child)
            if found is not None and (below is None or found[0] < below):
                below, leaf = found[0], found[1]
        result: tuple[QueueRank, QueueName] | None = None
        if leaf is not None:
            ask = self.waiting[leaf][-1]
            charge = self._charges.get(ask.gang.key)
            if charge is None:
                charge = self._charges[ask.gang.key] = self.charge(ask)
            over, ratio = standing(self.tree, name, charge)
            gang = ask.gang
            head = (gang.submitted, gang.order, gang.key)
            result = QueueRank(over, ratio, -self.tree.queues[name].priority, head, name), leaf
        self._ranks[name] = result
        return result


def standing(tree: Tree, name: QueueName, charge: Mapping[str, int]) -> tuple[bool, Ratio]:
    """Whether the queue would be over its share with this charge, and its usage over share now (the dominant resource).

    Only resources that the queue's shares govern count, and "over" is judged only in those that must be taken.
    """
    over = False
    above, below = 0, 1
    usage = tree.usage[name]
    for resource, share in tree.shares.get(name, {}).items():
        used, asked = usage.get(resource, 0), charge.get(resource, 0)
        if not used and not asked:
            continue
        if not tree.governed(name, resource):
            continue
        whole, parts = share.numerator, share.denominator
        if asked and (used + asked) * parts > whole:
            over = True
        if used:
            mine, under = (used * parts, whole) if whole else (INFINITE, 1)
            if mine * below > above * under:
                above, below = mine, under
    return over, Ratio(above, below)
