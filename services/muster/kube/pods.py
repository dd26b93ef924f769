"""Narrow structs of a Pod: what decides where it may run, what it takes, and what has become of it.

Same conventions as `muster.kube.objects`. Environment values, arguments and images are not decoded at all.
"""

from datetime import datetime

import msgspec

from muster.kube.objects import Condition, LabelRequirement, LabelSelector, Narrow, Object, Resources


class NodeSelectorTerm(Narrow, frozen=True):
    """Requirements on a node's labels and fields, all of which must hold."""

    match_expressions: tuple[LabelRequirement, ...] = ()
    match_fields: tuple[LabelRequirement, ...] = ()


class NodeSelector(Narrow, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredNodeTerm(Narrow, frozen=True):
    """A node preference with its weight (1 to 100)."""

    weight: int = 0
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(Narrow, frozen=True):
    """Which nodes a pod may and would rather use."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredNodeTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Narrow, frozen=True):
    """Pods (by labels and namespaces) near which, by topology key, this pod goes or does not go."""

    label_selector: LabelSelector | None = None
    topology_key: str = ""
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Narrow, frozen=True):
    """A preference with its weight (1 to 100)."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = msgspec.field(default_factory=PodAffinityTerm)


class PodAffinity(Narrow, frozen=True):
    """Affinity, or anti-affinity, to other pods."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Narrow, frozen=True):
    """All three kinds of affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Narrow, frozen=True):
    """A taint that this pod tolerates; an empty key with operator Exists tolerates all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(Narrow, frozen=True):
    """How evenly pods of one selector spread over the values of a topology key."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: tuple[str, ...] = ()


class ContainerClaim(Narrow, frozen=True):
    """A resource claim of the pod that a container uses."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Narrow, frozen=True):
    """What a container asks for and may use at most."""

    requests: Resources = msgspec.field(default_factory=dict)
    limits: Resources = msgspec.field(default_factory=dict)
    claims: tuple[ContainerClaim, ...] = ()


class ContainerPort(Narrow, frozen=True):
    """A port; host_port 0 takes none of the node's."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Narrow, frozen=True):
    """A container or an init container; the latter with restart_policy Always is a sidecar."""

    name: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class ClaimVolume(Narrow, frozen=True):
    """A PersistentVolumeClaim that is mounted."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolume(Narrow, frozen=True):
    """A volume whose claim is created with the pod, named ``<pod>-<volume>``."""


class Volume(Narrow, frozen=True):
    """A volume; only those that need a PersistentVolume restrict nodes."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None


class SchedulingGate(Narrow, frozen=True):
    """While a pod has a gate it must not be bound."""

    name: str = ""


class PodResourceClaim(Narrow, frozen=True):
    """A dynamic resource claim (resource.k8s.io) of the pod."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(Narrow, frozen=True):
    """What a pod asks for. None means that the field is absent."""

    node_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Resources = msgspec.field(default_factory=dict)
    resources: ResourceRequirements | None = None
    volumes: tuple[Volume, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    restart_policy: str = ""
    host_network: bool = False
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None


class ContainerStateWaiting(Narrow, frozen=True):
    """Not started, and why."""

    reason: str = ""
    message: str = ""


class ContainerStateRunning(Narrow, frozen=True):
    """Running since."""

    started_at: datetime | None = None


class ContainerStateTerminated(Narrow, frozen=True):
    """Ended, how and when."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Narrow, frozen=True):
    """One of three; all None means waiting."""

    waiting: ContainerStateWaiting | None = None
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class AllocatedDevice(Narrow, frozen=True):
    """One device that a container holds."""

    resource_id: str = msgspec.field(default="", name="resourceID")


class AllocatedDevices(Narrow, frozen=True):
    """The devices of one resource that a container holds, as kubelet reports them."""

    name: str = ""
    resources: tuple[AllocatedDevice, ...] = ()


class ContainerStatus(Narrow, frozen=True):
    """What has become of one container."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)
    last_state: ContainerState = msgspec.field(default_factory=ContainerState)
    allocated_resources_status: tuple[AllocatedDevices, ...] = ()


class PodStatus(Narrow, frozen=True):
    """What has become of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    start_time: datetime | None = None
    nominated_node_name: str = ""


class RawPod(Object, frozen=True):
    """A Pod."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
