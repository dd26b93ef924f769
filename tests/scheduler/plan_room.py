"""Whether the room that a plan nominates is there once its victims are gone: what the simulation's leaders ask of a plan.

    now, without the plan's victims                                          ─► the nominated places must be sound
    the same, with every other open plan carried out (victims gone, places taken) ─► and sound there too

So a plan counts neither on room that another plan frees nor on room that another plan nominates.
"""

from collections.abc import Iterable

import msgspec

from muster.decide.commitments import OpenEntry
from muster.decide.placement.validate import validate
from muster.model.gangs import Gang, MemberState
from muster.model.instructions import Place
from muster.model.ledger import Nominated, Plan, Victim
from muster.model.pods import Request
from muster.model.snapshot import Hold, Snapshot
from muster.model.units import GangKey, PodUid

MOST_PROBLEMS = 3


def room_refusal(snapshot: Snapshot, others: Iterable[OpenEntry], plan: Plan) -> str:
    """Why the nominated places are not sound, as a sentence; '' when they are.

    Args:
        snapshot: everything now.
        others: the other open plans, without those that are being withdrawn.
        plan: the proposed one; room for a gang that moves names the pods that stand elsewhere now.
    """
    moved = frozenset(one.gang for one in plan.nominated)
    after = _without(snapshot, plan.victims, again=moved)
    places = [Place(gang=one.gang, gang_uid=one.gang_uid, slots=one.slots) for one in plan.nominated]
    problems = validate(after, places, levels=snapshot.topology_levels)
    if problems:
        return _sentence("once its victims are gone", problems)
    open_plans = tuple(others)
    if not open_plans:
        return ""
    for entry in open_plans:
        after = _without(after, entry.victims, again=frozenset())
    holds = tuple(hold for entry in open_plans for one in entry.nominated for hold in _held(after, one))
    after = msgspec.structs.replace(after, holds=(*after.holds, *holds))
    problems = validate(after, places, levels=snapshot.topology_levels)
    return _sentence("beside the other open plans", problems) if problems else ""


def _sentence(when: str, problems: list[str]) -> str:
    more = f" and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
    return f"its room is not there {when}: {'; '.join(problems[:MOST_PROBLEMS])}{more}"


def _without(snapshot: Snapshot, victims: Iterable[Victim], *, again: frozenset[GangKey]) -> Snapshot:
    """The snapshot with the victims gone; those of gangs that are placed `again` wait."""
    leaving: dict[GangKey, set[PodUid]] = {}
    for victim in victims:
        leaving.setdefault(victim.gang, set()).add(victim.uid)
    gangs = tuple(
        _less(gang, leaving[gang.key], waits=gang.key in again) if gang.key in leaving else gang
        for gang in snapshot.gangs
    )
    return msgspec.structs.replace(snapshot, gangs=gangs)


def _less(gang: Gang, uids: set[PodUid], *, waits: bool) -> Gang:
    members = tuple(
        member
        if member.uid not in uids
        else msgspec.structs.replace(member, state=MemberState.WAITING, node=None, cards=())
        for member in gang.members
        if waits or member.uid not in uids
    )
    return msgspec.structs.replace(gang, members=members)


def _held(snapshot: Snapshot, one: Nominated) -> Iterable[Hold]:
    gang = next((gang for gang in snapshot.gangs if gang.key == one.gang), None)
    shapes = {role.name: role.shape.request for role in gang.roles} if gang is not None else {}
    for slot in one.slots:
        request = slot.request or shapes.get(slot.role) or Request()
        yield Hold(gang=one.gang, uid=slot.uid, node=slot.node, request=request, cards=slot.cards)
