"""PodGroups for pods that nobody made one for: what makes a gang, and what its minimum is.

    owner kind            gang              name                  minimum
    batch/v1 Job          the whole Job     podgroup-<job uid>    annotation on the Job or its pods, else 1
    anything else, none   each pod          podgroup-<pod uid>    1

Pods of other schedulers are never touched. A pod that names a PodGroup waits for that one, even if it does not exist.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from muster.decide.lifecycle.actions import BATCH_JOBS, PODGROUPS, PODS, Action, Create, Patch, Tell
from muster.decide.lifecycle.queues import queue_of
from muster.decide.projection.metadata import VOLCANO_TOPOLOGY_MODE, VOLCANO_TOPOLOGY_TIER, kept_annotations
from muster.model.pods import Pod
from muster.model.policy import Policy
from muster.model.quantity import whole_number
from muster.model.units import QueueName
from muster.model.workloads import Namespace, PodGroup, Workload

PREFIX = "podgroup-"
GROUP_NAME = "scheduling.k8s.io/group-name"
MINIMUM_ANNOTATIONS = ("scheduling.volcano.sh/group-min-member", "volcano.sh/job-min-available")
BATCH_API = "batch/v1"
NOT_COPIED = frozenset({GROUP_NAME, "scheduling.volcano.sh/group-name", "muster.dev/fence", "muster.dev/cards"})


class MinimumError(ValueError):
    """An annotation that should be a number of pods and is not; the message names it."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The PodGroup that should be there."""

    namespace: str
    name: str
    minimum: int
    queue: QueueName
    priority_class: str
    annotations: dict[str, str]
    owner: dict[str, Any]

    def created(self) -> Create:
        """Make it."""
        spec: dict[str, Any] = {"minMember": self.minimum, "queue": self.queue}
        if self.priority_class:
            spec["priorityClassName"] = self.priority_class
        mode = self.annotations.get(VOLCANO_TOPOLOGY_MODE)
        if mode:
            tier = whole_number(self.annotations.get(VOLCANO_TOPOLOGY_TIER)) or 1
            spec["networkTopology"] = {"mode": mode, "highestTierAllowed": tier}
        return Create(
            kind=PODGROUPS,
            namespace=self.namespace,
            name=self.name,
            document={
                "metadata": {
                    "name": self.name,
                    "namespace": self.namespace,
                    "annotations": self.annotations,
                    "ownerReferences": [self.owner],
                },
                "spec": spec,
            },
            owner_uid=self.owner["uid"],
        )


def is_batch_job(pod: Pod) -> bool:
    """The pod is controlled by a batch/v1 Job."""
    return pod.owner is not None and pod.owner.kind == "Job" and pod.owner.api_version == BATCH_API


def group_of_pod(pod: Pod) -> str:
    """The name of the PodGroup that stands for this pod's gang."""
    if is_batch_job(pod):
        assert pod.owner is not None
        return PREFIX + pod.owner.uid
    return PREFIX + pod.uid


def group_of_job(job: Workload) -> str:
    """The name of the PodGroup that stands for a batch Job."""
    return PREFIX + job.uid


def needs_group(pod: Pod, *, policy: Policy) -> bool:
    """One of ours that names no PodGroup and is not over."""
    return (
        pod.scheduler_name in policy.scheduler_names and pod.gang is None and not pod.finished and not pod.terminating
    )


def minimum_of(*annotations: Mapping[str, str]) -> int:
    """The first declared minimum, else 1.

    Raises:
        MinimumError: it is not a whole number above 0.
    """
    for marks in annotations:
        for name in MINIMUM_ANNOTATIONS:
            text = marks.get(name)
            if text is None:
                continue
            number = whole_number(text.strip())
            if number < 1:
                raise MinimumError(f"annotation {name}: {text!r} must be a number of pods such as 4")
            return number
    return 1


