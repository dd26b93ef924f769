"""Why a node may not be cordoned. The same rules are asked twice: by who proposes, and by the committer on its own view.

What only time shows (how long the node has been empty, when it was given back) is the proposer's to know.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from muster.decide.commitments import NodePromise
from muster.decide.idle.memory import IdleMemory
from muster.decide.idle.pools import PoolState, cards_of, count_pools, pool_of, rules_of, used_by_node
from muster.decide.memory import CoreMemory
from muster.decide.reasons import count
from muster.model.nodes import Node
from muster.model.policy import Idle, Policy
from muster.model.snapshot import Snapshot
from muster.model.units import NodeName


class Veto(StrEnum):
    """Every reason, in the order in which they are looked at."""

    GONE = "GONE"
    NO_CARDS = "NO_CARDS"
    OPEN_ENTRY = "OPEN_ENTRY"
    """It is cordoned by us, or on its way back."""
    NOT_READY = "NOT_READY"
    CORDONED_BY_OTHERS = "CORDONED_BY_OTHERS"
    KEPT_BY_OTHERS = "KEPT_BY_OTHERS"
    """It carries an annotation that asks autoscalers to leave it alone, and not from us."""
    BUSY = "BUSY"
    PROMISED = "PROMISED"
    """An open entry, or a plan, names it."""
    RESERVED = "RESERVED"
    WAITED_FOR = "WAITED_FOR"
    """A job that waits for room could use it."""
    WINDOW = "WINDOW"
    """Not empty for long enough."""
    MIN_UP = "MIN_UP"
    """It joined, or was given back, too lately."""
    BILLED = "BILLED"
    """What has been paid for it is not used up."""
    FLOOR = "FLOOR"
    SHARE = "SHARE"
    """Too many nodes of its pool are cordoned already."""
    FORECAST = "FORECAST"
    """Its cards are kept for what usually comes."""
    BUDGET = "BUDGET"
    """Cordons of the last hour."""


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules are asked about."""

    used: Mapping[NodeName, int]
    promises: Mapping[NodeName, NodePromise]
    named: Collection[NodeName]
    reserved: Collection[NodeName]
    idle: Idle


def ground_of(
    snapshot: Snapshot,
    memory: CoreMemory,
    promises: Mapping[NodeName, NodePromise],
    named: Collection[NodeName],
    policy: Policy,
) -> Ground:
    """The ground of a moment."""
    reserved = {node for one in memory.reservations for node in one.nodes}
    reserved |= {slot.node for one in memory.nominations for slot in one.slots}
    used = used_by_node(snapshot)
    return Ground(used=used, promises=promises, named=named, reserved=reserved, idle=policy.idle)


def standing_veto(node: Node, ground: Ground) -> tuple[Veto, str] | None:
    """What the node itself, and what is promised about it, says against a cordon."""
    if not cards_of(node):
        return Veto.NO_CARDS, "it has no cards"
    if node.name in ground.promises or node.withheld:
        return Veto.OPEN_ENTRY, "an entry is open for it"
    if not node.ready or node.terminating:
        return Veto.NOT_READY, "it is not ready"
    if node.unschedulable:
        return Veto.CORDONED_BY_OTHERS, "somebody else has cordoned it"
    if node.kept and not node.kept_by_us:
        return Veto.KEPT_BY_OTHERS, f"annotation {node.kept[0]} keeps it"
    if node.name in ground.used:
        return Veto.BUSY, "pods stand on it"
    if node.name in ground.named:
        return Veto.PROMISED, "a job is being placed on it"
    if node.name in ground.reserved:
        return Veto.RESERVED, "it is reserved for a job that waits"
    return None


def time_veto(node: Node, memory: IdleMemory, now: float, idle: Idle) -> tuple[Veto, str] | None:
    """What the past says against a cordon."""
    window = rules_of(pool_of(node, idle), idle).window
    needed = idle.window if window is None else window
    empty = now - memory.empty.get(node.uid, now)
    if empty < needed:
        return Veto.WINDOW, f"empty for {empty:.0f} of {needed:.0f} s"
    up = now - max(node.created, memory.returned.get(node.uid, 0.0))
    if up < idle.min_up:
        return Veto.MIN_UP, f"up for {up:.0f} of {idle.min_up:.0f} s"
    if idle.billing_period and node.created:
        left = idle.billing_period - (now - node.created) % idle.billing_period
        if left > idle.billing_margin:
            return Veto.BILLED, f"paid for {left:.0f} s more"
    return None


def pool_veto(node: Node, pool: PoolState, kept: int, idle: Idle) -> tuple[Veto, str] | None:
    """What the pool's rules say; ``kept`` cards stay open by the forecast."""
    rules = rules_of(pool_of(node, idle), idle)
    if pool.open - 1 < rules.floor:
        return Veto.FLOOR, f"{count(rules.floor, 'node')} of its pool stay open"
    if (pool.cordoned + 1) * 100 > rules.most_cordoned * pool.nodes:
        return Veto.SHARE, f"at most {rules.most_cordoned} % of its pool are cordoned at once"
    if pool.free_cards - cards_of(node) < kept + rules.spare_cards:
        return Veto.FORECAST, f"{count(kept + rules.spare_cards, 'card')} of its pool stay free"
    return None


def refusals(  # noqa: PLR0917  (the committer's view, in the order of `ground_of`)
    snapshot: Snapshot,
    memory: CoreMemory,
    promises: Mapping[NodeName, NodePromise],
    named: Collection[NodeName],
    policy: Policy,
    uids: Mapping[NodeName, str],
) -> dict[NodeName, str]:
    """Which proposed cordons the committer does not take, each with a sentence; those before count for those after.

    ``uids`` are of the nodes as the proposal knows them.
    """
    ground = ground_of(snapshot, memory, promises, named, policy)
    pools = count_pools(snapshot, ground.used, promises, policy.idle)
    there = {node.name: node for node in snapshot.nodes}
    refused: dict[NodeName, str] = {}
    for name, uid in uids.items():
        node = there.get(name)
        if node is None or node.uid != uid:
            refused[name] = f"node {name} is gone"
            continue
        found = standing_veto(node, ground)
        if found is None:
            pool = pools[pool_of(node, policy.idle)]
            found = pool_veto(node, pool, 0, policy.idle)
            if found is None:
                pool.taken(node)
        if found is not None:
            refused[name] = f"{name} stays open: {found[1]}"
    return refused
