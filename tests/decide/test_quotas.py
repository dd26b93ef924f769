"""A gang that only a capability holds back: after its max-wait what comes free of the quota is its own."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.decide.reasons import Reason
from muster.model.pods import Request, Shape
from muster.model.policy import Policy, Solver, Waiting
from muster.model.units import Bytes, CardCount, MilliCpu
from muster.scenarios.stream import Job, Rules, Stream
from tests.decide.build import CARD, gang, node, placed, queue, reasons, role, run, snapshot, standing, whole

NOW = 10_000.0
POLICY = Policy(waiting=Waiting(max_wait=300.0), solver=Solver(enabled=False))
NODES = [node("n1", gpus=8), node("n2", gpus=8)]


def running(name, on, cards, *, of="q"):
    members = (standing(f"{name}-0", on, cards=whole(*cards)),)
    return gang(name, role(count=0, gpus=len(cards)), minimum=1, queue=of, members=members)


def asks(name, cards, *, waited, of="q", **more):
    return gang(name, role(gpus=cards), queue=of, submitted=NOW - waited, **more)


def decided(*gangs, queues=None, policy=POLICY):
    queues = queues or [queue(capability={"gpu": 8 * CARD})]
    return run(snapshot(NODES, gangs, queues), now=NOW, policy=policy)


def test_before_its_max_wait_smaller_ones_take_what_is_left():
    decision = decided(running("r", "n1", range(4)), asks("large", 8, waited=299.0), asks("small", 1, waited=1.0))
    assert placed(decision) == {"small": ["n1"]}


def test_after_it_what_is_left_is_kept_for_it_and_the_others_are_told():
    decision = decided(running("r", "n1", range(4)), asks("large", 8, waited=300.0), asks("small", 1, waited=1.0))
    assert placed(decision) == {}
    why = reasons(decision)
    assert why["small"].code == Reason.HELD_FOR_OTHERS
    assert (
        why["small"].message == "what is left of the limit of queue q is kept for ns/large, which has waited too long"
    )
    assert why["large"].code in {Reason.QUEUE_CAPABILITY, Reason.RESERVED}
    assert "queue q uses 4 cards of its limit 8 cards" in why["large"].message


def test_it_starts_as_soon_as_its_quota_is_free():
    assert placed(decided(asks("large", 8, waited=300.0), asks("small", 1, waited=1.0))) == {"large": ["n1"]}


def test_what_fits_beside_it_is_not_kept_out():
    decision = decided(running("r", "n1", range(2)), asks("large", 6, waited=300.0), asks("small", 1, waited=1.0),
                       queues=[queue(capability={"gpu": 9 * CARD})])  # fmt: skip
    assert placed(decision) == {"large": ["n1"], "small": ["n2"]}


def test_another_queue_under_the_same_limit_is_kept_out_and_one_beside_it_is_not():
    queues = [
        queue("top", capability={"gpu": 8 * CARD}),
        queue("a", parent="top"),
        queue("b", parent="top"),
        queue("c"),
    ]
    decision = decided(
        running("r", "n1", range(4), of="b"),
        asks("large", 8, waited=300.0, of="a"),
        asks("under", 1, waited=1.0, of="b"),
        asks("beside", 1, waited=1.0, of="c"),
        queues=queues,
    )
    assert placed(decision) == {"beside": ["n1"]}
    assert reasons(decision)["under"].code == Reason.HELD_FOR_OTHERS


def test_of_two_that_waited_too_long_the_one_that_waited_longest_starts():
    decision = decided(asks("first", 8, waited=400.0), asks("second", 8, waited=300.0))
    assert placed(decision) == {"first": ["n1"]}


@pytest.mark.parametrize("most", [0, 1])
def test_no_more_of_them_than_there_may_be_reservations(most):
    policy = msgspec.structs.replace(POLICY, waiting=Waiting(max_wait=300.0, reservations=most))
    decision = decided(
        running("r", "n1", range(4)), asks("large", 8, waited=300.0), asks("small", 1, waited=1.0), policy=policy
    )
    assert placed(decision) == ({} if most else {"small": ["n1"]})


def test_a_gang_that_could_never_start_keeps_nothing():
    decision = decided(asks("huge", 9, waited=300.0), asks("small", 1, waited=1.0))
    assert placed(decision) == {"small": ["n1"]}


SMALL = st.lists(st.tuples(st.floats(1, 6), st.floats(20, 100), st.integers(1, 3)), min_size=40, max_size=70)


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(SMALL, st.booleans())
def test_a_large_gang_under_a_limit_waits_for_its_max_wait_and_the_longest_job_at_the_most(rows, below):
    """Small jobs keep the queue at its limit of eight cards; sixteen more are free all the time."""
    shape = lambda cards: Shape(request=Request(cpu=MilliCpu(1000), memory=Bytes(1 << 30), cards=CardCount(cards)))  # noqa: E731
    now, jobs = 0.0, []
    for number, (gap, work, cards) in enumerate(rows):
        now += gap
        jobs.append(Job(name=f"s{number}", at=now, work=work, pods=1, shape=shape(cards), queue="b" if below else "q"))
    jobs.append(Job(name="large", at=10.0, work=50.0, pods=1, shape=shape(8), queue="a" if below else "q"))
    cap = {"gpu": 8 * CARD}
    queues = (
        [queue("q", capability=cap), queue("a", parent="q"), queue("b", parent="q")]
        if below
        else [queue(capability=cap)]
    )
    policy = msgspec.structs.replace(POLICY, waiting=Waiting(max_wait=100.0))
    nodes = [node(f"n{number}", gpus=8) for number in range(3)]
    lives = {
        life.job.name: life
        for life in Stream(jobs, nodes=nodes, queues=queues, policy=policy, rules=Rules(tick=10.0)).run()
    }
    assert all(life.ended is not None for life in lives.values())
    assert lives["large"].waited <= 100.0 + max(work for _, work, _ in rows) + 10.0
