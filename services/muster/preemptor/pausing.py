"""Whether evictions are paused (`muster pause evict`, kept in the LEDGER): everywhere, or in a queue that a plan concerns."""

from muster.decide.commitments import LedgerView, OpenEntry
from muster.decide.pauses import paused
from muster.model.pauses import Pause
from muster.model.units import QueueName
from muster.view.world import World


def evictions_paused(view: LedgerView) -> Pause | None:
    """The pause by which nobody may be evicted now."""
    return paused(view.memory, "evict")


def plan_paused(view: LedgerView, world: World, plan: OpenEntry) -> Pause | None:
    """The pause by which no victim of this plan may be evicted now: one of a queue that the plan takes from or gives to."""
    queues: set[QueueName] = set()
    for gang in {plan.gang, *(victim.gang for victim in plan.victims)}:
        group = world.podgroups.get(gang)
        name: QueueName | None = group.queue if group is not None else None
        while name is not None and name not in queues:
            queues.add(name)
            queue = world.queues.get(name)
            name = queue.parent if queue is not None else None
    return paused(view.memory, "evict", *queues)
