"""Every set of units that may leave together, where these are few: each gang gives none, some of its surplus, or all of it."""

from collections.abc import Iterator, Sequence
from itertools import combinations, product

from muster.decide.fleet import Fleet
from muster.decide.preemption.victims import Unit, surplus_left, unit_of
from muster.model.units import GangKey

Choice = tuple[Unit, ...]


def choices(units: Sequence[Unit], fleet: Fleet, most: int) -> Iterator[Choice] | None:
    """The sets, the empty one among them; None when there are more than ``most``."""
    by_gang: dict[GangKey, list[Unit]] = {}
    for unit in units:
        by_gang.setdefault(unit.gang.key, []).append(unit)
    total = 1
    for mine in by_gang.values():
        total *= 2 ** sum(not unit.core for unit in mine) + 1
        if total > most:
            return None
    options = [_of_gang(mine, fleet) for mine in by_gang.values()]
    return (tuple(unit for part in parts for unit in part) for parts in product(*options))


def _of_gang(mine: Sequence[Unit], fleet: Fleet) -> list[Choice]:
    surplus = [unit for unit in mine if not unit.core]
    sets = [
        some
        for size in range(len(surplus) + 1)
        for some in combinations(surplus, size)
        if not some or surplus_left(some[0].gang, [member for unit in some for member in unit.members]) >= 0
    ]
    core = next((unit for unit in mine if unit.core), None)
    if core is None:
        return sets
    first = max(sets, key=len)  # surplus leaves before the gang ends
    gone = [member for unit in first for member in unit.members]
    rest = [member for member in core.members if member not in gone]
    if rest:
        last = core if not gone else unit_of(core.gang, rest, fleet, core=True)
        sets.append((*first, last._replace(lost=core.lost, restarts=core.restarts)))
    return sets
