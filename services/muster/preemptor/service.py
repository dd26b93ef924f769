"""The preemptor's process: connections, readers, the Lease, and one term after another.

STATE ──► world ─┐
LEDGER ─► copy ──┼─► Term (while the Lease is held) ─► muster.propose.*, warnings and evictions
                 └─► DECISIONS (what would be done by actors that only observe), metrics
"""

import asyncio
import time
from collections import deque

from muster.bus import subjects
from muster.bus.client import Bus
from muster.bus.client import connect as connect_bus
from muster.bus.errors import BusError
from muster.bus.ledger import Ledger
from muster.bus.messages import Decision
from muster.bus.proposals import PlanProposal, ProposalReply, WithdrawProposal
from muster.bus.state import StateReader
from muster.fenced.executor import Executor
from muster.fenced.pods import ApiPods
from muster.kube.config import Kube
from muster.kube.errors import KubeError
from muster.kube.lease import LeadershipLost, LeaseLock
from muster.kube.serving import connect_cluster, service_lease
from muster.kube.writer import Writer
from muster.model.pods import Pod
from muster.preemptor.evicting import Evictor
from muster.preemptor.metrics import PreemptorMetrics
from muster.preemptor.planning import Core
from muster.preemptor.proposing import Proposer
from muster.preemptor.telling import Telling
from muster.preemptor.unmarking import Unmarking
from muster.preemptor.working import Term
from muster.runtime.service import ServiceContext
from muster.runtime.tasks import run_together
from muster.view.ledger import LedgerCopy
from muster.view.wake import Wake
from muster.view.world import World

NAME = "preemptor"
STALE_SECONDS = 5.0
"""STATE without a word of its watcher for so long: nothing is proposed or evicted on it."""
ANSWER_SECONDS = 25.0
"""How long an answer of the leader is waited for: it judges in its rounds."""
MOST_UNSAID = 100
AGAIN_SECONDS = 1.0


