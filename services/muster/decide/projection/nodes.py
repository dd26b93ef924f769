"""A node and its cards: how many, how large, which mode, which are broken.

Card memory, best source first: the vGPU plugin's register annotation (per card), what a Volcano plugin counts (node
total ÷ cards), the label ``nvidia.com/gpu.memory``, a hand-patched ``volcano.sh/gpu-memory`` (total ÷ cards).
Who knows more about single cards says so in annotations, card by card from index 0: ``muster.dev/card-link-groups``
(numbers; cards of one group are linked with each other) and ``muster.dev/card-uuids``.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from muster.decide.cards import (
    GPU_MEMORY,
    GPU_NUMBER,
    LARGEST_SANE_MIB,
    MIB_PER_GIB,
    SPELLINGS,
    VGPU_NUMBER,
    canonical,
    node_memory_doubt,
)
from muster.decide.projection.metadata import (
    CORDON_OWNER,
    CORDON_REASON,
    CORDON_SINCE,
    FENCE,
    KEPT_BY,
    NODE_HOLDS,
    REMOVABLE,
    seconds,
)
from muster.decide.projection.requests import DEFAULT_CARD
from muster.model.nodes import GPU_SHARE, VGPU, Card, CardMode, Cordoned, Node, Taint
from muster.model.quantity import to_bytes, to_milli_cpu, to_units, whole_number
from muster.model.units import Bytes, CardIndex, MiB, MilliCpu, NodeName

CARD_MODE = "muster.dev/card-mode"
LINK_GROUPS = "muster.dev/card-link-groups"
CARD_UUIDS = "muster.dev/card-uuids"
REGISTER = "volcano.sh/node-vgpu-register"
UNHEALTHY = "volcano.sh/gpu-unhealthy-ids"
MEMORY_LABEL = "nvidia.com/gpu.memory"
MODEL_LABELS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
DEFAULT_MAX_PODS = 110


class RegisteredCard(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the vGPU plugin's register annotation."""

    uuid: str
    memory_mib: int
    healthy: bool
    model: str = ""


def project_node(raw: Any, *, card_resources: tuple[str, ...] = (DEFAULT_CARD,)) -> Node:
    """The model of a decoded Node."""
    metadata, spec, status = raw.metadata, raw.spec, raw.status
    labels: Mapping[str, str] = metadata.labels
    annotations: Mapping[str, str] = metadata.annotations
    registered = parse_register(annotations.get(REGISTER, ""))
    named_capacity = {canonical(name, card_resources): value for name, value in status.capacity.items()}
    named_allocatable = {canonical(name, card_resources): value for name, value in status.allocatable.items()}
    resource = next((name for name in card_resources if to_units(named_capacity.get(name, 0))), card_resources[0])
    capacity = _count(named_capacity, resource) or _count(named_capacity, GPU_NUMBER)
    allocatable = _count(named_allocatable, resource) or _count(named_allocatable, GPU_NUMBER)
    if registered:
        capacity, allocatable = len(registered), sum(card.healthy for card in registered)
    capacity = max(capacity, allocatable)
    mode = card_mode(labels, annotations, named_capacity, cards=capacity, registered=bool(registered))
    memory = card_memory(labels, named_capacity, cards=capacity, mode=mode)
    plugin = (VGPU if registered else GPU_SHARE) if mode is CardMode.VOLCANO else ""
    if plugin == VGPU:
        resource = VGPU_NUMBER
    groups = [whole_number(part) for part in _listed(annotations, LINK_GROUPS)]
    uuids = [card.uuid for card in registered] or _listed(annotations, CARD_UUIDS)
    unhealthy = {part.strip() for part in annotations.get(UNHEALTHY, "").split(",") if part.strip()}
    cards = tuple(
        Card(
            index=CardIndex(index),
            memory_mib=MiB(registered[index].memory_mib if registered else memory),
            uuid=uuids[index] if index < len(uuids) else "",
            link_group=groups[index] if index < len(groups) else 0,
            healthy=str(index) not in unhealthy and (not registered or registered[index].healthy),
        )
        for index in range(capacity)
    )
    return Node(
        name=NodeName(metadata.name),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        labels=dict(labels),
        taints=tuple(Taint(key=taint.key, effect=taint.effect, value=taint.value) for taint in spec.taints),
        unschedulable=spec.unschedulable,
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions),
        cpu=MilliCpu(to_milli_cpu(status.allocatable.get("cpu", 0))),
        memory=Bytes(to_bytes(status.allocatable.get("memory", 0))),
        max_pods=to_units(status.allocatable.get("pods", DEFAULT_MAX_PODS)),
        extended=_extended(status.allocatable, card_resources),
        cards=cards,
        allocatable_cards=allocatable,
        card_resource=resource,
        card_mode=mode,
        gpu_model=_model(labels, registered),
        fence=whole_number(annotations.get(FENCE)),
        terminating=bool(seconds(metadata.deletion_timestamp)),
        card_plugin=plugin,
        card_warning=card_warning(named_capacity, mode=mode, cards=capacity),
        created=seconds(metadata.creation_timestamp),
        cordoned=_cordoned(annotations),
        removable=labels.get(REMOVABLE) == "true",
        kept=tuple(name for name in sorted(NODE_HOLDS) if annotations.get(name) == "true"),
        kept_by_us=KEPT_BY in annotations,
    )


