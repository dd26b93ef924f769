"""What a service says on DECISIONS: kept until it is published; the oldest is dropped when NATS is away for long."""

import asyncio
from collections import deque

import structlog

from muster.bus import subjects
from muster.bus.client import Bus
from muster.bus.errors import BusError
from muster.bus.messages import Decision

MOST_UNSAID = 100
AGAIN_SECONDS = 1.0


class AuditLog:
    """Messages of the audit log that wait for NATS."""

    def __init__(self, bus: Bus, log: structlog.stdlib.BoundLogger) -> None:
        self._bus = bus
        self._log = log
        self._unsaid: deque[Decision] = deque(maxlen=MOST_UNSAID)
        self._something = asyncio.Event()

    def say(self, decision: Decision) -> None:
        """Publish soon."""
        self._unsaid.append(decision)
        self._something.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            await self._something.wait()
            while self._unsaid:
                decision = self._unsaid[0]
                about = decision.gang or decision.node
                try:
                    await self._bus.publish(subjects.decision_subject(decision.verb, about), decision, about=about)
                except BusError as error:
                    self._log.warning("decision not published yet", error=str(error))
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                if self._unsaid and self._unsaid[0] is decision:
                    self._unsaid.popleft()
            self._something.clear()
