"""An event loop whose clock jumps to the next timer when nothing else is to be done: hours pass in milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StuckError(RuntimeError):
    """Everything waits for something, and no timer is set."""


class _Jumps(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise StuckError("everything waits, and no timer is set")
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. No threads, sockets or processes."""

    def __init__(self) -> None:
        self._jumps = _Jumps()
        super().__init__(self._jumps)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._jumps.now


def run_virtually(main: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, in virtual time."""
    loop = VirtualLoop()
    try:
        task = loop.create_task(main)
        result = loop.run_until_complete(task)
        for left in asyncio.all_tasks(loop):
            left.cancel()
        while left_over := asyncio.all_tasks(loop):
            loop.run_until_complete(asyncio.gather(*left_over, return_exceptions=True))
        return result
    finally:
        loop.close()
