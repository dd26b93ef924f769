"""The controller as a process: one leads, by Lease; all follow STATE, so that a new leader knows everything at once.

STATE ─────► View ─► WorkList ─► workers ─► Kubernetes, STATUS
DECISIONS ─► Decisions ─┘
JOBS ──────► Submitter ─► SUBMISSIONS, Kubernetes, STATUS          (the leader only)
PROGRESS ──► ProgressReader ─► checkpoints on PodGroups            (the leader only)
"""

import asyncio
import contextlib
import time

from muster.bus import subjects
from muster.bus.client import Bus
from muster.bus.client import connect as connect_bus
from muster.bus.errors import BusError
from muster.bus.queries import QueuesReply, QueuesRequest
from muster.bus.state import StateReader
from muster.bus.streams import StreamName, ensure_streams
from muster.bus.submissions import Submissions
from muster.bus.work import WorkQueue
from muster.controller.decisions import Decisions
from muster.controller.executing import Executor
from muster.controller.metrics import ControllerMetrics
from muster.controller.pacing import WorkList
from muster.controller.progress import ProgressReader
from muster.controller.reconciling import Reconciler
from muster.controller.submitting import Submitter
from muster.controller.telling import Teller
from muster.controller.view import Target, View
from muster.kube.config import Kube
from muster.kube.errors import KubeError
from muster.kube.lease import Leadership
from muster.kube.recording import EventRecorder, RecorderLimits
from muster.kube.serving import connect_cluster, service_lease
from muster.kube.writer import Writer
from muster.model.policy import Policy
from muster.model.units import ONE_CARD
from muster.runtime.service import ServiceContext
from muster.runtime.tasks import run_together

NAME = "controller"
WORKERS = 8
SWEEP_SECONDS = 30.0
QUEUES_SECONDS = 5.0
SHARES_SECONDS = 15.0
RETRY_SECONDS = 1.0
STALE_STATE_SECONDS = 5.0
STREAMS = (
    StreamName.JOBS,
    StreamName.PROGRESS,
    StreamName.STATUS,
    StreamName.DLQ,
    StreamName.SUBMISSIONS,
    StreamName.DECISIONS,
)
EVENT_LIMITS = RecorderLimits(rate=50.0, burst=200, waiting=20_000)


