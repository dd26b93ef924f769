"""The streams, declared: what is kept, for how long, and what happens at a limit.

`ensure_streams` creates what is missing, changes what may be changed, and refuses to run with what it can do neither to. STATE and
LEDGER of a store that was emptied start above every old sequence: first sequence = incarnation × 2^40 (commit protocol, rule H).

    missing = await missing_streams(bus)        # STATE or LEDGER among them: raise the incarnation on the Lease first
    await ensure_streams(bus, incarnation=...)
"""

import asyncio
from collections.abc import Collection
from enum import StrEnum
from typing import Any

import msgspec
import nats.errors
import nats.js.errors
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo, StreamState

from muster.bus import subjects
from muster.bus.client import Bus
from muster.bus.errors import NotConnectedError, StreamConflictError
from muster.model.units import Sequence, first_sequence, incarnation_of

DAY = 86_400.0
MIB = 1024 * 1024
SUBMISSIONS_BUCKET = "SUBMISSIONS"
ALREADY_EXISTS = frozenset({10058, 10065})
"""A stream of this name with other settings, or of another name with these subjects."""
TRIES = 20
RETRY_SECONDS = 0.25


class StreamName(StrEnum):
    """Names of the streams. From the second major version on they carry it (``JOBS_V2``)."""

    JOBS = "JOBS"
    PROGRESS = "PROGRESS"
    STATE = "STATE"
    LEDGER = "LEDGER"
    DECISIONS = "DECISIONS"
    USAGE = "USAGE"
    STATUS = "STATUS"
    DLQ = "DLQ"
    SUBMISSIONS = f"KV_{SUBMISSIONS_BUCKET}"


class StreamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One stream. Ages in seconds, 0 for ever; sizes in bytes, -1 without limit."""

    name: StreamName
    description: str
    subjects: tuple[str, ...]
    max_bytes: int
    work_queue: bool = False
    max_age: float = 0.0
    max_messages_per_subject: int = -1
    refuse_when_full: bool = False
    """At the limit new messages are refused; otherwise the oldest go."""
    refuse_per_subject: bool = False
    time_to_live: bool = False
    """Single messages may have a time to live (tombstones)."""
    duplicate_window: float = 120.0
    direct: bool = True
    incarnated: bool = False
    """A re-created one starts above every old sequence."""
    key_value: bool = False

    def config(self, *, incarnation: int, replicas: int) -> StreamConfig:
        """What nats-py creates it from. Subject delete markers stay off: the server must not write into an order."""
        return StreamConfig(
            name=self.name,
            description=self.description,
            subjects=list(self.subjects),
            retention=RetentionPolicy.WORK_QUEUE if self.work_queue else RetentionPolicy.LIMITS,
            max_consumers=-1,
            max_msgs=-1,
            max_bytes=self.max_bytes,
            discard=DiscardPolicy.NEW if self.refuse_when_full else DiscardPolicy.OLD,
            discard_new_per_subject=self.refuse_per_subject,
            max_age=self.max_age,
            max_msgs_per_subject=self.max_messages_per_subject,
            max_msg_size=-1,
            storage=StorageType.FILE,
            num_replicas=replicas,
            duplicate_window=self.duplicate_window,
            allow_direct=self.direct,
            allow_msg_ttl=self.time_to_live,
            allow_rollup_hdrs=self.key_value,
            deny_delete=self.key_value,
            first_seq=first_sequence(incarnation) if self.incarnated and incarnation > 0 else None,
        )


STREAMS: tuple[StreamSpec, ...] = (
    StreamSpec(
        name=StreamName.JOBS,
        description="Submissions and cancellations, one queue a tenant",
        subjects=(subjects.JOBS_SUBMIT_ALL, subjects.JOBS_CANCEL_ALL),
        work_queue=True,
        max_messages_per_subject=10_000,
        refuse_when_full=True,
        refuse_per_subject=True,
        max_bytes=1024 * MIB,
    ),
    StreamSpec(
        name=StreamName.PROGRESS,
        description="Step and last checkpoint of running jobs",
        subjects=(subjects.PROGRESS_ALL,),
        max_messages_per_subject=1,
        max_age=30 * DAY,
        max_bytes=128 * MIB,
    ),
    StreamSpec(
        name=StreamName.STATE,
        description="The cluster as the watcher sees it, one order, one writer",
        subjects=(subjects.STATE_ALL,),
        max_messages_per_subject=1,
        refuse_when_full=True,
        time_to_live=True,
        incarnated=True,
        max_bytes=2048 * MIB,
    ),
    StreamSpec(
        name=StreamName.LEDGER,
        description="Commitments of the scheduler's leader",
        subjects=(subjects.LEDGER_ALL,),
        refuse_when_full=True,
        incarnated=True,
        max_bytes=4096 * MIB,
    ),
    StreamSpec(
        name=StreamName.DECISIONS,
        description="What was decided, for people",
        subjects=(subjects.DECISION_ALL,),
        max_age=30 * DAY,
        max_bytes=1024 * MIB,
    ),
    StreamSpec(
        name=StreamName.USAGE,
        description="GPU-hours by queue",
        subjects=(subjects.USAGE_ALL,),
        max_age=400 * DAY,
        max_bytes=256 * MIB,
    ),
    StreamSpec(
        name=StreamName.STATUS,
        description="Life of every submission",
        subjects=(subjects.STATUS_ALL,),
        max_age=7 * DAY,
        max_bytes=512 * MIB,
    ),
    StreamSpec(
        name=StreamName.DLQ,
        description="What could not be handled, with the reason",
        subjects=(subjects.DLQ_ALL,),
        max_age=30 * DAY,
        max_bytes=256 * MIB,
    ),
    StreamSpec(
        name=StreamName.SUBMISSIONS,
        description="Outcome by submission",
        subjects=(f"$KV.{SUBMISSIONS_BUCKET}.>",),
        max_messages_per_subject=1,
        max_age=14 * DAY,
        refuse_when_full=True,
        key_value=True,
        max_bytes=512 * MIB,
    ),
)

COMPARED = (
    "subjects", "retention", "max_bytes", "discard", "discard_new_per_subject", "max_age", "max_msgs_per_subject",
    "storage", "num_replicas", "duplicate_window", "allow_direct", "allow_msg_ttl", "allow_rollup_hdrs", "deny_delete",
    "subject_delete_marker_ttl", "max_msgs", "max_msg_size",
)  # fmt: skip
UNCHANGEABLE = frozenset({"retention", "storage", "deny_delete"})
"""The server refuses to change these on a stream that exists."""
OPERATORS_CHOICE = frozenset({"max_bytes", "num_replicas"})
"""May be set differently by whoever runs the cluster: left alone, unless asked for."""


class Ensured(msgspec.Struct, frozen=True, kw_only=True):
    """What `ensure_streams` did."""

    created: tuple[StreamName, ...]
    updated: tuple[StreamName, ...]


def spec_of(name: StreamName) -> StreamSpec:
    """The declaration of a stream."""
    return next(spec for spec in STREAMS if spec.name is name)


async def stream_info(bus: Bus, name: str) -> StreamInfo | None:
    """The stream's settings and state, None when there is no such stream.

    Raises:
        NotConnectedError: the server did not answer.
    """
    try:
        return await bus.jetstream.stream_info(name)
    except nats.js.errors.NotFoundError:
        return None
    except (nats.errors.Error, TimeoutError) as error:
        raise NotConnectedError(f"stream {name}: the server did not tell about it: {error or 'timeout'}") from error


async def missing_streams(bus: Bus, names: Collection[StreamName] = tuple(StreamName)) -> tuple[StreamName, ...]:
    """Those of ``names`` that do not exist. When STATE or LEDGER is among them the store is new or was emptied."""
    return tuple([name for name in names if await stream_info(bus, name) is None])


async def ensure_streams(
    bus: Bus, *, incarnation: int, replicas: int = 1, names: Collection[StreamName] = tuple(StreamName)
) -> Ensured:
    """Make the streams ``names`` exist as declared.

    Raises:
        StreamConflictError: a stream differs in what cannot be changed, or its sequences are above ``incarnation``.
        NotConnectedError: the server does not answer.
    """
    created, updated = [], []
    for spec in STREAMS:
        if spec.name not in names:
            continue
        wanted = spec.config(incarnation=incarnation, replicas=replicas)
        info = await stream_info(bus, spec.name)
        if info is None and await _create(bus, wanted):
            created.append(spec.name)
            continue
        info = info or await stream_info(bus, spec.name)
        if info is None:
            raise StreamConflictError(f"stream {spec.name} appears and vanishes; does somebody else delete it?")
        _check_incarnation(spec, info.state, incarnation)
        if await _update(bus, wanted, info):
            updated.append(spec.name)
    return Ensured(created=tuple(created), updated=tuple(updated))


async def last_sequence(bus: Bus, name: StreamName) -> Sequence:
    """The last sequence the stream gave, first sequence − 1 when it gave none.

    Raises:
        StreamConflictError: there is no such stream.
        NotConnectedError: the server does not answer.
    """
    info = await stream_info(bus, name)
    if info is None:
        raise StreamConflictError(f"there is no stream {name}")
    return Sequence(info.state.last_seq)


def differences(wanted: StreamConfig, found: StreamConfig) -> dict[str, tuple[Any, Any]]:
    """Settings that differ, as (found, wanted); the operator's own choices are not compared."""
    result = {}
    for field in COMPARED:
        if field in OPERATORS_CHOICE:
            continue
        here, there = getattr(wanted, field), getattr(found, field)
        if (here or None) != (there or None):
            result[field] = (there, here)
    return result


