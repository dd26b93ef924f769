"""Every reason code, with the numbers that decided, and sentences that name things."""

import msgspec
import pytest

from muster.decide.memory import Backoff, CoreMemory, gang_failed, gang_started, node_refused, without_expired
from muster.decide.reasons import NEVER, Reason, known_name
from muster.model.gangs import Member, MemberState
from muster.model.nodes import CardMode
from muster.model.pods import PodTerm, Request, Shape
from muster.model.policy import Timeouts
from muster.model.workloads import QueueState
from tests.decide.build import CARD, GIB, gang, node, queue, reasons, request, role, run, snapshot, standing, whole

RACKS = [
    node(name, gpus=2, labels={"zone": "z", "block": "b", "rack": rack})
    for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"))
]
HOLDER = gang("holder", role(count=0, gpus=3), minimum=1, members=[standing("x", "n1", cards=whole(0, 1, 2))])


@pytest.mark.parametrize(
    ("state", "code", "numbers", "says"),
    [
        pytest.param(snapshot([], [gang()]), "NO_NODES", {"nodes": 0}, "no ready node", id="no node at all"),
        pytest.param(
            snapshot([node(gpus=4)], [HOLDER, gang("g", role(count=2, gpus=2))]),
            "NOT_ENOUGH_ROOM",
            {"asked": 2, "fits": 0, "free_cards": 1, "largest_block": 1},
            "asks 2 pods × 2 cards; 0 of 2 pods fit now: 1 card free on 1 node, at most 1 on one",
            id="too few cards free",
        ),
        pytest.param(
            snapshot([node(gpus=2)], [gang("g", role(count=2, gpus=2))]),
            "NEVER_FITS",
            {"asked": 2, "possible": 1},
            "the whole cluster, when empty, holds 1 of 2 pods",
            id="larger than the empty cluster",
        ),
        pytest.param(
            snapshot([node(gpus=80)], [gang("g", role(count=9, gpus=8))], [queue(capability={"gpu": 64 * CARD})]),
            "QUEUE_CAPABILITY",
            {"asked": 72 * CARD, "capability": 64 * CARD, "queue": "q"},
            "can never run as it is: it asks 72 cards, queue q is capped at 64 cards",
            id="larger than the queue's limit",
        ),
        pytest.param(
            snapshot([node(gpus=4)], [HOLDER, gang("g", role(gpus=1))], [queue(capability={"gpu": 3 * CARD})]),
            "QUEUE_CAPABILITY",
            {"asked": CARD, "used": 3 * CARD, "capability": 3 * CARD, "queue": "q"},
            "asks 1 card; queue q uses 3 cards of its limit 3 cards",
            id="the queue is at its limit",
        ),
        pytest.param(
            snapshot(
                [node(gpus=4)], [HOLDER, gang("g", role(gpus=1))], [queue(parent="top"), queue("top", capability={"gpu": 3 * CARD})]
            ),
            "QUEUE_CAPABILITY",
            {"queue": "top"},
            "queue top uses 3 cards",
            id="a parent is at its limit",
        ),
        pytest.param(
            snapshot([node(gpus=1, mode=CardMode.STOCK)], [gang("g", role(mib=1000))]),
            "SHARING_NOT_AVAILABLE",
            {"nodes": 1},
            "none of the 1 node has a device plugin that gives out shares",
            id="shares with the stock plugin",
        ),
        pytest.param(
            snapshot(
                [node(gpus=1, card_mib=1000)],
                [
                    gang("s", role(count=0, mib=600, core=30), minimum=1,
                         members=[standing("x", "n1", cards=(whole(0)[0].__class__(index=0, memory_mib=600, core_percent=30),))]),
                    gang("g", role(mib=500, core=10)),
                ],
            ),
            "CARD_SHARE_TOO_LARGE",
            {"asked_mib": 500, "largest_mib": 400, "largest_core_percent": 70},
            "asks 500 MiB and 10 % of the core of one card; the most free on one card is 400 MiB",
            id="a share that no card has free",
        ),
        pytest.param(
            snapshot(RACKS, [gang("g", role(count=5, gpus=1), rack="rack")]),
            "NEVER_FITS",
            {"asked": 5, "level": "rack", "best_fits": 4},
            "in one rack; even when empty, the best, r1, has room for 4 of 5",
            id="larger than any empty rack",
        ),
        pytest.param(
            snapshot(
                RACKS,
                [
                    gang("x", role(count=0, gpus=1), minimum=2, members=[
                        standing("x1", "a", cards=whole(0)), standing("x2", "c", cards=whole(0))]),
                    gang("g", role(count=4, gpus=1), rack="rack"),
                ],
            ),
            "TOPOLOGY_UNFIT",
            {"asked": 4, "level": "rack", "best": "r1", "best_fits": 3},
            "asks 4 pods × 1 card in one rack; the best, r1, has room for 3 of 4",
            id="enough cards, but in no rack",
        ),
        pytest.param(
            snapshot(RACKS, [gang("g", role(gpus=1), rack="row")]),
            "TOPOLOGY_LEVEL_UNKNOWN",
            {"level": "row"},
            "levels here: zone, block, rack",
            id="a level nobody knows",
        ),
        pytest.param(
            snapshot([node(gpus=1)], [gang("g", role(gpus=1), order=1), gang("first", role(gpus=1))]),
            "BEHIND",
            {"ahead": 1},
            "the room goes to 1 job ahead of it: ns/first",
            id="another goes first",
        ),
        pytest.param(snapshot([node()], [gang(queue="z")]), "QUEUE_UNKNOWN", {"queue": "z"}, "queues here: q", id="no such queue"),
        pytest.param(
            snapshot([node()], [gang()], [queue(state=QueueState.CLOSED)]), "QUEUE_CLOSED", {}, "is closed", id="a closed queue"
        ),
        pytest.param(
            snapshot([node()], [gang()], [queue(parent="top"), queue("top", state=QueueState.CLOSING)]),
            "QUEUE_CLOSED",
            {"queue": "top"},
            "queue top is closed",
            id="a closing parent",
        ),
        pytest.param(
            snapshot([node()], [gang("g", role(count=2), minimum=4)]),
            "TOO_FEW_PODS",
            {"have": 2, "minimum": 4, "missing": 2},
            "2 pods of the minimum 4 exist; 2 more must be created",
            id="pods that do not exist yet",
        ),
        pytest.param(
            snapshot([node()], [gang("g", role(shape=Shape(claims=("data",))))]),
            "VOLUME_UNSUPPORTED",
            {"claims": "data"},
            "mounts data",
            id="a volume claim",
        ),
        pytest.param(
            snapshot([node()], [gang("g", role(shape=Shape(resource_claims=True)))]), "DRA_UNSUPPORTED", {}, "resourceClaims",
            id="a resource claim",
        ),
        pytest.param(
            snapshot([node()], [gang("g", role(shape=Shape(request=Request(extended=(("rdma/hca", 1),)))))]),
            "NEVER_FITS",
            {"resource": "rdma/hca"},
            "rdma/hca, which no node has",
            id="a resource that no node has",
        ),
        pytest.param(
            snapshot([node()], [gang("g", hold="UNIT_TRAP", hold_message="12 is 12 MiB")]), "UNIT_TRAP", {}, "12 is 12 MiB",
            id="a hold keeps its own words",
        ),
    ],
)  # fmt: skip
def test_a_gang_that_waits_is_told_why_with_numbers(state, code, numbers, says):
    why = reasons(run(state))["g"]
    assert why.code == code
    assert numbers.items() <= why.numbers.items(), why.numbers
    assert says in why.message, why.message
    assert (why.position == 0) == (why.code in NEVER or "can never run" in why.message)


