"""What people and other tools see of a gang: its PodGroup's status, its pods' conditions, Events.

    phase      Pending ──► Inqueue (its pods are there) ──► Running (minimum bound) ──► Completed
               Unknown: some run, and the rest cannot be placed
    condition  Scheduled=True, or Unschedulable=True with the scheduler's reason and message

A pod that waits carries PodScheduled=False: reason ``Unschedulable`` where more nodes would help, ``QuotaBlocked`` where the
queue does not allow it, ``SchedulingBlocked`` where something else is missing, so that autoscalers act on the first only; a
gated pod keeps ``SchedulingGated``. Messages whose numbers alone moved are rewritten rarely.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from muster.decide.assignment import is_expected
from muster.decide.lifecycle.actions import PODGROUPS, PODS, Action, Patch, Tell, Waiting, merge_difference
from muster.decide.lifecycle.vcjob import format_time
from muster.decide.timing import timing_problems
from muster.model.pods import Phase, Pod
from muster.model.policy import Policy
from muster.model.quantity import whole_number
from muster.model.workloads import PodGroup

UNSCHEDULABLE = "Unschedulable"
QUOTA_BLOCKED = "QuotaBlocked"
BLOCKED = "SchedulingBlocked"
GATED = "SchedulingGated"
REWRITE_AFTER = 60.0
"""Seconds after which a message of the same reason may be replaced by one with newer numbers."""
NOT_ENOUGH_PODS = "NotEnoughTasks"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What was last said about a gang, and when (Unix seconds)."""

    code: str
    message: str
    at: float


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """A gang's pods, counted."""

    pods: int
    bound: int
    """Bound and not leaving, or succeeded: what counts toward the minimum."""
    running: int
    succeeded: int
    failed: int
    waiting: int


def tally(members: Iterable[Pod]) -> Tally:
    """Count a gang's pods."""
    pods = bound = running = succeeded = failed = waiting = 0
    for pod in members:
        pods += 1
        if pod.phase is Phase.SUCCEEDED:
            succeeded += 1
        elif pod.phase is Phase.FAILED:
            failed += 1
        elif pod.terminating:
            continue
        elif pod.node is None:
            waiting += 1
        else:
            bound += 1
            running += pod.phase is Phase.RUNNING
    return Tally(
        pods=pods, bound=bound + succeeded, running=running, succeeded=succeeded, failed=failed, waiting=waiting
    )


def phase_of(group: PodGroup, counted: Tally) -> str:
    """The PodGroup's phase; see the module's drawing."""
    if counted.pods and counted.bound >= group.min_member:
        return "Completed" if counted.succeeded == counted.bound and not counted.waiting else "Running"
    if counted.running:
        return "Unknown"
    if counted.waiting + counted.bound >= max(1, group.min_member):
        return "Inqueue"
    return "Pending"


def reconcile_podgroup(
    group: PodGroup, members: Sequence[Pod], waiting: Waiting | None, *, policy: Policy, now: float, stands_alone: bool
) -> tuple[Action, ...]:
    """Bring a PodGroup's status up to date.

    Args:
        group: the PodGroup.
        members: its pods; a PodGroup whose pods are another scheduler's is left alone.
        waiting: why the scheduler says it waits, None when it does not say so.
        policy: whose pods are ours.
        now: Unix seconds.
        stands_alone: whether a PodGroup without pods gets a status too (it belongs to no job of another controller).
    """
    if any(pod.scheduler_name not in policy.scheduler_names for pod in members) or group.terminating:
        return ()
    if not members and not stands_alone:
        return ()
    counted = tally(members)
    phase = phase_of(group, counted)
    status: dict[str, Any] = {"phase": phase}
    for name in ("running", "succeeded", "failed"):
        if getattr(counted, name):
            status[name] = getattr(counted, name)
    condition = _condition(group, counted, waiting, phase=phase, now=now)
    if condition is not None:
        status["conditions"] = [condition]
    elif group.status.get("conditions"):
        status["conditions"] = group.status["conditions"]
    before = {name: value for name, value in group.status.items() if value}
    difference = merge_difference(before, status)
    if not difference:
        return ()
    return (
        Patch(
            kind=PODGROUPS,
            namespace=group.namespace,
            name=group.name,
            body={"status": difference},
            resource_version=group.resource_version,
            status=True,
        ),
        *(_bad_annotations(group) if group.status.get("phase") != phase else ()),
    )


