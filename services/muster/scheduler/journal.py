"""The scheduler's voice: every decision to the audit log (DECISIONS), to the metrics and to one log line.

Pending reasons are written when their code changes, numbers that moved at most every 30 s, and what holds unchanged once an
hour (the stream forgets in the end), all from a token bucket so that explaining never slows binding. Publishing never holds up a decision: messages wait here, one pending reason a gang (the newest); what
waits cannot grow without end while NATS is away, since nothing can be committed then.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from fractions import Fraction

import structlog

from muster.bus.messages import Decision
from muster.bus.queries import Moment
from muster.decide.actual import CardFinding
from muster.decide.reasons import Reason, known_name
from muster.decide.scheduling import Decision as DecisionOfCore
from muster.fenced.executor import Outcome, Result
from muster.model.instructions import Pending
from muster.model.ledger import Entry
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, QueueName, Sequence
from muster.scheduler.audit import decisions_of
from muster.scheduler.telemetry import Telemetry, placed_in

NUMBERS_SECONDS = 30.0
REPEAT_SECONDS = 3600.0
PENDING_PER_SECOND = 100.0
PENDING_BURST = 500.0
HISTORY = 8
PASSING = frozenset({Reason.TOO_FEW_PODS, Reason.NO_PODGROUP, Reason.BINDING})
"""Reasons that most often last a moment only: the gang is being made, removed or placed."""
COMING_SECONDS = 3.0
"""A gang whose pods do not all exist yet is most likely being made: that is no news before it has lasted so long."""

Publish = Callable[[Decision], Awaitable[None]]


class Journal:
    """Implements Reporter; keeps the last snapshot and reasons for whoever asks."""

    def __init__(
        self,
        *,
        telemetry: Telemetry,
        log: structlog.stdlib.BoundLogger,
        event: Callable[[CardFinding], None] | None = None,
        named: Callable[[GangKey], str] = known_name,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`event` records a Kubernetes Event about a finding; `named` tells how people call a gang; `wall` gives Unix seconds."""
        self._wall = wall
        self._event = event
        self._named = named
        self._telemetry = telemetry
        self._log = log
        self.snapshot: Snapshot | None = None
        self.shares: Mapping[QueueName, Fraction] = {}
        """Of cards, in millionths, by queue, as they were decided last."""
        self.pending: dict[GangKey, Pending] = {}
        self.since: dict[GangKey, float] = {}
        """When each gang's present reason began, Unix seconds."""
        self.history: dict[GangKey, deque[Moment]] = {}
        """The last things that happened to each gang of the last snapshot."""
        self._said: dict[GangKey, tuple[Pending, float]] = {}
        self._waiting: dict[str, Decision] = {}
        self._something = asyncio.Event()
        self._tokens = PENDING_BURST
        self._filled = wall()
        self._epoch = Sequence(0)

    def committed(self, entries: tuple[Entry, ...], sequence: Sequence, epoch: Sequence) -> None:
        """Entries stand in the LEDGER: say so."""
        self._telemetry.committed(entries)
        self._epoch = epoch
        now = self._wall()
        for number, entry in enumerate(entries):
            for decision in decisions_of(entry, sequence=sequence, epoch=epoch, at=now, named=self._named):
                self._log.info(
                    decision.verb,
                    **({"node": decision.node} if decision.node else {"gang": decision.gang}),
                    code=decision.code,
                    what=decision.message,
                    epoch=epoch,
                    sequence=sequence,
                )
                if decision.gang:
                    self._remember(GangKey(decision.gang), now, _told(decision), decision.code)
                    # To whoever reads, this makes the reason told before void: should the gang wait again, it is told anew.
                    self._said.pop(GangKey(decision.gang), None)
                self._say(f"{sequence}.{number} {decision.verb} {decision.gang or decision.node}", decision)

    def refused(self, gang: GangKey, code: str, message: str, numbers: dict[str, int | float | str]) -> None:
        """A proposal was not committed: say so, in the audit log and one log line."""
        self._telemetry.refused.labels(code).inc()
        self._log.info("refused", gang=gang, code=code, what=message, epoch=self._epoch)
        decision = Decision(
            verb="refused",
            gang=gang,
            code=code,
            message=message.replace(gang, self._named(gang)),
            numbers=numbers,
            epoch=self._epoch,
            at=self._wall(),
        )
        self._say(f"refused {gang}", decision)

    def decided(self, snapshot: Snapshot, decision: DecisionOfCore, seconds: float) -> None:
        """Remember reasons, and publish those that changed or that were last said long ago."""
        instructions = decision.instructions
        self._telemetry.decided(snapshot, instructions, seconds)
        self.snapshot = snapshot
        self.shares = decision.shares
        reasons = {item.gang: item for item in instructions if isinstance(item, Pending)}
        now = self._wall()
        for gang, reason in reasons.items():
            before = self.pending.get(gang)
            if before is None or before.code != reason.code:
                self.since[gang] = now
                if reason.code not in PASSING:
                    self._remember(gang, now, f"waits: {reason.code.replace('_', ' ').lower()}", reason.code)
        for gang in self.pending.keys() - reasons.keys():
            self.since.pop(gang, None)
            self._said.pop(gang, None)
        self.pending = reasons
        if len(self.history) > 2 * len(snapshot.gangs) + HISTORY:
            present = {gang.key for gang in snapshot.gangs}
            self.history = {gang: moments for gang, moments in self.history.items() if gang in present}
        for gang, reason in reasons.items():
            self._explain(gang, reason, now)
        if placed := placed_in(instructions):
            self._log.info("decided", placed=placed, waiting=len(reasons), milliseconds=round(seconds * 1000, 1))

    def acted(self, verb: str, result: Result, seconds: float) -> None:
        """A write was answered; only what is out of the ordinary is logged."""
        self._telemetry.acted(verb, result, seconds)
        if result.outcome in {Outcome.REFUSED, Outcome.SUPERSEDED}:
            self._log.warning("not done", verb=verb, outcome=result.outcome.value, why=result.message)

    def cards(self, findings: tuple[CardFinding, ...], news: tuple[CardFinding, ...]) -> None:
        """Count what is wrong with cards; say what is new, to the audit log and as an Event where it is."""
        self._telemetry.cards_found(findings)
        now = self._wall()
        for one in news:
            self._log.warning("cards", code=one.code.value, node=one.node, pod=one.pod, what=one.message)
            about = {"gang": one.gang} if one.gang else {"node": one.node}
            decision = Decision(
                verb="cards", code=one.code.value, message=one.message, epoch=self._epoch, at=now, **about
            )
            self._say(f"cards {one.code.value} {one.uid or one.node}", decision)
            if self._event is not None:
                self._event(one)

    def failed(self, what: str, error: Exception) -> None:
        """A defect: it is told loudly, and counted."""
        self._telemetry.defects.labels(what).inc()
        self._log.error("a defect: this must not fail", what=what, exc_info=error)

    def _remember(self, gang: GangKey, at: float, text: str, code: str) -> None:
        self.history.setdefault(gang, deque(maxlen=HISTORY)).append(Moment(at=at, text=text, code=code))

    def _explain(self, gang: GangKey, reason: Pending, now: float) -> None:
        said = self._said.get(gang)
        if said is not None and said[0].code == reason.code:
            kept = REPEAT_SECONDS if said[0] == reason else NUMBERS_SECONDS
            if now - said[1] < kept:
                return
        if reason.code in PASSING and now - self.since.get(gang, now) < COMING_SECONDS:
            return
        if not self._take_token():
            return
        self._said[gang] = (reason, now)
        self._say(
            f"pending {gang}",
            Decision(
                verb="pending",
                gang=gang,
                queue=reason.queue,
                code=reason.code,
                message=reason.message,
                numbers=dict(reason.numbers),
                position=reason.position,
                epoch=self._epoch,
                at=now,
            ),
        )

    def _take_token(self) -> bool:
        now = self._wall()
        self._tokens = min(PENDING_BURST, self._tokens + max(0.0, now - self._filled) * PENDING_PER_SECOND)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _say(self, key: str, decision: Decision) -> None:
        self._waiting[key] = decision
        self._something.set()

    async def publish(self, publish: Publish) -> None:
        """Publish what waits, in order, until cancelled; a message that cannot go out now is tried again."""
        while True:
            await self._something.wait()
            while self._waiting:
                key, decision = next(iter(self._waiting.items()))
                try:
                    await publish(decision)
                except Exception as error:  # noqa: BLE001  (whatever NATS says: the audit log waits, decisions do not)
                    self._log.warning("decision not published yet", error=str(error), waiting=len(self._waiting))
                    await asyncio.sleep(1.0)
                    continue
                if self._waiting.get(key) is decision:
                    del self._waiting[key]
            self._something.clear()


def _told(decision: Decision) -> str:
    """A committed decision in a few words."""
    if decision.verb == "bind":
        return f"placed {decision.message}"
    if decision.verb == "undo":
        return f"taken back: {decision.message or decision.code}"
    if decision.verb in {"nominate", "preempt", "move"}:
        return f"{decision.code}: {decision.message}"
    return decision.code if decision.verb == "close" else f"{decision.verb} {decision.code}".strip()
