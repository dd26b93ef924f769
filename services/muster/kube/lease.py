"""Leadership by a Kubernetes Lease, with a new epoch at every acquisition.

    candidate ──(free, or unchanged for a whole duration by our own clock)──► patch with resourceVersion ──► leader
        ▲                                                                                                      │
        └──── lost: deadline passed, or the Lease shows another holder or epoch ◄──── renew every few seconds ─┘

Other machines' wall clocks are never compared: a candidate only watches whether the record *changes*. A leader counts
from the moment it *sent* its last successful renewal, so its deadline (duration less a margin) lies before any
candidate's. At the deadline the leading task is cancelled, whatever it is doing.

The epoch is `leaseTransitions`, raised at every acquisition, also by the holder that held it before. A Lease is a
courtesy that keeps two leaders rare; that two of them do no harm is the work of the ledger's fences.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from muster.kube.decoding import RawLease
from muster.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, UnexpectedReply
from muster.kube.lease_record import LeaseRecord
from muster.kube.timing import SystemTiming, Timing
from muster.kube.transport import Transport


class LeadershipLost(Exception):  # noqa: N818  # an event more than an error
    """The Lease could not be kept; the work that needed it was cancelled."""


class LeaseTimings(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. `duration` must leave room for a renewal that fails and one that succeeds: see `check`.

    `retry` is how often a candidate looks, and how soon a failed renewal is tried again. `margin` is how long before
    the end of the duration the leading task is cancelled: its time to stop.
    """

    duration: float = 15.0
    renew: float = 5.0
    write_timeout: float = 5.0
    retry: float = 2.0
    margin: float = 1.5

    def check(self) -> None:
        """Raise ValueError, naming the field, for times that cannot work together."""
        for name in ("duration", "renew", "write_timeout", "retry", "margin"):
            value = getattr(self, name)
            if value <= 0:
                raise ValueError(f"lease {name} {value}: must be more than 0 seconds")
        needed = self.renew + self.write_timeout + self.margin
        if self.duration < needed:
            raise ValueError(
                f"lease duration {self.duration}: must be at least renew + write_timeout + margin = {needed} seconds"
            )


SHORT_TIMINGS = LeaseTimings(duration=6.0, renew=2.0, write_timeout=2.0, retry=0.5, margin=0.6)
"""For tests and demonstrations, where nobody wants to wait for a fail-over."""


class Leadership:
    """One time of holding the Lease. `lost` is set when it ends otherwise than by release."""

    def __init__(self, *, epoch: int, resource_version: str, renewed_at: float, timings: LeaseTimings) -> None:
        self.epoch = epoch
        self.lost = asyncio.Event()
        self.lost_because = ""
        self._resource_version = resource_version
        self._renewed_at = renewed_at
        self._timings = timings

    @property
    def deadline(self) -> float:
        """Monotonic seconds at which the work must have stopped unless a renewal succeeds before."""
        return self._renewed_at + self._timings.duration - self._timings.margin

    def lose(self, because: str) -> None:
        """Mark as lost; the first reason stays."""
        if not self.lost.is_set():
            self.lost_because = because
            self.lost.set()


