"""The join of what STATE carries into gangs: which pods are ours, which belong together, and what holds them back.

    pod with our schedulerName ──names──► PodGroup ──► gang          (roles by task annotation)
                               └─names none──► waits (NO_PODGROUP) until the controller made one
    every other pod on a node ──► occupant

A pod of ours that is bound without a PodGroup is an occupant too: it holds room and is nobody's to place.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from muster.decide.budgets import budgets_of
from muster.decide.cordons import SYSTEM_OWNERS
from muster.decide.neighbours import Asked, Labelled, asked_labels
from muster.decide.reasons import Reason
from muster.decide.roles import member_state, roles_of
from muster.decide.seen import Seen, supply_from_nothing
from muster.decide.spelling import meant
from muster.decide.surroundings import Surroundings
from muster.decide.timing import NO_LIMITS, Limits, limits_of_owner, owner_of, same_times, timing_of
from muster.decide.volumes import with_offers
from muster.model.gangs import Gang, Member, MemberState, Role
from muster.model.nodes import Node
from muster.model.pods import Pod, TopologyWish, keeps_away
from muster.model.policy import Policy
from muster.model.snapshot import Hold, Occupant, Snapshot
from muster.model.units import GangKey, NodeName, PodUid, QueueName
from muster.model.workloads import Namespace, PodGroup, PriorityClass, Queue, Workload

PREEMPTABLE = "volcano.sh/preemptable"

MakeMember = Callable[[Pod, Hold | None, Asked | None, str], Member]
"""What `member_of` does."""


def build_snapshot(  # noqa: PLR0917 - one argument per kind of STATE, in its order
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    podgroups: Iterable[PodGroup],
    queues: Iterable[Queue],
    workloads: Iterable[Workload],
    priority_classes: Iterable[PriorityClass],
    namespaces: Iterable[Namespace],
    holds: Iterable[Hold],
    policy: Policy,
    surroundings: Surroundings | None = None,
) -> Snapshot:
    """Everything a decision looks at, from the projections as they stand.

    ``holds`` is the room of open LEDGER entries: for a pod that is not bound yet it makes the member `assumed`; for a pod that
    is gone or stands elsewhere it stays a hold of its own.
    """
    groups = {group.key: group for group in podgroups}
    classes = {one.name: one for one in priority_classes}
    closing = {one.name for one in namespaces if one.terminating}
    works = tuple(workloads)
    ending = {work.uid for work in works if work.terminating}
    limits = {work.uid: limits_of_owner(work) for work in works}
    all_pods = sorted(pods, key=lambda pod: (pod.created, pod.key, pod.uid))
    ours = [pod for pod in all_pods if pod.scheduler_name in policy.scheduler_names]
    around = surroundings or Surroundings()
    asked = asked_labels(all_pods, ours)
    promised: dict[PodUid, Hold] = {hold.uid: hold for hold in holds}
    there = {node.name: node for node in nodes}
    supply = supply_from_nothing(around, all_pods, ours, promised, there)
    seen = Seen(around, Labelled(asked), policy.min_share_memory_mib, supply)
    members: dict[GangKey, list[Pod]] = defaultdict(list)
    gangs: list[Gang] = []
    occupants = [
        occupant_of(pod, pod.node, asked) for pod in all_pods if is_foreign(pod, policy) and pod.node is not None
    ]
    occupants += [
        occupant_of(pod, pod.nominated_node, asked, promised=True)
        for pod in all_pods
        if is_foreign(pod, policy) and pod.node is None and pod.nominated_node is not None and not pod.finished
    ]
    for pod in ours:
        if pod.gang is not None:
            members[pod.gang].append(pod)
        elif pod.holds_room and pod.node is not None:
            occupants.append(occupant_of(pod, pod.node, asked))
        elif not pod.finished and not pod.terminating:
            gangs.append(bare_gang(pod, policy, seen))
    used: set[PodUid] = set()
    for key in sorted(members.keys() | groups.keys()):
        group = groups.get(key)
        mine = members.get(key, [])
        if group is None and not mine:
            continue
        gang = gang_of(
            key, group, mine, promised, classes, policy=policy, closing=closing, ending=ending, seen=seen, limits=limits
        )
        used |= {member.uid for member in gang.members if member.state is MemberState.ASSUMED}
        gangs.append(gang)
    bound = {pod.uid: pod.node for pod in all_pods if pod.node is not None}
    loose = tuple(hold for uid, hold in sorted(promised.items()) if uid not in used and bound.get(uid) != hold.node)
    return Snapshot(
        nodes=tuple(with_offers(node, seen.supply) for _, node in sorted(there.items())),
        queues=tuple(sorted(queues, key=lambda queue: queue.name)),
        gangs=tuple(gangs),
        occupants=tuple(occupants),
        holds=loose,
        topology_levels=policy.topology_levels,
        hypernodes=around.hypernodes,
        budgets=budgets_of(around.budgets, (pod for pod in ours if pod.gang is not None and pod.holds_room)),
        pod_terms=asked is not None,
    )


def is_foreign(pod: Pod, policy: Policy) -> bool:
    """Whether another scheduler's pod holds room, or may have been promised some."""
    return pod.scheduler_name not in policy.scheduler_names and (pod.holds_room or pod.node is None)