async def _create(bus: Bus, wanted: StreamConfig) -> bool:
    """Create it; False when somebody else did meanwhile. A server that has just started may not be ready at once."""
    for attempt in range(TRIES):
        try:
            await bus.jetstream.add_stream(wanted)
        except nats.js.errors.ServiceUnavailableError as error:
            if attempt == TRIES - 1:
                raise StreamConflictError(f"stream {wanted.name} cannot be created: {error.description}") from error
            await asyncio.sleep(RETRY_SECONDS)
        except nats.js.errors.APIError as error:
            if error.err_code in ALREADY_EXISTS and await stream_info(bus, str(wanted.name)) is not None:
                return False
            raise StreamConflictError(f"stream {wanted.name} cannot be created: {error.description}") from error
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(f"stream {wanted.name}: no answer to its creation: {error or 'timeout'}") from error
        else:
            return True
    return False


async def _update(bus: Bus, wanted: StreamConfig, info: StreamInfo) -> bool:
    found = differences(wanted, info.config)
    if not found:
        return False
    stuck = {field: values for field, values in found.items() if field in UNCHANGEABLE}
    if stuck:
        told = "; ".join(f"{field} is {there!r} and must be {here!r}" for field, (there, here) in stuck.items())
        raise StreamConflictError(
            f"stream {wanted.name}: {told}. That cannot be changed on a stream: save what it holds, delete it "
            f"(`muster streams`), and start again"
        )
    kept = {field: getattr(info.config, field) for field in OPERATORS_CHOICE}
    config = wanted.evolve(**kept, first_seq=info.config.first_seq, metadata=info.config.metadata)
    try:
        await bus.jetstream.update_stream(config)
    except nats.js.errors.APIError as error:
        fields = ", ".join(found)
        raise StreamConflictError(f"stream {wanted.name}: {fields} cannot be changed: {error.description}") from error
    except (nats.errors.Error, TimeoutError) as error:
        raise NotConnectedError(f"stream {wanted.name}: no answer to its change: {error or 'timeout'}") from error
    bus.observer.info(
        "a stream was changed",
        stream=wanted.name,
        **{field: f"{there} → {here}" for field, (there, here) in found.items()},
    )
    return True


def _check_incarnation(spec: StreamSpec, state: StreamState, incarnation: int) -> None:
    if not spec.incarnated:
        return
    reached = incarnation_of(Sequence(max(state.first_seq, state.last_seq)))
    if reached > incarnation:
        raise StreamConflictError(
            f"stream {spec.name} is at incarnation {reached}, the Lease says {incarnation}: the Lease was lost or reset. "
            f"Set its annotation to {reached} to go on with this stream"
        )
