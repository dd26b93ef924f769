"""Time and chance as one injectable object: deadlines, pauses and jitter use it, so tests need no real time.

Deadlines of this process use `monotonic`; `wall` only labels what is written for others to read.
"""

import asyncio
import random
import time
from typing import Protocol


class Timing(Protocol):
    """A clock, a way to wait and a source of jitter."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps."""

    def wall(self) -> float:
        """Seconds since the Unix epoch."""

    async def sleep(self, seconds: float) -> None:
        """Wait this many seconds; zero or less yields once."""

    def random(self) -> float:
        """A number in [0, 1), to spread retries."""


class SystemTiming:
    """The machine's clock, asyncio's sleep and the process's random numbers."""

    def monotonic(self) -> float:  # noqa: D102
        return time.monotonic()

    def wall(self) -> float:  # noqa: D102
        return time.time()

    async def sleep(self, seconds: float) -> None:  # noqa: D102
        await asyncio.sleep(max(0.0, seconds))

    def random(self) -> float:  # noqa: D102
        return random.random()  # noqa: S311  # spreads retries, protects nothing


class Backoff:
    """Pauses that double from `base` to `cap` seconds, each shortened by up to half so that clients spread out."""

    def __init__(self, timing: Timing, *, base: float, cap: float) -> None:
        self._timing = timing
        self._base = base
        self._cap = cap
        self._failures = 0

    def reset(self) -> None:
        """Start again from the shortest pause."""
        self._failures = 0

    def next(self, *, cap: float | None = None) -> float:
        """Seconds to wait before the next attempt, at most `cap`."""
        limit = self._cap if cap is None else min(cap, self._cap)
        pause = min(limit, self._base * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return pause * (0.5 + self._timing.random() / 2)
