"""Nodes that look alike are judged once: what is said of every row is what would be said of it alone, after any changes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.canonical import canonical_ranks
from muster.decide.fleet import Fleet
from muster.decide.placement.feasibility import capacity
from muster.decide.placement.fragmentation import Mix, card_costs, row_costs
from muster.decide.placement.packing import best_row, fullness, next_row
from muster.decide.room import Pod, Room
from muster.model.pods import CardUse, Shape
from muster.model.policy import Packing
from tests.decide.build import node, request

PACKING = Packing()
SHAPES = [
    Shape(request=request(cpu=1000)),
    Shape(request=request(gpus=1, cpu=2000)),
    Shape(request=request(gpus=2), node_selector=(("model", "a"),)),
    Shape(request=request(gpus=1, extended=(("example.com/link", 1),))),
]
SHARES = [Shape(request=request(mib=400, core=30)), Shape(request=request(mib=900))]
MIX = Mix({shape.request: weight for weight, shape in enumerate(SHAPES[1:3] + SHARES, start=1)})


@st.composite
def rooms(draw):
    nodes = [
        node(
            f"n{number}",
            cpu=draw(st.sampled_from([4000, 8000])),
            gpus=draw(st.sampled_from([0, 2, 4])),
            card_mib=1000,
            labels={"model": draw(st.sampled_from("ab"))},
            extended=(("example.com/link", 2),) if draw(st.booleans()) else (),
        )
        for number in range(draw(st.integers(1, 6)))
    ]
    return Room(Fleet(nodes))


def cards_of(room, row, shape):
    """Cards for one pod, or None when it has no room there."""
    if not capacity(room, shape)[row]:
        return None
    if shape.request.share is None:
        return room.whole_cards(row, shape.request.cards)
    share = shape.request.share
    fits = (room.card_memory[row] >= share.memory_mib) & (room.card_core[row] >= share.core_percent)
    position = int(np.flatnonzero(fits & room.fleet.card_usable[row])[0])
    index = int(room.fleet.card_index[row, position])
    return (CardUse(index=index, memory_mib=share.memory_mib, core_percent=share.core_percent),)


def answers(room):
    """Everything that is derived by row."""
    told = {}
    for shape in SHAPES:
        fits = capacity(room, shape)
        told["fits", shape] = fits.tolist()
        told["full", shape] = fullness(room, shape, PACKING).tolist()
        if fits.any():
            told["cost", shape] = np.where(fits > 0, row_costs(room, MIX, shape.request), 0).round(9).tolist()
        told["best", shape] = best_row(room, shape, PACKING, fits) if fits.any() else -1
        next_one = next_row(room, shape, PACKING)
        assert next_one is None or next_one == told["best", shape]
    for shape in SHARES if room.fleet.width else ():
        told["cards", shape] = card_costs(room, MIX, shape.request).round(9).tolist()
    return told


@settings(max_examples=60, deadline=None)
@given(rooms(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=12))
def test_what_is_judged_by_looks_is_what_is_judged_node_by_node(room, changes):
    room.look_at()
    assert answers(room) == answers(room.as_of(room.mark()))
    for place, number, undone in changes:
        shape, row = [*SHAPES, *SHARES][number], place % room.fleet.size
        cards = cards_of(room, row, shape)
        mark = room.mark()
        if cards is not None:
            room.take(row, shape.request, cards)
        if undone:
            assert answers(room) == answers(room.as_of(room.mark()))
            room.rollback(mark)
        assert answers(room) == answers(room.as_of(room.mark()))


@settings(max_examples=60, deadline=None)
@given(rooms(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20))
def test_pods_taken_together_leave_what_they_leave_one_by_one_and_are_undone_alike(room, wanted):
    names = ("free", "card_memory", "card_core", "card_users", "whole_free")
    before = {name: getattr(room, name).copy() for name in names}
    pods = []
    for place, number in wanted:
        row = place % room.fleet.size
        shape = Shape(request=[*SHAPES, *SHARES][number].request, host_ports=(("TCP", 80 + len(pods), ""),))
        cards = cards_of(room, row, shape)
        if cards is not None:
            room.take(row, shape.request, cards, ports=shape.host_ports)
            pods.append(Pod(row, shape, cards))
    one_by_one, ports = {name: getattr(room, name).copy() for name in names}, dict(room.ports)
    room.rollback(0)
    room.take_together(pods)
    assert all(np.array_equal(getattr(room, name), one_by_one[name]) for name in names)
    assert room.ports == ports
    room.rollback(0)
    assert all(np.array_equal(getattr(room, name), before[name]) for name in names)
    assert room.ports == {}


def test_ranks_go_by_what_nodes_are_and_by_name_only_among_equals():
    fleet = Fleet(
        [
            node("z", gpus=2, labels={"rack": "a", "kubernetes.io/hostname": "z"}),
            node("a", gpus=2, labels={"rack": "b", "kubernetes.io/hostname": "a"}),
            node("b", gpus=2, labels={"rack": "b", "kubernetes.io/hostname": "b"}),
        ]
    )
    room = Room(fleet)
    ranks = dict(zip(fleet.names, canonical_ranks(room).tolist(), strict=True))
    assert ranks == {"z": 0, "a": 1, "b": 2}
    room.take(fleet.row_of["a"], request(gpus=1), room.whole_cards(fleet.row_of["a"], 1))
    other = Room(Fleet([*fleet.nodes[1:], node("c", gpus=2, labels={"rack": "b", "kubernetes.io/hostname": "c"})]))
    other.take(other.fleet.row_of["c"], request(gpus=1), other.whole_cards(other.fleet.row_of["c"], 1))
    used_first = ranks_of(room)["a"] < ranks_of(room)["b"]
    assert (ranks_of(other)["c"] < ranks_of(other)["b"]) == used_first


def ranks_of(room):
    return dict(zip(room.fleet.names, canonical_ranks(room).tolist(), strict=True))
