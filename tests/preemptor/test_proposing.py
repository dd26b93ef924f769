"""When plans are proposed, and what answers mean: a core that always has the same plan, and time that the test moves."""

import asyncio
import itertools

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry

from muster.bus.errors import NoAnswerError
from muster.bus.proposals import ProposalReply
from muster.decide.basis import Basis
from muster.decide.commitments import Kind, LedgerView, OpenEntry
from muster.decide.memory import CoreMemory, Nomination
from muster.decide.preemption import Proposal, plan_entry
from muster.decide.preemption.history import digest_of
from muster.model.budgets import Budget
from muster.model.gangs import Gang, Member, MemberState, Role
from muster.model.instructions import Evict, Slot
from muster.model.pods import Request, Shape
from muster.model.policy import Actions, Fairness, Policy
from muster.model.snapshot import Snapshot
from muster.preemptor.metrics import PreemptorMetrics
from muster.preemptor.planning import Outlook
from muster.preemptor.proposing import Proposer

CARD = Shape(request=Request(cards=8))
WAITS = Gang(
    key="a/urgent",
    uid="g1",
    queue="q",
    priority=9,
    roles=(Role(name="", shape=CARD, replicas=1),),
    members=(Member(uid="u1", name="urgent-0", role="", state=MemberState.WAITING),),
    namespace="a",
)
STANDS = Gang(
    key="a/low",
    uid="g2",
    queue="q",
    roles=(Role(name="", shape=CARD, replicas=1),),
    members=(Member(uid="u2", name="low-0", role="", state=MemberState.BOUND, node="n1"),),
    namespace="a",
)
SLOT = Slot(uid="u1", pod="urgent-0", role="", node="n1")
COMMITTED = ProposalReply(committed=True, sequence=9)


class Core:
    """Has one plan, unless it was tried; `cause` decides which actor it is."""

    def __init__(self, cause: str) -> None:
        self.cause = cause
        self.asked = 0

    async def propose(self, outlook: Outlook) -> Proposal:
        self.asked += 1
        actions = outlook.policy.actions
        if (actions.reclaim if self.cause == "reclaim" else actions.preempt) != "act":
            return Proposal()
        plan = Evict(gang="a/urgent", victims=(("a/low", "u2"),), slots=(SLOT,), cause=self.cause)
        if outlook.memory.tried.get("a/urgent") == digest_of(plan, outlook.snapshot):
            return Proposal()
        room = Nomination(gang="a/urgent", slots=(SLOT,), victims=("u2",), until=0.0)
        return Proposal(plan=plan, nominations=(room,))


class Stage:
    def __init__(self, *answers, cause: str = "preempt", policy: Policy | None = None) -> None:
        self.now = 100.0
        self.answers = list(answers)
        self.proposed: list[float] = []
        self.said = []
        self.core = Core(cause)
        self.policy = policy or Policy()
        self.view = LedgerView(sequence=5)
        self.snapshot = Snapshot(nodes=(), queues=(), gangs=(STANDS, WAITS))
        self.version = 1
        self.proposer = Proposer(
            core=self.core,
            ask=self._answer,
            say=self.said.append,
            metrics=PreemptorMetrics(CollectorRegistry()),
            wake=lambda: None,
            clock=lambda: self.now,
            wall=lambda: self.now,
            log=structlog.get_logger(),
        )

    async def _answer(self, proposal):
        self.proposed.append(self.now)
        answer = self.answers.pop(0) if self.answers else COMMITTED
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run(self, seconds: float) -> list[float]:
        """Look twice a second; moments of the proposals made meanwhile, from the beginning of the test."""
        before = len(self.proposed)
        for _ in range(round(seconds * 2)):
            outlook = Outlook(self.snapshot, CoreMemory(), self.now, self.policy, Basis())
            await self.proposer.look(outlook, self.view, version=self.version)
            for _ in range(5):
                await asyncio.sleep(0)
            self.now += 0.5
        return [moment - 100.0 for moment in self.proposed[before:]]


def refused(code: str) -> ProposalReply:
    return ProposalReply(committed=False, code=code, message="no")


async def test_a_plan_is_proposed_when_the_scheduler_had_its_turn_and_once_while_its_entry_is_not_read():
    stage = Stage()
    assert await stage.run(10) == [1.0]
    stage.view = LedgerView(sequence=9)
    assert await stage.run(2) == [10.0]


async def test_nothing_is_asked_of_the_core_while_nobody_waits():
    stage = Stage()
    stage.snapshot = msgspec.structs.replace(stage.snapshot, gangs=(STANDS,))
    assert await stage.run(20) == []
    stage.snapshot = msgspec.structs.replace(
        stage.snapshot, gangs=(STANDS, msgspec.structs.replace(WAITS, hold="PAUSED"))
    )
    assert await stage.run(20) == []
    assert stage.core.asked == 0