class Controller:
    """One controller process."""

    def __init__(self, context: ServiceContext, bus: Bus, kube: Kube) -> None:
        """Connected; nothing is followed before `run`."""
        self._context = context
        self._bus = bus
        self._metrics = ControllerMetrics(context.metrics)
        self._metrics.leader.labels(NAME).set(0)
        component = f"muster-{NAME}"
        recorder = EventRecorder(kube, component=component, instance=context.config.identity, limits=EVENT_LIMITS)
        self._writer = Writer(kube, component=component, recorder=recorder)
        self._view = View(context.policy)
        self._work_list = WorkList()
        self._reader = StateReader(bus)
        self._decisions = Decisions(bus, changed=self._said)
        self._executor = Executor(self._writer, metrics=self._metrics, policy=context.policy)
        self._teller = Teller(bus, metrics=self._metrics)
        self._reconciler = Reconciler(
            view=self._view,
            executor=self._executor,
            decisions=self._decisions,
            teller=self._teller,
            work_list=self._work_list,
            metrics=self._metrics,
            log=context.log,
            ready=lambda: self.ready,
        )
        self._submitter = Submitter(
            submissions=Submissions(bus),
            writer=self._writer,
            teller=self._teller,
            policy=context.policy,
            cluster=lambda: self._view.cluster() if self.ready else None,
            metrics=self._metrics,
            log=context.log,
        )
        self._lock = service_lease(
            kube,
            context.config,
            service=NAME,
            report=lambda sentence: context.log.warning("the lease", problem=sentence),
        )
        context.policies.follow(self._take_over)
        self._leading = False
        self._whole = True
        """False while STATE is read anew."""

    @property
    def ready(self) -> bool:
        """STATE is known, and its watcher was heard of lately."""
        return self._reader.ready and self._reader.clock_age() < STALE_STATE_SECONDS

    async def run(self) -> None:
        """Follow and, with the Lease, lead; until cancelled."""
        try:
            await run_together(self._follow_state(), self._decisions.run(), self._lock.run(self._lead), self._report())
        finally:
            await self._writer.close()

    def _take_over(self, policy: Policy) -> None:
        """This policy is in force from here on: everything is looked at again by it."""
        for part in (self._view, self._executor, self._submitter):
            part.policy = policy
        if self._leading:
            self._work_list.add(self._view.everything())

    # Following

    async def _follow_state(self) -> None:
        async for batch in self._reader.batches():
            if batch.reset:
                self._view.clear()
                self._work_list.clear()
            targets: set[Target] = set()
            for change in batch.changes:
                if change.kind == "workload" and change.object is None and change.key in self._view.workloads:
                    self._reconciler.gone(change.key, self._view.workloads[change.key])
                elif change.kind == "pod":
                    self._saw_pod(change.key, change.object is None)
                elif change.kind == "podgroup":
                    namespace, _, name = change.key.partition("/")
                    self._executor.seen("podgroups.scheduling.volcano.sh", namespace, name)
                targets |= self._view.apply(change)
            if batch.reset:
                self._whole = False
            if not self._whole and self.ready:
                self._whole = True
                targets = self._view.everything()
            if targets and self._leading:
                self._work_list.add(targets)

    def _saw_pod(self, key: str, is_gone: bool) -> None:  # noqa: FBT001  (private)
        namespace, _, name = key.partition("/")
        self._executor.seen("pods", namespace, name)
        pod = self._view.pods.get(key)
        if is_gone and pod is not None:
            self._reconciler.pod_gone(pod)

    def _said(self, gang: str) -> None:
        """The scheduler said something new about a gang."""
        if not self._leading:
            return
        targets = {Target("podgroup", gang)}
        group = self._view.podgroups.get(gang)
        if group is not None and group.owner is not None:
            job = self._view.workload_of_uid(group.owner.uid)
            if job is not None:
                targets.add(Target("workload", f"{job.kind}/{job.key}"))
        self._work_list.add(targets)

    # Leading

    async def _lead(self, leadership: Leadership) -> None:
        """Lead while the Lease is held; failures start it anew."""
        self._context.log.info("leading", lease_epoch=leadership.epoch)
        self._metrics.leader.labels(NAME).set(1)
        try:
            while True:
                try:
                    # In a task of its own: the loss of the Lease must not get lost in a library's wait.
                    await run_together(self._reign())
                except (BusError, KubeError) as error:
                    self._context.log.warning("the controller starts anew", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
        finally:
            self._leading = False
            self._work_list.clear()
            self._metrics.leader.labels(NAME).set(0)

    async def _reign(self) -> None:
        await ensure_streams(self._bus, incarnation=0, names=STREAMS)
        await self._teller.load()
        while not self.ready:
            await asyncio.sleep(0.05)
        self._executor.forget()
        self._reconciler.begin()
        self._work_list.clear()
        self._leading = True
        self._work_list.add(self._view.everything())
        queue = WorkQueue(self._bus, self._submitter.handle)
        workers = [self._reconciler.work() for _ in range(WORKERS)]
        progress = ProgressReader(
            self._bus, view=self._view, executor=self._executor, metrics=self._metrics, log=self._context.log
        )
        await run_together(
            *workers,
            queue.run(self._context.policy.tenants),
            progress.run(),
            self._keep_house(),
            self._follow_shares(),
        )

    async def _keep_house(self) -> None:
        """Queues that must exist, streams that must exist, and submissions whose job vanished."""
        swept = time.monotonic()
        while True:
            try:
                if self.ready:
                    await self._reconciler.ensure_queues()
                if time.monotonic() - swept > SWEEP_SECONDS:
                    await ensure_streams(self._bus, incarnation=0, names=STREAMS)
                    if self.ready:
                        await self._reconciler.sweep()
                    swept = time.monotonic()
            except (BusError, KubeError) as error:
                self._context.log.warning("house keeping waits", error=str(error))
            await asyncio.sleep(QUEUES_SECONDS)

    async def _follow_shares(self) -> None:
        """What queues are entitled to is the scheduler's word; while none leads, what was told last stands."""
        subject = subjects.api_subject(NAME, "queues")
        while True:
            with contextlib.suppress(BusError):
                reply = await self._bus.request(subject, QueuesRequest(), QueuesReply)
                self._reconciler.shares_are({row.name: f"{row.share / ONE_CARD:.6g}" for row in reply.queues})
            await asyncio.sleep(SHARES_SECONDS)

    async def _report(self) -> None:
        while True:
            self._context.ready.set("nats", self._bus.connected)
            self._context.ready.set("state", self.ready)
            self._metrics.waiting.set(len(self._work_list))
            await asyncio.sleep(0.25)


async def main(context: ServiceContext) -> None:
    """Run the controller until cancelled."""
    config = context.config
    bus = await connect_bus(config.nats_url, name=f"{NAME}-{config.identity}", observer=context.log)
    try:
        async with await connect_cluster(context.config, service=NAME) as kube:
            await Controller(context, bus, kube).run()
    finally:
        await bus.close()
