"""The validator trusts nothing: each rule, broken by one change to a sound plan, is found."""

import msgspec
import pytest

from muster.decide.placement.validate import validate
from muster.model.gangs import MemberState
from muster.model.instructions import Place, Slot
from muster.model.nodes import CardMode, Taint
from muster.model.pods import CardUse, NodeTerm, Requirement
from muster.model.snapshot import Hold, Occupant
from tests.decide.build import CARD, LEVELS, gang, node, queue, request, role, snapshot, standing, whole

LABELS = {"zone": "z", "block": "b", "rack": "r1"}
NODES = [node("a", gpus=2, labels=LABELS), node("b", gpus=2, labels={**LABELS, "rack": "r2"})]
SHARE = (CardUse(index=0, memory_mib=1000, core_percent=10),)


def slots(*where, role_name="w", cards=None):
    cards = whole(0) if cards is None else cards
    return tuple(
        Slot(uid=f"g-{role_name}-{i}", pod=f"g-{role_name}-{i}", role=role_name, node=name, cards=cards)
        for i, name in enumerate(where)
    )


def problems(state, *where, **more):
    place = Place(gang="ns/g", gang_uid="uid-g", slots=slots(*where, **more))
    return validate(state, [place], levels=LEVELS)


def two(**more):
    return gang("g", role(count=2, gpus=1), **more)


def test_a_sound_plan_has_no_problem():
    assert problems(snapshot(NODES, [two()]), "a", "b") == []


@pytest.mark.parametrize(
    ("state", "where", "says"),
    [
        pytest.param(snapshot(NODES, [two()]), ["a"], "1 pods of minimum 2", id="half a gang"),
        pytest.param(snapshot(NODES, [two()]), ["a", "z"], "node z does not exist", id="a node that is not there"),
        pytest.param(snapshot(NODES, []), ["a"], "ns/g is not in the snapshot", id="a gang that is gone"),
        pytest.param(snapshot(NODES, [two()]), ["a", "a"], "held whole and shared", id="one card given twice"),
        pytest.param(snapshot(NODES, [two(rack="rack")]), ["a", "b"], "not in one domain", id="two racks where one is required"),
        pytest.param(snapshot(NODES, [two(queue="z")]), ["a", "b"], "queue z does not exist", id="an unknown queue"),
        pytest.param(
            snapshot(NODES, [two()], [queue(capability={"gpu": CARD})]), ["a", "b"], "capability 1000000", id="above the limit"
        ),
        pytest.param(
            snapshot(NODES, [two()], [queue(parent="t"), queue("t", capability={"gpu": CARD})]), ["a", "b"], "queue t",
            id="above a parent's limit",
        ),
        pytest.param(
            snapshot([node("a", gpus=1), node("b", gpus=1, ready=False)], [two()]), ["a", "b"], "not ready", id="a node not ready"
        ),
        pytest.param(
            snapshot([node("a", gpus=1), node("b", gpus=1, unschedulable=True)], [two()]), ["a", "b"], "unschedulable",
            id="a cordoned node",
        ),
        pytest.param(
            snapshot([node("a", gpus=1), node("b", gpus=1, taints=(Taint(key="k", effect="NoExecute"),))], [two()]),
            ["a", "b"], "taint k", id="a taint",
        ),
        pytest.param(
            snapshot([node("a", gpus=1), node("b", gpus=1, max_pods=0)], [two()]), ["a", "b"], "pods: 1 asked, 0 free",
            id="no pod slot",
        ),
        pytest.param(
            snapshot([node("a", gpus=1), node("b", gpus=1, allocatable_cards=0)], [two()]), ["a", "b"], "1 cards in use, 0 offered",
            id="a card the kubelet does not offer",
        ),
        pytest.param(
            snapshot(NODES, [two()], occupants=[Occupant(uid="o", key="x/o", node="b", request=request(gpus=1), cards=whole(0))]),
            ["a", "b"], "held whole and shared", id="a card of a foreign pod",
        ),
        pytest.param(
            snapshot(NODES, [two()], holds=[Hold(gang="ns/h", uid="h", node="b", request=request(gpus=1), cards=whole(0))]),
            ["a", "b"], "held whole and shared", id="a card that an open entry holds",
        ),
        pytest.param(
            snapshot(NODES, [two(), gang("h", role(count=0, gpus=1), minimum=1,
                members=[standing("x", "b", cards=whole(0), state=MemberState.LEAVING)])]),
            ["a", "b"], "held whole and shared", id="a card of a pod that is leaving",
        ),
        pytest.param(
            snapshot(NODES, [gang("g", role(count=2, gpus=1, node_selector=(("k", "v"),)))]), ["a", "b"], "nodeSelector",
            id="a selector",
        ),
        pytest.param(
            snapshot(NODES, [gang("g", role(count=2, gpus=1, required_nodes=(
                NodeTerm(labels=(Requirement(key="rack", operator="NotIn", values=("r2",)),)),)))]),
            ["a", "b"], "node affinity", id="an affinity",
        ),
        pytest.param(
            snapshot(NODES, [gang("g", role(count=2, gpus=1, cpu=40_000))]), ["a", "a"], "cpu: 40000 asked, 24000 free",
            id="too much CPU",
        ),
        pytest.param(
            snapshot(NODES, [gang("g", role(count=2, gpus=1, host_ports=(("TCP", 80, ""),)))]), ["a", "a"], "host port 80",
            id="one host port twice",
        ),
        pytest.param(snapshot(NODES, [gang("g", role(count=2, gpus=2))]), ["a", "b"], "asks 2 cards, the plan gives 1",
            id="too few cards"),
        pytest.param(snapshot(NODES, [gang("g", role(count=2, mib=1000))]), ["a", "b"], "the share given is not the share",
            id="a whole card for a share"),
    ],
)  # fmt: skip
def test_a_plan_that_breaks_a_rule_is_refused(state, where, says):
    assert any(says in text for text in problems(state, *where)), problems(state, *where)