def occupant_of(pod: Pod, node: NodeName, asked: Asked | None, *, promised: bool = False) -> Occupant:
    """The room on a node of a pod that belongs to no gang."""
    return Occupant(
        uid=pod.uid,
        key=pod.key,
        node=node,
        request=pod.shape.request,
        cards=pod.cards,
        leaving=pod.terminating,
        promised=promised,
        system=pod.owner is not None and pod.owner.kind in SYSTEM_OWNERS,
        labels=pod.labels if asked is None else dict(asked.labels(pod)),
        host_ports=pod.shape.host_ports,
        pod_terms=() if asked is None else keeps_away(pod.shape.pod_terms),
    )


def same_member(before: Pod, after: Pod) -> bool:
    """Whether two states of a pod differ at most in where it stands: the gang around it is the same."""
    return (
        before.uid == after.uid
        and before.scheduler_name == after.scheduler_name
        and before.gang == after.gang
        and before.role == after.role
        and before.created == after.created
        and (before.priority, before.priority_class) == (after.priority, after.priority_class)
        and before.preemption_policy == after.preemption_policy
        and before.annotations.get(PREEMPTABLE) == after.annotations.get(PREEMPTABLE)
        and before.labels == after.labels
        and before.shape == after.shape
        and same_times(before, after)
    )


def stands_alike(before: Pod, after: Pod) -> bool:
    """Whether two states of a pod make the same member or occupant, and the same gang around it but for when it started."""
    return (
        before.node == after.node
        and (before.phase is after.phase or not (before.finished or after.finished))
        and before.terminating == after.terminating
        and before.gated == after.gated
        and before.nominated_node == after.nominated_node
        and before.cards == after.cards
        and same_member(before, after)
    )


def member_of(pod: Pod, hold: Hold | None, asked: Asked | None, part: str = "") -> Member:
    """A pod as the member of its gang; ``hold`` is its room of an open entry, ``part`` its slice."""
    state = member_state(pod, hold)
    assumed = hold if state is MemberState.ASSUMED else None
    return Member(
        uid=pod.uid,
        name=pod.name,
        role=pod.role,
        state=state,
        node=assumed.node if assumed is not None else pod.node,
        cards=assumed.cards if assumed is not None else pod.cards,
        slice=part,
        labels=() if asked is None else asked.labels(pod),
        pod_terms=() if asked is None else keeps_away(pod.shape.pod_terms),
    )


