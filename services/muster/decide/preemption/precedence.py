"""Who has taken whose room: for whom a gang is not asked to leave, since it stands where that one was asked to leave for it.

    A took B's room, B took C's      ──►  A is not evicted for B, and neither A nor B for C, for as long as evictions are remembered

Shares and priorities each have an order of their own, so that plans of several kinds could chase each other round: a reclaim
by one case undone by the other, and that by a preemption inside the queue, which raises what its queue uses. With this rule
evictions among the gangs that are there go one way only. Of any chain of plans the gang that nobody took anything from
starts once and stays; so does the next one after it, and so on: a chain ends, whatever the plans in it are.

What runs backfilled is owed to its reservation, and leaves for it all the same: it was let in on that condition.
"""

from collections.abc import Sequence

from muster.decide.memory import CoreMemory
from muster.decide.preemption.victims import Unit
from muster.model.units import GangKey


def took_room_of(memory: CoreMemory, gang: GangKey) -> frozenset[GangKey]:
    """Gangs that took the room of this one, or of one that did, as far as it is remembered."""
    takers: dict[GangKey, set[GangKey]] = {}
    for one in memory.evictions:
        if one.room_for and not one.moved:
            takers.setdefault(one.gang, set()).add(one.room_for)
    found: set[GangKey] = set()
    look = [gang]
    while look:
        for taker in takers.get(look.pop(), ()):
            if taker not in found:
                found.add(taker)
                look.append(taker)
    return frozenset(found - {gang})


def turned(memory: CoreMemory, gang: GangKey, units: Sequence[Unit]) -> str:
    """Why these units may not leave for the gang, as a sentence; '' when that goes the way in which room was taken before."""
    takers = took_room_of(memory, gang)
    back = next((unit.gang.key for unit in units if unit.gang.key in takers and not unit.owed), None)
    return f"{back} took the room of {gang} lately: plans do not go back and forth" if back is not None else ""
