"""What the owner of a job of ours should hear as an Event, once, whether or not the job waits.

InvalidAnnotation   an annotation looks misspelt or cannot be read: it counts for nothing
EvictionCounts      its pods are asked to leave, and Kubernetes will count that as failures of the Job
"""

from collections.abc import Callable, Iterable

from muster.decide.doubts import annotation_doubts, templates_marks
from muster.decide.lifecycle.actions import BATCH_JOBS, VCJOBS, Tell
from muster.decide.lifecycle.batch_jobs import what_evictions_cost
from muster.decide.lifecycle.podgroups import scheduler_of_job
from muster.decide.warnings import is_marked
from muster.model.pods import Pod
from muster.model.policy import Policy
from muster.model.workloads import Workload

KINDS = {"vcjob": VCJOBS, "job": BATCH_JOBS}
OLD_SECONDS = 600.0
"""Of jobs older than this an earlier leader has said what is wrong with them."""


class Remarks:
    """One leadership's."""

    def __init__(self, *, tell: Callable[[Tell], None], wall: Callable[[], float]) -> None:
        """`wall` gives Unix seconds."""
        self._tell = tell
        self._wall = wall
        self._began = 0.0
        self._said: dict[tuple[str, str], str] = {}
        """The last words, by uid and reason."""

    def begin(self) -> None:
        """A new leadership."""
        self._said.clear()
        self._began = self._wall()

    def forget(self, job: Workload) -> None:
        """The job is no more."""
        for key in [key for key in self._said if key[0] == job.uid]:
            del self._said[key]

    def look(self, job: Workload, pods: Iterable[Pod], *, policy: Policy) -> None:
        """Say what has not been said; nothing about jobs of other schedulers."""
        batch = job.kind == "job"
        scheduler = scheduler_of_job(job) if batch else str(job.spec.get("schedulerName") or "")
        if scheduler not in policy.scheduler_names or job.terminating:
            return
        if job.created >= self._began - OLD_SECONDS:
            self._say(job, "InvalidAnnotation", "; ".join(annotation_doubts(job.annotations, *templates_marks(job))))
        if batch and any(is_marked(pod) for pod in pods):
            self._say(job, "EvictionCounts", what_evictions_cost(job.spec))

    def _say(self, job: Workload, reason: str, message: str) -> None:
        if not message or self._said.get((job.uid, reason)) == message:
            return
        self._said[job.uid, reason] = message
        self._tell(
            Tell(
                kind=KINDS[job.kind],
                namespace=job.namespace,
                name=job.name,
                uid=job.uid,
                reason=reason,
                message=message,
                warning=True,
            )
        )
