"""What the preemptor proposes now: one plan at a time, for the first entitled gang that has one."""

import msgspec

from muster.decide.asks import Ask, asks_of
from muster.decide.fleet import Fleet
from muster.decide.memory import CoreMemory, Nomination
from muster.decide.ordering import Line, gang_key_order
from muster.decide.placement.expand import slots_of
from muster.decide.preemption.moves import consolidation
from muster.decide.preemption.plans import Planner
from muster.decide.preemption.trial import Trial
from muster.decide.room import Room
from muster.decide.scheduling.holds import hold_of
from muster.decide.scheduling.rounds import blocked_rows, demand_of, fits_empty
from muster.decide.scheduling.state import least_charge
from muster.decide.shares import set_shares, total_of, tree_of
from muster.model.gangs import MemberState
from muster.model.instructions import Evict
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A proven plan, and what is to be held for whom once it is committed; empty when there is none."""

    plan: Evict | None = None
    nominations: tuple[Nomination, ...] = ()


def propose(
    snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, *, fleet: Fleet | None = None
) -> Proposal:
    """The next plan, or none: nothing is proposed while an earlier plan is open or pods are still leaving.

    A gang that fits as it is needs no plan; a gang that could not fit an emptied cluster gets none.
    """
    leaving = any(member.state is MemberState.LEAVING for gang in snapshot.gangs for member in gang.members)
    if leaving or memory.nominations:
        return Proposal()
    fleet = fleet or Fleet(snapshot.nodes, snapshot.topology_levels, snapshot.hypernodes)
    room = Room.of(snapshot, fleet)
    tree = tree_of(snapshot, room)
    empty = Room(fleet)
    asks = [
        ask
        for ask in asks_of(snapshot.gangs).values()
        if ask.minimum and hold_of(ask, tree, memory, now) is None and fits_empty(empty, ask)
    ]
    if not asks:
        return Proposal()
    set_shares(tree, total_of(fleet), demand_of(fleet, tree, asks))
    trial = Trial(room, tree, policy.packing, blocked=blocked_rows(fleet, memory, now, asks))
    line = Line(tree, (ask for ask in asks if not ask.gang.broken), lambda ask: least_charge(room, ask))
    turns = sorted((ask for ask in asks if ask.gang.broken), key=lambda ask: gang_key_order(ask.gang))
    while (turn := line.next()) is not None:
        turns.append(turn)
    turns = [ask for ask in turns if not ask.gang.never_preempts and trial.fits(ask, ()) is None]
    until = now + policy.timeouts.start
    for ask in turns:
        found = _evictions(trial, ask, snapshot, policy, until)
        if found is not None:
            return found
    for ask in turns if policy.actions.consolidate == "act" else ():
        found = _moves(trial, ask, snapshot, until)
        if found is not None:
            return found
    return Proposal()


def _evictions(trial: Trial, ask: Ask, snapshot: Snapshot, policy: Policy, until: float) -> Proposal | None:
    actions = policy.actions
    planner = Planner(trial, ask, snapshot.gangs, preempt=actions.preempt == "act", reclaim=actions.reclaim == "act")
    plan = planner.best()
    if plan is None:
        return None
    slots = slots_of(trial.room.fleet, ask, plan.landed)
    victims = tuple((unit.gang.key, member.uid) for unit in plan.units for member in unit.members)
    cross = any(unit.gang.queue != ask.gang.queue for unit in plan.units)
    evict = Evict(gang=ask.gang.key, victims=victims, slots=slots, cause="reclaim" if cross else "preempt")
    hold = Nomination(gang=ask.gang.key, slots=slots, victims=tuple(uid for _, uid in victims), until=until)
    return Proposal(plan=evict, nominations=(hold,))


def _moves(trial: Trial, ask: Ask, snapshot: Snapshot, until: float) -> Proposal | None:
    move = consolidation(trial, ask, snapshot.gangs)
    if move is None:
        return None
    fleet = trial.room.fleet
    slots = slots_of(fleet, ask, move.landed)
    victims = tuple((unit.gang.key, member.uid) for unit in move.units for member in unit.members)
    uids = tuple(uid for _, uid in victims)
    holds = [Nomination(gang=ask.gang.key, slots=slots, victims=uids, until=until)]
    holds += [
        Nomination(gang=again.gang.key, slots=slots_of(fleet, again, landed), victims=uids, until=until)
        for again, landed in move.replaced
    ]
    return Proposal(
        plan=Evict(gang=ask.gang.key, victims=victims, slots=slots, cause="consolidate"), nominations=tuple(holds)
    )
