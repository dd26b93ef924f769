"""Nodes by pool, and what stands on them: the numbers that floors and budgets are about."""

from collections.abc import Mapping

import msgspec

from muster.decide.commitments import NodePromise, NodeVerb
from muster.decide.held import HOLDING
from muster.model.nodes import Node
from muster.model.policy import Idle, Pool
from muster.model.snapshot import Snapshot
from muster.model.units import NodeName

OTHERS = ""
"""Name of the pool of nodes that no pool of the policy matches."""
NO_RULES = Pool()


class PoolState(msgspec.Struct, kw_only=True):
    """Counted over the nodes with cards of one pool; changed as wishes are added in one look."""

    nodes: int = 0
    open: int = 0
    """Ready, schedulable and not withheld."""
    cordoned: int = 0
    """By us, also those that are being given back."""
    free_cards: int = 0
    """Whole cards that nobody uses on open nodes."""
    used_cards: int = 0

    def taken(self, node: Node) -> None:
        """One of its open, empty nodes is to be cordoned."""
        self.open -= 1
        self.cordoned += 1
        self.free_cards -= cards_of(node)

    def returned(self, node: Node) -> None:
        """One of its cordoned nodes is to be given back."""
        self.open += 1
        self.cordoned -= 1
        self.free_cards += cards_of(node)


def pool_of(node: Node, idle: Idle) -> str:
    """The name of the first pool that matches the node."""
    for name, pool in idle.pools.items():
        if pool.labels.items() <= node.labels.items():
            return name
    return OTHERS


def rules_of(pool: str, idle: Idle) -> Pool:
    """The rules of a pool."""
    return idle.pools.get(pool, NO_RULES)


def cards_of(node: Node) -> int:
    """Cards that the node has or would offer."""
    return max(len(node.cards), node.allocatable_cards)


def is_open(node: Node) -> bool:
    """Whether pods may be placed on it."""
    return node.ready and not node.terminating and not node.unschedulable and not node.withheld


def used_by_node(snapshot: Snapshot) -> dict[NodeName, int]:
    """Cards in use, in whole ones, by node; nodes that are not empty are here even when they use none.

    Not empty are those on which anything stands, is promised or leaves, but DaemonSet and mirror pods.
    """
    used: dict[NodeName, int] = {}
    touched: dict[NodeName, set[int]] = {}

    def add(node: NodeName, cards: int, indices: tuple[int, ...]) -> None:
        used[node] = used.get(node, 0) + (0 if indices else cards)
        touched.setdefault(node, set()).update(indices)

    for gang in snapshot.gangs:
        asked = {role.name: role.shape.request.cards for role in gang.roles}
        for member in gang.members:
            if member.state in HOLDING and member.node is not None:
                add(member.node, asked.get(member.role, 0), tuple(use.index for use in member.cards))
    for occupant in snapshot.occupants:
        if not occupant.system:
            add(occupant.node, occupant.request.cards, tuple(use.index for use in occupant.cards))
    for hold in snapshot.holds:
        add(hold.node, hold.request.cards, tuple(use.index for use in hold.cards))
    return {node: cards + len(touched[node]) for node, cards in used.items()}


def count_pools(
    snapshot: Snapshot, used: Mapping[NodeName, int], promises: Mapping[NodeName, NodePromise], idle: Idle
) -> dict[str, PoolState]:
    """Every pool that has nodes with cards."""
    pools: dict[str, PoolState] = {}
    for node in snapshot.nodes:
        if not cards_of(node):
            continue
        state = pools.setdefault(pool_of(node, idle), PoolState())
        state.nodes += 1
        state.used_cards += used.get(node.name, 0)
        promise = promises.get(node.name)
        if promise is not None and promise.verb is not NodeVerb.UNCORDON:
            state.cordoned += 1
        if is_open(node):
            state.open += 1
            state.free_cards += max(0, node.allocatable_cards - used.get(node.name, 0))
        elif promise is not None and promise.verb is NodeVerb.UNCORDON:
            state.free_cards += node.allocatable_cards  # on its way back
    return pools
