"""Plans for random small clusters against every choice of victims, and what must hold of any plan.

In the suite a few hundred clusters; `python -m tests.decide.test_preemption_properties COUNT [FIRST]` looks at thousands, each
named by its seed, and tells how far plans are from the cheapest.
"""

import random
import sys
from itertools import chain, combinations

import msgspec
import pytest

from muster.decide.basis import start_of
from muster.decide.memory import CoreMemory, evicted, nominated
from muster.decide.placement.validate import validate
from muster.decide.preemption import plan_entry, propose, refusal, unsound
from muster.decide.preemption.allowances import Allowances
from muster.decide.preemption.candidates import Supply
from muster.decide.preemption.judging import Judge
from muster.decide.preemption.plans import Planner
from muster.decide.preemption.protection import Protection
from muster.decide.preemption.victims import surplus_left, unit_of
from muster.decide.preemption.world import world_of
from muster.model.budgets import Budget
from muster.model.gangs import MemberState, Timing
from muster.model.instructions import Place
from muster.model.policy import Actions, Fairness, Policy, Preemption
from tests.decide.build import CARD, gang, node, queue, role, snapshot, standing, whole

NOW = 100_000.0
POLICY = Policy(
    actions=Actions(preempt="act", reclaim="act"),
    fairness=Fairness(stability=0.0),
    preemption=Preemption(moved_per_gained=0.0),
)
MOST_UNITS = 11
QUICK = 250


def cluster(seed):
    """A small cluster with jobs on most of its cards, and one or two jobs that come."""
    draw = random.Random(seed)
    nodes = [
        node(f"n{i}", gpus=draw.choice((2, 3, 4)), labels={"rack": f"r{draw.randrange(2)}"}) for i in range(draw.randint(1, 3))
    ]  # fmt: skip
    queues = [
        queue(name, deserved=draw.choice(({}, {"gpu": CARD}, {"gpu": 2 * CARD}, {"gpu": 4 * CARD})),
            reclaimable=draw.random() < 0.9, priority=draw.choice((0, 0, 1)))
        for name in ("p", "q")
    ]  # fmt: skip
    free = {one.name: list(range(one.allocatable_cards)) for one in nodes}
    gangs = []
    for number in range(draw.randint(2, 6)):
        size = draw.choice((1, 1, 1, 2))
        members = []
        for pod in range(draw.randint(1, 3)):
            places = [name for name, cards in free.items() if len(cards) >= size]
            if not places or (draw.random() < 0.1 and members):
                break
            name = draw.choice(places)
            cards = [free[name].pop(0) for _ in range(size)]
            members.append(standing(f"g{number}-{pod}", name, cards=whole(*cards)))
        if members:
            gangs.append(
                gang(f"g{number}", role(count=0, gpus=size), minimum=draw.randint(1, len(members)), members=members,
                    queue=draw.choice(("p", "q")), priority=draw.randrange(3), order=number,
                    preemptible=draw.random() < 0.9,
                    timing=Timing(started=NOW - draw.choice((0, 600, 7200)), min_runtime=draw.choice((0, 0, 0, 300))))
            )  # fmt: skip
    for number in range(draw.choice((1, 1, 2))):
        roles = [role("w", count=draw.randint(1, 3), gpus=draw.choice((1, 2, 2)))]
        if draw.random() < 0.2:
            roles.append(role("d", count=1, gpus=1))
        gangs.append(
            gang(f"want{number}", *roles, queue=draw.choice(("p", "q")), priority=draw.randrange(4), order=10 + number,
                rack=draw.choice(("", "", "rack")))
        )  # fmt: skip
    budgets = ()
    if draw.random() < 0.2:
        pods = tuple(sorted(member.uid for one in gangs[:2] for member in one.members if member.node))
        budgets = (Budget(namespace="ns", name="b", allowed=draw.randrange(3), pods=pods),)
    return snapshot(nodes, gangs, queues, levels=("rack",), budgets=budgets)


def choices(units):
    """Every set of units that may leave together: surplus one by one, or the whole of a gang."""
    by_gang = {}
    for unit in units:
        by_gang.setdefault(unit.gang.key, []).append(unit)
    options = []
    for mine in by_gang.values():
        core = [unit for unit in mine if unit.core]
        surplus = [unit for unit in mine if not unit.core]
        sets = [
            some
            for size in range(len(surplus) + 1)
            for some in combinations(surplus, size)
            if surplus_left(mine[0].gang, [unit.members[0] for unit in some]) >= 0
        ]
        whole_gang = ()
        if core:
            spare = max(sets, key=len)
            gone = [unit.members[0] for unit in spare]
            rest = [member for member in core[0].members if member not in gone]
            whole_gang = (*spare, core[0]._replace(members=tuple(rest))) if rest else ()
        options.append([*sets, *([whole_gang] if whole_gang else [])])
    picked = [()]
    for option in options:
        picked = [(*before, *some) for before in picked for some in option]
    return picked


