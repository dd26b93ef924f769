"""The scheduler's process: connections, readers, the Lease, and one leadership after another.

STATE ──► world ─┐
LEDGER ─► book ──┼─► Leadership (while the Lease is held) ─► LEDGER, Bindings
└─► Journal ─► DECISIONS, metrics, muster.api.<tenant>.*, muster.propose.*
"""

import asyncio
import contextlib

from muster.bus import subjects
from muster.bus.client import Bus
from muster.bus.client import connect as connect_bus
from muster.bus.errors import BusError, NotConnectedError
from muster.bus.ledger import Ledger
from muster.bus.messages import Decision
from muster.bus.state import StateReader
from muster.bus.streams import StreamName, ensure_streams, last_sequence, missing_streams
from muster.decide.actual import CardFinding, CardFindingCode
from muster.decide.pauses import CORE, pauses_of
from muster.fenced.executor import Executor
from muster.fenced.nodes import NodeExecutor
from muster.fenced.pods import ApiPods
from muster.fenced.volumes import ApiVolumes, VolumeExecutor
from muster.kube.config import Kube
from muster.kube.errors import KubeError
from muster.kube.lease import Leadership as Lease
from muster.kube.lease import LeadershipLost, LeaseLock
from muster.kube.recording import ObjectReference
from muster.kube.serving import connect_cluster, service_lease
from muster.kube.writer import Writer
from muster.model.nodes import CardMode
from muster.model.pauses import Pause
from muster.model.pods import Phase, Pod
from muster.model.units import Sequence, incarnation_of, split_key
from muster.runtime.service import ServiceContext
from muster.scheduler.answering import answering
from muster.scheduler.book import Book, Deposed
from muster.scheduler.journal import Journal
from muster.scheduler.judging import refusal_in_thread
from muster.scheduler.leading import Leadership
from muster.scheduler.operating import Operating
from muster.scheduler.proposals import Proposals
from muster.scheduler.queries import Queries
from muster.scheduler.reservations import Reservations
from muster.scheduler.solving import Decider
from muster.scheduler.telemetry import Telemetry
from muster.view.wake import Wake
from muster.view.world import World

STALE_SECONDS = 5.0
"""STATE without a word of its watcher for so long: nothing is decided on it."""
KUBELET_REFUSALS = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "Admission")
GUARD_SECONDS = 0.5
EVENT_REASONS = {
    CardFindingCode.CARD_MISMATCH: "CardMismatch",
    CardFindingCode.CARD_LOST: "CardLost",
    CardFindingCode.NO_ISOLATION: "NoIsolation",
}


class LedgerOnBus(Ledger):
    """The LEDGER with the one question more that the book asks."""

    async def last_sequence(self) -> Sequence:
        """The sequence of the last message of the stream."""
        return await last_sequence(self.bus, StreamName.LEDGER)


