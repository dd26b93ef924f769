"""What is known, or wished, of a gang's time: from annotations of its PodGroup and pods, and from what owns them.

    PodGroup's annotation ▷ that of the first pod that has one       a wish (a bad one counts as none, and is told)
    the later of both                                                muster.dev/last-checkpoint
    owner's activeDeadlineSeconds, pods' own                         the tighter is the deadline
    expected-duration ▷ a Volcano Job's runningEstimate ▷ deadline   how long it is expected to run

Wishes stand here as they were written; the policy's caps are applied where they are used.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from muster.decide.findings import Problem
from muster.model.durations import DurationError, parse_duration, parse_moment
from muster.model.gangs import Timing
from muster.model.pods import Owner, Pod
from muster.model.workloads import PodGroup, Workload

EXPECTED_DURATION = "muster.dev/expected-duration"
MIN_RUNTIME = "muster.dev/min-runtime"
CHECKPOINT_INTERVAL = "muster.dev/checkpoint-interval"
LAST_CHECKPOINT = "muster.dev/last-checkpoint"
PREEMPTION_GRACE = "muster.dev/preemption-grace"
MAX_WAIT = "muster.dev/max-wait"
COOLDOWN = "volcano.sh/cooldown-time"
LONGEST_WAIT = "volcano.sh/sla-waiting-time"
"""Volcano's word for `MAX_WAIT`; the own one wins."""

DURATIONS = (
    EXPECTED_DURATION, MIN_RUNTIME, CHECKPOINT_INTERVAL, PREEMPTION_GRACE, MAX_WAIT, COOLDOWN, LONGEST_WAIT,
)  # fmt: skip
PARSERS: Mapping[str, Callable[[str], float]] = {
    **dict.fromkeys(DURATIONS, parse_duration),
    LAST_CHECKPOINT: parse_moment,
}
NAMES = frozenset(PARSERS)
TRAILING_NUMBER = re.compile(r"[-_.]*\d+$")
UNTIMED = Timing()


class Limits(NamedTuple):
    """What an owner says of time, in seconds; 0 where it says nothing."""

    deadline: float
    estimate: float


NO_LIMITS = Limits(0.0, 0.0)


def timing_problems(annotations: Mapping[str, Any], *, path: str) -> Iterable[Problem]:
    """Every annotation about time that cannot be read, with what would be right; ``path`` leads to the annotations."""
    for name in sorted(NAMES & annotations.keys()):
        try:
            PARSERS[name](annotations[name])
        except DurationError as error:
            yield Problem(field=f'{path}["{name}"]', value=str(annotations[name])[:80], message=str(error))


def limits_of_owner(workload: Workload) -> Limits:
    """What a job says of its time."""
    deadline = workload.spec.get("activeDeadlineSeconds")
    return Limits(
        float(deadline) if isinstance(deadline, int) and deadline > 0 else 0.0,
        _read(parse_duration, workload.spec.get("runningEstimate")),
    )


def same_times(before: Pod, after: Pod) -> bool:
    """Whether two states of a pod say the same about time, apart from when it started."""
    return before.active_deadline == after.active_deadline and (
        before.annotations is after.annotations or _marks(before.annotations) == _marks(after.annotations)
    )


def timing_of(group: PodGroup | None, pods: Iterable[Pod], limits: Limits = NO_LIMITS) -> Timing:
    """The times of a gang."""
    marks = _marks(group.annotations) if group is not None else {}
    latest = _moment(marks)
    deadline, started = limits.deadline, 0.0
    for pod in pods:
        if not NAMES.isdisjoint(pod.annotations):
            own = _marks(pod.annotations)
            latest = max(latest, _moment(own))
            marks = {**own, **marks}
        if pod.active_deadline:
            deadline = min(deadline or pod.active_deadline, pod.active_deadline)
        if pod.started and pod.holds_room and (not started or pod.started < started):
            started = pod.started
    if not marks and not deadline and not limits.estimate:
        return Timing(started=started) if started else UNTIMED
    expected = marks.get(EXPECTED_DURATION, 0.0) or limits.estimate
    return Timing(
        started=started,
        expected_duration=min(expected, deadline) if expected and deadline else expected or deadline,
        deadline=deadline,
        min_runtime=marks.get(MIN_RUNTIME, 0.0),
        checkpoint_interval=marks.get(CHECKPOINT_INTERVAL, 0.0),
        last_checkpoint=latest,
        grace=marks.get(PREEMPTION_GRACE, 0.0),
        cooldown=marks.get(COOLDOWN, 0.0),
        max_wait=marks.get(MAX_WAIT, 0.0) or marks.get(LONGEST_WAIT, 0.0),
    )


def owner_of(group: PodGroup | None, pods: Sequence[Pod]) -> str:
    """What a gang's durations are learned by: ``Job/train`` for its owner Job train-17; its own name when nothing owns it."""
    owner: Owner | None = group.owner if group is not None else None
    if owner is None or owner.kind == "Pod":
        owner = next((pod.owner for pod in pods if pod.owner is not None), owner)
    if owner is None:
        name = group.name if group is not None else (pods[0].name if pods else "")
        return f"PodGroup/{_without_number(name)}"
    return f"{owner.kind}/{_without_number(owner.name)}"


def _without_number(name: str) -> str:
    return TRAILING_NUMBER.sub("", name) or name


def _marks(annotations: Mapping[str, str]) -> dict[str, float]:
    """The times that annotations name and that can be read."""
    if NAMES.isdisjoint(annotations):
        return {}
    return {name: _read(PARSERS[name], annotations[name]) for name in NAMES & annotations.keys()}


def _moment(marks: dict[str, float]) -> float:
    return marks.pop(LAST_CHECKPOINT, 0.0)


def _read(parse: Callable[[str], float], value: str | None) -> float:
    """0 for what cannot be read: `timing_problems` tells it where it was written."""
    if value is None:
        return 0.0
    try:
        return parse(value)
    except DurationError:
        return 0.0
