"""The search: the whole model where it is small, then subset after subset of racks until the budget is used up.

    subset      random units (racks), or all units of one or two wider domains when gangs that wish such a level wait
    inside      every pod may move; at most so many waiting gangs and bags are added; what crosses the border stays
    sweep       units are dealt once; a sweep without gain doubles the subset

Random numbers come from a fixed seed, so the same batch goes the same way.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from muster.decide.fleet import Ints, Mask
from muster.decide.placement.engine.budget import Budget
from muster.decide.placement.engine.master import Master, Region
from muster.decide.placement.engine.plan import Batch, Plan
from muster.decide.placement.engine.profile import met
from muster.decide.placement.solver import Solve
from muster.model.policy import Solver

SEED = 20_260_101


def improve(batch: Batch, plan: Plan, budget: Budget, policy: Solver, solve: Solve) -> Plan:
    """The best plan found within the budget; never a worse one than that given."""
    if not batch.pools.total or not _waiting(batch, plan):
        return plan
    plan, proven = _whole(batch, plan, budget, policy, solve)
    if proven:
        return plan
    return _subsets(batch, plan, budget, policy, solve)


def _waiting(batch: Batch, plan: Plan) -> bool:
    bags = zip(batch.demands.bags, plan.admitted, strict=True)
    return len(plan.placed) < len(batch.demands.entries) or any(now < len(bag.items) for bag, now in bags)


def _whole(batch: Batch, plan: Plan, budget: Budget, policy: Solver, solve: Solve) -> tuple[Plan, bool]:
    """The model over all pools where it is small enough; whether the search ends with it: proven, or nobody solves."""
    everything = np.ones(batch.pools.total, dtype=np.bool_)
    most = policy.batch_max_variables
    bags = range(len(batch.demands.bags))
    master = Master(batch, plan, Region(everything, _unplaced(batch, plan), bags, most_variables=most))
    if master.variables > most:
        return plan, False
    found, response = master.solve(budget.parameters(), solve)
    budget.spend(response, master.variables)
    if response is None:
        return plan, not master.trivial
    return found or plan, _optimal(response)


def _optimal(response: object) -> bool:
    from ortools.sat.python import cp_model

    return bool(int(response.status) == int(cp_model.OPTIMAL))  # type: ignore[attr-defined]


def _unplaced(batch: Batch, plan: Plan) -> list[int]:
    return [number for number in range(len(batch.demands.entries)) if number not in plan.placed]


def _subsets(batch: Batch, plan: Plan, budget: Budget, policy: Solver, solve: Solve) -> Plan:
    draw = np.random.default_rng(SEED)
    size = policy.batch_subset_domains
    idle = 0
    while budget.lasts():
        start = plan
        dealt = list(_deal(batch, plan, size, draw))
        for number, inside in enumerate(dealt):
            if not budget.lasts():
                break
            region = Region(
                inside,
                _some(_unplaced(batch, plan), policy.batch_subset_gangs, draw),
                _some(_hungry(batch, plan), policy.batch_subset_gangs, draw),
                policy.batch_entry_domains,
                number,
            )
            master = Master(batch, plan, region)
            if not master.hopeful:
                budget.spend(None, master.variables)
                continue
            found, response = master.solve(budget.parameters(ahead=len(dealt) - number), solve)
            budget.spend(response, master.variables)
            if response is None and not master.trivial:
                return plan  # no solver here, or it was stopped
            plan = found or plan
        if plan is start:
            idle += 1
            size *= 2
            if idle > 3 or size > 4 * int(batch.pools.unit.max() + 1):
                break
        else:
            idle = 0
    return plan


def _hungry(batch: Batch, plan: Plan) -> list[int]:
    bags = enumerate(zip(batch.demands.bags, plan.admitted, strict=True))
    return [number for number, (bag, now) in bags if now < len(bag.items)]


def _some(numbers: Sequence[int], most: int, draw: np.random.Generator) -> list[int]:
    if len(numbers) <= most:
        return list(numbers)
    return sorted(int(numbers[one]) for one in draw.permutation(len(numbers))[:most])


def _deal(batch: Batch, plan: Plan, size: int, draw: np.random.Generator) -> Iterator[Mask]:
    """Subsets of pools of one sweep."""
    yield from _groups(batch.pools.unit, size, draw)
    wider = {
        entry.required
        for number, entry in enumerate(batch.demands.entries)
        if entry.required is not None and number not in plan.placed
    }
    for level in sorted(wider):
        codes = batch.pools.required[level]
        codes = np.where(codes < 0, -1, met(codes))
        units_each = len(np.unique(batch.pools.unit)) / max(1, len(np.unique(codes)))
        if units_each > 1.5:
            yield from _groups(codes, max(1, round(1.5 * size / units_each)), draw)


def _groups(codes: Ints, size: int, draw: np.random.Generator) -> Iterator[Mask]:
    known = np.unique(codes[codes >= 0])
    order = draw.permutation(known)
    for start in range(0, len(order), size):
        yield np.isin(codes, order[start : start + size])
