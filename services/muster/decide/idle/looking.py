"""One look at the nodes: what is to be cordoned, given back, asked for and kept.

who wants nodes ─► give back ─┐
floors, forecast ─► give back ├─► wishes: proposed to the committer, which takes or refuses each on its own view
idle, and no veto ─► cordon ──┘
"""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from muster.decide.commitments import NodePromise, NodeVerb
from muster.decide.fleet import Fleet
from muster.decide.idle.demand import Demand, Wanting, wanting
from muster.decide.idle.forecast import cards_kept
from muster.decide.idle.memory import IdleMemory, seen, wanted
from muster.decide.idle.pools import OTHERS, PoolState, cards_of, count_pools, is_open, pool_of, rules_of
from muster.decide.idle.vetoes import Ground, Veto, ground_of, pool_veto, standing_veto, time_veto
from muster.decide.memory import CoreMemory
from muster.decide.placement.solver import Solve, solve_here
from muster.decide.topology import node_level, preferred_domains
from muster.model.nodes import Node
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, NodeName

DEMAND, FORECAST, FLOOR = "DEMAND", "FORECAST", "FLOOR"
"""Why a node is given back."""


class CordonIdea(msgspec.Struct, frozen=True, kw_only=True):
    """An idle node that nobody needs."""

    node: NodeName
    node_uid: str
    pool: str
    idle_seconds: float
    message: str


class UncordonIdea(msgspec.Struct, frozen=True, kw_only=True):
    """A cordoned node that is needed."""

    node: NodeName
    node_uid: str
    reason: str
    """`DEMAND`, `FORECAST` or `FLOOR`."""
    message: str
    gang: GangKey = GangKey("")


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from one look."""

    cordons: tuple[CordonIdea, ...] = ()
    uncordons: tuple[UncordonIdea, ...] = ()
    demands: tuple[Demand, ...] = ()
    vetoes: dict[Veto, int] = {}
    """How many nodes each reason keeps open; those without cards are left out."""
    keep: tuple[NodeName, ...] = ()
    """Nodes that other autoscalers are to leave alone and that do not say so yet."""
    release: tuple[NodeName, ...] = ()
    """Nodes that we marked so, and that nothing needs any more."""
    idle_nodes: int = 0
    """Open nodes that have been empty for their whole window."""
    memory: IdleMemory = IdleMemory()


class Sight(NamedTuple):
    """What a look sees."""

    snapshot: Snapshot
    """As the scheduler sees it; nodes with open entries are withheld in it."""
    core: CoreMemory
    """The scheduler's memory: reservations, and the room that open plans nominate."""
    promises: Mapping[NodeName, NodePromise]
    """The open entries of nodes."""
    named: Collection[NodeName]
    """Nodes that open entries of gangs name."""
    now: float
    """Unix seconds."""
    policy: Policy


def look(sight: Sight, memory: IdleMemory, *, solve: Solve = solve_here) -> Look:
    """What follows now. ``memory`` is as the last look left it; ``solve`` carries out one CP-SAT call."""
    snapshot, core, promises, named, now, policy = sight
    idle = policy.idle
    ground = ground_of(snapshot, core, promises, named, policy)
    empty = [n.uid for n in snapshot.nodes if cards_of(n) and n.name not in ground.used and n.name not in promises]
    memory = seen(
        memory,
        empty=empty,
        returning=[promise.node_uid for promise in promises.values() if promise.verb is NodeVerb.UNCORDON],
        there={node.uid for node in snapshot.nodes},
        now=now,
        idle=idle,
    )
    needs = wanting(snapshot, core, promises, now, policy=policy, solve=solve)
    pools = count_pools(snapshot, ground.used, promises, idle)
    memory = _remembered(memory, pools, needs, now)
    kept = {name: cards_kept(memory.demanded.get(name, ()), idle) for name in pools}
    uncordons = [*_for_demand(snapshot, needs), *_for_pools(sight, pools, kept, needs)]
    cordons, vetoes, idles = _cordons(sight, ground, needs, pools=pools, kept=kept, memory=memory)
    keep, release = _kept(snapshot, ground, needs) if idle.keep_nodes else ((), _marked(snapshot))
    return Look(
        cordons=tuple(cordons),
        uncordons=tuple(uncordons),
        demands=needs.demands,
        vetoes=dict(vetoes),
        keep=keep,
        release=release,
        idle_nodes=idles,
        memory=memory,
    )


def _remembered(memory: IdleMemory, pools: Mapping[str, PoolState], needs: Wanting, now: float) -> IdleMemory:
    """What is used and waited for; what waits counts where most nodes are, for it could go anywhere."""
    largest = max(pools, key=lambda name: (pools[name].nodes, name), default=OTHERS)
    cards = {name: state.used_cards + (needs.waiting_cards if name == largest else 0) for name, state in pools.items()}
    return wanted(memory, cards, now)


