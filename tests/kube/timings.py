"""Time for tests: one that passes by itself whenever somebody waits, one that is advanced by hand."""

import asyncio
import heapq
import itertools


class InstantTiming:
    """Waiting takes no time; every pause is noted and moves the clock."""

    def __init__(self, *, chance: float = 0.5) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self._chance = chance

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += max(0.0, seconds)
        await asyncio.sleep(0)

    def random(self) -> float:
        return self._chance


class VirtualTiming:
    """Time stands still until `advance`, which wakes sleepers in order and lets everybody act in between."""

    def __init__(self, *, chance: float = 0.5) -> None:
        self.now = 1000.0
        self._chance = chance
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + max(0.0, seconds), next(self._order), future))
        await future

    def random(self) -> float:
        return self._chance

    async def advance(self, seconds: float) -> None:
        until = self.now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= until:
            due, _, future = heapq.heappop(self._sleepers)
            self.now = max(self.now, due)
            if not future.done():
                future.set_result(None)
                await settle()
        self.now = until
        await settle()


async def settle(rounds: int = 30) -> None:
    """Let every task that can run do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)
