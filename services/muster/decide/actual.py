"""What a pod really has of a node's cards, beside what was decided for it.

The kubelet tells the devices of each container; where they are UUIDs that the node lists, they say which cards were given.
Accounting follows them. Whether that is news depends on the node's mode:

    stock      the index was expected, not promised: a difference is no finding
    volcano    the plugin obeys: a difference is a CARD_MISMATCH
    reserved   the index names a reservation; a pod that sees another card than its reservation holds is a CARD_MISMATCH
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from muster.decide.assignment import cards_from_annotations
from muster.decide.cards import VISIBLE_DEVICES
from muster.decide.reservations import card_uuid, reserved_card
from muster.model.nodes import CardMode, Node
from muster.model.pods import CardUse, Pod
from muster.model.units import CardIndex, NodeName


class CardFindingCode(StrEnum):
    """What can be found out about cards."""

    CARD_MISMATCH = "CARD_MISMATCH"
    """A plugin that obeys gave a pod other cards than were decided."""
    CARD_LOST = "CARD_LOST"
    """A pod stands on a card that is broken or gone."""
    NO_ISOLATION = "NO_ISOLATION"
    """What a node says about its cards deserves a warning (see `Node.card_warning`)."""


class CardFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: about a pod, or about a node when `pod` is ''."""

    code: CardFindingCode
    node: NodeName
    message: str
    pod: str = ""
    """``namespace/name``."""
    uid: str = ""
    """Of the pod, or of the node."""
    gang: str = ""


def actual_indexes(pod: Pod, node: Node) -> tuple[CardIndex, ...]:
    """The cards of the node that the pod's kubelet says it has, in order; () when it does not tell by UUID."""
    if not pod.devices or node.card_mode is CardMode.RESERVED:
        return ()
    held = set(pod.devices)
    return tuple(card.index for card in node.cards if card.uuid and card.uuid in held)


def with_actual_cards(pod: Pod, node: Node | None) -> Pod:
    """The pod with the cards that it really has, where its kubelet tells; else as it is."""
    if node is None or not pod.devices:
        return pod
    indexes = actual_indexes(pod, node)
    if not indexes or indexes == tuple(sorted(use.index for use in pod.cards)):
        return pod
    sizes = {card.index: card for card in node.cards}
    request = pod.shape.request
    share = request.share
    if share is not None and len(indexes) == share.count:
        cards = tuple(
            CardUse(index=index, memory_mib=share.memory_mib, core_percent=share.core_percent) for index in indexes
        )
    elif share is None and len(indexes) == request.cards:
        cards = tuple(
            CardUse(
                index=index,
                memory_mib=sizes[index].memory_mib,
                core_percent=sizes[index].core_percent,
                whole=True,
            )
            for index in indexes
        )
    else:
        return pod
    return msgspec.structs.replace(pod, cards=cards)


def card_findings(nodes: Mapping[NodeName, Node], pods: Iterable[Pod]) -> tuple[CardFinding, ...]:
    """Everything that people should know of cards now, in the order of nodes and pods."""
    found = [
        CardFinding(code=CardFindingCode.NO_ISOLATION, node=node.name, message=node.card_warning, uid=node.uid)
        for _, node in sorted(nodes.items())
        if node.card_warning
    ]
    standing = [pod for pod in pods if pod.cards and pod.node is not None and not pod.finished]
    reserved = {
        (pod.node, index): card_uuid(pod)
        for pod in standing
        if not pod.terminating and (index := reserved_card(pod)) is not None
    }
    for pod in sorted(standing, key=lambda one: one.key):
        node = nodes.get(pod.node) if pod.node is not None else None
        if node is None or reserved_card(pod) is not None:
            continue
        text = _mismatch(pod, node, reserved)
        if text:
            found.append(_about(pod, node, CardFindingCode.CARD_MISMATCH, text))
        usable = {card.index for card in node.cards if card.healthy}
        lost = sorted({use.index for use in pod.cards} - usable) if node.cards else []
        if lost and node.card_mode is not CardMode.RESERVED:
            listed = ", ".join(map(str, lost))
            found.append(_about(pod, node, CardFindingCode.CARD_LOST, f"card {listed} is broken or gone"))
    return tuple(found)


def _mismatch(pod: Pod, node: Node, reserved: Mapping[tuple[NodeName | None, CardIndex], str]) -> str:
    if node.card_mode is CardMode.RESERVED:
        sees = pod.annotations.get(VISIBLE_DEVICES, "")
        holds = reserved.get((pod.node, pod.cards[0].index), "")
        if sees and holds and sees != holds:
            return f"sees {sees}, but its reservation pod holds {holds} now"
        return ""
    actual = actual_indexes(pod, node)
    if node.card_mode is not CardMode.VOLCANO or not actual:
        return ""
    try:
        decided = tuple(sorted(use.index for use in cards_from_annotations(pod.annotations, pod.shape.request)))
    except ValueError:
        return ""
    if not decided or decided == actual:
        return ""
    return f"cards {_listed(decided)} were decided, its device plugin gave {_listed(actual)}"


def _listed(indexes: Iterable[int]) -> str:
    return ", ".join(map(str, indexes))


def _about(pod: Pod, node: Node, code: CardFindingCode, text: str) -> CardFinding:
    return CardFinding(
        code=code,
        node=node.name,
        message=f"{pod.key} on {node.name}: {text}",
        pod=pod.key,
        uid=pod.uid,
        gang=pod.gang or "",
    )
