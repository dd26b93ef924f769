"""Fences that no LEDGER entry gave: users may write annotations on their own pods, and gain nothing by this one.

    refused by a fence ─► read the pod ─► read the LEDGER to its end ─► entry still open, no newer leader: nobody gave it

Whoever has the right to a higher token stands in the LEDGER before he writes it. So what is read there after the pod decides,
and it stays true of that version of the pod for ever: an eviction that carries its resourceVersion may take its time.
"""

from collections.abc import Awaitable, Callable

from muster.fenced.executor import Executor, Outcome, Result, Seen
from muster.model.units import PodUid, Sequence

StillOpen = Callable[[], Awaitable[bool]]
"""Reads the LEDGER to its end; whether the entry is open in it as it was, and no leader is newer than the token."""


async def forged_version(
    executor: Executor, namespace: str, name: str, *, uid: PodUid, token: Sequence, still_open: StillOpen
) -> Seen | Result:
    """The version of the pod that carries a fence above `token` which nobody gave; else why nothing may be done about it."""
    seen = await executor.read(namespace, name, uid=uid)
    if isinstance(seen, Result):
        return seen
    if seen.fence <= token:
        return Result(outcome=Outcome.AGAIN, message="its fence is not in the way any more", retry_after=0.1)
    if not await still_open():
        return Result(outcome=Outcome.SUPERSEDED, message=f"fence {seen.fence} is above {token}")
    return seen
