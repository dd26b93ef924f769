"""The leader's copy of the LEDGER: folded in order, appended to with the sequence of the view that decided.

    reader ──► apply(sequence, commit) ──► view
    leader ──► append(entries, expected = view.sequence) ──► ack: folded at once; moved or unknown: wait for the reader

An append whose outcome is unknown is settled by reading: either our commit stands in the stream or another one does.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

import msgspec

from muster.bus.errors import (
    LedgerMovedError,
    NoStreamError,
    NotConnectedError,
    PublishRefusedError,
    QueueFullError,
    StreamConflictError,
    UnknownOutcomeError,
)
from muster.decide.commitments import LedgerView, forget_lingering
from muster.decide.folding import fold, fold_all
from muster.model.ledger import Commit, Entry, Leader, Memory
from muster.model.units import Sequence

RETRY_SECONDS = 0.2
FULL_SECONDS = 1.0
"""Pause after an append that the server would not store (its disk or the stream is full)."""
MARK_SECONDS = 3600.0
"""How far apart the moments are noted by which the age of a sequence is known."""


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

    async def trim(self, *, before: Sequence) -> None:
        """Remove everything before this sequence."""


class Deposed(Exception):  # noqa: N818  (an event, not an error)
    """A newer leader entry stands in the LEDGER, or the LEDGER was lost: this leader must not act any more."""


class Book:
    """One process's view of the LEDGER."""

    def __init__(self, *, identity: str, stream: LedgerStream, report: Callable[[str], None] = lambda _: None) -> None:
        """`report` hears, as a sentence for the log, of every append that the server would not store."""
        self.identity = identity
        self._report = report
        self.view = LedgerView()
        self.deposed = asyncio.Event()
        self._leader = Sequence(0)
        self._stream = stream
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()
        self._pods_seen = ""
        self._previous = Sequence(0)
        self._starts: dict[Sequence, Sequence] = {}
        self._marks: deque[tuple[float, Sequence]] = deque()
        self._trimmed = Sequence(0)

    @property
    def token(self) -> Sequence:
        """The sequence of our own leader entry; 0 while we do not lead."""
        return self._leader

    async def reset(self) -> None:
        """The stream was re-created: start from nothing, and lead no more."""
        self.view = LedgerView()
        self._previous = Sequence(0)
        self._starts.clear()
        self._marks.clear()
        self._trimmed = Sequence(0)
        if self._leader:
            self.deposed.set()
        async with self._changed:
            self._changed.notify_all()

    async def apply(self, sequence: Sequence, commit: Commit) -> None:
        """Fold one commit in; called by the reader, in stream order."""
        await self.apply_all(((sequence, commit),))

    async def apply_all(self, commits: Iterable[tuple[Sequence, Commit]]) -> None:
        """Fold commits in; called by the reader, in stream order."""
        batch = tuple(commits)
        self._folded(forget_lingering(fold_all(self.view, batch), self._pods_seen), batch)
        async with self._changed:
            self._changed.notify_all()

    def _fold(self, sequence: Sequence, commit: Commit) -> None:
        self._folded(fold(self.view, sequence, commit), ((sequence, commit),))

    def _folded(self, view: LedgerView, commits: tuple[tuple[Sequence, Commit], ...]) -> None:
        self.view = view
        for sequence, commit in commits:
            if sequence <= self._previous:
                continue
            # A large commit is several messages, of which the last has its sequence.
            start, self._previous = Sequence(self._previous + 1), sequence
            self._starts[sequence] = start
            if not self._marks or commit.at >= self._marks[-1][0] + MARK_SECONDS:
                self._marks.append((commit.at, start))
        if len(self._starts) > 2 * (len(view.open) + len(view.nodes)) + 100:
            self._starts = {begins: self._starts[begins] for begins in _beginnings(view)}
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
        self._pods_seen = freshness
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
        """Append our leader entry (rule A) and return its sequence, the token of this leadership.

        Raises:
            Deposed: the stream is gone, or a newer leader stood there before our own entry was known to stand.
        """
        self._leader = Sequence(0)
        self.deposed.clear()
        while True:
            await self.caught_up()
            entry = Leader(identity=self.identity, lease_transitions=transitions)
            commit = Commit(epoch=Sequence(0), identity=self.identity, entries=(entry,), at=at)
            sequence = await self._append_once(commit, self.view.sequence)
            if sequence is None:
                continue
            self._leader = sequence
            # The reader may have been quicker than the answer: then the newer entry was folded while we led nothing yet.
            if self.view.leader != sequence:
                self.deposed.set()
            if self.deposed.is_set():
                raise Deposed
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

    async def trim(self, *, older_than: float, at: float) -> Sequence | None:
        """Remove what was closed before `older_than` (Unix seconds); returns the first sequence kept, None when all was.

        Open entries and everything after the first of them stay. Memory that was last written before is written again
        first; the leader's own entry may go, since the epoch of the first commit kept tells of it.

        Raises:
            Deposed: a newer leader has taken over.
        """
        old = [sequence for moment, sequence in self._marks if moment < older_than]
        before = min([*old[-1:], *(self._starts[begins] for begins in _beginnings(self.view))], default=0)
        if not old or before <= self._trimmed:
            return None
        again = tuple(
            Memory(core=core, value=value)
            for core, value in self.view.memory.items()
            if self.view.memory_at.get(core, Sequence(0)) < before
        )
        if again and await self.append(again, expected=self.view.sequence, at=at) is None:
            return None
        if self.deposed.is_set():
            raise Deposed
        try:
            await self._stream.trim(before=Sequence(before))
        except NotConnectedError as error:
            self._report(str(error))
            return None
        self._trimmed = Sequence(before)
        while self._marks and self._marks[0][1] < before:
            self._marks.popleft()
        return self._trimmed

    async def _append_once(self, commit: Commit, expected: Sequence) -> Sequence | None:
        async with self._writing:
            if expected != self.view.sequence:
                return None
            try:
                sequence: Sequence | None = await self._stream.append(commit, expected_last_sequence=expected)
            except NotConnectedError:
                await asyncio.sleep(RETRY_SECONDS)
                return None
            except (QueueFullError, PublishRefusedError) as error:
                self._report(f"LEDGER takes nothing: {error}")
                await asyncio.sleep(FULL_SECONDS)
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


def _beginnings(view: LedgerView) -> Iterator[Sequence]:
    """The first sequence that each open entry needs."""
    yield from (entry.begins for entry in view.open.values())
    yield from (promise.begins for promise in view.nodes.values())
