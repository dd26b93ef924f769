"""What earlier plans mean for the next: limits on evictions per hour, and plans that need not be tried again.

cards per hour    what victims of plans of the last hour held; over the policy's limit the actor stops and says so
tried             the digest of a plan and of everything it looked at: its gang, its victims' gangs, its nodes
"""

import hashlib
from collections.abc import Sequence

import msgspec

from muster.decide.memory import CoreMemory
from muster.decide.preemption.victims import Unit
from muster.decide.waiting.eviction import HOUR
from muster.model.durations import format_duration
from muster.model.gangs import Gang
from muster.model.instructions import Evict
from muster.model.ledger import Plan
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import ONE_CARD, GangKey


def stopped(memory: CoreMemory, units: Sequence[Unit], now: float, policy: Policy) -> str:
    """Why these units may not leave now though a plan says so: the limit on evicted cards; '' when it is not reached."""
    return _over(memory, sum(unit.charge.get("gpu", 0) for unit in units), now, policy)


def plan_stopped(memory: CoreMemory, plan: Plan, now: float, policy: Policy) -> str:
    """The same for a plan as it is proposed."""
    return _over(memory, sum(victim.cards for victim in plan.victims), now, policy)


def _over(memory: CoreMemory, more: int, now: float, policy: Policy) -> str:
    most = policy.preemption.cards_per_hour
    recent = [one for one in memory.evictions if one.at + HOUR > now and one.cards]
    freed = sum(one.cards for one in recent)
    if not most or freed + more <= most * ONE_CARD:
        return ""
    oldest = f"; the oldest of them is an hour old in {format_duration(recent[0].at + HOUR - now)}" if recent else ""
    return (
        f"evictions stop: plans of the last hour freed {freed / ONE_CARD:g} cards, this one frees {more / ONE_CARD:g} more, "
        f"preemption.cards_per_hour is {most}{oldest}"
    )


def digest_of(plan: Evict | Plan | None, snapshot: Snapshot) -> str:
    """What a plan is and looked at, as a digest; the same plan on the same inputs has the same."""
    if plan is None:
        return ""
    if isinstance(plan, Plan):
        victims = sorted((victim.gang, victim.uid) for victim in plan.victims)
        slots = plan.nominated[0].slots if plan.nominated else ()
    else:
        victims, slots = sorted(plan.victims), plan.slots
    keys = {plan.gang, *(key for key, _ in victims)}
    nodes = {slot.node for slot in slots}
    gangs: list[Gang] = []
    for gang in snapshot.gangs:
        if gang.key in keys or any(member.node in nodes for member in gang.members):
            gangs.append(gang)
            nodes.update(member.node for member in gang.members if gang.key in keys and member.node is not None)
    looked_at = {
        "victims": victims,
        "slots": sorted((slot.uid, slot.node) for slot in slots),
        "gangs": [_without_times(gang) for gang in gangs],
        "nodes": [_without_version(node) for node in snapshot.nodes if node.name in nodes],
        "queues": [
            (
                queue.name,
                queue.deserved,
                queue.capability,
                queue.guarantee,
                queue.weight,
                queue.reclaimable,
                queue.state,
            )
            for queue in snapshot.queues
        ],
    }
    return hashlib.blake2b(msgspec.json.encode(looked_at), digest_size=12).hexdigest()


def tried(memory: CoreMemory, plan: Plan, snapshot: Snapshot) -> CoreMemory:
    """The plan was refused, or led nowhere: it is not proposed again before something that it looked at has changed.

    Plans of gangs that are not in the snapshot any more are forgotten.
    """
    here = {gang.key for gang in snapshot.gangs}
    kept: dict[GangKey, str] = {key: digest for key, digest in memory.tried.items() if key in here}
    return msgspec.structs.replace(memory, tried={**kept, plan.gang: digest_of(plan, snapshot)})


def _without_times(gang: Gang) -> Gang:
    return msgspec.structs.replace(gang, hold="", hold_message="")


def _without_version(node: msgspec.Struct) -> msgspec.Struct:
    return msgspec.structs.replace(node, resource_version="", fence=0)
