"""What a simulated cluster is made of: groups of equal nodes, from a file, or from shorthand such as ``10x8``.

File (YAML, unknown fields are refused)::

    nodes:
    - {name_pattern: "gpu-node-%02d", count: 10, cpu: "96", memory: 1024Gi, gpus: 8, gpu_memory_mib: 81920,
       gpu_model: NVIDIA-A100-SXM4-80GB, card_mode: volcano, racks: [rack-a, rack-b], rack_label: topology.muster.dev/rack}

Shorthand: ``NODESxCARDS[:RACKSracks][:GIB][:MODE]``, e.g. ``10x8``, ``100x8:4racks``, ``10x8:80``, ``2x8:stock``.
Nodes of a group are numbered from 1 and fill the racks one after the other, in blocks that differ by one node at most.
"""

import re
import uuid
from pathlib import Path
from typing import Any

import msgspec
import yaml

from muster.model.nodes import VGPU, Card, CardMode, Taint
from muster.model.quantity import to_bytes, to_milli_cpu
from muster.model.units import Bytes, CardIndex, MiB, MilliCpu, NodeName
from muster.simulator.crds import load_crds
from muster.simulator.store import Store

SHORTHAND = re.compile(r"(?P<nodes>\d+)x(?P<cards>\d+)(?P<options>(?::[a-z0-9]+)*)")
SIMULATED_MODES = (CardMode.STOCK, CardMode.RESERVED, CardMode.VOLCANO)
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
DEFAULT_RACK_LABEL = "topology.muster.dev/rack"
NODES_IN_A_RACK = 16
UUID_NAMESPACE = uuid.UUID("6f1b5a52-0c7e-5f43-9c55-8f2f3a1d7f10")


class ClusterError(ValueError):
    """A cluster that cannot be built; the message names the file or text, the field and what would be right."""


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One node to simulate: cpu in thousandths, memory in bytes, its cards, labels and taints."""

    name: NodeName
    cpu: MilliCpu
    memory: Bytes
    cards: tuple[Card, ...] = ()
    gpu_model: str = ""
    card_mode: CardMode | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    max_pods: int = 110
    card_plugin: str = ""
    resources: dict[str, int] = {}
    """Further resources, offered as counts (MIG profiles, for one)."""


class NodeGroup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Equal nodes. `name_pattern` takes the number by ``%d`` or ``%02d``; `gpu_memory_mib` is per card."""

    name_pattern: str
    count: int = 1
    cpu: str | int = "64"
    memory: str | int = "256Gi"
    gpus: int = 0
    gpu_memory_mib: int = 81920
    gpu_model: str = "NVIDIA-A100-SXM4-80GB"
    card_mode: CardMode | None = None
    cards_per_link_group: int = 0
    """0: all cards of a node are linked with each other."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    racks: tuple[str, ...] = ()
    rack_label: str = DEFAULT_RACK_LABEL
    taints: tuple[Taint, ...] = ()
    max_pods: int = 110
    card_plugin: str = ""
    """``vgpu``: with card_mode volcano, its vGPU plugin instead of gpu-share."""
    resources: dict[str, int] = {}

    def __post_init__(self) -> None:
        """Refuse what no cluster can have; msgspec adds the path to the message."""
        if self.count < 1:
            raise ValueError(f"count: {self.count} must be at least 1")
        if self.gpus < 0:
            raise ValueError(f"gpus: {self.gpus} must not be negative")
        if self.gpus and self.gpu_memory_mib < 1024:
            raise ValueError(f"gpu_memory_mib: {self.gpu_memory_mib} MiB is less than any card has; 80 GiB is 81920")
        if self.max_pods < 1:
            raise ValueError(f"max_pods: {self.max_pods} must be at least 1")
        if self.cards_per_link_group < 0:
            raise ValueError(f"cards_per_link_group: {self.cards_per_link_group} must not be negative")
        if self.card_mode is not None and self.card_mode not in SIMULATED_MODES:
            known = ", ".join(SIMULATED_MODES)
            raise ValueError(
                f"card_mode: no device plugin is simulated for {self.card_mode.value!r}; use one of {known}"
            )
        if self.card_plugin not in {"", VGPU} or (self.card_plugin and self.card_mode is not CardMode.VOLCANO):
            raise ValueError(f"card_plugin: {self.card_plugin!r} must be {VGPU}, with card_mode volcano, or left out")
        if self.count > 1 and self.name(1) == self.name(2):
            raise ValueError(
                f"name_pattern: {self.name_pattern!r} must hold a number such as %02d when count is {self.count}"
            )
        self.name(1)
        to_milli_cpu(self.cpu)
        to_bytes(self.memory)

    def name(self, number: int) -> NodeName:
        """The name of the node with this number, counted from 1."""
        try:
            return NodeName(self.name_pattern % number if "%" in self.name_pattern else self.name_pattern)
        except (TypeError, ValueError) as error:
            raise ValueError(f"name_pattern: {self.name_pattern!r} must hold one number such as %02d") from error

    def node(self, number: int) -> NodeSpec:
        """The node with this number, counted from 1."""
        name = self.name(number)
        labels = dict(self.labels)
        if self.racks:
            labels[self.rack_label] = self.racks[(number - 1) * len(self.racks) // self.count]
        return NodeSpec(
            name=name,
            cpu=to_milli_cpu(self.cpu),
            memory=to_bytes(self.memory),
            cards=tuple(self._card(name, index) for index in range(self.gpus)),
            gpu_model=self.gpu_model if self.gpus else "",
            card_mode=self.card_mode if self.gpus else None,
            labels=labels,
            annotations=dict(self.annotations),
            taints=self.taints,
            max_pods=self.max_pods,
            card_plugin=self.card_plugin if self.gpus else "",
            resources=dict(self.resources),
        )

    def _card(self, name: NodeName, index: int) -> Card:
        return Card(
            index=CardIndex(index),
            memory_mib=MiB(self.gpu_memory_mib),
            uuid=f"GPU-{uuid.uuid5(UUID_NAMESPACE, f'{name}/{index}')}",
            link_group=index // self.cards_per_link_group if self.cards_per_link_group else 0,
        )


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole cluster."""

    nodes: tuple[NodeGroup, ...]

    def __post_init__(self) -> None:
        """Node names are unique over all groups."""
        seen: set[NodeName] = set()
        for group in self.nodes:
            for number in range(1, group.count + 1):
                name = group.name(number)
                if name in seen:
                    raise ValueError(
                        f"name_pattern: {group.name_pattern!r} gives {name!r} a second time; names are unique"
                    )
                seen.add(name)

    def expand(self) -> tuple[NodeSpec, ...]:
        """Every node, group by group."""
        return tuple(group.node(number) for group in self.nodes for number in range(1, group.count + 1))


