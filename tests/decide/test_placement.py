"""Whole decisions: gangs whole or not at all, orders that do not matter, the exact model never below the greedy."""

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.asks import ask_of
from muster.decide.fleet import Fleet
from muster.decide.memory import CoreMemory
from muster.decide.placement.exact import Exact, Item
from muster.decide.placement.greedy import Greedy
from muster.decide.placement.solver import no_solver, solve_here
from muster.decide.placement.validate import validate
from muster.decide.room import Room
from muster.model.gangs import MemberState
from muster.model.instructions import Place
from muster.model.policy import Packing, Policy, Solver
from tests.decide.build import CARD, gang, node, placed, queue, reasons, role, run, snapshot

roles = st.builds(
    lambda name, count, minimum, kind, rack: role(name, count=count, minimum=min(minimum, count), rack=rack, **kind),
    name=st.sampled_from("abc"),
    count=st.integers(1, 3),
    minimum=st.integers(0, 2),
    kind=st.sampled_from(
        [
            {"cpu": 1000},
            {"cpu": 3000},
            {"gpus": 1},
            {"gpus": 2, "cpu": 1000},
            {"mib": 400, "core": 30},
            {"mib": 700},
            {"core": 50},
        ]
    ),
    rack=st.sampled_from(["", "", "rack"]),
)


@st.composite
def states(draw):
    nodes = [
        node(
            f"n{number}",
            cpu=draw(st.sampled_from([2000, 4000, 8000])),
            gpus=draw(st.integers(0, 3)),
            card_mib=1000,
            max_pods=draw(st.sampled_from([3, 110])),
            labels={"zone": "z", "block": "b", "rack": f"r{draw(st.integers(0, 1))}"},
        )
        for number in range(draw(st.integers(1, 4)))
    ]
    gangs = []
    for number in range(draw(st.integers(1, 4))):
        parts = {one.name: one for one in draw(st.lists(roles, min_size=1, max_size=3))}
        total = sum(one.replicas for one in parts.values())
        gangs.append(
            gang(
                f"g{number}",
                *parts.values(),
                minimum=draw(st.integers(1, total)),
                queue=draw(st.sampled_from(["q", "p"])),
                priority=draw(st.sampled_from([0, 0, 10])),
                order=number,
                rack=draw(st.sampled_from(["", "", "rack", "block"])),
            )
        )
    limit = draw(st.sampled_from([{}, {"gpu": 2 * CARD}, {"cpu": 4000}]))
    return snapshot(nodes, gangs, queues=[queue("q", capability=limit), queue("p")])


def size(decision):
    return sum(len(one.slots) for one in decision.instructions if isinstance(one, Place))


@settings(max_examples=60, deadline=None)
@given(states(), st.randoms(use_true_random=False))
def test_a_decision_is_whole_sound_and_does_not_depend_on_the_order_of_nodes_or_gangs(state, random):
    decision = run(state)
    gangs = {one.key: one for one in state.gangs}
    for place in decision.instructions:
        if isinstance(place, Place):
            assert len(place.slots) >= gangs[place.gang].minimum
    places = [one for one in decision.instructions if isinstance(one, Place)]
    assert validate(state, places, levels=state.topology_levels) == []
    assert not any(one.code == "PLAN_REJECTED" for one in reasons(decision).values())
    said = {one.gang for one in decision.instructions}
    assert said == set(gangs), "every gang is placed or told why it waits"
    nodes, others = list(state.nodes), list(state.gangs)
    random.shuffle(nodes)
    random.shuffle(others)
    again = run(msgspec.structs.replace(state, nodes=tuple(nodes), gangs=tuple(others)))
    assert sorted(decision.instructions, key=str) == sorted(again.instructions, key=str)
    assert run(state) == decision


@settings(max_examples=25, deadline=None)
@given(states())
def test_the_exact_model_accepts_the_greedys_answer_as_a_hint_and_never_ends_below_it(state):
    fleet = Fleet(state.nodes, state.topology_levels)
    room = Room(fleet)
    hint, items = {}, []
    for one in state.gangs:
        ask = ask_of(one)
        landed = Greedy(room, Packing()).minimum(ask)
        items.append(Item(ask, fixed=False, value=1))
        if landed is not None:
            hint[one.key] = landed
    room = Room(fleet)
    exact = Exact(room, items, limits=[], hint=hint, blocked={})
    assert exact.check_hint() == []
    found = Exact(Room(fleet), items, limits=[], hint=hint, blocked={}).solve(Solver(), solve_here)
    assert found is not None
    assert len(found) >= len(hint)


@settings(max_examples=25, deadline=None)
@given(states())
def test_with_the_solver_no_fewer_pods_of_the_highest_priority_start_than_without(state):
    def top(decision):
        highest = max(one.priority for one in state.gangs)
        keys = {one.key for one in state.gangs if one.priority == highest}
        return sum(1 for one in decision.instructions if isinstance(one, Place) and one.gang in keys)

    if len({one.queue for one in state.gangs}) == 1:
        assert top(run(state)) >= min(1, top(run(state, solve=no_solver)))


