"""Tasks that run together and end together, also when a library loses a cancellation.

On Python 3.11 `asyncio.wait_for` returns its result when a cancellation arrives in the same turn of the loop, and the
cancellation is gone. NATS and HTTP clients wait that way. So a task is cancelled again until it has ended, and nothing
that must stop waits inside such a call itself: it waits here.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

AGAIN_SECONDS = 0.5

T = TypeVar("T")


async def end_all(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel these until each has ended; what they raise is not told."""
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_SECONDS)


async def run_together(*works: Coroutine[Any, Any, None]) -> None:
    """Run until the first of these ends, or this is cancelled; the others are ended, and the first's error is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_all(tasks)
    for task in done:
        task.result()


async def in_thread(work: Callable[[], T]) -> T:
    """Run off the event loop. A cancellation waits for the thread: what it reads may be changed as soon as nobody waits for it."""
    thread = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait({thread})
        raise
