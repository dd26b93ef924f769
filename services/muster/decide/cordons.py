"""Rule G of the commit protocol: what open entries of nodes call for, and what they mean to whoever places pods.

    cordon ──► STATE shows our cordon, and no pod at or past it ──► removable ──► the node is gone ──► node-close
      │   └──► a pod came before it, or somebody lifted it ──┐           │
      └──► not written in time ─────────────────────────────►└► uncordon ◄┘ ──► STATE shows it, the removal grace has passed ──► node-close

While a node has an open entry nothing is committed to it: the snapshot withholds it. A node that carries our marks without
an entry (the LEDGER was lost) is withheld too, and given back: nobody knows any more what was promised about it.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from muster.decide.commitments import LedgerView, NodePromise, NodeVerb, reached
from muster.model.ledger import NodeClose, NodeEntry, Removable, Uncordon
from muster.model.nodes import Node
from muster.model.pods import Pod
from muster.model.units import NodeName, Sequence

OWNER = "muster"
"""Who cordoned a node, by its annotation."""
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
SYSTEM_OWNERS = frozenset({"DaemonSet", "Node"})
"""Owners of pods that come with a node and go with it."""

BY_HAND, OCCUPIED, NOT_WRITTEN, UNKNOWN, OBSERVE = "BY_HAND", "OCCUPIED", "NOT_WRITTEN", "UNKNOWN", "OBSERVE"
"""Why the committer itself gives a node back."""


def keeps_node(pod: Pod) -> bool:
    """Whether a node with this pod is not empty: it holds room there, and is no DaemonSet's or mirror pod."""
    return pod.holds_room and (pod.owner is None or pod.owner.kind not in SYSTEM_OWNERS)


def marked(node: Node) -> bool:
    """Whether the node carries a mark of ours."""
    return node.removable or (node.cordoned is not None and node.cordoned.owner == OWNER)


def withheld(node: Node, promise: NodePromise | None) -> Node:
    """The node as a snapshot has it: with the reason why nothing may be placed on it, if there is one."""
    if promise is not None and promise.node_uid in {"", node.uid}:
        why = "is being given back" if promise.verb is NodeVerb.UNCORDON else "is cordoned: it was idle"
    elif marked(node):
        why = "carries a cordon of ours that no entry tells of"
    else:
        why = ""
    return node if node.withheld == why else msgspec.structs.replace(node, withheld=why)


def given_back(node: Node) -> Node:
    """The node as it will be once it is given back; for looking at what would fit then.

    The taint of a cordon goes with it: Kubernetes adds and removes that by itself.
    """
    if node.cordoned is None:
        return msgspec.structs.replace(node, withheld="")
    taints = tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE_TAINT)
    return msgspec.structs.replace(node, withheld="", unschedulable=False, taints=taints)


def written(promise: NodePromise, node: Node) -> bool:
    """Whether STATE shows the write that the entry calls for."""
    if node.fence < promise.sequence:
        return False
    if promise.verb is NodeVerb.UNCORDON:
        return node.cordoned is None and not node.removable
    return promise.verb is NodeVerb.CORDON or node.removable


class Surrounds(msgspec.Struct, frozen=True, kw_only=True):
    """What the committer sees around the nodes with open entries."""

    nodes: Mapping[NodeName, Node]
    marked: Collection[NodeName]
    """Those that carry a mark of ours."""
    standing: Mapping[NodeName, tuple[Pod, ...]]
    """Pods that hold room on them."""
    named: frozenset[NodeName]
    """Nodes that open entries of gangs name."""
    complete: str
    """Every pod event up to this resourceVersion is in the view; '' while nothing is promised."""
    versions: Mapping[Sequence, str]
    """The first resourceVersion of each node that showed its cordon."""
    rested: Mapping[Sequence, float]
    """For how many seconds STATE has shown the write of each cordon and uncordon."""
    now: float
    """Unix seconds."""
    acts: bool = True
    """Whether the policy lets nodes be cordoned; where it does not, all are given back."""
    paused: bool = False
    """No node becomes removable meanwhile."""
    settle: float = 0.0
    """Seconds that a cordon has to be seen before the node may be removed. A courtesy: nothing keeps a scheduler that has not
    heard of the cordon from binding to the node, so it is given time to hear."""
    grace: float = 60.0
    """Seconds that a removal which was decided before the node was given back may take."""
    deadline: float = 60.0
    """Seconds within which a cordon has to be written."""


def settle_nodes(promises: Mapping[NodeName, NodePromise], around: Surrounds) -> Iterator[NodeEntry]:
    """The entries that follow now, one a node at the most."""
    for name, promise in promises.items():
        node = around.nodes.get(name)
        if node is None or node.uid != promise.node_uid:
            yield NodeClose(node=name, entry=promise.sequence, outcome="removed")
        elif promise.verb is NodeVerb.UNCORDON:
            rested = not promise.labelled or around.rested.get(promise.sequence, 0.0) >= around.grace
            if written(promise, node) and rested and not node.terminating:
                yield NodeClose(node=name, entry=promise.sequence, outcome="returned")
        elif entry := _follows(promise, node, around):
            yield entry
    for name in sorted(around.marked):
        node = around.nodes.get(name)
        if name not in promises and node is not None and marked(node) and not node.terminating:
            yield Uncordon(
                node=name,
                node_uid=node.uid,
                reason=UNKNOWN,
                message="it carries our cordon, but no entry of the LEDGER tells why",
                labelled=True,
            )


def _follows(promise: NodePromise, node: Node, around: Surrounds) -> NodeEntry | None:
    """What follows of a cordon, or of a node that may be removed."""
    if why := _to_give_back(promise, node, around):
        return Uncordon(node=node.name, node_uid=node.uid, reason=why[0], message=why[1])
    if promise.verb is not NodeVerb.CORDON or around.paused or not written(promise, node):
        return None
    # Its pods have to be known at or past the version that shows the cordon: who came before it is seen then.
    if around.rested.get(promise.sequence, 0.0) < around.settle:
        return None
    shown = around.versions.get(promise.sequence, node.resource_version)
    if not around.complete or not reached(around.complete, shown):
        return None
    return Removable(node=node.name, cordon=promise.sequence, freshness=around.complete)


def _to_give_back(promise: NodePromise, node: Node, around: Surrounds) -> tuple[str, str] | None:
    if not around.acts:
        return OBSERVE, "actions.cordon of the policy is observe: no node is held cordoned"
    if node.fence >= promise.sequence and (not node.unschedulable or node.cordoned is None):
        return BY_HAND, "somebody lifted its cordon"
    here = [pod for pod in around.standing.get(node.name, ()) if keeps_node(pod)]
    if here:
        return OCCUPIED, f"{here[0].key} stands on it"
    if node.name in around.named:
        return OCCUPIED, "a job is being placed on it"
    if promise.verb is NodeVerb.CORDON and node.fence < promise.sequence and around.now - promise.at > around.deadline:
        return NOT_WRITTEN, f"it was not cordoned within {around.deadline:.0f} s"
    return None


def named_nodes(view: LedgerView) -> frozenset[NodeName]:
    """Nodes that open entries of gangs name, and those of room that is held for gangs that moved."""
    slots = [slot for entry in view.open.values() for slot in entry.slots]
    rooms = [one for entry in view.open.values() for one in entry.nominated]
    rooms += [one.nominated for one in view.returning.values()]
    return frozenset(slot.node for slot in (*slots, *(slot for one in rooms for slot in one.slots)))
