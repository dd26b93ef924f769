from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.decide.asks import ask_of
from muster.decide.ordering import Line
from muster.decide.room import Room
from muster.decide.shares import Tree, charge_on, share_part, tree_of
from muster.decide.water_filling import set_shares
from muster.model.gangs import MemberState
from muster.model.pods import CardUse
from tests.decide.build import CARD, gang, node, placed, queue, request, role, run, snapshot, standing


def shares(queues, demand, total=None):
    tree = Tree(queues)
    set_shares(tree, total or {"gpu": 12 * CARD}, {name: {"gpu": cards * CARD} for name, cards in demand.items()})
    return {name: share["gpu"] / CARD for name, share in tree.shares.items()}


@pytest.mark.parametrize(
    ("queues", "demand", "expected"),
    [
        pytest.param([queue("a"), queue("b")], {"a": 20, "b": 20}, {"a": 6, "b": 6}, id="equal weights halve"),
        pytest.param([queue("a", weight=2), queue("b")], {"a": 20, "b": 20}, {"a": 8, "b": 4}, id="by weight"),
        pytest.param([queue("a"), queue("b")], {"a": 2, "b": 20}, {"a": 2, "b": 10}, id="what one leaves the other gets"),
        pytest.param(
            [queue("a", deserved={"gpu": 8 * CARD}), queue("b")], {"a": 20, "b": 20}, {"a": 10, "b": 2},
            id="deserved first, the rest by weight",
        ),
        pytest.param(
            [queue("a", deserved={"gpu": 8 * CARD}), queue("b")], {"a": 1, "b": 20}, {"a": 8, "b": 11},
            id="deserved that nobody asks for is lent",
        ),
        pytest.param(
            [queue("a", capability={"gpu": 3 * CARD}), queue("b")], {"a": 20, "b": 20}, {"a": 3, "b": 9}, id="capped by capability"
        ),
        pytest.param(
            [queue("p"), queue("a", parent="p"), queue("b", parent="p", weight=2), queue("c")],
            {"p": 40, "a": 20, "b": 20, "c": 20},
            {"p": 6, "a": 2, "b": 4, "c": 6},
            id="split again below a parent",
        ),
        pytest.param(
            [queue("a", weight=1), queue("b", weight=1), queue("c", weight=1)], {"a": 20, "b": 20, "c": 20},
            {"a": 4, "b": 4, "c": 4}, id="thirds",
        ),
    ],
)  # fmt: skip
def test_shares(queues, demand, expected):
    assert shares(queues, demand) == expected


NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"


@pytest.mark.parametrize(
    ("capability", "asked", "share"),
    [
        pytest.param({NVIDIA: 3}, {"gpu": 20, NVIDIA: 20}, 3, id="the limit of a kind limits the share of cards"),
        pytest.param({NVIDIA: 3}, {"gpu": 20, NVIDIA: 18, AMD: 2}, 5, id="cards of other kinds are beside it"),
        pytest.param(
            {NVIDIA: 3, "gpu": 4}, {"gpu": 20, NVIDIA: 14, AMD: 6}, 4, id="all kinds together have a tighter one"
        ),
        pytest.param({NVIDIA: 3, "gpu": 9}, {"gpu": 20, NVIDIA: 20}, 3, id="the kind has the tighter one"),
        pytest.param({NVIDIA: 3}, {"gpu": 20, NVIDIA: 16}, 6, id="parts of cards have no kind"),
        pytest.param({NVIDIA: 30}, {"gpu": 20, NVIDIA: 20}, 6, id="a limit above what it asks changes nothing"),
    ],
)
def test_a_capability_of_a_kind_of_card_limits_the_share_of_cards(capability, asked, share):
    tree = Tree([queue("a", capability={name: cards * CARD for name, cards in capability.items()}), queue("b")])
    demand = {"a": {name: cards * CARD for name, cards in asked.items()}, "b": {"gpu": 20 * CARD, NVIDIA: 20 * CARD}}
    set_shares(tree, {"gpu": 12 * CARD, NVIDIA: 10 * CARD}, demand, kinds=(AMD, NVIDIA))
    assert tree.shares["a"]["gpu"] == min(share, 6) * CARD
    assert tree.shares["b"]["gpu"] == (12 - min(share, 6)) * CARD