class Preemptor:
    """One preemptor process."""

    def __init__(self, context: ServiceContext, bus: Bus, kube: Kube, lock: LeaseLock) -> None:
        self._context = context
        self._log = context.log
        self._bus = bus
        self._lock = lock
        self._metrics = PreemptorMetrics(context.metrics)
        self._metrics.leader.set(0)
        self._warn_wake = Wake()
        self._plan_wake = Wake()
        self._world = World(on_pod=self._pod_changed)
        self._state = StateReader(bus)
        self._reader = Ledger(bus)
        self._ledger = LedgerCopy()
        self._writer = Writer(kube, component=f"muster-{NAME}", instance=context.config.identity)
        self._telling = Telling(writer=self._writer, world=self._world, wall=time.time, log=context.log)
        self._unmarking = Unmarking(writer=self._writer, world=self._world, telling=self._telling, log=context.log)
        self._unsaid: deque[Decision] = deque(maxlen=MOST_UNSAID)
        self._something = asyncio.Event()
        context.policies.follow(lambda _: self._wake())

    @property
    def ready(self) -> bool:
        """Rule 1, the watcher was heard of lately, and the LEDGER is read."""
        return self._state.ready and self._state.clock_age() < STALE_SECONDS and self._reader.ready

    @property
    def pod_freshness(self) -> str:
        """Every pod event up to this resourceVersion has been applied."""
        return self._state.freshness.get("pod", "")

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            await run_together(
                self._follow_state(),
                self._follow_ledger(),
                self._publish(),
                self._report_health(),
                self._work_again_and_again(),
            )
        finally:
            await self._writer.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._warn_wake()
        self._plan_wake()

    async def _follow_state(self) -> None:
        async for batch in self._state.batches():
            if batch.reset:
                self._world.clear()
            changed = bool(batch.reset)
            for change in batch.changes:
                self._world.apply(change)
                changed = changed or change.kind not in {"clock", "epoch"}
            self._ledger.saw_pods(self.pod_freshness)
            # What a plan's victims are is known with the freshness that a clock brings.
            if changed or self._ledger.view.open or self._ledger.view.lingering:
                self._wake()

    async def _follow_ledger(self) -> None:
        async for batch in self._reader.batches():
            if batch.reset:
                self._ledger.reset()
            if batch.commits:
                self._ledger.apply(batch.commits)
            if self._reader.ready:
                self._ledger.passed(self._reader.sequence)
            if batch.commits or batch.reset:
                self._wake()

    def _pod_changed(self, _before: Pod | None, after: Pod | None) -> None:
        if after is not None:
            self._unmarking.changed(after)

    # --- working -----------------------------------------------------------------------------------------------------

    async def _work_again_and_again(self) -> None:
        while True:
            try:
                async with self._lock.leading():
                    # In a task of its own: the loss of the Lease must not get lost in a library's wait.
                    await run_together(self._work())
            except LeadershipLost as lost:
                self._log.warning("lost the lease", why=str(lost))
            except (BusError, KubeError) as error:
                self._log.warning("cannot work now", why=str(error))
                await asyncio.sleep(AGAIN_SECONDS)

    async def _work(self) -> None:
        while not self.ready:
            await asyncio.sleep(0.05)
        self._unmarking.begin()
        self._log.info("works", open_plans=len(self._ledger.view.plans()))
        clock = asyncio.get_running_loop().time
        evictor = Evictor(
            world=self._world,
            ledger=self._ledger,
            executor=Executor(ApiPods(self._writer)),
            telling=self._telling,
            metrics=self._metrics,
            policy=self._context.policy,
            wake=self._wake,
            clock=clock,
            wall=time.time,
            log=self._log,
        )
        proposer = Proposer(
            core=(core := Core()),
            ask=self._propose,
            say=self._say,
            named=self._world.job_of,
            metrics=self._metrics,
            wake=self._plan_wake,
            clock=clock,
            wall=time.time,
            log=self._log,
        )
        await Term(
            world=self._world,
            ledger=self._ledger,
            state=self,
            core=core,
            evictor=evictor,
            proposer=proposer,
            unmarking=self._unmarking,
            withdraw=self._withdraw,
            warn_wake=self._warn_wake,
            plan_wake=self._plan_wake,
            metrics=self._metrics,
            policy=lambda: self._context.policy,
            clock=clock,
            wall=time.time,
            log=self._log,
        ).run()

    async def _propose(self, proposal: PlanProposal) -> ProposalReply:
        subject = subjects.propose_subject("preempt")
        return await self._bus.request(subject, proposal, ProposalReply, seconds=ANSWER_SECONDS)

    async def _withdraw(self, proposal: WithdrawProposal) -> ProposalReply:
        subject = subjects.propose_subject("withdraw")
        return await self._bus.request(subject, proposal, ProposalReply, seconds=ANSWER_SECONDS)

    # --- talking -----------------------------------------------------------------------------------------------------

    def _say(self, decision: Decision) -> None:
        self._unsaid.append(decision)
        self._something.set()

    async def _publish(self) -> None:
        while True:
            await self._something.wait()
            while self._unsaid:
                decision = self._unsaid[0]
                try:
                    subject = subjects.decision_subject(decision.verb, decision.gang)
                    await self._bus.publish(subject, decision, about=decision.gang)
                except BusError as error:
                    self._log.warning("decision not published yet", error=str(error))
                    await asyncio.sleep(1.0)
                    continue
                if self._unsaid and self._unsaid[0] is decision:
                    self._unsaid.popleft()
            self._something.clear()

    async def _report_health(self) -> None:
        while True:
            self._context.ready.set("nats", self._bus.connected)
            self._context.ready.set("state", self._state.ready and self._state.clock_age() < STALE_SECONDS)
            self._context.ready.set("ledger", self._reader.ready)
            await asyncio.sleep(0.25)


async def main(context: ServiceContext) -> None:
    """Run the preemptor until cancelled."""
    config = context.config
    bus = await connect_bus(config.nats_url, name=f"{NAME}-{config.identity}", observer=context.log)
    try:
        async with await connect_cluster(config, service=NAME) as kube:
            lock = service_lease(
                kube,
                config,
                service=NAME,
                report=lambda sentence: context.log.warning("the lease", problem=sentence),
            )
            await Preemptor(context, bus, kube, lock).run()
    finally:
        await bus.close()
