"""What stands around pods, joined into their shapes: claims and their volumes; HyperNodes go along.

claim bound ──► its volume's node affinity restricts nodes
unbound, a node selected ──► that node only (the volume is being made there)
unbound, else ──► the pod waits, with a reason that names the claim
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from muster.decide.reasons import Reason
from muster.model.budgets import Budget
from muster.model.pods import NodeTerm, Pod, Requirement, Shape
from muster.model.topology import HyperNode
from muster.model.volumes import Claim, StorageClass, Volume


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """STATE's projections beside pods, nodes and what asks for pods. Claims by ``namespace/name``, the others by name."""

    hypernodes: tuple[HyperNode, ...] = ()
    claims: Mapping[str, Claim] = {}
    volumes: Mapping[str, Volume] = {}
    storage_classes: Mapping[str, StorageClass] = {}
    budgets: tuple[Budget, ...] = ()


class Problem(NamedTuple):
    """Why a pod cannot be placed yet."""

    code: str
    message: str


def with_volumes(pod: Pod, around: Surroundings) -> tuple[Shape, Problem | None]:
    """The pod's shape with its claims resolved to the nodes that reach their volumes."""
    shape = pod.shape
    if not shape.claims:
        return shape, None
    nodes: list[tuple[NodeTerm, ...]] = []
    for name in shape.claims:
        found = _nodes(pod, name, around)
        if isinstance(found, Problem):
            return shape, found
        if found:
            nodes.append(found)
    return msgspec.structs.replace(shape, claims=(), volume_nodes=tuple(nodes)), None


def _nodes(pod: Pod, name: str, around: Surroundings) -> tuple[NodeTerm, ...] | Problem:
    claim = around.claims.get(f"{pod.namespace}/{name}")
    if claim is None:
        return Problem(
            Reason.CLAIM_MISSING, f"{pod.name} mounts the PersistentVolumeClaim {name}, which does not exist"
        )
    if claim.terminating:
        return Problem(
            Reason.CLAIM_MISSING, f"{pod.name} mounts the PersistentVolumeClaim {name}, which is being deleted"
        )
    if claim.lost:
        return Problem(
            Reason.CLAIM_UNBOUND, f"the PersistentVolumeClaim {name} of {pod.name} has lost its volume {claim.volume}"
        )
    if claim.bound:
        volume = around.volumes.get(claim.volume)
        if volume is None:
            return Problem(
                Reason.CLAIM_UNBOUND,
                f"the PersistentVolumeClaim {name} of {pod.name} is bound to the volume {claim.volume}, which does not exist",
            )
        return volume.nodes
    if claim.selected_node:
        there = Requirement(key="metadata.name", operator="In", values=(claim.selected_node,))
        return (NodeTerm(fields=(there,)),)
    kind = around.storage_classes.get(claim.storage_class)
    if kind is not None and kind.waits_for_pod:
        return Problem(
            Reason.VOLUME_UNSUPPORTED,
            f"the PersistentVolumeClaim {name} of {pod.name} is not bound, and its StorageClass {claim.storage_class} waits for"
            " a pod to be placed first, which is not supported yet; use a claim that is bound, or a class with Immediate binding",
        )
    named = f" of StorageClass {claim.storage_class}" if claim.storage_class else ""
    return Problem(
        Reason.CLAIM_UNBOUND, f"the PersistentVolumeClaim {name} of {pod.name} waits to be bound to a volume{named}"
    )