def test_a_share_is_an_exact_fraction():
    tree = Tree([queue("a"), queue("b"), queue("c")])
    set_shares(tree, {"gpu": CARD}, {name: {"gpu": CARD} for name in "abc"})
    assert tree.shares["a"]["gpu"] == Fraction(CARD, 3)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 30)), min_size=1, max_size=6), st.integers(1, 40))
def test_shares_without_deserved_never_exceed_the_cluster_or_what_is_asked_and_leave_nothing_wanted(parts, cards):
    queues = [queue(f"q{i}", weight=weight) for i, (weight, _) in enumerate(parts)]
    demand = {f"q{i}": asked for i, (_, asked) in enumerate(parts)}
    found = shares(queues, demand, {"gpu": cards * CARD})
    assert all(found[name] <= demand[name] for name in found)
    assert sum(found.values()) == min(cards, sum(demand.values()))


@pytest.mark.parametrize(
    ("mib", "core", "card", "part"),
    [
        pytest.param(16384, 0, 81920, 200_000, id="a fifth of the memory is exactly 0.2"),
        pytest.param(16384, 50, 81920, 500_000, id="the larger side counts"),
        pytest.param(1, 0, 3, 333_334, id="rounded up"),
        pytest.param(0, 1, 0, 10_000, id="a core share needs no memory size"),
    ],
)
def test_a_share_is_charged_the_larger_part_of_the_card_it_lies_on(mib, core, card, part):
    assert share_part(request(mib=mib, core=core), card) == part
    assert charge_on(request(mib=mib, core=core, cpu=7), card) == {"cpu": 7, "gpu": part}


def test_usage_counts_what_holds_room_on_every_level():
    members = [
        standing("a", "n1", cards=(CardUse(index=0, memory_mib=400, core_percent=10),)),
        standing("b", "n1", state=MemberState.LEAVING, cards=(CardUse(index=0, memory_mib=400, core_percent=10),)),
        standing("c", "n1", state=MemberState.SUCCEEDED),
    ]
    state = snapshot(
        [node(gpus=1, card_mib=1000)],
        [gang("g", role(count=0, mib=400, core=10, cpu=5), minimum=1, members=members)],
        [queue(parent="top"), queue("top")],
    )
    tree = tree_of(state, Room.of(state))
    assert tree.usage["q"] == tree.usage["top"] == {"cpu": 10, "gpu": 800_000}


def test_limits_are_exact_five_fifths_fit_a_limit_of_one_card():
    gangs = [gang(f"g{i}", role(mib=200), order=i) for i in range(6)]
    decision = run(snapshot([node(gpus=4, card_mib=1000)], gangs, [queue(capability={"gpu": CARD})]))
    assert sorted(placed(decision)) == [f"g{i}" for i in range(5)]


def test_a_queue_whose_parent_is_itself_or_missing_stands_at_the_top():
    tree = Tree([queue("a", parent="a"), queue("b", parent="gone"), queue("c", parent="d"), queue("d", parent="c")])
    assert tree.path("a") == ("a",)
    assert tree.path("b") == ("b",)
    assert set(tree.path("c")) == {"c", "d"}


def test_the_line_serves_the_least_served_queue_first_and_inside_it_priority_then_age():
    tree = Tree([queue("a"), queue("b", priority=1)])
    set_shares(tree, {"gpu": 4 * CARD}, {"a": {"gpu": 9 * CARD}, "b": {"gpu": 9 * CARD}})
    gangs = [
        gang("a1", role(gpus=1), queue="a", order=1),
        gang("a2", role(gpus=1), queue="a", order=2, priority=7),
        gang("b1", role(gpus=1), queue="b", order=3),
        gang("b2", role(gpus=1), queue="b", order=4),
    ]
    line = Line(tree, map(ask_of, gangs), lambda _: {"gpu": CARD})
    order = []
    while (turn := line.next()) is not None:
        order.append(turn.gang.key.partition("/")[2])
        tree.charge(turn.gang.queue, {"gpu": CARD})
        line.changed(turn.gang.queue)
    assert order == ["b1", "a2", "b2", "a1"]
