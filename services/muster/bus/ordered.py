"""Reading a stream from its beginning, in order, without gaps, over reconnects, resets and emptied stores.

    _open: stream info → last sequence to reach → ephemeral push consumer from the next sequence on
       │        stream was re-created or rolled back → Batch(reset=...) and from the beginning
    _receive: batches as they come; a gap, three silent heartbeats, or a lost connection → not caught up, _open again

nats-py's own ordered consumer is deaf for about 20 s after a restart and does not notice a re-created stream. Here heartbeats come
each second, and the consumer is made anew at every reconnect.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator

import msgspec
import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from muster.bus.cancelling import check_cancelled
from muster.bus.client import Bus
from muster.bus.errors import BusError, NoStreamError
from muster.bus.publishing import STATUS
from muster.bus.streams import stream_info
from muster.model.units import Sequence

HEARTBEAT_SECONDS = 1.0
SILENT_HEARTBEATS = 2.5
RETRY_SECONDS = 0.25
CONTROL = "100"
LAST_CONSUMER = "Nats-Last-Consumer"
LAST_STREAM = "Nats-Last-Stream"
STALLED = "Nats-Consumer-Stalled"


class Delivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One stored message."""

    subject: str
    sequence: Sequence
    body: bytes
    headers: dict[str, str]
    pending: int = 0
    """How many wait behind it: a hint only, for the server counts new messages late and may tell too few."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What came since the last batch. Without deliveries: a reset, or a change of `OrderedReader.caught_up`."""

    deliveries: tuple[Delivery, ...] = ()
    reset: str = ""
    """Why everything read so far is void and is read anew; '' when it is not."""


class Position(msgspec.Struct, frozen=True, gc=False):
    """Where a delivered message stands: in its consumer, in the stream, and how many wait behind it."""

    consumer: int
    stream: int
    pending: int


def read_position(reply: str) -> Position:
    """The position that the reply subject of a delivery tells, in its old and its new form."""
    parts = reply.split(".")
    start = 4 if len(parts) == 9 else 6
    return Position(int(parts[start + 2]), int(parts[start + 1]), int(parts[start + 4]))


