"""The objects that a Volcano Job is made into, with Volcano's names, labels and annotations.

Job llm ──► PodGroup llm-<uid>
       ├──► Pod llm-worker-0, llm-worker-1 …
       └──► Service llm (headless, with the plugin svc)
"""

from collections.abc import Mapping
from typing import Any

from muster.decide.assignment import CARDS
from muster.decide.lifecycle.actions import PODGROUPS, PODS, SERVICES, VCJOBS, Create
from muster.decide.lifecycle.completions import SUCCEEDED, Completions
from muster.decide.lifecycle.jobspec import JobSpec, Task, pod_name, scheduler_of
from muster.decide.projection.metadata import FENCE
from muster.decide.timing import LAST_CHECKPOINT
from muster.decide.warnings import MARKS
from muster.model.policy import Policy
from muster.model.units import QueueName
from muster.model.workloads import Workload

API_VERSION = "batch.volcano.sh/v1alpha1"
JOB_NAME = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
JOB_VERSION = "volcano.sh/job-version"
JOB_RETRY = "volcano.sh/job-retry-count"
TASK_SPEC = "volcano.sh/task-spec"
TASK_INDEX = "volcano.sh/task-index"
PARTITION_ID = "volcano.sh/partition-id"
QUEUE_NAME = "volcano.sh/queue-name"
TEMPLATE_UID = "volcano.sh/template-uid"
GROUP_NAME = "scheduling.k8s.io/group-name"
PASSED_ON = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")
"""Job annotations that Volcano looks for on the pods."""
NOT_COPIED = ("volcano.sh/job-queue", SUCCEEDED)
OURS_ALONE = frozenset({FENCE, CARDS, *MARKS})
"""Annotations that mean something on a pod because we wrote them there; a template gives none."""
NOTHING = Completions()
END_EVENTS = frozenset({"PodFailed", "TaskCompleted", "*"})


def group_name(job: Workload) -> str:
    """The name of the job's PodGroup."""
    return f"{job.name}-{job.uid}"


def owner_reference(job: Workload) -> dict[str, Any]:
    """A controlling reference to the job."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def group_spec(spec: JobSpec, queue: QueueName, completions: Completions = NOTHING) -> dict[str, Any]:
    """The PodGroup's spec; a task's own minimum is passed on only where the job declares one.

    What has succeeded and is gone is no pod of the gang any more: it needs so many less.
    """
    document: dict[str, Any] = {"minMember": max(1, spec.minimum - completions.all_gone), "queue": queue}
    minimums = {
        task.name: max(0, task.min_available - completions.gone(task.name))
        for task in spec.tasks
        if task.min_available is not None
    }
    if minimums:
        document["minTaskMember"] = minimums
    if spec.priority_class_name:
        document["priorityClassName"] = spec.priority_class_name
    if spec.network_topology:
        document["networkTopology"] = spec.network_topology
    parts = [_sub_group(task) for task in spec.tasks if task.partition_size]
    if parts:
        document["subGroupPolicy"] = parts
    return document


def _sub_group(task: Task) -> dict[str, Any]:
    """A task's partitionPolicy as the PodGroup carries it: pods of one partition id are one group."""
    policy = task.partition_policy or {}
    group: dict[str, Any] = {
        "name": task.name,
        "subGroupSize": task.partition_size,
        "minSubGroups": task.least_partitions,
        "labelSelector": {"matchLabels": {TASK_SPEC: task.name}},
        "matchLabelKeys": [TASK_SPEC, PARTITION_ID],
    }
    if policy.get("networkTopology"):
        group["networkTopology"] = policy["networkTopology"]
    return group


def podgroup_of(job: Workload, spec: JobSpec, queue: QueueName) -> Create:
    """The job's PodGroup; the job's scheduling annotations go with it."""
    annotations = {name: value for name, value in job.annotations.items() if name not in NOT_COPIED}
    return Create(
        kind=PODGROUPS,
        namespace=job.namespace,
        name=group_name(job),
        document={
            "metadata": {
                "name": group_name(job),
                "namespace": job.namespace,
                "labels": dict(job.labels),
                "annotations": annotations,
                "ownerReferences": [owner_reference(job)],
            },
            "spec": group_spec(spec, queue),
        },
        owner_uid=job.uid,
    )


