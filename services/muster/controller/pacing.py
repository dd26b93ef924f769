"""What is to be looked at, when, and by how many at once.

add(target) ──► due ──► worker          a target is with one worker at a time; hints that come meanwhile are kept
add(target, delay) ──► timer ──► due
a failure comes back after a pause that grows with each failure of the same target
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import Iterable

from muster.controller.view import Target

SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 30.0


class WorkList:
    """Targets that wait to be reconciled."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._due: dict[Target, None] = {}
        self._busy: dict[Target, bool] = {}
        """Whether a hint came while a worker has it."""
        self._timers: list[tuple[float, int, Target]] = []
        self._timed: dict[Target, float] = {}
        self._counter = itertools.count()
        self._failures: dict[Target, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """Targets that are due or with a worker."""
        return len(self._due) + len(self._busy)

    def add(self, targets: Iterable[Target]) -> None:
        """Look at these as soon as possible."""
        for target in targets:
            if target in self._busy:
                self._busy[target] = True
            else:
                self._due[target] = None
        self._wake.set()

    def add_later(self, target: Target, delay: float) -> None:
        """Look at this after so many seconds; an earlier time that is set already stays."""
        when = asyncio.get_running_loop().time() + delay
        known = self._timed.get(target)
        if known is not None and known <= when:
            return
        self._timed[target] = when
        heapq.heappush(self._timers, (when, next(self._counter), target))
        self._wake.set()

    def clear(self) -> None:
        """Forget what waits; what is with a worker goes on."""
        self._due.clear()
        self._timers.clear()
        self._timed.clear()
        self._failures.clear()
        self._busy = dict.fromkeys(self._busy, False)

    async def take(self) -> Target:
        """The next target; it is this worker's until `done`."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            while self._timers and self._timers[0][0] <= now:
                when, _, target = heapq.heappop(self._timers)
                if self._timed.get(target) == when:
                    del self._timed[target]
                    self.add((target,))
            if self._due:
                target = next(iter(self._due))
                del self._due[target]
                self._busy[target] = False
                return target
            self._wake.clear()
            pause = self._timers[0][0] - now if self._timers else None
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def done(self, target: Target, *, failed: bool = False) -> None:
        """This worker is through with it; a failure is looked at again after a pause."""
        again = self._busy.pop(target, False)
        if failed:
            count = self._failures[target] = self._failures.get(target, 0) + 1
            pause = min(LONGEST_PAUSE, SHORTEST_PAUSE * 2.0**count)
            self.add_later(target, pause * random.uniform(0.5, 1.0))  # noqa: S311  (no secret)
            return
        self._failures.pop(target, None)
        if again:
            self.add((target,))


class TokenBucket:
    """So many per second, with bursts: writes that only tell must leave room for writes that act."""

    def __init__(self, *, rate: float, burst: float) -> None:
        """Full."""
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._filled = 0.0

    async def take(self) -> None:
        """Wait for one token."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
            self._filled = now
            if self._tokens >= 1:
                self._tokens -= 1
                return
            await asyncio.sleep((1 - self._tokens) / self._rate)