def _bad_annotations(group: PodGroup) -> Iterable[Tell]:
    """Annotations about time that cannot be read count as none, and are told: with each new phase once."""
    for problem in timing_problems(group.annotations, path="metadata.annotations"):
        yield Tell(
            kind=PODGROUPS,
            namespace=group.namespace,
            name=group.name,
            uid=group.uid,
            reason="InvalidAnnotation",
            message=f"{problem.field}: {problem.message}; it counts as not given",
            warning=True,
        )


def _condition(
    group: PodGroup, counted: Tally, waiting: Waiting | None, *, phase: str, now: float
) -> dict[str, Any] | None:
    if phase in {"Running", "Completed"}:
        kind, reason = "Scheduled", "tasks in gang are ready to be scheduled"
        message = f"{counted.bound} of at least {group.min_member} pods are placed"
    elif waiting is not None:
        kind, reason, message = "Unschedulable", waiting.code, waiting.message
    elif counted.pods and counted.waiting + counted.bound < group.min_member:
        kind, reason = "Unschedulable", NOT_ENOUGH_PODS
        message = f"{counted.waiting + counted.bound} of at least {group.min_member} pods exist"
    else:
        return None
    for old in group.status.get("conditions") or ():
        if old.get("type") != kind or old.get("status") != "True" or old.get("reason") != reason:
            continue
        written = _seconds(old.get("transitionID"))
        if kind == "Scheduled" or old.get("message") == message or now - written < REWRITE_AFTER:
            return dict(old)
        since = old.get("lastTransitionTime")
        return _made(kind, reason, message, since=since or format_time(now), now=now)
    return _made(kind, reason, message, since=format_time(now), now=now)


def _made(kind: str, reason: str, message: str, *, since: str, now: float) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
        # Volcano writes its session's id here; the time of writing serves the same end and tells when to write again.
        "transitionID": str(int(now)),
    }


def _seconds(text: Any) -> float:
    return float(whole_number(text)) if isinstance(text, str) else 0.0


def reconcile_members(
    members: Iterable[Pod], waiting: Waiting | None, told: Told | None, *, policy: Policy, now: float
) -> tuple[tuple[Action, ...], Told | None]:
    """Conditions and FailedScheduling Events of the pods of a gang that waits, and what has been said now.

    Only pods that wait are written; a pod that is placed is left to its kubelet.
    """
    if waiting is None:
        return (), None
    fresh = told is None or told.code != waiting.code or (
        told.message != waiting.message and now - told.at >= REWRITE_AFTER
    )  # fmt: skip
    said = Told(code=waiting.code, message=waiting.message, at=now) if fresh or told is None else told
    reason = QUOTA_BLOCKED if waiting.quota else UNSCHEDULABLE if waiting.nodes_help else BLOCKED
    actions: list[Action] = []
    for pod in members:
        ours = pod.scheduler_name in policy.scheduler_names
        if not ours or pod.node is not None or pod.finished or pod.terminating:
            continue
        if pod.unschedulable_reason == reason and (pod.unschedulable_message == said.message or not fresh):
            continue
        if pod.unschedulable_reason == GATED and pod.gated:
            if fresh:
                actions.append(_failed_scheduling(pod, said))
            continue
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": said.message,
            "lastTransitionTime": format_time(now),
        }
        actions.append(
            Patch(
                kind=PODS,
                namespace=pod.namespace,
                name=pod.name,
                body={"status": {"conditions": [condition]}},
                resource_version=pod.resource_version,
                status=True,
                strategic=True,
            )
        )
        actions.append(_failed_scheduling(pod, said))
    return tuple(actions), said


def with_doubts(waiting: Waiting, doubts: Sequence[str]) -> Waiting:
    """The reason, with what its owner should hear besides."""
    if not doubts:
        return waiting
    return msgspec.structs.replace(waiting, message=f"{waiting.message.rstrip('.')}. Note: {'; '.join(doubts)}")


def _failed_scheduling(pod: Pod, said: Told) -> Tell:
    return about_pod(pod, reason="FailedScheduling", message=f"{said.code}: {said.message}", warning=True)


def about_pod(pod: Pod, *, reason: str, message: str, warning: bool = False) -> Tell:
    """An Event about a pod."""
    return Tell(
        kind=PODS,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        reason=reason,
        message=message,
        warning=warning,
    )


def placed(pod: Pod) -> Tell:
    """The Event that tells where a pod was placed, in Kubernetes' own words."""
    message = f"Successfully assigned {pod.namespace}/{pod.name} to {pod.node}"
    if pod.cards and is_expected(pod.annotations):
        number = len(pod.cards)
        message += f", {number} {'card' if number == 1 else 'cards'} of the kubelet's choice"
    elif pod.cards:
        message += f", cards {', '.join(str(use.index) for use in pod.cards)}"
    return about_pod(pod, reason="Scheduled", message=message)
