"""The policy: one strict document (policy.yaml). Every field has a default that is safe; unknown keys are refused.

Amounts of time are seconds. `actions` say whether an actor observes or acts. The ranges are checked when a file is read
(`muster.runtime.policy_file`) and stand in schemas/policy.json.
"""

from typing import Annotated, Literal

import msgspec

from muster.model.topology import LEVEL_KEYS

Mode = Literal["observe", "act"]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[int, msgspec.Meta(ge=1)]
Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Factor = Annotated[float, msgspec.Meta(ge=1)]
Name = Annotated[str, msgspec.Meta(min_length=1)]


class Actions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether each actor only says what it would do, or does it."""

    bind: Mode = "act"
    preempt: Mode = "act"
    reclaim: Mode = "observe"
    consolidate: Mode = "observe"
    cordon: Mode = "observe"


class Packing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Weights of node scoring; binpack prefers fuller nodes, cards weigh most by default."""

    cpu: Count = 1
    memory: Count = 1
    gpu: Count = 10
    weight: Count = 1


class Solver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Budgets of CP-SAT. The deterministic budget decides; the wall limit is a net."""

    enabled: bool = True
    deterministic_seconds: Seconds = 0.2
    wall_seconds: Seconds = 2.0
    exact_max_variables: Number = 4000
    """Above this many class × node variables the exact model is not built; the slot-profile engine takes over."""
    batch_deterministic_seconds: Seconds = 0.1
    """Of the engine for one decision of 400 pods or more; one is about four seconds of wall time on two shared cores."""
    batch_step_seconds: Seconds = 0.03
    """Deterministic seconds of one problem at the most."""
    batch_max_variables: Number = 1000
    """Above this many pod variables the slot-profile model is not solved whole, but by subsets of domains only."""
    batch_subset_domains: Number = 12
    """Domains (racks) of one subset."""
    batch_subset_gangs: Number = 30
    """Waiting gangs that one subset may add."""
    batch_entry_domains: Number = 8
    """Domains of a subset that each gang looks at."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may submit over NATS, and into what. Empty tuples mean: any."""

    namespaces: tuple[str, ...] = ()
    default_namespace: Name = "default"
    queues: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] = ()
    service_accounts: tuple[str, ...] = ("default",)
    user: str = ""
    """The Kubernetes user that submissions of this tenant are created as; '' means the controller itself."""
    max_pending: Count = 10_000
    operator: bool = False
    """May pause and resume what Muster does."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deadlines in seconds."""

    start: Seconds = 300.0
    """A bound member that is not Running by then is replaced."""
    bind: Seconds = 60.0
    """A gang whose binds are not complete by then is released."""
    backoff_initial: Seconds = 5.0
    backoff_max: Seconds = 300.0


