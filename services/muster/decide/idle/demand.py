"""Who waits for nodes: what a decision would do if every cordoned node were back, and what would be missing even then.

    snapshot with our cordons lifted ─► decide ─► places on cordoned nodes     those are given back, so that the gang starts whole
                                              └─► gangs that still wait        what they could use is given back too,
                                                                               and nodes are asked for: a gang's lot, or none

The decision is the scheduler's own core, so what is given back is what the scheduler will then use.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from muster.decide.asks import Ask, RoleAsk, asks_of
from muster.decide.basis import Start, start_of
from muster.decide.commitments import NodePromise, NodeVerb
from muster.decide.cordons import given_back
from muster.decide.fleet import Fleet, Ints, Mask
from muster.decide.idle.pools import cards_of, pool_of
from muster.decide.memory import CoreMemory
from muster.decide.placement.feasibility import admission, capacity
from muster.decide.placement.solver import Solve, solve_here
from muster.decide.reasons import CURED_BY_NODES, Reason, count
from muster.decide.scheduling import Decision, decide
from muster.decide.topology import domains, level_name, resolve
from muster.model.gangs import Gang, MemberState
from muster.model.instructions import Pending, Place
from muster.model.policy import Idle, Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, NodeName

NOT_BY_THESE = frozenset({Reason.NEVER_FITS, Reason.NO_MATCHING_NODE, Reason.NO_NODES, Reason.SHARING_NOT_AVAILABLE})
"""A gang that waits for one of these is not helped by nodes such as there are: it keeps none from being cordoned."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that would complete a gang, all of them or none."""

    gang: GangKey
    gang_uid: str
    pool: str
    """Whose nodes are like those asked for; '' is the pool without a name."""
    nodes: int
    like: NodeName
    """A node of the shape that is asked for; '' when no node is like it."""
    cards: int
    """Of one such node."""
    level: str = ""
    """They have to be in one domain of this level; '' anywhere."""
    message: str = ""


