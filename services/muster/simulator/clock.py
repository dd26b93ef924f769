"""Time for the simulated cluster: real, real but faster, or virtual.

Everything in the simulator reads time and waits through a Clock. Under a VirtualClock nothing happens until a test
advances it: timers fire one by one in time order, and the event loop is given room to run between two of them, so a
timer may set the next one and it still fires inside the same advance.
"""

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

DEFAULT_START = 1_767_225_600.0  # 2026-01-01T00:00:00Z: any fixed, readable moment will do
SETTLE_ROUNDS = 12  # loop turns after each timer: enough for a timer → task → queue → task chain without sockets


class TimerHandle(Protocol):
    """What `call_later` gives back."""

    def cancel(self) -> None:
        """Forget the timer; harmless when it has fired."""


class Clock(Protocol):
    """Unix seconds now, waiting, and timers; all durations are simulated seconds."""

    def now(self) -> float:
        """Unix seconds."""

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once when `seconds` have passed."""


class RealClock:
    """The machine's clock; with `speed` above 1, simulated seconds pass that many times faster from the start on."""

    def __init__(self, *, speed: float = 1.0) -> None:
        if speed <= 0:
            raise ValueError(f"speed: {speed} must be above 0")
        self._speed = speed
        self._origin = time.time()
        self._monotonic = time.monotonic()

    def now(self) -> float:
        """Unix seconds; never steps backwards."""
        return self._origin + (time.monotonic() - self._monotonic) * self._speed

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds` simulated seconds."""
        await asyncio.sleep(seconds / self._speed)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> TimerHandle:
        """Use the running loop's timer."""
        return asyncio.get_running_loop().call_later(max(0.0, seconds) / self._speed, callback)


class VirtualTimer:
    """One pending timer of a VirtualClock."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the timer."""
        self.callback = None


class VirtualClock:
    """Time that moves only by `advance`; sleepers and timers fire in time order, ties in the order they were set."""

    def __init__(self, start: float = DEFAULT_START) -> None:
        self._now = start
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Unix seconds."""
        return self._now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        """Fire `callback` in the advance that passes now + `seconds`."""
        timer = VirtualTimer(callback)
        heapq.heappush(self._timers, (self._now + max(0.0, seconds), next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by `seconds`; zero only yields to the loop."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def next_due(self) -> float | None:
        """Unix seconds of the earliest pending timer."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    async def advance(self, seconds: float) -> None:
        """Move time forward, firing every timer that falls due on the way, each at its own moment."""
        await self.advance_to(self._now + seconds)

    async def advance_to(self, moment: float) -> None:
        """Move time forward to `moment` (Unix seconds), firing what falls due."""
        await self._settle()
        while (due := self.next_due()) is not None and due <= moment:
            self._now = max(self._now, due)
            while (again := self.next_due()) is not None and again <= self._now:
                callback = heapq.heappop(self._timers)[2].callback
                if callback is not None:
                    callback()
            await self._settle()
        self._now = max(self._now, moment)

    async def _settle(self) -> None:
        for _ in range(SETTLE_ROUNDS):
            await asyncio.sleep(0)


def timestamp(seconds: float) -> str:
    """Unix seconds as metav1.Time, e.g. 2026-01-01T00:00:00Z."""
    return datetime.fromtimestamp(int(seconds), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(seconds: float) -> str:
    """Unix seconds as metav1.MicroTime, as leases and events.k8s.io use it."""
    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_timestamp(text: str) -> float:
    """Unix seconds of a metav1.Time or MicroTime; ValueError names the text when it is neither."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise ValueError(f"timestamp: {text!r} must be RFC 3339, e.g. 2026-01-01T00:00:00Z") from error
