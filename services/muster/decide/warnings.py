"""What an open plan asks of its victims now: whom to warn, and whom to evict when every warning's time is over.

    plan ─► each victim is warned: its pod says until when, by which plan and for whom
         ─► all of them have had their time ─► all are evicted together

The warning stands on the pod, so whoever looks knows what was promised, whoever promised it. Grace counts from the warning:
a victim that hears late (nobody was there to tell it) leaves late. A warning is of one plan; what an older one left on a pod
counts for nothing, and is taken off.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from muster.decide.commitments import LedgerView, OpenEntry
from muster.decide.settling import remaining
from muster.model.durations import DurationError, parse_moment
from muster.model.ledger import Victim
from muster.model.pods import Pod
from muster.model.quantity import whole_number
from muster.model.units import PodUid, Sequence

EVICT_AT = "muster.dev/evict-at"
"""RFC 3339: the pod is asked to write a checkpoint and is evicted then."""
EVICT_FOR = "muster.dev/evict-for"
"""Who gets the room, ``namespace/name`` of its job."""
EVICT_PLAN = "muster.dev/evict-plan"
"""LEDGER sequence of the plan, decimal."""
MARKS = (EVICT_AT, EVICT_FOR, EVICT_PLAN)
LATE_SECONDS = 5.0
"""A warning that is late by less than this moves nothing."""
LONGEST_DELAY = 600.0
"""Seconds after its moment in the plan at which a victim is due at the latest, whatever stands on its pod."""


class Warned(NamedTuple):
    """A victim that is to be warned, and when it will be evicted (Unix seconds)."""

    victim: Victim
    evict_at: float


class Duties(NamedTuple):
    """What a plan asks for now."""

    warn: tuple[Warned, ...]
    """Not told yet."""
    evict: tuple[Victim, ...]
    """Everybody's time is over, and these still stand."""
    due: float | None
    """When everybody's time is over, Unix seconds; None while somebody is not told yet, or nobody stands any more."""


def duties_of(
    entry: OpenEntry,
    pods: Mapping[PodUid, Pod],
    *,
    complete: str,
    now: float,
    promised: Mapping[tuple[Sequence, PodUid], float] | None = None,
) -> Duties:
    """See the module.

    Args:
        entry: an open plan.
        pods: what STATE shows, by uid.
        complete: every pod event up to this resourceVersion is in that view.
        now: Unix seconds.
        promised: what the caller itself told victims, by plan and uid: annotations are their owners' to change.
    """
    known = promised or {}
    standing = [
        (victim, pods[victim.uid])
        for victim in remaining(entry, pods, complete=complete)
        if victim.uid in pods and not pods[victim.uid].terminating
    ]
    warn: list[Warned] = []
    due: float | None = None
    for victim, pod in standing:
        told = known.get((entry.sequence, victim.uid))
        if told is None:
            told = told_moment(entry.sequence, victim, pod)
        if told is None:
            warn.append(Warned(victim, _moment(entry, victim, now)))
        else:
            due = told if due is None else max(due, told)
    if warn:
        return Duties(tuple(warn), (), None)
    over = due is not None and now >= due
    return Duties((), tuple(victim for victim, _ in standing) if over else (), due)


def told_moment(plan: Sequence, victim: Victim, pod: Pod) -> float | None:
    """When a victim was told that it will be evicted, within what the plan allows; None: this plan has not told it yet."""
    if pod.annotations.get(EVICT_PLAN) != str(plan):
        return None
    try:
        told = parse_moment(pod.annotations.get(EVICT_AT, ""))
    except DurationError:
        return None
    return max(victim.evict_after, min(told, victim.evict_after + LONGEST_DELAY))


def _moment(entry: OpenEntry, victim: Victim, now: float) -> float:
    grace = max(0.0, victim.evict_after - entry.at)
    late = now + grace
    return late if late > victim.evict_after + LATE_SECONDS else victim.evict_after


def marks_of(entry: OpenEntry, evict_at: float, *, room_for: str) -> dict[str, str]:
    """The annotations that warn a pod; ``room_for`` is the job that gets the room."""
    return {EVICT_AT: format_moment(evict_at), EVICT_FOR: room_for, EVICT_PLAN: str(entry.sequence)}


def format_moment(moment: float) -> str:
    """Unix seconds as RFC 3339, whole seconds, rounded up: nobody is evicted before what was said."""
    return datetime.fromtimestamp(-int(-moment // 1), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_marked(pod: Pod) -> bool:
    """Whether some plan has warned this pod."""
    return not pod.annotations.keys().isdisjoint(MARKS)


def outlived(view: LedgerView, pods: Iterable[Pod]) -> list[Pod]:
    """Pods that carry a warning of a plan up to which the LEDGER is read, although no open plan names them, and that stay."""
    victims = view.victims()
    return [
        pod
        for pod in pods
        if pod.uid not in victims and not pod.terminating and not pod.finished and _plan_of(pod) <= view.sequence
    ]


def _plan_of(pod: Pod) -> int:
    return whole_number(pod.annotations.get(EVICT_PLAN))