class Wanting(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants nodes."""

    back: dict[NodeName, GangKey] = {}
    """Cordoned nodes to be given back, and for whom."""
    used: frozenset[NodeName] = frozenset()
    """Nodes that gangs would start on now."""
    usable: frozenset[NodeName] = frozenset()
    """Open nodes that a gang which still waits could use."""
    demands: tuple[Demand, ...] = ()
    waiting_cards: int = 0
    """Cards of gangs that wait for room."""


def somebody_waits(gangs: Iterable[Gang]) -> bool:
    """Whether any gang could be placed if there were room."""
    return any(not gang.hold and any(member.state is MemberState.WAITING for member in gang.members) for gang in gangs)


def wanting(
    snapshot: Snapshot,
    memory: CoreMemory,
    promises: Mapping[NodeName, NodePromise],
    now: float,
    *,
    policy: Policy,
    solve: Solve = solve_here,
) -> Wanting:
    """Who wants nodes now; nobody, without any work, when no gang waits."""
    if not somebody_waits(snapshot.gangs):
        return Wanting()
    lifted = msgspec.structs.replace(
        snapshot, nodes=tuple(given_back(node) if node.name in promises else node for node in snapshot.nodes)
    )
    decision = decide(lifted, memory, now, policy, solve=solve)
    back: dict[NodeName, GangKey] = {}
    used: set[NodeName] = set()
    for place in decision.instructions:
        for slot in place.slots if isinstance(place, Place) else ():
            used.add(slot.node)
            if _is_away(promises.get(slot.node)):
                back.setdefault(slot.node, place.gang)
    hungry = list(_hungry(decision, lifted))
    cards = sum(pods * role.shape.request.cards for ask in hungry for role, pods in _wanted(ask))
    if not hungry:
        return Wanting(back=back, used=frozenset(used), waiting_cards=cards)
    start = start_of(lifted)
    usable: set[NodeName] = set()
    demands: list[Demand] = []
    codes = {one.gang: one.code for one in decision.instructions if isinstance(one, Pending)}
    for ask in hungry:
        if codes[ask.gang.key] not in NOT_BY_THESE:
            rows = _usable(start, ask)
            names = [start.fleet.names[row] for row in np.flatnonzero(rows).tolist()]
            usable.update(names)
            for name in _as_many_as_needed(start, ask, rows, promises):
                back.setdefault(name, ask.gang.key)
        if (demand := _demand(start, ask, policy.idle)) is not None:
            demands.append(demand)
    return Wanting(
        back=back, used=frozenset(used), usable=frozenset(usable), demands=tuple(demands), waiting_cards=cards
    )


def _is_away(promise: NodePromise | None) -> bool:
    """Cordoned by us, and not yet on its way back."""
    return promise is not None and promise.verb is not NodeVerb.UNCORDON


def _hungry(decision: Decision, snapshot: Snapshot) -> Iterator[Ask]:
    """Gangs that more nodes would help, in the order in which they were decided on."""
    asks = asks_of(snapshot.gangs)
    for one in decision.instructions:
        if isinstance(one, Pending) and one.code in CURED_BY_NODES and one.gang in asks:
            yield asks[one.gang]


def _wanted(ask: Ask) -> list[tuple[RoleAsk, int]]:
    """How many pods of each role the gang needs to start: each role's minimum, and what the gang's leaves open."""
    pods = [min(role.need, len(role.waiting)) for role in ask.roles]
    left = ask.minimum - sum(pods)
    for number, role in enumerate(ask.roles):
        more = max(0, min(left, len(role.waiting) - pods[number]))
        pods[number] += more
        left -= more
    return [(role, number) for role, number in zip(ask.roles, pods, strict=True) if number]


def _usable(start: Start, ask: Ask) -> Mask:
    """Rows that, emptied, hold at least one pod of the gang that has cards or asks none."""
    rows = np.zeros(start.fleet.size, dtype=np.bool_)
    for role in ask.roles:
        if role.waiting:
            rows |= admission(start.fleet, role.shape).rows & (capacity(start.empty, role.shape, None) > 0)
    return rows


def _as_many_as_needed(
    start: Start, ask: Ask, rows: Mask, promises: Mapping[NodeName, NodePromise]
) -> Iterator[NodeName]:
    """Cordoned nodes that the gang could use, the fewest that take all of it, those with company in their domain first."""
    fleet = start.fleet
    left = sum(pods for _, pods in _wanted(ask)) or 1
    away = [row for row in np.flatnonzero(rows).tolist() if _is_away(promises.get(fleet.names[row]))]
    level = resolve(fleet, ask.gang.topology).required
    codes = None if level is None else domains(fleet, level)
    company = _company(codes, rows)
    for row in sorted(away, key=lambda row: (-company.get(int(codes[row]) if codes is not None else -1, 0), row)):
        if left <= 0:
            return
        left -= max(1, *(int(capacity(start.empty, role.shape, None)[row]) for role in ask.roles if role.waiting))
        yield fleet.names[row]


def _company(codes: Ints | None, rows: Mask) -> dict[int, int]:
    """How many usable rows each domain has."""
    if codes is None:
        return {}
    values, counts = np.unique(codes[rows], return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _demand(start: Start, ask: Ask, idle: Idle) -> Demand | None:
    """The fewest more nodes, like one that there is, with which the gang would be complete."""
    fleet = start.fleet
    level = resolve(fleet, ask.gang.topology).required
    best: tuple[int, int, int] | None = None
    for row in _templates(fleet, idle):
        nodes = _nodes_needed(start, ask, row, in_one_domain=level is not None)
        if nodes is not None and (best is None or (nodes, cards_of(fleet.nodes[row])) < best[:2]):
            best = (nodes, cards_of(fleet.nodes[row]), row)
    if best is None or not best[0]:
        return None
    nodes, cards, row = best
    node = fleet.nodes[row]
    where = f" in one {level_name(fleet, level)}" if level is not None else ""
    return Demand(
        gang=ask.gang.key,
        gang_uid=ask.gang.uid,
        pool=pool_of(node, idle),
        nodes=nodes,
        like=node.name,
        cards=cards,
        level="" if level is None else level_name(fleet, level),
        message=f"{count(nodes, 'more node')} like {node.name} ({count(cards, 'card')} each){where} would complete it",
    )


def _templates(fleet: Fleet, idle: Idle) -> list[int]:
    """One row for each kind of node of each pool."""
    kinds: dict[object, int] = {}
    for row, node in enumerate(fleet.nodes):
        if node.ready and not node.terminating and not (node.unschedulable and node.cordoned is None):
            kinds.setdefault((pool_of(node, idle), cards_of(node), node.gpu_model, node.cpu, node.memory), row)
    return list(kinds.values())


def _nodes_needed(start: Start, ask: Ask, row: int, *, in_one_domain: bool) -> int | None:
    """Fresh nodes like this row that hold what the room as it is does not; None: not on nodes like this one.

    With a required level nothing is counted on what is free elsewhere: the new nodes may make a domain of their own.
    """
    total = 0.0
    for role, pods in _wanted(ask):
        each = int(capacity(start.empty, role.shape, None)[row])
        lacking = pods - (0 if in_one_domain else int(capacity(start.room, role.shape, None).sum()))
        if lacking <= 0:
            continue
        if not each or not admission(start.fleet, role.shape).rows[row]:
            return None
        total += lacking / each
    return math.ceil(total - 1e-9)
