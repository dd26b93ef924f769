"""What jobs report of themselves: the last complete checkpoint, kept on their PodGroup (muster.dev/last-checkpoint).

It only ever goes forward, and never into the future: who reports a checkpoint that is not there loses more when it has to leave.
Which gang leaves is decided by it, pods that are made anew are given it, and the owner is told it when the job leaves and resumes.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from muster.decide.lifecycle.actions import PODGROUPS, Patch
from muster.decide.timing import LAST_CHECKPOINT
from muster.model.durations import DurationError, parse_moment
from muster.model.policy import Tenant
from muster.model.workloads import PodGroup, Workload

AHEAD_SECONDS = 60.0
"""A moment further ahead of our clock than this cannot be meant."""


def last_checkpoint(annotations: Mapping[str, str]) -> float:
    """Unix seconds; 0 when none is known, or it cannot be read."""
    try:
        return parse_moment(annotations.get(LAST_CHECKPOINT, "0"))
    except DurationError:
        return 0.0


def may_report(tenant: str, rights: Tenant | None, job: Workload, *, key: str) -> bool:
    """Whether a tenant may speak of a job: one that it submitted, or one in a namespace that is named as its own.

    Args:
        tenant: the one whose subject the report came by.
        rights: what the policy says of it; None when it does not know it.
        job: the job.
        key: annotation that names a submitted job's tenant.
    """
    if rights is None:
        return False
    owner = job.annotations.get(key)
    return owner == tenant if owner is not None else job.namespace in rights.namespaces


def note_checkpoint(group: PodGroup, checkpoint_at: float, *, now: float) -> Patch | None:
    """The patch that puts a checkpoint on a job's PodGroup; None when it is no news, or cannot be meant."""
    if not 0 < checkpoint_at <= now + AHEAD_SECONDS or group.terminating:
        return None
    moment = min(checkpoint_at, now)
    text = datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if int(moment) <= last_checkpoint(group.annotations):
        return None
    return Patch(
        kind=PODGROUPS,
        namespace=group.namespace,
        name=group.name,
        body={"metadata": {"annotations": {LAST_CHECKPOINT: text}}},
    )
