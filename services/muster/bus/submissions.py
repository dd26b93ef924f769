"""The ledger of submissions: what became of each, once (key-value bucket SUBMISSIONS, key ``<tenant>.<id>``).

    Submit ─► find: an outcome is there → tell it again, act no more
              create the object (name = hash of tenant and id; AlreadyExists is success) ─► record(accepted) ─► ack
    Cancel ─► find: accepted → delete the object, replace(cancelled);  nothing → record(cancelled): a tombstone for the late Submit

An outcome is created only where none is, and replaced only at the revision that was read. The bucket is an ordinary NATS bucket;
it is not used through nats-py's KeyValue, which misreads expired keys.
"""

import hashlib
from collections.abc import Mapping

import msgspec
import nats.errors
import nats.js.errors

from muster.bus.client import Bus
from muster.bus.envelope import decode, decode_body
from muster.bus.errors import NotConnectedError, UndecodableError, WrongLastSequenceError
from muster.bus.messages import Cancel, FieldError, SubmissionOutcome, Submit
from muster.bus.streams import SUBMISSIONS_BUCKET, StreamName
from muster.bus.subjects import submission_key
from muster.bus.submit_errors import submit_errors

KEY_VALUE_OPERATION = "KV-Operation"


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome and the revision it stands at."""

    outcome: SubmissionOutcome
    revision: int


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """A submission as it came: either ``submit``, or ``errors``; ``id`` is '' when not even that could be read."""

    id: str
    submit: Submit | None = None
    errors: tuple[FieldError, ...] = ()


class _Id(msgspec.Struct, frozen=True):
    id: str = ""


def object_name(tenant: str, submission_id: str) -> str:
    """The name of the object a submission makes when it gives none: the same for every delivery, a legal DNS label."""
    digest = hashlib.sha256(f"{tenant}\0{submission_id}".encode()).hexdigest()[:20]
    return f"m-{digest}"


def parse_submit(body: bytes, headers: Mapping[str, str] | None = None) -> Parsed:
    """Read a submission; whatever is wrong is told by field, never raised."""
    headers = headers or {}
    try:
        submit = decode(Submit, body, headers)
    except UndecodableError as error:
        return Parsed(id=_read_id(body, headers), errors=_errors(error, body, headers))
    return Parsed(id=submit.id, submit=submit)


def parse_cancel(body: bytes, headers: Mapping[str, str] | None = None) -> Cancel:
    """Read a cancellation.

    Raises:
        UndecodableError: it names no submission, or holds an unknown field.
    """
    return decode(Cancel, body, headers)


class Submissions:
    """The bucket; see the module."""

    def __init__(self, bus: Bus) -> None:
        """The bucket must exist (`ensure_streams`)."""
        self.bus = bus

    async def find(self, tenant: str, submission_id: str) -> Recorded | None:
        """What became of a submission, None when nothing is recorded.

        Raises:
            NotConnectedError: the server did not answer.
            UndecodableError: something else stands there.
        """
        try:
            found = await self.bus.jetstream.get_last_msg(StreamName.SUBMISSIONS, self._subject(tenant, submission_id))
        except nats.js.errors.NotFoundError:
            return None
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(f"submission {submission_id!r} could not be read: {error or 'timeout'}") from error
        headers = found.headers or {}
        if KEY_VALUE_OPERATION in headers:
            return None
        return Recorded(outcome=decode(SubmissionOutcome, found.data or b"", headers), revision=int(found.seq or 0))

    async def record(self, outcome: SubmissionOutcome) -> Recorded:
        """Write the outcome unless there is one; the result is the one that counts, whoever wrote it.

        Raises:
            BusError: as `Bus.publish`; after an unknown outcome call it again, with the same result.
        """
        try:
            revision = await self._put(outcome, revision=0)
        except WrongLastSequenceError as error:
            found = await self.find(outcome.tenant, outcome.id)
            if found is not None:
                return found
            # Somebody deleted the key with a marker: write above it.
            if error.actual is None:
                raise
            revision = await self._put(outcome, revision=error.actual)
        return Recorded(outcome=outcome, revision=revision)

    async def replace(self, outcome: SubmissionOutcome, *, revision: int) -> Recorded:
        """Change the outcome that was read at ``revision``.

        Raises:
            WrongLastSequenceError: it was changed since; read it again.
        """
        return Recorded(outcome=outcome, revision=await self._put(outcome, revision=revision))

    async def _put(self, outcome: SubmissionOutcome, *, revision: int) -> int:
        return await self.bus.publish(
            self._subject(outcome.tenant, outcome.id),
            outcome,
            expected_last_subject_sequence=revision,
            about=outcome.id,
        )

    def _subject(self, tenant: str, submission_id: str) -> str:
        return f"$KV.{SUBMISSIONS_BUCKET}.{submission_key(tenant, submission_id)}"


def _read_id(body: bytes, headers: Mapping[str, str]) -> str:
    try:
        return msgspec.json.decode(decode_body(body, headers), type=_Id).id
    except (msgspec.DecodeError, UndecodableError):
        return ""


def _errors(error: UndecodableError, body: bytes, headers: Mapping[str, str]) -> tuple[FieldError, ...]:
    """Field by field where the body is JSON; else what is wrong with the message as a whole."""
    whole = (FieldError(field="message", message=str(error)),)
    if not isinstance(error.__cause__, msgspec.ValidationError):
        return whole
    return submit_errors(msgspec.json.decode(decode_body(body, headers))) or whole
