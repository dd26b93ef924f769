"""LEDGER: read in order, appended to only at the sequence a decision was made on (commit protocol, rule A).

    ledger = Ledger(bus)
    async for batch in ledger.batches(): apply (sequence, commit) …         # batch.reset: a new incarnation
    sequence = await ledger.append(commit, expected_last_sequence=view.sequence)

    LedgerMovedError     somebody else appended: read, decide again
    NotConnectedError    nothing was sent
    UnknownOutcomeError  `find_outcome` tells, from LEDGER itself, whether it is there

No de-duplication id is used: the expected sequence alone decides.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator

import msgspec
import nats.errors
import nats.js.errors

from muster.bus import chunks, publishing
from muster.bus.client import Bus
from muster.bus.envelope import decode, encode_body
from muster.bus.errors import (
    LedgerMovedError,
    NotConnectedError,
    UndecodableError,
    UnknownOutcomeError,
    WrongLastSequenceError,
)
from muster.bus.ordered import Delivery, OrderedReader
from muster.bus.streams import StreamName, last_sequence
from muster.bus.subjects import ledger_subject
from muster.model.ledger import (
    Bind,
    Close,
    Commit,
    Cordon,
    Leader,
    Memory,
    NodeClose,
    Plan,
    Removable,
    Uncordon,
    Undoing,
    Withdrawing,
)
from muster.model.units import Sequence

COMMIT_ID = "ce-id"


class LedgerBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Commits in order. After a ``reset`` (a new incarnation) everything applied before is void."""

    commits: tuple[tuple[Sequence, Commit], ...] = ()
    reset: str = ""


def commit_subject(commit: Commit) -> str:
    """Where a commit is filed: by verb and key of its entry, or under ``batch`` and the epoch when it has several."""
    if len(commit.entries) != 1:
        return ledger_subject("batch", str(commit.epoch))
    entry = commit.entries[0]
    match entry:
        case Leader():
            return ledger_subject("leader", entry.identity)
        case Bind() | Undoing() | Plan() | Withdrawing() | Close():
            verb = type(entry).__name__.lower()
            return ledger_subject(verb, entry.gang)
        case Cordon() | Removable() | Uncordon() | NodeClose():
            verb = type(entry).__name__.lower()
            return ledger_subject(verb, entry.node)
        case Memory():
            return ledger_subject("memory", entry.core)


