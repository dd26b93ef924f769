"""What plans are compared by: the lower is the better plan.

The highest priority that is hit first, then what donors fall below their claims, work lost since the last checkpoint, restarts,
gangs ended, pods, cards; then the lower queue priority, the queue further above its share.
"""

from collections.abc import Sequence

from muster.decide.asks import Ask
from muster.decide.preemption.law import below_common
from muster.decide.preemption.victims import Unit, over_share
from muster.decide.shares import Tree

Price = tuple[tuple[int, float, int, int, int, int, int, int, float], ...]


def cost_of(tree: Tree, ask: Ask, asked: Sequence[str], units: Sequence[Unit]) -> Price:
    """The cost of units that leave for a gang; ``asked``: the resources that it asks."""
    levels: dict[int, list[float]] = {}
    for unit in units:
        level = levels.setdefault(unit.rank, [0, 0, 0, 0, 0, 0, 0.0])
        level[0] += unit.lost
        level[1] += unit.restarts
        level[2] += unit.core
        level[3] += len(unit.members)
        level[4] += unit.charge.get("gpu", 0)
        if unit.gang.queue != ask.gang.queue:
            level[5] += len(unit.members) * tree.queues[unit.gang.queue].priority
            level[6] -= len(unit.members) * over_share(tree, unit.gang.queue, unit.charge)
    below = _below_claim(tree, ask, asked, units)
    return tuple(
        # What donors fall below their claims counts once, before what is lost.
        (priority, below if number == 0 else 0.0, *(int(part) for part in one[:6]), one[6])  # type: ignore[misc]
        for number, (priority, one) in enumerate(sorted(levels.items(), reverse=True))
    )


def _below_claim(tree: Tree, ask: Ask, asked: Sequence[str], units: Sequence[Unit]) -> float:
    """How far donors end below their claims, as parts of them, summed; 0 when every donor keeps its share."""
    cross = [unit for unit in units if unit.gang.queue != ask.gang.queue]
    levels = {level for unit in cross for level in below_common(tree, unit.gang.queue, ask.gang.queue)}
    for unit in cross:
        tree.charge(unit.gang.queue, unit.charge, -1)
    below = 0.0
    for level in sorted(levels):
        for resource in asked:
            claim = tree.claim(level, resource) if tree.governed(level, resource) else 0
            if claim:
                below += max(0.0, (claim - tree.usage[level].get(resource, 0)) / claim)
    for unit in cross:
        tree.charge(unit.gang.queue, unit.charge, 1)
    return round(below, 9)
