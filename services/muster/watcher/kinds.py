"""What the watcher follows: which Kubernetes kind becomes which STATE kind, and how.

A node whose resourceVersion alone moved (a heartbeat) is not published again: nothing that anyone decides by has changed.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from muster.bus.messages import StateKind
from muster.decide.projection import (
    project_budget,
    project_claim,
    project_hypernode,
    project_namespace,
    project_node,
    project_pod,
    project_podgroup,
    project_priority_class,
    project_queue,
    project_storage_class,
    project_volume,
    project_workload,
)
from muster.kube.decoding import KINDS, KindInfo, RawObject
from muster.model.policy import Policy


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """One followed kind."""

    name: str
    """Key of its freshness and label of its metrics."""
    info: KindInfo[Any]
    state_kind: StateKind
    prefix: str = ""
    """Goes before the object's key in STATE: workloads of two kinds share one STATE kind."""
    project: Callable[[Any], msgspec.Struct]
    ignore_version: bool = False
    """Whether an object of which only the resourceVersion differs is unchanged."""

    def key(self, key: str) -> str:
        """The STATE key of an object's key."""
        return f"{self.prefix}{key}"


def plain(name: str) -> KindInfo[Any]:
    """A known kind, decoded with spec and status as plain JSON: the controller compares the whole status."""
    known = KINDS[name]
    return KindInfo(
        name=known.name,
        group=known.group,
        version=known.version,
        plural=known.plural,
        kind=known.kind,
        namespaced=known.namespaced,
        struct=RawObject,
    )


def watched_kinds(policy: Policy) -> tuple[Watched, ...]:
    """Everything the watcher follows. `policy` says which resources are cards."""
    cards = policy.card_resources
    return (
        Watched(
            name="node",
            info=KINDS["nodes"],
            state_kind="node",
            project=lambda raw: project_node(raw, card_resources=cards),
            ignore_version=True,
        ),
        Watched(
            name="pod",
            info=KINDS["pods"],
            state_kind="pod",
            project=lambda raw: project_pod(raw, card_resources=cards),
        ),
        Watched(
            name="podgroup",
            info=plain("podgroups.scheduling.volcano.sh"),
            state_kind="podgroup",
            project=project_podgroup,
        ),
        Watched(
            name="queue",
            info=plain("queues.scheduling.volcano.sh"),
            state_kind="queue",
            project=lambda raw: project_queue(raw, card_resources=cards),
        ),
        Watched(
            name="vcjob",
            info=KINDS["jobs.batch.volcano.sh"],
            state_kind="workload",
            prefix="vcjob/",
            project=lambda raw: project_workload(raw, kind="vcjob"),
        ),
        Watched(
            name="job",
            info=KINDS["jobs.batch"],
            state_kind="workload",
            prefix="job/",
            project=lambda raw: project_workload(raw, kind="job"),
        ),
        Watched(name="namespace", info=KINDS["namespaces"], state_kind="namespace", project=project_namespace),
        Watched(
            name="priorityclass",
            info=KINDS["priorityclasses"],
            state_kind="priorityclass",
            project=project_priority_class,
        ),
        Watched(
            name="hypernode",
            info=KINDS["hypernodes.topology.volcano.sh"],
            state_kind="hypernode",
            project=project_hypernode,
        ),
        Watched(
            name="claim",
            info=KINDS["persistentvolumeclaims"],
            state_kind="claim",
            project=project_claim,
            ignore_version=True,
        ),
        Watched(
            name="volume",
            info=KINDS["persistentvolumes"],
            state_kind="volume",
            project=project_volume,
            ignore_version=True,
        ),
        Watched(
            name="storageclass",
            info=KINDS["storageclasses.storage.k8s.io"],
            state_kind="storageclass",
            project=project_storage_class,
        ),
        Watched(
            name="pdb",
            info=KINDS["poddisruptionbudgets.policy"],
            state_kind="pdb",
            project=project_budget,
        ),
    )
