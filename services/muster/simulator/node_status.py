"""What a kubelet reports about its node: the Node object it registers, the status it keeps up to date, its lease.

The card mode is declared in the annotation ``muster.dev/card-mode``; labels are those of NVIDIA's feature discovery. Link groups and
UUIDs of the cards are annotated too (``muster.dev/card-link-groups``, ``/card-uuids``), index by index.
"""

from collections.abc import Mapping
from typing import Any

from muster.model.nodes import CardMode
from muster.simulator.clock import micro_timestamp, timestamp
from muster.simulator.cluster import NodeSpec
from muster.simulator.device_plugin import Advertisement

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
CARD_MODE = "muster.dev/card-mode"
LINK_GROUPS = "muster.dev/card-link-groups"
CARD_UUIDS = "muster.dev/card-uuids"
EPHEMERAL_STORAGE = "1000Gi"
KUBELET_VERSION = "v1.36.2"


def node_object(spec: NodeSpec, *, address: str, offer: Advertisement, now: float) -> dict[str, Any]:
    """The Node as it is registered: not ready yet."""
    status = node_status(spec, address=address, offer=offer, ready=False, now=now, old=None)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": node_labels(spec), "annotations": node_annotations(spec, offer)},
        "spec": {"taints": [_taint(taint.key, taint.value, taint.effect) for taint in spec.taints]}
        if spec.taints
        else {},
        "status": status,
    }


def node_labels(spec: NodeSpec) -> dict[str, str]:
    """The node's own labels over the usual ones."""
    labels = {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    if spec.cards:
        labels |= {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": spec.gpu_model.replace(" ", "-"),
            "nvidia.com/gpu.memory": str(spec.cards[0].memory_mib),
            "nvidia.com/gpu.count": str(len(spec.cards)),
        }
    return labels | spec.labels


def node_annotations(spec: NodeSpec, offer: Advertisement) -> dict[str, str]:
    """The declared card mode, the plugin's annotations, and what the simulator tells about the cards."""
    annotations = dict(spec.annotations)
    if spec.card_mode is not None:
        annotations[CARD_MODE] = CardMode(spec.card_mode).value
    if spec.cards:
        annotations[LINK_GROUPS] = ",".join(str(card.link_group) for card in spec.cards)
        annotations[CARD_UUIDS] = ",".join(card.uuid for card in spec.cards)
    return annotations | {key: value for key, value in offer.annotations.items() if value is not None}


def node_status(
    spec: NodeSpec, *, address: str, offer: Advertisement, ready: bool, now: float, old: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The whole status. `old`: the status before, whose transition times are kept where nothing changed."""
    common = {
        "cpu": f"{spec.cpu}m" if spec.cpu % 1000 else str(spec.cpu // 1000),
        "memory": f"{spec.memory // 1024}Ki",
        "ephemeral-storage": EPHEMERAL_STORAGE,
        "pods": str(spec.max_pods),
    }
    more = {name: str(value) for name, value in spec.resources.items()}
    return {
        "capacity": common | more | {name: str(value) for name, value in offer.capacity.items()},
        "allocatable": common | more | {name: str(value) for name, value in offer.allocatable.items()},
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": spec.name}],
        "conditions": _conditions(ready=ready, now=now, old=(old or {}).get("conditions") or ()),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {
            "architecture": "amd64",
            "operatingSystem": "linux",
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "containerRuntimeVersion": "containerd://simulated",
            "kernelVersion": "simulated",
            "osImage": "simulated",
            "machineID": spec.name,
            "systemUUID": spec.name,
            "bootID": spec.name,
        },
    }


def allocatable_amounts(spec: NodeSpec, offer: Advertisement) -> dict[str, int]:
    """What pods may use, in the units of `pod_requests`."""
    native = {
        "cpu": int(spec.cpu),
        "memory": int(spec.memory),
        "ephemeral-storage": 1000 * 2**30,
        "pods": spec.max_pods,
    }
    return native | spec.resources | offer.allocatable


def lease_object(node: Mapping[str, Any], *, now: float) -> dict[str, Any]:
    """The node's lease, owned by its Node."""
    metadata = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": metadata["name"], "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": metadata["name"],
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro_timestamp(now),
        },
    }


def _taint(key: str, value: str, effect: str) -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect}


def _conditions(*, ready: bool, now: float, old: Any) -> list[dict[str, Any]]:
    before = {condition["type"]: condition for condition in old}
    wanted = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        if ready
        else ("Ready", "False", "KubeletNotReady", "container runtime network not ready"),
    )
    conditions: list[dict[str, Any]] = []
    for kind, status, reason, message in wanted:
        same = kind in before and before[kind]["status"] == status
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": timestamp(now),
                "lastTransitionTime": (before[kind].get("lastTransitionTime") if same else None) or timestamp(now),
            }
        )
    return conditions
