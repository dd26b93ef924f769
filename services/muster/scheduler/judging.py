"""The core's word on a proposed plan, off the event loop."""

import asyncio
from typing import NamedTuple

from muster.decide.commitments import LedgerView
from muster.decide.memory import CoreMemory
from muster.decide.preemption import check
from muster.model.ledger import Plan
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot


class Standpoint(NamedTuple):
    """The leader's view of one moment, on which a proposal is judged."""

    view: LedgerView
    snapshot: Snapshot
    """Of this view, and of STATE at this moment."""
    memory: CoreMemory
    """With the room that the view nominates."""
    policy: Policy
    now: float
    """Unix seconds."""
    freshness: str
    """The highest pod resourceVersion of the view of STATE."""
    ready: bool
    """Whether STATE is current."""


def refusal(at: Standpoint, plan: Plan) -> str:
    """Why the plan is unsound, as a sentence; '' when it is sound."""
    return check.refusal(at.snapshot, at.memory, at.now, at.policy, plan)


async def refusal_in_thread(at: Standpoint, plan: Plan) -> str:
    """The same, in a thread."""
    return await asyncio.to_thread(refusal, at, plan)
