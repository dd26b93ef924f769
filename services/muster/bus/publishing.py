"""Publishing to JetStream: many in flight, each acknowledged, refused, or of unknown outcome, never left hanging.

    send() ── in call order ──► server ── ack or refusal on one inbox ──► the future of that message
    connection lost, or no answer in time ──► UnknownOutcomeError for everything in flight

nats-py has `publish_async`, but its futures stay pending for ever when the connection is lost.
"""

import asyncio
import json
import re
from collections.abc import Mapping

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError

from muster.bus.errors import (
    BusError,
    MessageTooLargeError,
    NoStreamError,
    NotConnectedError,
    PublishRefusedError,
    QueueFullError,
    UnknownOutcomeError,
    WrongLastSequenceError,
)
from muster.model.units import Sequence

EXPECTED_LAST_SEQUENCE = "Nats-Expected-Last-Sequence"
EXPECTED_LAST_SUBJECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
MESSAGE_ID = "Nats-Msg-Id"
TIME_TO_LIVE = "Nats-TTL"
EXPECTED_STREAM = "Nats-Expected-Stream"
STATUS = "Status"

WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
STORE_FAILED = 10077
MAXIMUM_REACHED = re.compile("maximum (messages|bytes|messages per subject)")
ACTUAL = re.compile(r"wrong last sequence: (\d+)")


class Flight:
    """One message that was sent and not answered yet."""

    __slots__ = ("answer", "expected", "subject", "timer")

    def __init__(self, subject: str, expected: int, answer: "asyncio.Future[Sequence]") -> None:
        """``expected`` is -1 when any sequence will do."""
        self.subject = subject
        self.expected = expected
        self.answer = answer
        self.timer: asyncio.TimerHandle | None = None

    def settle(self, outcome: Sequence | BusError) -> None:
        """Give the answer, once."""
        if self.timer is not None:
            self.timer.cancel()
        if self.answer.done():
            return
        if isinstance(outcome, BusError):
            self.answer.set_exception(outcome)
            # Whoever stops waiting after the first refusal of a pipeline must not be warned about the others.
            self.answer.exception()
        else:
            self.answer.set_result(outcome)


class Publisher:
    """The publishing half of a connection."""

    def __init__(self, client: Client) -> None:
        """Call `start` before the first `send`."""
        self._client = client
        self._prefix = ""
        self._count = 0
        self._flights: dict[str, Flight] = {}

    async def start(self) -> None:
        """Subscribe to the inbox on which answers come."""
        self._prefix = f"{self._client.new_inbox()}."
        await self._client.subscribe(f"{self._prefix}*", cb=self._answered, pending_msgs_limit=0, pending_bytes_limit=0)

    async def send(
        self, subject: str, body: bytes, headers: Mapping[str, str], *, seconds: float
    ) -> "asyncio.Future[Sequence]":
        """Hand one message to the connection; the future tells the sequence it got. Calls of one task keep their order.

        Raises:
            NotConnectedError: nothing was sent.
            MessageTooLargeError: nothing was sent.
        """
        if not self._client.is_connected:
            raise NotConnectedError(f"{subject}: not connected to NATS; nothing was sent")
        loop = asyncio.get_running_loop()
        self._count += 1
        token = f"{self._count:x}"
        flight = Flight(subject, int(headers.get(EXPECTED_LAST_SEQUENCE, -1)), loop.create_future())
        self._flights[token] = flight
        flight.timer = loop.call_later(seconds, self._expire, token, seconds)
        try:
            await self._client.publish(subject, body, reply=self._prefix + token, headers=dict(headers) or None)
        except MaxPayloadError as error:
            self._drop(token)
            limit = self._client.max_payload
            raise MessageTooLargeError(f"{subject}: {len(body)} bytes; the server takes {limit} at most") from error
        except NatsError as error:
            self._drop(token)
            raise NotConnectedError(f"{subject}: nothing was sent: {error}") from error
        return flight.answer

    def lose_all(self) -> None:
        """The connection is gone: nobody will answer what is in flight."""
        flights, self._flights = self._flights, {}
        for flight in flights.values():
            flight.settle(UnknownOutcomeError(f"{flight.subject}: the connection was lost before the answer came"))

    def _drop(self, token: str) -> None:
        flight = self._flights.pop(token, None)
        if flight is not None and flight.timer is not None:
            flight.timer.cancel()

    def _expire(self, token: str, seconds: float) -> None:
        flight = self._flights.pop(token, None)
        if flight is not None:
            flight.settle(UnknownOutcomeError(f"{flight.subject}: no answer within {seconds:g} s"))

    async def _answered(self, message: Msg) -> None:
        flight = self._flights.pop(message.subject[len(self._prefix) :], None)
        if flight is not None:
            flight.settle(read_answer(flight, message.data, message.headers))


def read_answer(flight: Flight, body: bytes, headers: Mapping[str, str] | None) -> Sequence | BusError:
    """What the server's answer means for this message."""
    if headers and headers.get(STATUS) == "503":
        return NoStreamError(f"{flight.subject}: no stream stores this subject; nothing was stored")
    answer = json.loads(body)
    error = answer.get("error")
    if error is None:
        return Sequence(int(answer["seq"]))
    code, text = error.get("err_code"), str(error.get("description", ""))
    if code in WRONG_LAST_SEQUENCE:
        actual = ACTUAL.search(text)
        return WrongLastSequenceError(flight.subject, flight.expected, int(actual[1]) if actual else None)
    if code == STORE_FAILED and MAXIMUM_REACHED.search(text):
        return QueueFullError(
            f"{flight.subject}: not stored, {text}: too many messages wait there. Send it again when some were handled"
        )
    return PublishRefusedError(f"{flight.subject}: not stored: {text} (code {code})")
