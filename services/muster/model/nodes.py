"""Nodes and their cards, as the scheduler sees them.

A node has one card mode (what a promise about a card means there): see `CardMode`. `cards` lists every card that is
known by index; `allocatable_cards` is what the kubelet offers now, which may be fewer when a card is lost.
"""

from enum import StrEnum

import msgspec

from muster.model.units import Bytes, CardIndex, CorePercent, MiB, MilliCpu, NodeName


class CardMode(StrEnum):
    """What the node's device plugin promises about a card."""

    STOCK = "stock"
    """Whole cards only; kubelet picks which."""
    RESERVED = "reserved"
    """Shares by reservation pods; no isolation."""
    VOLCANO = "volcano"
    """The plugin obeys our assignment: whole cards and shares may live on one node."""
    DRA = "dra"
    """Cards are ResourceClaims; not supported yet."""


GPU_SHARE, VGPU = "gpu-share", "vgpu"
"""Plugins that obey an assignment: Volcano's gpu-share, and its vGPU plugin (HAMi)."""


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One GPU: memory in MiB, core in percent."""

    index: CardIndex
    memory_mib: MiB
    uuid: str = ""
    core_percent: CorePercent = CorePercent(100)
    healthy: bool = True
    link_group: int = 0


class Taint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A node taint; effect is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


class Cordoned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Our own cordon as the node's annotations tell it."""

    owner: str
    since: float = 0.0
    """Unix seconds."""
    reason: str = ""


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node: allocatable amounts (cpu in thousandths, memory in bytes), labels, taints, cards."""

    name: NodeName
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    cpu: MilliCpu = MilliCpu(0)
    memory: Bytes = Bytes(0)
    max_pods: int = 110
    extended: tuple[tuple[str, int], ...] = ()
    """Every other allocatable resource, sorted by name (ephemeral-storage in bytes, MIG profiles as counts …)."""
    cards: tuple[Card, ...] = ()
    allocatable_cards: int = 0
    card_resource: str = "nvidia.com/gpu"
    card_mode: CardMode | None = None
    gpu_model: str = ""
    fence: int = 0
    """Annotation ``muster.dev/fence``: the highest LEDGER sequence under which this node was written, 0 when never."""
    terminating: bool = False
    card_plugin: str = ""
    """Whose annotations a plugin that obeys us reads (`GPU_SHARE` or `VGPU`); '' in every other mode."""
    card_warning: str = ""
    """What is doubtful about the node's cards, as a sentence for people."""
    created: float = 0.0
    """Unix seconds, 0 when nobody tells."""
    cordoned: Cordoned | None = None
    """Our own cordon; None beside `unschedulable` means that somebody else cordoned it."""
    removable: bool = False
    """Label ``muster.dev/removable``: whoever removes nodes may remove it."""
    kept: tuple[str, ...] = ()
    """Annotations that keep other autoscalers from removing it, sorted (``karpenter.sh/do-not-disrupt`` …)."""
    kept_by_us: bool = False
    """Whether we have set those."""
    withheld: str = ""
    """Filled in by the snapshot: why nothing may be placed here whatever a pod tolerates, '' when it may."""
