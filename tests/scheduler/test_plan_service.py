"""Plans proposed to a real scheduler on the simulated cluster and a real NATS server; the test takes the preemptor's part."""

import asyncio
import contextlib
import time

import pytest

from muster.bus import subjects
from muster.bus.envelope import decode
from muster.bus.ledger import Ledger
from muster.bus.messages import Decision
from muster.bus.proposals import PlanProposal, ProposalReply, WithdrawProposal
from muster.decide.commitments import Kind, LedgerView, nominations
from muster.decide.folding import fold_all
from muster.decide.memory import CORE
from muster.kube.writer import FENCE_ANNOTATION
from muster.model.instructions import Slot
from muster.model.ledger import Nominated, Plan, Victim
from muster.model.pods import CardUse
from muster.model.units import CardIndex, GangKey, NodeName, PodUid
from tests.line import Line
from tests.nats_fixtures import eventually

NODE = NodeName("gpu-node-01")
LARGE, SMALL = GangKey("default/large"), GangKey("default/small")


class Book:
    """The LEDGER as any reader folds it."""

    def __init__(self, bus) -> None:
        self.view = LedgerView()
        self._bus = bus

    async def follow(self) -> None:
        async for batch in Ledger(self._bus).batches():
            self.view = fold_all(LedgerView() if batch.reset else self.view, batch.commits)

    def kind(self) -> Kind | None:
        """Of the large gang's open entry."""
        entry = self.view.open.get(LARGE)
        return entry.kind if entry is not None else None


@pytest.fixture
async def line(nats_server):
    """One node of 8 cards, full with the two pods of `small`; `large` waits for the whole node, `quick` for half of it."""
    async with Line(nats_server.url, cluster="1x8", services=("watcher", "scheduler")) as running:
        await running.create_queue("default")
        await running.create_gang("small", pods=2, minimum=1, cards=4)
        await eventually(lambda: running_pods(running, {"small-0", "small-1"}))
        await create_urgent(running, "large", cards=8)
        await running.create_gang("quick", pods=1, cards=4)
        await eventually(lambda: waiting_gangs(running, {"default/large", "default/quick"}))
        yield running


async def create_urgent(line, name: str, *, cards: int) -> None:
    """A gang of one pod whose PodGroup names a higher priority than the others have."""
    await line.writer.create("priorityclasses.scheduling.k8s.io", None, {"metadata": {"name": "urgent"}, "value": 1000})
    spec = {"minMember": 1, "queue": "default", "priorityClassName": "urgent"}
    group = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    await line.writer.create("podgroups.scheduling.volcano.sh", "default", group)
    container = {
        "name": "main",
        "image": "registry.example.com/x:1",
        "resources": {"limits": {"nvidia.com/gpu": cards}},
    }
    metadata = {"name": f"{name}-0", "namespace": "default", "annotations": {"scheduling.k8s.io/group-name": name}}
    pod = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}
    await line.writer.create("pods", "default", {"metadata": metadata, "spec": pod})


@pytest.fixture
async def book(line):
    book = Book(line.bus)
    task = asyncio.create_task(book.follow())
    yield book
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def running_pods(line, names):
    return {pod.metadata.name for pod in await line.pods() if pod.status.phase == "Running"} == names


async def bound_names(line):
    return {pod.metadata.name for pod in await line.pods() if pod.spec.node_name}


async def waiting_gangs(line, keys):
    return {row.gang for row in (await line.client.gangs()).gangs if row.code} == keys


async def plan_of(line, *, victims=("small-0", "small-1")) -> Plan:
    pods = {pod.metadata.name: pod for pod in await line.pods()}
    group = await line.writer.get("podgroups.scheduling.volcano.sh", "default", "large")
    cards = tuple(CardUse(index=CardIndex(index), whole=True) for index in range(8))
    slot = Slot(uid=PodUid(pods["large-0"].metadata.uid), pod="large-0", role="", node=NODE, cards=cards)
    return Plan(
        gang=LARGE,
        gang_uid=group.metadata.uid,
        cause="preempt",
        victims=tuple(
            Victim(gang=SMALL, uid=PodUid(pods[name].metadata.uid), pod=name, node=NODE, evict_after=time.time())
            for name in victims
        ),
        nominated=(Nominated(gang=LARGE, gang_uid=group.metadata.uid, slots=(slot,)),),
        message="small may leave",
    )


async def propose(line, plan) -> ProposalReply:
    proposal = PlanProposal(plan=plan)
    return await line.bus.request(subjects.propose_subject("preempt"), proposal, ProposalReply, seconds=30)