def rebuilt(unit, fleet):
    """A unit of which members were cut, with charge and rows as they are now."""
    return unit_of(unit.gang, unit.members, fleet, core=unit.core)._replace(lost=unit.lost, restarts=unit.restarts)


def optimum(state, policy=POLICY, now=NOW):
    """For each gang that needs a plan: the planner's cost, the least cost of any choice; None where there is none."""
    memory = CoreMemory()
    start = start_of(state)
    world = world_of(start, state, memory, now, policy)
    protection = Protection(world.fleet, memory=memory, now=now, policy=policy, tree=world.tree, named=world.named)
    supply = Supply(state.gangs, fleet=world.fleet, protection=protection, restarts={}, busy=world.busy, now=now)
    most = policy.preemption.moved_per_gained
    allowances = Allowances(state.budgets, world.named)
    for ask in world.asks.values():
        if world.settled.fits(ask, ()) is not None:
            continue
        units = supply.for_ask(ask, world.tree, preempt=True, reclaim=True)
        if not units or len(units) > MOST_UNITS:
            continue
        planner = Planner(world.trial, start.empty, ask, units, allowances=allowances, moved_per_gained=most)
        found = planner.best()
        judge = Judge(world.trial, ask, moved_per_gained=most)
        least = None
        for some in choices(units):
            one = [rebuilt(unit, world.fleet) for unit in some]
            landed = judge.landed(one) if one and not allowances.refuses(one) else None
            if landed is not None and judge.proportionate(one, landed):
                cost = planner.cost_of(one)
                least = cost if least is None or cost < least else least
        yield ask.gang.key, found.cost if found is not None else None, least


def assert_sound(state):
    """What must hold of the plans for a cluster, one after the other until there is none; judged without the planner."""
    memory = CoreMemory()
    open_plans = []
    for _ in range(4):
        proposal = propose(state, memory, NOW, POLICY)
        if proposal.plan is None:
            break
        plan = plan_entry(proposal, state, memory, NOW, POLICY)
        assert refusal(state, memory, NOW, POLICY, plan) == ""
        gone = {victim.uid for victim in plan.victims}
        after = msgspec.structs.replace(state, gangs=tuple(
            msgspec.structs.replace(one, members=tuple(m for m in one.members if m.uid not in gone)) for one in state.gangs
        ))  # fmt: skip
        place = Place(gang=plan.gang, gang_uid=plan.gang_uid, slots=plan.nominated[0].slots)
        assert validate(after, [place], levels=state.topology_levels) == []
        gangs = {one.key: one for one in state.gangs}
        for key in {victim.gang for victim in plan.victims}:
            victim = gangs[key]
            assert victim.preemptible
            assert not victim.timing.min_runtime or NOW - victim.timing.started >= victim.timing.min_runtime
            same_queue = victim.queue == gangs[plan.gang].queue
            assert not same_queue or victim.priority < gangs[plan.gang].priority
            left = [m for m in victim.members if m.state is MemberState.BOUND and m.uid not in gone]
            assert not left or len(left) >= victim.minimum
        nodes = {victim.node for victim in plan.victims} | {slot.node for slot in plan.nominated[0].slots}
        for other, others in open_plans:
            assert not nodes & others
            assert not gone & {victim.uid for victim in other.victims}
        open_plans.append((plan, nodes))
        memory = evicted(nominated(memory, proposal.nominations), plan, NOW)
        assert unsound(state, memory, NOW, POLICY, plan) == ""


@pytest.mark.parametrize("seed", range(QUICK))
def test_plans_are_sound_and_found_wherever_there_is_one(seed):
    state = cluster(seed)
    assert_sound(state)
    for key, cost, least in optimum(state):
        assert (cost is None) == (least is None), f"seed {seed}, {key}: found {cost}, there is {least}"
        assert cost is None or cost >= least, "no plan is cheaper than the cheapest"


def test_nearly_every_plan_is_the_cheapest_there_is():
    seen = list(chain.from_iterable(optimum(cluster(seed)) for seed in range(QUICK)))
    planned = [(cost, least) for _, cost, least in seen if cost is not None]
    assert len(planned) > QUICK // 5
    assert sum(cost == least for cost, least in planned) >= 0.97 * len(planned)


def main():
    """Look at many clusters, and say how often the plan was the cheapest."""
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    planned = equal = 0
    for seed in range(first, first + count):
        state = cluster(seed)
        try:
            assert_sound(state)
        except AssertionError as error:
            print(f"seed {seed}: {error}")
            raise
        for key, cost, least in optimum(state):
            if (cost is None) != (least is None):
                print(f"seed {seed}, {key}: found {cost}, there is {least}")
            if cost is not None and least is not None:
                planned += 1
                equal += cost == least
                if cost != least:
                    print(f"seed {seed}, {key}: {cost} against {least}")
    print(f"{count} clusters from seed {first}: {planned} plans, {equal} of them the cheapest there is")


if __name__ == "__main__":
    main()
