"""What stands around pods and nodes: HyperNodes, claims, volumes, storage classes, disruption budgets."""

from collections.abc import Mapping
from typing import Any

from muster.decide.projection.metadata import FENCE, label_selector, requirements_of
from muster.model.budgets import Budget
from muster.model.pods import NodeTerm, Requirement
from muster.model.quantity import QuantityError, to_bytes, whole_number
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
    asked = (spec.get("resources") or {}).get("requests") or {}
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
        access_modes=tuple(sorted(map(str, spec.get("accessModes") or ()))),
        size=_bytes(asked.get("storage")),
        volume_mode=str(spec.get("volumeMode") or "Filesystem"),
        selector=label_selector(spec.get("selector")),
        fence=whole_number(metadata.annotations.get(FENCE)),
    )


def project_volume(raw: Any) -> Volume:
    """The model of a PersistentVolume whose spec and status are plain JSON."""
    metadata, spec = raw.metadata, raw.spec
    required = ((spec.get("nodeAffinity") or {}).get("required")) or {}
    kept_for = spec.get("claimRef") or {}
    free = raw.status.get("phase") == "Available" and not kept_for and metadata.deletion_timestamp is None
    return Volume(
        name=metadata.name,
        resource_version=metadata.resource_version,
        nodes=tuple(
            NodeTerm(
                labels=requirements_of(term.get("matchExpressions")), fields=requirements_of(term.get("matchFields"))
            )
            for term in required.get("nodeSelectorTerms") or ()
        ),
        storage_class=str(spec.get("storageClassName") or ""),
        size=_bytes((spec.get("capacity") or {}).get("storage")),
        access_modes=tuple(sorted(map(str, spec.get("accessModes") or ()))),
        volume_mode=str(spec.get("volumeMode") or "Filesystem"),
        labels=dict(metadata.labels) if free else {},
        free=free,
        claim=f"{kept_for.get('namespace') or ''}/{kept_for['name']}" if kept_for.get("name") else "",
        claim_uid=str(kept_for.get("uid") or ""),
    )


def _bytes(quantity: Any) -> int:
    """0 for what is not given, or is no quantity: the API server lets neither happen."""
    try:
        return to_bytes(quantity) if quantity is not None else 0
    except QuantityError:
        return 0


def project_storage_class(raw: Any) -> StorageClass:
    """The model of a StorageClass."""
    return StorageClass(
        name=raw.metadata.name,
        waits_for_pod=raw.volume_binding_mode == WAITS,
        provisioner=raw.provisioner,
        topologies=tuple(
            NodeTerm(
                labels=tuple(
                    Requirement(key=str(one["key"]), operator="In", values=tuple(sorted(map(str, one["values"]))))
                    for one in term.get("matchLabelExpressions") or ()
                )
            )
            for term in raw.allowed_topologies
        ),
    )


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