def load_cluster(source: str | Path) -> ClusterSpec:
    """The cluster that a file or a shorthand describes (see the module's docstring).

    Raises:
        ClusterError: there is no such file, or it does not describe a cluster.
    """
    text = str(source)
    matched = SHORTHAND.fullmatch(text)
    if matched is not None:
        return _from_shorthand(text, matched)
    path = Path(source)
    if not path.is_file():
        raise ClusterError(
            f"cluster: {text!r} is neither a file nor shorthand such as 10x8, 100x8:4racks or 2x8:80:stock"
        )
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        return msgspec.convert(document, ClusterSpec)
    except (yaml.YAMLError, ValueError) as error:  # msgspec.ValidationError is a ValueError
        raise ClusterError(f"{path}: {error}") from error


def _from_shorthand(text: str, matched: re.Match[str]) -> ClusterSpec:
    count, cards = int(matched["nodes"]), int(matched["cards"])
    racks = 1 if count < 4 else max(2, -(-count // NODES_IN_A_RACK))
    memory_gib, mode, plugin = 80, CardMode.VOLCANO, ""
    for option in matched["options"].split(":")[1:]:
        if number := re.fullmatch(r"(\d+)racks?", option):
            racks = int(number[1])
        elif option.isdigit():
            memory_gib = int(option)
        elif option in SIMULATED_MODES:
            mode = CardMode(option)
        elif option == VGPU:
            plugin = VGPU
        else:
            modes = ", ".join((*SIMULATED_MODES, VGPU))
            raise ClusterError(
                f"cluster: {option!r} in {text!r} must be a number of racks (4racks), GiB per card (80) or one of {modes}"
            )
    if not 1 <= racks <= max(count, 1):
        raise ClusterError(f"cluster: {racks} racks in {text!r} must be between 1 and the number of nodes, {count}")
    try:
        group = NodeGroup(
            name_pattern=f"gpu-node-%0{max(2, len(str(count)))}d",
            count=count,
            cpu="96",
            memory="1024Gi",
            gpus=cards,
            gpu_memory_mib=memory_gib * 1024,
            gpu_model="NVIDIA-A100-SXM4-80GB" if memory_gib == 80 else f"NVIDIA-{memory_gib}GB",
            card_mode=mode if cards else None,
            card_plugin=plugin if cards else "",
            racks=tuple(f"rack-{letters(number)}" for number in range(racks)),
        )
        return ClusterSpec(nodes=(group,))
    except ValueError as error:
        raise ClusterError(f"cluster: {text!r}: {error}") from error


def letters(number: int) -> str:
    """Spreadsheet-like letters: 0 → a, 25 → z, 26 → aa."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("a") + rest) + text
    return text


def seed(store: Store) -> None:
    """Serve the custom resources; definitions that exist already are left as they are.

    Namespaces and the system's priority classes come with the store, nodes with their kubelets.
    """
    for crd in load_crds():
        if store.find(CRDS, None, crd["metadata"]["name"]) is None:
            store.create(CRDS, crd)