class LeaseLock:
    """One candidate for one Lease. `identity` must be unique to the process (host, pid and a random part)."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        name: str,
        identity: str,
        timings: LeaseTimings | None = None,
        timing: Timing | None = None,
        epoch_floor: Callable[[], int] = lambda: 0,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`epoch_floor`: the highest epoch known from elsewhere; a deleted Lease then cannot bring old epochs back.

        `report` hears of every attempt that failed, as a sentence for the log.
        """
        if not identity:
            raise ValueError("lease identity '': must be unique to this process")
        self.identity = identity
        self._timings = timings or LeaseTimings()
        self._timings.check()
        self._timing: Timing = timing or SystemTiming()
        self._epoch_floor = epoch_floor
        self._report = report
        self._record = LeaseRecord(
            transport,
            namespace=namespace,
            name=name,
            timeout_seconds=self._timings.write_timeout,
            timing=self._timing,
        )
        self.holder = ""
        """Who held the Lease when it was last read; '' for nobody."""

    async def run(self, lead: Callable[[Leadership], Awaitable[None]]) -> None:
        """Acquire, run `lead`, and after a loss (which cancels it) start again; ends when `lead` returns by itself."""
        while True:
            try:
                async with self.leading() as leadership:
                    await lead(leadership)
                    return
            except LeadershipLost:
                continue

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[Leadership]:
        """Wait for the Lease, hold it while the block runs, release it afterwards.

        On loss the task in the block is cancelled in time, and LeadershipLost is raised in place of the cancellation.
        """
        leadership = await self.acquire()
        task = asyncio.current_task()
        assert task is not None
        requested_before = task.cancelling()
        cancelled = False
        ended = False

        def cancel_block() -> None:
            nonlocal cancelled
            if not ended:
                cancelled = True
                task.cancel(f"lease {self._record.name}: {leadership.lost_because}")

        keeper = asyncio.create_task(self._keep(leadership, cancel_block), name=f"lease-{self._record.name}")
        try:
            yield leadership
        except asyncio.CancelledError:
            if not cancelled or task.cancelling() - 1 > requested_before:
                raise
        finally:
            ended = True
            if cancelled:
                task.uncancel()
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            if not leadership.lost.is_set():
                await self._release(leadership)
        if cancelled:
            raise LeadershipLost(leadership.lost_because)

    async def acquire(self) -> Leadership:
        """Wait until the Lease is ours. Nothing renews it yet: `leading` does. Failures are retried for ever."""
        seen: tuple[str, datetime | None, int] | None = None
        seen_at = 0.0
        while True:
            pause = self._timings.retry * (0.75 + self._timing.random() / 4)
            try:
                lease = await self._record.read()
                self.holder = "" if lease is None else lease.spec.holder_identity
                if lease is None:
                    return await self._create()
                record = (lease.spec.holder_identity, lease.spec.renew_time, lease.spec.lease_transitions)
                now = self._timing.monotonic()
                if record != seen:
                    seen, seen_at = record, now
                lasts = max(self._timings.duration, float(lease.spec.lease_duration_seconds or 0))
                remaining = seen_at + lasts - now
                # Our own identity without our knowing means that the answer to an acquisition was lost.
                if not self.holder or self.holder == self.identity or remaining <= 0:
                    return await self._take(lease)
                pause = min(pause, remaining)
            except (Conflict, AlreadyExists):
                pause = min(pause, self._timings.retry * self._timing.random() / 2)
            except KubeError as error:
                self._report(f"acquiring: {error.message}")
            await self._timing.sleep(pause)

    async def incarnation(self) -> int:
        """The JetStream incarnation kept on the Lease; see `LeaseRecord.incarnation`."""
        return await self._record.incarnation()

    async def set_incarnation(self, incarnation: int) -> None:
        """Raise the incarnation; see `LeaseRecord.set_incarnation`."""
        await self._record.set_incarnation(incarnation)

    # Holding

    async def _keep(self, leadership: Leadership, cancel_block: Callable[[], None]) -> None:
        """Renew until lost; the deadline is watched apart, so that a hanging renewal cannot outlast it."""
        renewal = asyncio.create_task(self._renew_repeatedly(leadership))
        try:
            while not leadership.lost.is_set():
                remaining = leadership.deadline - self._timing.monotonic()
                if remaining <= 0:
                    leadership.lose("no renewal succeeded in time")
                    break
                alarm = asyncio.create_task(self._timing.sleep(remaining))
                try:
                    await asyncio.wait({alarm, renewal}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    alarm.cancel()
                if renewal.done():
                    leadership.lose(f"renewing failed: {renewal.exception()!r}")
        finally:
            if leadership.lost.is_set():
                cancel_block()
            renewal.cancel()
            await asyncio.gather(renewal, return_exceptions=True)

    async def _renew_repeatedly(self, leadership: Leadership) -> None:
        """Returns, having said why, when the Lease shows that it is no longer ours."""
        pause = self._timings.renew
        while True:
            await self._timing.sleep(pause)
            started = self._timing.monotonic()
            try:
                await self._renew(leadership)
            except LeadershipLost as lost:
                leadership.lose(str(lost))
                return
            except KubeError as error:
                # Repeated until the deadline, over which `_keep` watches.
                self._report(f"renewing: {error.message}")
                pause = self._timings.retry / 2
            else:
                leadership._renewed_at = started  # noqa: SLF001  # the lock owns its leaderships
                pause = max(0.0, started + self._timings.renew - self._timing.monotonic())

    async def _renew(self, leadership: Leadership) -> None:
        lease = await self._patch_held(leadership, {"renewTime": self._now()})
        self._still_ours(lease, leadership)
        leadership._resource_version = lease.metadata.resource_version  # noqa: SLF001  # as above

    async def _patch_held(self, leadership: Leadership, spec: dict[str, Any]) -> RawLease:
        """Patch the Lease while it is ours. Raises LeadershipLost when it is not."""
        version = leadership._resource_version  # noqa: SLF001  # as above
        try:
            return await self._record.patch(resource_version=version, spec=spec)
        except NotFound as error:
            raise LeadershipLost("the Lease was deleted") from error
        except Conflict:
            # Our own earlier renewal whose answer was lost, an annotation, or another holder: the Lease tells.
            lease = await self._record.read()
        if lease is None:
            raise LeadershipLost("the Lease was deleted")
        self._still_ours(lease, leadership)
        return await self._record.patch(resource_version=lease.metadata.resource_version, spec=spec)

    def _still_ours(self, lease: RawLease, leadership: Leadership) -> None:
        spec = lease.spec
        if spec.holder_identity != self.identity or spec.lease_transitions != leadership.epoch:
            holder = spec.holder_identity or "nobody"
            raise LeadershipLost(
                f"held by {holder} in epoch {spec.lease_transitions}, ours was epoch {leadership.epoch}"
            )

    async def _release(self, leadership: Leadership) -> None:
        """Give the Lease up, so that the next leader need not wait; when that fails it expires by itself."""
        spec = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._now()}
        try:
            await self._patch_held(leadership, spec)
        except (KubeError, LeadershipLost) as error:
            self._report(f"releasing: {error}")
        else:
            self.holder = ""

    # Taking

    async def _take(self, lease: RawLease) -> Leadership:
        started = self._timing.monotonic()
        epoch = max(lease.spec.lease_transitions, self._epoch_floor()) + 1
        version = lease.metadata.resource_version
        taken = await self._record.patch(resource_version=version, spec=self._held_spec(epoch))
        return self._leadership(taken, epoch=epoch, started=started)

    async def _create(self) -> Leadership:
        started = self._timing.monotonic()
        epoch = self._epoch_floor() + 1
        created = await self._record.create(spec=self._held_spec(epoch))
        return self._leadership(created, epoch=epoch, started=started)

    def _leadership(self, lease: RawLease, *, epoch: int, started: float) -> Leadership:
        if lease.spec.holder_identity != self.identity or lease.spec.lease_transitions != epoch:
            raise UnexpectedReply(f"lease {lease.metadata.key}: the answer does not show us as holder of epoch {epoch}")
        self.holder = self.identity
        return Leadership(
            epoch=epoch,
            resource_version=lease.metadata.resource_version,
            renewed_at=started,
            timings=self._timings,
        )

    def _held_spec(self, epoch: int) -> dict[str, Any]:
        now = self._now()
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._timings.duration),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": epoch,
        }

    def _now(self) -> str:
        return datetime.fromtimestamp(self._timing.wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
