"""The leader's copy of the LEDGER: folded in order, appended to with the sequence of the view that decided.

    reader ──► apply(sequence, commit) ──► view
    leader ──► append(entries, expected = view.sequence) ──► ack: folded at once; moved or unknown: wait for the reader

An append whose outcome is unknown is settled by reading: either our commit stands in the stream or another one does.
"""

import asyncio
from collections.abc import Awaitable, Callable

from muster.bus.errors import LedgerMovedError, UnknownOutcomeError
from muster.decide.commitments import LedgerView, fold, forget_lingering
from muster.model.ledger import Commit, Entry, Leader
from muster.model.units import Sequence

Append = Callable[[Commit, Sequence], Awaitable[Sequence]]
"""Publish a commit with the whole stream's expected last sequence."""
LastSequence = Callable[[], Awaitable[Sequence]]
"""The sequence of the last message of the stream, read from the server."""


class Deposed(Exception):  # noqa: N818  (an event, not an error)
    """A newer leader entry stands in the LEDGER: this leader must not act any more."""


class Book:
    """One process's view of the LEDGER."""

    def __init__(self, *, identity: str, append: Append, last_sequence: LastSequence) -> None:
        self.identity = identity
        self.view = LedgerView()
        self.deposed = asyncio.Event()
        self._leader = Sequence(0)
        self._append = append
        self._last_sequence = last_sequence
        self._changed = asyncio.Condition()
        self._writing = asyncio.Lock()

    @property
    def token(self) -> Sequence:
        """The sequence of our own leader entry; 0 while we do not lead."""
        return self._leader

    def reset(self) -> None:
        """The stream was re-created: start from nothing, and lead no more."""
        self.view = LedgerView()
        if self._leader:
            self.deposed.set()

    async def apply(self, sequence: Sequence, commit: Commit) -> None:
        """Fold one commit in; called by the reader, in stream order."""
        self._fold(sequence, commit)
        async with self._changed:
            self._changed.notify_all()

    def _fold(self, sequence: Sequence, commit: Commit) -> None:
        self.view = fold(self.view, sequence, commit)
        if self._leader and self.view.leader > self._leader:
            self.deposed.set()

    def saw_pods(self, freshness: str) -> None:
        """The pod view has reached this resourceVersion: lingering holds that waited for it go."""
        self.view = forget_lingering(self.view, freshness)

    async def caught_up(self) -> None:
        """Return when everything that stands in the stream now is folded in."""
        last = await self._last_sequence()
        async with self._changed:
            await self._changed.wait_for(lambda: self.view.sequence >= last)

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
                sequence = await self._append(commit, expected)
            except LedgerMovedError:
                await self.caught_up()
                return None
            except UnknownOutcomeError:
                return await self._settle(commit, expected)
            self._fold(sequence, commit)
            return sequence

    async def _settle(self, commit: Commit, expected: Sequence) -> Sequence | None:
        """After an unknown result: read the LEDGER before anything else is decided."""
        await self.caught_up()
        return self._found(commit, expected)

    def _found(self, commit: Commit, expected: Sequence) -> Sequence | None:
        """The sequence of our commit if the reader has folded it, else None."""
        if self.view.sequence == expected:
            return None
        first = commit.entries[0]
        if isinstance(first, Leader):
            mine = self.view.leader_identity == first.identity and self.view.leader > expected
            return self.view.leader if mine else None
        # The one that follows `expected` was ours exactly when no newer leader stands: only a leader appends.
        return self.view.sequence if self.view.leader == commit.epoch else None
