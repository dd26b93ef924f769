"""One reign over STATE: take over, list, publish what differs, then follow.

    take_over ──► Mirror ──► reflectors ──► changes ──► publisher ──► STATE
        ▲                                                   │
        │  deposed, or the store was emptied                │ a stray message slipped in
        └──────────── start again ◄── reload, relist ◄──────┘

All kinds' changes pass one queue and one publisher: STATE has one order. The clock goes out each second after everything
that was received before is stored, so that its freshness is true of what stands before it in the stream. A kind's freshness moves
on only where its reflector says that every change up to there was passed on: a list gives its differences in any order.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec
import structlog

from muster.bus.client import Bus
from muster.bus.errors import BusError, DeposedError, MessageTooLargeError, StateMovedError
from muster.bus.state_publishing import Publication, StatePublisher
from muster.kube.reflector import Reflector
from muster.kube.transport import Transport
from muster.kube.view import Change, Changed, Deleted, Fresh, Listed, Unserved
from muster.runtime.health import Readiness
from muster.runtime.tasks import run_together
from muster.watcher.kinds import Watched
from muster.watcher.metrics import ReflectorWatch, WatcherMetrics
from muster.watcher.mirror import Mirror

CLOCK_SECONDS = 1.0
WAITING_CHANGES = 10_000
AT_ONCE = 2_000
"""Changes that are taken from the queue for one pipelined publish."""


class Received(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A change as a reflector told it, and when (monotonic seconds)."""

    kind: Watched
    change: Change
    at: float


class Follower:
    """Follows all kinds for one epoch of one publisher."""

    def __init__(
        self,
        bus: Bus,
        transport: Transport,
        kinds: tuple[Watched, ...],
        *,
        identity: str,
        metrics: WatcherMetrics,
        ready: Readiness,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """Nothing is published before `run`."""
        self.publisher = StatePublisher(bus, identity=identity)
        self._transport = transport
        self._kinds = kinds
        self._metrics = metrics
        self._ready = ready
        self._log = log
        self._mirror = Mirror(kinds)
        self._freshness: dict[str, str] = {}
        self._synced: set[str] = set()
        self._cleaned = 0
        """The epoch whose predecessors were removed from STATE."""
        self._queue: asyncio.Queue[Received] = asyncio.Queue(WAITING_CHANGES)

    async def run(self) -> None:
        """Take over and follow; ends only by an error.

        Raises:
            DeposedError: another watcher took over, or the store was emptied.
            BusError: NATS cannot be used now.
        """
        self._mirror.loaded(await self.publisher.take_over())
        self._metrics.epoch.set(self.publisher.epoch)
        self._log.info("STATE taken over", epoch=self.publisher.epoch, objects=len(self._mirror))
        while True:
            try:
                await self._follow()
            except StateMovedError as error:
                self._metrics.reloads.labels("moved").inc()
                self._log.warning("STATE moved; it is loaded again", error=str(error))
            self._ready.set("state", False)
            self._mirror.loaded(await self.publisher.reload())
            # A writer whose publishes were not answered goes on under a new one.
            self._metrics.epoch.set(self.publisher.epoch)

    async def _follow(self) -> None:
        """List and watch every kind until a publication is refused."""
        self._queue = asyncio.Queue(WAITING_CHANGES)
        self._synced = set()
        self._freshness = {}
        watches: dict[str, ReflectorWatch] = {}
        for kind in self._kinds:
            watches[kind.name] = ReflectorWatch(kind, self._metrics, self._log)
        reflecting = [self._reflect(kind, watches[kind.name]) for kind in self._kinds]
        await run_together(*reflecting, self._publish_all(watches))

    async def _reflect(self, kind: Watched, watch: ReflectorWatch) -> None:
        async def deliver(change: Change) -> None:
            watch.heard = time.monotonic()
            await self._queue.put(Received(kind=kind, change=change, at=watch.heard))

        await Reflector(self._transport, kind.info, deliver, observer=watch).run()

    async def _publish_all(self, watches: Mapping[str, ReflectorWatch]) -> None:
        next_clock = time.monotonic()
        while True:
            batch = await self._next_batch(until=next_clock)
            if batch:
                await self._publish(batch)
            now = time.monotonic()
            self._metrics.waiting.set(self._queue.qsize())
            if now < next_clock:
                continue
            next_clock = max(next_clock + CLOCK_SECONDS, now)
            synced = len(self._synced) == len(self._kinds)
            await self.publisher.tell_clock(synced=synced, freshness=dict(self._freshness))
            self._ready.set("state", synced)
            if synced:
                await self._remove_old_epochs()
            self._metrics.objects.set(len(self._mirror))
            for name, watch in watches.items():
                self._metrics.age.labels(name).set(now - watch.heard)

    async def _remove_old_epochs(self) -> None:
        """Once for each epoch, when nothing is left of what strays overwrote."""
        if self._cleaned == self.publisher.epoch or self._mirror.unknown:
            return
        try:
            await self.publisher.remove_old_epochs()
        except BusError as error:
            self._log.warning("old epochs stay in STATE for now", error=str(error))
        else:
            self._cleaned = self.publisher.epoch

    async def _next_batch(self, *, until: float) -> list[Received]:
        batch: list[Received] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                batch.append(await self._queue.get())
        while batch and len(batch) < AT_ONCE and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    async def _publish(self, batch: list[Received]) -> None:
        publications: list[Publication] = []
        for received in batch:
            publications += self._publications(received)
        sent = 0
        while sent < len(publications):
            rest = publications[sent:]
            before = self.publisher.sequence
            try:
                await self.publisher.publish(rest)
            except MessageTooLargeError as error:
                # Each message that was sent has moved the sequence by one; the next is the one that is too large.
                number = self.publisher.sequence - before
                place = rest[number]
                self._log.error("an object is too large for STATE", kind=place.kind, key=place.key, error=str(error))
                self._metrics.malformed.labels(place.kind).inc()
                self._mirror.forget(place.kind, place.key)
                sent += number + 1
            else:
                sent = len(publications)
        now = time.monotonic()
        for received in batch:
            self._note(received)
        for item in publications:
            self._metrics.published.labels(item.kind, "tombstone" if item.object is None else "object").inc()
        if publications:
            self._metrics.lag.observe(now - batch[0].at)

    def _publications(self, received: Received) -> tuple[Publication, ...]:
        kind, change = received.kind, received.change
        publications: tuple[Publication, ...] = ()
        match change:
            case Listed():
                publications = self._mirror.listed(kind, change.items, change.resource_version)
            case Changed():
                publications = self._mirror.changed(kind, change.object)
            case Deleted():
                publications = self._mirror.deleted(kind, change.key, change.resource_version)
            case Fresh() | Unserved():
                pass
        for skipped in self._mirror.skipped:
            self._metrics.malformed.labels(skipped.kind).inc()
            self._log.error("an object cannot be projected", kind=skipped.kind, key=skipped.key, error=skipped.error)
        self._mirror.skipped.clear()
        return publications

    def _note(self, received: Received) -> None:
        """Move freshness on where everything up to it is in STATE; after a single change more of the same list may come."""
        kind, change = received.kind, received.change
        match change:
            case Listed() | Fresh() if change.resource_version:
                self._freshness[kind.name] = change.resource_version
            case Unserved():
                self._log.warning("a kind is not served", kind=kind.name, cause=change.cause, message=change.message)
        if isinstance(change, Listed) or (
            isinstance(change, Unserved) and change.cause == "missing" and kind.info.custom
        ):
            self._synced.add(kind.name)


__all__ = ["BusError", "DeposedError", "Follower"]
