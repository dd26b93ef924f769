"""What is held: pieces of room on nodes, of pods, and of what was promised to them.

Held is what any pod holds that is not finished (also while it leaves, and on a node that is not ready), what open LEDGER
entries promise, and what others were promised.
"""

from collections.abc import Iterable
from typing import NamedTuple

from muster.model.gangs import Gang, Member, MemberState
from muster.model.pods import CardUse, Kind, Request, Shape
from muster.model.snapshot import Hold, Occupant, Snapshot
from muster.model.units import NodeName, PodUid

HOLDING = frozenset({MemberState.BOUND, MemberState.ASSUMED, MemberState.LEAVING})

Ports = tuple[tuple[str, int, str], ...]


class Held(NamedTuple):
    """Room of one pod on one node."""

    node: NodeName
    request: Request
    cards: tuple[CardUse, ...]
    ports: Ports
    kind: Kind | None = None


def held_by(snapshot: Snapshot) -> Iterable[Held]:
    """Every piece of room that is held in the snapshot."""
    terms = snapshot.pod_terms
    for gang in snapshot.gangs:
        for _, held in held_by_gang(gang, terms=terms):
            yield held
    for occupant in snapshot.occupants:
        yield held_by_occupant(occupant, terms=terms)
    for hold in snapshot.holds:
        yield held_by_hold(hold)


def held_by_gang(gang: Gang, *, terms: bool) -> Iterable[tuple[PodUid, Held]]:
    """What the members of a gang hold; ``terms``: terms between pods play a part."""
    shapes = {role.name: role.shape for role in gang.roles}
    for member in gang.members:
        if member.node is not None and member.state in HOLDING:
            shape = shapes.get(member.role, Shape())
            kind = member_kind(gang, member) if terms else None
            yield member.uid, Held(member.node, shape.request, member.cards, shape.host_ports, kind)


def held_by_occupant(occupant: Occupant, *, terms: bool) -> Held:
    """What a pod outside our gangs holds."""
    kind: Kind | None = None
    if terms and not occupant.promised:
        kind = Kind(
            namespace=occupant.key.partition("/")[0],
            labels=tuple(sorted(occupant.labels.items())),
            terms=occupant.pod_terms,
            leaving=occupant.leaving,
        )
    return Held(occupant.node, occupant.request, occupant.cards, occupant.host_ports, kind)


def held_by_hold(hold: Hold) -> Held:
    """What an open entry holds for a pod that does not stand there."""
    return Held(hold.node, hold.request, hold.cards, ())


def member_kind(gang: Gang, member: Member) -> Kind:
    """What a standing member is to terms of other pods."""
    leaving = member.state is MemberState.LEAVING
    return Kind(namespace=gang.namespace, labels=member.labels, terms=member.pod_terms, leaving=leaving)