def test_preferences_among_pods_do_not_hold_a_gang():
    shape = Shape(pod_terms=(PodTerm(topology_key="h", weight=5),), request=request(cpu=1))
    assert reasons(run(snapshot([node()], [gang("g", role(shape=shape))]))) == {}


def test_positions_count_those_that_can_run_by_priority_and_age():
    gangs = [
        HOLDER,
        gang("late", role(gpus=2), order=3),
        gang("early", role(gpus=2), order=2),
        gang("high", role(gpus=2), order=4, priority=5),
        gang("never", role(gpus=9), order=1, priority=9),
    ]
    found = {name: one.position for name, one in reasons(run(snapshot([node(gpus=4)], gangs))).items()}
    assert found == {"high": 1, "early": 2, "late": 3, "never": 0}


def test_a_gated_pod_is_not_placed_and_counts_as_missing():
    one = gang("g", role(count=1, cpu=1), minimum=2)
    gated = Member(uid="x", name="x", role="w", state=MemberState.GATED)
    state = snapshot([node()], [msgspec.structs.replace(one, members=(*one.members, gated))])
    assert reasons(run(state))["g"].code == "TOO_FEW_PODS"


def test_a_gang_that_failed_waits_longer_each_time_and_is_forgiven_when_it_started():
    timeouts = Timeouts(backoff_initial=5, backoff_max=15)
    memory, ends = CoreMemory(), []
    for _ in range(4):
        memory = gang_failed(memory, "ns/g", now=100, timeouts=timeouts)
        ends.append(memory.gangs["ns/g"].until)
    assert ends == [105, 110, 115, 115]
    state = snapshot([node()], [gang()])
    why = reasons(run(state, memory=memory, now=103))["g"]
    assert (why.code, why.numbers) == ("BACKOFF", {"failures": 4, "seconds": 12})
    assert reasons(run(state, memory=memory, now=115)) == {}
    assert gang_started(memory, "ns/g").gangs == {}


