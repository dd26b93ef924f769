"""What STATE shows, by kind, and what changed since the last look: for plans under way (`News`), for snapshots (`Differences`).

Held as plain dictionaries keyed as STATE keys them, plus an index of pods by uid. A pod of the same name with a new uid is
a delete and an add. The world itself decides nothing.
"""

from collections.abc import Callable
from typing import Any

from muster.bus.freshness import version_number
from muster.bus.state import Change
from muster.decide.actual import with_actual_cards
from muster.decide.cordons import marked
from muster.decide.fleet import alike
from muster.decide.reasons import known_name
from muster.model.budgets import Budget
from muster.model.nodes import Node
from muster.model.pods import Phase, Pod
from muster.model.topology import HyperNode
from muster.model.units import GangKey, NodeName, PodUid, split_key
from muster.model.volumes import Claim, StorageClass, Volume
from muster.model.workloads import Namespace, PodGroup, PriorityClass, Queue, Workload


class News:
    """What happened to nodes: room that was taken, and nodes that are not as they were."""

    def __init__(self) -> None:
        self.changed: set[NodeName] = set()
        """Nodes that came, went, or changed in anything but their version."""
        self.arrived: list[tuple[PodUid, NodeName | None]] = []
        """Pods that began to hold room, or were promised it, and where."""


class Differences:
    """The objects of STATE that differ from the last look."""

    def __init__(self, *, anew: bool) -> None:
        self.anew = anew
        """What was seen at the last look is void: everything is new."""
        self.keys: dict[str, set[str]] = {}
        """Keys by kind; what is not there any more is gone."""

    def add(self, kind: str, key: str) -> None:
        """This object changed, came or went."""
        self.keys.setdefault(kind, set()).add(key)


