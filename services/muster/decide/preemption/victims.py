"""Which running pods may leave, in units that leave together.

A gang gives its surplus pods one by one (as many as its and its roles' minimums allow); after them only the rest, whole.
Who is left alone whatever the room: `muster.decide.preemption.protection`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from muster.decide.fleet import Fleet
from muster.decide.shares import Amounts, Tree, add, base_charge, charge_at
from muster.model.gangs import Gang, Member, MemberState
from muster.model.pods import Shape
from muster.model.units import ONE_CARD, PodUid, QueueName, RoleName

OWED = -(1 << 62)
"""Below every priority."""


class Unit(NamedTuple):
    """Pods that leave together."""

    gang: Gang
    members: tuple[Member, ...]
    core: bool
    """The gang ends with it; all its surplus leaves as well."""
    charge: Amounts
    rows: tuple[int, ...]
    at: tuple[int, ...]
    """The row of each member."""
    lost: int = 0
    """Card-minutes of work that are gone with it: since the last checkpoint, else since the start; surplus loses none."""
    restarts: int = 0
    """How often the gang had to leave already."""

    owed: bool = False
    """It runs on the condition that it leaves for this gang, or too long on a node that is reserved for it."""

    @property
    def rank(self) -> int:
        """The priority by which plans are compared: what is owed goes before everything else."""
        return OWED if self.owed else self.gang.priority

    @property
    def key(self) -> tuple[str, tuple[PodUid, ...]]:
        """What tells units apart."""
        return self.gang.key, tuple(member.uid for member in self.members)


EMPTY = Shape()


CRITICAL = 2_000_000_000
PROTECTED_NAMESPACES = frozenset({"kube-system"})


def belongs_to_cluster(gang: Gang) -> bool:
    """Whether the cluster itself depends on it."""
    return gang.namespace in PROTECTED_NAMESPACES or gang.priority >= CRITICAL


def pods_that_stand(gang: Gang, fleet: Fleet) -> list[PodUid]:
    """Its pods that stand; none when one of them is only assumed, or on a node that is gone or not ready."""
    uids = []
    for member in gang.members:
        if member.node is None:
            continue
        row = fleet.row_of.get(member.node)
        if member.state is MemberState.ASSUMED or row is None or not fleet.ready[row]:
            return []
        uids.append(member.uid)
    return uids


def may_leave(gang: Gang, fleet: Fleet) -> bool:
    """Whether the gang could be a victim at some time; what protects it now is not looked at."""
    return gang.preemptible and not belongs_to_cluster(gang) and bool(pods_that_stand(gang, fleet))


def units_of(gang: Gang, fleet: Fleet) -> list[Unit]:
    """Every surplus pod as a unit, then the core. More surplus units may be listed than may leave: see `surplus_left`."""
    bound = [member for member in gang.members if member.state is MemberState.BOUND]
    by_role: dict[str, list[Member]] = {}
    for member in bound:
        by_role.setdefault(member.role, []).append(member)
    units = []
    minimum = {role.name: role.minimum for role in gang.roles}
    for members in by_role.values():
        if surplus_left(gang, ()) > 0 and len(members) > minimum.get(members[0].role, 0):
            units += [unit_of(gang, (one,), fleet, core=False) for one in sorted(members, key=_latest)]
    if bound:
        units.append(unit_of(gang, tuple(bound), fleet, core=True))
    return units


def priced(units: Iterable[Unit], restarts: int, now: float) -> list[Unit]:
    """The units with what makes them dear at this moment."""
    return [
        unit._replace(lost=lost_minutes(unit.gang, unit.charge, now) if unit.core else 0, restarts=restarts)
        for unit in units
    ]


def lost_minutes(gang: Gang, charge: Amounts, now: float) -> int:
    """Card-minutes of work that end with the gang; a gang whose start is not known has none to lose."""
    timing = gang.timing
    if not timing.started:
        return 0
    since = max(0.0, now - max(timing.started, min(timing.last_checkpoint, now)))
    if timing.checkpoint_interval and not timing.last_checkpoint:
        since = min(since, timing.checkpoint_interval)
    return int(since / 60 * charge.get("gpu", 0) / ONE_CARD)


def _latest(member: Member) -> tuple[int, str]:
    tail = member.name.rpartition("-")[2]
    return (-int(tail) if tail.isdigit() else 0), member.name


def unit_of(gang: Gang, members: Sequence[Member], fleet: Fleet, *, core: bool) -> Unit:
    """A unit of these members."""
    shapes = {role.name: role.shape for role in gang.roles}
    charge: Amounts = {}
    plain: dict[RoleName, int] = {}
    at = []
    for member in members:
        assert member.node is not None
        at.append(fleet.row_of[member.node])
        request = shapes.get(member.role, EMPTY).request
        if request.share is None:
            plain[member.role] = plain.get(member.role, 0) + 1
        else:
            add(charge, charge_at(fleet, request, member.node, member.cards))
    for name, count in plain.items():
        add(charge, base_charge(shapes.get(name, EMPTY).request), count)
    return Unit(gang, tuple(members), core, charge, tuple(sorted(set(at))), tuple(at))


def surplus_left(gang: Gang, leaving: Iterable[Member]) -> int:
    """How many pods the gang can still give one by one when these leave; below 0 it would be broken.

    A gang that has pods that succeeded already counts them, as its minimum does.
    """
    gone = {member.uid for member in leaving}
    counting = [member for member in gang.members if member.counts and member.uid not in gone]
    left = len(counting) - gang.minimum
    for role in gang.roles:
        have = sum(member.role == role.name for member in counting)
        if have < role.minimum:
            return -1
    return left


def over_share(tree: Tree, queue: QueueName, amounts: Amounts) -> float:
    """How far a queue is above what it is entitled to, in the resources given; 0 when it is not."""
    over = 0.0
    for resource in amounts:
        if tree.governed(queue, resource):
            claim = tree.claim(queue, resource)
            used = tree.usage[queue].get(resource, 0)
            over = max(over, (used - claim) / claim if claim else float(used > 0) * 1e9)
    return over
