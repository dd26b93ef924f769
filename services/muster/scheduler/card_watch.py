"""Looks after every few seconds whether cards are as was decided, and tells what is new (see `muster.decide.actual`)."""

from muster.decide.actual import CardFinding, card_findings
from muster.scheduler.reporting import Reporter
from muster.view.world import World

LOOK_SECONDS = 2.0


class CardWatch:
    """The findings of one leadership; each is told once, and again after it was gone."""

    def __init__(self, *, world: World, reporter: Reporter) -> None:
        self._world = world
        self._reporter = reporter
        self._known: frozenset[CardFinding] = frozenset()
        self._version = -1
        self._looked_at = float("-inf")

    def look(self, now: float) -> None:
        """Look, when something has changed and the last look was a while ago; `now` in seconds of any clock."""
        if now - self._looked_at < LOOK_SECONDS or self._world.version == self._version:
            return
        self._looked_at, self._version = now, self._world.version
        findings = card_findings(self._world.nodes, self._world.pods.values())
        self._reporter.cards(findings, tuple(one for one in findings if one not in self._known))
        self._known = frozenset(findings)
