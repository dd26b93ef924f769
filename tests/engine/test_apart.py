"""Gangs that the models cannot tell stay where the greedy put them; the solver still works for all others."""

import pytest

from muster.decide.placement.solver import solve_here
from muster.decide.placement.validate import validate
from muster.model.instructions import Place
from muster.model.pods import PodTerm, Requirement
from muster.model.policy import Policy, Solver
from tests.decide.build import gang, node, placed, role, run, snapshot

HOST = "kubernetes.io/hostname"
EXACT = Policy()
ENGINE = Policy(solver=Solver(exact_max_variables=0, batch_deterministic_seconds=0.05, wall_seconds=30))
ALONE = PodTerm(topology_key=HOST, labels=(Requirement(key="app", operator="In", values=("db",)),), anti=True)


def contended():
    """Four racks with 8, 8, 6 and 6 free cards, for gangs of 3 and of 8."""
    there = [
        node(f"n{number}", gpus=cards, labels={"rack": f"r{number}", HOST: f"n{number}"})
        for number, cards in enumerate((8, 8, 6, 6))
    ]
    jobs = [gang(f"small{number}", role(count=1, gpus=3), rack="rack", order=number) for number in range(4)]
    jobs += [gang(f"large{number}", role(count=2, gpus=4), rack="rack", order=10 + number) for number in range(2)]
    return there, jobs


def apart():
    """Two pods that must not share a node."""
    shape = {"namespace": "ns", "labels": (("app", "db"),), "pod_terms": (ALONE,), "cpu": 100}
    return gang("apart", role(count=2, **shape), order=20)


@pytest.mark.parametrize("policy", [pytest.param(EXACT, id="the exact model"), pytest.param(ENGINE, id="the engine")])
def test_one_gang_with_anti_affinity_does_not_switch_the_solver_off_for_the_others(policy):
    there, jobs = contended()
    solved = []

    def counting(model, parameters):
        solved.append(1)
        return solve_here(model, parameters)

    jobs.append(gang("third", role(count=2, gpus=4), rack="rack", order=12))
    state = snapshot(there, [*jobs, apart()])
    decision = run(state, policy=policy, solve=counting)
    assert solved
    places = [one for one in decision.instructions if isinstance(one, Place)]
    assert validate(state, places, levels=state.topology_levels) == []
    nodes = placed(decision)["apart"]
    assert len(set(nodes)) == 2
    alone = run(snapshot(there, jobs), policy=policy)
    assert len(placed(decision)) == 1 + len(placed(alone))
