"""Volcano's subGroupPolicy joined with pods: wishes of roles, and roles in slices.

    no matchLabelKeys    the selected pods are one group: the wish of the role that they are
    matchLabelKeys       pods with one value of the keys are one slice; a slice lies in one role

A policy without a selector and keys is about the role of its own name.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from muster.decide.reasons import Reason
from muster.decide.selecting import selects
from muster.decide.surroundings import Problem
from muster.model.gangs import Slices
from muster.model.pods import Pod, TopologyWish
from muster.model.units import PodUid, RoleName
from muster.model.workloads import SubGroup

TASK_SPEC = "volcano.sh/task-spec"


class Parts(NamedTuple):
    """What sub-groups say of a gang's roles."""

    topology: Mapping[RoleName, TopologyWish]
    slices: Mapping[RoleName, Slices]
    slice_of: Mapping[PodUid, str]
    problem: Problem | None = None


def sub_groups(groups: Sequence[SubGroup], by_role: Mapping[RoleName, Sequence[Pod]]) -> Parts:
    """Wishes and slices of the roles; a problem when a group is made of pods of several roles."""
    topology: dict[RoleName, TopologyWish] = {}
    slices: dict[RoleName, Slices] = {}
    slice_of: dict[PodUid, str] = {}
    problem: Problem | None = None
    for group in groups:
        roles_of: dict[str, set[RoleName]] = defaultdict(set)
        names: dict[PodUid, str] = {}
        for role, pods in by_role.items():
            for pod in pods:
                if not _selected(group, role, pod):
                    continue
                name = ",".join(pod.labels.get(key, "") for key in group.match_label_keys if key != TASK_SPEC)
                # The role is part of what tells groups apart only where it is one of the keys.
                roles_of[f"{role}/{name}" if TASK_SPEC in group.match_label_keys else name].add(role)
                names[pod.uid] = name
        if any(len(roles) > 1 for roles in roles_of.values()):
            problem = problem or Problem(
                Reason.SUB_GROUP_UNSUPPORTED,
                f"subGroupPolicy {group.name} makes groups of several tasks, which is not supported; add {TASK_SPEC} to its"
                " matchLabelKeys",
            )
            continue
        for role in sorted({role for roles in roles_of.values() for role in roles}):
            if group.match_label_keys:
                slices[role] = Slices(size=group.size, minimum=group.minimum, topology=group.topology)
                slice_of |= {pod.uid: names[pod.uid] for pod in by_role[role] if pod.uid in names}
            else:
                topology[role] = group.topology
    return Parts(topology, slices, slice_of, problem)


def _selected(group: SubGroup, role: RoleName, pod: Pod) -> bool:
    if not group.labels and not group.match_label_keys:
        return role == group.name
    return selects(group.labels, pod.labels)
