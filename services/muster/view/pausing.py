"""What people paused (`muster pause`, kept in the LEDGER), as far as it concerns plans."""

from muster.decide.commitments import LedgerView, OpenEntry
from muster.decide.pauses import paused
from muster.model.pauses import Act, Pause
from muster.model.units import QueueName
from muster.view.world import World


def evictions_paused(view: LedgerView) -> Pause | None:
    """The pause by which nobody may be evicted now."""
    return paused(view.memory, "evict")


def plan_paused(act: Act, view: LedgerView, world: World, plan: OpenEntry) -> Pause | None:
    """The pause that keeps this plan from going on: of everywhere, or of a queue that it takes from or gives to."""
    queues: set[QueueName] = set()
    gangs = {plan.gang, *(victim.gang for victim in plan.victims)} if act == "evict" else {plan.gang}
    for gang in gangs:
        group = world.podgroups.get(gang)
        name: QueueName | None = group.queue if group is not None else None
        while name is not None and name not in queues:
            queues.add(name)
            queue = world.queues.get(name)
            name = queue.parent if queue is not None else None
    return paused(view.memory, act, *queues)
