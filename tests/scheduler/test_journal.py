"""What is written of gangs that wait: when the truth changes, and not when numbers wobble or nothing is new."""

import pytest
import structlog
from prometheus_client import CollectorRegistry

from muster.decide.memory import CoreMemory
from muster.decide.scheduling import Decision
from muster.model.instructions import Pending
from muster.model.ledger import Bind, Plan, Victim, Withdrawing
from muster.scheduler.audit import decisions_of
from muster.scheduler.journal import NUMBERS_SECONDS, PENDING_BURST, PENDING_PER_SECOND, Journal
from muster.scheduler.telemetry import Telemetry
from tests.decide.build import gang, node, run, snapshot


class Rounds:
    """A journal under a clock of its own, and everything that it would publish."""

    def __init__(self):
        self.now = 1_000_000.0
        self.journal = Journal(
            telemetry=Telemetry(CollectorRegistry()), log=structlog.get_logger(), wall=lambda: self.now
        )
        self.said = []

    def decide(self, *reasons, state=None, after=1.0):
        self.now += after
        self.journal.decided(state or snapshot([], []), Decision(instructions=reasons, memory=CoreMemory()), 0.001)
        return self.taken()

    def taken(self):
        new = [decision for decision in self.journal._waiting.values() if decision.verb == "pending"]
        self.journal._waiting.clear()
        self.said += new
        return new


def waits(name="g", code="NOT_ENOUGH_ROOM", free=3, position=1):
    return Pending(
        gang=f"ns/{name}", queue="q", code=code, message=f"{free} cards free", numbers={"free": free}, position=position
    )


def test_a_hundred_rounds_with_nothing_new_write_nothing():
    rounds = Rounds()
    state = snapshot([node(gpus=4)], [gang(f"g{n}") for n in range(20)])
    first = rounds.decide(*(waits(f"g{n}") for n in range(20)), state=state)
    assert len(first) == 20
    rounds.said.clear()
    for _ in range(100):
        rounds.decide(*(waits(f"g{n}") for n in range(20)), state=state, after=5.0)
    assert rounds.said == []


def test_numbers_that_wobble_are_written_every_30_seconds_at_most():
    rounds = Rounds()
    rounds.decide(waits(free=3))
    rounds.said.clear()
    for number in range(120):
        rounds.decide(waits(free=3 + number % 2, position=1 + number % 3))
    assert len(rounds.said) <= 120 / NUMBERS_SECONDS
    assert len(rounds.said) >= 3


def test_another_reason_is_written_at_once():
    rounds = Rounds()
    rounds.decide(waits())
    assert [one.code for one in rounds.decide(waits(code="BEHIND"))] == ["BEHIND"]
    assert [one.code for one in rounds.decide(waits())] == ["NOT_ENOUGH_ROOM"]


def test_a_gang_that_was_placed_and_waits_again_is_told_anew():
    rounds = Rounds()
    rounds.decide(waits())
    rounds.journal.committed((Bind(gang="ns/g", gang_uid="x", slots=()),), 7, 1)
    rounds.taken()
    assert [one.code for one in rounds.decide(waits())] == ["NOT_ENOUGH_ROOM"]


def test_a_gang_that_is_gone_and_comes_back_is_told_anew():
    rounds = Rounds()
    rounds.decide(waits())
    assert rounds.decide() == []
    assert len(rounds.decide(waits())) == 1


def test_many_gangs_are_told_in_turn_from_a_bucket():
    rounds = Rounds()
    many = [waits(f"g{n}") for n in range(1500)]
    assert len(rounds.decide(*many)) == PENDING_BURST
    for _ in range(int((1500 - PENDING_BURST) / PENDING_PER_SECOND) + 1):
        assert len(rounds.decide(*many)) <= PENDING_PER_SECOND
    assert len({one.gang for one in rounds.said}) == 1500
    assert rounds.decide(*many) == []


@pytest.mark.parametrize("rounds", [100])
def test_the_core_says_the_same_of_the_same(rounds):
    state = snapshot([node(gpus=2)], [gang("a"), gang("b")])
    decisions = [run(state, now=100.0 + number).instructions for number in range(rounds)]
    assert all(one == decisions[0] for one in decisions)


def test_plans_name_jobs_as_people_do():
    names = {"ns/a-105ada6b": "ns/a", "ns/podgroup-105ada6b": "ns/train"}
    victim = Victim(gang="ns/podgroup-105ada6b", uid="u1", pod="train-0", node="n1", evict_after=30.0)
    plan = Plan(gang="ns/a-105ada6b", gang_uid="g", cause="reclaim", victims=(victim,), nominated=(), message="why")
    (said,) = decisions_of(plan, sequence=5, epoch=1, at=0.0, named=lambda gang: names.get(gang, gang))
    assert said.gang == "ns/podgroup-105ada6b"
    assert said.message == "1 pod of it leaves for ns/a: why"
    assert said.numbers["for"] == "ns/a"
    back = Withdrawing(gang="ns/a-105ada6b", plan=5, reason="UNSOUND", message="ns/a-105ada6b fits now")
    (said,) = decisions_of(back, sequence=6, epoch=1, at=0.0, named=lambda gang: names.get(gang, gang))
    assert said.message == "the plan to make room for it is taken back: ns/a fits now"
