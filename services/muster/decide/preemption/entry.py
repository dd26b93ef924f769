"""A proposal as the plan entry that goes to the committer: who leaves and when, what room is nominated, and why, in words."""

from collections import Counter
from collections.abc import Callable

from muster.decide.memory import CoreMemory
from muster.decide.preemption.proposing import Proposal
from muster.decide.preemption.protection import grace_of
from muster.decide.reasons import count, known_name
from muster.model.durations import format_duration
from muster.model.gangs import Gang, Member
from muster.model.instructions import Evict
from muster.model.ledger import Nominated, Plan, Victim
from muster.model.pods import Request
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import ONE_CARD, GangKey, NodeName

CAUSES = {
    "preempt": "of lower priority",
    "reclaim": "of queues above their share",
    "backfill": "that only filled room kept for it",
    "consolidate": "that start again elsewhere",
}
MOST_NAMED = 3
Named = Callable[[GangKey], str]


def plan_entry(
    proposal: Proposal,
    snapshot: Snapshot,
    memory: CoreMemory,  # noqa: ARG001  (one signature for all judges)
    now: float,
    policy: Policy,
    *,
    named: Named = known_name,
) -> Plan:
    """The wire form of a proposal that has a plan; ``named`` tells how people call a gang.

    Raises:
        ValueError: it has none, or it is not of this snapshot.
    """
    evict = proposal.plan
    if evict is None:
        raise ValueError("the proposal has no plan")
    gangs = {gang.key: gang for gang in snapshot.gangs}
    members = {member.uid: member for key, _ in evict.victims for member in gangs[key].members if key in gangs}
    missing = [uid for _, uid in evict.victims if uid not in members]
    if missing or evict.gang not in gangs:
        raise ValueError(
            f"the proposal for {evict.gang} is of another snapshot: {', '.join(missing[:3]) or evict.gang} is not here"
        )
    victims = tuple(
        Victim(
            gang=key,
            uid=uid,
            pod=members[uid].name,
            node=members[uid].node or NodeName(""),
            evict_after=now + grace_of(gangs[key], policy),
            cards=_cards(gangs[key], members[uid]),
        )
        for key, uid in evict.victims
    )
    nominated = tuple(
        Nominated(gang=one.gang, gang_uid=gangs[one.gang].uid, slots=one.slots) for one in proposal.nominations
    )
    return Plan(
        gang=evict.gang,
        gang_uid=gangs[evict.gang].uid,
        cause=evict.cause,
        victims=victims,
        nominated=nominated,
        decided_at=now,
        message=_message(evict, victims, gangs, now, named),
    )


def _cards(gang: Gang, member: Member) -> int:
    request = next((role.shape.request for role in gang.roles if role.name == member.role), Request())
    if request.share is None:
        return int(request.cards) * ONE_CARD
    return request.share.count * max(request.share.core_percent, 1) * ONE_CARD // 100


def _message(evict: Evict, victims: tuple[Victim, ...], gangs: dict[GangKey, Gang], now: float, called: Named) -> str:
    pods = Counter(victim.gang for victim in victims)
    cards = sum(victim.cards for victim in victims) / ONE_CARD
    named = [_said(gangs[key], pods[key], called(key)) for key in list(pods)[:MOST_NAMED]]
    more = f" and {count(len(pods) - MOST_NAMED, 'other job')}" if len(pods) > MOST_NAMED else ""
    verb = "leave" if len(victims) > 1 else "leaves"
    last = max(victim.evict_after for victim in victims) - now
    when = f" within {format_duration(last)}" if last >= 1 else ""
    held = f", {cards:g} {'card' if cards == 1 else 'cards'}" if cards else ""
    return (
        f"{count(len(victims), 'pod')}{held} {verb}{when} so that {called(evict.gang)} fits, from {count(len(pods), 'job')} "
        f"{CAUSES.get(evict.cause, evict.cause)}: {', '.join(named)}{more}"
    )


def _said(gang: Gang, pods: int, name: str) -> str:
    whole = pods >= sum(member.node is not None for member in gang.members)
    return f"{name} of {gang.queue}" if whole else f"{count(pods, 'pod')} of {name} of {gang.queue}"
