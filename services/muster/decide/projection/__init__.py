"""From Kubernetes objects to the model: what of an object matters to Muster, in exact units.

    decoded object (attributes as in the API, snake_case) ──► Pod, Node, PodGroup, Queue, Workload, Namespace, PriorityClass

Pods and nodes come as narrow structs; PodGroups, queues and jobs with `spec` and `status` as plain JSON. Two objects
that differ only in what does not matter project to equal structs, so a reader is woken by real changes alone.
"""

from muster.decide.projection.groups import (
    project_namespace,
    project_podgroup,
    project_priority_class,
    project_queue,
    project_workload,
)
from muster.decide.projection.nodes import project_node
from muster.decide.projection.pods import project_pod
from muster.decide.projection.requests import pod_request
from muster.decide.projection.surroundings import (
    project_budget,
    project_claim,
    project_hypernode,
    project_storage_class,
    project_volume,
)

__all__ = [
    "pod_request",
    "project_budget",
    "project_claim",
    "project_hypernode",
    "project_namespace",
    "project_node",
    "project_pod",
    "project_podgroup",
    "project_priority_class",
    "project_queue",
    "project_storage_class",
    "project_volume",
    "project_workload",
]
