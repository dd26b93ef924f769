"""Room that committed plans free: held for the gang while its victims leave, and given to it before anybody else.

victims still there ──► the plan's places are taken in the room (also on top of what the victims hold), so nobody gets them
gang is paused      ──► its places stay taken: it starts there when it is resumed
gang fits           ──► it is admitted first, and the nomination ends
victims gone, it does not fit, time over ──► the nomination ends
"""

from collections.abc import Mapping

from muster.decide.asks import Ask
from muster.decide.held import HOLDING
from muster.decide.memory import CoreMemory, Nomination
from muster.decide.pauses import standing
from muster.decide.placement.greedy import Greedy
from muster.decide.reasons import Reason, count
from muster.decide.room import Room
from muster.decide.scheduling.holds import Held
from muster.decide.shares import Tree, charge_at
from muster.model.gangs import Gang
from muster.model.policy import Packing
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey


def hold_nominated(
    room: Room, tree: Tree, *, asks: Mapping[GangKey, Ask], snapshot: Snapshot, memory: CoreMemory, now: float
) -> tuple[list[GangKey], set[GangKey]]:
    """Gangs to admit first, and gangs whose room is held for now; the room and the usage carry what is held."""
    first: list[GangKey] = []
    reserved: set[GangKey] = set()
    if not memory.nominations:
        return first, reserved
    gangs = {gang.key: gang for gang in snapshot.gangs}
    # A victim that has ended by itself holds nothing any more, although its pod is still there.
    there = {member.uid for gang in snapshot.gangs for member in gang.members if member.state in HOLDING}
    for one in memory.nominations:
        gang = gangs.get(one.gang)
        if gang is None:
            continue
        ask = asks.get(one.gang)
        leaving = bool(there.intersection(one.victims))
        paused = standing(snapshot.pauses, "bind", tree.path(gang.queue)) if gang.queue in tree.queues else None
        mark = room.mark()
        if not leaving and paused is None and ask is not None and ask.minimum:
            fits = Greedy(room, Packing()).minimum(ask) is not None
            room.rollback(mark)
            if fits:
                first.append(one.gang)
            continue
        if leaving or paused is not None or (ask is None and not gang.complete and now < one.until):
            _reserve(room, tree, gang, one)
            reserved.add(one.gang)
    return first, reserved


def _reserve(room: Room, tree: Tree, gang: Gang, one: Nomination) -> None:
    shapes = {role.name: role.shape for role in gang.roles}
    for slot in one.slots:
        row = room.fleet.row_of.get(slot.node)
        shape = shapes.get(slot.role)
        if row is not None and shape is not None:
            room.take(row, shape.request, slot.cards, ports=shape.host_ports, kind=shape.kind)
            tree.charge(gang.queue, charge_at(room.fleet, shape.request, slot.node, slot.cards))


def freeing(gang: GangKey, memory: CoreMemory) -> Held:
    """Why a gang with a nomination waits."""
    victims = next((len(one.victims) for one in memory.nominations if one.gang == gang), 0)
    return Held(
        Reason.FREEING, f"{count(victims, 'pod')} of other jobs are leaving to make room for it", {"pods": victims}
    )
