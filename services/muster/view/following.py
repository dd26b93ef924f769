"""Reads STATE and the LEDGER for a service that proposes and carries out, but never appends.

STATE ──► world ─┐
LEDGER ─► copy ──┴─► wake whoever works with them
"""

import asyncio
from collections.abc import Callable

from muster.bus.client import Bus
from muster.bus.errors import BusError
from muster.bus.ledger import Ledger
from muster.bus.state import StateReader
from muster.bus.streams import StreamName, last_sequence
from muster.runtime.health import Readiness
from muster.runtime.tasks import run_together
from muster.view.ledger import LedgerCopy
from muster.view.world import World

CATCH_UP_SECONDS = 5.0
STALE_SECONDS = 5.0
"""STATE without a word of its watcher for so long: nothing is proposed or carried out on it."""


class Following:
    """The reading half of such a service."""

    def __init__(self, bus: Bus, *, world: World, wake: Callable[[], None]) -> None:
        """`wake` is called when anything has changed."""
        self._bus = bus
        self._wake = wake
        self._state = StateReader(bus)
        self._reader = Ledger(bus)
        self.world = world
        self.ledger = LedgerCopy()

    @property
    def ready(self) -> bool:
        """Rule 1, the watcher was heard of lately, and the LEDGER is read."""
        return self._state.ready and self._state.clock_age() < STALE_SECONDS and self._reader.ready

    @property
    def pod_freshness(self) -> str:
        """Every pod event up to this resourceVersion has been applied."""
        return self._state.freshness.get("pod", "")

    async def run(self) -> None:
        """Read until cancelled."""
        await run_together(self._follow_state(), self._follow_ledger())

    async def caught_up(self) -> bool:
        """Read the LEDGER to its present end; False when that takes too long or there is none."""
        try:
            last = await last_sequence(self._bus, StreamName.LEDGER)
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while self.ledger.view.sequence < last:
                    await asyncio.sleep(0.02)
        except (BusError, TimeoutError):
            return False
        return self._reader.ready

    def report(self, ready: Readiness) -> None:
        """What a health check is told."""
        ready.set("nats", self._bus.connected)
        ready.set("state", self._state.ready and self._state.clock_age() < STALE_SECONDS)
        ready.set("ledger", self._reader.ready)

    async def _follow_state(self) -> None:
        async for batch in self._state.batches():
            if batch.reset:
                self.world.clear()
            changed = bool(batch.reset)
            for change in batch.changes:
                self.world.apply(change)
                changed = changed or change.kind not in {"clock", "epoch"}
            self.ledger.saw_pods(self.pod_freshness)
            # What the victims of plans are is known with the freshness that a clock brings.
            if changed or self.ledger.view.open or self.ledger.view.lingering:
                self._wake()

    async def _follow_ledger(self) -> None:
        async for batch in self._reader.batches():
            if batch.reset:
                self.ledger.reset()
            if batch.commits:
                self.ledger.apply(batch.commits)
            if self._reader.ready:
                self.ledger.passed(self._reader.sequence)
            if batch.commits or batch.reset:
                self._wake()
