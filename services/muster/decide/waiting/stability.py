"""Since when a queue's share has been what it is: shares that have just changed make nobody leave.

A queue that gets all that it asks has the share "all", whatever that amounts to, so that jobs which come and go in a queue
that is not short of anything leave its share as it is.
"""

import msgspec

from muster.decide.memory import CoreMemory, ShareSince
from muster.decide.shares import Amounts, Tree
from muster.model.policy import Policy
from muster.model.units import QueueName

ALL = "all"


def shares_noted(memory: CoreMemory, tree: Tree, demand: dict[QueueName, Amounts], now: float) -> CoreMemory:
    """The memory with the shares as they are now; those that are as they were keep their time."""
    noted: dict[str, ShareSince] = {}
    for queue, shares in tree.shares.items():
        asked = demand.get(queue, {})
        parts = []
        for resource in sorted(shares):
            share = shares[resource]
            if tree.governed(queue, resource) and (share or asked.get(resource)):
                parts.append(f"{resource}={ALL if share >= asked.get(resource, 0) else share}")
        text = " ".join(parts)
        before = memory.shares_since.get(queue)
        noted[queue] = before if before is not None and before.share == text else ShareSince(share=text, since=now)
    return memory if noted == memory.shares_since else msgspec.structs.replace(memory, shares_since=noted)


def shares_stable(memory: CoreMemory, queue: QueueName, now: float, policy: Policy) -> bool:
    """Whether the queue's share has stood for the policy's stability interval; a queue never seen has not."""
    interval = policy.fairness.stability
    if not interval:
        return True
    known = memory.shares_since.get(queue)
    return known is not None and now - known.since >= interval
