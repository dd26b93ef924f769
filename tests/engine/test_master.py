"""The slot-profile model: its optimum is the node-level model's, its hint holds, what it promises is found on nodes."""

import numpy as np
import pytest

from muster.decide.placement.engine.budget import Budget
from muster.decide.placement.engine.expand_profile import arrange, rows_of
from muster.decide.placement.engine.master import Master, Region
from muster.decide.placement.engine.search import improve
from muster.decide.placement.greedy import Greedy
from muster.decide.placement.solver import parameters_of, solve_here
from muster.model.policy import Packing, Solver
from tests.engine.instances import batch_of, exact_of, state, value_of

GENEROUS = Solver(
    deterministic_seconds=5.0,
    batch_deterministic_seconds=5.0,
    batch_step_seconds=5.0,
    batch_max_variables=100_000,
    wall_seconds=60,
)


def unplaced(batch, plan):
    return [number for number in range(len(batch.demands.entries)) if number not in plan.placed]


def everything(batch, plan, **more):
    whole = np.ones(batch.pools.total, dtype=bool)
    return Region(whole, unplaced(batch, plan), range(len(batch.demands.bags)), **more)


@pytest.mark.parametrize("block", range(10))
def test_the_optimum_of_slot_profiles_is_that_of_the_node_level_model(block):
    for seed in range(block * 22, block * 22 + 22):
        of = state(seed)
        batch = batch_of(of, fixed=seed % 3)
        assert not batch.demands.aside, "sizes that divide each other and little cpu are all told in slots"
        found = improve(batch, batch.first_plan(), Budget(GENEROUS), GENEROUS, solve_here)
        exact, items = exact_of(of, fixed=seed % 3)
        best = exact.solve(GENEROUS, solve_here)
        assert best is not None
        value = {item.ask.gang.key: item.value for item in items}
        assert value_of(batch, found) == sum(value[key] for key in best), seed
        assert batch.wrong(found) == []


@pytest.mark.parametrize("awkward", [False, True], ids=["even sizes", "awkward sizes"])
def test_the_hint_is_complete_and_feasible_in_the_whole_model_and_in_every_subset(awkward):
    for seed in range(40):
        batch = batch_of(state(seed, awkward=awkward))
        plan = batch.first_plan()
        assert batch.wrong(plan) == [], seed
        if not batch.pools.total:
            continue
        half = np.zeros(batch.pools.total, dtype=bool)
        half[:: 1 + seed % 3] = True
        for region in (
            everything(batch, plan),
            everything(batch, plan, most_domains=1, turn=seed),
            Region(half, unplaced(batch, plan), range(len(batch.demands.bags)), 2, seed),
            Region(half, (), ()),
        ):
            proto = Master(batch, plan, region).proto()
            if not len(proto.variables):
                continue
            parameters = parameters_of(Solver())
            parameters.fix_variables_to_their_hinted_value = True
            response = solve_here(proto, parameters)
            assert "OPTIMAL" in str(response.status) or "FEASIBLE" in str(response.status), (seed, response.status)
            assert "INFEASIBLE" not in str(response.status), seed
            assert len(proto.solution_hint.vars) == len(proto.variables)


@pytest.mark.parametrize("awkward", [False, True], ids=["even sizes", "awkward sizes"])
def test_what_the_profile_promises_is_found_on_nodes_by_true_capacity(awkward):
    policy = Solver(batch_max_variables=0, batch_subset_domains=1, batch_deterministic_seconds=0.05)
    for seed in range(60):
        of = state(seed, awkward=awkward)
        batch = batch_of(of)
        plan = improve(batch, batch.first_plan(), Budget(policy), policy, solve_here)
        assert batch.wrong(plan) == [], seed
        rows = rows_of(batch, plan)
        loads = batch.loads(plan)
        assert sum(map(len, rows.values())) == sum(int(load.sum()) for load in loads.values())
        standing = arrange(batch, plan, Greedy(batch.room, Packing()))
        assert (batch.room.free >= 0).all(), seed
        assert (batch.room.whole_free >= 0).all(), seed
        for ask, landed in standing.values():
            assert len(landed) >= ask.minimum
            assert all(
                len(one.cards) == ask.roles[one.role].shape.request.cards
                for one in landed
                if not ask.roles[one.role].shape.request.share
            )


def test_subsets_never_lose_what_was_admitted_and_gain_as_rounds_go_on():
    policy = Solver(batch_max_variables=0, batch_subset_domains=2, batch_deterministic_seconds=0.1)
    gained = 0
    for seed in range(30):
        batch = batch_of(state(seed, nodes=9, gangs=10))
        first = batch.first_plan()
        found = improve(batch, first, Budget(policy), policy, solve_here)
        assert value_of(batch, found) >= value_of(batch, first)
        gained += value_of(batch, found) > value_of(batch, first)
    assert gained >= 3


def test_a_domain_that_only_all_its_pools_together_hold_is_a_candidate():
    from tests.decide.build import gang, node, role, snapshot

    nodes = [node(f"n{i}", gpus=8, labels={"zone": "z", "block": "b", "rack": f"r{i}", "m": "ab"[i]}) for i in range(2)]
    of = snapshot(nodes, [gang("h", role(gpus=8), rack="rack"), gang("g", role(count=2, gpus=8), rack="block")])
    batch = batch_of(of)
    assert batch.pools.total == 2
    empty = batch.first_plan()._replace(placed={})
    found = improve(batch, empty, Budget(GENEROUS), GENEROUS, solve_here)
    assert list(found.placed) == [1]


def test_pools_where_pods_stay_are_not_merged_with_others():
    """One of the two free cards of `a` is taken by a pod that stays: merged with `b` and `c` it would look free for a pod of two."""
    from muster.model.snapshot import Occupant
    from tests.decide.build import gang, node, request, role, snapshot, whole

    used = {"a": 2, "b": 2, "c": 1, "d": 3}
    nodes = [node(n, gpus=4, labels={"zone": "z", "block": "b", "rack": {"c": "b"}.get(n, n)}) for n in used]
    busy = tuple(
        Occupant(uid=n, key=f"x/{n}", node=n, request=request(gpus=count), cards=whole(*range(count)))
        for n, count in used.items()
    )
    waiting = [gang("stays", role(count=2, gpus=1), prefer="rack")]
    waiting += [gang(f"two{i}", role(gpus=2), order=i + 1) for i in range(3)]
    batch = batch_of(snapshot(nodes, waiting, occupants=busy))
    pool = {n: int(batch.pools.of_row[row]) for row, n in enumerate("abcd")}
    plan = batch.first_plan()
    empty = {kind: np.zeros_like(flow) for kind, flow in plan.flows.items()}
    plan = plan._replace(placed={0: {(0, pool["a"]): 1, (0, pool["d"]): 1}}, admitted=(0, 0, 0), flows=empty)
    assert batch.wrong(plan) == []
    region = np.ones(batch.pools.total, dtype=bool)
    region[pool["d"]] = False
    found, _ = Master(batch, plan, Region(region, (), range(3))).solve(Budget(GENEROUS).parameters(), solve_here)
    assert found is not None
    assert batch.wrong(found) == []
    assert sum(found.admitted) == 2
    assert len(rows_of(batch, found)) == 2
