"""The core's word, in a thread: what to propose, and whether an open plan is still right."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from muster.decide.basis import Basis
from muster.decide.commitments import OpenEntry
from muster.decide.memory import CoreMemory
from muster.decide.preemption import Proposal, propose, unsound
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot

T = TypeVar("T")


class Outlook(NamedTuple):
    """What the core looks at."""

    snapshot: Snapshot
    memory: CoreMemory
    """With the room that open plans nominate."""
    now: float
    """Unix seconds."""
    policy: Policy
    basis: Basis
    """Of this snapshot; not to be written to while a call lasts."""


class Core:
    """Replaced in tests."""

    async def propose(self, outlook: Outlook) -> Proposal:
        """The next plan, or none."""
        snapshot, memory, now, policy, basis = outlook
        return await _in_thread(lambda: propose(snapshot, memory, now, policy, basis=basis))

    async def unsound(self, outlook: Outlook, entry: OpenEntry) -> str:
        """Why an open plan is not right any more, as a sentence; '' while it is."""
        snapshot, memory, now, policy, basis = outlook
        return await _in_thread(lambda: unsound(snapshot, memory, now, policy, entry, basis=basis))


async def _in_thread(work: Callable[[], T]) -> T:
    """A cancellation waits for the thread: what it reads may be changed as soon as nobody waits for it any more."""
    thread = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        await asyncio.wait({thread})
        raise
