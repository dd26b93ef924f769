"""A reader's copy of the LEDGER: folded in order, with the room that the reader's own view of the pods still has to hold."""

from collections.abc import Iterable

import msgspec

from muster.decide.commitments import LedgerView, forget_lingering
from muster.decide.folding import fold_all
from muster.model.ledger import Commit
from muster.model.units import Sequence


class LedgerCopy:
    """Whoever reads and never appends has one; the leader's own is `muster.scheduler.book`."""

    def __init__(self) -> None:
        self.view = LedgerView()
        self._pods_seen = ""

    def reset(self) -> None:
        """The stream was re-created: everything read is void."""
        self.view = LedgerView()

    def apply(self, commits: Iterable[tuple[Sequence, Commit]]) -> None:
        """Fold commits in, in stream order."""
        self.view = forget_lingering(fold_all(self.view, commits), self._pods_seen)

    def passed(self, sequence: Sequence) -> None:
        """Everything up to here was read, or does not exist any more (trimmed entries leave gaps)."""
        if sequence > self.view.sequence:
            self.view = msgspec.structs.replace(self.view, sequence=sequence)

    def saw_pods(self, freshness: str) -> None:
        """The pod view has reached this resourceVersion: lingering holds that waited for it go."""
        self._pods_seen = freshness
        self.view = forget_lingering(self.view, freshness)
