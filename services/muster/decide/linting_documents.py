"""What documents, or the objects of a cluster, say of queues and jobs, as `muster.decide.linting_queues` judges them.

What cannot be read here is passed over: the lint of the single document tells it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.decide.linting_queues import Job, Surroundings
from muster.decide.projection.groups import STATES, limits_of
from muster.model.durations import DurationError, parse_duration
from muster.model.nodes import Node
from muster.model.policy import Policy
from muster.model.quantity import QuantityError
from muster.model.units import ONE_CARD, QueueName
from muster.model.workloads import Limits, PodGroup, PriorityClass, Queue, QueueState, Workload

SERVING = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"})
ENDING = frozenset({"Job"})
QUEUE_NAMES = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name", "volcano.sh/job-queue", "volcano.sh/queue")
MINIMUM_NAMES = ("scheduling.volcano.sh/group-min-member", "volcano.sh/job-min-available")
EXPECTED = "muster.dev/expected-duration"


def surroundings_of(documents: Iterable[Any], *, policy: Policy) -> Surroundings:
    """Everything among these documents that is judged together."""
    queues: list[Queue] = []
    classes: list[PriorityClass] = []
    jobs: list[Job] = []
    for document in documents:
        if not isinstance(document, Mapping) or not isinstance(document.get("metadata") or {}, Mapping):
            continue
        if not isinstance(document.get("spec") or {}, Mapping):
            continue
        kind, version = str(document.get("kind")), str(document.get("apiVersion"))
        if kind == "Queue" and version.startswith("scheduling.volcano.sh/"):
            queues += _queue(document, policy)
        elif kind == "PriorityClass":
            classes += _priority_class(document)
        elif kind in SERVING | ENDING:
            jobs += _job(document, kind, version, ours=policy.scheduler_names)
    return Surroundings(queues=tuple(queues), priority_classes=tuple(classes), jobs=tuple(jobs), policy=policy)


def _queue(document: Mapping[str, Any], policy: Policy) -> Iterable[Queue]:
    name = _name(document)
    spec, status = document.get("spec") or {}, document.get("status") or {}
    guarantee = spec.get("guarantee") or {}
    try:
        yield Queue(
            name=QueueName(name),
            parent=QueueName(str(spec["parent"])) if spec.get("parent") else None,
            weight=int(spec.get("weight") or 1),
            priority=int(spec.get("priority") or 0),
            guarantee=_limits(guarantee.get("resource") if isinstance(guarantee, Mapping) else None, policy),
            deserved=_limits(spec.get("deserved"), policy),
            capability=_limits(spec.get("capability"), policy),
            state=STATES.get(str(status.get("state") or "Open"), QueueState.UNKNOWN)
            if isinstance(status, Mapping)
            else QueueState.OPEN,
        )
    except (QuantityError, ValueError, TypeError):
        return


def _limits(named: Any, policy: Policy) -> Limits:
    return limits_of(named if isinstance(named, Mapping) else None, card_resources=policy.card_resources)


def _priority_class(document: Mapping[str, Any]) -> Iterable[PriorityClass]:
    value = document.get("value")
    if isinstance(value, int) and not isinstance(value, bool):
        yield PriorityClass(name=_name(document), value=value, global_default=document.get("globalDefault") is True)


def _job(document: Mapping[str, Any], kind: str, version: str, *, ours: frozenset[str]) -> Iterable[Job]:
    spec, metadata = document.get("spec") or {}, document.get("metadata") or {}
    annotations = _mapping(metadata.get("annotations"))
    template = _mapping(_mapping(spec.get("template")).get("spec"))
    volcano = version.startswith("batch.volcano.sh/")
    queue = str(spec.get("queue") or "") if volcano else ""
    queue = queue or next((str(annotations[name]) for name in QUEUE_NAMES if annotations.get(name)), "")
    scheduler = str(template.get("schedulerName") or "")
    if not (volcano or queue or scheduler) or (scheduler and scheduler not in ours):
        return
    yield Job(
        name=f"{kind} {metadata.get('namespace') or 'default'}/{_name(document)}",
        namespace=str(metadata.get("namespace") or "default"),
        queue=QueueName(queue or "default"),
        serves=kind in SERVING,
        priority_class=str(spec.get("priorityClassName") or template.get("priorityClassName") or ""),
        expected=_expected(annotations, spec),
        **_size(spec, annotations, volcano=volcano),
    )


def _size(spec: Mapping[str, Any], annotations: Mapping[str, Any], *, volcano: bool) -> dict[str, int]:
    if volcano:
        tasks = [task for task in spec.get("tasks") or () if isinstance(task, Mapping)]
        pods = sum(_whole(task.get("replicas"), 1) for task in tasks)
        return {"pods": pods, "minimum": _whole(spec.get("minAvailable"), pods)}
    pods = _whole(spec.get("parallelism", spec.get("replicas")), 1)
    named = next((annotations[name] for name in MINIMUM_NAMES if name in annotations), 1)
    return {"pods": pods, "minimum": _whole(named, 1)}


def _expected(annotations: Mapping[str, Any], spec: Mapping[str, Any]) -> float:
    for value in (annotations.get(EXPECTED), spec.get("runningEstimate"), spec.get("activeDeadlineSeconds")):
        if isinstance(value, str | int | float):
            try:
                return parse_duration(value)
            except DurationError:
                continue
    return 0.0


def surroundings_in(
    *,
    queues: Iterable[Queue],
    priority_classes: Iterable[PriorityClass],
    workloads: Iterable[Workload],
    podgroups: Iterable[PodGroup],
    nodes: Iterable[Node],
    pending: Mapping[str, int],
    policy: Policy,
) -> Surroundings:
    """Everything of a cluster that is judged together."""
    jobs = [
        job
        for one in workloads
        for job in _job(
            {
                "metadata": {"namespace": one.namespace, "name": one.name, "annotations": one.annotations},
                "spec": one.spec,
            },
            "Job",
            "batch.volcano.sh/v1alpha1" if one.kind == "vcjob" else "batch/v1",
            ours=policy.scheduler_names,
        )
        if not _ended(one)
    ]
    serving = [
        Job(
            name=f"{group.owner.kind} {group.namespace}/{group.owner.name}",
            namespace=group.namespace,
            queue=group.queue,
            serves=True,
            priority_class=group.priority_class,
        )
        for group in podgroups
        if group.owner is not None and group.owner.kind in SERVING
    ]
    cpu = memory = cards = 0
    for node in nodes:
        cpu, memory, cards = cpu + node.cpu, memory + node.memory, cards + len(node.cards) * ONE_CARD
    return Surroundings(
        queues=tuple(sorted(queues, key=lambda one: one.name)),
        all_queues=True,
        room=Limits(amounts={"cpu": cpu, "memory": memory, "gpu": cards}),
        jobs=tuple(sorted({*jobs, *serving}, key=lambda one: one.name)),
        priority_classes=tuple(sorted(priority_classes, key=lambda one: one.name)),
        all_classes=True,
        pending=pending,
        policy=policy,
    )


def _ended(job: Workload) -> bool:
    state = job.status.get("state")
    phase = str(state.get("phase") or "") if isinstance(state, Mapping) else ""
    conditions = job.status.get("conditions")
    over = isinstance(conditions, list) and any(
        isinstance(one, Mapping) and one.get("type") in {"Complete", "Failed"} and one.get("status") == "True"
        for one in conditions
    )
    return over or phase in {"Completed", "Failed", "Terminated", "Aborted"}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _whole(value: Any, default: int) -> int:
    text = str(value if value is not None else default)
    return int(text) if text.isdecimal() else default


def _name(document: Mapping[str, Any]) -> str:
    return str((document.get("metadata") or {}).get("name") or "")
