import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.fleet import Fleet
from muster.decide.memory import CoreMemory, mix_key, request_of_mix
from muster.decide.placement.fragmentation import Mix, card_costs, expected_loss, mix_of, row_costs
from muster.decide.room import Room
from muster.model.nodes import CardMode
from muster.model.pods import CardUse, Shape
from tests.decide.build import GIB, gang, node, request, role, run, snapshot, whole

MIB = 1000


def room_of(*nodes):
    return Room(Fleet(nodes))


def gpu_node(name="n1", *, gpus=1, cpu=64_000, **more):
    return node(name, gpus=gpus, card_mib=MIB, cpu=cpu, **more)


def loss(room, mix):
    return expected_loss(room, mix, np.arange(room.fleet.size)).tolist()


def share(mib, **more):
    return request(mib=mib, **more)


def card(mib, index=0):
    return (CardUse(index=index, memory_mib=mib),)


@pytest.mark.parametrize(
    ("nodes", "asked", "lost"),
    [
        pytest.param({"gpus": 2}, {"gpus": 1}, 0.0, id="all of the room can be used: nothing is lost"),
        pytest.param({"gpus": 2}, {"gpus": 4}, 2.0, id="too few cards for the only kind: all is lost"),
        pytest.param({"gpus": 3}, {"gpus": 2}, 3 - math.sqrt(3 * 2), id="one pair fits on three cards"),
        pytest.param({"gpus": 2, "cpu": 4000}, {"gpus": 1, "cpu": 4000}, 2 - math.sqrt(2), id="CPU for one of two"),
        pytest.param(
            {"gpus": 2, "cpu": 6000}, {"gpus": 1, "cpu": 4000}, 2 - math.sqrt(3), id="and fractions of one count"
        ),
        pytest.param(
            {"gpus": 2, "memory": GIB}, {"gpus": 1, "memory": GIB}, 2 - math.sqrt(2), id="memory for one of two"
        ),
        pytest.param({"gpus": 1}, {"mib": 600}, 1 - math.sqrt(0.6), id="one share of 600 on a card of 1,000"),
        pytest.param({"gpus": 1}, {"core": 30}, 1 - math.sqrt(0.9), id="three shares of 30 percent of the core"),
        pytest.param({"gpus": 1, "mode": CardMode.STOCK}, {"mib": 500}, 1.0, id="a plugin without shares takes none"),
    ],
)
def test_what_of_an_empty_node_is_lost_to_one_kind(nodes, asked, lost):
    room = room_of(gpu_node(**nodes))
    assert loss(room, Mix({request(**asked): 7})) == pytest.approx([lost])


def test_kinds_weigh_as_often_as_they_were_seen():
    room = room_of(gpu_node(gpus=2))
    mix = Mix({request(gpus=1): 3, request(gpus=4): 1})
    assert loss(room, mix) == pytest.approx([0.25 * 2])


def test_a_request_without_cards_costs_what_it_takes_of_the_cpu_that_cards_need():
    room = room_of(gpu_node("a", gpus=2, cpu=8000), gpu_node("b", gpus=2, cpu=64_000))
    costs = row_costs(room, Mix({request(gpus=1, cpu=4000): 1}), request(cpu=4000))
    assert costs.tolist() == pytest.approx([2 - math.sqrt(2), 0.0])


def test_a_share_costs_least_on_the_card_that_it_completes():
    room = room_of(gpu_node(gpus=3))
    room.take(0, share(600), card(600, 0))
    room.take(0, share(500), card(500, 1))
    mix = Mix({request(gpus=1): 1, share(400): 1})
    costs = card_costs(room, mix, share(400))[0].tolist()
    assert costs.index(min(costs)) == 0
    assert all(math.isfinite(cost) for cost in costs)


def test_a_share_costs_nothing_that_is_finite_where_it_does_not_fit():
    room = room_of(gpu_node("a", gpus=2), gpu_node("b", gpus=1, mode=CardMode.STOCK))
    room.take(0, share(800), card(800, 0))
    assert np.isinf(card_costs(room, Mix({share(300): 1}), share(300))).tolist() == [[True, False], [True, True]]


def test_too_few_requests_tell_no_mix_and_strange_keys_are_passed_over():
    fleet = Fleet([gpu_node(gpus=8)])
    key = mix_key(Shape(request=request(gpus=1, cpu=8000, memory=GIB)))
    assert mix_of({key: 49}, fleet) is None
    assert mix_of({key: 49, "cpu": 1000, "cards:2": 1000}, fleet) is None
    mix = mix_of({key: 50}, fleet)
    assert mix is not None
    # The whole node is kept in mind although nobody has asked for one yet.
    assert sorted(mix.cards.tolist()) == [1.0, 8.0]
    assert mix.weight.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    "asked", [{"gpus": 2, "cpu": 8000, "memory": 10**9}, {"mib": 8192, "core": 25, "cpu": 990}, {"cpu": 1000}]
)
def test_a_key_of_the_mix_gives_back_the_request(asked):
    one = request(**asked)
    assert request_of_mix(mix_key(Shape(request=one))) == one