class World:
    """STATE in memory."""

    def __init__(self, *, on_pod: Callable[[Pod | None, Pod | None], None] | None = None) -> None:
        self._on_pod = on_pod
        self.clear()

    def clear(self) -> None:
        """Forget everything: STATE was re-created."""
        self.nodes: dict[NodeName, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.by_uid: dict[PodUid, Pod] = {}
        self.starting: dict[str, Pod] = {}
        """Pods that are bound and still pending."""
        self.marked: set[NodeName] = set()
        """Nodes that carry a mark of our cordons."""
        self._standing: dict[NodeName, set[str]] = {}
        """Keys of pods that hold room, by node."""
        self.podgroups: dict[str, PodGroup] = {}
        self.queues: dict[str, Queue] = {}
        self.workloads: dict[str, Workload] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.priority_classes: dict[str, PriorityClass] = {}
        self.hypernodes: dict[str, HyperNode] = {}
        self.claims: dict[str, Claim] = {}
        self.volumes: dict[str, Volume] = {}
        self.storage_classes: dict[str, StorageClass] = {}
        self.budgets: dict[str, Budget] = {}
        self.version = 0
        """Counts the changes."""
        self.pod_version = ""
        """The highest pod resourceVersion applied, tombstones included."""
        self._told: dict[NodeName | None, set[str]] = {}
        """Keys of pods whose kubelet told their devices, by node."""
        self._news = News()
        self._differences = Differences(anew=True)

    def take_differences(self) -> Differences:
        """What changed since the last call."""
        differences, self._differences = self._differences, Differences(anew=False)
        return differences

    def take_news(self) -> "News":
        """What may have made a node fuller or different since the last call."""
        news, self._news = self._news, News()
        return news

    def apply(self, change: Change) -> None:
        """Apply one change of STATE; kinds that are no objects (clock, epoch) are left aside."""
        kind, key, value = change.kind, change.key, change.object
        if kind in {"clock", "epoch"}:
            return
        self.version += 1
        self._differences.add(kind, key)
        if kind == "pod":
            if version_number(change.resource_version) > version_number(self.pod_version):
                self.pod_version = change.resource_version
            self._apply_pod(key, value)
            return
        table = self.table(kind)
        before = table.pop(key, None)
        if value is not None:
            table[key] = value
        if kind == "node" and not _same_room(before, value):
            name = NodeName(key)
            self._news.changed.add(name)
            self._follow_cards(name, value)
            if value is not None and marked(value):
                self.marked.add(name)
            else:
                self.marked.discard(name)

    def standing(self, node: NodeName) -> tuple[Pod, ...]:
        """Pods that hold room on the node."""
        return tuple(self.pods[key] for key in sorted(self._standing.get(node, ())))

    def _follow_standing(self, key: str, before: Pod | None, after: Pod | None) -> None:
        stood = before.node if before is not None and before.holds_room else None
        stands = after.node if after is not None and after.holds_room else None
        if stood == stands:
            return
        if stood is not None:
            there = self._standing[stood]
            there.discard(key)
            if not there:
                del self._standing[stood]
        if stands is not None:
            self._standing.setdefault(stands, set()).add(key)

    def _follow_cards(self, name: NodeName, node: Node | None) -> None:
        """Pods that told their devices before the node was known, or when it listed other cards."""
        keys = self._told.get(name)
        if not keys or node is None:
            return
        keys &= {key for key in keys if key in self.pods and self.pods[key].node == name}
        for key in keys:
            pod = self.pods[key] = with_actual_cards(self.pods[key], node)
            self.by_uid[pod.uid] = pod
            if key in self.starting:
                self.starting[key] = pod
            self._differences.add("pod", key)

    def table(self, kind: str) -> dict[Any, Any]:
        """All objects of a kind, by key."""
        tables: dict[str, dict[Any, Any]] = {
            "node": self.nodes,
            "pod": self.pods,
            "podgroup": self.podgroups,
            "queue": self.queues,
            "workload": self.workloads,
            "namespace": self.namespaces,
            "priorityclass": self.priority_classes,
            "hypernode": self.hypernodes,
            "claim": self.claims,
            "volume": self.volumes,
            "storageclass": self.storage_classes,
            "pdb": self.budgets,
        }
        return tables[kind]

    def job_of(self, gang: GangKey) -> str:
        """A gang as people know it, ``namespace/name``: the job that its PodGroup was made for, else the PodGroup or pod."""
        group = self.podgroups.get(gang)
        if group is None or group.owner is None:
            return known_name(gang)
        return f"{split_key(gang)[0]}/{group.owner.name}"

    def _apply_pod(self, key: str, pod: Pod | None) -> None:
        before = self.pods.get(key)
        if before is not None and (pod is None or pod.uid != before.uid):
            self.by_uid.pop(before.uid, None)
        self._follow_standing(key, before, pod)
        if pod is None:
            self.pods.pop(key, None)
            self.starting.pop(key, None)
            if before is not None:
                self._told.get(before.node, set()).discard(key)
        else:
            if pod.devices:
                self._told.setdefault(pod.node, set()).add(key)
                pod = with_actual_cards(pod, self.nodes.get(pod.node) if pod.node is not None else None)
            self.pods[key] = pod
            self.by_uid[pod.uid] = pod
            if pod.node is not None and pod.phase is Phase.PENDING:
                self.starting[key] = pod
            else:
                self.starting.pop(key, None)
            same = before if before is not None and before.uid == pod.uid else None
            if pod.holds_room and (same is None or same.node is None):
                self._news.arrived.append((pod.uid, pod.node))
            elif pod.nominated_node is not None and (same is None or same.nominated_node != pod.nominated_node):
                self._news.arrived.append((pod.uid, pod.nominated_node))
        if self._on_pod is not None:
            self._on_pod(before, pod)


def _same_room(before: Node | None, after: Node | None) -> bool:
    """Whether a node is the same to whoever places pods on it."""
    if before is None or after is None:
        return before is after
    return alike(before, after)