def _cordoned(annotations: Mapping[str, str]) -> Cordoned | None:
    owner = annotations.get(CORDON_OWNER, "")
    if not owner:
        return None
    since = float(whole_number(annotations.get(CORDON_SINCE)))
    return Cordoned(owner=owner, since=since, reason=annotations.get(CORDON_REASON, ""))


def card_mode(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    capacity: Mapping[str, Any],
    *,
    cards: int,
    registered: bool = False,
) -> CardMode | None:
    """The node's mode: declared, else what its plugin shows, else stock; None without cards.

    ``volcano.sh/gpu-memory`` alone beside whole cards proves no plugin: people patch it in by hand.
    """
    declared = (annotations.get(CARD_MODE) or labels.get(CARD_MODE) or "").strip().lower()
    if declared in {mode.value for mode in CardMode}:
        return CardMode(declared)
    if not cards:
        return None
    plugin = registered or _count(capacity, GPU_NUMBER) or _count(capacity, VGPU_NUMBER)
    return CardMode.VOLCANO if plugin else CardMode.STOCK


def card_memory(labels: Mapping[str, str], capacity: Mapping[str, Any], *, cards: int, mode: CardMode | None) -> int:
    """MiB of one card, 0 when nobody tells or the number cannot be right (a node total below 1 GiB a card)."""
    if not cards:
        return 0
    counted = _count(capacity, GPU_MEMORY) // cards
    if not MIB_PER_GIB <= counted <= LARGEST_SANE_MIB:
        counted = 0
    labelled = whole_number(labels.get(MEMORY_LABEL))
    return counted or labelled if mode is CardMode.VOLCANO else labelled or counted


def card_warning(capacity: Mapping[str, Any], *, mode: CardMode | None, cards: int) -> str:
    """What people should know of a node's cards: shares without isolation, memory that no plugin offers, a unit trap."""
    counted = _count(capacity, GPU_MEMORY)
    if counted and cards and (doubt := node_memory_doubt(counted, cards=cards)):
        return f"{GPU_MEMORY}: {doubt}"
    if mode is CardMode.RESERVED:
        return "cards are shared without isolation: a pod can use more memory and core than its share"
    if counted and mode is CardMode.STOCK:
        return (
            f"{GPU_MEMORY} is offered, but no device plugin hands out or isolates shares here; "
            "it is read as the cards' memory, and only whole cards are given out"
        )
    return ""


def _listed(annotations: Mapping[str, str], name: str) -> list[str]:
    text = annotations.get(name, "")
    return [part.strip() for part in text.split(",")] if text.strip() else []


def parse_register(text: str) -> tuple[RegisteredCard, ...]:
    """Cards of ``volcano.sh/node-vgpu-register``: ``UUID,count,MiB,type,health,mode:`` repeated; () when it is no such text."""
    cards = []
    for entry in text.split(":"):
        if not entry.strip():
            continue
        parts = [part.strip() for part in entry.split(",")]
        if len(parts) < 5 or not parts[2].isdigit():
            return ()
        cards.append(
            RegisteredCard(uuid=parts[0], memory_mib=int(parts[2]), healthy=parts[4].lower() == "true", model=parts[3])
        )
    return tuple(cards)


def _count(amounts: Mapping[str, Any], name: str) -> int:
    return to_units(amounts.get(name, 0))


def _extended(allocatable: Mapping[str, Any], card_resources: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    basic = {"cpu", "memory", "pods", *card_resources, *SPELLINGS.values()}
    return tuple(
        sorted(
            (name, to_units(value))
            for name, value in allocatable.items()
            if canonical(name, card_resources) not in basic
        )
    )


def _model(labels: Mapping[str, str], registered: tuple[RegisteredCard, ...]) -> str:
    for label in MODEL_LABELS:
        if labels.get(label):
            return labels[label]
    return registered[0].model if registered else ""