@pytest.mark.parametrize(
    ("facts", "asks", "says"),
    [
        pytest.param(
            {"mode": CardMode.STOCK}, {"mib": 1000, "core": 10}, "gives out whole cards only", id="the stock plugin"
        ),
        pytest.param({}, {"mib": 1000, "core": 20}, "not the share asked for", id="another share than asked for"),
        pytest.param(
            {"card_mib": 1500}, {"mib": 1000, "core": 10}, "at 2000 of 1500 MiB", id="memory of a card overrun"
        ),
    ],
)
def test_shares_are_checked_card_by_card(facts, asks, says):
    state = snapshot([node("a", gpus=1, **facts)], [gang("g", role(count=2, **asks))])
    found = problems(state, "a", "a", cards=SHARE)
    assert any(says in text for text in found), found


def test_a_pod_is_not_placed_twice_and_not_once_it_stands():
    place = Place(gang="ns/g", gang_uid="", slots=slots("a", "b"))
    again = validate(snapshot(NODES, [two()]), [place, place], levels=LEVELS)
    assert any("does not wait to be placed" in text for text in again)
    one = two()
    bound = tuple(msgspec.structs.replace(m, state=MemberState.BOUND, node="a") for m in one.members)
    stands = snapshot(NODES, [msgspec.structs.replace(one, members=bound)])
    assert any("does not wait to be placed" in text for text in validate(stands, [place], levels=LEVELS))


def test_a_card_that_was_overfull_before_does_not_stop_a_plan_for_another_card():
    crowd = [standing(f"x{i}", "a", cards=whole(0)) for i in range(2)]
    state = snapshot(NODES, [gang("g", role(gpus=1)), gang("h", role(count=0, gpus=1), minimum=1, members=crowd)])
    assert problems(state, "b") == []
    assert problems(state, "a", cards=whole(1)) == []
