"""Whether a job's pods are asked to leave, or left, for another job: by the warnings on them, and by what was decided.

The warning on a pod is the promise (`muster.decide.warnings`); the decision tells why, and stays known a while after the pods
that carried the warning are gone.
"""

from collections.abc import Iterable

import msgspec

from muster.decide.lifecycle.actions import Leaving
from muster.decide.warnings import EVICT_AT, EVICT_FOR, is_marked
from muster.model.durations import DurationError, parse_moment
from muster.model.pods import Pod

LONGEST_AGO = 900.0
"""Seconds for which a decision explains why pods are gone."""


def leaving_of(pods: Iterable[Pod], told: Leaving | None, *, now: float) -> Leaving | None:
    """For whom and until when pods leave; None when none does.

    Args:
        pods: those of one job.
        told: what the scheduler last decided about them.
        now: Unix seconds.
    """
    recent = told if told is not None and now - told.at < LONGEST_AGO else None
    marked = [pod for pod in pods if is_marked(pod) and not pod.finished]
    if not marked:
        return recent
    evict_at = max(_moment(pod.annotations.get(EVICT_AT, "")) for pod in marked)
    room_for = next((pod.annotations[EVICT_FOR] for pod in marked if EVICT_FOR in pod.annotations), "")
    if told is not None and told.room_for == room_for:
        return msgspec.structs.replace(told, evict_at=evict_at, warned=len(marked))
    return Leaving(room_for=room_for, evict_at=evict_at, warned=len(marked), at=now)


def is_preempted(pod: Pod) -> bool:
    """Whether a pod that goes away goes for one of our own plans."""
    return pod.terminating and is_marked(pod)


def _moment(text: str) -> float:
    try:
        return parse_moment(text)
    except DurationError:
        return 0.0
