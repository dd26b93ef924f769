"""STATUS: the life of each submission, numbered 1, 2, 3 … without gaps (one owner: the controller).

The number comes from the last event STATUS holds, and the append carries that event's sequence as the expected one of its subject:
two writers, or a repeated append of unknown outcome, never give one number twice.
"""

import msgspec
import nats.errors
import nats.js.errors

from muster.bus.client import Bus
from muster.bus.envelope import decode
from muster.bus.errors import NotConnectedError, WrongLastSequenceError
from muster.bus.messages import FINAL_STATES, StatusEvent
from muster.bus.streams import StreamName
from muster.bus.subjects import status_subject

TRIES = 5


class Statuses:
    """The stream STATUS; see the module."""

    def __init__(self, bus: Bus) -> None:
        """The stream must exist (`ensure_streams`)."""
        self.bus = bus

    async def last(self, tenant: str, submission_id: str) -> StatusEvent | None:
        """The last event of a submission, None before the first (or when STATUS no longer holds it).

        Raises:
            NotConnectedError: the server did not answer.
        """
        found = await self._last(tenant, submission_id)
        return None if found is None else found[0]

    async def append(self, event: StatusEvent) -> StatusEvent | None:
        """Append the event with the next number (its own does not matter); the result is what was stored.

        None: nothing was stored, because the last event says the same, or is final.

        Raises:
            BusError: as `Bus.publish`. After an unknown outcome call it again: what was stored is recognised.
        """
        for attempt in range(TRIES):
            last = await self._last(event.tenant, event.id)
            sequence = 0
            number = 1
            if last is not None:
                known, sequence = last
                if known.state in FINAL_STATES or says_the_same(known, event):
                    return None
                number = known.number + 1
            numbered = msgspec.structs.replace(event, number=number)
            try:
                await self.bus.publish(
                    status_subject(event.tenant, event.id),
                    numbered,
                    expected_last_subject_sequence=sequence,
                    about=event.job,
                )
            except WrongLastSequenceError:
                if attempt == TRIES - 1:
                    raise
            else:
                return numbered
        return None

    async def _last(self, tenant: str, submission_id: str) -> tuple[StatusEvent, int] | None:
        try:
            found = await self.bus.jetstream.get_last_msg(StreamName.STATUS, status_subject(tenant, submission_id))
        except nats.js.errors.NotFoundError:
            return None
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(
                f"the status of {submission_id!r} could not be read: {error or 'timeout'}"
            ) from error
        return decode(StatusEvent, found.data or b"", found.headers), int(found.seq or 0)


def says_the_same(known: StatusEvent, event: StatusEvent) -> bool:
    """Nothing a person would want to be told again: state, reason, message and position are equal."""
    return (known.state, known.reason, known.message, known.position, known.job) == (
        event.state,
        event.reason,
        event.message,
        event.position,
        event.job,
    )