def pod_of(
    job: Workload,
    spec: JobSpec,
    task: Task,
    index: int,
    *,
    version: int,
    retries: int,
    queue: QueueName,
    policy: Policy,
    checkpoint: str = "",
) -> Create:
    """Pod number `index` of a task. `version` and `retries` mark which start of the job it belongs to.

    `checkpoint`: when the job's last one was complete, so that the pod knows from where to go on.
    """
    template = task.template
    metadata: Mapping[str, Any] = template.get("metadata") or {}
    name = pod_name(job.name, task.name, index)
    labels = {
        **(metadata.get("labels") or {}),
        JOB_NAME: job.name,
        JOB_NAMESPACE: job.namespace,
        TASK_SPEC: task.name,
        TASK_INDEX: str(index),
        QUEUE_NAME: queue,
        **({PARTITION_ID: str(index // task.partition_size)} if task.partition_size else {}),
    }
    annotations = {
        **{name: job.annotations[name] for name in PASSED_ON if name in job.annotations},
        **{name: value for name, value in (metadata.get("annotations") or {}).items() if name not in OURS_ALONE},
        **({LAST_CHECKPOINT: checkpoint} if checkpoint else {}),
        GROUP_NAME: group_name(job),
        JOB_NAME: job.name,
        JOB_VERSION: str(version),
        JOB_RETRY: str(retries),
        TASK_SPEC: task.name,
        TASK_INDEX: str(index),
        QUEUE_NAME: queue,
        TEMPLATE_UID: f"{job.uid}-{task.name}",
    }
    return Create(
        kind=PODS,
        namespace=job.namespace,
        name=name,
        document={
            "metadata": {
                "name": name,
                "namespace": job.namespace,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [owner_reference(job)],
            },
            "spec": _pod_spec(job, spec, task, index, name=name, policy=policy),
        },
        owner_uid=job.uid,
    )


def _pod_spec(job: Workload, spec: JobSpec, task: Task, index: int, *, name: str, policy: Policy) -> dict[str, Any]:
    document: dict[str, Any] = dict(task.template.get("spec") or {})
    if not document.get("schedulerName"):
        document["schedulerName"] = scheduler_of(job, policy=policy)
    if not document.get("restartPolicy") and _ends_matter(spec, task):
        # With Kubernetes' default, Always, a container that fails is restarted in place and its pod never fails or
        # succeeds: the job's policies about ends could not act.
        document["restartPolicy"] = "Never"
    environment: list[dict[str, str]] = []
    if "env" in spec.plugins:
        environment += [{"name": "VC_TASK_INDEX", "value": str(index)}, {"name": "VK_TASK_INDEX", "value": str(index)}]
    if "svc" in spec.plugins:
        environment += [{"name": variable, "value": value} for variable, value in service_variables(job, spec).items()]
        document.setdefault("hostname", name)
        document.setdefault("subdomain", job.name)
    volumes, mounts = _volumes(spec)
    if volumes:
        document["volumes"] = [*(document.get("volumes") or []), *volumes]
    for group in ("initContainers", "containers"):
        if document.get(group):
            document[group] = [
                _container(container, environment=environment, mounts=mounts) for container in document[group]
            ]
    return document


def _ends_matter(spec: JobSpec, task: Task) -> bool:
    return any(
        policy.exit_code is not None or END_EVENTS & {policy.event, *policy.events}
        for policy in (*task.policies, *spec.policies)
    )


def _container(
    container: Mapping[str, Any], *, environment: list[dict[str, str]], mounts: list[dict[str, str]]
) -> dict[str, Any]:
    document = dict(container)
    given = {item.get("name") for item in document.get("env") or []}
    added = [item for item in environment if item["name"] not in given]
    if added:
        document["env"] = [*(document.get("env") or []), *added]
    if mounts:
        document["volumeMounts"] = [*(document.get("volumeMounts") or []), *mounts]
    return document


def _volumes(spec: JobSpec) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    volumes: dict[str, dict[str, Any]] = {}
    mounts = []
    for number, volume in enumerate(spec.volumes):
        name = volume.volume_claim_name or f"volume-{number}"
        source: dict[str, Any] = (
            {"persistentVolumeClaim": {"claimName": volume.volume_claim_name}}
            if volume.volume_claim_name
            else {"emptyDir": {}}
        )
        volumes[name] = {"name": name, **source}
        mounts.append({"name": name, "mountPath": volume.mount_path})
    return list(volumes.values()), mounts


def service_variables(job: Workload, spec: JobSpec) -> dict[str, str]:
    """The plugin svc's variables: ``VC_<TASK>_HOSTS`` and ``VC_<TASK>_NUM`` for every task."""
    variables: dict[str, str] = {}
    for task in spec.tasks:
        prefix = f"VC_{task.name.replace('-', '_').upper()}"
        hosts = [f"{pod_name(job.name, task.name, index)}.{job.name}" for index in range(task.replicas)]
        variables[f"{prefix}_HOSTS"] = ",".join(hosts)
        variables[f"{prefix}_NUM"] = str(task.replicas)
    return variables


def service_of(job: Workload) -> Create:
    """The headless Service that gives the job's pods their host names."""
    selector = {JOB_NAME: job.name, JOB_NAMESPACE: job.namespace}
    return Create(
        kind=SERVICES,
        namespace=job.namespace,
        name=job.name,
        document={
            "metadata": {"name": job.name, "namespace": job.namespace, "ownerReferences": [owner_reference(job)]},
            "spec": {
                "clusterIP": "None",
                "selector": selector,
                "publishNotReadyAddresses": True,
                "ports": [{"name": "placeholder-volcano", "port": 1, "protocol": "TCP"}],
            },
        },
        owner_uid=job.uid,
    )


__all__ = [
    "VCJOBS",
    "group_name",
    "group_spec",
    "owner_reference",
    "pod_of",
    "podgroup_of",
    "service_of",
    "service_variables",
]
