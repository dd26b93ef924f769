"""The committer's and the executor's word on plans: sound or not, as a sentence.

    refusal   before a plan is committed: gang, victims, law, room (by the validator), nothing spare, limits
    unsound   before a batch of evictions: part of the victims may be gone; is the rest still needed, allowed and enough?

Both look at the cluster as it is now and believe nothing that the plan says of it. Open plans are those in
`memory.nominations`; the plan that `unsound` looks at is one of them.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

import msgspec

from muster.decide.asks import Ask
from muster.decide.basis import Basis, Start, start_of
from muster.decide.memory import CoreMemory, without_cards_aside
from muster.decide.placement.validate import validate
from muster.decide.preemption.allowances import Allowances
from muster.decide.preemption.history import plan_stopped
from muster.decide.preemption.judging import Judge
from muster.decide.preemption.law import in_queue, reclaimable, within_claim
from muster.decide.preemption.owing import owes_of
from muster.decide.preemption.precedence import turned
from muster.decide.preemption.protection import Protection
from muster.decide.preemption.victims import Unit, surplus_left, unit_of
from muster.decide.preemption.world import World, without_members, world_of
from muster.decide.scheduling.holds import hold_of
from muster.decide.shares import Amounts, add, charge_at
from muster.decide.waiting.stability import shares_stable
from muster.model.gangs import Gang, Member, MemberState
from muster.model.instructions import Place
from muster.model.ledger import Nominated, Plan, Victim
from muster.model.pauses import Pause
from muster.model.pods import Shape
from muster.model.policy import Policy
from muster.model.snapshot import Hold, Snapshot
from muster.model.units import ONE_CARD, GangKey, NodeName, PodUid

MOST_PROBLEMS = 3
CONSOLIDATE = "consolidate"


class PlanView(Protocol):
    """A plan as it stands open in the LEDGER."""

    @property
    def gang(self) -> GangKey: ...  # noqa: D102
    @property
    def gang_uid(self) -> str: ...  # noqa: D102
    @property
    def cause(self) -> str: ...  # noqa: D102
    @property
    def victims(self) -> tuple[Victim, ...]: ...  # noqa: D102
    @property
    def nominated(self) -> tuple[Nominated, ...]: ...  # noqa: D102


def refusal(snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, plan: Plan) -> str:
    """Why a proposed plan must not be committed; '' when it is sound."""
    snapshot = msgspec.structs.replace(snapshot, nodes=without_cards_aside(snapshot.nodes, memory, now))
    start = start_of(snapshot)
    if any(one.gang == plan.gang for one in memory.nominations):
        return f"a plan for {plan.gang} is open already"
    world = world_of(start, snapshot, memory, now, policy)
    ask, why = _waits(world, start, memory, now, plan, policy=policy, pauses=snapshot.pauses)
    if ask is None:
        return why
    protection = Protection(
        world.fleet,
        memory=memory,
        now=now,
        policy=policy,
        tree=world.tree,
        named=world.named,
        pauses=snapshot.pauses,
    )
    units, why = _units(world, plan.victims, protection)
    owes = owes_of(memory, now, policy)
    if owes is not None and plan.cause != CONSOLIDATE:
        units = [unit._replace(owed=owes(ask.gang.key, unit)) for unit in units]
    if why := why or _shared_nodes(world, plan):
        return why
    if why := Allowances(snapshot.budgets, world.named).refuses(units):
        return why
    if why := plan_stopped(memory, plan, now, policy):
        return why
    if world.settled.fits(ask, ()) is not None:
        return f"{plan.gang} fits without any plan, once what leaves already is gone"
    limits = policy.preemption
    judge = Judge(world.trial, ask, moved_per_gained=limits.moved_per_gained, moved_always=limits.moved_always)
    if plan.cause == "reclaim" and not shares_stable(memory, ask.gang.queue, now, policy):
        return f"the share of queue {ask.gang.queue} has changed within {policy.fairness.stability:g} s: nobody leaves for it yet"
    if plan.cause == CONSOLIDATE:
        why = _moves(world, ask, units, plan)
    else:
        why = turned(memory, plan.gang, units) or _evictions(judge, units, plan)
    return why or _room(snapshot, memory, plan, frozenset(victim.uid for victim in plan.victims))


def unsound(
    snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, plan: PlanView, *, basis: Basis | None = None
) -> str:
    """Why no more victims of an open plan may be evicted; '' while the plan is sound, or nothing of it is left to do.

    ``basis``: of this snapshot, as `muster.decide.scheduling.decide` takes it.
    """
    nodes = without_cards_aside(snapshot.nodes, memory, now)
    if nodes is not snapshot.nodes:
        snapshot, basis = msgspec.structs.replace(snapshot, nodes=nodes), None
    if basis is None:
        return _unsound(start_of(snapshot), snapshot, memory, now, policy, plan=plan)
    try:
        return _unsound(basis.start(snapshot), snapshot, memory, now, policy, plan=plan)
    finally:
        basis.give_back()


def _unsound(
    start: Start, snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, *, plan: PlanView
) -> str:
    own = frozenset(one.gang for one in plan.nominated)
    world = world_of(start, snapshot, memory, now, policy, without=own)
    ask, why = _waits(world, start, memory, now, plan, policy=policy, pauses=snapshot.pauses)
    if ask is None:
        return why
    stays, why = _left(world, plan.victims)
    if why or not stays:
        return why
    protection = Protection(
        world.fleet, memory=memory, now=now, policy=policy, tree=world.tree, named=world.named, history=False
    )
    for gang in {gang.key: gang for gang, _ in stays}.values():
        if reason := protection.refuses(gang) or _may_not(world, ask, gang, plan.cause):
            return reason
    if world.settled.fits(ask, ()) is not None:
        number = len(stays)
        return f"{plan.gang} fits now without the {number} {'victim' if number == 1 else 'victims'} that still stand"
    return _room(snapshot, memory, plan, frozenset(victim.uid for victim in plan.victims), own=own)


def _waits(
    world: World,
    start: Start,
    memory: CoreMemory,
    now: float,
    plan: PlanView,
    *,
    policy: Policy,
    pauses: tuple[Pause, ...],
) -> tuple[Ask | None, str]:
    """What the gang asks; or why no plan is for it."""
    gang = world.gangs.get(plan.gang)
    if gang is None or gang.uid != plan.gang_uid:
        return None, f"{plan.gang} is gone" if gang is None else f"{plan.gang} is another one than the plan is for"
    if gang.never_preempts:
        return None, f"the pods of {plan.gang} say that nothing is to be preempted for them"
    ask = world.asks.get(plan.gang)
    if ask is not None:
        return ask, ""
    wants = start.asks.get(plan.gang)
    if wants is None or not wants.minimum:
        return None, f"{plan.gang} has its minimum: it needs no room"
    held = hold_of(wants, world.tree, memory, now, policy=policy, pauses=pauses)
    if held is not None:
        return None, f"{plan.gang} is held: {held.message}"
    return None, f"{plan.gang} could not be placed in an emptied cluster either"


def _units(world: World, victims: Iterable[Victim], protection: Protection) -> tuple[list[Unit], str]:
    """The victims as units that may leave together; or what is wrong with them."""
    by_gang: dict[GangKey, set[PodUid]] = {}
    for victim in victims:
        by_gang.setdefault(victim.gang, set()).add(victim.uid)
        if why := _stands_as_said(world, victim):
            return [], why
    units: list[Unit] = []
    for key, uids in by_gang.items():
        gang = world.gangs[key]
        if why := protection.refuses(gang):
            return [], why
        leaving = [member for member in gang.members if member.uid in uids]
        stays = [member for member in gang.members if member.state is MemberState.BOUND and member.uid not in uids]
        if stays and surplus_left(gang, leaving) < 0:
            return [], f"{key} would be left below its minimum: it leaves whole or keeps it"
        units += _split(world, gang, leaving, whole=not stays)
    return units, ""


def _split(world: World, gang: Gang, leaving: Sequence[Member], *, whole: bool) -> list[Unit]:
    """Surplus pods one by one, then the rest together."""
    units: list[Unit] = []
    gone: list[Member] = []
    for member in leaving:
        if surplus_left(gang, [*gone, member]) >= 0:
            gone.append(member)
            units.append(unit_of(gang, (member,), world.fleet, core=False))
    rest = [member for member in leaving if member not in gone]
    if rest:
        units.append(unit_of(gang, rest, world.fleet, core=whole))
    return units


def _stands_as_said(world: World, victim: Victim) -> str:
    gang = world.gangs.get(victim.gang)
    member = next((one for one in gang.members if one.uid == victim.uid), None) if gang is not None else None
    if member is None:
        return f"victim {victim.pod} of {victim.gang} is gone"
    if member.state is not MemberState.BOUND or member.node != victim.node:
        return f"victim {victim.pod} of {victim.gang} does not stand on {victim.node}"
    return ""


def _shared_nodes(world: World, plan: PlanView) -> str:
    nodes = {victim.node for victim in plan.victims} | {slot.node for one in plan.nominated for slot in one.slots}
    for name in sorted(nodes):
        row = world.fleet.row_of.get(name)
        if row is None:
            return f"node {name} does not exist"
        if world.busy[row]:
            return f"on {name} another plan is open, or pods are leaving"
    return ""


def _evictions(judge: Judge, units: Sequence[Unit], plan: Plan) -> str:
    tree, ask = judge.trial.tree, judge.ask
    for unit in units:
        if unit.owed:
            continue
        across = unit.gang.queue != ask.gang.queue
        if across and plan.cause != "reclaim":
            return f"{unit.gang.key} is of another queue: taking from it is reclaim, not {plan.cause}"
        if across and not reclaimable(tree, ask, unit):
            return f"nothing is reclaimed from queue {unit.gang.queue}"
        if not across and not in_queue(ask, unit):
            return f"{unit.gang.key} is not of lower priority than {ask.gang.key}"
    landed = judge.trial.fits(ask, units)
    if landed is None:
        return f"{ask.gang.key} does not fit once the victims are gone"
    if judge.landed(units) is None:
        return "shares do not allow it: the gang's queue would be above its own, or a donor is not above its"
    if not judge.proportionate(units, landed):
        gained = judge.trial.charge(ask, landed).get("gpu", 0)
        most = judge.most_moved(gained) / ONE_CARD
        return f"more than {most:g} cards would have to move for {gained / ONE_CARD:g} that {ask.gang.key} gains"
    kept = judge.without_spare(units, sorted(units, key=lambda unit: (-unit.gang.priority, not unit.core, unit.key)))
    if len(kept) < len(units):
        spare = next(unit for unit in units if not any(one is unit for one in kept))
        return f"{spare.members[0].name} of {spare.gang.key} need not leave"
    return ""


def _moves(world: World, ask: Ask, units: Sequence[Unit], plan: Plan) -> str:
    again = {one.gang for one in plan.nominated}
    for unit in units:
        if unit.gang.priority > ask.gang.priority:
            return f"{unit.gang.key} has a higher priority than {ask.gang.key}"
        if unit.gang.key not in again:
            return f"{unit.gang.key} moves, but no room is nominated for it"
    others = {unit.gang.queue for unit in units} - {ask.gang.queue}
    charge: Amounts = {}
    shapes = {role.name: role.shape for role in ask.gang.roles}
    for slot in plan.nominated[0].slots:
        add(charge, charge_at(world.fleet, shapes.get(slot.role, Shape()).request, slot.node, slot.cards))
    if others and not within_claim(world.tree, ask, charge, others, charge):
        return f"jobs of {', '.join(sorted(others))} would move for a gang that is above the claim of its queue {ask.gang.queue}"
    return ""


def _left(world: World, victims: Iterable[Victim]) -> tuple[list[tuple[Gang, Victim]], str]:
    """Victims that still stand and are not leaving yet; or one that stands elsewhere now."""
    stays = []
    for victim in victims:
        gang = world.gangs.get(victim.gang)
        member = next((one for one in gang.members if one.uid == victim.uid), None) if gang is not None else None
        if gang is None or member is None or member.state is not MemberState.BOUND:
            continue
        if member.node != victim.node:
            return [], f"victim {victim.pod} of {victim.gang} stands on {member.node}, not on {victim.node}"
        stays.append((gang, victim))
    return stays, ""


def _may_not(world: World, ask: Ask, gang: Gang, cause: str) -> str:
    if cause == CONSOLIDATE:
        return f"{gang.key} has a higher priority than {ask.gang.key}" if gang.priority > ask.gang.priority else ""
    if gang.queue == ask.gang.queue and gang.priority >= ask.gang.priority and cause == "preempt":
        return f"{gang.key} is not of lower priority than {ask.gang.key} any more"
    if gang.queue != ask.gang.queue and cause == "reclaim" and not world.tree.queues[gang.queue].reclaimable:
        return f"nothing is reclaimed from queue {gang.queue} any more"
    return ""


def _room(
    snapshot: Snapshot,
    memory: CoreMemory,
    plan: PlanView,
    victims: Collection[PodUid],
    *,
    own: Collection[GangKey] = frozenset(),
) -> str:
    """The validator's word: with the victims gone the nominated places are sound, beside every other open plan too."""
    places = [Place(gang=one.gang, gang_uid=one.gang_uid, slots=one.slots) for one in plan.nominated]
    after = without_members(snapshot, victims, again={one.gang for one in plan.nominated})
    others = [one for one in memory.nominations if one.gang not in own]
    if others:
        after = without_members(after, {uid for one in others for uid in one.victims})
        shapes = {gang.key: {role.name: role.shape for role in gang.roles} for gang in after.gangs}
        holds = tuple(
            Hold(
                gang=one.gang,
                uid=slot.uid,
                node=NodeName(slot.node),
                request=slot.request or shapes.get(one.gang, {}).get(slot.role, Shape()).request,
                cards=slot.cards,
            )
            for one in others
            for slot in one.slots
        )
        after = msgspec.structs.replace(after, holds=(*after.holds, *holds))
    problems = validate(after, places, levels=snapshot.topology_levels)
    if not problems:
        return ""
    more = f" and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
    return f"its room is not there once its victims are gone: {'; '.join(problems[:MOST_PROBLEMS])}{more}"
