"""Loops around nats-py must look for their cancellation themselves.

nats-py waits with `asyncio.wait_for`, which before Python 3.12 loses a cancellation that comes in the same turn of the loop as the
answer: the call returns, and an endless loop around it would never end.
"""

import asyncio


def check_cancelled() -> None:
    """Raise the cancellation that this task was asked for and that got lost.

    Raises:
        asyncio.CancelledError: somebody cancelled this task.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling() > 0:
        raise asyncio.CancelledError
