"""The nodes as columns: everything about them that no decision changes.

    row     node (sorted by name, so the order in which nodes arrive never matters)
    column  one amount of one node: cpu, memory, pods, every extended resource
    card    [row, position]: memory, usable, index; a node with fewer cards than the widest has unusable positions

A fleet can be kept from one decision to the next while its nodes stay the same, and renewed in single rows; what is free stands
in `muster.decide.room`.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import NamedTuple

import msgspec
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
MOST_CARD_CHOICES = 200_000
"""Choices of cards that are remembered; a fleet may be kept for long."""


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
        self.hypernodes = tuple(hypernodes)
        self._topology: Levels | None = None
        self.size = len(self.nodes)
        self.names: tuple[NodeName, ...] = tuple(node.name for node in self.nodes)
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self.dimensions = dict(FIXED)
        for name in sorted({name for node in self.nodes for name, _ in node.extended}):
            self.dimensions.setdefault(name, len(self.dimensions))
        self.width = max((max(len(node.cards), node.allocatable_cards) for node in self.nodes), default=0)
        cards = (self.size, self.width)
        self.total = np.zeros((self.size, len(self.dimensions)), dtype=np.int64)
        self.card_memory = np.zeros(cards, dtype=np.int64)
        self.card_core = np.zeros(cards, dtype=np.int64)
        self.card_usable = np.zeros(cards, dtype=np.bool_)
        self.card_index = np.zeros(cards, dtype=np.int64)
        self.link_group = np.zeros(cards, dtype=np.int64)
        self.position_of: list[dict[int, int]] = [{} for _ in self.nodes]
        self.allocatable_cards = np.zeros(self.size, dtype=np.int64)
        self.shares_cards = np.zeros(self.size, dtype=np.bool_)
        self.card_resources = np.full(self.size, "", dtype=object)
        self.ready = np.zeros(self.size, dtype=np.bool_)
        self.unschedulable = np.zeros(self.size, dtype=np.bool_)
        self.withheld = np.zeros(self.size, dtype=np.bool_)
        self.taint_sets: list[tuple[Taint, ...]] = []
        self.taint_codes = np.zeros(self.size, dtype=np.int64)
        self._taint_code: dict[tuple[Taint, ...], int] = {}
        self.memo: dict[object, object] = {}
        """What other modules of the core derive from these nodes alone; the key says which."""
        self.label_memo: dict[object, object] = {}
        """The same for what is derived from nothing but names, labels and HyperNodes."""
        self._whole_cards: dict[tuple[int, bytes, int], tuple[CardUse, ...]] = {}
        self._columns: dict[str, Column] = {}
        self._vectors: dict[Request, Ints | None] = {}
        self._fill(range(self.size))

    def renewed(self, nodes: Mapping[NodeName, Node]) -> "Fleet | None":
        """The fleet with these nodes in the place of those of the same names; this one stays as it is.

        None when that cannot be done row by row: a name is new, or a resource, or there are more cards on a node than on any.
        """
        for name, node in nodes.items():
            wide = max(len(node.cards), node.allocatable_cards) > self.width
            if wide or name not in self.row_of or any(one not in self.dimensions for one, _ in node.extended):
                return None
        rows = [self.row_of[name] for name in nodes]
        fleet = copy(self)
        changed = list(self.nodes)
        relabelled = False
        for row, node in zip(rows, nodes.values(), strict=True):
            relabelled = relabelled or changed[row].labels != node.labels
            changed[row] = node
        fleet.nodes = tuple(changed)
        for attribute, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(fleet, attribute, value.copy())
        fleet.position_of = list(self.position_of)
        fleet.memo, fleet._whole_cards = {}, {}  # noqa: SLF001  (one of our own)
        if relabelled:
            fleet._columns, fleet._topology, fleet.label_memo = {}, None, {}  # noqa: SLF001
        fleet._taint_code, fleet.taint_sets = dict(self._taint_code), list(self.taint_sets)  # noqa: SLF001
        fleet._fill(rows)  # noqa: SLF001
        gone = {name for row in rows for name, _ in self.nodes[row].extended}
        gone -= {name for node in nodes.values() for name, _ in node.extended}
        # A resource that perhaps no node has any more: only all nodes together can tell.
        return fleet if not gone else None

    def _fill(self, rows: Iterable[int]) -> None:
        """Write the nodes of these rows into the arrays."""
        for row in rows:
            node = self.nodes[row]
            self.total[row] = 0
            self.total[row, :3] = node.cpu, node.memory, node.max_pods
            for name, amount in node.extended:
                self.total[row, self.dimensions[name]] = amount
            self._fill_cards(row, node)
            self.allocatable_cards[row] = node.allocatable_cards
            self.shares_cards[row] = node.card_mode in {CardMode.VOLCANO, CardMode.RESERVED}
            self.card_resources[row] = node.card_resource
            self.ready[row] = node.ready and not node.terminating
            self.unschedulable[row] = node.unschedulable
            self.withheld[row] = bool(node.withheld)
            code = self._taint_code.get(node.taints)
            if code is None:
                code = self._taint_code[node.taints] = len(self.taint_sets)
                self.taint_sets.append(node.taints)
            self.taint_codes[row] = code

    def _fill_cards(self, row: int, node: Node) -> None:
        for array in (self.card_memory, self.card_core, self.card_usable, self.card_index, self.link_group):
            array[row] = 0
        positions: dict[int, int] = {}
        for position, card in enumerate(node.cards):
            positions[card.index] = position
        count = len(node.cards)
        if count:
            self.card_memory[row, :count] = [card.memory_mib for card in node.cards]
            self.card_core[row, :count] = [card.core_percent for card in node.cards]
            self.card_usable[row, :count] = [card.healthy for card in node.cards]
            self.card_index[row, :count] = [card.index for card in node.cards]
            self.link_group[row, :count] = [card.link_group for card in node.cards]
        # Cards the kubelet offers but nobody described: they can be taken whole, and a share of their core too.
        spare = (index for index in range(self.width * 2) if index not in positions)
        for position in range(count, node.allocatable_cards):
            index = next(spare)
            positions[index] = position
            self.card_core[row, position] = 100
            self.card_usable[row, position] = True
            self.card_index[row, position] = index
        self.position_of[row] = positions

    @property
    def topology(self) -> Levels:
        """The levels of these nodes; found when first asked for."""
        if self._topology is None:
            self._topology = levels_of(self.nodes, self._asked_levels, self.hypernodes)
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

    def cards_of(self, row: int, usable: bytes, count: int) -> tuple[CardUse, ...]:
        """``count`` of the cards at the positions of a row that are not 0 in ``usable``, taken whole.

        Of one link group where one has enough (the tightest), lowest positions first.
        """
        known = self._whole_cards
        found = known.get((row, usable, count))
        if found is None:
            by_group: dict[int, list[int]] = {}
            where = [position for position, free in enumerate(usable) if free]
            for position, group in zip(where, self.link_group[row, where].tolist(), strict=True):
                by_group.setdefault(group, []).append(position)
            enough = [group for group, inside in by_group.items() if len(inside) >= count]
            chosen = by_group[min(enough, key=lambda group: (len(by_group[group]), group))] if enough else where
            if len(known) > MOST_CARD_CHOICES:
                known.clear()
            found = known[row, usable, count] = tuple(self._whole_card(row, position) for position in chosen[:count])
        return found

    def _whole_card(self, row: int, position: int) -> CardUse:
        return CardUse(
            index=CardIndex(int(self.card_index[row, position])),
            memory_mib=MiB(int(self.card_memory[row, position])),
            core_percent=CorePercent(int(self.card_core[row, position])),
            whole=True,
        )

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


def alike(before: Node, after: Node) -> bool:
    """Whether two states of a node are the same to whoever places pods on it."""
    return before == msgspec.structs.replace(after, resource_version=before.resource_version, fence=before.fence)
