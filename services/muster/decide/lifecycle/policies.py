"""Lifecycle policies: which action answers what happened to a pod. A task's own policies come before the job's."""

import msgspec

from muster.decide.lifecycle.jobspec import JobSpec

RESTARTS_PODS = frozenset({"RestartTask", "RestartPod"})
"""Actions that replace pods and leave the job running."""


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a pod, or a task, of the job's present start."""

    event: str
    task: str
    message: str
    exit_code: int | None = None
    retries: int = 0
    """Under which retry of the job the pod was made: one that was answered already is older than the job's count."""
    preempted: bool = False
    """It left for another job, by a plan of ours."""


def chosen_action(spec: JobSpec, happening: Happening) -> str | None:
    """The action of the first policy that speaks of it; None when nothing is to be done."""
    task = spec.task(happening.task)
    for policy in (*(task.policies if task is not None else ()), *spec.policies):
        if policy.matches(happening.event, happening.exit_code):
            return None if policy.action == "SyncJob" else policy.action
    return None
