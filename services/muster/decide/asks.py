"""What a gang asks of the room now: per role the pods that wait and what its minimums still lack.

minimum phase   every role's `need` and the gang's `need`, together or not at all
surplus phase   the pods beyond that, one by one, when all minimums have been served
"""

from collections.abc import Iterable

import msgspec

from muster.model.gangs import Gang, Member, MemberState, Role, Slices
from muster.model.pods import Shape, TopologyWish
from muster.model.units import GangKey, NodeName, RoleName

COUNTING = frozenset({MemberState.ASSUMED, MemberState.BOUND, MemberState.SUCCEEDED})
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
    whole: bool = False
    """A slice: all that waits of it is placed together or not at all."""


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
            if state is MemberState.WAITING:
                waiting = True
                break
            counted += state in COUNTING
        if waiting or counted < gang.minimum or any(role.minimum or role.slices for role in gang.roles):
            ask = ask_of(gang)
            if ask.waiting or not gang.complete:
                asks[gang.key] = ask
    return asks


def ask_of(gang: Gang) -> Ask:
    """What the gang asks, from where its members stand."""
    roles: list[RoleAsk] = []
    missing = 0
    for role in gang.roles:
        members = [member for member in gang.members if member.role == role.name]
        waiting = sorted((m for m in members if m.state is MemberState.WAITING), key=_natural)
        need = max(0, role.minimum - sum(member.counts for member in members))
        if role.slices is not None:
            parts, short = _slices(role, role.slices, members, need)
            roles += parts
            missing += short
            continue
        missing += max(0, need - len(waiting))
        roles.append(
            RoleAsk(
                name=role.name,
                shape=role.shape,
                waiting=tuple(waiting),
                need=need,
                topology=role.topology,
                standing=_standing(members),
            )
        )
    need = max(0, gang.minimum - gang.counted)
    roles = _whole_slices(roles, need)
    missing = max(missing, need - sum(len(role.waiting) for role in roles))
    return Ask(gang=gang, roles=tuple(roles), need=need, short=missing)


def _whole_slices(roles: list[RoleAsk], need: int) -> list[RoleAsk]:
    """The gang's own minimum as whole slices, as far as pods that come one by one cannot make it up."""
    single = sum(len(role.waiting) for role in roles if not role.whole)
    left = need - single - sum(role.need for role in roles if role.whole)
    result = []
    for role in roles:
        needed = role.whole and not role.need and left > 0
        result.append(msgspec.structs.replace(role, need=len(role.waiting)) if needed else role)
        left -= len(role.waiting) if needed else 0
    return result


def _standing(members: Iterable[Member]) -> tuple[NodeName, ...]:
    return tuple(m.node for m in members if m.state in STANDING and m.node is not None)


def _slices(role: Role, slices: Slices, members: Iterable[Member], need: int) -> tuple[list[RoleAsk], int]:
    """One part for each slice that can be made whole, and the pods missing for the minimum.

    Slices that stand in part are completed first, then those of the lowest names are needed, until both the number of slices and
    the role's own minimum are reached. What exists of an incomplete slice is not placed.
    """
    by_slice: dict[str, list[Member]] = {}
    for member in members:
        by_slice.setdefault(member.slice, []).append(member)
    whole = 0
    candidates: list[tuple[bool, tuple[str, int, str], list[Member], list[Member]]] = []
    for name, inside in by_slice.items():
        counting = [member for member in inside if member.counts]
        waiting = sorted((m for m in inside if m.state is MemberState.WAITING), key=_natural)
        if len(counting) >= slices.size:
            whole += 1
        if waiting and len(counting) + len(waiting) >= slices.size:
            started = any(member.state in STANDING for member in inside)
            candidates.append((not started, _numbered(name), waiting, inside))
    parts = []
    for _, _, waiting, inside in sorted(candidates, key=lambda one: one[:2]):
        complete = sum(member.counts for member in inside) >= slices.size
        needed = (not complete and whole < slices.minimum) or need > 0
        parts.append(
            RoleAsk(
                name=role.name,
                shape=role.shape,
                waiting=tuple(waiting),
                need=len(waiting) if needed else 0,
                topology=slices.topology,
                standing=_standing(inside),
                whole=True,
            )
        )
        whole += not complete and needed
        need -= len(waiting) if needed else 0
    return parts, max(0, (slices.minimum - whole) * slices.size, need)


def _numbered(name: str) -> tuple[str, int, str]:
    return ("", int(name), "") if name.isdigit() else (name, -1, "")


def _natural(member: Member) -> tuple[str, int, str]:
    """``worker-10`` after ``worker-9``."""
    head, _, tail = member.name.rpartition("-")
    return (head, int(tail), "") if tail.isdigit() else (member.name, -1, member.uid)
