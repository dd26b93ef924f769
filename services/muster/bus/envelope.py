"""CloudEvents 1.0 headers (binary mode) around msgspec JSON.

    ce-specversion 1.0   ce-id <process>-<n>   ce-source /muster/<service>   ce-type dev.muster.<name>.v<major>
    ce-time RFC 3339     ce-subject <key>      traceparent                   content-encoding deflate (large bodies)

A reader accepts the major version it knows and the one before. A message without ``ce-type`` (a person with a plain NATS client)
is judged by its subject alone.
"""

import zlib
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

from muster.bus import messages, operating, proposals, queries
from muster.bus.errors import UndecodableError
from muster.model.ledger import Commit

T = TypeVar("T")

TYPE_PREFIX = "dev.muster."
COMPRESS_ABOVE = 128 * 1024
LARGEST_BODY = 64 * 1024 * 1024
"""Bytes after decompression; a body that would be larger is refused."""

NAMES: dict[type[msgspec.Struct], str] = {
    messages.Submit: "submit",
    messages.Cancel: "cancel",
    messages.Progress: "progress",
    messages.SubmissionOutcome: "submission-outcome",
    messages.StatusEvent: "status-event",
    messages.Decision: "decision",
    messages.DeadLetter: "dead-letter",
    messages.StateMessage: "state",
    messages.UsageRecord: "usage",
    Commit: "ledger-commit",
    queries.ExplainRequest: "explain-request",
    queries.ExplainReply: "explain-reply",
    queries.GangsRequest: "gangs-request",
    queries.GangsReply: "gangs-reply",
    queries.NodesRequest: "nodes-request",
    queries.NodesReply: "nodes-reply",
    queries.QueuesRequest: "queues-request",
    queries.QueuesReply: "queues-reply",
    queries.SubmissionRequest: "submission-request",
    queries.SubmissionReply: "submission-reply",
    operating.PauseRequest: "pause-request",
    operating.ResumeRequest: "resume-request",
    operating.PausesRequest: "pauses-request",
    operating.PausesReply: "pauses-reply",
    operating.PolicyRequest: "policy-request",
    operating.PolicyReply: "policy-reply",
    proposals.PlanProposal: "plan-proposal",
    proposals.WithdrawProposal: "withdraw-proposal",
    proposals.CordonProposal: "cordon-proposal",
    proposals.UncordonProposal: "uncordon-proposal",
    proposals.RememberProposal: "remember-proposal",
    proposals.ProposalReply: "proposal-reply",
}
"""Every public message and its name; the schemas are generated from this table."""
MAJOR = 1


def type_of(kind: type[msgspec.Struct]) -> str:
    """The ``ce-type`` of a message struct."""
    return f"{TYPE_PREFIX}{NAMES[kind]}.v{MAJOR}"


@cache
def _cached_decoder(kind: Hashable) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cast("Any", kind))


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type; made once."""
    return _cached_decoder(cast("Hashable", kind))


class Envelope:
    """Makes the headers of one sender's messages; ids are ``<nonce>-<n>``, unique with a unique nonce."""

    def __init__(self, *, source: str, nonce: str) -> None:
        """``source`` is the service's name."""
        self.source = f"/muster/{source}"
        self.nonce = nonce
        self.count = 0

    def headers(
        self, message: msgspec.Struct, *, now: float, subject: str = "", message_id: str = "", traceparent: str = ""
    ) -> dict[str, str]:
        """The headers of a message; ``now`` in Unix seconds, ``subject`` the key it is about."""
        self.count += 1
        headers = {
            "ce-specversion": "1.0",
            "ce-id": message_id or f"{self.nonce}-{self.count}",
            "ce-source": self.source,
            "ce-type": type_of(type(message)),
            "ce-time": datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds"),
            "content-type": "application/json",
        }
        if subject:
            headers["ce-subject"] = subject.encode("ascii", "backslashreplace").decode()
        if traceparent:
            headers["traceparent"] = traceparent
        return headers


def encode_body(message: msgspec.Struct) -> tuple[bytes, dict[str, str]]:
    """The body, and the header that tells how it was made smaller."""
    body = msgspec.json.encode(message)
    if len(body) <= COMPRESS_ABOVE:
        return body, {}
    return zlib.compress(body, 1), {"content-encoding": "deflate"}


def decode_body(body: bytes, headers: Mapping[str, str]) -> bytes:
    """The body as it was before `encode_body` made it smaller.

    Raises:
        UndecodableError: an unknown encoding, damaged, or larger than `LARGEST_BODY`.
    """
    encoding = headers.get("content-encoding", "")
    if not encoding:
        return body
    if encoding != "deflate":
        raise UndecodableError(f"content-encoding is {encoding!r}; only 'deflate' is understood")
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, LARGEST_BODY)
    except zlib.error as error:
        raise UndecodableError(f"the body is not what content-encoding says: {error}") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise UndecodableError(f"the body is cut, or larger than {LARGEST_BODY} bytes")
    return plain


def check_type(kind: type[msgspec.Struct], headers: Mapping[str, str]) -> None:
    """Compare ``ce-type``, when there is one, with what is expected here.

    Raises:
        UndecodableError: another message, or a major version that is neither ours nor the one before.
    """
    told = headers.get("ce-type")
    if told is None:
        return
    name, _, version = told.rpartition(".v")
    if name != f"{TYPE_PREFIX}{NAMES[kind]}":
        raise UndecodableError(f"ce-type is {told!r}; here only {type_of(kind)!r} is understood")
    if not version.isdecimal() or not MAJOR - 1 <= int(version) <= MAJOR:
        raise UndecodableError(f"ce-type is {told!r}; major versions {MAJOR - 1} and {MAJOR} are understood")


def decode(kind: type[T], body: bytes, headers: Mapping[str, str] | None = None) -> T:
    """A message from its body and headers.

    Raises:
        UndecodableError: the type, the encoding or a field is wrong; the text names it.
    """
    headers = headers or {}
    if kind in NAMES:
        check_type(kind, headers)  # type: ignore[arg-type]  # a key of NAMES
    try:
        decoded: T = decoder(kind).decode(decode_body(body, headers))
    except msgspec.DecodeError as error:  # ValidationError included
        raise UndecodableError(str(error)) from error
    return decoded
