"""The core's word, in a thread: what to propose, and whether an open plan is still right."""

from typing import NamedTuple

from muster.decide.basis import Basis
from muster.decide.commitments import OpenEntry
from muster.decide.memory import CoreMemory
from muster.decide.preemption import Proposal, propose, unsound
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.runtime.tasks import in_thread


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
        return await in_thread(lambda: propose(snapshot, memory, now, policy, basis=basis))

    async def unsound(self, outlook: Outlook, entry: OpenEntry) -> str:
        """Why an open plan is not right any more, as a sentence; '' while it is."""
        snapshot, memory, now, policy, basis = outlook
        return await in_thread(lambda: unsound(snapshot, memory, now, policy, entry, basis=basis))
