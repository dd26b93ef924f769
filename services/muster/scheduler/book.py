"""The leader's copy of the LEDGER: folded in order, appended to with the sequence of the view that decided.

    reader ──► apply(sequence, commit) ──► view
    leader ──► append(entries, expected = view.sequence) ──► ack: folded at once; moved or unknown: wait for the reader

An append whose outcome is unknown is settled by reading: either our commit stands in the stream or another one does.
"""

import asyncio
from typing import Protocol

import msgspec

from muster.bus.errors import (
    LedgerMovedError,
    NoStreamError,
    NotConnectedError,
    StreamConflictError,
    UnknownOutcomeError,
)
from muster.decide.commitments import LedgerView, fold, forget_lingering
from muster.model.ledger import Commit, Entry, Leader
from muster.model.units import Sequence

RETRY_SECONDS = 0.2


class LedgerStream(Protocol):
    """The LEDGER as it is appended to; muster.bus.ledger.Ledger is one."""

    async def append(self, commit: Commit, *, expected_last_sequence: Sequence) -> Sequence:
        """Append one commit with the whole stream's expected last sequence."""
        ...

    async def find_outcome(self, *, expected_last_sequence: Sequence) -> Sequence | None:
        """After an unknown outcome: the sequence of the last append, None when it was not stored."""
        ...

    async def last_sequence(self) -> Sequence:
        """The sequence of the last message of the stream, read from the server."""
        ...


class Deposed(Exception):  # noqa: N818  (an event, not an error)
    """A newer leader entry stands in the LEDGER, or the LEDGER was lost: this leader must not act any more."""


class Book:
    """One process's view of the LEDGER."""

    def __init__(self, *, identity: str, stream: LedgerStream) -> None:
        self.identity = identity
        self.view = LedgerView()
        self.deposed = asyncio.Event()
        self._leader = Sequence(0)
        self._stream = stream
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()

    @property
    def token(self) -> Sequence:
        """The sequence of our own leader entry; 0 while we do not lead."""
        return self._leader

    async def reset(self) -> None:
        """The stream was re-created: start from nothing, and lead no more."""
        self.view = LedgerView()
        if self._leader:
            self.deposed.set()
        async with self._changed:
            self._changed.notify_all()

    async def apply(self, sequence: Sequence, commit: Commit) -> None:
        """Fold one commit in; called by the reader, in stream order."""
        self._fold(sequence, commit)
        async with self._changed:
            self._changed.notify_all()

    def _fold(self, sequence: Sequence, commit: Commit) -> None:
        self.view = fold(self.view, sequence, commit)
        if self._leader and self.view.leader > self._leader:
            self.deposed.set()

    async def passed(self, sequence: Sequence) -> None:
        """Everything up to here was read, or does not exist any more (trimmed entries leave gaps)."""
        if sequence > self.view.sequence:
            self.view = msgspec.structs.replace(self.view, sequence=sequence)
            async with self._changed:
                self._changed.notify_all()

    def saw_pods(self, freshness: str) -> None:
        """The pod view has reached this resourceVersion: lingering holds that waited for it go."""
        self.view = forget_lingering(self.view, freshness)

    async def lose(self) -> None:
        """The LEDGER is gone: whoever leads must stop, and take over anew when there is one again."""
        self.deposed.set()
        async with self._changed:
            self._changed.notify_all()

    async def caught_up(self) -> None:
        """Return when everything that stands in the stream now is folded in.

        Raises:
            Deposed: the stream is gone.
        """
        last = await self._last()
        async with self._changed:
            await self._changed.wait_for(lambda: self.view.sequence >= last or self.deposed.is_set())
        if self.deposed.is_set():
            raise Deposed

    async def _last(self) -> Sequence:
        while True:
            try:
                return await self._stream.last_sequence()
            except NotConnectedError:
                await asyncio.sleep(RETRY_SECONDS)
            except StreamConflictError as error:
                await self.lose()
                raise Deposed from error

    async def lead(self, *, transitions: int, at: float) -> Sequence:
        """Append our leader entry (rule A) and return its sequence, the token of this leadership."""
        self._leader = Sequence(0)
        self.deposed.clear()
        while True:
            await self.caught_up()
            entry = Leader(identity=self.identity, lease_transitions=transitions)
            commit = Commit(epoch=Sequence(0), identity=self.identity, entries=(entry,), at=at)
            sequence = await self._append_once(commit, self.view.sequence)
            if sequence is not None:
                self._leader = sequence
                return sequence

    def resign(self) -> None:
        """We do not lead any more, by our own will or not."""
        self._leader = Sequence(0)

    async def append(self, entries: tuple[Entry, ...], *, expected: Sequence, at: float) -> Sequence | None:
        """Commit entries that were decided on the view of `expected`.

        Returns:
            The sequence, or None when the view has moved on: decide again.

        Raises:
            Deposed: a newer leader has taken over.
        """
        if self.deposed.is_set() or not self._leader:
            raise Deposed
        commit = Commit(epoch=self._leader, identity=self.identity, entries=entries, at=at)
        sequence = await self._append_once(commit, expected)
        if self.deposed.is_set():
            raise Deposed
        return sequence

    async def _append_once(self, commit: Commit, expected: Sequence) -> Sequence | None:
        async with self._writing:
            if expected != self.view.sequence:
                return None
            try:
                sequence: Sequence | None = await self._stream.append(commit, expected_last_sequence=expected)
            except NotConnectedError:
                await asyncio.sleep(RETRY_SECONDS)
                return None
            except (LedgerMovedError, NoStreamError):
                await self.caught_up()
                return None
            except UnknownOutcomeError:
                sequence = await self._settle(expected)
            if sequence is not None:
                self._fold(sequence, commit)
            return sequence

    async def _settle(self, expected: Sequence) -> Sequence | None:
        """After an unknown result: read the LEDGER before anything else is decided."""
        while True:
            try:
                return await self._stream.find_outcome(expected_last_sequence=expected)
            except LedgerMovedError:
                await self.caught_up()
                return None
            except NotConnectedError:
                await asyncio.sleep(RETRY_SECONDS)
            except StreamConflictError as error:
                await self.lose()
                raise Deposed from error
