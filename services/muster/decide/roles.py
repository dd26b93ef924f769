"""The roles of a gang, from its pods and its PodGroup.

role by task annotation ──► one shape, that of the pods to be placed
└─ they differ in nothing but their volumes ──► roles beside it, for those that go elsewhere for them
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from muster.decide.asks import COUNTING
from muster.decide.reasons import Reason
from muster.decide.seen import Seen
from muster.decide.subgroups import sub_groups
from muster.decide.surroundings import Problem
from muster.model.gangs import MemberState, Role
from muster.model.pods import Phase, Pod, Shape, TopologyWish
from muster.model.snapshot import Hold
from muster.model.units import PodUid, RoleName
from muster.model.workloads import PodGroup


def member_state(pod: Pod, hold: Hold | None) -> MemberState:
    """Where a pod of ours stands."""
    if pod.phase is Phase.SUCCEEDED:
        return MemberState.SUCCEEDED
    if pod.phase is Phase.FAILED:
        return MemberState.FAILED
    if pod.node is not None:
        return MemberState.LEAVING if pod.terminating else MemberState.BOUND
    if pod.terminating:
        return MemberState.FAILED  # never bound and going away: it holds nothing and will not be placed
    if hold is not None:
        return MemberState.ASSUMED
    return MemberState.GATED if pod.gated else MemberState.WAITING


class Roles(NamedTuple):
    """The roles of a gang, and what is wrong with its pods."""

    roles: tuple[Role, ...]
    slice_of: Mapping[PodUid, str]
    role_of: Mapping[PodUid, RoleName]
    """Pods that make a role of their own beside that of their annotation."""
    problem: Problem | None


def roles_of(group: PodGroup | None, pods: Sequence[Pod], seen: Seen, promised: Mapping[PodUid, Hold]) -> Roles:
    """The roles by task annotation; pods of a role that are still to be placed must not differ in their spec.

    Where only their volumes differ, those that go to other nodes for it make roles beside the one that they name.
    """
    by_role: dict[RoleName, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_role[pod.role].append(pod)
    minimums: Mapping[str, int] = group.min_task_member if group is not None else {}
    parts = sub_groups(group.sub_groups if group is not None else (), by_role)
    problem = parts.problem
    roles: list[Role] = []
    role_of: dict[PodUid, RoleName] = {}
    for name in sorted({*by_role, *(RoleName(role) for role in minimums)}):
        mine = by_role.get(name, [])
        shapes: dict[Shape, list[Pod]] = {}
        first, alike = Shape(), list[Pod]()
        standing: list[Pod] = []
        for pod in mine:
            # Pods that stand keep what they were given; the shape of a role is that of the pods still to be placed.
            if pod.node is not None or pod.finished or (pod.uid in promised and pod.shape.claims):
                standing.append(pod)
                continue
            shape, wrong = seen.shape(pod)
            problem = problem or wrong
            # Nearly always all are alike, and comparing is cheaper than hashing.
            if not alike or shape != first:
                first, alike = shape, shapes.setdefault(shape, [])
            alike.append(pod)
        shape = next(iter(shapes)) if shapes else next((seen.placed(pod) for pod in mine), Shape())
        role = Role(name=name, shape=shape, replicas=len(mine), minimum=minimums.get(name, 0))
        wish, slices = parts.topology.get(name), parts.slices.get(name)
        if wish is not None or slices is not None:
            role = msgspec.structs.replace(role, topology=wish or role.topology, slices=slices)
        if len(shapes) > 1 or (standing and any(_takes_volumes(one, at[0]) for one, at in shapes.items())):
            plain = {seen.placed(pod) for waiting in shapes.values() for pod in waiting}
            if len(plain) > 1:
                problem = problem or Problem(
                    Reason.POD_SPECS_DIFFER,
                    f"pods of {name or 'the gang'} ask for different things; give them different volcano.sh/task-spec annotations",
                )
            elif role.slices is not None or role.topology != TopologyWish():
                problem = problem or Problem(
                    Reason.VOLUME_UNSUPPORTED,
                    f"pods of {name or 'the gang'} have volumes on different nodes, which is not supported for a role that is"
                    " placed in sub-groups or in one domain of the network",
                )
            else:
                counted = sum(member_state(pod, promised.get(pod.uid)) in COUNTING for pod in standing)
                roles += by_volumes(role, next(iter(plain)), shapes, standing=len(standing), counted=counted)
                role_of.update(
                    (pod.uid, volume_role(name, at)) for one, at in shapes.items() if one not in plain for pod in at
                )
                continue
        roles.append(role)
    return Roles(tuple(roles), parts.slice_of, role_of, problem)


def _takes_volumes(shape: Shape, pod: Pod) -> bool:
    """Whether a pod takes counted volumes, which the pods that stand do not."""
    return shape.request != pod.shape.request


def volume_role(name: RoleName, pods: Sequence[Pod]) -> RoleName:
    """The role of pods that go elsewhere for their volumes: named by the claims of the first of them."""
    return RoleName(f"{name} ({', '.join(pods[0].shape.claims)})".strip())


def by_volumes(
    role: Role, plain: Shape, shapes: Mapping[Shape, Sequence[Pod]], *, standing: int, counted: int
) -> list[Role]:
    """A role and those beside it, whose pods differ in their volumes; the minimum is made up in this order.

    Args:
        role: as its pods name it.
        plain: their shape without volumes, which those that stand have.
        shapes: the pods to be placed, by what they ask with their volumes.
        standing: pods that are placed.
        counted: those of them that count toward the minimum.
    """
    waiting = len(shapes.get(plain, ()))
    need = max(0, role.minimum - counted)
    beside: list[Role] = []
    left = need - min(need, waiting)
    for shape, pods in shapes.items():
        if shape == plain:
            continue
        part = min(left, len(pods))
        left -= part
        beside.append(Role(name=volume_role(role.name, pods), shape=shape, replicas=len(pods), minimum=part))
    own = role.minimum - sum(one.minimum for one in beside)
    if not standing and not waiting and not own:
        return beside
    return [msgspec.structs.replace(role, shape=plain, replicas=standing + waiting, minimum=own), *beside]
