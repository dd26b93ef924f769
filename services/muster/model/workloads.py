"""What asks for pods: PodGroups, queues, jobs and the small resources around them, as STATE carries them."""

from enum import StrEnum
from typing import Any

import msgspec

from muster.model.pods import Owner, Requirement, TopologyWish
from muster.model.units import GangKey, QueueName, gang_key


class SubGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Volcano's subGroupPolicy entry: pods with one value of the label keys, placed in one domain."""

    name: str
    topology: TopologyWish = TopologyWish()
    size: int = 1
    minimum: int = 0
    match_label_keys: tuple[str, ...] = ()
    labels: tuple[Requirement, ...] = ()
    """Its labelSelector; () selects every pod of the group, or the role of the same name when there are no keys either."""


class PodGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A scheduling.volcano.sh PodGroup. Times are Unix seconds."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    min_member: int = 1
    min_task_member: dict[str, int] = {}
    queue: QueueName = QueueName("default")
    priority_class: str = ""
    topology: TopologyWish = TopologyWish()
    sub_groups: tuple[SubGroup, ...] = ()
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner: Owner | None = None
    created: float = 0.0
    terminating: bool = False
    status: dict[str, Any] = {}
    """As it stands on the resource; the controller compares and patches it."""

    @property
    def key(self) -> GangKey:
        """The gang's key."""
        return gang_key(self.namespace, self.name)


class QueueState(StrEnum):
    """Volcano's queue states."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Amounts by resource name; a name that is missing is not limited (see DESIGN 6.1 for deserved).

    Keys: ``cpu`` (thousandths), ``memory`` (bytes), ``gpu`` (millionths of a card, cards of any kind), any other
    resource name as a count (a named card resource such as ``nvidia.com/gpu`` in millionths too).
    """

    amounts: dict[str, int] = {}

    def get(self, resource: str) -> int | None:
        """The amount, or None when the resource is not named."""
        return self.amounts.get(resource)

    def __bool__(self) -> bool:
        """True when anything is named."""
        return bool(self.amounts)


class Queue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A scheduling.volcano.sh Queue."""

    name: QueueName
    uid: str = ""
    resource_version: str = ""
    parent: QueueName | None = None
    weight: int = 1
    priority: int = 0
    reclaimable: bool = True
    guarantee: Limits = Limits()
    deserved: Limits = Limits()
    capability: Limits = Limits()
    state: QueueState = QueueState.OPEN
    annotations: dict[str, str] = {}
    status: dict[str, Any] = {}


class PriorityClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A scheduling.k8s.io PriorityClass."""

    name: str
    value: int
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"


class Namespace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A namespace: its name and annotations that matter (queue)."""

    name: str
    annotations: dict[str, str] = {}
    terminating: bool = False


class Workload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Volcano Job or a batch/v1 Job, whole: `spec` and `status` are the resource's own JSON."""

    kind: str
    """``vcjob`` or ``job``."""
    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner: Owner | None = None
    created: float = 0.0
    terminating: bool = False
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"