class Ledger:
    """Reader and appender of LEDGER; see the module."""

    def __init__(self, bus: Bus) -> None:
        """Reading starts with `batches`."""
        self.bus = bus
        self._ordered = OrderedReader(bus, StreamName.LEDGER)
        self._assembler: chunks.Assembler[Delivery] = chunks.Assembler()
        self._appending = False
        self._nonce = secrets.token_hex(8)
        self._last_id = ""
        self._count = 0

    @property
    def sequence(self) -> Sequence:
        """Everything up to here is applied, once the loop over `batches` asks for the next batch."""
        return self._ordered.sequence

    @property
    def ready(self) -> bool:
        """Everything LEDGER held at (re-)subscription is read."""
        return self._ordered.caught_up

    async def batches(self) -> AsyncIterator[LedgerBatch]:
        """Batches for ever; an empty one tells that `ready` may have changed.

        Raises:
            UndecodableError: a commit that this version cannot read. Nobody may decide past it: stop.
        """
        async for batch in self._ordered.batches():
            if batch.reset:
                self._assembler = chunks.Assembler()
                self.bus.observer.warning("LEDGER is read anew", reason=batch.reset)
            commits = []
            for delivery in batch.deliveries:
                commit = self._read(delivery)
                if commit is not None:
                    commits.append((delivery.sequence, commit))
            yield LedgerBatch(commits=tuple(commits), reset=batch.reset)

    async def append(self, commit: Commit, *, expected_last_sequence: Sequence) -> Sequence:
        """Append one commit; the result is its sequence (its entries' token).

        Raises:
            LedgerMovedError: LEDGER is elsewhere; nothing was appended.
            NotConnectedError: nothing was sent.
            UnknownOutcomeError: see `find_outcome`.
            RuntimeError: another append is in flight.
        """
        if self._appending:
            raise RuntimeError("one append at a time: await the one in flight first")
        self._appending = True
        try:
            return await self._append(commit, expected_last_sequence)
        finally:
            self._appending = False

    async def find_outcome(self, *, expected_last_sequence: Sequence) -> Sequence | None:
        """After `UnknownOutcomeError`: the sequence of the last append of this ledger, None when it was not stored.

        None is told after the server has read all that this connection sent. Should it still come later, then the next
        append at the same sequence is refused: at most one of the two is ever there.

        Raises:
            LedgerMovedError: somebody else's message stands there; ours was refused.
            NotConnectedError: not known yet; ask again.
        """
        await self.bus.flush()
        last = await last_sequence(self.bus, StreamName.LEDGER)
        if last == expected_last_sequence:
            return None
        for sequence in range(expected_last_sequence + 1, last + 1):
            try:
                found = await self.bus.jetstream.get_msg(StreamName.LEDGER, seq=sequence)
            except nats.js.errors.NotFoundError:
                break
            except (nats.errors.Error, TimeoutError) as error:
                raise NotConnectedError(f"LEDGER {sequence} could not be read: {error or 'timeout'}") from error
            headers = found.headers or {}
            if chunks.CHUNK in headers and headers[chunks.CHUNK].startswith(f"{self._last_id} "):
                continue
            if headers.get(COMMIT_ID) == self._last_id:
                return Sequence(sequence)
            break
        raise LedgerMovedError(f"LEDGER went on from {expected_last_sequence} to {last} without this commit")

    async def trim(self, *, before: Sequence) -> None:
        """Remove everything before this sequence. Only the leader may, and only what has no open entry in it.

        Raises:
            NotConnectedError: the server did not answer.
        """
        try:
            await self.bus.jetstream.purge_stream(StreamName.LEDGER, seq=before)
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(f"LEDGER could not be trimmed: {error or 'timeout'}") from error

    async def _append(self, commit: Commit, expected: Sequence) -> Sequence:
        self._count += 1
        self._last_id = f"{self._nonce}-{self._count}"
        body, encoding = encode_body(commit)
        own = self.bus.envelope.headers(commit, now=time.time(), message_id=self._last_id)
        pieces = chunks.split(self._last_id, body, {**own, **encoding}, max_payload=self.bus.max_payload)
        subject = commit_subject(commit)
        flights = []
        sent_something = False
        try:
            for index, piece in enumerate(pieces):
                headers = {**piece.headers, publishing.EXPECTED_STREAM: StreamName.LEDGER}
                flights.append(
                    await self.bus.send(subject, piece.body, headers=headers, expected_last_sequence=expected + index)
                )
                sent_something = True
        except NotConnectedError as error:
            if not sent_something:
                raise
            raise UnknownOutcomeError(f"{subject}: the connection was lost between chunks") from error
        outcomes = await asyncio.gather(*flights, return_exceptions=True)
        # A refused chunk decides, whatever came after it: readers drop an incomplete series.
        for outcome in outcomes:
            if isinstance(outcome, WrongLastSequenceError):
                raise LedgerMovedError(str(outcome)) from outcome
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return flights[-1].result()

    def _read(self, delivery: Delivery) -> Commit | None:
        try:
            whole = self._assembler.add(delivery.body, delivery.headers, delivery)
        except UndecodableError as error:
            self._assembler.take_dropped()
            # A series that its writer could not finish; it was never committed.
            self.bus.observer.warning("a LEDGER series is dropped", sequence=delivery.sequence, error=str(error))
            return None
        self._assembler.take_dropped()
        return None if whole is None else decode(Commit, whole.body, whole.headers)
