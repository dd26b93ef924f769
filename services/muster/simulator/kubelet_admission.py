"""Whether a node takes a pod that was bound to it: the checks kubelet makes before it starts anything.

In kubelet's order: resources, node selector and affinity, host ports, taints that evict. Device plugins come after. An extended
resource that the node does not offer at all is not checked, as in kubelet (it is left to whoever bound the pod).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Pod = Mapping[str, Any]
NATIVE = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the node does not take a pod: status.reason and status.message."""

    reason: str
    message: str


def refusal(
    pod: Pod,
    *,
    node: Mapping[str, Any],
    requests: Mapping[str, int],
    used: Mapping[str, int],
    pods: Iterable[Pod],
    allocatable: Mapping[str, int],
) -> Refusal | None:
    """The first reason against a pod, or None.

    `node`: the Node object. `used`, `allocatable`: amounts in the units of `pod_requests`; both count ``pods``.
    `pods`: what the node has admitted and not yet seen end.
    """
    for name, asked in {"pods": 1, **requests}.items():
        if name not in allocatable and name not in NATIVE:
            continue
        taken, capacity = used.get(name, 0), allocatable.get(name, 0)
        if taken + asked > capacity:
            numbers = f"requested: {asked}, used: {taken}, capacity: {capacity}"
            return Refusal(f"OutOf{name}", f"Node didn't have enough resource: {name}, {numbers}")
    if not selected(pod, node):
        return Refusal(
            "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
        )
    ports = host_ports(pod)
    if ports and not {port for other in pods for port in host_ports(other)}.isdisjoint(ports):
        return Refusal(
            "NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
        )
    tolerations = pod["spec"].get("tolerations") or ()
    for taint in node["spec"].get("taints") or ():
        if taint["effect"] == "NoExecute" and not any(tolerates(toleration, taint) for toleration in tolerations):
            return Refusal("TaintToleration", "Predicate TaintToleration failed: node(s) had untolerated taint(s)")
    return None


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether a toleration matches a taint."""
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint["effect"]:
        return False
    if key and key != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")


def selected(pod: Pod, node: Mapping[str, Any]) -> bool:
    """Whether the node has what spec.nodeSelector and the required node affinity ask for."""
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    spec = pod["spec"]
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and _all_hold(term.get("matchExpressions") or (), labels)
        and _all_hold(term.get("matchFields") or (), fields)
        for term in required["nodeSelectorTerms"]
    )


def host_ports(pod: Pod) -> list[tuple[str, int]]:
    """(protocol, port) of every host port."""
    host_network = bool(pod["spec"].get("hostNetwork"))
    return [
        (port.get("protocol", "TCP"), port.get("hostPort") or port["containerPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("hostPort") or host_network
    ]


def _all_hold(requirements: Sequence[Mapping[str, Any]], values: Mapping[str, str]) -> bool:
    return all(_holds(requirement, values.get(requirement["key"])) for requirement in requirements)


def _holds(requirement: Mapping[str, Any], value: str | None) -> bool:
    wanted: Sequence[str] = requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return _number(value) is not None and int(value or 0) > int(wanted[0])
        case "Lt":
            return _number(value) is not None and int(value or 0) < int(wanted[0])
        case _:
            return False


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and value.lstrip("-").isdigit() else None
