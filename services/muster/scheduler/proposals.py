"""Proposals of the preemptor and the autoscaler: they wait for the leader's next round, which judges them on its own view and commits or refuses.

    muster.propose.preempt  ─► queue ─► round: view, snapshot ─► here: what the LEDGER and STATE forbid
                                                             ─► off the event loop: what the core forbids ─► plan entry
    muster.propose.withdraw ─► queue ─► round ─► withdrawing entry

An entry is appended with the sequence of the view that judged, so nothing can come between. What STATE shows may have moved
on while the core judged: what is said of the victims is looked at once more. An asker that hears nothing reads the LEDGER.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable
from types import TracebackType
from typing import Self

import msgspec

from muster.bus.proposals import PlanProposal, ProposalReply, WithdrawProposal
from muster.decide.commitments import Kind, LedgerView
from muster.decide.pauses import paused, sentence
from muster.model.gangs import MemberState
from muster.model.ledger import Entry, Nominated, Plan, Victim, Withdrawing
from muster.model.policy import Mode
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, NodeName, QueueName, Sequence, split_key
from muster.scheduler.committing import completed
from muster.scheduler.judging import Standpoint
from muster.scheduler.nodes import NodeProposal, Verdict
from muster.scheduler.nodes import judge as judge_nodes
from muster.scheduler.reporting import Reporter
from muster.view.world import World

ANSWER_SECONDS = 20.0
"""How long a proposal waits for its round."""
MOST_WAITING = 64
AT_ONCE = 2
"""Proposals of one round: judging must not hold up placing."""

Refusal = Callable[[Standpoint, Plan], Awaitable[str]]
"""Why the core holds a plan for unsound on this view; '' when it is sound. Runs off the event loop."""
Proposal = PlanProposal | WithdrawProposal | NodeProposal


class Refused(Exception):  # noqa: N818  (an answer, not an error)
    """Not committed; `code` is one of those that `ProposalReply` names."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Asked:
    """One proposal and its answer; as a context, it is answered by the end of it whatever happens."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.left_out: dict[NodeName, str] = {}
        """Nodes that are not taken, of several."""
        self.reply: asyncio.Future[ProposalReply] = asyncio.get_running_loop().create_future()

    def answer(self, reply: ProposalReply) -> None:
        """The first answer counts."""
        if not self.reply.done():
            self.reply.set_result(reply)

    def refuse(self, code: str, message: str) -> None:
        """Not committed."""
        self.answer(ProposalReply(committed=False, code=code, message=message))

    def committed(self, sequence: Sequence | None) -> None:
        """What became of the append."""
        if sequence is None:
            self.refuse("stale", "the LEDGER moved on while this was judged; propose again")
        else:
            self.answer(ProposalReply(committed=True, sequence=sequence, refused=self.left_out))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse("stale", "this leadership ended while it was judged; the LEDGER tells whether it was committed")


class Proposals:
    """The proposals of one leadership."""

    def __init__(
        self,
        *,
        world: World,
        reporter: Reporter,
        refusal: Refusal,
        wake: Callable[[], None],
        wait: float = ANSWER_SECONDS,
    ) -> None:
        """`wait`: seconds that a proposal waits for its round."""
        self._world = world
        self._reporter = reporter
        self._refusal = refusal
        self._wake = wake
        self._wait = wait
        self._waiting: deque[Asked] = deque()

    @property
    def waiting(self) -> int:
        """Proposals that no round has taken yet."""
        return len(self._waiting)

    async def propose(self, proposal: Proposal) -> ProposalReply:
        """Wait for the round that judges it."""
        if len(self._waiting) >= MOST_WAITING:
            return ProposalReply(committed=False, code="stale", message=f"{MOST_WAITING} proposals wait already")
        asked = Asked(proposal)
        self._waiting.append(asked)
        self._wake()
        await asyncio.wait({asked.reply}, timeout=self._wait)
        if asked in self._waiting:
            self._waiting.remove(asked)
            asked.refuse("stale", f"no round judged it within {self._wait:g} s: the leader has no current view")
        return await asked.reply

    def take(self) -> tuple[Asked, ...]:
        """The next few, in the order in which they came."""
        return tuple(self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting))))

    def close(self) -> None:
        """The leadership ends."""
        while self._waiting:
            self._waiting.popleft().refuse("stale", "this scheduler does not lead any more")

    # --- judging -----------------------------------------------------------------------------------------------------

    async def judge(self, asked: Asked, at: Standpoint) -> tuple[Entry, ...]:
        """The entries to append with the sequence of the standpoint's view; (): it was refused, and is answered."""
        proposal = asked.proposal
        try:
            if isinstance(proposal, WithdrawProposal):
                withdrawing = self._withdrawing(asked, proposal, at)
                return () if withdrawing is None else (withdrawing,)
            if isinstance(proposal, PlanProposal):
                return (await self._plan(proposal, at),)
            return await self._nodes(asked, proposal, at)
        except Refused as refused:
            asked.refuse(refused.code, refused.message)
            if isinstance(proposal, PlanProposal | WithdrawProposal):
                gang = proposal.gang if isinstance(proposal, WithdrawProposal) else proposal.plan.gang
                self._reporter.refused(GangKey(gang), refused.code, refused.message, _numbers(proposal))
        except Exception as error:  # noqa: BLE001  (whatever the core did: the leadership goes on without it)
            asked.refuse("unsound", f"judging it failed: {type(error).__name__}")
            self._reporter.failed("judge", error)
        return ()

    async def _nodes(self, asked: Asked, proposal: NodeProposal, at: Standpoint) -> tuple[Entry, ...]:
        if not at.ready:
            raise Refused("stale", "the leader's view of the cluster is not current")
        verdict: Verdict = await judge_nodes(proposal, at.view, at.snapshot, at.memory, policy=at.policy, now=at.now)
        if not verdict.entries:
            asked.answer(
                ProposalReply(committed=False, code=verdict.code, message=verdict.message, refused=verdict.refused)
            )
        asked.left_out = verdict.refused
        return verdict.entries

    def _withdrawing(self, asked: Asked, proposal: WithdrawProposal, at: Standpoint) -> Withdrawing | None:
        entry = at.view.open.get(GangKey(proposal.gang))
        if entry is not None and entry.kind is Kind.WITHDRAWING and entry.plan == proposal.plan:
            asked.committed(entry.sequence)
            return None
        if entry is None or entry.kind is not Kind.PLAN or entry.sequence != proposal.plan:
            raise Refused("stale", f"plan {proposal.plan} of {proposal.gang} is not open")
        return Withdrawing(
            gang=entry.gang,
            plan=entry.sequence,
            reason=proposal.reason,
            message=proposal.message,
            freshness=at.freshness,
        )

    async def _plan(self, proposal: PlanProposal, at: Standpoint) -> Plan:
        plan, view = proposal.plan, at.view
        if not at.ready:
            raise Refused("stale", "the leader's view of the cluster is not current")
        if proposal.ledger > view.sequence:
            raise Refused("stale", f"made on LEDGER {proposal.ledger}, this view is at {view.sequence}")
        self._check_policy(plan, at)
        self._check_gangs(plan, view, at.snapshot)
        self._check_victims(plan.victims, view)
        self._check_rooms(plan.nominated, view)
        plan = msgspec.structs.replace(
            plan,
            nominated=tuple(
                msgspec.structs.replace(one, slots=tuple(completed(slot, self._world) for slot in one.slots))
                for one in plan.nominated
            ),
            decided_at=at.now,
            freshness=at.freshness,
        )
        if why := await self._refusal(at, plan):
            raise Refused("unsound", why)
        # STATE went on meanwhile; the LEDGER cannot have, or the append will be refused.
        self._check_victims(plan.victims, view)
        return plan

    def _check_policy(self, plan: Plan, at: Standpoint) -> None:
        gangs = {plan.gang, *(victim.gang for victim in plan.victims)}
        if (pause := paused(at.view.memory, "evict", *_queues_of(gangs, at.snapshot))) is not None:
            raise Refused("paused", sentence(pause))
        actions = at.policy.actions
        modes: dict[str, Mode] = {
            "preempt": actions.preempt,
            "backfill": actions.preempt,
            "reclaim": actions.reclaim,
            "consolidate": actions.consolidate,
        }
        mode = modes.get(plan.cause)
        if mode is None:
            raise Refused("unsound", f"cause {plan.cause!r} is not known; known are {', '.join(sorted(modes))}")
        actor = "preempt" if plan.cause == "backfill" else plan.cause
        for name, does in ((actor, mode), ("bind", actions.bind)):
            if does != "act":
                raise Refused("observe", f"actions.{name} of the policy is {does}, not act")

    def _check_gangs(self, plan: Plan, view: LedgerView, snapshot: Snapshot) -> None:
        keys = [one.gang for one in plan.nominated]
        if not keys or keys[0] != plan.gang or len(set(keys)) < len(keys) or not plan.victims:
            raise Refused("unsound", "a plan has victims, and nominates room for its gang first and for each gang once")
        if any(victim.gang == plan.gang for victim in plan.victims):
            raise Refused("unsound", f"nobody of {plan.gang} leaves for itself")
        if plan.gang in view.open:
            raise Refused("open", f"{plan.gang} has an open entry: {view.open[plan.gang].kind.value}")
        gang = next((one for one in snapshot.gangs if one.key == plan.gang), None)
        if gang is None or gang.uid != plan.gang_uid:
            raise Refused("stale", f"{plan.gang} is not here as the plan names it")
        waiting = {member.uid for member in gang.members if member.state is MemberState.WAITING}
        if not all(slot.uid in waiting for slot in plan.nominated[0].slots) or not plan.nominated[0].slots:
            raise Refused("stale", f"the pods of {plan.gang} that the plan nominates do not all wait")
        if gang.hold:
            raise Refused("stale", f"{plan.gang} is held: {gang.hold_message or gang.hold}")

    def _check_victims(self, victims: Iterable[Victim], view: LedgerView) -> None:
        named = view.named_uids()
        seen: set[str] = set()
        for victim in victims:
            if victim.uid in seen:
                raise Refused("unsound", f"pod {victim.pod} is named as a victim twice")
            seen.add(victim.uid)
            if victim.uid in named:
                raise Refused("open", f"pod {victim.pod} of {victim.gang} is named by another open entry")
            pod = self._world.by_uid.get(victim.uid)
            if pod is None or pod.finished or pod.terminating or pod.node != victim.node:
                raise Refused("stale", f"pod {victim.pod} of {victim.gang} does not stand on {victim.node}")
            namespace, _ = split_key(victim.gang)
            if (pod.namespace, pod.name, pod.gang) != (namespace, victim.pod, victim.gang):
                raise Refused(
                    "stale", f"pod {victim.uid} is {pod.key} of {pod.gang}, not {victim.pod} of {victim.gang}"
                )

    def _check_rooms(self, nominated: Iterable[Nominated], view: LedgerView) -> None:
        taken = {one.gang for entry in view.open.values() for one in entry.nominated}
        for one in nominated:
            if one.gang in taken:
                raise Refused("open", f"{one.gang} has room nominated by another plan")
            for slot in one.slots:
                node = self._world.nodes.get(slot.node)
                if node is None or slot.node_uid not in {"", node.uid}:
                    raise Refused("stale", f"node {slot.node} is not here as the plan names it")


def _queues_of(gangs: Container[GangKey], snapshot: Snapshot) -> set[str]:
    """The queues of these gangs, with their parents."""
    parents = {queue.name: queue.parent for queue in snapshot.queues}
    found: set[str] = set()
    for queue in {gang.queue for gang in snapshot.gangs if gang.key in gangs}:
        name: QueueName | None = queue
        while name is not None and name not in found:
            found.add(name)
            name = parents.get(name)
    return found


def _numbers(proposal: PlanProposal | WithdrawProposal) -> dict[str, int | float | str]:
    if isinstance(proposal, WithdrawProposal):
        return {"plan": proposal.plan}
    victims = proposal.plan.victims
    return {"cause": proposal.plan.cause, "pods": len(victims), "gangs": len({victim.gang for victim in victims})}
