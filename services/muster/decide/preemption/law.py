"""Whose share allows what.

What is owed to the gang leaves for it whatever the rest says. Inside a queue: strictly lower priority. Across queues, either of two cases holds on every level below the common one:

    first    the reclaimer stays within its claim in what must be taken, and the donor is above its own just before each unit
             leaves (so an indivisible last unit may take it below)
    second   usage over share of every touched level, sorted from the highest, becomes strictly smaller in that order (so no
             chain of such plans ends where it began), and no donor ends below the greater of deserved and share
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from muster.decide.asks import Ask
from muster.decide.ordering import INFINITE
from muster.decide.preemption.victims import Unit
from muster.decide.shares import Tree
from muster.model.units import QueueName


def below_common(tree: Tree, queue: QueueName, other: QueueName) -> tuple[QueueName, ...]:
    """The queue and its parents below the first one that it shares with the other."""
    shared = set(tree.path(other))
    path = []
    for name in tree.path(queue):
        if name in shared:
            break
        path.append(name)
    return tuple(path)


def in_queue(ask: Ask, unit: Unit) -> bool:
    """Whether the unit is of the gang's own queue and of strictly lower priority."""
    return unit.gang.queue == ask.gang.queue and unit.gang.priority < ask.gang.priority


def reclaimable(tree: Tree, ask: Ask, unit: Unit) -> bool:
    """Whether the unit's queue may be reclaimed from at all, on every level below the common one."""
    if unit.gang.queue == ask.gang.queue:
        return False
    levels = below_common(tree, unit.gang.queue, ask.gang.queue)
    return bool(levels) and all(tree.queues[level].reclaimable for level in levels)


def donor_above(tree: Tree, ask: Ask, unit: Unit, resources: Iterable[str]) -> bool:
    """Whether, with usage as it is, the unit's queue is above its claim in something the unit holds of these resources."""
    held = [resource for resource in resources if unit.charge.get(resource, 0) > 0]
    return all(
        any(
            tree.governed(level, resource) and tree.usage[level].get(resource, 0) > tree.claim(level, resource)
            for resource in held
        )
        for level in below_common(tree, unit.gang.queue, ask.gang.queue)
    )


def within_claim(
    tree: Tree, ask: Ask, charge: Mapping[str, int], donors: Iterable[QueueName], resources: Iterable[str]
) -> bool:
    """Whether the gang's queue and its parents stay within their claims, with usage as it is, in what must be taken."""
    judged = [resource for resource in resources if charge.get(resource, 0) > 0]
    levels = {level for donor in donors for level in below_common(tree, ask.gang.queue, donor)}
    for level in levels:
        governed = [resource for resource in judged if tree.governed(level, resource)]
        if not governed:
            return False
        if any(
            tree.usage[level].get(resource, 0) + charge[resource] > tree.claim(level, resource) for resource in governed
        ):
            return False
    return True


def donor_keeps(tree: Tree, ask: Ask, unit: Unit, resources: Iterable[str]) -> bool:
    """Whether, with usage as it is, the unit's queue would still have the greater of deserved and share without it."""
    for level in below_common(tree, unit.gang.queue, ask.gang.queue):
        for resource in resources:
            given = unit.charge.get(resource, 0)
            if given > 0 and tree.governed(level, resource):
                share = tree.shares.get(level, {}).get(resource, Fraction(0))
                if tree.usage[level].get(resource, 0) - given < max(Fraction(tree.claim(level, resource)), share):
                    return False
    return True


def lawful(tree: Tree, ask: Ask, units: Sequence[Unit], charge: Mapping[str, int], taken: frozenset[str]) -> bool:
    """Whether these units may leave for the gang, judged in what must be taken; usage is left as it was."""
    cross = [unit for unit in units if unit.gang.queue != ask.gang.queue and not unit.owed]
    own = [unit for unit in units if unit.gang.queue == ask.gang.queue or unit.owed]
    if not all(unit.owed or in_queue(ask, unit) for unit in own):
        return False
    if not cross:
        return True
    if not all(reclaimable(tree, ask, unit) for unit in cross):
        return False
    for unit in own:
        tree.charge(unit.gang.queue, unit.charge, -1)
    allowed = _first_case(tree, ask, cross, charge, taken) or _second_case(tree, ask, cross, charge, taken)
    for unit in own:
        tree.charge(unit.gang.queue, unit.charge, 1)
    return allowed


def _first_case(tree: Tree, ask: Ask, cross: Sequence[Unit], charge: Mapping[str, int], taken: frozenset[str]) -> bool:
    left: list[Unit] = []
    allowed = True
    # Small before large, surplus before the rest, so that only the last unit of a donor takes it below its claim.
    for unit in sorted(cross, key=lambda one: (one.core, sum(one.charge.get(name, 0) for name in taken), one.key)):
        allowed = allowed and donor_above(tree, ask, unit, taken)
        tree.charge(unit.gang.queue, unit.charge, -1)
        left.append(unit)
    allowed = allowed and within_claim(tree, ask, charge, {unit.gang.queue for unit in cross}, taken)
    for unit in left:
        tree.charge(unit.gang.queue, unit.charge, 1)
    return allowed


def _second_case(tree: Tree, ask: Ask, cross: Sequence[Unit], charge: Mapping[str, int], taken: frozenset[str]) -> bool:
    levels: set[QueueName] = set()
    for queue in {unit.gang.queue for unit in cross}:
        levels.update(below_common(tree, ask.gang.queue, queue), below_common(tree, queue, ask.gang.queue))
    before = _ratios(tree, levels, taken)
    allowed = True
    for unit in cross:
        allowed = allowed and donor_keeps(tree, ask, unit, taken)
        tree.charge(unit.gang.queue, unit.charge, -1)
    tree.charge(ask.gang.queue, charge)
    after = _ratios(tree, levels, taken)
    tree.charge(ask.gang.queue, charge, -1)
    for unit in cross:
        tree.charge(unit.gang.queue, unit.charge, 1)
    return allowed and after < before


def _ratios(tree: Tree, levels: Iterable[QueueName], resources: Iterable[str]) -> list[Fraction]:
    """Usage over share of each level in its dominant resource of these, the highest first."""
    judged = tuple(resources)
    ratios = []
    for level in levels:
        ratio = Fraction(0)
        for resource in judged:
            used = tree.usage[level].get(resource, 0)
            if used > 0 and tree.governed(level, resource):
                share = tree.shares.get(level, {}).get(resource, Fraction(0))
                ratio = max(ratio, Fraction(used) / share if share else Fraction(INFINITE))
        ratios.append(ratio)
    return sorted(ratios, reverse=True)
