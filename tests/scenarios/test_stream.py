"""Streams of jobs in virtual time: arithmetic of work, waiting, interruptions."""

import msgspec
import pytest

from loadtest.naive import propose_naive
from loadtest.trace import CARD, QUEUES, cluster, draw, read
from muster.decide.preemption import propose
from muster.model.pods import Request, Shape
from muster.model.policy import Actions, Policy, Waiting
from muster.model.units import Bytes, CardCount, MilliCpu, QueueName
from muster.model.workloads import Limits, Queue
from muster.scenarios.stream import Job, Rules, Stream

POLICY = Policy(
    actions=Actions(bind="act", preempt="act", reclaim="act", consolidate="observe"),
    waiting=Waiting(reservations=0),
)


def job(name, *, at=0.0, work=100.0, cards=8, pods=1, queue="q", **values):
    shape = Shape(request=Request(cpu=MilliCpu(1000), memory=Bytes(1 << 30), cards=CardCount(cards)))
    return Job(name=name, at=at, work=work, pods=pods, shape=shape, queue=queue, **values)


def ran(*jobs, cards=8, rules=None, queues=None):
    nodes, _ = cluster(cards)
    queues = queues or [Queue(name=QueueName("q"), deserved=Limits(amounts={"gpu": cards * CARD}))]
    stream = Stream(jobs, nodes=nodes, queues=queues, policy=POLICY, rules=rules, levels=("rack",))
    return {life.job.name: life for life in stream.run()}


def test_a_job_alone_starts_at_once_and_ends_when_its_work_is_done():
    life = ran(job("a", at=5.0, work=100.0))["a"]
    assert (life.started, life.ended, life.waited, life.restarts, life.held) == (5.0, 105.0, 0.0, 0, 100.0)


def test_a_second_job_waits_for_the_first_of_equal_priority():
    lives = ran(job("a", work=100.0), job("b", at=10.0, work=50.0))
    assert (lives["b"].started, lives["b"].ended, lives["b"].waited) == (100.0, 150.0, 90.0)
    assert lives["a"].restarts == 0


def test_a_gang_above_its_minimum_works_at_its_part():
    lives = ran(job("a", work=40.0, cards=4), job("b", work=100.0, cards=4, pods=2, minimum=1))
    # Half its pods for 40 s, then both: 20 s of work are done when the other half comes.
    assert lives["b"].ended == pytest.approx(40.0 + 80.0)
    assert lives["b"].held == pytest.approx(40.0 + 2 * 80.0)


@pytest.mark.parametrize(
    ("interval", "lost", "ended"),
    [(0.0, 70.0, 70.0 + 10.0 + 5.0 + 100.0), (30.0, 10.0, 70.0 + 10.0 + 5.0 + 40.0)],
    ids=["without checkpoints it begins again", "it goes on from its last checkpoint"],
)
def test_an_evicted_job_waits_pays_the_restart_and_runs_again(interval, lost, ended):
    lives = ran(
        job("low", work=100.0, checkpoint_interval=interval),
        job("high", at=70.0, work=10.0, priority=10),
        rules=Rules(restart_cost=5.0),
    )
    low = lives["low"]
    assert (low.restarts, low.evicted_pods, low.lost_work) == (1, 1, pytest.approx(lost))
    assert low.ended == pytest.approx(ended)
    assert (low.waited, lives["high"].started) == (10.0, 70.0)
    assert low.evicted_held == 70.0


def test_room_of_pods_that_take_their_time_to_leave_is_free_afterwards():
    lives = ran(
        job("low", work=100.0, checkpoint_interval=10.0),
        job("high", at=70.0, work=10.0, priority=10),
        rules=Rules(leaving=7.0),
    )
    assert (lives["high"].started, lives["low"].ended) == (77.0, 77.0 + 10.0 + 30.0)


def test_at_the_horizon_what_runs_and_what_waits_has_no_end():
    lives = ran(job("a", work=100.0), job("b", at=10.0, work=50.0), rules=Rules(horizon=60.0))
    assert {name: life.ended for name, life in lives.items()} == {"a": None, "b": None}
    assert (lives["a"].held, lives["b"].waited) == (60.0, 50.0)


def test_a_run_is_the_same_again():
    jobs = [
        job(f"j{n}", at=n * 7.0, work=20.0 + n, cards=1 + n % 4, priority=n % 3, checkpoint_interval=5.0)
        for n in range(30)
    ]
    one, other = ran(*jobs), ran(*jobs)
    assert {n: msgspec.to_builtins(life) for n, life in one.items()} == {
        n: msgspec.to_builtins(life) for n, life in other.items()
    }


def test_who_evicts_naively_takes_what_it_does_not_need_and_the_cores_do_not():
    jobs = [
        job("small", work=1000.0, cards=4, priority=0),
        job("equal", at=1.0, work=1000.0, cards=4, priority=10),
        job("full", at=2.0, work=1000.0, cards=8, priority=1),
        job("high", at=10.0, work=10.0, cards=8, priority=10),
    ]
    nodes, _ = cluster(16)
    queue = Queue(name=QueueName("q"), deserved=Limits(amounts={"gpu": 16 * CARD}))
    evicted = {}
    for name, how in (("naive", propose_naive), ("ours", propose)):
        stream = Stream(jobs, nodes=nodes, queues=[queue], policy=POLICY, propose_with=how, levels=("rack",))
        evicted[name] = sorted(life.job.name for life in stream.run() if life.restarts)
    assert evicted == {"naive": ["full", "small"], "ours": ["full"]}


def test_a_trace_is_read_alike_for_every_seed_but_for_what_is_drawn(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "job_id,submission_time,duration,num_gpu\n" + "".join(f"j{n},{100 + n},60,{1 << n}\n" for n in range(6))
    )
    jobs = read(path, seed=1, days=1.0, largest=16)
    assert [(one.at, one.pods, one.shape.request.cards) for one in jobs] == [
        (0.0, 1, 1), (1.0, 1, 2), (2.0, 1, 4), (3.0, 1, 8), (4.0, 2, 8),
    ]  # fmt: skip
    assert {one.queue for one in jobs} <= {name for name, _, _ in QUEUES}
    path.write_text("job_id,submission_time,duration,num_gpu\nx,now,60,1\n")
    with pytest.raises(ValueError, match="now"):
        read(path, seed=1, days=1.0, largest=16)


def test_drawing_follows_the_parts():
    found = [draw(f"1 {n}", [0.5, 0.3, 0.2]) for n in range(4000)]
    assert [round(found.count(part) / 4000, 1) for part in range(3)] == [0.5, 0.3, 0.2]
