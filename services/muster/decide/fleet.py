"""The nodes as columns: everything about them that no decision changes.

    row     node (sorted by name, so the order in which nodes arrive never matters)
    column  one amount of one node: cpu, memory, pods, every extended resource
    card    [row, position]: memory, usable, index; a node with fewer cards than the widest has unusable positions

A fleet can be kept from one decision to the next while its nodes stay the same; what is free stands in `muster.decide.room`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.decide.levels import Levels, levels_of
from muster.model.nodes import CardMode, Node, Taint
from muster.model.pods import CardUse, Request
from muster.model.topology import HyperNode
from muster.model.units import CardIndex, CorePercent, MiB, NodeName

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

CPU, MEMORY, PODS = 0, 1, 2
FIXED = {"cpu": CPU, "memory": MEMORY, "pods": PODS}


class Column(NamedTuple):
    """One label of all nodes: a code per row (-1: absent) and the code of each value."""

    codes: Ints
    values: dict[str, int]


class Fleet:
    """Nodes as arrays; rows are sorted by name."""

    def __init__(self, nodes: Sequence[Node], levels: Sequence[str] = (), hypernodes: Sequence[HyperNode] = ()) -> None:
        """``levels``: the policy's, widest first; those that no node has do not count."""
        self.nodes = tuple(sorted(nodes, key=lambda node: node.name))
        self._asked_levels = tuple(levels)
        self._hypernodes = tuple(hypernodes)
        self._topology: Levels | None = None
        self.size = len(self.nodes)
        self.names: tuple[NodeName, ...] = tuple(node.name for node in self.nodes)
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self.dimensions = dict(FIXED)
        for name in sorted({name for node in self.nodes for name, _ in node.extended}):
            self.dimensions.setdefault(name, len(self.dimensions))
        self.total = self._totals()
        self.width = max((max(len(node.cards), node.allocatable_cards) for node in self.nodes), default=0)
        self.card_memory = np.zeros((self.size, self.width), dtype=np.int64)
        self.card_core = np.zeros((self.size, self.width), dtype=np.int64)
        self.card_usable = np.zeros((self.size, self.width), dtype=np.bool_)
        self.card_index = np.zeros((self.size, self.width), dtype=np.int64)
        self.link_group = np.zeros((self.size, self.width), dtype=np.int64)
        self.position_of: list[dict[int, int]] = []
        self._fill_cards()
        self.allocatable_cards = np.array([node.allocatable_cards for node in self.nodes], dtype=np.int64)
        self.shares_cards = np.array(
            [node.card_mode in {CardMode.VOLCANO, CardMode.RESERVED} for node in self.nodes], dtype=np.bool_
        )
        self.card_resources = np.array([node.card_resource for node in self.nodes], dtype=object)
        self.ready = np.array([node.ready and not node.terminating for node in self.nodes], dtype=np.bool_)
        self.unschedulable = np.array([node.unschedulable for node in self.nodes], dtype=np.bool_)
        self.taint_sets: list[tuple[Taint, ...]] = []
        self.taint_codes = self._taints()
        self.memo: dict[object, object] = {}
        """What other modules of the core derive from these nodes alone; the key says which."""
        self._whole_cards: dict[tuple[int, int], CardUse] = {}
        self._columns: dict[str, Column] = {}
        self._vectors: dict[Request, Ints | None] = {}

    def _totals(self) -> Ints:
        total = np.zeros((self.size, len(self.dimensions)), dtype=np.int64)
        for row, node in enumerate(self.nodes):
            total[row, :3] = node.cpu, node.memory, node.max_pods
            for name, amount in node.extended:
                total[row, self.dimensions[name]] = amount
        return total

    def _fill_cards(self) -> None:
        for row, node in enumerate(self.nodes):
            positions: dict[int, int] = {}
            for position, card in enumerate(node.cards):
                positions[card.index] = position
                self.card_memory[row, position] = card.memory_mib
                self.card_core[row, position] = card.core_percent
                self.card_usable[row, position] = card.healthy
                self.card_index[row, position] = card.index
                self.link_group[row, position] = card.link_group
            # Cards the kubelet offers but nobody described: they can be taken whole, and a share of their core too.
            spare = (index for index in range(self.width * 2) if index not in positions)
            for position in range(len(node.cards), node.allocatable_cards):
                index = next(spare)
                positions[index] = position
                self.card_core[row, position] = 100
                self.card_usable[row, position] = True
                self.card_index[row, position] = index
            self.position_of.append(positions)

    def _taints(self) -> Ints:
        known: dict[tuple[Taint, ...], int] = {}
        codes = np.zeros(self.size, dtype=np.int64)
        for row, node in enumerate(self.nodes):
            codes[row] = known.setdefault(node.taints, len(known))
        self.taint_sets = list(known)
        return codes

    @property
    def topology(self) -> Levels:
        """The levels of these nodes; found when first asked for."""
        if self._topology is None:
            self._topology = levels_of(self.nodes, self._asked_levels, self._hypernodes)
        return self._topology

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the hierarchy's levels above the node, widest first."""
        return self.topology.names

    def column(self, key: str) -> Column:
        """The label ``key`` of every node."""
        found = self._columns.get(key)
        if found is None:
            values: dict[str, int] = {}
            codes = np.full(self.size, -1, dtype=np.int64)
            for row, node in enumerate(self.nodes):
                value = node.labels.get(key)
                if value is not None:
                    codes[row] = values.setdefault(value, len(values))
            found = self._columns[key] = Column(codes, values)
        return found

    def whole_card(self, row: int, position: int) -> CardUse:
        """The card at a position of a row, taken whole."""
        found = self._whole_cards.get((row, position))
        if found is None:
            found = self._whole_cards[row, position] = CardUse(
                index=CardIndex(int(self.card_index[row, position])),
                memory_mib=MiB(int(self.card_memory[row, position])),
                core_percent=CorePercent(int(self.card_core[row, position])),
                whole=True,
            )
        return found

    def vector(self, request: Request) -> Ints | None:
        """The request as amounts by dimension, one pod included; None when it asks a resource that no node has."""
        if request in self._vectors:
            return self._vectors[request]
        vector: Ints | None = np.zeros(len(self.dimensions), dtype=np.int64)
        assert vector is not None
        vector[CPU], vector[MEMORY], vector[PODS] = request.cpu, request.memory, 1
        for name, amount in request.extended:
            if amount <= 0:
                continue
            if name not in self.dimensions:
                vector = None
                break
            vector[self.dimensions[name]] = amount
        self._vectors[request] = vector
        return vector
