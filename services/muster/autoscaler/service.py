"""The autoscaler's process: connections, readers, the Lease, and one term after another.

STATE ──► world ─┐
LEDGER ─► copy ──┼─► Term (while the Lease is held) ─► muster.propose.{cordon,uncordon}, writes on nodes
                 └─► DECISIONS (what would be cordoned, what nodes are wanted), metrics
"""

import asyncio
import time

from muster.autoscaler.metrics import AutoscalerMetrics
from muster.autoscaler.telling import Telling
from muster.autoscaler.working import NodeProposal, Term, subject_verb
from muster.bus import subjects
from muster.bus.client import Bus
from muster.bus.client import connect as connect_bus
from muster.bus.errors import BusError
from muster.bus.proposals import ProposalReply
from muster.fenced.nodes import NodeExecutor
from muster.kube.config import Kube
from muster.kube.errors import KubeError
from muster.kube.lease import LeadershipLost, LeaseLock
from muster.kube.serving import connect_cluster, service_lease
from muster.kube.writer import Writer
from muster.runtime.service import ServiceContext
from muster.runtime.tasks import run_together
from muster.view.audit_log import AuditLog
from muster.view.following import Following
from muster.view.wake import Wake
from muster.view.world import World

NAME = "autoscaler"
ANSWER_SECONDS = 25.0
"""How long an answer of the leader is waited for: it judges in its rounds."""
AGAIN_SECONDS = 1.0


class Autoscaler:
    """One autoscaler process."""

    def __init__(self, context: ServiceContext, bus: Bus, kube: Kube, lock: LeaseLock) -> None:
        self._context = context
        self._log = context.log
        self._bus = bus
        self._lock = lock
        self._metrics = AutoscalerMetrics(context.metrics)
        self._metrics.leader.set(0)
        self._carry_wake = Wake()
        self._look_wake = Wake()
        self._following = Following(bus, world=World(), wake=self._wake)
        self._writer = Writer(kube, component=f"muster-{NAME}", instance=context.config.identity)
        self._audit = AuditLog(bus, context.log)
        context.policies.follow(lambda _: self._wake())

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            await run_together(
                self._following.run(), self._audit.run(), self._report_health(), self._work_again_and_again()
            )
        finally:
            await self._writer.close()

    def _wake(self) -> None:
        self._carry_wake()
        self._look_wake()

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
        self._log.info("works", cordoned=len(self._following.ledger.view.nodes))
        await Term(
            following=self._following,
            executor=NodeExecutor(self._writer),
            ask=self._ask,
            telling=Telling(writer=self._writer, world=self._following.world, say=self._audit.say, wall=time.time),
            metrics=self._metrics,
            carry_wake=self._carry_wake,
            look_wake=self._look_wake,
            policy=lambda: self._context.policy,
            clock=asyncio.get_running_loop().time,
            wall=time.time,
            log=self._log,
        ).run()

    async def _ask(self, proposal: NodeProposal) -> ProposalReply:
        subject = subjects.propose_subject(subject_verb(proposal))
        return await self._bus.request(subject, proposal, ProposalReply, seconds=ANSWER_SECONDS)

    async def _report_health(self) -> None:
        while True:
            self._following.report(self._context.ready)
            await asyncio.sleep(0.25)


async def main(context: ServiceContext) -> None:
    """Run the autoscaler until cancelled."""
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
            await Autoscaler(context, bus, kube, lock).run()
    finally:
        await bus.close()
