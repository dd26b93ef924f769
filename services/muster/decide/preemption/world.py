"""The cluster as a plan may count on it: what open plans and pods that leave already will have changed is taken as done.

    pods that leave, victims of open plans   gone from room and usage; nothing is planned on their nodes meanwhile
    places nominated by open plans           taken and charged; nor is anything planned there
    gangs that a plan may be for             they wait, nothing holds them, an emptied cluster could hold them

So several plans are open at once only on node sets that have no node in common.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec
import numpy as np

from muster.decide.asks import Ask
from muster.decide.basis import Start
from muster.decide.fleet import Fleet, Mask
from muster.decide.held import HOLDING, member_kind
from muster.decide.memory import CoreMemory, Nomination
from muster.decide.preemption.trial import Trial
from muster.decide.room import Room
from muster.decide.scheduling.holds import hold_of
from muster.decide.scheduling.rounds import blocked_rows, demand_of, fits_empty
from muster.decide.shares import Tree, card_kinds, charge_at, total_of
from muster.decide.waiting.decayed import history_of
from muster.decide.water_filling import set_shares
from muster.model.gangs import Gang, Member, MemberState
from muster.model.pods import Shape
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, PodUid


class World(NamedTuple):
    """See the module. The room is changed, and must be given back by whoever lent it."""

    fleet: Fleet
    room: Room
    tree: Tree
    asks: dict[GangKey, Ask]
    """Gangs that a plan may be for."""
    gangs: dict[GangKey, Gang]
    busy: Mask
    """Rows on which nothing is planned."""
    named: frozenset[PodUid]
    """Victims of open plans."""
    settled: Trial
    """To see whether a gang fits without any plan, once what leaves is gone."""
    trial: Trial
    """To plan in: without the busy rows."""


def world_of(
    start: Start,
    snapshot: Snapshot,
    memory: CoreMemory,
    now: float,
    policy: Policy,
    *,
    without: Collection[GangKey] = frozenset(),
) -> World:
    """The world of a snapshot. ``without``: gangs whose open plan is looked at itself, so that it counts as not there."""
    fleet, room, tree = start.fleet, start.room, start.tree
    open_plans = [one for one in memory.nominations if one.gang not in without]
    named = frozenset(uid for one in open_plans for uid in one.victims)
    busy = np.zeros(fleet.size, dtype=np.bool_)
    for gang in snapshot.gangs:
        for member in gang.members:
            if member.state is MemberState.LEAVING or (member.uid in named and member.state in HOLDING):
                _gone(room, tree, gang, member, busy)
    gangs = {gang.key: gang for gang in snapshot.gangs}
    for one in open_plans:
        if one.gang in gangs:
            _take(room, tree, gangs[one.gang], one, busy)
    reserved = {one.gang for one in open_plans}
    asks = {
        key: ask
        for key, ask in start.asks.items()
        if ask.minimum
        and key not in reserved
        and hold_of(ask, tree, memory, now, policy=policy, pauses=snapshot.pauses) is None
        and fits_empty(start.empty, ask)
    }
    demand = demand_of(fleet, tree, asks.values())
    set_shares(tree, total_of(fleet), demand, history_of(memory, now, policy), kinds=card_kinds(fleet))
    refused = blocked_rows(fleet, memory, now, asks.values())
    avoided: dict[Shape, Mask] = refused
    if busy.any():
        nowhere = np.zeros(fleet.size, dtype=np.bool_)
        shapes = {role.shape for ask in asks.values() for role in ask.roles}
        avoided = {shape: busy | refused.get(shape, nowhere) for shape in shapes}
    settled = Trial(room, tree, policy.packing, blocked=refused)
    trial = Trial(room, tree, policy.packing, blocked=avoided)
    return World(fleet, room, tree, asks, gangs, busy, named, settled, trial)


def _gone(room: Room, tree: Tree, gang: Gang, member: Member, busy: Mask) -> None:
    row = room.fleet.row_of.get(member.node) if member.node is not None else None
    if row is None or member.node is None or not room.fleet.ready[row]:
        return  # what leaves a node that is not ready may stay for ever
    busy[row] = True
    shape = next((role.shape for role in gang.roles if role.name == member.role), Shape())
    kind = member_kind(gang, member) if room.neighbours is not None else None
    room.give(row, shape.request, member.cards, ports=shape.host_ports, kind=kind)
    tree.charge(gang.queue, charge_at(room.fleet, shape.request, member.node, member.cards), -1)


def _take(room: Room, tree: Tree, gang: Gang, one: Nomination, busy: Mask) -> None:
    waiting = {member.uid for member in gang.members if member.state not in HOLDING or member.uid in one.victims}
    shapes = {role.name: role.shape for role in gang.roles}
    for slot in one.slots:
        row, shape = room.fleet.row_of.get(slot.node), shapes.get(slot.role)
        if row is None or shape is None:
            continue
        busy[row] = True
        if slot.uid in waiting or not any(member.uid == slot.uid for member in gang.members):
            room.take(row, shape.request, slot.cards, ports=shape.host_ports, kind=shape.kind)
            tree.charge(gang.queue, charge_at(room.fleet, shape.request, slot.node, slot.cards))


def without_members(snapshot: Snapshot, uids: Collection[PodUid], *, again: Collection[GangKey] = ()) -> Snapshot:
    """The snapshot once these pods are gone; those of gangs that are placed ``again`` wait."""
    return msgspec.structs.replace(
        snapshot,
        gangs=tuple(
            _less(gang, uids, waits=gang.key in again) if any(m.uid in uids for m in gang.members) else gang
            for gang in snapshot.gangs
        ),
    )


def _less(gang: Gang, uids: Collection[PodUid], *, waits: bool) -> Gang:
    members = tuple(
        member
        if member.uid not in uids
        else msgspec.structs.replace(member, state=MemberState.WAITING, node=None, cards=())
        for member in gang.members
        if waits or member.uid not in uids
    )
    return msgspec.structs.replace(gang, members=members)
