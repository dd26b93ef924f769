"""What a gang asks of the room now: per role the pods that wait and what its minimums still lack.

minimum phase   every role's `need` and the gang's `need`, together or not at all
surplus phase   the pods beyond that, one by one, when all minimums have been served
"""

from collections.abc import Iterable

import msgspec

from muster.model.gangs import Gang, Member, MemberState
from muster.model.pods import Shape, TopologyWish
from muster.model.units import GangKey, NodeName, RoleName

STANDING = frozenset({MemberState.ASSUMED, MemberState.BOUND})


class RoleAsk(msgspec.Struct, frozen=True, kw_only=True):
    """One role's part of an ask."""

    name: RoleName
    shape: Shape
    waiting: tuple[Member, ...]
    need: int
    """Pods that the role's own minimum still lacks."""
    topology: TopologyWish
    standing: tuple[NodeName, ...]
    """Nodes of its members that stay."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What one gang asks: nothing to place when `waiting` is 0."""

    gang: Gang
    roles: tuple[RoleAsk, ...]
    need: int
    """Pods that the gang's minimum still lacks."""
    short: int
    """Pods missing for a minimum because they do not exist or are gated; above 0 the gang cannot start."""

    @property
    def waiting(self) -> int:
        """Pods that could be placed."""
        return sum(len(role.waiting) for role in self.roles)

    @property
    def minimum(self) -> int:
        """Pods of the minimum phase; 0 when only surplus is asked for."""
        return max(self.need, sum(role.need for role in self.roles))

    @property
    def standing(self) -> tuple[NodeName, ...]:
        """Nodes of all members that stay."""
        return tuple(node for role in self.roles for node in role.standing)


def asks_of(gangs: Iterable[Gang]) -> dict[GangKey, Ask]:
    """What every gang asks that has a pod to place or lacks a minimum; the settled ones are passed over quickly."""
    asks = {}
    for gang in gangs:
        counted, waiting = 0, False
        for member in gang.members:
            state = member.state
            if state is MemberState.BOUND:
                counted += 1
            elif state is MemberState.WAITING:
                waiting = True
                break
        if waiting or counted < gang.minimum or any(role.minimum for role in gang.roles):
            ask = ask_of(gang)
            if ask.waiting or not gang.complete:
                asks[gang.key] = ask
    return asks


def ask_of(gang: Gang) -> Ask:
    """What the gang asks, from where its members stand."""
    roles = []
    missing = 0
    for role in gang.roles:
        members = [member for member in gang.members if member.role == role.name]
        waiting = sorted((m for m in members if m.state is MemberState.WAITING), key=_natural)
        need = max(0, role.minimum - sum(member.counts for member in members))
        missing += max(0, need - len(waiting))
        roles.append(
            RoleAsk(
                name=role.name,
                shape=role.shape,
                waiting=tuple(waiting),
                need=need,
                topology=role.topology,
                standing=tuple(m.node for m in members if m.state in STANDING and m.node is not None),
            )
        )
    need = max(0, gang.minimum - gang.counted)
    missing = max(missing, need - sum(len(role.waiting) for role in roles))
    return Ask(gang=gang, roles=tuple(roles), need=need, short=missing)


def _natural(member: Member) -> tuple[str, int, str]:
    """``worker-10`` after ``worker-9``."""
    head, _, tail = member.name.rpartition("-")
    return (head, int(tail), "") if tail.isdigit() else (member.name, -1, member.uid)
