"""STATUS: each submission's steps, told once, in order, by the leader.

The last step told is read back from the stream, so that a new leader goes on with the next number. Each submission has
a lock: a cancellation and the job's own end cannot tell at the same time.
"""

import asyncio
import time
from collections import defaultdict

import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from muster.bus.client import Bus
from muster.bus.envelope import decode
from muster.bus.errors import NotConnectedError, UndecodableError
from muster.bus.messages import StatusEvent
from muster.bus.statuses import Statuses
from muster.bus.streams import StreamName
from muster.bus.subjects import STATUS_ALL
from muster.controller.metrics import ControllerMetrics
from muster.decide.lifecycle.status import FINAL, TOLD, Observed, Step, advance

FETCHED = 500
FETCH_SECONDS = 2.0
Submission = tuple[str, str]
"""Tenant and id."""


class Teller:
    """See the module."""

    def __init__(self, bus: Bus, *, metrics: ControllerMetrics) -> None:
        """The stream STATUS must exist before anything is told."""
        self._bus = bus
        self._statuses = Statuses(bus)
        self._metrics = metrics
        self._last: dict[Submission, StatusEvent | None] = {}
        self._locks: dict[Submission, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._accepted: dict[Submission, float] = {}

    def lock(self, tenant: str, submission_id: str) -> asyncio.Lock:
        """Held while something is decided about a submission."""
        return self._locks[tenant, submission_id]

    def open_jobs(self) -> list[StatusEvent]:
        """The last events of submissions that have not ended."""
        return [event for event in self._last.values() if event is not None and event.state not in FINAL]

    async def last(self, tenant: str, submission_id: str) -> StatusEvent | None:
        """The last event told of a submission.

        Raises:
            NotConnectedError: the server did not answer.
        """
        key = (tenant, submission_id)
        if key not in self._last:
            self._last[key] = await self._statuses.last(tenant, submission_id)
        return self._last[key]

    async def tell(
        self,
        tenant: str,
        submission_id: str,
        observed: Observed,
        *,
        job: str = "",
        details: dict[str, object] | None = None,
    ) -> None:
        """Tell the steps from the last one told to what is observed. The caller holds the submission's `lock`.

        Raises:
            BusError: a step could not be told; call it again.
        """
        key = (tenant, submission_id)
        last = await self.last(tenant, submission_id)
        for step in advance(_step(last), observed, now=time.time()):
            event = StatusEvent(
                tenant=tenant,
                id=submission_id,
                job=job or (last.job if last is not None else ""),
                state=step.state,
                reason=step.reason,
                message=step.message,
                position=step.position,
                number=step.number,
                at=step.at,
                details={**step.details, **(details or {})},
            )
            try:
                stored = await self._statuses.append(event)
            except BaseException:
                self._last.pop(key, None)
                raise
            if stored is None:
                # Told already by a leader before us, or ended: what stands there is read before the next step.
                self._last.pop(key, None)
                return
            self._last[key] = last = stored
            self._measure(key, stored)
        if last is not None and last.state in FINAL:
            self._locks.pop(key, None)
            self._accepted.pop(key, None)

    async def load(self) -> None:
        """Read the last event of every submission, for a new leader.

        Raises:
            NotConnectedError: the server did not answer.
        """
        self._last.clear()
        try:
            consumer = await self._bus.jetstream.add_consumer(
                StreamName.STATUS,
                ConsumerConfig(
                    deliver_policy=DeliverPolicy.LAST_PER_SUBJECT,
                    ack_policy=AckPolicy.NONE,
                    filter_subject=STATUS_ALL,
                    inactive_threshold=30.0,
                    mem_storage=True,
                    num_replicas=1,
                ),
            )
            waiting = int(consumer.num_pending or 0)
            subscription = await self._bus.jetstream.pull_subscribe_bind(
                consumer=consumer.name, stream=StreamName.STATUS
            )
            try:
                while waiting > 0:
                    for message in await subscription.fetch(min(FETCHED, waiting), timeout=FETCH_SECONDS):
                        waiting -= 1
                        self._loaded(message.data, dict(message.headers or {}))
            finally:
                await subscription.unsubscribe()
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(f"STATUS could not be read: {error or 'timeout'}") from error

    def _loaded(self, body: bytes, headers: dict[str, str]) -> None:
        try:
            event = decode(StatusEvent, body, headers)
        except UndecodableError as error:
            self._bus.observer.warning("a status event cannot be read", error=str(error))
            return
        if event.state not in FINAL:
            self._last[event.tenant, event.id] = event

    def _measure(self, key: Submission, event: StatusEvent) -> None:
        self._metrics.status_events.labels(event.state).inc()
        if event.state == "Accepted":
            self._accepted[key] = event.at
        elif key in self._accepted and event.state not in {"Queued", "Rejected"}:
            self._metrics.life.labels(event.state).observe(max(0.0, event.at - self._accepted[key]))


def _step(event: StatusEvent | None) -> Step | None:
    if event is None:
        return None
    retries = event.details.get("retries", 0)
    return Step(
        state=event.state,
        number=event.number,
        at=event.at,
        reason=event.reason,
        message=event.message,
        position=event.position,
        retries=retries if isinstance(retries, int) else 0,
        preempted=bool(event.details.get("preempted")),
        told={name: value for name, value in event.details.items() if name in TOLD},
    )
