"""The work queue JOBS: each tenant's messages in order, tenants in turn, every message handled or filed as a dead letter.

    JOBS ── one durable consumer a tenant ── fetch ──► assemble chunks ──► handler ──► ack
                                                            │ raises         └─ Unhandled (refused for good) ──► DLQ ──► ack
                                                            └─ again after a pause, at most `DELIVERIES` times ──► DLQ ──► ack

A message that cannot be handled now holds up its own tenant only. A message that ends the process is counted by the server: after
`DELIVERIES` deliveries it is filed unread. Handlers must bear a second delivery.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.client import JetStreamContext

from muster.bus import chunks
from muster.bus.cancelling import check_cancelled
from muster.bus.client import Bus
from muster.bus.dlq import DeadLetters
from muster.bus.errors import BusError, NotConnectedError, UndecodableError
from muster.bus.streams import StreamName
from muster.bus.subjects import JOBS_CANCEL_ALL, JOBS_SUBMIT_ALL, consumer_name, jobs_cancel, jobs_submit, split_subject

ACK_WAIT_SECONDS = 10.0
DELIVERIES = 5
SPARE_PENDING = 64
FETCH_SECONDS = 2.0
"""A fetch that a restarted server has forgotten ends by then."""
IDLE_FETCHES = 6
"""After so many fetches without a message it is checked that the consumer still exists: a deleted one looks idle."""
PAUSE_SHORTEST = 0.2
PAUSE_LONGEST = 5.0
SERIES_SECONDS = 120.0
"""Series of chunks that are not complete so long after the last chunk are filed as dead letters."""
SERIES_AT_ONCE = 8
"""Several submitters of one tenant may send chunks at the same time."""
AT_ONCE = 8


class Unhandled(BusError):  # noqa: N818  (reads as what it says: this message stays unhandled)
    """Raised by a handler: the message can never be handled; ``reason`` is a short code for the dead letter."""

    def __init__(self, reason: str, message: str) -> None:
        """See the class."""
        super().__init__(message)
        self.reason = reason


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the queue, whole."""

    tenant: str
    verb: str
    """``submit`` or ``cancel``."""
    body: bytes
    headers: dict[str, str]
    deliveries: int
    """1 the first time."""


Handler = Callable[[Job], Awaitable[None]]


class WorkQueue:
    """Serves JOBS; see the module."""

    def __init__(
        self,
        bus: Bus,
        handler: Handler,
        *,
        ack_wait: float = ACK_WAIT_SECONDS,
        deliveries: int = DELIVERIES,
        series_seconds: float = SERIES_SECONDS,
        pause_shortest: float = PAUSE_SHORTEST,
    ) -> None:
        """Nothing is served before `run`."""
        self.bus = bus
        self.handler = handler
        self.ack_wait = ack_wait
        self.deliveries = deliveries
        self.series_seconds = series_seconds
        self.pause_shortest = pause_shortest
        self.letters = DeadLetters(bus)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self, tenants: Iterable[str], *, discover_seconds: float = 2.0) -> None:
        """Serve ``tenants`` and every other tenant whose messages turn up, for ever.

        Messages of tenants that nobody knows are handled too: the handler refuses them, so that their sender hears it.
        """
        try:
            for tenant in tenants:
                self._serve(tenant)
            while not self.bus.closed:
                check_cancelled()
                with contextlib.suppress(BusError):
                    for tenant in await waiting_tenants(self.bus):
                        self._serve(tenant)
                check_cancelled()
                await asyncio.sleep(discover_seconds)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)
            self._tasks.clear()

    def _serve(self, tenant: str) -> None:
        if tenant not in self._tasks:
            self._tasks[tenant] = asyncio.create_task(self._serve_tenant(tenant), name=f"jobs of {tenant}")

    async def _serve_tenant(self, tenant: str) -> None:
        while not self.bus.closed:
            check_cancelled()
            try:
                subscription = await self._subscribe(tenant)
                try:
                    await _Tenant(self, tenant, subscription).run()
                finally:
                    with contextlib.suppress(nats.errors.Error):
                        await subscription.unsubscribe()
            except (BusError, nats.errors.Error, TimeoutError) as error:
                self.bus.observer.warning("a tenant's queue cannot be served now", tenant=tenant, error=str(error))
                await asyncio.sleep(PAUSE_SHORTEST + random.random())  # noqa: S311  (no secret)

    async def _subscribe(self, tenant: str) -> JetStreamContext.PullSubscription:
        name = consumer_name("jobs", tenant)
        config = ConsumerConfig(
            name=name,
            durable_name=name,
            filter_subjects=[jobs_submit(tenant), jobs_cancel(tenant)],
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self.ack_wait,
            # The server would leave a message that was delivered too often where it is, for ever: we count ourselves.
            max_deliver=-1,
            max_ack_pending=chunks.LARGEST_COUNT + SPARE_PENDING,
        )
        await self.bus.jetstream.add_consumer(StreamName.JOBS, config)
        return await self.bus.jetstream.pull_subscribe_bind(consumer=name, stream=StreamName.JOBS)


