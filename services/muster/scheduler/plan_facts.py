"""What is told of plans in answers: about one gang as the one that gets room, that is asked to leave, or that left."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from muster.bus.queries import GangRow
from muster.decide.commitments import Kind, LedgerView, OpenEntry
from muster.decide.memory import CoreMemory
from muster.decide.preemption.entry import Named
from muster.decide.warnings import duties_of
from muster.model.gangs import Gang
from muster.model.ledger import Plan
from muster.model.pods import Pod
from muster.model.policy import Policy
from muster.model.units import PodUid
from muster.scheduler import leaving


class Plans(NamedTuple):
    """What is known of plans now."""

    view: LedgerView
    pods: Mapping[PodUid, Pod]
    memory: CoreMemory
    policy: Policy
    now: float
    """Unix seconds."""
    named: Named
    observed: Plan | None = None
    """What an actor that only observes would do."""

    def due(self, entry: OpenEntry) -> float | None:
        """When everybody's time is over as the pods were told; None before all are."""
        return duties_of(entry, self.pods, complete="", now=self.now).due

    def facts(self, gang: Gang) -> Iterable[tuple[str, str]]:
        """Label and text of what concerns this gang, apart from what its own open plan does for it."""
        asked = leaving.asked_by(gang.key, self.view.open.values())
        if asked is not None:
            yield "must leave", leaving.asked_to_leave(asked, gang, self.due(asked), now=self.now, named=self.named)
        elif text := leaving.left(gang, self.memory, now=self.now, named=self.named):
            yield "left", text
        if self.observed is not None and self.observed.gang == gang.key:
            yield "observed", leaving.would_leave(self.observed, self.policy, now=self.now, named=self.named)
        elif self.observed is not None and any(victim.gang == gang.key for victim in self.observed.victims):
            yield "observed", leaving.would_leave_for(self.observed, self.policy, named=self.named)

    def for_it(self, gang: Gang) -> str:
        """Who leaves for this gang under its open plan, and when; '' without one."""
        entry = self.view.open.get(gang.key)
        if entry is None or entry.kind is not Kind.PLAN or not entry.victims:
            return ""
        return leaving.leave_for(entry, self.pods, self.due(entry), now=self.now, named=self.named)

    def row(self, row: GangRow, gang: Gang) -> GangRow:
        """The row with what is about to happen: to whoever must leave, and to whoever waits for it."""
        asked = leaving.asked_by(gang.key, self.view.open.values())
        if asked is not None:
            moment = leaving.ends_at(asked, self.due(asked))
            whom = self.named(asked.gang)
            text = f"asked to leave until {leaving.when(moment, self.now)} for {whom}"
            return msgspec.structs.replace(row, leaves_at=moment, leaves_for=whom, message=_more(row.message, text))
        text = self.for_it(gang) or next((text for label, text in self.facts(gang) if label == "observed"), "")
        if not text and row.state == "Waiting" and (last := leaving.last_eviction(gang, self.memory)) is not None:
            whom = self.named(last.room_for) if last.room_for else "another job"
            text = f"left for {whom} at {leaving.when(last.at, self.now)}"
        return msgspec.structs.replace(row, message=_more(row.message, text)) if text else row


def _more(message: str, text: str) -> str:
    return f"{message}; {text}" if message else text
