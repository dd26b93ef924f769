"""What the preemptor proposes now: one plan, for the first entitled gang that has one.

Plans that are open already are taken as done, and nothing is planned on their nodes or on those that pods leave just now; so
several are open at once where they have nothing in common. A plan that was refused, or led nowhere, is not proposed again
while everything it looked at is the same.
"""

from collections.abc import Collection, Iterable

import msgspec
import numpy as np

from muster.decide.asks import Ask
from muster.decide.basis import Basis, Start, start_of
from muster.decide.cordons import given_back
from muster.decide.fleet import Fleet
from muster.decide.memory import CoreMemory, Nomination, without_cards_aside
from muster.decide.ordering import Line, gang_key_order
from muster.decide.placement.expand import slots_of
from muster.decide.preemption.allowances import Allowances
from muster.decide.preemption.candidates import Kept, Supply
from muster.decide.preemption.history import digest_of, stopped
from muster.decide.preemption.moves import consolidation
from muster.decide.preemption.owing import owes_of
from muster.decide.preemption.plans import Effort, Found, Planner
from muster.decide.preemption.precedence import took_room_of
from muster.decide.preemption.protection import Protection, restarts_of
from muster.decide.preemption.victims import Unit
from muster.decide.preemption.world import World, world_of
from muster.decide.scheduling.state import least_charge
from muster.decide.waiting.promotion import promoted
from muster.decide.waiting.stability import shares_stable
from muster.model.instructions import Evict
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey

