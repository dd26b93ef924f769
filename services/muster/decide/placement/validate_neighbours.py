"""The validator's view of terms between pods: the plan is played in some order that Kubernetes would allow, in plain Python.

Pods are put down one after the other, each only where its own required terms, the anti-affinity of everyone who is there, and
its spread constraints allow it. Pods with spread constraints go first, into the emptiest domains; what is left over when nobody can
be put down any more is what the plan breaks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.model.gangs import MemberState
from muster.model.instructions import Place
from muster.model.nodes import Node
from muster.model.pods import NodeTerm, PodTerm, Requirement, Shape, SpreadConstraint
from muster.model.snapshot import Snapshot
from muster.model.units import NodeName

HOLDS = (MemberState.BOUND, MemberState.ASSUMED, MemberState.LEAVING)
HOSTNAME = "kubernetes.io/hostname"


class Pod(NamedTuple):
    """A pod as terms see it."""

    name: str
    node: Node
    namespace: str
    labels: Mapping[str, str]
    shape: Shape
    """Of one that is placed; of one that stands only its anti-affinity matters."""
    leaving: bool = False


def wrong_neighbours(snapshot: Snapshot, places: Sequence[Place], nodes: Mapping[NodeName, Node]) -> list[str]:
    """Terms between pods that these placements, taken together, break."""
    if not snapshot.pod_terms:
        return []
    there = list(_standing(snapshot, nodes))
    waiting = list(_placed(snapshot, places, nodes))
    while waiting:
        free = [pod for pod in waiting if not why_not(pod, there, nodes)]
        if not free:
            break
        # Who spreads comes first, where there are fewest; company of others may come later.
        chosen = min(free, key=lambda pod: (not pod.shape.spread, _crowd(pod, there), pod.name))
        waiting.remove(chosen)
        there.append(chosen)
    return [f"{pod.name} on {pod.node.name}: {why_not(pod, there, nodes)}" for pod in waiting]


def _standing(snapshot: Snapshot, nodes: Mapping[NodeName, Node]) -> Iterable[Pod]:
    for gang in snapshot.gangs:
        for member in gang.members:
            if member.node is not None and member.node in nodes and member.state in HOLDS:
                leaving = member.state is MemberState.LEAVING
                shape = Shape(pod_terms=member.pod_terms)
                yield Pod(member.name, nodes[member.node], gang.namespace, dict(member.labels), shape, leaving)
    for other in snapshot.occupants:
        if other.node in nodes and not other.promised:
            shape = Shape(pod_terms=other.pod_terms)
            yield Pod(other.key, nodes[other.node], other.key.split("/")[0], other.labels, shape, other.leaving)


def _placed(snapshot: Snapshot, places: Sequence[Place], nodes: Mapping[NodeName, Node]) -> Iterable[Pod]:
    gangs = {gang.key: gang for gang in snapshot.gangs}
    for place in places:
        gang = gangs.get(place.gang)
        shapes = {role.name: role.shape for role in gang.roles} if gang is not None else {}
        for slot in place.slots:
            if slot.node in nodes and slot.role in shapes:
                shape = shapes[slot.role]
                yield Pod(slot.pod, nodes[slot.node], shape.namespace, dict(shape.labels), shape)


def _domain(node: Node, key: str) -> str | None:
    return str(node.name) if key == HOSTNAME else node.labels.get(key)


def _about(term: PodTerm, holder: Pod, other: Pod) -> bool:
    spaces = term.namespaces or (holder.namespace,)
    if "*" not in spaces and other.namespace not in spaces:
        return False
    return _selected(term.labels, other.labels)


def _selected(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    for one in requirements:
        value = labels.get(one.key)
        if one.operator == "In" and value not in one.values:
            return False
        if one.operator == "NotIn" and value in one.values:
            return False
        if one.operator == "Exists" and value is None:
            return False
        if one.operator == "DoesNotExist" and value is not None:
            return False
    return True


def _together(first: Pod, second: Pod, key: str) -> bool:
    domain = _domain(first.node, key)
    return domain is not None and domain == _domain(second.node, key)


def why_not(pod: Pod, there: Sequence[Pod], nodes: Mapping[NodeName, Node]) -> str:
    """What keeps the pod from being put down where it is meant to go, beside these; '' for nothing."""
    wanted = [term for term in pod.shape.pod_terms if not term.weight and not term.anti]
    # Only pods that meet every term count, and only where they have a domain.
    met = [other for other in there if all(_about(term, pod, other) for term in wanted)]
    placed = [other for other in met if any(_domain(other.node, term.topology_key) is not None for term in wanted)]
    first = not placed and all(_about(term, pod, pod) for term in wanted)
    for term in wanted:
        near = any(_together(pod, other, term.topology_key) for other in met)
        if _domain(pod.node, term.topology_key) is None or not (near or first):
            return f"no pod that its affinity asks for is in its {term.topology_key}"
    for term in pod.shape.pod_terms:
        for other in there if term.anti and not term.weight else ():
            if _about(term, pod, other) and _together(pod, other, term.topology_key):
                return f"anti-affinity keeps it from {other.name}"
    for other in there:
        for term in other.shape.pod_terms:
            if term.anti and not term.weight and _about(term, other, pod) and _together(pod, other, term.topology_key):
                return f"anti-affinity of {other.name} keeps it away"
    for constraint in pod.shape.spread:
        if constraint.required and not _even(pod, constraint, there, nodes):
            return f"more than {constraint.max_skew} above the emptiest {constraint.topology_key}"
    return ""


def _even(pod: Pod, constraint: SpreadConstraint, there: Sequence[Pod], nodes: Mapping[NodeName, Node]) -> bool:
    keys = [one.topology_key for one in pod.shape.spread if one.required]
    counted = {
        name for name, node in nodes.items() if all(_domain(node, key) is not None for key in keys) and _may(pod, node)
    }
    counts = {_domain(nodes[name], constraint.topology_key): 0 for name in counted}
    for other in there:
        if other.node.name in counted and not other.leaving and other.namespace == pod.namespace:
            counts[_domain(other.node, constraint.topology_key)] += _selected(constraint.labels, other.labels)
    mine = _domain(pod.node, constraint.topology_key)
    if pod.node.name not in counted:
        return False
    least = min(counts.values()) if len(counts) >= constraint.min_domains else 0
    return counts[mine] + _selected(constraint.labels, pod.labels) - least <= constraint.max_skew


def _may(pod: Pod, node: Node) -> bool:
    """Its node selector and required node affinity leave this node: others do not count for spread."""
    if any(node.labels.get(key) != value for key, value in pod.shape.node_selector):
        return False
    return not pod.shape.required_nodes or any(_term_holds(term, node) for term in pod.shape.required_nodes)


def _term_holds(term: NodeTerm, node: Node) -> bool:
    if not term.labels and not term.fields:
        return False
    return all(_compared(one, node.labels.get(one.key)) for one in term.labels) and all(
        _compared(one, str(node.name)) for one in term.fields
    )


def _compared(requirement: Requirement, value: str | None) -> bool:
    if requirement.operator in {"Gt", "Lt"}:
        try:
            difference = int(value or "") - int(requirement.values[0])
        except (ValueError, IndexError):
            return False
        return difference > 0 if requirement.operator == "Gt" else difference < 0
    return _selected((requirement,), {} if value is None else {requirement.key: value})


def _crowd(pod: Pod, there: Sequence[Pod]) -> int:
    """How many it would be counted with."""
    return sum(
        sum(_selected(one.labels, other.labels) and _together(pod, other, one.topology_key) for other in there)
        for one in pod.shape.spread
    )
