"""What people are told of plans: who is asked to leave, when and for whom, who left, and what actors that observe would do.

asked to leave at 15:42 (in 25 s) for team-a/llm: 2 of its 4 pods; its last checkpoint is 3 min old
2 pods of it left at 15:42 (10 min ago) for team-a/llm; kept is its checkpoint of 15:41
2 pods of eval, 16 cards, would be asked to leave, with 30s to write a checkpoint; policy.yaml has actions.reclaim: observe
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from muster.decide.commitments import Kind, OpenEntry
from muster.decide.memory import CoreMemory, Eviction
from muster.decide.preemption.entry import Named
from muster.decide.preemption.observing import actor_of
from muster.decide.reasons import count, span
from muster.model.gangs import Gang, MemberState
from muster.model.ledger import Plan, Victim
from muster.model.pods import Pod
from muster.model.policy import Policy
from muster.model.units import ONE_CARD, GangKey, PodUid

MOST_NAMED = 3


def clock(moment: float) -> str:
    """``15:42:07``; people compare it with the clock of where Muster runs."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


def when(moment: float, now: float) -> str:
    """``15:42:07 (in 25 s)``, ``15:42:07 (3 min ago)``."""
    apart = moment - now
    return f"{clock(moment)} ({f'in {span(apart)}' if apart >= 0 else f'{span(-apart)} ago'})"


def victims_named(victims: Iterable[Victim], named: Named) -> str:
    """``2 pods of eval, 1 pod of probe and of 2 more jobs``."""
    pods = Counter(named(victim.gang) for victim in victims)
    who = ", ".join(f"{count(number, 'pod')} of {name}" for name, number in sorted(pods.items())[:MOST_NAMED])
    return who + (f" and of {count(len(pods) - MOST_NAMED, 'more job')}" if len(pods) > MOST_NAMED else "")


def asked_by(gang: GangKey, entries: Iterable[OpenEntry]) -> OpenEntry | None:
    """The open plan that asks pods of this gang to leave."""
    plans = (entry for entry in entries if entry.kind is Kind.PLAN)
    return next((entry for entry in plans if any(victim.gang == gang for victim in entry.victims)), None)


def ends_at(entry: OpenEntry, due: float | None) -> float:
    """When everybody's time is over: as the pods were told (`due`), else as the plan has it."""
    return due if due is not None else max(victim.evict_after for victim in entry.victims)


def asked_to_leave(entry: OpenEntry, gang: Gang, due: float | None, *, now: float, named: Named) -> str:
    """What a job is told of which pods are asked to leave."""
    pods = sum(victim.gang == gang.key for victim in entry.victims)
    stands = sum(member.node is not None for member in gang.members)
    of_it = f"{pods} of its {count(stands, 'pod')}" if pods < stands else "all of it"
    moment = ends_at(entry, due)
    asked = f"asked to leave until {when(moment, now)}" if moment > now else "leaves now"
    return f"{asked} for {named(entry.gang)}: {of_it}; {_kept(gang, now)}"


def left(gang: Gang, memory: CoreMemory, *, now: float, named: Named) -> str:
    """What a job is told that waits since pods of it left for another; '' when none did lately."""
    last = last_eviction(gang, memory)
    if last is None:
        return ""
    for_whom = f" for {named(last.room_for)}" if last.room_for else ""
    again = "it starts again by itself when there is room"
    return f"{count(last.pods, 'pod')} of it left{for_whom}, asked at {when(last.at, now)}; {_kept(gang, now)}; {again}"


def last_eviction(gang: Gang, memory: CoreMemory) -> Eviction | None:
    """The last plan that took pods from a gang which has not got them back."""
    short = any(member.state is MemberState.WAITING for member in gang.members) and not gang.complete
    if not short or gang.timing.started:
        return None
    return max((one for one in memory.evictions if one.gang == gang.key), key=lambda one: one.at, default=None)


def _kept(gang: Gang, now: float) -> str:
    saved = gang.timing.last_checkpoint
    if not saved or saved > now:
        return "no checkpoint of it is known (muster.dev/last-checkpoint)"
    return f"its last checkpoint is of {when(saved, now)}"


def leave_for(entry: OpenEntry, pods: Mapping[PodUid, Pod], due: float | None, *, now: float, named: Named) -> str:
    """What the gang is told for which others leave."""
    still = [victim for victim in entry.victims if victim.uid in pods and not pods[victim.uid].finished]
    gone = len(entry.victims) - len(still)
    if not still:
        return "all who had to leave for it have left"
    moment = ends_at(entry, due)
    who = victims_named(still, named)
    if due is None and moment > now:
        asked = f"{who} will be asked to leave at {clock(moment)} if they have not ended"
    elif moment > now:
        asked = f"{who} {'is' if len(still) == 1 else 'are'} asked to leave until {when(moment, now)}"
    else:
        asked = f"{who} {'leaves' if len(still) == 1 else 'leave'} now"
    return f"{asked}; {count(gone, 'pod')} left already" if gone else asked


def would_leave(plan: Plan, policy: Policy, *, now: float, named: Named) -> str:
    """What would be done for a gang if the actor might act."""
    cards = sum(victim.cards for victim in plan.victims) / ONE_CARD
    held = f" ({cards:g} {'card' if cards == 1 else 'cards'})" if cards else ""
    grace = max(victim.evict_after for victim in plan.victims) - now
    what = "be asked to leave and be placed again" if plan.cause == "consolidate" else "be asked to leave"
    time_left = f", with {span(grace)} to write a checkpoint" if grace >= 1 else ""
    return f"{victims_named(plan.victims, named)}{held} would {what}{time_left}; {switch(plan.cause, policy)}"


def would_leave_for(plan: Plan, policy: Policy, *, named: Named) -> str:
    """The same, as those are told who would have to leave."""
    return f"would be asked to leave for {named(plan.gang)}; {switch(plan.cause, policy)}"


def switch(cause: str, policy: Policy) -> str:
    """The line of the policy that keeps an actor from acting."""
    actor = actor_of(cause)
    return f"the policy only observes (actions.{actor}: {getattr(policy.actions, actor)}; act lets it)"
