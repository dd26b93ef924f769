"""What stands around pods, joined into their shapes: claims and their volumes; HyperNodes go along.

claim bound ──► its volume's node affinity restricts nodes
unbound, a node selected ──► that node only (the volume is being made there)
unbound, waits for its first pod ──► where a volume is, or can be made (see `muster.decide.volumes`)
unbound, else, or another pod has it for itself ──► the pod waits, with a reason that names the claim
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from muster.decide.reasons import Reason
from muster.decide.volumes import NO_SUPPLY, Supply, only_on, waits
from muster.model.budgets import Budget
from muster.model.pods import NodeTerm, Pod, Shape
from muster.model.quantity import format_bytes
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


def without_claims(shape: Shape) -> Shape:
    """The shape of a pod that is placed already: its claims decide nothing any more."""
    return msgspec.structs.replace(shape, claims=()) if shape.claims else shape


def with_volumes(pod: Pod, around: Surroundings, supply: Supply = NO_SUPPLY) -> tuple[Shape, Problem | None]:
    """The pod's shape with its claims resolved to the nodes that reach their volumes, and to volumes that are counted."""
    shape = pod.shape
    if not shape.claims:
        return shape, None
    nodes: list[tuple[NodeTerm, ...]] = []
    counted: dict[str, int] = {}
    for name in shape.claims:
        found = _nodes(pod, name, around, supply)
        if isinstance(found, Problem):
            return shape, found
        if found:
            nodes.append(found)
        for one in supply.asks.get(f"{pod.namespace}/{name}", ()):
            counted[one] = counted.get(one, 0) + 1
    request = shape.request
    if counted:
        extended = tuple(sorted((*request.extended, *counted.items())))
        request = msgspec.structs.replace(request, extended=extended)
    # Two claims that admit the same nodes are one restriction, in whatever order the pod names them.
    restricting = tuple(dict.fromkeys(nodes))
    return msgspec.structs.replace(shape, claims=(), volume_nodes=restricting, request=request), None


def _nodes(pod: Pod, name: str, around: Surroundings, supply: Supply) -> tuple[NodeTerm, ...] | Problem:
    key = f"{pod.namespace}/{name}"
    claim = around.claims.get(key)
    if claim is None:
        return Problem(
            Reason.CLAIM_MISSING, f"{pod.name} mounts the PersistentVolumeClaim {name}, which does not exist"
        )
    if claim.terminating:
        return Problem(
            Reason.CLAIM_MISSING, f"{pod.name} mounts the PersistentVolumeClaim {name}, which is being deleted"
        )
    holder = supply.holders.get(key)
    if holder is not None and holder.uid != pod.uid:
        has = "uses it" if holder.uses else "waits to use it first"
        return Problem(
            Reason.CLAIM_IN_USE,
            f"the PersistentVolumeClaim {name} of {pod.name} is for one pod at a time (ReadWriteOncePod), and {holder.key} {has}",
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
        return only_on(claim.selected_node)
    if key in supply.nodes:
        return supply.nodes[key]
    if waits(claim, around.storage_classes):
        asked = f"{format_bytes(claim.size)}, {', '.join(claim.access_modes)}" if claim.access_modes else "as it asks"
        return Problem(
            Reason.CLAIM_UNBOUND,
            f"no unbound volume of StorageClass {claim.storage_class} suits the PersistentVolumeClaim {name} of {pod.name}"
            f" ({asked}), and the class makes none",
        )
    named = f" of StorageClass {claim.storage_class}" if claim.storage_class else ""
    return Problem(
        Reason.CLAIM_UNBOUND, f"the PersistentVolumeClaim {name} of {pod.name} waits to be bound to a volume{named}"
    )