def _for_demand(snapshot: Snapshot, needs: Wanting) -> list[UncordonIdea]:
    return [
        UncordonIdea(
            node=node.name,
            node_uid=node.uid,
            reason=DEMAND,
            message=f"{needs.back[node.name]} waits for it",
            gang=needs.back[node.name],
        )
        for node in snapshot.nodes
        if node.name in needs.back
    ]


def _for_pools(
    sight: Sight, pools: dict[str, PoolState], kept: Mapping[str, int], needs: Wanting
) -> list[UncordonIdea]:
    """Floors that are not met, and cards that the forecast misses; the nodes that were cordoned last come back first."""
    snapshot, _, promises, _, now, policy = sight
    idle = policy.idle
    wishes: list[UncordonIdea] = []
    away = [
        (promise, node)
        for node in snapshot.nodes
        if (promise := promises.get(node.name)) is not None
        and promise.verb is not NodeVerb.UNCORDON
        and node.name not in needs.back
    ]
    for promise, node in sorted(away, key=lambda one: (-one[0].since, one[1].name)):
        name = pool_of(node, idle)
        state, rules = pools[name], rules_of(name, idle)
        if state.open < rules.floor:
            reason, message = FLOOR, f"its pool has {state.open} of {rules.floor} nodes open"
        elif state.free_cards < kept[name] + rules.spare_cards and now - promise.since >= idle.min_down:
            reason, message = FORECAST, f"{state.free_cards} cards are free, {kept[name] + rules.spare_cards} are kept"
        else:
            continue
        state.returned(node)
        wishes.append(UncordonIdea(node=node.name, node_uid=node.uid, reason=reason, message=message))
    return wishes


def _cordons(
    sight: Sight,
    ground: Ground,
    needs: Wanting,
    *,
    pools: dict[str, PoolState],
    kept: Mapping[str, int],
    memory: IdleMemory,
) -> tuple[list[CordonIdea], Counter[Veto], int]:
    """Idle nodes that no rule keeps, from the domains with the least free room on: whole free domains stay open longest."""
    snapshot, now, idle = sight.snapshot, sight.now, sight.policy.idle
    vetoes: Counter[Veto] = Counter()
    candidates: list[Node] = []
    for node in snapshot.nodes:
        found = standing_veto(node, ground)
        if found is None and (node.name in needs.used or node.name in needs.usable):
            found = Veto.WAITED_FOR, "a job waits for it"
        if found is None:
            found = time_veto(node, memory, now, idle)
        if found is None:
            candidates.append(node)
        elif found[0] is not Veto.NO_CARDS:
            vetoes[found[0]] += 1
    wishes: list[CordonIdea] = []
    for node in _ordered(snapshot, candidates, ground):
        name = pool_of(node, idle)
        found = pool_veto(node, pools[name], kept[name], idle)
        if found is None and idle.per_hour and len(memory.cordoned) + len(wishes) >= idle.per_hour:
            found = Veto.BUDGET, ""
        if found is not None:
            vetoes[found[0]] += 1
            continue
        pools[name].taken(node)
        seconds = now - memory.empty[node.uid]
        message = f"empty for {_minutes(seconds)}, and nobody waits for its {cards_of(node)} cards"
        wishes.append(CordonIdea(node=node.name, node_uid=node.uid, pool=name, idle_seconds=seconds, message=message))
    return wishes, vetoes, len(candidates)


def _ordered(snapshot: Snapshot, candidates: list[Node], ground: Ground) -> list[Node]:
    if len(candidates) < 2:
        return candidates
    fleet = Fleet(snapshot.nodes, snapshot.topology_levels, snapshot.hypernodes)
    codes = preferred_domains(fleet, max(0, node_level(fleet) - 1))
    free = np.array(
        [node.allocatable_cards - ground.used.get(node.name, 0) if is_open(node) else 0 for node in snapshot.nodes]
    )
    by_domain = np.bincount(codes, weights=free)
    return sorted(candidates, key=lambda node: (by_domain[codes[fleet.row_of[node.name]]], node.name))


def _kept(snapshot: Snapshot, ground: Ground, needs: Wanting) -> tuple[tuple[NodeName, ...], tuple[NodeName, ...]]:
    """Nodes to be marked so that other autoscalers leave them alone, and those whose mark goes."""
    needed = {*ground.reserved, *ground.named, *needs.used, *ground.used}
    keep = tuple(node.name for node in snapshot.nodes if node.name in needed and not node.kept and cards_of(node))
    release = tuple(node.name for node in snapshot.nodes if node.kept_by_us and node.name not in needed)
    return keep, release


def _marked(snapshot: Snapshot) -> tuple[NodeName, ...]:
    return tuple(node.name for node in snapshot.nodes if node.kept_by_us)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
