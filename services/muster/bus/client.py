"""The connection to NATS that every service uses: `connect` gives a `Bus`.

    Bus.publish / send   JetStream, acknowledged, with expected sequences        (publishing.py)
    Bus.request / serve  questions and answers, errors in headers
    Bus.jetstream        nats-py's management API, for streams.py
    Bus.listen           be told about every loss and return of the connection

Settings differ from nats-py's defaults where those hurt: a dead peer is noticed after 20 s instead of minutes, reconnecting never
ends, and every callback is set.
"""

import asyncio
import contextlib
import random
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.client import Server as PoolServer
from nats.aio.msg import Msg
from nats.js.client import JetStreamContext

from muster.bus import chunks, envelope, publishing
from muster.bus.compatibility import check_server
from muster.bus.errors import (
    BusError,
    NoAnswerError,
    NotConnectedError,
    RequestRefusedError,
    UndecodableError,
)
from muster.bus.observing import Observer, Silence
from muster.bus.publishing import Publisher
from muster.bus.subjects import split_subject
from muster.model.units import Sequence

T = TypeVar("T")
Q = TypeVar("Q", bound=msgspec.Struct)

PING_SECONDS = 10
CONNECT_SECONDS = 30.0
ACK_SECONDS = 5.0
REQUEST_SECONDS = 5.0
CLOSE_SECONDS = 5.0
PENDING_BYTES = 16 * 1024 * 1024
RETRY_SHORTEST = 0.05
RETRY_LONGEST = 2.0
SERVED_AT_ONCE = 64
ERROR_CODE = "Nats-Service-Error-Code"
ERROR_TEXT = "Nats-Service-Error"


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request came in: the unescaped tokens of its subject after ``muster.``, and its headers."""

    subject: str
    tokens: tuple[str, ...]
    headers: dict[str, str]


class Served:
    """A service that `Bus.serve` started."""

    def __init__(self, subscription: Any) -> None:
        """Made by `Bus.serve`."""
        self._subscription = subscription

    async def stop(self) -> None:
        """Take no more requests."""
        with contextlib.suppress(nats.errors.Error):
            await self._subscription.unsubscribe()


class Bus:
    """One connection to NATS; see the module. Made by `connect`."""

    def __init__(self, client: Client, *, name: str, observer: Observer) -> None:
        """Not connected yet."""
        self.client = client
        self.name = name
        self.observer = observer
        self.generation = 0
        """Counts the connections: it changes with every reconnect."""
        self.envelope = envelope.Envelope(source=name, nonce=secrets.token_hex(8))
        self.jetstream: JetStreamContext = client.jetstream(timeout=ACK_SECONDS)
        self._publisher = Publisher(client)
        self._listeners: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_trouble = ""

    # Connection ------------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """There is a connection now, as far as it is known."""
        return bool(self.client.is_connected)

    @property
    def closed(self) -> bool:
        """`close` was called, or the client gave up."""
        return bool(self.client.is_closed)

    @property
    def max_payload(self) -> int:
        """Bytes the server takes in one message, headers included."""
        return int(self.client.max_payload)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` at every loss and return of the connection; the result ends that."""
        self._listeners.append(listener)

        def end() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return end

    async def flush(self, *, seconds: float = ACK_SECONDS) -> None:
        """Wait until the server has read everything sent so far.

        Raises:
            NotConnectedError: not within ``seconds``.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.client.flush()
        except (TimeoutError, nats.errors.Error) as error:
            raise NotConnectedError(f"the server did not answer a ping: {error or 'timeout'}") from error

    async def close(self) -> None:
        """Send what is pending and close, within `CLOSE_SECONDS`."""
        for task in list(self._tasks):
            task.cancel()
        # Not drain: it waits for subscriptions that may be dead. What matters is that everything was sent.
        if self.connected:
            try:
                await self.flush(seconds=CLOSE_SECONDS / 2)
            except NotConnectedError as error:
                self.observer.warning(
                    "closing the NATS connection without an answer to the last ping", error=str(error)
                )
        try:
            async with asyncio.timeout(CLOSE_SECONDS / 2):
                await self.client.close()
        except (TimeoutError, nats.errors.Error, OSError) as error:
            self.observer.warning("closing the NATS connection was cut short", error=str(error) or "timeout")
        self._publisher.lose_all()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Publishing ------------------------------------------------------------------------------------------------------

    async def publish(self, subject: str, message: msgspec.Struct | bytes, **options: Any) -> Sequence:
        """Store one message; the options are those of `send`.

        Raises:
            NotConnectedError, MessageTooLargeError: nothing was sent.
            WrongLastSequenceError, QueueFullError, NoStreamError, PublishRefusedError: nothing was stored.
            UnknownOutcomeError: it may be stored.
        """
        return await (await self.send(subject, message, **options))

    async def send(
        self,
        subject: str,
        message: msgspec.Struct | bytes,
        *,
        expected_last_sequence: int | None = None,
        expected_last_subject_sequence: int | None = None,
        message_id: str | None = None,
        headers: dict[str, str] | None = None,
        about: str = "",
        traceparent: str = "",
        time_to_live: int | None = None,
        seconds: float = ACK_SECONDS,
    ) -> "asyncio.Future[Sequence]":
        """Pipelined `publish`: returns when the message is on its way, in order; the future tells what became of it.

        ``message_id`` asks for the server's de-duplication (an optimisation only). ``time_to_live`` is in seconds; the
        stream must allow it. ``about`` becomes ``ce-subject``. Raw bytes get no envelope, only ``headers``.
        """
        if isinstance(message, bytes):
            body, all_headers = message, dict(headers or {})
        else:
            body, encoding = envelope.encode_body(message)
            own = self.envelope.headers(
                message, now=time.time(), subject=about, message_id=message_id or "", traceparent=traceparent
            )
            all_headers = {**own, **encoding, **(headers or {})}
        if expected_last_sequence is not None:
            all_headers[publishing.EXPECTED_LAST_SEQUENCE] = str(expected_last_sequence)
        if expected_last_subject_sequence is not None:
            all_headers[publishing.EXPECTED_LAST_SUBJECT_SEQUENCE] = str(expected_last_subject_sequence)
        if message_id is not None:
            all_headers[publishing.MESSAGE_ID] = message_id
        if time_to_live is not None:
            all_headers[publishing.TIME_TO_LIVE] = f"{time_to_live}s"
        return await self._publisher.send(subject, body, all_headers, seconds=seconds)

    async def publish_whole(self, subject: str, message: msgspec.Struct, *, seconds: float = ACK_SECONDS) -> Sequence:
        """`publish` for a message that may be larger than the server takes: chunks, then a commit record (`chunks`).

        The result is the sequence of the commit record. JOBS and LEDGER are read so; other streams are not.

        Raises:
            BusError: as `publish`; nothing acts on what was sent then, unless the outcome is unknown.
        """
        body, encoding = envelope.encode_body(message)
        own = self.envelope.headers(message, now=time.time())
        pieces = chunks.split(own["ce-id"], body, {**own, **encoding}, max_payload=self.max_payload)
        sequence = Sequence(0)
        for piece in pieces:
            sequence = await self.publish(subject, piece.body, headers=piece.headers, seconds=seconds)
        return sequence

    # Questions -------------------------------------------------------------------------------------------------------

    async def request(
        self, subject: str, question: msgspec.Struct, answer: type[T], *, seconds: float = REQUEST_SECONDS
    ) -> T:
        """Ask and decode the answer.

        Raises:
            NoAnswerError: nobody serves the subject, or not in time.
            RequestRefusedError: the service refused, with code and text.
            UndecodableError: the answer has not the form of ``answer``.
        """
        body, encoding = envelope.encode_body(question)
        headers = {**self.envelope.headers(question, now=time.time()), **encoding}
        try:
            reply = await self.client.request(subject, body, timeout=seconds, headers=headers)
        except nats.errors.NoRespondersError as error:
            raise NoAnswerError(f"{subject}: nobody serves this; is the service running?") from error
        except nats.errors.TimeoutError as error:
            raise NoAnswerError(f"{subject}: no answer within {seconds:g} s") from error
        except nats.errors.Error as error:
            raise NoAnswerError(f"{subject}: {error}") from error
        told = reply.headers or {}
        if code := told.get(ERROR_CODE):
            raise RequestRefusedError(code, told.get(ERROR_TEXT, "no reason was given"))
        return envelope.decode(answer, reply.data, told)

    async def serve(
        self,
        subject: str,
        question: type[Q],
        handler: Callable[[Q, Question], Awaitable[msgspec.Struct]],
        *,
        queue: str = "",
    ) -> Served:
        """Answer requests, `SERVED_AT_ONCE` at a time; an empty body means a question without wishes.

        The handler raises `RequestRefusedError` to refuse. Another exception is told as code ``internal`` and observed.
        """
        room = asyncio.Semaphore(SERVED_AT_ONCE)

        async def answer(message: Msg) -> None:
            try:
                await self._answer(message, question, handler)
            finally:
                room.release()

        async def arrived(message: Msg) -> None:
            await room.acquire()
            task = asyncio.create_task(answer(message))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return Served(await self.client.subscribe(subject, queue=queue, cb=arrived))

    async def _answer(
        self, message: Msg, question: type[Q], handler: Callable[[Q, Question], Awaitable[msgspec.Struct]]
    ) -> None:
        body, headers = b"", {}
        try:
            told = dict(message.headers or {})
            asked = envelope.decode(question, message.data or b"{}", told)
            place = Question(subject=message.subject, tokens=split_subject(message.subject), headers=told)
            reply = await handler(asked, place)
            body, encoding = envelope.encode_body(reply)
            headers = {**self.envelope.headers(reply, now=time.time()), **encoding}
        except RequestRefusedError as error:
            headers = {ERROR_CODE: error.code, ERROR_TEXT: str(error)}
        except UndecodableError as error:
            headers = {ERROR_CODE: "bad-request", ERROR_TEXT: str(error)}
        except Exception as error:  # noqa: BLE001  (the asker is told, the observer too)
            self.observer.warning("a request failed", subject=message.subject, error=repr(error))
            headers = {ERROR_CODE: "internal", ERROR_TEXT: f"{type(error).__name__}; see the log of {self.name}"}
        if not message.reply:
            return
        try:
            await self.client.publish(message.reply, body, headers=headers)
        except nats.errors.Error as error:
            self.observer.warning("an answer could not be sent", subject=message.subject, error=str(error))

    # Called by nats-py -----------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        await self._publisher.start()
        self.generation = 1

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()

    async def _disconnected(self) -> None:
        self._publisher.lose_all()
        if not self.closed:
            self.observer.warning("the NATS connection was lost", server=self._server_name())
        self._tell()

    async def _reconnected(self) -> None:
        self.generation += 1
        self._last_trouble = ""
        self.observer.info("the NATS connection is back", server=self._server_name(), generation=self.generation)
        self._tell()

    async def _closed(self) -> None:
        self._publisher.lose_all()
        self._tell()

    async def _troubled(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        # During an outage every attempt fails alike: it is told once.
        if text != self._last_trouble:
            self._last_trouble = text
            self.observer.warning("trouble with NATS", error=text)

    def _server_name(self) -> str:
        url = self.client.connected_url
        return f"{url.hostname}:{url.port}" if url is not None else "-"


def _next_server(servers: list[PoolServer], _info: dict[str, Any]) -> tuple[PoolServer, float]:
    """The server that failed least, after a delay that grows with its failures, with full jitter."""
    chosen = min(servers, key=lambda server: (server.reconnects, random.random()))  # noqa: S311  (no secret)
    longest = min(RETRY_LONGEST, RETRY_SHORTEST * 2 ** min(chosen.reconnects, 10))
    return chosen, random.uniform(RETRY_SHORTEST / 2, longest)  # noqa: S311


async def connect(
    url: str,
    *,
    name: str,
    observer: Observer | None = None,
    on_reconnect: Callable[[], None] | None = None,
    credentials: Path | None = None,
    nkey_seed: Path | None = None,
    tls: ssl.SSLContext | None = None,
    seconds: float = CONNECT_SECONDS,
) -> Bus:
    """Connect to NATS; ``url`` may name several servers, separated by commas.

    Raises:
        NotConnectedError: no server answered within ``seconds``, or it refused us.
        UnsuitableServerError: the server is older than 2.11 or has no JetStream.
    """
    client = Client()
    bus = Bus(client, name=name, observer=observer or Silence())
    try:
        async with asyncio.timeout(seconds):
            await client.connect(
                [part.strip() for part in url.split(",")],
                name=name,
                error_cb=bus._troubled,  # noqa: SLF001  (one unit)
                disconnected_cb=bus._disconnected,  # noqa: SLF001
                reconnected_cb=bus._reconnected,  # noqa: SLF001
                closed_cb=bus._closed,  # noqa: SLF001
                ping_interval=PING_SECONDS,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.25,
                reconnect_to_server_handler=_next_server,
                pending_size=PENDING_BYTES,
                drain_timeout=int(CLOSE_SECONDS),
                user_credentials=str(credentials) if credentials is not None else None,
                nkeys_seed=str(nkey_seed) if nkey_seed is not None else None,
                tls=tls,
            )
            await bus._start()  # noqa: SLF001
    except (TimeoutError, nats.errors.Error, OSError) as error:
        reason = bus._last_trouble or str(error) or "no answer"  # noqa: SLF001
        with contextlib.suppress(Exception):
            await client.close()
        raise NotConnectedError(f"no NATS server at {url} within {seconds:g} s ({reason})") from error
    try:
        check_server(client._server_info)  # noqa: SLF001  (nats-py shows INFO nowhere else)
    except BusError:
        await bus.close()
        raise
    if on_reconnect is not None:
        generation = bus.generation

        def returned() -> None:
            nonlocal generation
            if bus.generation != generation:
                generation = bus.generation
                on_reconnect()

        bus.listen(returned)
    return bus
