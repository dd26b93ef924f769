"""Who is told what a leadership decides and does."""

from typing import Protocol

from muster.decide.actual import CardFinding
from muster.decide.scheduling import Decision
from muster.fenced.executor import Result
from muster.model.ledger import Entry
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, Sequence


class Reporter(Protocol):
    """Who is told what was decided: DECISIONS, metrics, the API."""

    def committed(self, entries: tuple[Entry, ...], sequence: Sequence, epoch: Sequence) -> None:
        """Entries stand in the LEDGER."""

    def decided(self, snapshot: Snapshot, decision: Decision, seconds: float) -> None:
        """A decision was made (it may not be committed)."""

    def refused(self, gang: GangKey, code: str, message: str, numbers: dict[str, int | float | str]) -> None:
        """A proposal for this gang was not committed."""

    def acted(self, verb: str, result: Result, seconds: float) -> None:
        """A bind, touch or undo was answered."""

    def cards(self, findings: tuple[CardFinding, ...], news: tuple[CardFinding, ...]) -> None:
        """What is found out about cards now, and what of it was not known before."""

    def failed(self, what: str, error: Exception) -> None:
        """Something that must not fail did: a defect, told loudly; the leadership goes on without it."""
