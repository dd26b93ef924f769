"""PROGRESS: what running jobs report, put on their PodGroups by the leader.

    muster.jobs.progress.<tenant>.<namespace/name> ─► may this tenant speak of this job? ─► the newest waits
                                                   ─► one write a job every few seconds, all jobs by one bucket

The stream keeps the last report of each job, so a new leader finds what the last one did not write. A report that cannot be
meant, or that is about somebody else's job, is counted and dropped: it is no work that waits.
"""

import asyncio
import time

import structlog

from muster.bus.client import Bus
from muster.bus.envelope import decode
from muster.bus.errors import UndecodableError
from muster.bus.messages import Progress
from muster.bus.ordered import Delivery, OrderedReader
from muster.bus.streams import StreamName
from muster.bus.subjects import SubjectError, split_subject
from muster.controller.executing import Executor
from muster.controller.metrics import ControllerMetrics
from muster.controller.pacing import TokenBucket
from muster.controller.view import View, gang_of_workload
from muster.decide.lifecycle.progress import may_report, note_checkpoint
from muster.decide.lifecycle.submission import TENANT
from muster.kube.errors import KubeError
from muster.model.workloads import Workload

EACH_SECONDS = 2.0
"""A job's PodGroup is written for its reports at most this often."""
WRITES_PER_SECOND = 20.0
WRITE_BURST = 40.0
LOOK_SECONDS = 0.25
KINDS = ("vcjob", "job")
Report = tuple[str, str]
"""Tenant, and the job it speaks of."""


class ProgressReader:
    """See the module; one for each leadership."""

    def __init__(
        self,
        bus: Bus,
        *,
        view: View,
        executor: Executor,
        metrics: ControllerMetrics,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """Nothing is read before `run`."""
        self._bus = bus
        self._view = view
        self._executor = executor
        self._metrics = metrics
        self._log = log
        self._bucket = TokenBucket(rate=WRITES_PER_SECOND, burst=WRITE_BURST)
        self._waiting: dict[Report, float] = {}
        """Checkpoints by who reported them of which job: what others say of a job takes no place of its owner's word."""
        self._written: dict[Report, float] = {}

    async def run(self) -> None:
        """Follow and write until cancelled."""
        writing = asyncio.create_task(self._write())
        try:
            async for batch in OrderedReader(self._bus, StreamName.PROGRESS).batches():
                for delivery in batch.deliveries:
                    self._read(delivery)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    def _read(self, delivery: Delivery) -> None:
        try:
            _, _, tenant, key = split_subject(delivery.subject)
            progress = decode(Progress, delivery.body, delivery.headers)
        except (SubjectError, UndecodableError, ValueError) as error:
            self._metrics.progress.labels("undecodable").inc()
            self._log.warning("a report cannot be read", subject=delivery.subject, error=str(error))
            return
        if progress.checkpoint_at is None:
            self._metrics.progress.labels("step").inc()
            return
        self._waiting[tenant, key] = progress.checkpoint_at

    async def _write(self) -> None:
        while True:
            now = time.monotonic()
            for report in [one for one in self._waiting if now - self._written.get(one, -EACH_SECONDS) >= EACH_SECONDS]:
                checkpoint_at = self._waiting.pop(report)
                job = self._job(report[1])
                if job is None:
                    # Not seen yet, or gone: the stream keeps the report, a new leader reads it again.
                    self._metrics.progress.labels("unknown").inc()
                    continue
                self._written[report] = time.monotonic()
                await self._note(job, report, checkpoint_at)
            self._written = {report: at for report, at in self._written.items() if now - at < EACH_SECONDS}
            await asyncio.sleep(LOOK_SECONDS)

    def _job(self, key: str) -> Workload | None:
        return next((job for kind in KINDS if (job := self._view.workloads.get(f"{kind}/{key}")) is not None), None)

    async def _note(self, job: Workload, report: Report, checkpoint_at: float) -> None:
        tenant = report[0]
        if not may_report(tenant, self._view.policy.tenants.get(tenant), job, key=TENANT):
            self._metrics.progress.labels("refused").inc()
            self._log.warning("a report about another's job", tenant=tenant, job=job.key)
            return
        group = self._view.podgroups.get(gang_of_workload(job))
        patch = note_checkpoint(group, checkpoint_at, now=time.time()) if group is not None else None
        if patch is None:
            self._metrics.progress.labels("no_news").inc()
            return
        await self._bucket.take()
        try:
            await self._executor.carry_out((patch,))
        except KubeError as error:
            self._metrics.progress.labels("failed").inc()
            self._waiting.setdefault(report, checkpoint_at)
            self._log.warning("a checkpoint is not noted yet", job=job.key, error=error.message)
        else:
            self._metrics.progress.labels("noted").inc()
