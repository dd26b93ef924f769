"""Whole decisions that go through the engine: never below the greedy, sound, the same on replay, names do not matter."""

import random

import msgspec
import pytest

from muster.decide.placement.solver import no_solver, solve_here
from muster.decide.placement.validate import validate
from muster.decide.scheduling import repair
from muster.model.instructions import Place
from muster.model.pods import NodeTerm, Requirement
from muster.model.policy import Policy, Solver
from tests.decide.build import CARD, gang, node, placed, queue, role, run, snapshot
from tests.engine.instances import state

ENGINE = Policy(solver=Solver(exact_max_variables=0, batch_deterministic_seconds=0.05, wall_seconds=30))


@pytest.fixture
def scores(monkeypatch):
    seen = []

    class Watched(repair.Problem):
        def exact(self, best, policy, solve):
            found = super().exact(best, policy, solve)
            seen.append((self.score(best), self.score(found)))
            return found

    monkeypatch.setattr(repair, "Problem", Watched)
    return seen


@pytest.mark.parametrize("awkward", [False, True], ids=["even sizes", "awkward sizes"])
def test_the_engine_is_never_below_the_best_greedy_and_its_plans_are_sound(scores, awkward):
    for seed in range(80):
        of = state(seed, awkward=awkward, nodes=9, gangs=10)
        decision = run(of, policy=ENGINE)
        places = [one for one in decision.instructions if isinstance(one, Place)]
        assert validate(of, places, levels=of.topology_levels) == []
        assert not any(getattr(one, "code", "") == "PLAN_REJECTED" for one in decision.instructions)
        assert {one.gang for one in decision.instructions} == {one.key for one in of.gangs}
    assert all(after >= before for before, after in scores)
    assert any(after > before for before, after in scores)


def test_the_same_snapshot_has_the_same_answer():
    for seed in range(15):
        of = state(seed, awkward=bool(seed % 2), nodes=9, gangs=10)
        assert run(of, policy=ENGINE) == run(of, policy=ENGINE)


def renamed(of, seed):
    """The same cluster with its nodes' names dealt out anew, hostname labels included."""
    new = [one.name for one in of.nodes]
    random.Random(seed).shuffle(new)
    names = {one.name: name for one, name in zip(of.nodes, new, strict=True)}
    return msgspec.structs.replace(
        of,
        nodes=tuple(
            msgspec.structs.replace(one, name=names[one.name], labels=one.labels | {HOSTNAME: names[one.name]})
            for one in of.nodes
        ),
        occupants=tuple(msgspec.structs.replace(one, node=names[one.node]) for one in of.occupants),
    )


def told_without_names(of, decision):
    """A plan with each node named by what it is: where every role of every gang went, with its cards."""
    busy = {one.node: (one.request, one.cards) for one in of.occupants}
    kind = {
        one.name: repr(
            (sorted((k, v) for k, v in one.labels.items() if k != HOSTNAME), one.cpu, one.cards, busy.get(one.name))
        )
        for one in of.nodes
    }
    on = {}
    for place in decision.instructions:
        for slot in place.slots if isinstance(place, Place) else ():
            on.setdefault(slot.node, []).append((place.gang, slot.role, tuple(use.index for use in slot.cards)))
    return sorted((kind[name], sorted(pods)) for name, pods in on.items())


HOSTNAME = "kubernetes.io/hostname"
NAMELESS = {
    "the exact model": Policy(),
    "the engine, one whole problem": ENGINE,
    "the engine, subset after subset": Policy(
        solver=msgspec.structs.replace(ENGINE.solver, batch_max_variables=0, batch_subset_domains=1)
    ),
    "the greedy alone": Policy(solver=Solver(enabled=False)),
}


@pytest.mark.parametrize("policy", NAMELESS.values(), ids=NAMELESS)
@pytest.mark.parametrize("awkward", [False, True], ids=["even sizes", "awkward sizes and shares"])
def test_other_node_names_give_the_same_plan_but_for_the_names(policy, awkward):
    """Equal in everything that the objective counts (gangs by tier, nodes opened, domains used, what is left of each node).

    Nodes that are alike in labels, kind and free room may stand for each other: all that may differ is which of those is named.
    """
    for seed in range(25):
        of = renamed(state(seed, awkward=awkward, nodes=9, gangs=10), 0)
        other = renamed(of, seed + 1)
        assert told_without_names(of, run(of, policy=policy)) == told_without_names(other, run(other, policy=policy)), (
            seed
        )


def racks(nodes):
    return [
        node(name, gpus=gpus, cpu=cpu, labels={"zone": "z", "block": "b", "rack": rack})
        for name, gpus, cpu, rack in nodes
    ]


def test_three_card_pods_find_the_three_free_cards_that_no_slot_of_four_tells():
    nodes = [node("a", gpus=3), node("b", gpus=8)]
    gangs = [gang("x", role(count=2, gpus=4)), gang("y", role(gpus=3), order=1), gang("z", role(gpus=8), order=2)]
    assert set(placed(run(snapshot(nodes, gangs), policy=ENGINE))) == {"x", "y"}


