"""What stands around pods and nodes: HyperNodes, claims, volumes, storage classes, disruption budgets."""

from collections.abc import Mapping
from typing import Any

from muster.decide.projection.metadata import label_selector, requirements_of
from muster.model.budgets import Budget
from muster.model.pods import NodeTerm
from muster.model.topology import HyperMember, HyperNode
from muster.model.volumes import Claim, StorageClass, Volume

SELECTED_NODE = "volume.kubernetes.io/selected-node"
WAITS = "WaitForFirstConsumer"


def project_hypernode(raw: Any) -> HyperNode:
    """The model of a HyperNode whose spec is plain JSON."""
    spec = raw.spec
    return HyperNode(
        name=raw.metadata.name,
        tier=int(spec.get("tier") or 0),
        tier_name=str(spec.get("tierName") or ""),
        members=tuple(_member(item) for item in spec.get("members") or ()),
    )


def _member(item: Mapping[str, Any]) -> HyperMember:
    selector = item.get("selector") or {}
    by_labels = selector.get("labelMatch") is not None
    return HyperMember(
        hyper=item.get("type") == "HyperNode",
        name=str((selector.get("exactMatch") or {}).get("name") or ""),
        pattern=str((selector.get("regexMatch") or {}).get("pattern") or ""),
        labels=label_selector(selector.get("labelMatch")),
        by_labels=by_labels,
    )


def project_claim(raw: Any) -> Claim:
    """The model of a PersistentVolumeClaim whose spec and status are plain JSON."""
    metadata, spec, phase = raw.metadata, raw.spec, raw.status.get("phase") or "Pending"
    return Claim(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        volume=str(spec.get("volumeName") or ""),
        bound=phase == "Bound",
        storage_class=str(spec.get("storageClassName") or ""),
        selected_node=metadata.annotations.get(SELECTED_NODE, ""),
        terminating=metadata.deletion_timestamp is not None,
        lost=phase == "Lost",
    )


def project_volume(raw: Any) -> Volume:
    """The model of a PersistentVolume whose spec is plain JSON."""
    required = ((raw.spec.get("nodeAffinity") or {}).get("required")) or {}
    return Volume(
        name=raw.metadata.name,
        resource_version=raw.metadata.resource_version,
        nodes=tuple(
            NodeTerm(
                labels=requirements_of(term.get("matchExpressions")), fields=requirements_of(term.get("matchFields"))
            )
            for term in required.get("nodeSelectorTerms") or ()
        ),
    )


def project_storage_class(raw: Any) -> StorageClass:
    """The model of a StorageClass."""
    return StorageClass(name=raw.metadata.name, waits_for_pod=raw.volume_binding_mode == WAITS)


def project_budget(raw: Any) -> Budget:
    """The model of a PodDisruptionBudget whose spec and status are plain JSON."""
    metadata, spec, status = raw.metadata, raw.spec, raw.status
    counted = int(status.get("observedGeneration") or 0) >= (metadata.generation or 0)
    selector = spec.get("selector")
    return Budget(
        namespace=metadata.namespace,
        name=metadata.name,
        selector=label_selector(selector),
        selects_nothing=selector is None,
        allowed=int(status.get("disruptionsAllowed") or 0) if counted else 0,
        unready_are_free=spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow",
    )
