"""Past usage of queues, and what it makes of their weights when what is left of the cluster is shared out.

    level(now) = level(at) · ½^((now − at) / half-life) + used · (1 − ½^((now − at) / half-life))

So `level` is the usage as it was on average, the past weighing less and less: with constant usage it comes to be that. It is
written anew only when usage changes. Among siblings that still ask, a weight is multiplied by fair ÷ (fair + had): what the
weight promises of all, and what the queue had of what they had, both parts of one. Guarantees and deserved are untouched.
"""

from collections.abc import Iterable

import msgspec

from muster.decide.memory import CoreMemory, PastUsage
from muster.decide.shares import Tree
from muster.model.policy import Policy
from muster.model.units import QueueName

FORGOTTEN = 1.0
"""Less than this of a resource, in its unit, is nothing."""


def level_at(past: PastUsage, now: float, half_life: float) -> float:
    """The decayed usage at a moment; a clock that went back changes nothing."""
    kept: float = 0.5 ** (max(0.0, now - past.at) / half_life)
    return past.level * kept + past.used * (1.0 - kept)


def remembered(memory: CoreMemory, tree: Tree, resources: Iterable[str], now: float, policy: Policy) -> CoreMemory:
    """The memory with what queues use now; nothing is remembered where the policy looks at the present only."""
    half_life = policy.fairness.half_life
    if not half_life:
        return memory if not memory.usage_past else msgspec.structs.replace(memory, usage_past={})
    judged = sorted(resources)
    past: dict[str, dict[str, PastUsage]] = {}
    for queue in tree.queues:
        before = memory.usage_past.get(queue, {})
        after: dict[str, PastUsage] = {}
        for resource in judged:
            used = tree.usage[queue].get(resource, 0)
            known = before.get(resource)
            if known is None:
                if used:
                    after[resource] = PastUsage(level=0.0, used=used, at=now)
                continue
            level = known.level if known.used == used else level_at(known, now, half_life)
            if used or level_at(known, now, half_life) >= FORGOTTEN:
                after[resource] = (
                    known if known.used == used else PastUsage(level=level, used=used, at=max(now, known.at))
                )
        if after:
            past[queue] = after
    return memory if past == memory.usage_past else msgspec.structs.replace(memory, usage_past=past)


def history_of(memory: CoreMemory, now: float, policy: Policy) -> dict[QueueName, dict[str, int]]:
    """What each queue had on average, in whole units, for `set_shares`; empty when the policy looks at the present only."""
    half_life = policy.fairness.half_life
    if not half_life:
        return {}
    return {
        QueueName(queue): {resource: round(level_at(one, now, half_life)) for resource, one in past.items()}
        for queue, past in memory.usage_past.items()
    }