SERVED_WITHIN = 120.0
"""Seconds from its submission within which a gang gets idle nodes back that it can use, if it gets them at all."""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proven plan, and what is to be held for whom once it is committed; empty when there is none."""

    plan: Evict | None = None
    nominations: tuple[Nomination, ...] = ()
    finding: str = ""
    """Why a plan that was found is not proposed, when a limit of the policy keeps it back."""
    uids: tuple[tuple[GangKey, str], ...] = ()
    """The uid of each gang that room is nominated for."""


def propose(
    snapshot: Snapshot,
    memory: CoreMemory,
    now: float,
    policy: Policy,
    *,
    fleet: Fleet | None = None,
    basis: Basis | None = None,
    only: GangKey | None = None,
) -> Proposal:
    """The next plan, or none.

    A gang that fits as it is, or will once what leaves already is gone, needs no plan; a gang that could not fit an emptied
    cluster gets none. ``fleet`` and ``basis`` are those of `muster.decide.scheduling.decide`. ``only``: for no other gang.
    """
    nodes = without_cards_aside(snapshot.nodes, memory, now)
    if nodes is not snapshot.nodes:
        snapshot, fleet = msgspec.structs.replace(snapshot, nodes=nodes), None
    if basis is None:
        return _proposed(start_of(snapshot, fleet), snapshot, memory, now, policy, kept={}, only=only)
    try:
        kept = basis.memo.setdefault(Supply, {})
        assert isinstance(kept, dict)
        return _proposed(basis.start(snapshot), snapshot, memory, now, policy, kept=kept, only=only)
    finally:
        basis.give_back()


def _proposed(
    start: Start,
    snapshot: Snapshot,
    memory: CoreMemory,
    now: float,
    policy: Policy,
    *,
    kept: Kept,
    only: GangKey | None,
) -> Proposal:
    world = world_of(start, snapshot, memory, now, policy)
    turns = _without_served(_turns(world, memory, now, policy), snapshot, memory, now, policy)
    if not turns:
        return Proposal()
    supply = _supply(world, snapshot, memory, now, policy, kept=kept)
    allowances = Allowances(snapshot.budgets, world.named)
    until = now + policy.timeouts.start
    finding = ""
    hopeless: set[object] = set()
    """What gangs ask that had no plan: those who ask the same have none either."""
    special = {one.gang for one in memory.reservations} | {one.reserved_for for one in memory.backfilled}
    effort = Effort()
    first = promoted(world.asks.values(), memory, now, policy)
    open_to_all = dict(world.trial.blocked)
    for number, ask in enumerate(turns):
        asked: object = (_asked(ask), ask.gang.key if ask.gang.key in special else "")
        if asked in hopeless or only not in {None, ask.gang.key}:
            continue
        world.trial.blocked = dict(open_to_all)
        if memory.reservations:
            _keep_for(world, ask, turns[:number], memory, first)
        found = _evictions(
            world, start, supply, ask, policy, allowances=allowances, memory=memory, now=now, effort=effort
        )
        if found is None:
            hopeless.add(asked)
            continue
        proposal = _proposal(world, ask, found, until)
        if _led_nowhere(memory, proposal, snapshot):
            continue
        if limit := stopped(memory, found.units, now, policy):
            finding = finding or limit
            continue
        return proposal
    unmoved: set[object] = set()
    for number, ask in enumerate(turns) if policy.actions.consolidate == "act" else ():
        asked = _asked(ask)
        if only not in {None, ask.gang.key}:
            continue
        world.trial.blocked = dict(open_to_all)
        if memory.reservations:
            _keep_for(world, ask, turns[:number], memory, first)
        moved = _moves(world, start, supply, ask, until, allowances=allowances) if asked not in unmoved else None
        if moved is None:
            unmoved.add(asked)
        elif not allowances.refuses(moved[1]) and not _led_nowhere(memory, moved[0], snapshot):
            return moved[0]
    return Proposal(finding=finding)


def _led_nowhere(memory: CoreMemory, proposal: Proposal, snapshot: Snapshot) -> bool:
    known = memory.tried.get(proposal.plan.gang) if proposal.plan is not None else None
    return known is not None and known == digest_of(proposal.plan, snapshot)


def _supply(world: World, snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, *, kept: Kept) -> Supply:
    """Everything that may leave now."""
    protection = Protection(
        world.fleet,
        memory=memory,
        now=now,
        policy=policy,
        tree=world.tree,
        named=world.named,
        pauses=snapshot.pauses,
    )
    return Supply(
        snapshot.gangs,
        fleet=world.fleet,
        protection=protection,
        restarts=restarts_of(memory),
        busy=world.busy,
        now=now,
        kept=kept,
        owes=owes_of(memory, now, policy),
    )


def _keep_for(world: World, ask: Ask, earlier: Iterable[Ask], memory: CoreMemory, first: Collection[GangKey]) -> None:
    """The gang is not planned onto nodes reserved for one of its queue with more priority: it would have to leave again.

    Nor onto those reserved for one of its queue that has waited too long (``first``), whatever its priority: that one would
    never get its room. For the rest the law alone decides: who is entitled does not wait for others' reservations.
    """
    ahead = {
        one.gang.key
        for one in earlier
        if one.gang.queue == ask.gang.queue and (one.gang.priority > ask.gang.priority or one.gang.key in first)
    }
    names = {name for one in memory.reservations if one.gang in ahead for name in one.nodes}
    if names:
        rows = np.zeros(world.fleet.size, dtype=np.bool_)
        rows[[world.fleet.row_of[name] for name in sorted(names) if name in world.fleet.row_of]] = True
        world.trial.block({role.shape for role in ask.roles}, rows)


def _turns(world: World, memory: CoreMemory, now: float, policy: Policy) -> list[Ask]:
    """Gangs that need a plan, in the order in which the scheduler would serve them."""
    asks = world.asks.values()
    line = Line(
        world.tree,
        (ask for ask in asks if not ask.gang.broken),
        lambda ask: least_charge(world.room, ask),
        promoted=promoted(asks, memory, now, policy),
    )
    turns = sorted((ask for ask in asks if ask.gang.broken), key=lambda ask: gang_key_order(ask.gang))
    while (turn := line.next()) is not None:
        turns.append(turn)
    fits: dict[object, bool] = {}
    needy = []
    for ask in turns:
        if ask.gang.never_preempts:
            continue
        asked = _asked(ask)
        if asked not in fits:
            fits[asked] = world.settled.fits(ask, ()) is not None
        if not fits[asked]:
            needy.append(ask)
    return needy


def _without_served(turns: list[Ask], snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy) -> list[Ask]:
    """Without those that idle nodes will serve once they are back (`muster.decide.idle`): nobody leaves for them.

    Who has waited for longer than that takes is not put off any more: perhaps nobody is there to give the nodes back.
    """
    away = {node.name for node in snapshot.nodes if node.withheld}
    if not turns or not away:
        return turns
    nodes = tuple(given_back(node) if node.name in away else node for node in snapshot.nodes)
    back = msgspec.structs.replace(snapshot, nodes=nodes)
    needy = {ask.gang.key for ask in _turns(world_of(start_of(back), back, memory, now, policy), memory, now, policy)}
    return [ask for ask in turns if ask.gang.key in needy or now - ask.gang.submitted > SERVED_WITHIN]


def _asked(ask: Ask) -> object:
    """What a gang asks and may take: equal for gangs of which the same is true; a gang that stands in part is like no other."""
    gang = ask.gang
    roles = tuple((role.shape, role.need, len(role.waiting), role.topology, role.whole) for role in ask.roles)
    return gang.queue, gang.priority, gang.topology, ask.need, roles, gang.key if ask.standing else ""


def _evictions(
    world: World,
    start: Start,
    supply: Supply,
    ask: Ask,
    policy: Policy,
    *,
    allowances: Allowances,
    memory: CoreMemory,
    now: float,
    effort: Effort,
) -> Found | None:
    actions = policy.actions
    reclaim = actions.reclaim == "act" and shares_stable(memory, ask.gang.queue, now, policy)
    units = supply.for_ask(ask, world.tree, preempt=actions.preempt == "act", reclaim=reclaim)
    takers = took_room_of(memory, ask.gang.key)
    units = [unit for unit in units if unit.owed or unit.gang.key not in takers] if takers else units
    if not units:
        return None
    return Planner(
        world.trial,
        start.empty,
        ask,
        units,
        allowances=allowances,
        moved_per_gained=policy.preemption.moved_per_gained,
        moved_always=policy.preemption.moved_always,
        effort=effort,
    ).best()


def _proposal(world: World, ask: Ask, found: Found, until: float) -> Proposal:
    slots = slots_of(world.fleet, ask, found.landed)
    victims = tuple((unit.gang.key, member.uid) for unit in found.units for member in unit.members)
    cross = any(unit.gang.queue != ask.gang.queue and not unit.owed for unit in found.units)
    owed = any(unit.owed for unit in found.units)
    cause = "reclaim" if cross else "backfill" if owed else "preempt"
    evict = Evict(gang=ask.gang.key, victims=victims, slots=slots, cause=cause)
    hold = Nomination(gang=ask.gang.key, slots=slots, victims=tuple(uid for _, uid in victims), until=until)
    return Proposal(plan=evict, nominations=(hold,), uids=((ask.gang.key, ask.gang.uid),))


def _moves(
    world: World, start: Start, supply: Supply, ask: Ask, until: float, *, allowances: Allowances
) -> tuple[Proposal, tuple[Unit, ...]] | None:
    movable = [gang for gang in world.gangs.values() if supply.of(gang)]
    move = consolidation(world.trial, start.empty, ask, movable, allowances)
    if move is None:
        return None
    fleet = world.fleet
    slots = slots_of(fleet, ask, move.landed)
    victims = tuple((unit.gang.key, member.uid) for unit in move.units for member in unit.members)
    uids = tuple(uid for _, uid in victims)
    holds = [Nomination(gang=ask.gang.key, slots=slots, victims=uids, until=until)]
    holds += [
        Nomination(gang=again.gang.key, slots=slots_of(fleet, again, landed), victims=uids, until=until)
        for again, landed in move.replaced
    ]
    proposal = Proposal(
        plan=Evict(gang=ask.gang.key, victims=victims, slots=slots, cause="consolidate"),
        nominations=tuple(holds),
        uids=tuple((one.gang, world.gangs[one.gang].uid) for one in holds),
    )
    return proposal, move.units
