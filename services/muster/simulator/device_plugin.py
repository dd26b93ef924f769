"""How a node's cards are advertised and handed out: one class for each kind of device plugin, behind one protocol.

Kubelet asks a plugin for devices without saying for which pod. The stock plugin chooses whole cards by itself; Volcano's plugin guesses
the pod by the oldest ``volcano.sh/predicate-time`` among those that wait on its node for the same amount, and obeys that pod's annotation.
Two equal pods that wait at the same time may therefore get each other's cards: the weakness is real and kept. Other kinds stand in
`muster.simulator.vgpu_plugin` and `muster.simulator.reserved_plugin`; `muster.simulator.plugins` chooses.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from muster.simulator.cards import CardState, NodeCards
from muster.simulator.pod_requests import GPU, GPU_CORE, GPU_MEMORY, GPU_NUMBER, pod_requests

GPU_INDEX = "volcano.sh/gpu-index"
PREDICATE_TIME = "volcano.sh/predicate-time"
GPU_ASSIGNED = "volcano.sh/gpu-assigned"
UNHEALTHY_IDS = "volcano.sh/gpu-unhealthy-ids"

Pod = Mapping[str, Any]


class AllocationError(Exception):
    """The plugin has nothing to give; the message goes to the pod's status."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a pod asks a device plugin for: whole cards, or one share of one card (MiB, percent)."""

    cards: int = 0
    memory_mib: int = 0
    core_percent: int = 0
    shared: bool = False
    """The cards are shared out by others: the pod that holds them takes nothing of their memory and core."""

    def __bool__(self) -> bool:
        """Whether any card is asked for."""
        return bool(self.cards or self.memory_mib or self.core_percent)

    @property
    def whole(self) -> bool:
        """Whole cards rather than a share."""
        return self.cards > 0 and not (self.memory_mib or self.core_percent or self.shared)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Cards handed out, and the pod (``namespace``, ``name``) whose assignment was consumed, with what is annotated on it."""

    indexes: tuple[int, ...]
    consumed: tuple[str, str] | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    parts: tuple[tuple[int, int], ...] = ()
    """(MiB, percent) of each card, where they are not the demand's own."""


@dataclass(frozen=True, slots=True)
class Advertisement:
    """What a node offers: capacity, what of it can be used now, and annotations (None takes one away)."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    annotations: dict[str, str | None]


class DevicePlugin(Protocol):
    """A device plugin of one node."""

    def advertise(self, cards: NodeCards) -> Advertisement:
        """What the node offers in this state of its cards."""

    def demand(self, pod: Pod) -> Demand:
        """What this plugin is asked for when the pod is admitted."""

    def allocate(self, pod: Pod, demand: Demand, *, cards: NodeCards, waiting: Sequence[Pod]) -> Allocation:
        """Choose cards. `waiting`: the node's pods not yet admitted, this one included. Raises AllocationError."""

    def started(self, pod: Pod, held: Sequence[CardState]) -> dict[str, str]:
        """What the pod's own program annotates on itself once it runs with these cards."""


class StockPlugin:
    """NVIDIA's plugin: whole cards, chosen by kubelet: one link group when it can, in the order of the cards' UUID hashes."""

    def advertise(self, cards: NodeCards) -> Advertisement:
        """Cards only; lost ones stay in the capacity. A node without cards runs no plugin and offers none."""
        if not cards.states:
            return Advertisement({}, {}, {})
        return Advertisement({GPU: len(cards.states)}, {GPU: len(cards.healthy())}, {})

    def demand(self, pod: Pod) -> Demand:
        """Whole cards; a share is not known to this plugin."""
        return Demand(cards=pod_requests(pod).get(GPU, 0))

    def allocate(self, pod: Pod, demand: Demand, *, cards: NodeCards, waiting: Sequence[Pod]) -> Allocation:
        """The fullest link group that has room, else as few groups as the order gives."""
        del pod, waiting
        free = sorted(cards.unheld(), key=_own_order)
        if len(free) < demand.cards:
            raise AllocationError(
                f"Allocate failed due to requested number of devices unavailable for {GPU}. "
                f"Requested: {demand.cards}, Available: {len(free)}, which is unexpected"
            )
        groups: dict[int, list[CardState]] = {}
        for state in free:
            groups.setdefault(state.card.link_group, []).append(state)
        roomy = [group for group in groups.values() if len(group) >= demand.cards]
        if roomy:
            chosen = min(roomy, key=len)[: demand.cards]
        else:
            chosen = [state for group in sorted(groups.values(), key=len, reverse=True) for state in group][
                : demand.cards
            ]
        return Allocation(tuple(sorted(state.card.index for state in chosen)))

    def started(self, pod: Pod, held: Sequence[CardState]) -> dict[str, str]:
        """Nothing."""
        del pod, held
        return {}


