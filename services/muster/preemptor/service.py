"""The preemptor's process: connections, readers, the Lease, and one term after another.

STATE ──► world ─┐
LEDGER ─► copy ──┼─► Term (while the Lease is held) ─► muster.propose.*, warnings and evictions
                 └─► DECISIONS (what would be done by actors that only observe), metrics
"""

import asyncio
import time

from muster.bus import subjects
from muster.bus.client import Bus
from muster.bus.client import connect as connect_bus
from muster.bus.errors import BusError
from muster.bus.proposals import PlanProposal, ProposalReply, WithdrawProposal
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
from muster.view.audit_log import AuditLog
from muster.view.following import Following
from muster.view.wake import Wake
from muster.view.world import World

NAME = "preemptor"
ANSWER_SECONDS = 25.0
"""How long an answer of the leader is waited for: it judges in its rounds."""
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
        self._following = Following(bus, world=self._world, wake=self._wake)
        self._ledger = self._following.ledger
        self._audit = AuditLog(bus, context.log)
        self._writer = Writer(kube, component=f"muster-{NAME}", instance=context.config.identity)
        self._telling = Telling(writer=self._writer, world=self._world, wall=time.time, log=context.log)
        self._unmarking = Unmarking(writer=self._writer, world=self._world, telling=self._telling, log=context.log)
        context.policies.follow(lambda _: self._wake())

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            await run_together(
                self._following.run(),
                self._audit.run(),
                self._report_health(),
                self._work_again_and_again(),
            )
        finally:
            await self._writer.close()

    # --- reading -----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._warn_wake()
        self._plan_wake()

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
        while not self._following.ready:
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
            caught_up=self._following.caught_up,
            wake=self._wake,
            clock=clock,
            wall=time.time,
            log=self._log,
        )
        proposer = Proposer(
            core=(core := Core()),
            ask=self._propose,
            say=self._audit.say,
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
            state=self._following,
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

    async def _report_health(self) -> None:
        while True:
            self._following.report(self._context.ready)
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
