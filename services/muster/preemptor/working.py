"""One term of the preemptor: while it holds the Lease it proposes plans and carries out those that are open.

    warn      STATE or the LEDGER changed ─► victims of open plans that are not warned yet are warned      (at once)
    plans     quiet, or something is due ─► evict what is due, if the plan is still right; else give it back
                                         ─► is there a plan for a gang that waits? ─► propose it

The Lease is a courtesy, so that two do not ask the same: what keeps evictions safe are the fences and the LEDGER.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
import structlog

from muster.bus.errors import BusError
from muster.bus.proposals import ProposalReply, WithdrawProposal
from muster.decide.commitments import OpenEntry, nominations
from muster.decide.memory import CORE, CoreMemory
from muster.model.policy import Policy
from muster.model.units import Sequence
from muster.preemptor.evicting import Evictor
from muster.preemptor.metrics import PreemptorMetrics
from muster.preemptor.planning import Core, Outlook
from muster.preemptor.proposing import Proposer
from muster.preemptor.unmarking import Unmarking
from muster.runtime.tasks import end_all, run_together
from muster.view.keeping import Keeping
from muster.view.ledger import LedgerCopy
from muster.view.pausing import evictions_paused, plan_paused
from muster.view.wake import Wake
from muster.view.world import World

IDLE_SECONDS = 5.0
RECHECK_SECONDS = 2.0
"""How often an open plan whose time has not come is judged again, when STATE has changed."""
SPARING = 5.0
"""Judging plans whose time has not come takes a fifth of the process's time at the most."""
WITHDRAW_AGAIN = 2.0

Withdraw = Callable[[WithdrawProposal], Awaitable[ProposalReply]]


class State(Protocol):
    """The consumer side of STATE and the LEDGER."""

    @property
    def ready(self) -> bool:
        """STATE is current, and both are read."""
        ...

    @property
    def pod_freshness(self) -> str:
        """Every pod event up to this resourceVersion has been applied; '' while nothing is promised."""
        ...