def test_a_cpu_hungry_role_is_placed_by_true_capacity_and_does_not_shrink_the_nodes_for_others():
    nodes = racks([(f"n{i}", 8, 64_000, f"r{i // 2}") for i in range(4)])
    gangs = [
        gang("hungry", role(count=2, gpus=1, cpu=60_000), order=0),
        gang("big", role(count=2, gpus=8, cpu=8_000), rack="rack", order=1),
        gang("small", role(count=4, gpus=2, cpu=1_000), order=2),
        gang("late", role(count=2, gpus=8, cpu=1_000), rack="rack", order=3),
    ]
    decision = run(snapshot(nodes, gangs), policy=ENGINE)
    assert set(placed(decision)) >= {"hungry", "big"}
    assert len(placed(decision)) == 3


def test_a_node_short_of_cpu_still_takes_pods_that_need_little():
    nodes = racks([("full", 8, 64_000, "r0"), ("short", 8, 4_000, "r1")])
    gangs = [
        gang("wide", role(count=2, gpus=4, cpu=16_000), order=0),
        gang("slim", role(count=4, gpus=2, cpu=1_000), order=1),
        gang("more", role(count=1, gpus=8, cpu=16_000), order=2),
    ]
    assert set(placed(run(snapshot(nodes, gangs), policy=ENGINE))) == {"wide", "slim"}


RICH = (NodeTerm(labels=(Requirement(key="pool", operator="In", values=("rich",)),), weight=10),)
IN_POOL = (NodeTerm(labels=(Requirement(key="pool", operator="In", values=("rich", "poor")),)),)


def slim(name, count, order):
    """Pods that need little CPU and like to be where there is much."""
    return gang(name, role(count=count, gpus=1, cpu=1_000, preferred_nodes=RICH, required_nodes=IN_POOL), order=order)


def rich_and_poor():
    return [
        node("rich", gpus=8, cpu=64_000, labels={"pool": "rich"}),
        node("poor", gpus=8, cpu=8_000, labels={"pool": "poor"}),
    ]


def test_a_cpu_hungry_pod_is_let_in_by_moving_pods_that_need_little_to_a_node_short_of_cpu():
    nodes = [*rich_and_poor(), node("cpu", cpu=1_000_000)]
    hungry = gang("hungry", role(gpus=2, cpu=64_000), order=2)
    of = snapshot(nodes, [slim("large", 5, 0), hungry, slim("small", 1, 1)])
    assert set(placed(run(of, policy=ENGINE, solve=no_solver))) == {"large", "small"}, "no order of the greedy finds it"
    found = placed(run(of, policy=ENGINE))
    assert found == {"large": ["poor"] * 5, "small": ["poor"], "hungry": ["rich"]}


def test_the_cards_of_a_node_short_of_cpu_are_used_though_slots_do_not_tell_them():
    others = [node(f"other{number:02}", gpus=8, cpu=640_000) for number in range(90)]
    wide = gang("wide", role(gpus=4, cpu=64_000, required_nodes=IN_POOL), order=2)
    of = snapshot([*rich_and_poor(), *others], [slim("large", 5, 0), wide, slim("small", 1, 1)])
    assert set(placed(run(of, policy=ENGINE, solve=no_solver))) == {"large", "small"}, "no order of the greedy finds it"
    found = placed(run(of, policy=ENGINE))
    assert found == {"large": ["poor"] * 5, "small": ["poor"], "wide": ["rich"]}


def test_mending_keeps_to_what_a_queue_may_take():
    nodes = [*rich_and_poor(), node("cpu", cpu=1_000_000)]
    hungry = gang("hungry", role(gpus=2, cpu=64_000), order=2)
    for cards, expected in ((8, {"large", "hungry", "small"}), (7, {"large", "small"})):
        limited = queue(capability={"gpu": cards * CARD})
        of = snapshot(nodes, [slim("large", 5, 0), hungry, slim("small", 1, 1)], queues=[limited])
        assert set(placed(run(of, policy=ENGINE))) == expected


def test_a_head_without_cards_follows_its_workers_into_the_rack():
    nodes = racks([("a", 8, 64_000, "r0"), ("b", 8, 64_000, "r1"), ("c", 0, 64_000, "r1")])
    gangs = [
        gang("first", role(count=1, gpus=4), order=0),
        gang("job", role("head", minimum=1, cpu=60_000), role("w", count=1, gpus=8, cpu=10_000), rack="rack", order=1),
    ]
    found = placed(run(snapshot(nodes, gangs), policy=ENGINE))
    assert found == {"first": ["a"], "job": ["b", "c"]}


def test_without_a_solver_the_greedy_answers():
    for seed in range(5):
        of = state(seed, nodes=9, gangs=10)
        first = run(of, policy=ENGINE, solve=no_solver)
        assert len(placed(run(of, policy=ENGINE, solve=solve_here))) >= min(1, len(placed(first)))