def test_a_small_pod_first_does_not_block_the_large_one_of_its_gang():
    nodes = [node("a", cpu=53_000), node("b", cpu=31_000)]
    state = snapshot(nodes, [gang("g", role("x", cpu=30_000), role("y", cpu=50_000))])
    assert placed(run(state)) == {"g": ["a", "b"]}


def test_a_first_gang_moves_over_when_only_the_second_needs_its_place():
    nodes = [node("a", cpu=53_000), node("b", cpu=60_000)]
    gangs = [gang("x", role(cpu=30_000)), gang("y", role(cpu=56_000), order=1)]
    assert placed(run(snapshot(nodes, gangs))) == {"x": ["a"], "y": ["b"]}
    tight = [
        gang("x", role(cpu=30_000), order=0),
        gang("y", role("y", cpu=31_000), role("z", cpu=22_000), order=1),
        gang("v", role(cpu=30_000), order=2),
    ]
    assert len(placed(run(snapshot(nodes, tight)))) == 3


HARD = [("p", 3000), ("q", 2000), ("r", 4000)]


def hard_gang():
    nodes = [node("a", cpu=9000), node("b", cpu=9000)]
    return snapshot(nodes, [gang("g", *(role(name, count=2, cpu=cpu) for name, cpu in HARD))])


def test_a_gang_of_many_sizes_that_defeats_the_greedy_is_placed_by_the_exact_model():
    assert placed(run(hard_gang(), solve=no_solver)) == {}
    assert len(placed(run(hard_gang()))["g"]) == 6


def test_a_problem_that_could_not_be_solved_is_not_solved_again_while_nothing_changed():
    nodes = [node("a", cpu=9000), node("b", cpu=9000)]
    state = snapshot(nodes, [gang("g", role("p", count=2, cpu=5000), role("q", count=3, cpu=3000))])
    calls = []

    def counting(model, parameters):
        calls.append(1)
        return solve_here(model, parameters)

    first = run(state, solve=counting)
    assert placed(first) == {}
    assert len(calls) == 1
    second = run(state, memory=first.memory, solve=counting)
    assert len(calls) == 1
    assert reasons(second)["g"].code == "NOT_ENOUGH_ROOM"
    larger = msgspec.structs.replace(state, nodes=(*nodes, node("c", cpu=3000)))
    assert len(placed(run(larger, memory=second.memory, solve=counting))["g"]) == 5


def test_what_a_lower_priority_holds_in_this_round_gives_way_to_a_higher_one_of_its_queue():
    nodes = [node("a", gpus=2), node("b", gpus=1)]
    gangs = [gang("high", role("x", gpus=2), priority=10, order=2), gang("low", role("x", count=3, gpus=1), order=1)]
    assert placed(run(snapshot(nodes, gangs))) == {"high": ["a"]}


def test_spare_pods_wait_until_every_minimum_has_been_served():
    gangs = [
        gang("a", role(count=4, gpus=1), minimum=1, priority=9),
        gang("b", role(count=2, gpus=1), minimum=2, order=1),
    ]
    assert placed(run(snapshot([node(gpus=4)], gangs))) == {"a": ["n1", "n1"], "b": ["n1", "n1"]}


def test_a_card_is_never_given_above_its_memory_or_core():
    gangs = [gang(f"g{i}", role(mib=300, core=60), order=i) for i in range(3)]
    decision = run(snapshot([node(gpus=2, card_mib=1000)], gangs))
    assert sorted(placed(decision)) == ["g0", "g1"]
    assert reasons(decision)["g2"].code == "BEHIND"


def test_a_back_off_of_node_and_shape_sends_the_pod_elsewhere():
    from muster.decide.memory import node_refused

    state = snapshot([node("a", gpus=1), node("b", gpus=4)], [gang("g", role(gpus=1))])
    assert placed(run(state)) == {"g": ["a"]}
    policy = Policy()
    shape = state.gangs[0].roles[0].shape
    memory = node_refused(CoreMemory(), "a", shape, now=100.0, timeouts=policy.timeouts)
    assert placed(run(state, memory=memory, now=101.0)) == {"g": ["b"]}
    assert placed(run(state, memory=memory, now=100.0 + policy.timeouts.backoff_initial)) == {"g": ["a"]}


def test_the_room_after_a_decision_equals_its_recomputation():
    state = snapshot(
        [node(gpus=4), node("n2", gpus=2)], [gang("g", role(count=3, gpus=1)), gang("h", role(mib=9, core=10))]
    )
    decision = run(state)
    slots = {slot.uid: slot for place in decision.instructions for slot in place.slots}
    shapes = {m.uid: one.roles[0].shape for one in state.gangs for m in one.members}
    assert slots.keys() == shapes.keys()
    expected = Room.of(state)
    for uid, slot in slots.items():
        expected.take(expected.fleet.row_of[slot.node], shapes[uid].request, slot.cards)

    def bound(member):
        slot = slots[member.uid]
        return msgspec.structs.replace(member, state=MemberState.BOUND, node=slot.node, cards=slot.cards)

    gangs = [msgspec.structs.replace(one, members=tuple(map(bound, one.members))) for one in state.gangs]
    after = Room.of(msgspec.structs.replace(state, gangs=tuple(gangs)))
    for name in ("free", "card_memory", "card_core", "card_users", "whole_free"):
        assert np.array_equal(getattr(after, name), getattr(expected, name)), name