class _Tenant:
    """The loop over one tenant's messages, while its consumer lives."""

    def __init__(self, queue: WorkQueue, tenant: str, subscription: JetStreamContext.PullSubscription) -> None:
        self.queue = queue
        self.tenant = tenant
        self.subscription = subscription
        self.assembler: chunks.Assembler[Msg] = chunks.Assembler(series_limit=SERIES_AT_ONCE)
        self.series_since = 0.0

    async def run(self) -> None:
        """Until the consumer is gone or the server fails.

        Raises:
            NotConnectedError: the consumer was deleted.
        """
        idle = 0
        while not self.queue.bus.closed:
            check_cancelled()
            try:
                # One at a time: a larger fetch of nats-py holds back what came until it times out, and with a heartbeat it
                # may ask without an expiry, which the server refuses, and then loses what it had at hand.
                messages = await self.subscription.fetch(1, timeout=FETCH_SECONDS, heartbeat=FETCH_SECONDS / 4)
            except (TimeoutError, nats.errors.TimeoutError):
                messages = []
            idle = 0 if messages else idle + 1
            if not messages:
                await self._check_series()
            if idle >= IDLE_FETCHES:
                idle = 0
                await self._check_consumer()
            for message in messages:
                await self._take(message)

    async def _check_consumer(self) -> None:
        try:
            await self.subscription.consumer_info()
        except nats.js.errors.NotFoundError as error:
            raise NotConnectedError(f"the consumer of {self.tenant!r} was deleted; it is made again") from error

    async def _check_series(self) -> None:
        parts = self.assembler.open_parts
        if not parts:
            return
        for part in parts:
            await part.in_progress()
        if asyncio.get_running_loop().time() - self.series_since > self.queue.series_seconds:
            self.assembler.abandon()
            dropped = self.assembler.take_dropped()
            await self._file(dropped, "incomplete", "the commit record of a series of chunks never came")

    async def _take(self, message: Msg) -> None:
        headers = dict(message.headers or {})
        if chunks.is_part(headers):
            self.series_since = asyncio.get_running_loop().time()
        try:
            whole = self.assembler.add(message.data, headers, message)
        except UndecodableError as error:
            await self._file((*self.assembler.take_dropped(), message), "undecodable", str(error))
            return
        if dropped := self.assembler.take_dropped():
            await self._file(
                dropped, "incomplete", "too many series of chunks began before this one's commit record came"
            )
        if whole is not None:
            await self._handle(whole)

    async def _handle(self, whole: chunks.Whole[Msg]) -> None:
        last = whole.parts[-1]
        verb = split_subject(last.subject)[1]
        deliveries = int(last.metadata.num_delivered or 1)
        while True:
            if deliveries > self.queue.deliveries:
                await self._file(whole.parts, "poison", f"it was delivered {deliveries - 1} times and never handled")
                return
            job = Job(tenant=self.tenant, verb=verb, body=whole.body, headers=whole.headers, deliveries=deliveries)
            try:
                async with self.queue._turns:  # noqa: SLF001  (one unit)
                    await self._alive(whole.parts, self.queue.handler(job))
            except Unhandled as error:
                await self._file(whole.parts, error.reason, str(error))
                return
            except Exception as error:  # noqa: BLE001  (observed; the message is tried again, then filed)
                self.queue.bus.observer.warning(
                    "a message could not be handled",
                    tenant=self.tenant,
                    verb=verb,
                    deliveries=deliveries,
                    error=repr(error),
                )
                if deliveries >= self.queue.deliveries:
                    await self._file(whole.parts, "poison", f"{type(error).__name__}: {error}")
                    return
                pause = min(PAUSE_LONGEST, self.queue.pause_shortest * 2 ** (deliveries - 1))
                await self._alive(whole.parts, asyncio.sleep(pause * random.uniform(0.5, 1.0)))  # noqa: S311
                deliveries += 1
            else:
                for part in whole.parts:
                    await part.ack()
                return

    async def _alive(self, parts: tuple[Msg, ...], work: Awaitable[None]) -> None:
        """Await the work; tell the server meanwhile that it goes on."""
        task = asyncio.ensure_future(work)
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=self.queue.ack_wait / 3)
                if done:
                    return await task
                for part in parts:
                    with contextlib.suppress(nats.errors.Error):
                        await part.in_progress()
        finally:
            task.cancel()

    async def _file(self, parts: tuple[Msg, ...], reason: str, error: str) -> None:
        """File every part as a dead letter, then acknowledge it; a failure leaves it to the next delivery."""
        for part in parts:
            await self.queue.letters.put(
                origin_subject=part.subject,
                payload=part.data,
                headers=part.headers,
                reason=reason,
                error=error,
                deliveries=int(part.metadata.num_delivered or 1),
            )
            await part.ack()


async def waiting_tenants(bus: Bus) -> tuple[str, ...]:
    """Tenants that have messages in JOBS, sorted.

    Raises:
        NotConnectedError: the server did not answer.
    """
    found: set[str] = set()
    for pattern in (JOBS_SUBMIT_ALL, JOBS_CANCEL_ALL):
        try:
            info = await bus.jetstream.stream_info(StreamName.JOBS, subjects_filter=pattern)
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(f"JOBS did not tell its subjects: {error or 'timeout'}") from error
        found.update(split_subject(subject)[2] for subject in info.state.subjects or {})
    return tuple(sorted(found))
