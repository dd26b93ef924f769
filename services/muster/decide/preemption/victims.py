"""Which running pods may leave, in units that leave together.

A gang gives its surplus pods one by one (as many as its and its roles' minimums allow); after them only the rest, whole.
Never: non-preemptible gangs, kube-system and critical pods, pods on nodes that are not ready, pods only assumed.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from muster.decide.fleet import Fleet
from muster.decide.shares import Amounts, Tree, add, charge_at
from muster.model.gangs import Gang, Member, MemberState
from muster.model.pods import Shape
from muster.model.units import PodUid, QueueName

CRITICAL = 2_000_000_000
PROTECTED_NAMESPACES = frozenset({"kube-system"})


class Unit(NamedTuple):
    """Pods that leave together."""

    gang: Gang
    members: tuple[Member, ...]
    core: bool
    """The gang ends with it; all its surplus leaves as well."""
    charge: Amounts
    rows: tuple[int, ...]

    @property
    def key(self) -> tuple[str, tuple[PodUid, ...]]:
        """What tells units apart."""
        return self.gang.key, tuple(member.uid for member in self.members)


def may_leave(gang: Gang, fleet: Fleet) -> bool:
    """Whether the gang may be a victim at all."""
    if not gang.preemptible or gang.namespace in PROTECTED_NAMESPACES or gang.priority >= CRITICAL:
        return False
    standing = [member for member in gang.members if member.node is not None]
    if any(member.state is MemberState.ASSUMED for member in standing):
        return False
    rows = [fleet.row_of.get(member.node) for member in standing if member.node is not None]
    return bool(rows) and all(row is not None and bool(fleet.ready[row]) for row in rows)


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
            units += [unit_of(gang, (member,), fleet, core=False) for member in sorted(members, key=_latest)]
    units.append(unit_of(gang, tuple(bound), fleet, core=True))
    return units


def _latest(member: Member) -> tuple[int, str]:
    tail = member.name.rpartition("-")[2]
    return (-int(tail) if tail.isdigit() else 0), member.name


def unit_of(gang: Gang, members: Sequence[Member], fleet: Fleet, *, core: bool) -> Unit:
    """A unit of these members."""
    shapes = {role.name: role.shape for role in gang.roles}
    charge: Amounts = {}
    for member in members:
        assert member.node is not None
        shape = shapes.get(member.role, Shape())
        add(charge, charge_at(fleet, shape.request, member.node, member.cards))
    rows = tuple(sorted({fleet.row_of[member.node] for member in members if member.node in fleet.row_of}))
    return Unit(gang, tuple(members), core, charge, rows)


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
