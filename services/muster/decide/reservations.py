"""Reservation pods: how cards are shared on nodes of mode `reserved`, where the device plugin gives out whole cards only.

    a share is decided on card group i of a node ─► its reservation pod holds nvidia.com/gpu: 1 and reports the card's UUID
                                                 ─► the share is bound, and sees that card alone (decide.assignment)
    the last share of the group is gone          ─► the reservation pod is deleted

The index of a card is the number of its group there; which card it is, only the reservation pod knows. Its name follows from
node and group, so it is found again after any restart, and never made twice. It is bound from the start, belongs to no gang, and
is deleted only under the version that a leader saw: a later leader's touch stops the delete of a former one.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from muster.decide.assignment import CARDS, cards_text
from muster.model.nodes import CardMode, Node
from muster.model.pods import CardUse, Pod
from muster.model.quantity import MOST_DIGITS
from muster.model.units import CardIndex, NodeName

RESERVES = "muster.dev/reserves-card"
"""Annotation of a reservation pod: the number of the card group that it holds."""
CARD_UUID = "muster.dev/card-uuid"
"""Annotation that the reservation pod's program writes on its own pod."""
LABEL = "muster.dev/reservation"
SCHEDULER_NAME = "muster-reservation"
"""Nobody's: the pod is made with its node."""
LONGEST_NAME = 200

Place = tuple[NodeName, CardIndex]


def reservation_name(node: NodeName, index: CardIndex) -> str:
    """The name of the pod that reserves this card group."""
    name = f"card-{index}-{node}"
    if len(name) <= LONGEST_NAME:
        return name
    return f"card-{index}-{hashlib.blake2b(node.encode(), digest_size=12).hexdigest()}"


def reservation_manifest(node: Node, index: CardIndex, *, namespace: str, image: str, fence: int) -> dict[str, Any]:
    """The pod that reserves this card group. It is not preempted by others, and stays through taints."""
    return {
        "metadata": {
            "name": reservation_name(node.name, index),
            "namespace": namespace,
            "labels": {LABEL: "card", "app.kubernetes.io/name": "muster", "app.kubernetes.io/component": "reservation"},
            "annotations": {
                RESERVES: str(index),
                CARDS: cards_text((CardUse(index=index),), expected=False),
                "muster.dev/fence": str(fence),
            },
        },
        "spec": {
            "nodeName": node.name,
            "schedulerName": SCHEDULER_NAME,
            "restartPolicy": "Always",
            "priorityClassName": "system-node-critical",
            "serviceAccountName": "muster-reservation",
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "reservation",
                    "image": image,
                    "args": ["service", "reservation"],
                    "env": [
                        _field("MUSTER_RESERVATION_POD", "metadata.name"),
                        _field("MUSTER_RESERVATION_NAMESPACE", "metadata.namespace"),
                        {"name": "MUSTER_IN_CLUSTER", "value": "true"},
                    ],
                    "resources": {
                        "requests": {"cpu": "5m", "memory": "64Mi"},
                        "limits": {"memory": "128Mi", node.card_resource: "1"},
                    },
                }
            ],
        },
    }


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def reserved_card(pod: Pod) -> CardIndex | None:
    """The card group that a reservation pod holds; None for every other pod."""
    text = pod.annotations.get(RESERVES, "") if pod.scheduler_name == SCHEDULER_NAME else ""
    return CardIndex(int(text)) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


def card_uuid(pod: Pod) -> str:
    """The card that a reservation pod reports, or that its kubelet says it has; '' before that."""
    return pod.annotations.get(CARD_UUID) or (pod.devices[0] if len(pod.devices) == 1 else "")


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done so that exactly the card groups in use are reserved."""

    missing: tuple[Place, ...] = ()
    """Shares stand on these, but nothing reserves them (any more)."""
    useless: tuple[Pod, ...] = ()
    """Reservation pods that nobody needs, or that have ended."""


def upkeep(nodes: Mapping[NodeName, Node], pods: Iterable[Pod], promised: Iterable[Place]) -> Upkeep:
    """Compare reservations with the shares that stand or are promised.

    Args:
        nodes: by name.
        pods: all of them.
        promised: card groups of open and lingering LEDGER entries.
    """
    needed: set[Place] = set()
    standing: dict[Place, Pod] = {}
    useless: list[Pod] = []
    for pod in pods:
        if pod.node is None:
            continue
        index = reserved_card(pod)
        if index is not None:
            standing[pod.node, index] = pod
        elif pod.cards and not pod.finished and _reserved(nodes.get(pod.node)):
            needed |= {(pod.node, use.index) for use in pod.cards if not use.whole}
    kept = needed | set(promised)
    for place, pod in standing.items():
        if not pod.terminating and (place not in kept or pod.finished):
            useless.append(pod)
    missing = sorted(place for place in needed if place not in standing and _reserved(nodes.get(place[0])))
    return Upkeep(missing=tuple(missing), useless=tuple(sorted(useless, key=lambda pod: pod.key)))


def _reserved(node: Node | None) -> bool:
    return node is not None and node.card_mode is CardMode.RESERVED
