"""The scheduler's debounced wake-up."""

import asyncio
import contextlib


class Wake:
    """Debounced wake-up: enough quiet, or the longest wait, after the first call."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._last = 0.0

    def __call__(self) -> None:
        """Something changed."""
        self._last = asyncio.get_running_loop().time()
        self._event.set()

    async def wait(self, *, quiet: float, longest: float, timeout: float) -> None:  # noqa: ASYNC109  (idle is no error)
        """Return after a change that was followed by quiet, after `longest` of steady changes, or after `timeout`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        if not self._event.is_set():
            return
        clock = asyncio.get_running_loop().time
        first = clock()
        while True:
            now = clock()
            rest = min(self._last + quiet, first + longest) - now
            if rest <= 0:
                break
            await asyncio.sleep(rest)
        self._event.clear()
