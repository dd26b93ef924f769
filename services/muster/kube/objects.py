"""Narrow structs of Kubernetes objects other than pods: only the fields Muster reads, in the API's own words.

JSON names are camelCase, Python names their snake_case. Unknown fields are skipped by the decoder without a copy.
An absent field is its zero value: '' for strings, an empty dict or tuple, None for numbers whose absence has a meaning.
Quantities stay as the API spells them; `muster.model` turns them into integers.
"""

from datetime import datetime
from typing import Any

import msgspec

Quantity = str | int | float
Resources = dict[str, Quantity]


class Narrow(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Base of every struct here: immutable, untracked by the garbage collector (JSON has no cycles)."""


class OwnerReference(Narrow, frozen=True):
    """The object that owns this one."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Narrow, frozen=True):
    """The metadata that Muster uses."""

    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None

    @property
    def key(self) -> str:
        """``namespace/name``, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(Narrow, frozen=True):
    """One condition of a pod, a node or a custom object."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class LabelRequirement(Narrow, frozen=True):
    """``key operator values`` of a label selector or a node selector term."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Narrow, frozen=True):
    """Labels that must match; an empty selector matches everything, an absent one (None) nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()


class Object(Narrow, frozen=True):
    """What every decoded object has."""

    metadata: ObjectMeta


class RawObject(Object, frozen=True):
    """An object whose kind has no struct of its own: spec and status as plain JSON values."""

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class Taint(Narrow, frozen=True):
    """A node's taint."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(Narrow, frozen=True):
    """What people and controllers want of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeStatus(Narrow, frozen=True):
    """What the kubelet reports of a node."""

    allocatable: Resources = {}
    capacity: Resources = {}
    conditions: tuple[Condition, ...] = ()


class RawNode(Object, frozen=True):
    """A Node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class NamespaceStatus(Narrow, frozen=True):
    """Active or Terminating."""

    phase: str = ""


class RawNamespace(Object, frozen=True):
    """A Namespace."""

    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


class RawPriorityClass(Object, frozen=True):
    """A scheduling.k8s.io/v1 PriorityClass."""

    value: int = 0
    global_default: bool = False
    preemption_policy: str = ""


class RawStorageClass(Object, frozen=True):
    """A storage.k8s.io/v1 StorageClass."""

    volume_binding_mode: str = ""
    provisioner: str = ""
    allowed_topologies: list[Any] = []


class LeaseSpec(Narrow, frozen=True):
    """Who holds a Lease and when it was renewed, by the holder's wall clock."""

    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class RawLease(Object, frozen=True):
    """A coordination.k8s.io/v1 Lease."""

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class QueueGuarantee(Narrow, frozen=True):
    """What a queue keeps even when it is idle."""

    resource: Resources = {}


class QueueSpec(Narrow, frozen=True):
    """A scheduling.volcano.sh/v1beta1 Queue's wishes. None means that the field is absent."""

    weight: int | None = None
    capability: Resources | None = None
    deserved: Resources | None = None
    guarantee: QueueGuarantee | None = None
    reclaimable: bool | None = None
    parent: str = ""
    priority: int = 0
    type: str = ""
    dequeue_strategy: str = ""
    affinity: dict[str, Any] | None = None
    extend_clusters: tuple[dict[str, Any], ...] = ()


class QueueStatus(Narrow, frozen=True):
    """A queue's state (Open, Closed, Closing, Unknown) and what is charged to it."""

    state: str = ""
    allocated: Resources = {}


class RawQueue(Object, frozen=True):
    """A scheduling.volcano.sh/v1beta1 Queue."""

    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


class NetworkTopology(Narrow, frozen=True):
    """How narrow a domain the members must (hard) or should (soft) share."""

    mode: str = ""
    highest_tier_allowed: int | None = None
    highest_tier_name: str = ""


class SubGroupPolicy(Narrow, frozen=True):
    """A part of a gang that is placed together."""

    name: str = ""
    network_topology: NetworkTopology | None = None
    sub_group_size: int | None = None
    min_sub_groups: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()


class PodGroupSpec(Narrow, frozen=True):
    """A scheduling.volcano.sh/v1beta1 PodGroup's wishes. None means that the field is absent."""

    min_member: int | None = None
    min_task_member: dict[str, int] = {}
    queue: str = ""
    priority_class_name: str = ""
    min_resources: Resources | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: tuple[SubGroupPolicy, ...] = ()


class PodGroupCondition(Narrow, frozen=True):
    """A PodGroup's condition, which carries a transition id besides the usual fields."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: datetime | None = None


class PodGroupStatus(Narrow, frozen=True):
    """A PodGroup's phase and how many members are where."""

    phase: str = ""
    conditions: tuple[PodGroupCondition, ...] = ()
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class RawPodGroup(Object, frozen=True):
    """A scheduling.volcano.sh/v1beta1 PodGroup."""

    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class RawCommand(Object, frozen=True):
    """A bus.volcano.sh/v1alpha1 Command: an action asked of a job or a queue. It has no spec."""

    action: str = ""
    target: OwnerReference | None = msgspec.field(default=None, name="target")
    reason: str = ""
    message: str = ""
