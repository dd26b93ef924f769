"""A batch through the slot-profile engine and back: admission values as small integers, the plan on nodes, the fix-up.

    fix-up    what the profile could not tell, or left out, by the true-capacity greedy, under every limit

What comes back is a whole arrangement of the round; whether it is better is judged by whoever asked (`repair`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from muster.decide.asks import Ask
from muster.decide.placement.engine.budget import Budget
from muster.decide.placement.engine.expand_profile import arrange
from muster.decide.placement.engine.plan import Batch
from muster.decide.placement.engine.search import improve
from muster.decide.placement.exact import Item, Limit
from muster.decide.placement.greedy import Landed
from muster.decide.placement.solver import Solve
from muster.decide.scheduling.state import Round, Saved
from muster.decide.shares import Amounts
from muster.model.policy import Solver
from muster.model.units import GangKey

VALUE_SUM = 1 << 20
"""Values are scaled so that all together stay below this, per level: objectives stay exact in the solver's floating point."""


def solve_batch(
    work: Round,
    items: Sequence[Item],
    *,
    upper: set[GangKey],
    limits: Sequence[Limit],
    best: Saved,
    kept: Collection[GangKey] = (),
    beside: Sequence[Ask] = (),
    policy: Solver,
    solve: Solve,
) -> Saved | None:
    """The best arrangement that the engine found from ``best``, or None when it found nothing better.

    ``upper`` are the gangs of which any is worth more than all others together; ``limits`` are what these gangs may take.
    Gangs of ``best`` that are ``kept`` stay where they are; those ``beside`` are tried in the fix-up alone. Neither is an item.
    """
    work.reset_but(best, kept)
    room = work.room
    landed = {key: pods for key, pods in best.landed.items() if key not in kept}
    charges = {key: work.charge_of(best.asks[key], pods) for key, pods in landed.items()}
    mark = room.mark()
    batch = Batch(
        room,
        _scaled(items, upper),
        limits=limits,
        landed=landed,
        charges=charges,
        blocked=work.blocked,
    )
    plan = batch.first_plan()
    pods = sum(item.ask.minimum for item in items)
    found = improve(batch, plan, Budget(policy, pods=pods), policy, solve)
    if found is plan:
        room.rollback(mark)
        return None
    standing = arrange(batch, found, work.greedy())
    for item in batch.demands.aside:
        key = item.ask.gang.key
        if key in landed:
            standing[key] = item.ask, list(landed[key])
    _keep(work, items, standing)
    fix_up(work, [*(item.ask for item in items), *beside], limits, kept=kept)
    return work.save()


def _scaled(items: Sequence[Item], upper: set[GangKey]) -> list[Item]:
    """The same order of worth in small integers; one of the upper level above all of the lower together."""
    high = _small({item.ask.gang.key: item.value for item in items if item.ask.gang.key in upper})
    low = _small({item.ask.gang.key: item.value for item in items if item.ask.gang.key not in upper})
    above = 1 + sum(low.values())
    return [
        item._replace(value=high[item.ask.gang.key] * above if item.ask.gang.key in upper else low[item.ask.gang.key])
        for item in items
    ]


def _small(values: Mapping[GangKey, int]) -> dict[GangKey, int]:
    total = sum(values.values())
    if total <= VALUE_SUM:
        return dict(values)
    return {key: max(1, value * VALUE_SUM // total) for key, value in values.items()}


def _keep(work: Round, items: Iterable[Item], standing: Mapping[GangKey, tuple[Ask, list[Landed]]]) -> None:
    """Charge what stands, gangs that must stay first; what a capability or a guarantee forbids is given back."""
    for item in sorted(items, key=lambda one: not one.fixed):
        key = item.ask.gang.key
        if key not in standing:
            continue
        ask, landed = standing[key]
        if work.keep(ask, landed):
            continue
        for one in landed:
            shape = ask.roles[one.role].shape
            work.room.give(one.row, shape.request, one.cards, ports=shape.host_ports, kind=shape.kind)


def fix_up(work: Round, asks: Iterable[Ask], limits: Sequence[Limit], *, kept: Collection[GangKey] = ()) -> None:
    """Place what still waits by true capacity, in the order given, where no limit is broken by it.

    What the ``kept`` gangs take is not in the limits any more.
    """
    by_gang: dict[GangKey, list[int]] = {}
    for number, limit in enumerate(limits):
        for key in limit.gangs:
            by_gang.setdefault(key, []).append(number)
    left = [limit.amount for limit in limits]

    def take(ask: Ask, charge: Amounts) -> None:
        for number in by_gang.get(ask.gang.key, ()):
            left[number] -= charge.get(limits[number].resource, 0)

    for key, landed in work.landed.items():
        if key not in kept:
            take(work.asks[key], work.charge_of(work.asks[key], landed))
    for ask in asks:
        key = ask.gang.key
        if key in work.landed:
            continue
        before = work.room.mark()
        if not work.admit(ask):
            continue
        charge = work.charge_of(ask, work.landed[key])
        if any(left[number] < charge.get(limits[number].resource, 0) for number in by_gang.get(key, ())):
            work.room.rollback(before)
            work.tree.charge(ask.gang.queue, charge, -1)
            del work.landed[key], work.asks[key]
            continue
        take(ask, charge)