async def test_a_gang_with_an_open_entry_does_not_wait():
    stage = Stage()
    entry = OpenEntry(sequence=4, kind=Kind.PLAN, gang="a/urgent", gang_uid="g1", slots=(), at=0.0)
    stage.view = LedgerView(sequence=5, open={"a/urgent": entry})
    assert await stage.run(20) == []


@pytest.mark.parametrize("code", ["unsound", "paused"])
async def test_a_refused_plan_is_not_proposed_again_before_something_changes(code):
    stage = Stage(refused(code), refused(code))
    assert await stage.run(25) == [1.0]
    stage.version += 1
    assert await stage.run(2) == []  # something else changed: the plan looks at the same as before
    other = msgspec.structs.replace(STANDS, priority=1)
    stage.snapshot = msgspec.structs.replace(stage.snapshot, gangs=(other, WAITS))
    stage.version += 1
    assert len(await stage.run(3)) == 1


async def test_what_the_digest_does_not_tell_makes_refusals_void():
    stage = Stage(refused("unsound"))
    assert await stage.run(10) == [1.0]
    stage.snapshot = msgspec.structs.replace(stage.snapshot, budgets=(Budget(namespace="a", name="keep", allowed=1),))
    stage.version += 1
    assert len(await stage.run(3)) == 1


async def test_time_alone_ends_a_refusal_ever_later():
    stage = Stage(*(refused("unsound") for _ in range(9)))
    moments = await stage.run(400)
    assert 3 <= len(moments) <= 5
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert gaps == sorted(gaps)
    assert gaps[0] >= 30


@pytest.mark.parametrize("answer", [refused("stale"), refused("open"), NoAnswerError("nobody serves this")])
async def test_what_says_nothing_about_the_plan_is_tried_again_soon(answer):
    stage = Stage(answer)
    moments = await stage.run(4)
    assert len(moments) == 2
    assert moments[1] - moments[0] <= 1.5


async def test_a_plan_that_is_given_back_is_not_proposed_again():
    stage = Stage()
    entry = OpenEntry(
        sequence=4, kind=Kind.WITHDRAWING, gang="a/urgent", gang_uid="g1", slots=(), at=0.0, plan=3, cause="preempt"
    )
    plan = await stage.core.propose(Outlook(stage.snapshot, CoreMemory(), 0.0, stage.policy, Basis()))
    assert plan.plan is not None
    made = plan_entry(plan, stage.snapshot, CoreMemory(), 0.0, stage.policy)
    entry = msgspec.structs.replace(entry, victims=made.victims, nominated=made.nominated)
    stage.view = LedgerView(sequence=5, open={"a/urgent": entry})
    assert await stage.run(2) == []
    stage.view = LedgerView(sequence=6)
    assert await stage.run(20) == []


async def test_actors_that_only_observe_say_it_once_and_propose_nothing():
    stage = Stage(cause="reclaim", policy=Policy(actions=Actions(reclaim="observe")))
    assert await stage.run(120) == []
    assert [(one.verb, one.code, one.gang) for one in stage.said] == [("preempt", "WOULD_RECLAIM", "a/urgent")]


async def test_an_actor_that_may_act_from_now_on_plans_at_once_however_long_it_observed():
    stage = Stage(cause="reclaim", policy=Policy(actions=Actions(reclaim="observe")))
    assert await stage.run(200) == []
    stage.policy = Policy(actions=Actions(reclaim="act"))
    assert await stage.run(5) == [200.0]


async def test_a_leader_that_still_observes_by_the_old_policy_costs_seconds():
    stage = Stage(refused("observe"), refused("observe"))
    moments = await stage.run(20)
    assert len(moments) == 3
    assert moments[-1] - moments[0] <= 8


async def test_a_leader_that_goes_on_observing_is_asked_ever_less_often():
    stage = Stage(*(refused("observe") for _ in range(30)))
    assert len(await stage.run(600)) <= 10


async def test_another_policy_makes_refusals_void():
    stage = Stage(refused("unsound"))
    assert await stage.run(10) == [1.0]
    stage.policy = Policy(fairness=Fairness(stability=1.0))
    assert await stage.run(3) == [10.0]


async def test_a_core_that_fails_is_a_defect_that_is_counted_and_harms_nobody():
    stage = Stage()

    async def broken(outlook):
        raise ZeroDivisionError

    stage.core.propose = broken
    assert await stage.run(3) == []
    assert stage.proposer._metrics.defects.labels("propose")._value.get() >= 1