class Term:
    """See the module."""

    def __init__(
        self,
        *,
        world: World,
        ledger: LedgerCopy,
        state: State,
        core: Core,
        evictor: Evictor,
        proposer: Proposer,
        unmarking: Unmarking,
        withdraw: Withdraw,
        warn_wake: Wake,
        plan_wake: Wake,
        metrics: PreemptorMetrics,
        policy: Callable[[], Policy],
        clock: Callable[[], float],
        wall: Callable[[], float],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """`policy` gives the one in force; another one is taken over before a look."""
        self._world = world
        self._ledger = ledger
        self._state = state
        self._core = core
        self._evictor = evictor
        self._proposer = proposer
        self._unmarking = unmarking
        self._withdraw_at_leader = withdraw
        self._warn_wake = warn_wake
        self._plan_wake = plan_wake
        self._metrics = metrics
        self._policy_now = policy
        self._policy = policy()
        self._clock = clock
        self._wall = wall
        self._log = log
        self._keeping = Keeping(world=world, policy=self._policy)
        self._judged: dict[Sequence, tuple[int, float]] = {}
        """Of open plans: the version of STATE on which each was found right, and when."""
        self._judging = 0.0
        """Seconds that the last judgement took."""
        self._withdrawing: dict[Sequence, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        self._metrics.leader.set(1)
        try:
            await run_together(self._warn(), self._plans())
        finally:
            self._metrics.leader.set(0)
            await end_all(self._withdrawing.values())
            await self._proposer.stop()
            await self._evictor.stop()

    async def _warn(self) -> None:
        while True:
            debounce = self._policy.debounce
            if self._state.ready:
                self._evictor.warn(self._state.pod_freshness)
                await self._unmarking.look(self._ledger.view)
            await self._warn_wake.wait(quiet=debounce.quiet, longest=debounce.longest, timeout=IDLE_SECONDS)

    async def _plans(self) -> None:
        while True:
            quiet = self._policy.debounce.longest
            complete = self._state.pod_freshness
            moments = [self._evictor.next_moment(complete), self._proposer.next_moment(), IDLE_SECONDS]
            soonest = min(moment for moment in moments if moment is not None)
            await self._plan_wake.wait(quiet=quiet, longest=5 * quiet, timeout=max(0.02, soonest))
            if not self._state.ready:
                continue
            self._take_over(self._policy_now())
            pause = evictions_paused(self._ledger.view)
            self._metrics.paused.set(pause is not None)
            self._metrics.open_plans.set(len(self._ledger.view.plans()))
            if pause is not None:
                # Time alone ends nothing meanwhile: the next look is at a change, or a little later.
                await asyncio.sleep(quiet)
                continue
            await self._tend()
            await self._proposer.look(self._outlook(), self._ledger.view, version=self._world.version)

    def _take_over(self, policy: Policy) -> None:
        if policy is self._policy:
            return
        self._policy = policy
        self._keeping = Keeping(world=self._world, policy=policy)
        self._evictor.timeouts = policy.timeouts
        self._log.info("plans by a new policy")

    def _outlook(self) -> Outlook:
        view = self._ledger.view
        snapshot = self._keeping.snapshot(view)
        return Outlook(
            snapshot=snapshot,
            memory=msgspec.structs.replace(self._memory(), nominations=nominations(view)),
            now=self._wall(),
            policy=self._policy,
            basis=self._keeping.basis,
        )

    def _memory(self) -> CoreMemory:
        """What the scheduler's leader last wrote: back-offs, and what was evicted lately."""
        saved = self._ledger.view.memory.get(CORE)
        if saved is None:
            return CoreMemory()
        try:
            return CoreMemory.from_data(saved)
        except msgspec.ValidationError:
            self._metrics.defects.labels("memory").inc()
            self._log.exception("the core's memory cannot be read")
            return CoreMemory()

    # --- open plans --------------------------------------------------------------------------------------------------

    async def _tend(self) -> None:
        """Evict what is due if its plan is still right, and give back plans that are not or that cannot be carried out."""
        view = self._ledger.view
        opened = {entry.sequence for entry in view.plans()}
        self._judged = {sequence: judged for sequence, judged in self._judged.items() if sequence in opened}
        self._withdrawing = {
            sequence: task for sequence, task in self._withdrawing.items() if sequence in opened or not task.done()
        }
        for plan, reason, message in tuple(self._evictor.hopeless()):
            self._give_back(plan, reason, message)
        due = {entry.sequence for entry in self._evictor.due(self._state.pod_freshness)}
        for entry in view.plans():
            if entry.sequence in self._withdrawing or not self._to_be_judged(entry, is_due=entry.sequence in due):
                continue
            why = await self._unsound(entry)
            if why is None or self._ledger.view.open.get(entry.gang) is not entry or not self._state.ready:
                continue
            if why:
                self._give_back(entry, "UNSOUND", why)
            elif entry.sequence in due and plan_paused("evict", self._ledger.view, self._world, entry) is None:
                self._evictor.evict(entry, self._state.pod_freshness)

    def _to_be_judged(self, entry: OpenEntry, *, is_due: bool) -> bool:
        if is_due:
            return True
        version, at = self._judged.get(entry.sequence, (-1, float("-inf")))
        pause = max(RECHECK_SECONDS, SPARING * self._judging * len(self._judged))
        return version != self._world.version and self._clock() - at >= pause

    async def _unsound(self, entry: OpenEntry) -> str | None:
        """Why the plan is not right any more, '' while it is; None when that cannot be told."""
        outlook, version, began = self._outlook(), self._world.version, self._clock()
        try:
            why = await self._core.unsound(outlook, entry)
        except Exception:  # noqa: BLE001  (nobody is evicted on a plan that could not be judged)
            self._metrics.defects.labels("judge").inc()
            self._log.exception("a defect: judging must not fail", gang=entry.gang)
            return None
        finally:
            self._judging = self._clock() - began
            self._metrics.core.labels("judge").observe(self._judging)
        self._judged[entry.sequence] = (version, self._clock())
        return why

    def _give_back(self, entry: OpenEntry, reason: str, message: str) -> None:
        """Ask the leader to withdraw the plan, once at a time; the LEDGER tells when it has."""
        if entry.sequence not in self._withdrawing:
            self._withdrawing[entry.sequence] = asyncio.create_task(self._withdraw(entry, reason, message))

    async def _withdraw(self, entry: OpenEntry, reason: str, message: str) -> None:
        self._log.info("gives a plan back", gang=entry.gang, plan=entry.sequence, code=reason, why=message)
        asked = WithdrawProposal(gang=entry.gang, plan=entry.sequence, reason=reason, message=message)
        answered = False
        while not answered and self._ledger.view.open.get(entry.gang) is entry:
            with contextlib.suppress(BusError):
                reply = await self._withdraw_at_leader(asked)
                answered = reply.committed
            if not answered:
                await asyncio.sleep(WITHDRAW_AGAIN)
        self._metrics.withdrawals.labels(reason).inc()