def test_memory_is_plain_data_and_back():
    timeouts = Timeouts()
    memory = gang_failed(CoreMemory(), "ns/g", now=1, timeouts=timeouts)
    memory = node_refused(memory, "n1", Shape(request=request(gpus=1)), now=1, timeouts=timeouts)
    assert CoreMemory.from_data(msgspec.json.decode(msgspec.json.encode(memory.to_data()))) == memory
    with pytest.raises(msgspec.ValidationError):
        CoreMemory.from_data({"gangs": 7})


def test_back_offs_long_over_are_forgotten():
    memory = CoreMemory(gangs={"a": Backoff(until=10.0), "b": Backoff(until=100.0)})
    assert list(without_expired(memory, now=50.0, keep=20.0).gangs) == ["b"]
    assert without_expired(memory, now=5.0, keep=20.0) is memory


def test_the_request_mix_counts_what_started_and_stays_small():
    decision = run(snapshot([node(gpus=4)], [gang("g", role(count=2, gpus=1), role("c", cpu=1, memory=GIB))]))
    assert decision.memory.mix == {"cards:1 cpu:0 memory:0": 2, f"none cpu:1 memory:{11 * 10**8}": 1}


@pytest.mark.parametrize(
    ("gang", "name"),
    [
        pytest.param("ns/llm-7d41e602-eece-428b-af7b-118e820865d6", "ns/llm", id="a Volcano Job's PodGroup"),
        pytest.param("ns/llm-7", "ns/llm-7", id="an operator's"),
        pytest.param(
            "ns/podgroup-7d41e602-eece-428b-af7b-118e820865d6",
            "ns/podgroup-7d41e602-eece-428b-af7b-118e820865d6",
            id="one made for a pod",
        ),
    ],
)
def test_a_gang_is_called_as_people_know_it(gang, name):
    assert known_name(gang) == name


def test_every_code_is_a_word_of_its_own():
    assert len({str(code) for code in Reason}) == len(Reason)
    assert set(Reason) >= NEVER
