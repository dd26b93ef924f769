"""Streams of jobs in virtual time: nobody waits for ever, holds stay within their limit, replays are equal."""

from unittest.mock import patch

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.decide.memory import CoreMemory
from muster.decide.scheduling import decide
from muster.decide.scheduling.reserving import Keeping
from muster.model.instructions import Place
from muster.model.pods import Request, Shape, TopologyWish
from muster.model.policy import Actions, Policy, Solver, Waiting
from muster.model.units import Bytes, CardCount, MilliCpu, QueueName
from muster.model.workloads import Limits, Queue
from muster.scenarios.stream import Job, Rules, Stream
from tests.decide.build import CARD, node

NODES = tuple(node(f"n{number}", gpus=8, labels={"rack": f"r{number // 2}"}) for number in range(4))
CARDS = 32
MAX_WAIT = 300.0
LONGEST = 120.0
TICK = 20.0
POLICY = Policy(
    actions=Actions(preempt="act", reclaim="act"), waiting=Waiting(reservations=2, percent=25, max_wait=MAX_WAIT)
)


def job(name, *, at, work, cards, pods=1, **values):
    shape = Shape(request=Request(cpu=MilliCpu(1000), memory=Bytes(1 << 30), cards=CardCount(cards)))
    return Job(name=name, at=at, work=work, pods=pods, shape=shape, queue="q", owner=f"Job/{name[0]}", **values)


def stream(jobs, *, policy=POLICY, decide_with=None):
    queues = [Queue(name=QueueName("q"), deserved=Limits(amounts={"gpu": CARDS * CARD}))]
    rules = Rules(tick=TICK, horizon=20_000.0)
    return Stream(
        jobs, nodes=NODES, queues=queues, policy=policy, levels=("rack",), rules=rules, decide_with=decide_with
    )


def flood(*, preemptible, expected):
    """Small jobs that keep the cluster full, and one gang of a whole rack among them."""
    small = [
        job(f"s{n}", at=1 + 3.0 * n, work=100.0, cards=1, preemptible=preemptible, expected=100.0 if expected else 0.0)
        for n in range(160)
    ]
    gang = job("big", at=60.0, work=50.0, cards=8, pods=2, topology=TopologyWish(required_level="rack"))
    return [*small, gang]


def lives_of(run):
    return {life.job.name: life for life in run.run()}


class TestAGangAmongManySmallJobs:
    """The cluster is never free by itself while small jobs come."""

    def test_without_reservations_it_starves(self):
        none = msgspec.structs.replace(POLICY, waiting=Waiting(reservations=0))
        assert lives_of(stream(flood(preemptible=False, expected=True), policy=none))["big"].started > 480

    def test_with_known_durations_it_starts_and_nobody_is_interrupted(self):
        lives = lives_of(stream(flood(preemptible=False, expected=True)))
        assert lives["big"].waited <= 100.0 + TICK
        assert sum(life.restarts for life in lives.values()) == 0

    def test_with_jobs_that_may_be_asked_it_starts_by_evicting_those_that_were_let_in(self):
        lives = lives_of(stream(flood(preemptible=True, expected=False)))
        assert lives["big"].waited <= 100.0 + TICK
        assert 0 < sum(life.restarts for life in lives.values()) <= 16

    def test_where_durations_have_to_be_learned_it_starts_too(self):
        lives = lives_of(stream([*flood(preemptible=False, expected=False)]))
        assert lives["big"].waited <= 100.0 + 30.0 + 2 * 100.0 + TICK


def test_what_ends_before_the_gang_could_start_is_not_kept_waiting():
    """Twenty short jobs run in the room of a gang that waits for one long one: it starts as if they had not been."""
    long = job("long", at=1.0, work=1_000.0, cards=8, preemptible=False, expected=1_000.0)
    big = job("big", at=10.0, work=50.0, cards=8, pods=4)
    short = [job(f"s{n}", at=20.0 + n, work=30.0, cards=4, preemptible=False, expected=30.0) for n in range(20)]
    lives = lives_of(stream([long, big, *short]))
    assert lives["big"].started == 1_001.0
    assert max(lives[f"s{n}"].ended for n in range(20)) <= 200.0