def scheduler_of_job(job: Workload) -> str:
    """The schedulerName in a batch Job's template."""
    return str(((job.spec.get("template") or {}).get("spec") or {}).get("schedulerName") or "")


def reconcile_batch_job(
    job: Workload, podgroup: PodGroup | None, *, namespace: Namespace | None, policy: Policy
) -> tuple[Action, ...]:
    """One gang for a batch Job of ours: its PodGroup, with the minimum and the queue that are declared."""
    if job.terminating or scheduler_of_job(job) not in policy.scheduler_names:
        return ()
    template = job.spec.get("template") or {}
    marks: Mapping[str, str] = (template.get("metadata") or {}).get("annotations") or {}
    if marks.get(GROUP_NAME) or marks.get("scheduling.volcano.sh/group-name"):
        return ()
    ended = any(
        condition.get("type") in {"Complete", "Failed"} and condition.get("status") == "True"
        for condition in job.status.get("conditions") or ()
    )
    if podgroup is None and (ended or job.spec.get("suspend")):
        return ()
    try:
        minimum = minimum_of(job.annotations, marks)
    except MinimumError as error:
        return (_wrong_minimum(job, str(error)),)
    annotations = {**_copied(job.annotations), **_copied(marks)}
    wanted = Wanted(
        namespace=job.namespace,
        name=group_of_job(job),
        minimum=minimum,
        queue=queue_of("", {**job.annotations, **marks}, namespace, policy=policy),
        priority_class=str((template.get("spec") or {}).get("priorityClassName") or ""),
        annotations=annotations,
        owner=_reference(BATCH_API, "Job", job.name, job.uid),
    )
    if podgroup is None:
        return (wanted.created(),)
    return tuple(_kept_up(podgroup, wanted))


def reconcile_pod(
    pod: Pod, podgroup: PodGroup | None, *, namespace: Namespace | None, policy: Policy
) -> tuple[Action, ...]:
    """Give a pod of ours its gang: the PodGroup if it has none, then the annotation.

    Args:
        pod: the pod.
        podgroup: the one named by `group_of_pod`, if it exists. A batch Job's is made by `reconcile_batch_job`.
        namespace: the pod's.
        policy: whose pods are ours.
    """
    if not needs_group(pod, policy=policy):
        return ()
    name = group_of_pod(pod)
    actions: list[Action] = []
    if podgroup is None:
        if is_batch_job(pod):
            return ()
        wanted = Wanted(
            namespace=pod.namespace,
            name=name,
            minimum=1,
            queue=queue_of("", {**pod.labels, **pod.annotations}, namespace, policy=policy),
            priority_class=pod.priority_class,
            annotations=_copied(pod.annotations),
            owner=_reference("v1", "Pod", pod.name, pod.uid),
        )
        actions.append(wanted.created())
    actions.append(
        Patch(
            kind=PODS,
            namespace=pod.namespace,
            name=pod.name,
            body={"metadata": {"annotations": {GROUP_NAME: name}}},
            resource_version=pod.resource_version,
        )
    )
    return tuple(actions)


def _kept_up(podgroup: PodGroup, wanted: Wanted) -> Iterable[Patch]:
    changed: dict[str, Any] = {}
    if podgroup.min_member != wanted.minimum:
        changed["minMember"] = wanted.minimum
    if podgroup.queue != wanted.queue:
        changed["queue"] = wanted.queue
    if changed and not podgroup.terminating:
        yield Patch(
            kind=PODGROUPS,
            namespace=podgroup.namespace,
            name=podgroup.name,
            body={"spec": changed},
            resource_version=podgroup.resource_version,
        )


def _wrong_minimum(job: Workload, message: str) -> Tell:
    return Tell(
        kind=BATCH_JOBS,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        reason="InvalidAnnotation",
        message=f"{message}; the job's pods wait until it is right",
        warning=True,
    )


def _copied(annotations: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in kept_annotations(annotations).items() if name not in NOT_COPIED}


def _reference(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
