"""Dead letters: what could not be handled, as it came, with the reason; a person looks at them and retries or drops them.

A letter is known by its sequence in the stream DLQ. `retry` publishes the message again where it came from, then removes the letter:
a crash in between makes it come twice, which every consumer bears (the guarantee is names, uids and ledgers).
"""

import time
from collections.abc import Mapping

import msgspec
import nats.errors
import nats.js.errors

from muster.bus.client import Bus
from muster.bus.envelope import decode
from muster.bus.errors import BusError, NotConnectedError, UndecodableError
from muster.bus.messages import DeadLetter
from muster.bus.publishing import MESSAGE_ID
from muster.bus.streams import StreamName, stream_info
from muster.bus.subjects import dlq_subject
from muster.model.units import Sequence

KEPT_OUT = ("nats-", "status", "description")
"""Headers of the server: they would be wrong on a message that is published again."""


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter and its number."""

    sequence: Sequence
    letter: DeadLetter


class DeadLetters:
    """The stream DLQ; see the module."""

    def __init__(self, bus: Bus) -> None:
        """The stream must exist (`ensure_streams`)."""
        self.bus = bus

    async def put(
        self,
        *,
        origin_subject: str,
        payload: bytes,
        headers: Mapping[str, str] | None,
        reason: str,
        error: str,
        deliveries: int = 0,
    ) -> Sequence:
        """File a message that could not be handled.

        Raises:
            BusError: as `Bus.publish`; then the message must not be acknowledged.
        """
        letter = DeadLetter(
            origin_subject=origin_subject,
            headers=own_headers(headers),
            payload=payload,
            reason=reason,
            error=error,
            service=self.bus.name,
            deliveries=deliveries,
            at=time.time(),
        )
        return await self.bus.publish(dlq_subject(origin_subject), letter, about=origin_subject)

    async def list(self, *, limit: int = 100, subject: str | None = None) -> tuple[Letter, ...]:
        """The oldest letters first, at most ``limit``; ``subject`` narrows it to one `dlq_subject` (wildcards allowed).

        Raises:
            NotConnectedError: the server did not answer.
        """
        letters: list[Letter] = []
        sequence = Sequence(0)
        while len(letters) < limit:
            found = await self._next(Sequence(sequence + 1), subject)
            if found is None:
                break
            letters.append(found)
            sequence = found.sequence
        return tuple(letters)

    async def count(self) -> int:
        """How many letters there are."""
        info = await stream_info(self.bus, StreamName.DLQ)
        return 0 if info is None else info.state.messages

    async def show(self, sequence: Sequence) -> Letter:
        """One letter.

        Raises:
            BusError: there is none of this number.
        """
        try:
            found = await self.bus.jetstream.get_msg(StreamName.DLQ, seq=sequence)
        except nats.js.errors.NotFoundError as error:
            raise BusError(f"there is no dead letter {sequence}; `muster dlq list` tells which there are") from error
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(f"dead letter {sequence} could not be read: {error or 'timeout'}") from error
        return Letter(sequence=sequence, letter=_read(found.data or b"", found.headers, str(found.subject)))

    async def retry(self, sequence: Sequence) -> Sequence:
        """Publish the message again where it came from and remove the letter; the result is its new sequence there.

        Raises:
            BusError: there is no such letter, or it could not be published (then it stays).
        """
        letter = (await self.show(sequence)).letter
        published = await self.bus.publish(letter.origin_subject, letter.payload, headers=letter.headers)
        await self.drop(sequence)
        return published

    async def drop(self, sequence: Sequence) -> None:
        """Remove a letter.

        Raises:
            BusError: there is none of this number.
        """
        try:
            await self.bus.jetstream.delete_msg(StreamName.DLQ, sequence)
        except nats.js.errors.APIError as error:
            raise BusError(f"there is no dead letter {sequence}; `muster dlq list` tells which there are") from error
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(f"dead letter {sequence} could not be removed: {error or 'timeout'}") from error

    async def _next(self, start: Sequence, subject: str | None) -> Letter | None:
        try:
            found = await self.bus.jetstream.get_msg(
                StreamName.DLQ, seq=start, subject=subject or "muster.dlq.>", next=True
            )
        except nats.js.errors.NotFoundError:
            return None
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(f"dead letters could not be read: {error or 'timeout'}") from error
        letter = _read(found.data or b"", found.headers, str(found.subject))
        return Letter(sequence=Sequence(int(found.seq or 0)), letter=letter)


def own_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    """The sender's headers: those of the server, and the id by which the server would drop a second copy, are left out."""
    return {
        name: value
        for name, value in (headers or {}).items()
        if name != MESSAGE_ID and not name.lower().startswith(KEPT_OUT)
    }


def _read(body: bytes, headers: Mapping[str, str] | None, subject: str) -> DeadLetter:
    """The letter; what somebody else put into the stream is shown as it is."""
    try:
        return decode(DeadLetter, body, headers)
    except UndecodableError as error:
        return DeadLetter(
            origin_subject=subject, payload=body, reason="undecodable", error=str(error), service="?", at=0.0
        )