class OrderedReader:
    """Reads one stream whole; see the module."""

    def __init__(self, bus: Bus, stream: str, *, resume_seconds: float | None = None, must_exist: bool = False) -> None:
        """After more than ``resume_seconds`` without contact everything is read anew (messages may have expired unseen).

        A stream that ``must_exist`` and does not ends `batches` with NoStreamError; otherwise it is waited for.
        """
        self.bus = bus
        self.must_exist = must_exist
        self.stream = stream
        self.resume_seconds = resume_seconds
        self.sequence = Sequence(0)
        """Everything up to here was read, or no longer exists."""
        self.caught_up = False
        """Everything the stream held when this consumer was made has been read."""
        self.opened = 0
        """Counts the consumers made."""
        self._created: object = None
        self._target = 0
        self._consumer = ""
        self._consumed = 0
        self._subscription: Subscription | None = None
        self._inbox: list[Msg] = []
        self._arrived = asyncio.Event()
        self._generation = 0
        self._contact = 0.0
        self._woken = False

    async def batches(self) -> AsyncIterator[Batch]:
        """Batches, for ever; whoever iterates has applied a batch when it asks for the next."""
        end_listening = self.bus.listen(self._arrived.set)
        try:
            while not self.bus.closed:
                check_cancelled()
                try:
                    reset = await self._open()
                except NoStreamError:
                    raise
                except (BusError, nats.errors.Error, TimeoutError) as error:
                    self.bus.observer.warning("a stream cannot be read now", stream=self.stream, error=str(error))
                    await self._close()
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                check_cancelled()
                if reset is None:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if reset or self.caught_up:
                    yield Batch(reset=reset)
                async for batch in self._receive():
                    yield batch
                await self._close()
        finally:
            end_listening()
            await self._close()

    async def ends_at(self, position: Sequence) -> bool:
        """Whether the stream holds nothing beyond ``position``, up to which everything was read; False if that cannot be told.

        Where old messages are superseded, only such a moment shows that nothing is missing from what was read: until then
        a message may have been skipped because a newer one, not read yet, has taken its place.
        """
        created = self._created
        try:
            info = await stream_info(self.bus, self.stream)
        except BusError:
            return False
        return info is not None and info.created == created and info.state.last_seq == position

    def wake(self) -> None:
        """Make `batches` give a batch soon, an empty one when nothing came."""
        self._woken = True
        self._arrived.set()

    async def _open(self) -> str | None:
        """Make a consumer; tells why all must be read anew, '' when not, None when there is nothing to read from yet."""
        if not self.bus.connected:
            return None
        loop = asyncio.get_running_loop()
        info = await stream_info(self.bus, self.stream)
        if info is None and self.must_exist:
            raise NoStreamError(f"there is no stream {self.stream}; the store was emptied")
        if info is None:
            return None
        reset = ""
        if self._created is not None:
            if info.created != self._created:
                reset = "the stream was re-created"
            elif info.state.last_seq < self.sequence:
                reset = f"the stream went back to {info.state.last_seq}"
            elif self.resume_seconds is not None and loop.time() - self._contact > self.resume_seconds:
                reset = f"no contact for more than {self.resume_seconds:g} s"
        if reset:
            self.sequence = Sequence(0)
        self._created = info.created
        self._target = info.state.last_seq
        self._generation = self.bus.generation
        self._consumed = 0
        self._inbox = inbox = []

        async def arrived(message: Msg) -> None:
            inbox.append(message)
            # When it came, not when a busy reader gets to it.
            self._contact = loop.time()
            self._arrived.set()

        deliver = self.bus.client.new_inbox()
        self._subscription = await self.bus.client.subscribe(
            deliver, cb=arrived, pending_msgs_limit=0, pending_bytes_limit=0
        )
        start = self.sequence + 1 if self.sequence else None
        consumer = await self.bus.jetstream.add_consumer(
            self.stream,
            ConsumerConfig(
                name=f"{self.bus.name}-{secrets.token_hex(6)}",
                deliver_subject=deliver,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE if start is not None else DeliverPolicy.ALL,
                opt_start_seq=start,
                ack_policy=AckPolicy.NONE,
                max_deliver=1,
                flow_control=True,
                idle_heartbeat=HEARTBEAT_SECONDS,
                inactive_threshold=10.0,
                num_replicas=1,
                mem_storage=True,
            ),
        )
        self._consumer = consumer.name
        self._contact = loop.time()
        self.opened += 1
        if consumer.num_pending == 0 and consumer.delivered is not None and consumer.delivered.consumer_seq == 0:
            self.sequence = Sequence(max(self.sequence, self._target))
        self.caught_up = self.sequence >= self._target
        return reset

    async def _receive(self) -> AsyncIterator[Batch]:
        loop = asyncio.get_running_loop()
        while True:
            if not self._inbox and not self._woken:
                self._arrived.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HEARTBEAT_SECONDS * SILENT_HEARTBEATS):
                        await self._arrived.wait()
            messages, self._inbox[:] = list(self._inbox), []
            lost = not self.bus.connected or self.bus.generation != self._generation or self.bus.closed
            if not lost and not messages and not self._woken:
                lost = loop.time() - self._contact > HEARTBEAT_SECONDS * SILENT_HEARTBEATS - 0.1
            was = self.caught_up
            deliveries, answers, gap = self._sort(messages)
            if lost or gap:
                self.caught_up = False
            woken, self._woken = self._woken, False
            if deliveries or woken or was != self.caught_up:
                yield Batch(deliveries=tuple(deliveries))
            if lost or gap:
                self.bus.observer.info(
                    "a stream is read through a new consumer", stream=self.stream, sequence=self.sequence, gap=gap
                )
                return
            # Only now: the server sends more when what it sent was applied.
            for subject in answers:
                with contextlib.suppress(nats.errors.Error):
                    await self.bus.client.publish(subject)

    def _sort(self, messages: list[Msg]) -> tuple[list[Delivery], list[str], bool]:
        """Deliveries in order, flow-control subjects to answer, and whether something is missing."""
        deliveries: list[Delivery] = []
        answers: list[str] = []
        for message in messages:
            headers = message.headers or {}
            if headers.get(STATUS) == CONTROL and not message.data:
                if message.reply:
                    answers.append(message.reply)
                    continue
                if stalled := headers.get(STALLED):
                    answers.append(stalled)
                if int(headers.get(LAST_CONSUMER, self._consumed)) != self._consumed:
                    return deliveries, answers, True
                self._reach(int(headers.get(LAST_STREAM, 0)))
                continue
            if not message.reply:
                continue
            position = read_position(message.reply)
            if position.consumer != self._consumed + 1:
                return deliveries, answers, True
            self._consumed = position.consumer
            deliveries.append(
                Delivery(
                    subject=message.subject,
                    sequence=Sequence(position.stream),
                    body=message.data,
                    headers=headers,
                    pending=position.pending,
                )
            )
            self._reach(position.stream)
            if position.pending == 0:
                # What was the last message when we subscribed may have been replaced or expired since.
                self._reach(max(position.stream, self._target))
        return deliveries, answers, False

    def _reach(self, sequence: int) -> None:
        self.sequence = Sequence(max(self.sequence, sequence))
        if self.sequence >= self._target:
            self.caught_up = True

    async def _close(self) -> None:
        self.caught_up = False
        subscription, self._subscription = self._subscription, None
        consumer, self._consumer = self._consumer, ""
        if subscription is None or self.bus.closed:
            return
        with contextlib.suppress(nats.errors.Error):
            await subscription.unsubscribe()
        if consumer and self.bus.connected and self.bus.generation == self._generation:
            # A courtesy: the server removes it by itself after a while.
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.bus.jetstream.delete_consumer(self.stream, consumer)
