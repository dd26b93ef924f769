"""Queues: which one a gang belongs to, the two that must exist, and what their status tells.

    the job's own spec  ▷  its annotations  ▷  its Namespace's annotation  ▷  the default queue

``default`` written in a spec counts as nothing written: Volcano's CRDs fill it in, so it says nothing about a wish.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.decide.cards import GPU_CORE, GPU_MEMORY
from muster.decide.lifecycle.actions import QUEUES, Action, Create, Patch, merge_difference
from muster.model.pods import Pod
from muster.model.policy import Policy
from muster.model.units import QueueName
from muster.model.workloads import Namespace, PodGroup, Queue, QueueState

OBJECT_ANNOTATIONS = ("scheduling.volcano.sh/queue-name", "volcano.sh/job-queue", "volcano.sh/queue-name")
NAMESPACE_ANNOTATIONS = ("volcano.sh/queue", "scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")
DEFAULT = "default"
ROOT = "root"
PHASES = ("Pending", "Inqueue", "Running", "Unknown", "Completed")


def queue_of(written: str, annotations: Mapping[str, str], namespace: Namespace | None, *, policy: Policy) -> QueueName:
    """The queue of a gang. `written` is what its spec says; annotations are the job's, or the pod's."""
    if written and written != DEFAULT:
        return QueueName(written)
    for name in OBJECT_ANNOTATIONS:
        if annotations.get(name):
            return QueueName(annotations[name])
    for name in NAMESPACE_ANNOTATIONS:
        if namespace is not None and namespace.annotations.get(name):
            return QueueName(namespace.annotations[name])
    return QueueName(written or policy.default_queue)


def missing_queues(existing: Iterable[str], *, policy: Policy) -> tuple[Create, ...]:
    """The queues that must exist and do not: ``root`` and the default queue."""
    there = set(existing)
    wanted = dict.fromkeys((ROOT, policy.default_queue))
    return tuple(
        Create(
            kind=QUEUES,
            namespace="",
            name=name,
            document={"metadata": {"name": name}, "spec": {"weight": 1, "reclaimable": name != ROOT}},
        )
        for name in wanted
        if name not in there
    )


def allocated(pods: Iterable[Pod]) -> dict[str, str]:
    """What these pods hold, as a Kubernetes resource list; pods that hold no room count nothing."""
    amounts: dict[str, int] = {}

    def add(name: str, amount: int) -> None:
        if amount:
            amounts[name] = amounts.get(name, 0) + amount

    for pod in pods:
        if not pod.holds_room:
            continue
        request = pod.shape.request
        add("cpu", request.cpu)
        add("memory", request.memory)
        add("pods", 1)
        add(request.card_resource, request.cards)
        if request.share is not None:
            add(GPU_MEMORY, request.share.memory_mib)
            add(GPU_CORE, request.share.core_percent)
        for name, count in request.extended:
            add(name, count)
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in sorted(amounts.items())}


def reconcile_queue(
    queue: Queue, groups: Iterable[PodGroup], pods: Iterable[Pod], *, share: str | None = None
) -> tuple[Action, ...]:
    """Bring a queue's status up to date.

    Args:
        queue: the queue.
        groups: its PodGroups; their phases are counted.
        pods: the pods of those groups; what they hold is summed.
        share: cards that the queue is entitled to now, as the scheduler has it; None leaves what stands there.
    """
    counts = dict.fromkeys(PHASES, 0)
    for group in groups:
        phase = str(group.status.get("phase") or "Pending")
        counts[phase if phase in counts else "Unknown"] += 1
    live = sum(counts[phase] for phase in PHASES if phase != "Completed")
    state = queue.state
    if state is QueueState.CLOSING and not live:
        state = QueueState.CLOSED
    status: dict[str, Any] = {
        **queue.status,
        "state": state.value,
        **{phase.lower(): count for phase, count in counts.items()},
        "allocated": allocated(pods),
    }
    if share is not None:
        status["share"] = {"gpu": share}
    before = {**dict.fromkeys((phase.lower() for phase in PHASES), 0), **queue.status}
    difference = merge_difference(before, status)
    if not difference:
        return ()
    return (
        Patch(
            kind=QUEUES,
            namespace="",
            name=queue.name,
            body={"status": difference},
            resource_version=queue.resource_version,
            status=True,
        ),
    )