sizes = st.sampled_from([(1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (3, 8), (4, 8)])
jobs = st.lists(
    st.tuples(
        st.floats(0, 12),
        st.floats(10, LONGEST - 10),
        sizes,
        st.booleans(),
        st.integers(0, 2),
        st.sampled_from([0.0, 0.7, 1.0, 1.5]),
    ),
    min_size=5,
    max_size=25,
)


def made(rows):
    """Jobs that come with time between them; those that may not be asked to leave say what they expect."""
    now, result = 1.0, []
    for number, (gap, work, (pods, cards), preemptible, priority, factor) in enumerate(rows):
        now += gap
        expected = work * (factor if preemptible else max(factor, 1.0))
        one = job(f"j{number}", at=now, work=work, cards=cards, pods=pods, preemptible=preemptible, priority=priority,
                  expected=expected, checkpoint_interval=10.0)  # fmt: skip
        result.append(one)
    return result


@given(jobs)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nobody_waits_for_ever_and_no_more_is_held_than_allowed(rows):
    held: list[tuple[int, int]] = []
    resume = Keeping.resume

    def watched(keeping):
        resume(keeping)
        held.append((keeping.idle_cards(), keeping._most_idle()))

    all_jobs = made(rows)
    with patch.object(Keeping, "resume", watched):
        lives = lives_of(stream(all_jobs))
    assert all(life.ended is not None for life in lives.values())
    # Once promoted it is reserved for: what runs then ends, and as many again may have been promoted before it.
    work = sum(one.work * one.pods for one in all_jobs)
    assert max(life.waited for life in lives.values()) <= MAX_WAIT + LONGEST + work
    assert all(idle <= most for idle, most in held)
    assert all(most <= CARDS * CARD for _, most in held)


OTHERS = st.lists(
    st.tuples(st.floats(20, LONGEST), st.sampled_from((1, 2, 4)), st.integers(0, 2), st.booleans(), st.booleans()),
    min_size=40,
    max_size=70,
)


@given(OTHERS, st.sampled_from((2, 3, 4)), st.integers(0, 1))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_large_gang_waits_no_longer_than_its_max_wait_and_the_longest_job(rows, pods, priority):
    """Jobs of all priorities come every three seconds, some of them not to be asked to leave, some without a known end.

    From its max-wait on nobody of its queue takes its room any more: neither newcomers with a higher priority, nor whoever
    is protected from one more eviction. Should it be evicted itself, it waits anew.
    """
    others = [
        job(f"s{n}", at=1 + 3.0 * n, work=work, cards=cards, priority=rank, preemptible=preemptible,
            expected=work if says and not preemptible else 0.0, checkpoint_interval=10.0)
        for n, (work, cards, rank, preemptible, says) in enumerate(rows)
    ]  # fmt: skip
    big = job("big", at=5.0, work=30.0, cards=8, pods=pods, priority=priority)
    policy = msgspec.structs.replace(POLICY, waiting=Waiting(max_wait=100.0), solver=Solver(enabled=False))
    life = lives_of(stream([*others, big], policy=policy))["big"]
    assert life.ended is not None
    assert life.waited <= (1 + life.restarts) * (100.0 + LONGEST + TICK)


@given(jobs)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_stream_replayed_from_what_the_memory_was_written_as_is_the_same(rows):
    def written(snapshot, memory, now, policy):
        return decide(
            snapshot, CoreMemory.from_data(msgspec.json.decode(msgspec.json.encode(memory.to_data()))), now, policy
        )

    kept, replayed = stream(made(rows)), stream(made(rows), decide_with=written)
    assert lives_of(kept) == lives_of(replayed)
    assert kept.memory == replayed.memory


@pytest.mark.parametrize("moment", [30.0, 90.0, 150.0])
def test_idle_decisions_in_the_middle_of_a_flood_change_nothing(moment):
    run = stream(flood(preemptible=False, expected=True))
    run.rules = msgspec.structs.replace(run.rules, horizon=moment)
    list(run.run())
    snapshot, memory = run.snapshot(), run.memory
    decisions = []
    for _ in range(5):
        decision = decide(snapshot, memory, moment, POLICY)
        memory = decision.memory
        decisions.append(decision)
    assert not any(isinstance(one, Place) for one in decisions[0].instructions)
    assert all(one == decisions[0] for one in decisions)