class VolcanoPlugin:
    """Volcano's gpu-share plugin: obeys ``volcano.sh/gpu-index`` of the pod it believes it is asked for."""

    def advertise(self, cards: NodeCards) -> Advertisement:
        """Whole cards and their memory, and the indexes that do not work."""
        healthy = cards.healthy()
        lost = ",".join(str(state.card.index) for state in cards.states if not state.healthy)
        return Advertisement(
            {
                GPU: len(cards.states),
                GPU_NUMBER: len(cards.states),
                GPU_MEMORY: sum(s.card.memory_mib for s in cards.states),
            },
            {GPU: len(healthy), GPU_NUMBER: len(healthy), GPU_MEMORY: sum(s.card.memory_mib for s in healthy)},
            {UNHEALTHY_IDS: lost or None},
        )

    def demand(self, pod: Pod) -> Demand:
        """A share when memory or core is asked for, else whole cards by either name."""
        asked = pod_requests(pod)
        memory, core = asked.get(GPU_MEMORY, 0), asked.get(GPU_CORE, 0)
        if memory or core:
            return Demand(memory_mib=memory, core_percent=core)
        return Demand(cards=asked.get(GPU, 0) or asked.get(GPU_NUMBER, 0))

    def allocate(self, pod: Pod, demand: Demand, *, cards: NodeCards, waiting: Sequence[Pod]) -> Allocation:
        """The cards of the oldest decision on this node for the same amount."""
        del pod
        amount = demand.cards or demand.memory_mib
        candidates = [other for other in waiting if self._waits_for(other, amount, whole=demand.whole)]
        if not candidates:
            raise AllocationError("Allocate failed due to rpc error: failed to find candidate pod, which is unexpected")
        candidate = min(candidates, key=predicate_time)
        metadata = candidate["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        indexes = gpu_indexes(candidate)
        expected = demand.cards or 1
        if len(indexes) != expected or len(set(indexes)) != expected:
            value = metadata["annotations"][GPU_INDEX]
            raise AllocationError(
                f"Allocate failed due to rpc error: {GPU_INDEX} of pod {key} is {value!r}, {expected} card(s) are asked for, which is unexpected"
            )
        if any(index >= len(cards.states) for index in indexes):
            raise AllocationError(
                f"Allocate failed due to rpc error: failed to find gpu device of pod {key}: {GPU_INDEX} is {indexes}, which is unexpected"
            )
        return Allocation(indexes, (metadata["namespace"], metadata["name"]), {GPU_ASSIGNED: "true"})

    def started(self, pod: Pod, held: Sequence[CardState]) -> dict[str, str]:
        """Nothing."""
        del pod, held
        return {}

    def _waits_for(self, pod: Pod, amount: int, *, whole: bool) -> bool:
        annotations = pod["metadata"].get("annotations") or {}
        if GPU_INDEX not in annotations or annotations.get(GPU_ASSIGNED) == "true":
            return False
        demand = self.demand(pod)
        return demand.whole == whole and (demand.cards or demand.memory_mib) == amount


def predicate_time(pod: Pod) -> tuple[int, str]:
    """The pod's place in the plugin's queue: nanoseconds of the decision (unreadable ones last), then its name."""
    text = (pod["metadata"].get("annotations") or {}).get(PREDICATE_TIME, "")
    return (int(text) if text.isdigit() else 2**63, pod["metadata"]["name"])


def gpu_indexes(pod: Pod) -> tuple[int, ...]:
    """The annotated card indexes, in order; empty when the annotation is missing or no list of numbers."""
    parts = (pod["metadata"].get("annotations") or {}).get(GPU_INDEX, "").split(",")
    if not all(part.strip().isdigit() for part in parts):
        return ()
    return tuple(int(part) for part in parts)


def _own_order(state: CardState) -> bytes:
    """An order that is stable but that no scheduler would guess."""
    return hashlib.sha256(state.card.uuid.encode()).digest()
