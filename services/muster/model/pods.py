"""Pods and what they ask for.

`Shape` is the part of a pod's spec that placement looks at. It is hashable: pods with equal shapes are one class, so
feasibility is computed once per class. `Request` follows Kubernetes: the larger of the sum of the containers and each init
container (restartable init containers add up), plus overhead.
"""

from enum import StrEnum

import msgspec

from muster.model.units import (
    Bytes,
    CardCount,
    CardIndex,
    CorePercent,
    GangKey,
    MiB,
    MilliCpu,
    NodeName,
    PodUid,
    RoleName,
)


class Share(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A share of a card: memory in MiB, core in percent; 0 means that this side is not limited."""

    memory_mib: MiB = MiB(0)
    core_percent: CorePercent = CorePercent(0)
    count: int = 1
    """So many shares of this size, each on another card of one node."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one pod asks of one node."""

    cpu: MilliCpu = MilliCpu(0)
    memory: Bytes = Bytes(0)
    cards: CardCount = CardCount(0)
    """Whole cards; never together with a share (the share wins, see decide.cards)."""
    share: Share | None = None
    extended: tuple[tuple[str, int], ...] = ()
    card_resource: str = "nvidia.com/gpu"
    card_containers: tuple[tuple[int, int, int, int], ...] = ()
    """(container, devices, MiB, percent) for plugins that are told per container; (): the first container has all."""


class Toleration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A toleration; an empty key with operator Exists tolerates all, an empty effect matches all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Requirement(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``key operator values`` of a selector term: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeTerm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A node selector term: all requirements must hold. Terms of one affinity are alternatives."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    """Over ``metadata.name`` only, as Kubernetes allows."""
    weight: int = 0
    """For preferred terms."""


UNKNOWN_NAMESPACES = ("",)
"""Namespaces chosen by their labels, which are not in the model: no pod is known to be meant."""


class PodTerm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A pod affinity or anti-affinity term."""

    topology_key: str
    labels: tuple[Requirement, ...] = ()
    namespaces: tuple[str, ...] = ()
    """Empty: the pod's own namespace; ``("*",)``: all."""
    anti: bool = False
    weight: int = 0
    """0: required."""


class SpreadConstraint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A topologySpreadConstraint."""

    topology_key: str
    max_skew: int
    required: bool
    labels: tuple[Requirement, ...] = ()
    min_domains: int = 1


class TopologyWish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Required and preferred topology level by name ('' when not asked for), or Volcano's highest tier (0: none)."""

    required_level: str = ""
    preferred_level: str = ""
    required_tier: int = 0
    preferred_tier: int = 0


class Kind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What terms of other pods look at in a pod that stands, and whom it keeps away."""

    namespace: str
    labels: tuple[tuple[str, str], ...] = ()
    terms: tuple[PodTerm, ...] = ()
    """Its required anti-affinity."""
    leaving: bool = False


class Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What placement needs to know of a pod's spec; equal shapes are placed alike."""

    request: Request = Request()
    node_selector: tuple[tuple[str, str], ...] = ()
    required_nodes: tuple[NodeTerm, ...] = ()
    preferred_nodes: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    pod_terms: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[tuple[str, int, str], ...] = ()
    """(protocol, port, host address or '')."""
    claims: tuple[str, ...] = ()
    """Names of PersistentVolumeClaims."""
    resource_claims: bool = False
    """The pod uses DRA ResourceClaims."""
    takes_visible_devices: bool = False
    """Its containers read from an annotation which cards they may see (needed where no plugin hands shares over)."""
    gpu_models: tuple[str, ...] = ()
    """Only cards whose model contains one of these, whatever the case."""
    refused_gpu_models: tuple[str, ...] = ()
    volume_nodes: tuple[tuple[NodeTerm, ...], ...] = ()
    """Node affinity of the volumes that its claims are bound to: of each, one term must hold. Known to the snapshot only."""
    namespace: str = ""
    """Its namespace where pods of the cluster have terms that matter to pods that wait, '' elsewhere."""
    labels: tuple[tuple[str, str], ...] = ()
    """Of its labels those that such terms ask about, sorted."""

    @property
    def kind(self) -> Kind | None:
        """What it is to terms of other pods; None where there are none."""
        if not self.namespace:
            return None
        return Kind(namespace=self.namespace, labels=self.labels, terms=keeps_away(self.pod_terms))

    @property
    def has_terms(self) -> bool:
        """Whether where it goes depends on other pods, by its own wish."""
        return bool(self.pod_terms or self.spread)


def keeps_away(terms: tuple[PodTerm, ...]) -> tuple[PodTerm, ...]:
    """The required anti-affinity among these terms."""
    return tuple(term for term in terms if term.anti and not term.weight)


class Phase(StrEnum):
    """A pod's phase, as Kubernetes names it."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class CardUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a pod uses of one card: a whole card is 100 percent of its core and all of its memory."""

    index: CardIndex
    memory_mib: MiB = MiB(0)
    core_percent: CorePercent = CorePercent(0)
    whole: bool = False


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The controlling owner reference."""

    api_version: str
    kind: str
    name: str
    uid: str


class Pod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod as the watcher projects it into STATE. Times are Unix seconds."""

    namespace: str
    name: str
    uid: PodUid
    resource_version: str = ""
    scheduler_name: str = ""
    gang: GangKey | None = None
    """The PodGroup it names (annotation), else None."""
    role: RoleName = RoleName("")
    shape: Shape = Shape()
    node: NodeName | None = None
    nominated_node: NodeName | None = None
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    exit_code: int | None = None
    """Of the first container that ended with an error, when there is one."""
    terminating: bool = False
    deletion_time: float | None = None
    gated: bool = False
    ready: bool = False
    priority: int = 0
    priority_class: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    cards: tuple[CardUse, ...] = ()
    """The card assignment read from its annotations."""
    fence: int = 0
    """Annotation ``muster.dev/fence``, 0 when never touched."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    """Only those of Muster, Volcano and Kubernetes scheduling; never the users' own."""
    owner: Owner | None = None
    created: float = 0.0
    started: float | None = None
    unschedulable_reason: str = ""
    """Reason of its condition PodScheduled=False, '' when it has none."""
    unschedulable_message: str = ""
    devices: tuple[str, ...] = ()
    """Identifiers of the devices that its kubelet says it holds (UUIDs of cards, where the plugin names cards so)."""
    active_deadline: float = 0.0
    """Its activeDeadlineSeconds, 0 when it has none."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        """Succeeded or Failed: it holds nothing any more."""
        return self.phase in {Phase.SUCCEEDED, Phase.FAILED}

    @property
    def holds_room(self) -> bool:
        """Bound and not finished: it holds its room, also while terminating and on a node that is not ready."""
        return self.node is not None and not self.finished
