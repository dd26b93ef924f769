"""From pods of a role on rows to members on nodes: the last step before an instruction."""

from collections.abc import Iterable

from muster.decide.asks import Ask
from muster.decide.fleet import Fleet
from muster.decide.placement.greedy import Landed
from muster.model.instructions import Slot


def slots_of(fleet: Fleet, ask: Ask, landed: Iterable[Landed]) -> tuple[Slot, ...]:
    """Give the waiting members of each role their places, in the order of their names, nodes in the order of theirs."""
    waiting = [iter(role.waiting) for role in ask.roles]
    slots = []
    for one in sorted(landed, key=lambda place: (place.role, place.row, tuple(use.index for use in place.cards))):
        member = next(waiting[one.role])
        slots.append(
            Slot(uid=member.uid, pod=member.name, role=member.role, node=fleet.names[one.row], cards=one.cards)
        )
    return tuple(slots)
