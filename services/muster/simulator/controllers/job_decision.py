"""What the batch/v1 Job controller does next: a pure function of the Job, its pods, what was counted before, and the time.

    decide_job(job, pods, memory, now) -> JobDecision(create, delete, status, recheck_after), memory'

A pod that is deleted before it ended counts as failed, as with podReplacementPolicy TerminatingOrFailed in Kubernetes. Counted pods are
remembered by uid, so nothing is lost when a finished pod is removed. End of a Job: first SuccessCriteriaMet or FailureTarget while its
pods are taken away, then Complete or Failed when none is left.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from muster.simulator.clock import parse_timestamp, timestamp
from muster.simulator.controllers.job_counting import JobMemory, count_ended, phase_of, pod_index

Object = dict[str, Any]
BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class JobDecision:
    """Pods to make (an index each; None when the Job is not indexed), pods to delete, the status to write."""

    create: tuple[int | None, ...] = ()
    delete: tuple[str, ...] = ()
    status: Object = field(default_factory=dict)
    recheck_after: float | None = None
    remove_job: bool = False


def decide_job(
    job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], memory: JobMemory, *, now: float
) -> tuple[JobDecision, JobMemory]:
    """See the module's model. `pods` are those the Job controls."""
    spec, status = job["spec"], job.get("status") or {}
    conditions: list[Object] = list(status.get("conditions") or ())
    if finished(job):
        return _after_the_end(job, pods, now=now), memory
    memory, failure = count_ended(spec, pods, memory, now=now)
    active = [pod for pod in pods if _is_active(pod)]
    terminating = sum(1 for pod in pods if _is_terminating(pod))
    suspended = bool(spec.get("suspend"))
    started = status.get("startTime")
    if suspended:
        started = None
    elif started is None:
        started = timestamp(now)
    conditions = _suspension(conditions, suspended=suspended, now=now)
    wanted_end = _wanted_end(spec, memory, active, failure, started=started, conditions=conditions, now=now)

    create: tuple[int | None, ...] = ()
    delete: tuple[str, ...] = ()
    recheck: float | None = None
    completion: str | None = None
    if wanted_end is not None:
        delete = tuple(pod["metadata"]["name"] for pod in active)
        conditions, completion = _ending(conditions, wanted_end, done=not active and not terminating, now=now)
    elif suspended:
        delete = tuple(pod["metadata"]["name"] for pod in active)
    else:
        create, delete, recheck = _scale(spec, active, terminating, memory, now=now)
        if spec.get("activeDeadlineSeconds") is not None and started is not None:
            left = max(0.0, parse_timestamp(started) + spec["activeDeadlineSeconds"] - now)
            recheck = left if recheck is None else min(recheck, left)
    deleted = set(delete)
    if wanted_end is None and deleted:
        # Pods the controller takes away itself, by suspension or lower parallelism, are no failures.
        own = {pod["metadata"]["uid"] for pod in active if pod["metadata"]["name"] in deleted}
        memory = replace(memory, ignored=memory.ignored | own)
    kept = [pod for pod in active if pod["metadata"]["name"] not in deleted]
    new_status: Object = {
        "active": len(kept) + len(create),
        "ready": sum(1 for pod in kept if _is_ready(pod)),
        "succeeded": len(memory.succeeded),
        "failed": len(memory.failed),
        "terminating": terminating + len(deleted),
        "uncountedTerminatedPods": {},
        "startTime": started,
        "conditions": conditions,
    }
    if spec.get("completionMode") == "Indexed":
        new_status["completedIndexes"] = index_ranges(index for index in memory.succeeded.values() if index is not None)
    if completion is not None:
        new_status["completionTime"] = completion
    return JobDecision(create=create, delete=delete, status=new_status, recheck_after=recheck), memory


def finished(job: Mapping[str, Any]) -> bool:
    """Whether the Job is Complete or Failed."""
    return any(
        condition["type"] in {"Complete", "Failed"} and condition["status"] == "True"
        for condition in (job.get("status") or {}).get("conditions") or ()
    )


def index_ranges(indexes: Iterable[int]) -> str:
    """Completed indexes as the API shows them: ``0-2,5``."""
    ranges: list[list[int]] = []
    for index in sorted(set(indexes)):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _after_the_end(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], *, now: float) -> JobDecision:
    leftover = tuple(pod["metadata"]["name"] for pod in pods if _is_active(pod))
    keep = job["spec"].get("ttlSecondsAfterFinished")
    if keep is None:
        return JobDecision(delete=leftover)
    ended = max(
        parse_timestamp(condition["lastTransitionTime"])
        for condition in job["status"]["conditions"]
        if condition["type"] in {"Complete", "Failed"}
    )
    left = ended + keep - now
    return JobDecision(delete=leftover, remove_job=left <= 0, recheck_after=left if left > 0 else None)