class Scheduler:
    """One scheduler process."""

    def __init__(self, context: ServiceContext, bus: Bus, kube: Kube, lock: LeaseLock) -> None:
        self._context = context
        self._log = context.log
        self._bus = bus
        self._lock = lock
        self._telemetry = Telemetry(context.metrics)
        self._wake = Wake()
        self._world = World(on_pod=self._pod_changed)
        self._journal = Journal(
            telemetry=self._telemetry, log=context.log, event=self._card_event, named=self._world.job_of
        )
        self._state = StateReader(bus)
        self._ledger = LedgerOnBus(bus)
        self._book = Book(identity=context.config.identity, stream=self._ledger, report=self._ledger_refused)
        self._writer = Writer(kube, component="muster-scheduler", instance=context.config.identity)
        self._queries = Queries(
            world=self._world, book=self._book, journal=self._journal, policy=lambda: context.policy
        )
        self._pauses: tuple[Pause, ...] = ()
        """The last ones seen, whatever became of the LEDGER that kept them."""
        self._leadership: Leadership | None = None
        context.policies.follow(lambda _: self._wake())

    @property
    def ready(self) -> bool:
        """Rule 1, and the watcher was heard of lately."""
        return self._state.ready and self._state.clock_age() < STALE_SECONDS

    @property
    def pod_freshness(self) -> str:
        """Every pod event up to this resourceVersion has been applied."""
        return self._state.freshness.get("pod", "")

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_state())
            tasks.create_task(self._follow_ledger())
            tasks.create_task(self._journal.publish(self._publish))
            tasks.create_task(self._report_health())
            tasks.create_task(self._lead_again_and_again())

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _follow_state(self) -> None:
        async for batch in self._state.batches():
            if batch.reset:
                self._world.clear()
            changed = False
            for change in batch.changes:
                self._world.apply(change)
                changed = changed or change.kind not in {"clock", "epoch"}
            self._telemetry.state_messages.inc(len(batch.changes))
            waited = self._waiting_for_clock()
            self._book.saw_pods(self.pod_freshness)
            if changed or batch.reset or waited:
                self._wake()

    def _waiting_for_clock(self) -> bool:
        """Lingering holds end, and readiness comes, with a clock message."""
        return bool(self._book.view.lingering) or self._leadership is None

    async def _follow_ledger(self) -> None:
        async for batch in self._ledger.batches():
            if batch.reset:
                await self._book.reset()
            if batch.commits:
                await self._book.apply_all(batch.commits)
            if self._ledger.ready:
                await self._book.passed(self._ledger.sequence)
            if CORE in self._book.view.memory:
                self._pauses = pauses_of(self._book.view.memory)
            if self._book.deposed.is_set():
                self._wake()
            self._telemetry.refused_commits.set(self._book.view.refused)
            self._telemetry.open_entries.set(len(self._book.view.open))

    def _ledger_refused(self, sentence: str) -> None:
        self._log.warning("the LEDGER", problem=sentence)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        refused = (
            after is not None
            and after.phase is Phase.FAILED
            and after.node is not None
            and after.started is None
            and after.reason.startswith(KUBELET_REFUSALS)
            # A pod that is first seen failed was refused before we led, or before STATE was read anew.
            and before is not None
            and before.uid == after.uid
            and before.phase is not Phase.FAILED
            and after.scheduler_name in self._context.policy.scheduler_names
        )
        if refused and after is not None and after.node is not None and self._leadership is not None:
            self._log.warning("kubelet refused a pod", node=after.node, reason=after.reason, why=after.message)
            node = self._world.nodes.get(after.node)
            obeys = node is not None and node.card_mode is CardMode.VOLCANO
            allocation = obeys and after.reason.startswith("UnexpectedAdmissionError")
            self._leadership.kubelet_refused(after.node, after.shape, after.cards if allocation else ())

    def _card_event(self, finding: CardFinding) -> None:
        """A finding about cards as an Event on its pod, or its node."""
        if finding.pod:
            namespace, name = split_key(finding.pod)
            about = ObjectReference(api_version="v1", kind="Pod", name=name, namespace=namespace, uid=finding.uid)
        else:
            about = ObjectReference(api_version="v1", kind="Node", name=finding.node, namespace="", uid=finding.uid)
        self._writer.record_event(about, EVENT_REASONS[finding.code], finding.message, type="Warning")

    # --- leading -----------------------------------------------------------------------------------------------------

    async def _lead_again_and_again(self) -> None:
        while True:
            try:
                async with self._lock.leading() as lease:
                    await self._lead(lease)
            except LeadershipLost as lost:
                self._log.warning("lost the lease", why=str(lost))
            except Deposed:
                self._telemetry.deposed.inc()
                self._log.warning("deposed", leader=self._book.view.leader_identity)
                await asyncio.sleep(GUARD_SECONDS)
            except (BusError, KubeError) as error:
                self._log.warning("cannot lead now", why=str(error))
                await asyncio.sleep(GUARD_SECONDS)

    async def _lead(self, lease: Lease) -> None:
        incarnation = await self._prepare_ledger()
        while not self._ledger.ready:
            if await missing_streams(self._bus, (StreamName.LEDGER,)):
                return  # lost again since: the next time it is made anew
            await asyncio.sleep(0.05)
        writes = ApiPods(self._writer)
        proposals = Proposals(
            world=self._world,
            reporter=self._journal,
            refusal=refusal_in_thread,
            wake=self._wake,
        )
        operating = Operating(
            world=self._world,
            book=self._book,
            policies=self._context.policies,
            wake=self._wake,
            log=self._log,
        )
        leadership = Leadership(
            world=self._world,
            state=self,
            book=self._book,
            executor=Executor(writes),
            reporter=self._journal,
            policy=self._context.policy,
            policy_now=lambda: self._context.policy,
            wake=self._wake,
            decide=Decider(),
            log=self._log,
            incarnation=incarnation,
            proposals=proposals,
            nodes=NodeExecutor(self._writer),
            volumes=VolumeExecutor(ApiVolumes(self._writer)),
            reservations=Reservations(
                world=self._world,
                writes=writes,
                namespace=self._context.config.namespace,
                image=self._context.policy.reservation_image,
                log=self._log,
            ),
        )
        self._leadership = leadership
        self._telemetry.leader.set(1)
        guard = asyncio.create_task(self._guard_ledger())
        forgotten = self._pauses if CORE not in self._book.view.memory else ()
        restoring = asyncio.create_task(operating.restore(forgotten))
        try:
            async with answering(self._bus, self._queries, proposals, operating):
                await leadership.run(transitions=lease.epoch)
        finally:
            guard.cancel()
            restoring.cancel()
            self._telemetry.leader.set(0)
            self._leadership = None

    async def _prepare_ledger(self) -> int:
        """The LEDGER exists afterwards; a missing one is made with a new incarnation (rule H). Returns the incarnation."""
        kept = await self._lock.incarnation()
        missing = await missing_streams(self._bus, (StreamName.LEDGER,))
        incarnation = max(kept, 1)
        if missing:
            incarnation = kept + 1
            self._log.warning("the LEDGER is new", incarnation=incarnation)
        else:
            # A Lease that was deleted has forgotten the incarnation; the sequences have not.
            incarnation = max(incarnation, incarnation_of(await self._ledger.last_sequence()))
        if incarnation != kept:
            await self._lock.set_incarnation(incarnation)
        await ensure_streams(self._bus, incarnation=incarnation, names=(StreamName.LEDGER, StreamName.DECISIONS))
        return incarnation

    async def _guard_ledger(self) -> None:
        """A LEDGER that vanished while we lead ends the leadership: the next one starts a new incarnation."""
        while True:
            await asyncio.sleep(GUARD_SECONDS)
            if self._ledger.ready:
                continue
            with contextlib.suppress(NotConnectedError):
                if await missing_streams(self._bus, (StreamName.LEDGER,)):
                    await self._book.lose()
                    self._wake()

    # --- talking -----------------------------------------------------------------------------------------------------

    async def _publish(self, decision: Decision) -> None:
        await self._bus.publish(
            subjects.decision_subject(decision.verb, decision.gang or decision.node), decision, about=decision.gang
        )

    async def _report_health(self) -> None:
        while True:
            self._context.ready.set("nats", self._bus.connected)
            self._context.ready.set("state", self.ready)
            self._context.ready.set("ledger", self._ledger.ready or self._lock.holder != self._lock.identity)
            await asyncio.sleep(0.25)


async def main(context: ServiceContext) -> None:
    """Run the scheduler."""
    config = context.config
    bus = await connect_bus(config.nats_url, name=f"scheduler-{config.identity}", observer=context.log)
    try:
        async with await connect_cluster(config, service="scheduler") as kube:
            lock = service_lease(
                kube,
                config,
                service="scheduler",
                report=lambda sentence: context.log.warning("the lease", problem=sentence),
            )
            await Scheduler(context, bus, kube, lock).run()
    finally:
        await bus.close()