def gang_of(
    key: GangKey,
    group: PodGroup | None,
    pods: Sequence[Pod],
    promised: Mapping[PodUid, Hold],
    classes: Mapping[str, PriorityClass],
    *,
    policy: Policy,
    closing: set[str],
    ending: set[str],
    seen: Seen,
    limits: Mapping[str, Limits],
    member: MakeMember | None = None,
) -> Gang:
    """The gang of a PodGroup and its pods, in the order of their creation; one of them may be missing.

    ``closing`` are namespaces, ``ending`` the uids of workloads that are being deleted, ``limits`` what workloads say of time, by
    uid. ``member`` may be given by a caller that keeps members of pods that did not change.
    """
    made = roles_of(group, pods, seen, promised)
    make, asked, slice_of = member or member_of, seen.labelled.asked, made.slice_of
    members = tuple([make(pod, promised.get(pod.uid), asked, slice_of.get(pod.uid, "")) for pod in pods])
    if made.role_of:
        members = tuple(
            msgspec.structs.replace(one, role=made.role_of[one.uid]) if one.uid in made.role_of else one
            for one in members
        )
    hold, message = "", ""
    first = pods[0] if pods else None
    namespace = group.namespace if group is not None else key.partition("/")[0]
    if group is None:
        hold, message = Reason.NO_PODGROUP, f"its pods name the PodGroup {key}, which does not exist"
    elif group.terminating or namespace in closing or (group.owner is not None and group.owner.uid in ending):
        hold, message = Reason.PAUSED, f"{key} is being deleted"
    elif made.problem is not None:
        hold, message = made.problem
    named = group.priority_class if group is not None else ""
    value = classes.get(named)
    if named and value is None and not hold and not any(pod.node is not None for pod in pods):
        hold = Reason.PRIORITY_CLASS_MISSING
        message = f"its PodGroup names the PriorityClass {named}, which does not exist{meant(named, classes)}"
    priority = value.value if value is not None else max((pod.priority for pod in pods), default=0)
    preemptible, never_preempts = True, False
    for pod in pods:
        if pod.annotations.get(PREEMPTABLE) == "false" or pod.labels.get(PREEMPTABLE) == "false":
            preemptible = False
        if pod.preemption_policy == "Never":
            never_preempts = True
    if group is not None and (group.annotations.get(PREEMPTABLE) or group.labels.get(PREEMPTABLE)) == "false":
        preemptible = False
    return Gang(
        key=key,
        uid=group.uid if group is not None else (first.uid if first is not None else ""),
        queue=group.queue if group is not None else QueueName(policy.default_queue),
        priority=priority,
        priority_class=named or (first.priority_class if first is not None else ""),
        preemptible=preemptible,
        never_preempts=never_preempts,
        minimum=group.min_member if group is not None else 1,
        roles=made.roles,
        members=members,
        topology=group.topology if group is not None else TopologyWish(),
        submitted=group.created if group is not None else (first.created if first is not None else 0.0),
        namespace=namespace,
        hold=str(hold),
        hold_message=message,
        timing=timing_of(group, pods, limits_of(group, limits)),
        owner=owner_of(group, pods),
    )


def limits_of(group: PodGroup | None, limits: Mapping[str, Limits]) -> Limits:
    """What the owner of a PodGroup says of time."""
    return NO_LIMITS if group is None or group.owner is None else limits.get(group.owner.uid, NO_LIMITS)


def bare_gang(pod: Pod, policy: Policy, seen: Seen) -> Gang:
    """A pod of ours that names no PodGroup: it waits for the controller to make one."""
    return Gang(
        key=GangKey(pod.key),
        uid=pod.uid,
        queue=QueueName(policy.default_queue),
        priority=pod.priority,
        priority_class=pod.priority_class,
        minimum=1,
        roles=(Role(name=pod.role, shape=seen.shape(pod)[0], replicas=1),),
        members=(member_of(pod, None, seen.labelled.asked),),
        submitted=pod.created,
        namespace=pod.namespace,
        hold=str(Reason.NO_PODGROUP),
        hold_message=f"pod {pod.key} waits for its PodGroup to be made",
    )
