"""Who may be asked to leave for a reservation, whatever the priorities and queues.

    backfilled   it was let into the room of the reservation on that condition
    late         it is past its expected duration by `policy.waiting.overrun`, on a node that is reserved

What protects gangs otherwise (not preemptible, min-runtime, budgets …) protects them here too: that is judged elsewhere. That
the gang fits once they are gone is for the plan to prove.
"""

from collections.abc import Collection

from muster.decide.memory import CoreMemory
from muster.decide.waiting.durations import late
from muster.model.gangs import Gang
from muster.model.policy import Policy
from muster.model.units import GangKey, PodUid

HOUR = 3600.0


def may_evict_backfilled(
    memory: CoreMemory, gang: GangKey, victim: GangKey, pods: Collection[PodUid] | None = None
) -> bool:
    """Whether these pods of the victim (None: all of them) run backfilled for the gang."""
    return any(
        one.gang == victim
        and one.reserved_for == gang
        and (not one.pods or (pods is not None and set(pods) <= set(one.pods)))
        for one in memory.backfilled
    )


def may_evict_late(memory: CoreMemory, gang: GangKey, victim: Gang, now: float, policy: Policy) -> bool:
    """Whether the victim is late on a node that is reserved for the gang."""
    mine = next((one for one in memory.reservations if one.gang == gang), None)
    if mine is None or not late(victim, now, policy):
        return False
    return not {member.node for member in victim.members if member.node is not None}.isdisjoint(mine.nodes)


def may_evict_for_reservation(
    memory: CoreMemory, gang: GangKey, victim: Gang, pods: Collection[PodUid], *, now: float, policy: Policy
) -> bool:
    """Either of the two."""
    return may_evict_backfilled(memory, gang, victim.key, pods) or may_evict_late(memory, gang, victim, now, policy)


def evicted_lately(memory: CoreMemory, now: float) -> dict[GangKey, int]:
    """How often each gang lost pods to plans within the last hour."""
    times: dict[GangKey, int] = {}
    for one in memory.evictions:
        if one.at + HOUR > now:
            times[one.gang] = times.get(one.gang, 0) + 1
    return times


def evicted_enough(memory: CoreMemory, gang: GangKey, now: float, policy: Policy) -> bool:
    """Whether it lost pods to plans so often within the hour that it is left alone now."""
    most = policy.preemption.per_gang_per_hour
    return bool(most) and evicted_lately(memory, now).get(gang, 0) >= most
