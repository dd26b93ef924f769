"""Nodes whose cards are shared by reservation pods: NVIDIA's plugin, and no plugin at all for the shares.

    reservation pod ─ nvidia.com/gpu: 1 ─► kubelet picks a card ─► the pod's program annotates the card's UUID on itself
    share pod       ─ no device asked ───► sees what NVIDIA_VISIBLE_DEVICES says, here: its annotation; nothing else is checked

A share whose annotation names no reserved card sees cards that are not meant for it: that is what `AllocationError` stands for here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from muster.simulator.cards import CardState, NodeCards
from muster.simulator.device_plugin import Allocation, AllocationError, Demand, StockPlugin
from muster.simulator.pod_requests import GPU, GPU_CORE, GPU_MEMORY, pod_requests

RESERVATION = "muster.dev/reserves-card"
CARD_UUID = "muster.dev/card-uuid"
VISIBLE_DEVICES = "muster.dev/visible-devices"

Pod = Mapping[str, Any]


class ReservedPlugin(StockPlugin):
    """See the module."""

    def demand(self, pod: Pod) -> Demand:
        """A whole card, a whole card that others share, or a share."""
        asked = pod_requests(pod)
        if asked.get(GPU):
            return Demand(cards=asked[GPU], shared=RESERVATION in _annotations(pod))
        return Demand(memory_mib=asked.get(GPU_MEMORY, 0), core_percent=asked.get(GPU_CORE, 0))

    def allocate(self, pod: Pod, demand: Demand, *, cards: NodeCards, waiting: Sequence[Pod]) -> Allocation:
        """Kubelet's choice for whole cards; for a share the card that its annotation names."""
        if demand.cards:
            return super().allocate(pod, demand, cards=cards, waiting=waiting)
        named = _annotations(pod).get(VISIBLE_DEVICES, "")
        for state in cards.states:
            if state.card.uuid == named:
                if not any(not hold.memory_mib and not hold.core_percent for hold in state.holds.values()):
                    raise AllocationError(f"card {named} is not held by a reservation pod")
                return Allocation((state.card.index,))
        raise AllocationError(f"{VISIBLE_DEVICES} is {named!r}: the pod would see cards that are not its own")

    def started(self, pod: Pod, held: Sequence[CardState]) -> dict[str, str]:
        """A reservation pod tells which card it was given."""
        return {CARD_UUID: held[0].card.uuid} if RESERVATION in _annotations(pod) and held else {}


def _annotations(pod: Pod) -> Mapping[str, str]:
    return pod["metadata"].get("annotations") or {}