def test_rare_kinds_are_merged_and_their_weight_is_kept():
    many = {request(gpus=1, cpu=cpu): 5 for cpu in range(1000, 201_000, 1000)}
    mix = Mix({**many, request(gpus=2, cpu=1): 100})
    assert mix.weight.size == 33
    assert mix.weight.sum() == pytest.approx(1.0)
    assert mix.weight[mix.cards == 2].sum() == pytest.approx(100 / 1100)


def test_a_known_mix_sends_a_hungry_pod_where_its_cpu_is_not_missed():
    # By fullness the first node is as good as the second; its CPU is what its cards will need.
    nodes = [gpu_node("n1", gpus=8, cpu=96_000), gpu_node("n2", gpus=2, cpu=104_000)]
    jobs = [gang("hungry", role(gpus=1, cpu=30_000))]
    seen = {mix_key(Shape(request=request(gpus=1, cpu=12_000))): 1000}
    decision = run(snapshot(nodes, jobs), memory=CoreMemory(mix=seen))
    assert [slot.node for one in decision.instructions for slot in one.slots] == ["n2"]


SIZES = [
    request(gpus=1, cpu=2000),
    request(gpus=2, cpu=1000),
    share(300, cpu=500),
    share(700, core=20),
    request(gpus=4),
]
mixes = st.dictionaries(st.sampled_from(SIZES), st.integers(1, 50), min_size=1).map(Mix)
taken = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 3), st.sampled_from([1, 200, 500, MIB]), st.integers(0, 9000))
)


def filled(uses):
    room = room_of(gpu_node("a", gpus=4, cpu=20_000), gpu_node("b", gpus=4, cpu=100_000))
    held = []
    for row, position, mib, cpu in uses:
        if room.card_memory[row, position] < mib or room.free[row, 0] < cpu:
            continue
        cards = whole(position, mib=MIB) if mib == MIB else card(mib, position)
        if mib == MIB and room.card_users[row, position]:
            continue
        asked = request(cpu=cpu, gpus=1) if mib == MIB else share(mib, cpu=cpu)
        room.take(row, asked, cards)
        held.append((row, asked, cards))
    return room, held


@settings(max_examples=60, deadline=None)
@given(mixes, taken)
def test_between_nothing_and_all_that_is_idle_is_lost(mix, uses):
    room, _ = filled(uses)
    idle = (room.card_memory / MIB).clip(max=room.card_core / 100).sum(axis=1)
    lost = np.array(loss(room, mix))
    assert (lost >= -1e-9).all()
    assert (lost <= idle + 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(mixes, taken)
def test_more_cpu_never_raises_what_is_lost(mix, uses):
    room, _ = filled(uses)
    before = np.array(loss(room, mix))
    room.give(0, request(cpu=5000), ())
    room.give(1, request(cpu=5000), ())
    assert (np.array(loss(room, mix)) <= before + 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(mixes, taken)
def test_costs_are_the_loss_after_less_the_loss_before_and_kept_values_equal_new_ones(mix, uses):
    room, held = filled(uses)
    asked, pod = share(200, cpu=100), request(gpus=1, cpu=100)
    before = np.array(loss(room, mix))
    shares, rows = card_costs(room, mix, asked), row_costs(room, mix, pod)
    for row in range(2):
        for position in range(4):
            if np.isfinite(shares[row, position]) and room.free[row, 0] >= 100:
                mark = room.mark()
                room.take(row, asked, card(200, position))
                assert loss(room, mix)[row] - before[row] == pytest.approx(shares[row, position], abs=1e-9)
                room.rollback(mark)
        if room.whole_free[row] and room.free[row, 0] >= 100:
            mark = room.mark()
            room.take(row, pod, room.whole_cards(row, 1))
            assert loss(room, mix)[row] - before[row] == pytest.approx(rows[row], abs=1e-9)
            room.rollback(mark)
    for row, one, cards in held[: len(held) // 2]:
        room.give(row, one, cards)
    fresh, _ = filled(())
    for row, one, cards in held[len(held) // 2 :]:
        fresh.take(row, one, cards)
    for kept, new in (
        (card_costs(room, mix, asked), card_costs(fresh, mix, asked)),
        (row_costs(room, mix, pod), row_costs(fresh, mix, pod)),
    ):
        np.testing.assert_allclose(kept, new, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(mixes, taken)
def test_a_card_that_is_freed_loses_at_most_itself_and_never_takes_use_away(mix, uses):
    room, held = filled(uses)
    for row, asked, cards in held:
        idle = (room.card_memory[row] / MIB).clip(max=room.card_core[row] / 100).sum()
        used = idle - loss(room, mix)[row]
        room.give(row, asked, cards)
        more = (room.card_memory[row] / MIB).clip(max=room.card_core[row] / 100).sum()
        assert more - loss(room, mix)[row] >= used - 1e-9
