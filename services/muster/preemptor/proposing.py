"""When a plan is proposed, and what its answer means.

    a gang waits, and the scheduler has had its turn ─► the core: is there a plan? ─► muster.propose.preempt
       committed   the LEDGER tells; carried out from there
       refused     unsound: that plan is tried again when something that it looked at has changed; else soon again
    another policy: everything that was found out under the one before is void, and the core is asked at once
    actors that only observe: what they would do goes to DECISIONS, once a change

Nothing here is needed after a restart: an open plan is in the LEDGER, and a plan that was refused is refused again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import structlog

from muster.bus.errors import BusError, NoAnswerError, RequestRefusedError, UndecodableError
from muster.bus.messages import Decision
from muster.bus.proposals import PlanProposal, ProposalReply
from muster.decide.commitments import Kind, LedgerView, OpenEntry
from muster.decide.preemption import Proposal, plan_entry
from muster.decide.preemption.observing import acts, if_all_acted, mode_of, observes
from muster.decide.reasons import known_name
from muster.model.gangs import Gang, MemberState
from muster.model.ledger import Plan
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, Sequence
from muster.preemptor.metrics import PreemptorMetrics
from muster.preemptor.planning import Core, Outlook
from muster.preemptor.setbacks import SHORTEST, Setbacks

TURN_SECONDS = 1.0
"""A gang that has waited for less may still be placed by the scheduler, which wakes at the same changes."""
IDLE_SECONDS = 5.0
"""When the core is asked again although nothing has changed, since protections end by time alone; then ever less often."""
LONGEST_IDLE = 40.0
OBSERVE_SECONDS = 10.0
"""How often it is asked what it would do if actors that observe could act."""
LONGEST_PAUSE = 5.0
AGAIN_SECONDS = 0.5
UNHEARD_SECONDS = 1.0

LASTING = {"unsound": SHORTEST, "paused": SHORTEST, "observe": 2.0}
"""Refusals that the same plan would get again: others have their turn for so many seconds at first. A leader that says
observe when this process may act has not taken over the new policy yet."""

Ask = Callable[[PlanProposal], Awaitable[ProposalReply]]


class Proposer:
    """The proposals of one term."""

    def __init__(
        self,
        *,
        core: Core,
        ask: Ask,
        say: Callable[[Decision], None],
        metrics: PreemptorMetrics,
        wake: Callable[[], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
        log: structlog.stdlib.BoundLogger,
        named: Callable[[GangKey], str] = known_name,
        turn: float = TURN_SECONDS,
    ) -> None:
        """`named` tells how people call a gang."""
        self._core = core
        self._ask_leader = ask
        self._say = say
        self._metrics = metrics
        self._wake = wake
        self._clock = clock
        self._wall = wall
        self._log = log
        self._named = named
        self._turn = turn
        self._waiting: dict[GangKey, float] = {}
        """Since when each gang waits, by the monotonic clock."""
        self._asking: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._after = Sequence(0)
        """The LEDGER has to be read up to here before anything more is proposed."""
        self._setbacks = Setbacks()
        self._policy: Policy | None = None
        self._looked: tuple[int, Sequence] | None = None
        self._looked_at = float("-inf")
        self._idle = IDLE_SECONDS
        self._observed_at = float("-inf")
        self._said: dict[str, tuple[str, ...]] = {}
        """What was said last of each kind of finding."""

    async def stop(self) -> None:
        """Nobody waits for an answer any more: the LEDGER will tell."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    def next_moment(self) -> float | None:
        """Seconds until a gang has waited long enough; None when none waits."""
        if not self._waiting:
            return None
        now = self._clock()
        turns = [since + self._turn for since in self._waiting.values() if since + self._turn > now]
        return max(0.02, max(min([*turns, self._look_again_at()]), self._not_before) - now)

    async def look(self, outlook: Outlook, view: LedgerView, *, version: int) -> None:
        """Propose the next plan if there is one; `version` is that of STATE."""
        self._follow(outlook.snapshot, view)
        self._take_over(outlook.policy)
        now = self._clock()
        if not any(now - since >= self._turn for since in self._waiting.values()):
            return
        if (
            (self._asking is not None and not self._asking.done())
            or now < self._not_before
            or view.sequence < self._after
        ):
            return
        inputs = (version, view.sequence)
        same = inputs == self._looked
        if same and now < self._look_again_at():
            return
        self._idle = min(LONGEST_IDLE, 2 * self._idle) if same else IDLE_SECONDS
        self._looked, self._looked_at = inputs, now
        outlook = outlook._replace(memory=self._setbacks.known_to(outlook.memory, now))
        proposal = await self._propose(outlook) if acts(outlook.policy.actions) else Proposal()
        self._limit(proposal.finding)
        if proposal.plan is not None:
            plan = self._plan(proposal, outlook)
            if now - self._waiting.get(plan.gang, now) >= self._turn:
                self._asking = asyncio.create_task(self._ask(plan, outlook.snapshot, view.sequence))
            else:
                self._looked = None
            return
        if observes(outlook.policy.actions) and now - self._observed_at >= OBSERVE_SECONDS:
            self._observed_at = now
            await self._observe(outlook)
        # Planning for what cannot be helped must not take the whole of a core.
        self._not_before = max(self._not_before, self._clock() + min(self._clock() - now, LONGEST_PAUSE))

    def _follow(self, snapshot: Snapshot, view: LedgerView) -> None:
        """Who waits, and what led nowhere."""
        now = self._clock()
        self._waiting = {
            gang.key: self._waiting.get(gang.key, now)
            for gang in snapshot.gangs
            if gang.key not in view.open and _waits(gang)
        }
        self._setbacks.follow(snapshot)
        for entry in view.open.values():
            if entry.kind is Kind.WITHDRAWING:
                self._setbacks.add(plan_of_entry(entry), snapshot, now)

    def _look_again_at(self) -> float:
        """When time alone makes another look worth while."""
        return min(self._looked_at + self._idle, self._setbacks.next_end(self._looked_at))

    def _take_over(self, policy: Policy) -> None:
        """What led nowhere under another policy, and what was worth a longer pause, tells nothing about this one."""
        if policy is not self._policy:
            self._policy = policy
            self._setbacks.clear()
            self._looked, self._not_before, self._observed_at = None, 0.0, float("-inf")

    def _plan(self, proposal: Proposal, outlook: Outlook) -> Plan:
        snapshot, memory, now, policy, _ = outlook
        return plan_entry(proposal, snapshot, memory, now, policy, named=self._named)

    async def _propose(self, outlook: Outlook) -> Proposal:
        began = self._clock()
        try:
            return await self._core.propose(outlook)
        except Exception:  # noqa: BLE001  (whatever the core did: open plans have to be carried out)
            self._metrics.defects.labels("propose").inc()
            self._log.exception("a defect: proposing must not fail")
            return Proposal()
        finally:
            self._metrics.core.labels("propose").observe(self._clock() - began)

    async def _ask(self, plan: Plan, snapshot: Snapshot, sequence: Sequence) -> None:
        """Ask the leader, and remember what its answer means for the next proposal."""
        try:
            reply = await self._ask_leader(PlanProposal(plan=plan, ledger=sequence))
        except NoAnswerError as error:
            self._unanswered(plan, str(error))
            return
        except (RequestRefusedError, UndecodableError, BusError) as error:
            self._unanswered(plan, f"{type(error).__name__}: {error}")
            return
        self._metrics.proposals.labels("committed" if reply.committed else reply.code).inc()
        if reply.committed:
            self._after = Sequence(reply.sequence)
            self._metrics.committed(plan, _gained(plan, snapshot))
            self._log.info(
                "plan committed", gang=plan.gang, cause=plan.cause, sequence=reply.sequence, what=plan.message
            )
            return
        self._log.info("plan refused", gang=plan.gang, cause=plan.cause, code=reply.code, why=reply.message)
        if (lasts := LASTING.get(reply.code)) is not None:
            self._setbacks.add(plan, snapshot, self._clock(), shortest=lasts)
        self._wait(AGAIN_SECONDS)

    def _unanswered(self, plan: Plan, why: str) -> None:
        """Whether it was committed is read from the LEDGER."""
        self._metrics.proposals.labels("unanswered").inc()
        self._log.warning("a proposal was not answered", gang=plan.gang, why=why)
        self._wait(UNHEARD_SECONDS)

    def _wait(self, seconds: float) -> None:
        self._not_before = self._clock() + seconds
        self._looked = None
        self._wake()

    def _limit(self, finding: str) -> None:
        """The policy's hourly limit keeps a plan back: told when it begins."""
        self._metrics.stopped.set(bool(finding))
        if not finding:
            self._said.pop("limit", None)
            return
        if "limit" not in self._said:
            self._log.warning("evictions stop", why=finding)
        self._said["limit"] = ()

    async def _observe(self, outlook: Outlook) -> None:
        """What actors that observe would do if they could act."""
        proposal = await self._propose(outlook._replace(policy=if_all_acted(outlook.policy)))
        if proposal.plan is None:
            self._said.pop("would", None)
            return
        plan = self._plan(proposal, outlook)
        if mode_of(plan.cause, outlook.policy.actions) == "act":
            return
        decision = Decision(
            verb="preempt",
            gang=plan.gang,
            code=f"WOULD_{plan.cause.upper()}",
            message=f"only observed: {plan.message}",
            numbers={"pods": len(plan.victims), "gangs": len({victim.gang for victim in plan.victims})},
            slots=plan.nominated[0].slots,
            at=self._wall(),
        )
        self._say_once("would", decision, by=(plan.gang, plan.cause, *sorted(victim.uid for victim in plan.victims)))

    def _say_once(self, what: str, decision: Decision, *, by: Iterable[str]) -> None:
        key = tuple(by)
        if self._said.get(what) == key:
            return
        self._said[what] = key
        self._log.info(decision.verb, gang=decision.gang, code=decision.code, what=decision.message)
        self._say(decision)


def _waits(gang: Gang) -> bool:
    return not gang.hold and not gang.complete and any(member.state is MemberState.WAITING for member in gang.members)


def _gained(plan: Plan, snapshot: Snapshot) -> float:
    """Cards that the plan's gang gets."""
    gang = next((one for one in snapshot.gangs if one.key == plan.gang), None)
    shapes = {role.name: role.shape.request for role in gang.roles} if gang is not None else {}
    cards = 0.0
    for slot in plan.nominated[0].slots:
        request = shapes.get(slot.role)
        if request is not None:
            share = request.share
            cards += request.cards if share is None else share.count * share.core_percent / 100
    return cards


def plan_of_entry(entry: OpenEntry) -> Plan:
    """The plan that an open entry, or one that is being withdrawn, is about."""
    return Plan(
        gang=entry.gang, gang_uid=entry.gang_uid, cause=entry.cause, victims=entry.victims, nominated=entry.nominated
    )
