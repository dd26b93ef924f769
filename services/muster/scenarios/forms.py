"""The forms of a scenario file: one cluster, its queues, running and pending jobs, and what must come of them.

Quantities are those of Kubernetes; a card count of a queue may be a fraction. What a question need not say has a default: see
the fields, and `completed`.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from muster.model.quantity import to_bytes, to_milli_cpu, to_units
from muster.model.units import ONE_CARD

AREAS = (
    "gang", "priority", "preempt", "reclaim", "fairshare", "quota", "binpack", "topology", "fractional-gpu", "elastic",
    "backfill", "consolidation", "node-selection", "idle",
)  # fmt: skip

QUESTION = "question"
"""The area of a file that names none."""
DEFAULT_QUEUE = "default"
DEFAULT_CARD_MIB = 81_920

Quantity = str | int | float
Seconds = Annotated[int, Meta(ge=0)]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping without unknown keys."""


class TaintForm(Strict, frozen=True):
    """A taint of a node."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodeForm(Strict, frozen=True):
    """A node."""

    name: str
    cpu: Quantity = "128"
    memory: Quantity = "2Ti"
    gpus: Annotated[int, Meta(ge=0, le=1024)] = 0
    gpu_memory_mib: Annotated[int, Meta(ge=0)] = 0
    """Of one card; 81920 when not given."""
    allocatable_gpus: int | None = None
    """What the node offers, when that is less than its cards (a lost card, a plugin that restarts)."""
    gpu_model: str = ""
    labels: dict[str, str] = {}
    taints: tuple[TaintForm, ...] = ()
    unschedulable: bool = False
    max_pods: int | None = None


class QueueForm(Strict, frozen=True):
    """A queue; amounts may name ``gpu`` (also a fraction), ``cpu`` and ``memory``."""

    name: str
    parent: str | None = None
    weight: int = 1
    guarantee: dict[str, Quantity] = {}
    deserved: dict[str, Quantity] = {}
    capability: dict[str, Quantity] = {}
    reclaimable: bool = True
    priority: int = 0
    state: Literal["open", "closed"] = "open"


class RequestForm(Strict, frozen=True):
    """What one pod asks: whole cards, or one share of one card."""

    cpu: Quantity = 0
    memory: Quantity = 0
    gpu: int = 0
    gpu_memory_mib: int = 0
    gpu_core_percent: int = 0


class TopologyForm(Strict, frozen=True):
    """Required and preferred level, by name."""

    required_level: str = ""
    preferred_level: str = ""


class TolerationForm(Strict, frozen=True):
    """A toleration of all pods of a job."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""


class TaskForm(Strict, frozen=True):
    """A role: replicas with one request; where they run, for running jobs."""

    role: str = "worker"
    replicas: Annotated[int, Meta(ge=0)] = 1
    requests: RequestForm = RequestForm()
    min_available: int = 0
    node: str | None = None
    nodes: tuple[str, ...] = ()
    cards: tuple[int, ...] = ()
    node_selector: dict[str, str] = {}
    topology: TopologyForm = TopologyForm()

    @property
    def placed_on(self) -> tuple[str, ...]:
        """The node of each replica."""
        return self.nodes or ((self.node,) * self.replicas if self.node is not None else ())


class JobForm(Strict, frozen=True):
    """A running or pending job."""

    job: str
    tasks: tuple[TaskForm, ...]
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    preemptible: bool = True
    min_available: int | None = None
    """All its pods when not given."""
    submit_order: int | None = None
    """As the jobs stand in the file when not given."""
    topology: TopologyForm = TopologyForm()
    node_selector: dict[str, str] = {}
    tolerations: tuple[TolerationForm, ...] = ()
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"
    terminating: bool = False
    arrives: Seconds = 0
    """A pending job is there only from this second of the question on."""
    runs: Seconds = 0
    """It ends well so many seconds after it started (a running job: after the beginning); 0: it does not end."""
    may_lose: Annotated[int, Meta(ge=0)] | None = None
    """A PodDisruptionBudget: so many of its pods may be away at once."""
    leaves_in: Seconds = 0
    """So long its pods are still there once they are asked to leave."""
    started: Seconds = 0
    """A running job: so many seconds before the beginning."""
    last_checkpoint: Seconds = 0
    """A running job: so many seconds before the beginning; 0: none."""
    min_runtime: Seconds = 0
    expected_duration: Seconds = 0
    max_wait: Seconds = 0