async def withdraw(line, sequence) -> ProposalReply:
    proposal = WithdrawProposal(gang=LARGE, plan=sequence, reason="UNSOUND", message="it is not wanted any more")
    return await line.bus.request(subjects.propose_subject("withdraw"), proposal, ProposalReply, seconds=30)


async def told(line, verb, gang):
    """The last decision of this verb about the gang."""
    with contextlib.suppress(Exception):
        message = await line.bus.jetstream.get_last_msg("DECISIONS", subjects.decision_subject(verb, gang))
        return decode(Decision, message.data, message.headers or {})
    return None


async def test_a_plan_is_committed_outlives_its_scheduler_holds_the_room_that_it_frees_and_is_consumed(line, book):
    reply = await propose(line, await plan_of(line))
    assert reply.committed, reply
    await eventually(lambda: book.kind() is Kind.PLAN)
    assert book.view.open[LARGE].sequence == reply.sequence
    nominate, preempt = await eventually(lambda: both_told(line))
    remembered = book.view.memory[CORE]
    assert [one["gang"] for one in remembered["evictions"]] == [SMALL]
    assert "nominations" not in remembered
    assert (nominate.numbers["victims"], preempt.numbers["pods"], preempt.sequence) == (2, 2, reply.sequence)

    await line.writer.delete("pods", "default", "small-0", grace_period=0)
    await line.stop("scheduler")
    await line.start("scheduler", identity="another")
    await eventually(lambda: book.view.leader_identity == "another")
    await eventually(lambda: waiting_gangs(line, {"default/large", "default/quick"}))
    assert [one.gang for one in nominations(book.view)] == [LARGE]
    assert await bound_names(line) == {"small-1"}

    await line.writer.delete("pods", "default", "small-1", grace_period=0)
    await eventually(lambda: running_pods(line, {"large-0"}))
    await eventually(lambda: not book.view.open)
    assert nominations(book.view) == ()
    assert await bound_names(line) == {"large-0"}
    assert not line.sim.kubelets.violations


async def both_told(line):
    found = (await told(line, "nominate", LARGE), await told(line, "preempt", SMALL))
    return found if all(found) else None


async def test_a_plan_that_is_unsound_or_stale_is_refused_with_a_sentence_and_leaves_nothing(line, book):
    reply = await propose(line, await plan_of(line, victims=("small-0",)))
    assert (reply.committed, reply.code) == (False, "unsound")
    assert "does not fit once the victims are gone" in reply.message
    refused = await eventually(lambda: told(line, "refused", LARGE))
    assert (refused.code, refused.message) == ("unsound", reply.message)

    plan = await plan_of(line)
    await line.writer.delete("pods", "default", "small-0", grace_period=0)
    await eventually(lambda: running_pods(line, {"small-1", "quick-0"}))
    reply = await propose(line, plan)
    assert (reply.committed, reply.code) == (False, "stale")
    assert LARGE not in book.view.open


async def test_a_plan_is_withdrawn_by_touching_its_victims_and_may_be_proposed_again(line, book):
    first = await propose(line, await plan_of(line))
    second = await propose(line, await plan_of(line))
    assert (first.committed, second.committed, second.code) == (True, False, "open")

    taken_back = await withdraw(line, first.sequence)
    assert taken_back.committed
    await eventually(lambda: first.sequence <= book.view.sequence and LARGE not in book.view.open)
    fences = {
        pod.metadata.name: int(pod.metadata.annotations.get(FENCE_ANNOTATION, 0))
        for pod in await line.pods()
        if pod.metadata.name.startswith("small")
    }
    assert fences == {"small-0": taken_back.sequence, "small-1": taken_back.sequence}
    assert await bound_names(line) == {"small-0", "small-1"}
    assert (await withdraw(line, first.sequence)).code == "stale"
    assert (await propose(line, await plan_of(line))).committed


async def test_the_leader_itself_takes_a_plan_back_whose_gang_is_gone(line, book):
    reply = await propose(line, await plan_of(line))
    assert reply.committed
    await line.writer.delete("podgroups.scheduling.volcano.sh", "default", "large")
    await line.writer.delete("pods", "default", "large-0", grace_period=0)
    await eventually(lambda: reply.sequence <= book.view.sequence and LARGE not in book.view.open)
    undo = await eventually(lambda: told(line, "undo", LARGE))
    assert undo.code == "GANG_GONE"
    assert await bound_names(line) == {"small-0", "small-1"}
