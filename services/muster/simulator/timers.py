"""One heap of timers for everything that acts by itself in the simulated cluster: kubelets and controllers.

Only the earliest timer is set on the clock, so ten thousand pods cost ten thousand heap entries and no task. Timers that are
due together fire in the order they were set; one that fails does not keep the others from firing.
"""

import heapq
import itertools
from collections.abc import Callable

from muster.simulator.clock import Clock, TimerHandle


class Timer:
    """A callback that waits for its moment."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never fire; harmless when it has fired."""
        self.callback = None


class Timers:
    """Timers on one clock; nothing is armed until the first is set, nothing after `stop`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._armed: tuple[float, TimerHandle] | None = None
        self._stopped = False

    def __len__(self) -> int:
        """How many timers wait, cancelled ones not counted."""
        return sum(1 for _, _, timer in self._heap if timer.callback is not None)

    def after(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` once when `seconds` (simulated) have passed."""
        timer = Timer(callback)
        if not self._stopped:
            heapq.heappush(self._heap, (self._clock.now() + max(0.0, seconds), next(self._order), timer))
            self._arm()
        return timer

    def stop(self) -> None:
        """Forget all timers and take no more."""
        self._stopped = True
        self._heap.clear()
        if self._armed is not None:
            self._armed[1].cancel()
            self._armed = None

    def _arm(self) -> None:
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._armed is not None:
            if self._armed[0] <= due:
                return
            self._armed[1].cancel()
        self._armed = (due, self._clock.call_later(due - self._clock.now(), self._fire))

    def _fire(self) -> None:
        self._armed = None
        failures: list[Exception] = []
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            callback = heapq.heappop(self._heap)[2].callback
            if callback is None:
                continue
            try:
                callback()
            except Exception as failure:  # noqa: BLE001 - the other timers must still fire; raised below
                failures.append(failure)
        if not self._stopped:
            self._arm()
        if failures:
            raise ExceptionGroup("timers of the simulated cluster failed", failures)
