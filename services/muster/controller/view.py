"""The cluster as STATE tells it, indexed the ways reconciling asks, and what a change makes worth looking at again.

    Change ──► View.apply ──► targets:  ("workload", "vcjob/ns/name"), ("podgroup", "ns/name"), ("pod", "ns/name"), ("queue", "name")

A target is only a hint to look: reconciling looks at the whole present, so one too many costs time and nothing else.
"""

from collections import defaultdict
from typing import Literal

import msgspec

from muster.bus.state import Change
from muster.decide.lifecycle.podgroups import group_of_job, group_of_pod
from muster.decide.lifecycle.submission import Cluster
from muster.decide.lifecycle.vcjob import group_name
from muster.model.nodes import Node
from muster.model.pods import Pod
from muster.model.policy import Policy
from muster.model.units import gang_key
from muster.model.workloads import Namespace, PodGroup, PriorityClass, Queue, Workload

TargetKind = Literal["workload", "podgroup", "pod", "queue"]


class Target(msgspec.Struct, frozen=True, gc=False):
    """Something to reconcile."""

    kind: TargetKind
    key: str


class View:
    """Objects by key, with indexes; changed by `apply` only."""

    def __init__(self, policy: Policy) -> None:
        """Empty."""
        self.policy = policy
        self.clear()

    def clear(self) -> None:
        """Forget every object: STATE is read anew."""
        self.pods: dict[str, Pod] = {}
        self.podgroups: dict[str, PodGroup] = {}
        self.queues: dict[str, Queue] = {}
        self.workloads: dict[str, Workload] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.priority_classes: dict[str, PriorityClass] = {}
        self.largest_card_mib = 0
        self._cards: dict[str, int] = {}
        self._pods_of_gang: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._pods_of_owner: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._groups_of_queue: dict[str, dict[str, PodGroup]] = defaultdict(dict)
        self._workload_of_uid: dict[str, str] = {}

    # Questions

    def pods_of_gang(self, key: str) -> list[Pod]:
        """The pods that name this PodGroup, by name."""
        return sorted(self._pods_of_gang.get(key, {}).values(), key=lambda pod: pod.name)

    def pods_of_owner(self, uid: str) -> list[Pod]:
        """The pods that this object controls, by name."""
        return sorted(self._pods_of_owner.get(uid, {}).values(), key=lambda pod: pod.name)

    def groups_of_queue(self, name: str) -> list[PodGroup]:
        """The PodGroups of a queue."""
        return list(self._groups_of_queue.get(name, {}).values())

    def workload_of_uid(self, uid: str) -> Workload | None:
        """The job of this uid."""
        key = self._workload_of_uid.get(uid)
        return self.workloads.get(key) if key is not None else None

    def group_of_workload(self, job: Workload) -> PodGroup | None:
        """The PodGroup that stands for a job, if it exists."""
        return self.podgroups.get(gang_of_workload(job))

    def cluster(self) -> Cluster:
        """What submissions are judged against."""
        return Cluster(
            policy=self.policy,
            queues=self.queues,
            priority_classes=frozenset(self.priority_classes),
            namespaces=self.namespaces,
            largest_card_mib=self.largest_card_mib,
        )

    def everything(self) -> set[Target]:
        """All targets, for a new leader."""
        return {
            *(Target("workload", key) for key in self.workloads),
            *(Target("podgroup", key) for key in self.podgroups),
            *(Target("pod", key) for key in self.pods),
            *(Target("queue", key) for key in self.queues),
        }

    # Changes

    def apply(self, change: Change) -> set[Target]:
        """Take one change over; the result is what it concerns."""
        match change.kind:
            case "pod":
                return self._pod(change.key, change.object)
            case "podgroup":
                return self._podgroup(change.key, change.object)
            case "workload":
                return self._workload(change.key, change.object)
            case "queue":
                return self._queue(change.key, change.object)
            case "namespace":
                return self._namespace(change.key, change.object)
            case "node":
                return self._node(change.key, change.object)
            case "priorityclass":
                if change.object is None:
                    self.priority_classes.pop(change.key, None)
                else:
                    self.priority_classes[change.key] = change.object
        return set()

    def _pod(self, key: str, after: Pod | None) -> set[Target]:
        before = self.pods.pop(key, None)
        targets = {Target("pod", key)}
        if before is not None:
            targets |= self._unlink_pod(before)
        if after is not None:
            self.pods[key] = after
            if after.gang is not None:
                self._pods_of_gang[after.gang][after.uid] = after
            if after.owner is not None:
                self._pods_of_owner[after.owner.uid][after.uid] = after
            targets |= self._around_pod(after)
        return targets

    def _unlink_pod(self, pod: Pod) -> set[Target]:
        for index, place in ((self._pods_of_gang, pod.gang), (self._pods_of_owner, pod.owner and pod.owner.uid)):
            if place is None or place not in index:
                continue
            index[place].pop(pod.uid, None)
            if not index[place]:
                del index[place]
        return self._around_pod(pod)

    def _around_pod(self, pod: Pod) -> set[Target]:
        targets = set()
        if pod.gang is not None:
            targets.add(Target("podgroup", pod.gang))
            group = self.podgroups.get(pod.gang)
            if group is not None:
                targets.add(Target("queue", group.queue))
        if pod.owner is not None and pod.owner.uid in self._workload_of_uid:
            targets.add(Target("workload", self._workload_of_uid[pod.owner.uid]))
        return targets

    def _podgroup(self, key: str, after: PodGroup | None) -> set[Target]:
        before = self.podgroups.pop(key, None)
        targets = {Target("podgroup", key)}
        for group in (before, after):
            if group is None:
                continue
            targets.add(Target("queue", group.queue))
            if group.owner is not None and group.owner.uid in self._workload_of_uid:
                targets.add(Target("workload", self._workload_of_uid[group.owner.uid]))
        if before is not None:
            self._groups_of_queue[before.queue].pop(key, None)
            if not self._groups_of_queue[before.queue]:
                del self._groups_of_queue[before.queue]
        if after is not None:
            self.podgroups[key] = after
            self._groups_of_queue[after.queue][key] = after
            if after.owner is not None:
                targets |= {Target("pod", pod.key) for pod in self.pods_of_owner(after.owner.uid) if pod.gang is None}
        return targets

    def _workload(self, key: str, after: Workload | None) -> set[Target]:
        before = self.workloads.pop(key, None)
        targets = {Target("workload", key)}
        if before is not None and self._workload_of_uid.get(before.uid) == key:
            del self._workload_of_uid[before.uid]
        if after is not None:
            self.workloads[key] = after
            self._workload_of_uid[after.uid] = key
            targets |= {Target("pod", pod.key) for pod in self.pods_of_owner(after.uid) if pod.gang is None}
        return targets

    def _queue(self, key: str, after: Queue | None) -> set[Target]:
        self.queues.pop(key, None)
        if after is not None:
            self.queues[key] = after
        return {Target("queue", key)}

    def _namespace(self, key: str, after: Namespace | None) -> set[Target]:
        before = self.namespaces.pop(key, None)
        if after is not None:
            self.namespaces[key] = after
        if before == after:
            return set()
        return {Target("workload", name) for name, job in self.workloads.items() if job.namespace == key}

    def _node(self, key: str, after: Node | None) -> set[Target]:
        self._cards.pop(key, None)
        if after is not None:
            largest = max((card.memory_mib for card in after.cards), default=0)
            if largest:
                self._cards[key] = largest
        largest = max(self._cards.values(), default=0)
        if largest == self.largest_card_mib:
            return set()
        self.largest_card_mib = largest
        return {Target("workload", name) for name, job in self.workloads.items() if not self.pods_of_owner(job.uid)}


def gang_of_workload(job: Workload) -> str:
    """The key of the PodGroup that stands for a job."""
    return gang_key(job.namespace, group_name(job) if job.kind == "vcjob" else group_of_job(job))


def group_for_pod(view: View, pod: Pod) -> PodGroup | None:
    """The PodGroup that a pod without one should have, if it exists."""
    return view.podgroups.get(gang_key(pod.namespace, group_of_pod(pod)))
