"""How a decision about cards is handed over to a node, and read back.

    muster.dev/cards                        what was decided, in every mode; `expected` where the plugin chooses by itself
    muster.dev/visible-devices              what the containers of a share may see (an index, or UUIDs where they are known)
    volcano.sh/gpu-index, predicate-time    for Volcano's gpu-share plugin
    volcano.sh/vgpu-*, devices-to-allocate,
    bind-phase, bind-time                   for the vGPU plugin: ``UUID,NVIDIA,MiB,percent:`` a device, ``;`` between containers

All ride on the Binding, so that the API server writes them together with the node.
"""

from collections.abc import Mapping, Sequence

import msgspec

from muster.decide.cards import VISIBLE_DEVICES
from muster.model.instructions import Slot
from muster.model.nodes import VGPU, CardMode, Node
from muster.model.pods import CardUse, Pod, Request
from muster.model.units import CardIndex, CorePercent, MiB

CARDS = "muster.dev/cards"
GPU_INDEX = "volcano.sh/gpu-index"
PREDICATE_TIME = "volcano.sh/predicate-time"
GPU_ASSIGNED = "volcano.sh/gpu-assigned"
VGPU_NODE = "volcano.sh/vgpu-node"
VGPU_TIME = "volcano.sh/vgpu-time"
VGPU_IDS = "volcano.sh/vgpu-ids-new"
VGPU_TO_ALLOCATE = "volcano.sh/devices-to-allocate"
BIND_PHASE = "volcano.sh/bind-phase"
BIND_TIME = "volcano.sh/bind-time"
ALLOCATING, ALLOCATED = "allocating", "success"
VGPU_TYPE = "NVIDIA"


class AssignedCard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of annotation ``muster.dev/cards``."""

    index: int
    memory_mib: int = 0
    core_percent: int = 0
    whole: bool = False
    expected: bool = False
    """The device plugin chooses; this is what is expected of it."""


_ASSIGNED = msgspec.json.Decoder(list[AssignedCard])


def assignment_annotations(slot: Slot, node: Node, now: float, *, reserved_uuid: str = "") -> dict[str, str]:
    """Annotations that hand this slot's cards over, for the Binding; empty when the slot has none.

    Args:
        slot: the pod's place; its request says which container asked, where there are several.
        node: the node of the slot.
        now: Unix seconds.
        reserved_uuid: on a node of mode `reserved`, the card that the slot's reservation pod reported.
    """
    if not slot.cards:
        return {}
    obeyed = node.card_mode is CardMode.VOLCANO
    annotations = {CARDS: cards_text(slot.cards, expected=not obeyed)}
    shared = not any(use.whole for use in slot.cards)
    if not obeyed:
        if shared and reserved_uuid:
            annotations[VISIBLE_DEVICES] = reserved_uuid
        return annotations
    if node.card_plugin == VGPU:
        uuids = {card.index: card.uuid for card in node.cards}
        annotations |= _vgpu(slot, node, uuids, now)
        if shared:
            annotations[VISIBLE_DEVICES] = ",".join(uuids.get(use.index, "") for use in slot.cards)
        return annotations
    annotations[GPU_INDEX] = ",".join(str(use.index) for use in slot.cards)
    annotations[PREDICATE_TIME] = str(int(now * 1_000_000_000))
    if shared:
        annotations[VISIBLE_DEVICES] = annotations[GPU_INDEX]
    return annotations


def cards_text(cards: Sequence[CardUse], *, expected: bool) -> str:
    """The value of ``muster.dev/cards``."""
    assigned = [
        AssignedCard(
            index=use.index,
            memory_mib=use.memory_mib,
            core_percent=use.core_percent,
            whole=use.whole,
            expected=expected,
        )
        for use in cards
    ]
    return msgspec.json.encode(assigned).decode()


def _vgpu(slot: Slot, node: Node, uuids: Mapping[CardIndex, str], now: float) -> dict[str, str]:
    listed = _by_container([(uuids.get(use.index, ""), use) for use in slot.cards], slot.request)
    seconds = str(int(now))
    return {
        VGPU_NODE: node.name,
        VGPU_TIME: seconds,
        VGPU_IDS: listed,
        VGPU_TO_ALLOCATE: listed,
        BIND_PHASE: ALLOCATING,
        BIND_TIME: seconds,
    }


def _by_container(cards: Sequence[tuple[str, CardUse]], request: Request | None) -> str:
    """The devices of each container, in the containers' order; a card that several containers share is named in each."""
    asked = request.card_containers if request is not None else ()
    if not asked:
        return "".join(_device(uuid, use.memory_mib, use.core_percent) for uuid, use in cards)
    parts = [""] * (asked[-1][0] + 1)
    left = list(cards)
    for container, count, memory, core in asked:
        given = left[:count] if len(left) >= count else list(cards[:count])
        left = left[count:]
        parts[container] = "".join(
            _device(uuid, use.memory_mib if use.whole else memory, use.core_percent if use.whole else core)
            for uuid, use in given
        )
    return ";".join(parts)


def _device(uuid: str, memory_mib: int, core_percent: int) -> str:
    return f"{uuid},{VGPU_TYPE},{memory_mib},{core_percent}:"


def is_allocating(pod: Pod) -> bool:
    """Bound with cards, and its plugin has not yet said that it handed them over."""
    if pod.annotations.get(BIND_PHASE):
        return pod.annotations[BIND_PHASE] == ALLOCATING
    return pod.annotations.get(GPU_ASSIGNED) != "true"


def is_expected(annotations: Mapping[str, str]) -> bool:
    """The device plugin chooses the cards by itself: the assignment on the pod is only what is expected of it."""
    try:
        return any(card.expected for card in _ASSIGNED.decode(annotations.get(CARDS, "[]")))
    except msgspec.DecodeError:
        return False


def cards_from_annotations(annotations: Mapping[str, str], request: Request | None = None) -> tuple[CardUse, ...]:
    """The card assignment that stands on a pod, () when there is none.

    Without ``muster.dev/cards`` Volcano's ``gpu-index`` is read, with amounts from the pod's request.

    Raises:
        ValueError: an annotation is there and cannot be read; the message names it.
    """
    text = annotations.get(CARDS)
    if text:
        try:
            assigned = _ASSIGNED.decode(text)
        except msgspec.DecodeError as error:
            raise ValueError(f"annotation {CARDS}: {text!r} is not a card assignment: {error}") from error
        return tuple(
            CardUse(
                index=CardIndex(card.index),
                memory_mib=MiB(card.memory_mib),
                core_percent=CorePercent(card.core_percent),
                whole=card.whole,
            )
            for card in assigned
        )
    listed = annotations.get(GPU_INDEX)
    if not listed:
        return ()
    try:
        indexes = [int(part) for part in listed.split(",")]
    except ValueError as error:
        raise ValueError(f'annotation {GPU_INDEX}: {listed!r} is not a list of card indexes such as "0,1"') from error
    share = request.share if request is not None else None
    return tuple(
        CardUse(index=CardIndex(index), memory_mib=share.memory_mib, core_percent=share.core_percent)
        if share is not None
        else CardUse(index=CardIndex(index), whole=True)
        for index in indexes
    )
