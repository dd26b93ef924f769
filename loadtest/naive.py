"""Eviction as simple schedulers do it, for comparison: the lowest priority first, whoever that is, until the gang fits.

Who is entitled is judged as the cores judge it (inside a queue strictly lower priority; across queues the gang stays within
its claim and the victim's queue is above its own), so that only the choice of victims differs: whole jobs, the lowest
priority first, among those the latest; wherever they run; without dropping those that turn out not to be needed, and without
a look at lost work.
"""

from muster.decide.asks import asks_of
from muster.decide.fleet import Fleet
from muster.decide.memory import CoreMemory, Nomination
from muster.decide.ordering import gang_key_order
from muster.decide.placement.expand import slots_of
from muster.decide.preemption import Proposal
from muster.decide.preemption.law import in_queue, lawful, reclaimable
from muster.decide.preemption.trial import Trial
from muster.decide.preemption.victims import Unit, may_leave, unit_of
from muster.decide.room import Room
from muster.decide.scheduling.holds import hold_of
from muster.decide.scheduling.rounds import demand_of, fits_empty
from muster.decide.shares import total_of, tree_of
from muster.decide.water_filling import set_shares
from muster.model.gangs import MemberState
from muster.model.instructions import Evict
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot


def propose_naive(snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy) -> Proposal:
    """The first gang, by priority and waiting time, for which enough lower jobs can be taken."""
    if memory.nominations:
        return Proposal()
    fleet = Fleet(snapshot.nodes, snapshot.topology_levels, snapshot.hypernodes)
    room = Room.of(snapshot, fleet)
    tree = tree_of(snapshot, room)
    empty = Room(fleet)
    asks = [
        ask
        for ask in asks_of(snapshot.gangs).values()
        if ask.minimum
        and hold_of(ask, tree, memory, now, policy=policy, pauses=snapshot.pauses) is None
        and fits_empty(empty, ask)
    ]
    set_shares(tree, total_of(fleet), demand_of(fleet, tree, asks))
    trial = Trial(room, tree, policy.packing)
    units = [
        unit_of(gang, [member for member in gang.members if member.state is MemberState.BOUND], fleet, core=True)
        for gang in snapshot.gangs
        if may_leave(gang, fleet) and any(member.state is MemberState.BOUND for member in gang.members)
    ]
    units.sort(key=lambda unit: (unit.gang.priority, -unit.gang.timing.started, unit.gang.key))
    for ask in sorted(asks, key=lambda one: gang_key_order(one.gang)):
        chosen: list[Unit] = []
        for unit in units:
            if not (in_queue(ask, unit) or reclaimable(tree, ask, unit)):
                continue
            landed = trial.fits(ask, [*chosen, unit])
            if landed is None:
                chosen.append(unit)
                continue
            taken = trial.taken(ask, landed)
            if not lawful(tree, ask, [*chosen, unit], trial.charge(ask, landed), taken):
                continue
            chosen.append(unit)
            victims = tuple((one.gang.key, member.uid) for one in chosen for member in one.members)
            slots = slots_of(fleet, ask, landed)
            hold = Nomination(
                gang=ask.gang.key,
                slots=slots,
                victims=tuple(uid for _, uid in victims),
                until=now + policy.timeouts.start,
            )
            return Proposal(
                plan=Evict(gang=ask.gang.key, victims=victims, slots=slots, cause="preempt"), nominations=(hold,)
            )
    return Proposal()
