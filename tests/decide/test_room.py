import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.fleet import Fleet
from muster.decide.placement.feasibility import capacity
from muster.decide.room import Room
from muster.decide.shares import tree_of
from muster.model.gangs import MemberState
from muster.model.nodes import Card
from muster.model.pods import CardUse, Shape
from muster.model.snapshot import Hold, Occupant
from tests.decide.build import CARD, gang, node, placed, reasons, request, role, run, snapshot, standing, whole


def test_pods_that_leave_or_are_assumed_hold_their_room_and_finished_ones_do_not():
    members = [
        standing("bound", "n1", cards=whole(0)),
        standing("leaving", "n1", cards=whole(1), state=MemberState.LEAVING),
        standing("assumed", "n1", cards=whole(2), state=MemberState.ASSUMED),
        standing("done", "n1", cards=whole(3), state=MemberState.SUCCEEDED),
        standing("failed", "n1", cards=whole(3), state=MemberState.FAILED),
    ]
    state = snapshot([node(gpus=4)], [gang("g", role(count=0, gpus=1), minimum=1, members=members)])
    room = Room.of(state)
    assert room.whole_free.tolist() == [1]
    assert tree_of(state, room).usage["q"]["gpu"] == 3 * CARD


def test_holds_and_promises_to_others_are_room_that_is_gone():
    state = snapshot(
        [node(gpus=4, cpu=4000)],
        [gang("g", role(gpus=1), minimum=1)],
        occupants=[
            Occupant(uid="o", key="x/o", node="n1", request=request(cpu=1000, gpus=1)),
            Occupant(uid="p", key="x/p", node="n1", request=request(cpu=1000), promised=True),
        ],
        holds=[Hold(gang="ns/g", uid="h", node="n1", request=request(cpu=500, gpus=1), cards=whole(3))],
    )
    room = Room.of(state)
    assert room.free[0].tolist()[0] == 1500
    assert room.whole_free.tolist() == [2]


@pytest.mark.parametrize(
    ("allocatable", "asks", "fits"),
    [
        pytest.param(6, {"gpus": 1}, 0, id="cards: eight are used and six are offered, so none can be taken"),
        pytest.param(6, {"cpu": 1000}, 64, id="and everything else goes on"),
    ],
)
def test_allocatable_below_used_blocks_only_what_is_missing(allocatable, asks, fits):
    one = node(gpus=8, allocatable_cards=allocatable)
    members = [standing("big", "n1", cards=whole(*range(8)))]
    state = snapshot([one], [gang("g", role(count=0, gpus=8), minimum=1, members=members)])
    assert capacity(Room.of(state), Shape(request=request(**asks))).tolist() == [fits]


def test_a_node_that_shrank_below_its_pods_still_takes_a_pod_that_asks_nothing_of_that():
    one = node(cpu=1000, gpus=1)
    members = [standing("big", "n1")]
    state = snapshot([one], [gang("g", role(count=0, cpu=5000), minimum=1, members=members), gang("h", role(gpus=1))])
    assert Room.of(state).free[0, 0] == -4000
    assert placed(run(state)) == {"h": ["n1"]}


def test_a_card_that_is_not_listed_any_more_still_counts_against_what_is_offered():
    cards = tuple(Card(index=index, memory_mib=1000) for index in range(2))
    one = node(gpus=2, cards=cards)
    members = [standing("a", "n1", cards=whole(7))]
    state = snapshot([one], [gang("g", role(count=0, gpus=1), minimum=1, members=members)])
    assert Room.of(state).whole_free.tolist() == [1]


def test_an_unhealthy_card_is_never_given():
    cards = (Card(index=0, memory_mib=1000, healthy=False), Card(index=1, memory_mib=1000))
    one = node(gpus=2, cards=cards, allocatable_cards=1)
    decision = run(snapshot([one], [gang("g", role(gpus=1)), gang("h", role(gpus=1), order=1)]))
    assert [use.index for use in decision.instructions[0].slots[0].cards] == [1]
    assert reasons(decision)["h"].code == "BEHIND"


def test_two_cards_come_from_one_link_group_the_tightest():
    groups = [0, 1, 1, 1, 2, 2, 0, 0]
    cards = tuple(Card(index=i, memory_mib=1000, link_group=group) for i, group in enumerate(groups))
    decision = run(snapshot([node(gpus=8, cards=cards)], [gang("g", role(gpus=2))]))
    assert [use.index for use in decision.instructions[0].slots[0].cards] == [4, 5]


requests = st.builds(
    request,
    cpu=st.integers(0, 4000),
    memory=st.integers(0, 1000),
    gpus=st.just(0),
    mib=st.sampled_from([0, 100, 250]),
    core=st.sampled_from([0, 10, 50]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), requests, st.integers(0, 1)), max_size=12), st.integers(0, 12))
def test_rolling_back_or_giving_back_leaves_the_room_as_it_was(changes, keep):
    room = Room(Fleet([node(f"n{i}", gpus=2, card_mib=1000) for i in range(3)]))
    taken = []

    def arrays():
        return [a.copy() for a in (room.free, room.card_memory, room.card_core, room.card_users, room.whole_free)]

    def take(row, asked, index):
        cards = ()
        if asked.share is not None:
            cards = (CardUse(index=index, memory_mib=asked.share.memory_mib, core_percent=asked.share.core_percent),)
        room.take(row, asked, cards)
        taken.append((row, asked, cards))

    for change in changes[:keep]:
        take(*change)
    before, mark, kept = arrays(), room.mark(), len(taken)
    for change in changes[keep:]:
        take(*change)
    after = arrays()
    room.rollback(mark)
    assert all(np.array_equal(a, b) for a, b in zip(before, arrays(), strict=True))
    for row, asked, cards in taken[kept:]:
        room.take(row, asked, cards)
    assert all(np.array_equal(a, b) for a, b in zip(after, arrays(), strict=True))
    for row, asked, cards in reversed(taken[kept:]):
        room.give(row, asked, cards)
    assert all(np.array_equal(a, b) for a, b in zip(before, arrays(), strict=True))