class RoleExpect(Strict, frozen=True):
    """What must be placed of one role."""

    all: bool = False
    count: int | None = None
    min: int | None = None
    on: tuple[str, ...] = ()
    same: str = ""


class PlacedExpect(Strict, frozen=True):
    """What must be placed of one job: all, exactly a count, or at least a minimum of its pending pods; and where."""

    all: bool = False
    count: int | None = None
    min: int | None = None
    on: tuple[str, ...] = ()
    same: str = ""
    domains: dict[str, int] = {}
    roles: dict[str, RoleExpect] = {}


class EvictedExpect(Strict, frozen=True):
    """Which jobs lose pods."""

    none: bool = False
    exactly: tuple[str, ...] | None = None
    any_of: tuple[tuple[str, ...], ...] = ()
    count: int | None = None
    pods: dict[str, int | Literal["all"]] = {}
    roles: dict[str, dict[str, int]] = {}
    no: tuple[str, ...] = msgspec.field(default=(), name="not")


class CardsExpect(Strict, frozen=True):
    """What must hold of cards."""

    share: tuple[tuple[str, ...], ...] = ()
    separate: tuple[tuple[str, ...], ...] = ()
    max_percent: int | None = None
    free_cards: dict[str, int] = {}


class Expect(Strict, frozen=True):
    """The settled outcome."""

    placed: dict[str, PlacedExpect] = {}
    pending: tuple[str, ...] = ()
    evicted: EvictedExpect | None = None
    keeps_running: tuple[str, ...] = ()
    may_move: tuple[str, ...] = ()
    starts_by: dict[str, Seconds] = {}
    """Jobs that stand with their minimum by this second."""
    total_placed: int | None = None
    cards: CardsExpect = CardsExpect()


class Scenario(Strict, frozen=True):
    """One file."""

    nodes: tuple[NodeForm, ...]
    pending: tuple[JobForm, ...]
    id: str = ""
    """The file's name when not given."""
    area: str = QUESTION
    about: str = ""
    queues: tuple[QueueForm, ...] = ()
    """One queue ``default`` when none is given."""
    running: tuple[JobForm, ...] = ()
    expect: Expect = Expect()
    confidence: Literal["certain", "likely"] = "likely"
    source: str = ""
    topology_levels: tuple[str, ...] = ()
    notes: str = ""
    policy: dict[str, Any] = {}
    """What of the policy (policy.yaml) this question sets otherwise."""
    gap: str = ""
    """Why `expect` is right and does not come true yet; such a file must fail."""


def completed(scenario: Scenario, *, name: str) -> Scenario:
    """The scenario with what a question need not say: its id, a queue, the memory of cards, minimums and the order of jobs."""
    replicas: dict[str, int] = {}
    for job in (*scenario.running, *scenario.pending):
        replicas[job.job] = replicas.get(job.job, 0) + sum(task.replicas for task in job.tasks)

    def whole(job: JobForm, order: int) -> JobForm:
        return msgspec.structs.replace(
            job,
            min_available=replicas[job.job] if job.min_available is None else job.min_available,
            submit_order=order if job.submit_order is None else job.submit_order,
        )

    return msgspec.structs.replace(
        scenario,
        id=scenario.id or name,
        nodes=tuple(
            msgspec.structs.replace(node, gpu_memory_mib=DEFAULT_CARD_MIB)
            if node.gpus and not node.gpu_memory_mib
            else node
            for node in scenario.nodes
        ),
        queues=scenario.queues or (QueueForm(name=DEFAULT_QUEUE),),
        running=tuple(whole(job, 0) for job in scenario.running),
        pending=tuple(whole(job, number) for number, job in enumerate(scenario.pending, start=1)),
    )


def amount(resource: str, value: Quantity) -> int:
    """A queue's amount in the model's units: cards in millionths, CPU in thousandths, memory in bytes.

    Raises:
        ValueError: the resource is not gpu, cpu or memory, or the value is no quantity.
    """
    if resource == "gpu":
        return to_units(value, ONE_CARD)
    if resource == "cpu":
        return to_milli_cpu(value)
    if resource == "memory":
        return to_bytes(value)
    raise ValueError(f"{resource!r} is not one of gpu, cpu, memory")