def _wanted_end(
    spec: Mapping[str, Any],
    memory: JobMemory,
    active: Sequence[Mapping[str, Any]],
    failure: Object | None,
    *,
    started: str | None,
    conditions: Sequence[Mapping[str, Any]],
    now: float,
) -> Object | None:
    """Why the Job ends, if it does: an interim condition already written, a failure, or success."""
    for condition in conditions:
        if condition["type"] in {"SuccessCriteriaMet", "FailureTarget"} and condition["status"] == "True":
            return {"kind": condition["type"], "reason": condition["reason"], "message": condition["message"]}
    if failure is not None:
        return failure
    limit = spec.get("backoffLimit", 6)
    restarts = sum(
        container.get("restartCount", 0)
        for pod in active
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
    )
    on_failure = spec["template"]["spec"].get("restartPolicy") == "OnFailure"
    # In-place restarts end the Job when they reach the limit (or at the first, when it is 0).
    past_restarts = on_failure and (restarts > 0 if limit == 0 else restarts >= limit)
    if len(memory.failed) > limit or past_restarts:
        return {
            "kind": "FailureTarget",
            "reason": "BackoffLimitExceeded",
            "message": "Job has reached the specified backoff limit",
        }
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and started is not None and now - parse_timestamp(started) >= deadline:
        return {
            "kind": "FailureTarget",
            "reason": "DeadlineExceeded",
            "message": "Job was active longer than specified deadline",
        }
    completions = spec.get("completions")
    done = len(memory.succeeded)
    complete = done > 0 and not active if completions is None else done >= completions
    if complete:
        return {
            "kind": "SuccessCriteriaMet",
            "reason": "CompletionsReached",
            "message": "Reached expected number of succeeded pods",
        }
    return None


def _ending(
    conditions: list[Object], end: Mapping[str, Any], *, done: bool, now: float
) -> tuple[list[Object], str | None]:
    """The interim condition and, when no pod is left, the final one; with the completion time of a success."""
    conditions = _with(conditions, end["kind"], reason=end["reason"], message=end["message"], now=now)
    if not done:
        return conditions, None
    success = end["kind"] == "SuccessCriteriaMet"
    final = "Complete" if success else "Failed"
    conditions = _with(conditions, final, reason=end["reason"], message=end["message"], now=now)
    return conditions, timestamp(now) if success else None


def _scale(
    spec: Mapping[str, Any], active: Sequence[Mapping[str, Any]], terminating: int, memory: JobMemory, *, now: float
) -> tuple[tuple[int | None, ...], tuple[str, ...], float | None]:
    """Pods to make and to delete so that as many run as should, and when to look again (back-off)."""
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    done = len(memory.succeeded)
    if completions is None:
        wanted = parallelism if not done else min(len(active), parallelism)
    else:
        wanted = min(parallelism, completions - done)
    if len(active) > wanted:
        surplus = sorted(active, key=lambda pod: (_is_ready(pod), -_created(pod), pod["metadata"]["name"]))
        return (), tuple(pod["metadata"]["name"] for pod in surplus[: len(active) - wanted]), None
    held = terminating if spec.get("podReplacementPolicy") == "Failed" else 0
    missing = wanted - len(active) - held
    if missing <= 0:
        return (), (), None
    if memory.failures_in_a_row:
        wait = min(BACKOFF_SECONDS * 2 ** (memory.failures_in_a_row - 1), LONGEST_BACKOFF_SECONDS)
        left = memory.last_failure + wait - now
        if left > 0:
            return (), (), left
    if spec.get("completionMode") != "Indexed":
        return (None,) * missing, (), None
    taken = {pod_index(pod) for pod in active} | set(memory.succeeded.values())
    free = [index for index in range(completions or 0) if index not in taken]
    return tuple(free[:missing]), (), None


def _suspension(conditions: list[Object], *, suspended: bool, now: float) -> list[Object]:
    present = next((condition for condition in conditions if condition["type"] == "Suspended"), None)
    if suspended and (present is None or present["status"] != "True"):
        return _with(conditions, "Suspended", reason="JobSuspended", message="Job suspended", now=now)
    if not suspended and present is not None and present["status"] == "True":
        return _with(conditions, "Suspended", reason="JobResumed", message="Job resumed", now=now, status="False")
    return conditions


def _with(
    conditions: Sequence[Object], kind: str, *, reason: str, message: str, now: float, status: str = "True"
) -> list[Object]:
    if any(condition["type"] == kind and condition["status"] == status for condition in conditions):
        return list(conditions)
    condition = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastProbeTime": timestamp(now),
        "lastTransitionTime": timestamp(now),
    }
    return [*(each for each in conditions if each["type"] != kind), condition]


def _is_over(pod: Mapping[str, Any]) -> bool:
    return phase_of(pod) in {"Succeeded", "Failed"}


def _is_active(pod: Mapping[str, Any]) -> bool:
    return not _is_over(pod) and "deletionTimestamp" not in pod["metadata"]


def _is_terminating(pod: Mapping[str, Any]) -> bool:
    return not _is_over(pod) and "deletionTimestamp" in pod["metadata"]


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _created(pod: Mapping[str, Any]) -> float:
    return parse_timestamp(pod["metadata"]["creationTimestamp"])
