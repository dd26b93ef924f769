"""Volcano's vGPU plugin (HAMi): virtual cards, handed out by what the scheduler annotated.

Node: ``volcano.sh/node-vgpu-register`` = ``UUID,count,MiB,type,health,mode:`` for each card. Pod, from its Binding: ``vgpu-node``,
``bind-phase: allocating``, ``devices-to-allocate`` = ``UUID,type,MiB,percent:`` for each device, ``;`` between containers.

Allocate does not name a pod: the plugin takes *a* pod of its node in phase allocating (the oldest bind-time), checks that the number of
devices is what was asked, erases the entry, and sets the phase to success when none is left. A wrong number fails the pod that asked.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from muster.simulator.cards import CardState, NodeCards
from muster.simulator.device_plugin import Advertisement, Allocation, AllocationError, Demand
from muster.simulator.pod_requests import pod_requests

VGPU_NUMBER = "volcano.sh/vgpu-number"
VGPU_MEMORY = "volcano.sh/vgpu-memory"
VGPU_CORES = "volcano.sh/vgpu-cores"
REGISTER = "volcano.sh/node-vgpu-register"
HANDSHAKE = "volcano.sh/node-vgpu-handshake"
VGPU_NODE = "volcano.sh/vgpu-node"
TO_ALLOCATE = "volcano.sh/devices-to-allocate"
BIND_PHASE = "volcano.sh/bind-phase"
BIND_TIME = "volcano.sh/bind-time"
SPLIT = 10
"""Virtual cards for each card."""

Pod = Mapping[str, Any]
Device = tuple[str, int, int]


class VgpuPlugin:
    """See the module."""

    def advertise(self, cards: NodeCards) -> Advertisement:
        """Virtual cards, the memory and the cores of all cards, and the register of single ones."""
        if not cards.states:
            return Advertisement({}, {}, {})
        register = "".join(
            f"{state.card.uuid},{SPLIT},{state.card.memory_mib},NVIDIA-simulated,{str(state.healthy).lower()},hami-core:"
            for state in cards.states
        )
        return Advertisement(
            self._amounts(list(cards.states)),
            self._amounts(cards.healthy()),
            {REGISTER: register, HANDSHAKE: "Reported"},
        )

    @staticmethod
    def _amounts(states: list[CardState]) -> dict[str, int]:
        return {
            VGPU_NUMBER: len(states) * SPLIT,
            VGPU_MEMORY: sum(state.card.memory_mib for state in states),
            VGPU_CORES: sum(state.card.core_percent for state in states),
        }

    def demand(self, pod: Pod) -> Demand:
        """So many devices; memory and core of each, where they are limited."""
        asked = pod_requests(pod)
        return Demand(
            cards=asked.get(VGPU_NUMBER, 0),
            memory_mib=asked.get(VGPU_MEMORY, 0),
            core_percent=asked.get(VGPU_CORES, 0),
        )

    def allocate(self, pod: Pod, demand: Demand, *, cards: NodeCards, waiting: Sequence[Pod]) -> Allocation:
        """The devices of the pod that is in phase allocating here, if their number is right."""
        del pod
        pending = [other for other in waiting if _annotations(other).get(BIND_PHASE) == "allocating"]
        if not pending:
            raise AllocationError(
                "Allocate failed due to rpc error: no pending pod in bind phase allocating, which is unexpected"
            )
        chosen = min(pending, key=_bind_time)
        metadata = chosen["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        devices = [
            device for part in _annotations(chosen).get(TO_ALLOCATE, "").split(";") for device in read_devices(part)
        ]
        if len(devices) != demand.cards:
            raise AllocationError(
                f"Allocate failed due to rpc error: device number not matched: {len(devices)} annotated on pod {key}, "
                f"{demand.cards} asked for, which is unexpected"
            )
        index_of = {state.card.uuid: state.card.index for state in cards.states}
        unknown = [uuid for uuid, _, _ in devices if uuid not in index_of]
        if unknown:
            raise AllocationError(
                f"Allocate failed due to rpc error: no device {unknown[0]!r} here, which is unexpected"
            )
        parts: dict[int, tuple[int, int]] = {}
        for uuid, memory, core in devices:
            before = parts.get(index_of[uuid], (0, 0))
            parts[index_of[uuid]] = (before[0] + memory, before[1] + core)
        return Allocation(
            tuple(parts),
            (metadata["namespace"], metadata["name"]),
            {TO_ALLOCATE: "", BIND_PHASE: "success"},
            tuple(parts.values()),
        )

    def started(self, pod: Pod, held: Sequence[CardState]) -> dict[str, str]:
        """Nothing."""
        del pod, held
        return {}


def read_devices(text: str) -> tuple[Device, ...]:
    """(UUID, MiB, percent) of each entry ``UUID,type,MiB,percent:``; entries of another form are left out."""
    devices = []
    for entry in text.split(":"):
        parts = entry.split(",")
        if len(parts) == 4 and parts[2].isdigit() and parts[3].isdigit():
            devices.append((parts[0], int(parts[2]), int(parts[3])))
    return tuple(devices)


def _annotations(pod: Pod) -> Mapping[str, str]:
    return pod["metadata"].get("annotations") or {}


def _bind_time(pod: Pod) -> tuple[int, str]:
    text = _annotations(pod).get(BIND_TIME, "")
    return (int(text) if text.isdigit() else 2**63, pod["metadata"]["name"])