class Debounce(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The scheduler waits for this much quiet, at most so long, before it decides."""

    quiet: Seconds = 0.02
    longest: Seconds = 0.2


class Preemption(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far evictions may go, whoever is entitled. Seconds; 0 where nothing is said otherwise means no limit."""

    per_gang_per_hour: Count = 3
    """A gang that lost pods so often within an hour is protected until the hour is over."""
    cards_per_hour: Count = 0
    """Cards that evictions may free within an hour; over it the actor stops and says so."""
    moved_per_gained: Amount = 3.0
    """Cards that victims hold, per card that the gang gains; a plan over it is not proposed. 0: no limit."""
    moved_always: Count = 8
    """So many cards may move however few the gang gains, since pods leave whole."""
    grace: Seconds = 30.0
    """Between the warning and the eviction, for a gang that names none (muster.dev/preemption-grace)."""
    grace_max: Seconds = 600.0
    """A longer wish is shortened to this."""
    min_runtime: Seconds = 0.0
    """A gang that names none (muster.dev/min-runtime) is left alone for so long after its start."""
    min_runtime_max: Seconds = 3600.0
    cooldown_max: Seconds = 3600.0
    """Of volcano.sh/cooldown-time."""


class Fairness(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares over time. Seconds."""

    half_life: Seconds = 0.0
    """Of past usage in a queue's weight; 0 looks at the present only."""
    stability: Seconds = 30.0
    """A share that changed triggers reclaim only when it has stood for so long."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reservations for gangs that fit their share but not the room. Seconds."""

    reservations: Count = 2
    """At once."""
    percent: Percent = 25
    """Of all cards that reservations may hold idle together (or one gang's, whichever is more)."""
    max_wait: Seconds = 21_600.0
    """A gang that waited so long (muster.dev/max-wait may name less) goes before the others of its queue and is reserved for."""
    overrun: Factor = 1.5
    """A job is late when it ran so many times its expected duration; then it is preemptible for what it blocks."""


class Pool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes that are emptied and given back by rules of their own."""

    labels: dict[str, str] = {}
    """Nodes with all of these labels; the first pool that matches counts."""
    floor: Count = 0
    """Nodes that stay open whatever is idle."""
    spare_cards: Count = 0
    """Free cards that stay open beside those that the forecast asks for."""
    most_cordoned: Percent = 100
    """Of its nodes, at once."""
    window: Seconds | None = None
    """Seconds; None takes that of `idle`."""


class Idle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When nodes with cards count as idle, and how far cordons may go. Seconds."""

    window: Seconds = 600.0
    """A node that was empty (DaemonSet and mirror pods apart) for so long is idle."""
    min_up: Seconds = 900.0
    """Not cordoned so soon after it joined, or was given back."""
    min_down: Seconds = 600.0
    """Not given back so soon after its cordon, unless a job asks for it."""
    settle: Seconds = 10.0
    """A cordoned node becomes removable so long after its cordon was seen: other schedulers have heard of it by then."""
    removal_grace: Seconds = 60.0
    """A removal that was decided before the node was given back has arrived by then."""
    per_hour: Count = 0
    """Cordons within an hour; 0: no limit."""
    lead: Seconds = 600.0
    """The forecast looks so far ahead: about what a new node takes to join."""
    quantile: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.9
    """Of how much demand has risen within `lead` in the past day: so many cards stay open."""
    billing_period: Seconds = 0.0
    """Nodes are billed in periods of this length from when they joined: they are cordoned near the end of one; 0: at any time."""
    billing_margin: Seconds = 300.0
    """How near."""
    keep_nodes: bool = False
    """Whether nodes that reservations, plans or the forecast need are marked so that other autoscalers leave them alone."""
    keep_pods: bool = False
    """Whether pods of gangs are marked so at their start (cluster-autoscaler.kubernetes.io/safe-to-evict)."""
    pools: dict[str, Pool] = {}
    """By name; nodes that no pool matches are one pool without a name."""


class QueueRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may enter a queue, and how much its jobs may wish for. Empty tuples mean: any."""

    namespaces: tuple[str, ...] = ()
    priority_classes: tuple[str, ...] = ()
    non_preemptible: bool = True
    """Whether its jobs may declare themselves non-preemptible; where not, the wish is ignored and said to be."""
    grace_max: Seconds | None = None
    """Seconds; None takes the cap of `preemption`, as the two below."""
    min_runtime_max: Seconds | None = None
    cooldown_max: Seconds | None = None
    max_wait_min: Seconds = 0.0
    """A shorter muster.dev/max-wait is lengthened to this."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole policy."""

    scheduler_name: Name = "muster"
    aliases: tuple[str, ...] = ("volcano",)
    default_queue: Name = "default"
    tenants: dict[str, Tenant] = msgspec.field(default_factory=lambda: {"default": Tenant(operator=True)})
    actions: Actions = Actions()
    packing: Packing = Packing()
    solver: Solver = Solver()
    timeouts: Timeouts = Timeouts()
    debounce: Debounce = Debounce()
    preemption: Preemption = Preemption()
    fairness: Fairness = Fairness()
    waiting: Waiting = Waiting()
    idle: Idle = Idle()
    queues: dict[str, QueueRules] = {}
    """By queue name; '*' stands for every queue not named."""
    topology_levels: tuple[str, ...] = tuple(LEVEL_KEYS)
    """Widest first: short names with all their label keys (model.topology), or label keys. Levels that no node has do not count."""
    card_resources: tuple[str, ...] = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
    min_share_memory_mib: Count = 64
    """A memory share below this is held as a unit mistake (see decide.cards)."""
    bind_concurrency: Number = 32

    reservation_image: Name = "muster"
    """Image of the pods that hold shared cards on nodes of mode `reserved`: the project's own."""

    def rules(self, queue: str) -> QueueRules:
        """The rules of a queue: its own, those of '*', or none."""
        return self.queues.get(queue) or self.queues.get("*") or QueueRules()

    @property
    def scheduler_names(self) -> frozenset[str]:
        """Every schedulerName whose pods are ours."""
        return frozenset({self.scheduler_name, *self.aliases})
