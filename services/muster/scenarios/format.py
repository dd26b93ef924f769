"""The scenario file: one cluster, its queues, running and pending jobs, and what must come of them.

Loading is strict: a key that is not known, a wrong type or a name that refers to nothing is an error that says where it
stands (``file:line: path: what is wrong``), and all of them are told at once. Quantities are those of Kubernetes; a card count
of a queue may be a fraction. What a question need not say has a default: see the fields, and `completed`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from muster.decide.field_problems import field_problems
from muster.decide.spelling import meant, quantity_doubt
from muster.model.quantity import QuantityError, to_bytes, to_milli_cpu, to_units
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


class ScenarioError(ValueError):
    """A file that is no scenario; the message says the file, the place in it and what would be right."""


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


def load(path: Path) -> Scenario:
    """Read and check one file.

    Raises:
        ScenarioError: with the file, the place in it, and what is wrong there.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise ScenarioError(f"{path}{line}: not YAML: {getattr(error, 'problem', error)}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise ScenarioError(f"{path}: no scenario: give at least nodes and pending (see docs/scenarios.md)")
    if wrong := field_problems(data, Scenario):
        lines = [f"{path}{_line_of(path, problem.field)}: {problem.field}: {problem.message}" for problem in wrong]
        raise ScenarioError("\n".join(lines))
    scenario = completed(msgspec.convert(data, Scenario), name=path.stem)
    if problems := list(dict.fromkeys(_problems(scenario))):
        raise ScenarioError("\n".join(f"{path}: {problem}" for problem in problems))
    return scenario


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


def _line_of(path: Path, place: str) -> str:
    """The line of a place such as ``nodes[2].cpu``, as ``:12``; empty when it cannot be told."""
    node: Any = yaml.compose(path.read_text(encoding="utf-8"))
    for part in place.replace("[", ".[").split("."):
        if not part or node is None:
            continue
        if part.startswith("[") and isinstance(node, yaml.SequenceNode) and part[1:-1].isdigit():
            node = node.value[int(part[1:-1])]
        elif isinstance(node, yaml.MappingNode):
            found = [value for key, value in node.value if key.value == part]
            if not found:
                break
            node = found[0]
    return f":{node.start_mark.line + 1}" if node is not None else ""


def _problems(scenario: Scenario) -> list[str]:
    problems: list[str] = []
    if scenario.area not in {*AREAS, QUESTION}:
        problems.append(f"area {scenario.area!r} is not one of {', '.join(AREAS)}{meant(scenario.area, AREAS)}")
    nodes = {node.name for node in scenario.nodes}
    queues = {queue.name for queue in scenario.queues}
    jobs = {job.job for job in (*scenario.running, *scenario.pending)}
    pending = {job.job for job in scenario.pending}
    problems += _twice([node.name for node in scenario.nodes], "node")
    problems += _twice([queue.name for queue in scenario.queues], "queue")
    for queue in scenario.queues:
        if queue.parent is not None and queue.parent not in queues:
            problems.append(f"queue {queue.name}: parent {queue.parent} does not exist")
        problems += _amount_problems(queue)
    for node in scenario.nodes:
        problems += _quantity_problems(f"node {node.name}", {"cpu": node.cpu, "memory": node.memory})
    for job in (*scenario.running, *scenario.pending):
        if job.queue not in queues:
            problems.append(f"job {job.job}: queue {job.queue} does not exist{meant(job.queue, queues)}")
        if not sum(task.replicas for task in job.tasks):
            problems.append(f"job {job.job}: has no pods; give it a task with replicas")
        for task in job.tasks:
            requests = {"cpu": task.requests.cpu, "memory": task.requests.memory}
            problems += _quantity_problems(f"job {job.job}: requests", requests)
            problems += [
                f"job {job.job}: node {name} does not exist{meant(name, nodes)}"
                for name in task.placed_on
                if name not in nodes
            ]
            for wish in (task.topology, job.topology):
                problems += [
                    f"job {job.job}: level {level} is not in topology_levels"
                    for level in (wish.required_level, wish.preferred_level)
                    if level and level not in scenario.topology_levels
                ]
    for job in scenario.running:
        problems += [
            f"job {job.job}: it runs, so say where: node (or nodes, one for each replica) of role {task.role}"
            if not task.placed_on
            else f"job {job.job}: {len(task.placed_on)} nodes for {task.replicas} replicas of {task.role}"
            for task in job.tasks
            if len(task.placed_on) != task.replicas
        ]
    expect = scenario.expect
    named = {*expect.keeps_running, *expect.may_move}
    if expect.evicted is not None:
        evicted = expect.evicted
        named |= {*(evicted.exactly or ()), *(name for one in evicted.any_of for name in one), *evicted.no}
        named |= {*evicted.pods, *evicted.roles}
    named |= {name for group in (*expect.cards.share, *expect.cards.separate) for name in group}
    problems += [f"expect: job {name} does not exist" for name in sorted(named - jobs)]
    problems += [f"expect: job {name} is not pending" for name in sorted({*expect.placed, *expect.pending} - pending)]
    problems += [f"expect: node {name} does not exist" for name in sorted({*expect.cards.free_cards} - nodes)]
    return [*problems, *_empty_expectations(expect)]


def _empty_expectations(expect: Expect) -> list[str]:
    """Expectations that hold whatever happens: whoever wrote them meant something else."""
    problems = []
    for job, placed in expect.placed.items():
        says = placed.all or placed.count is not None or placed.min or placed.roles or placed.domains
        if not says:
            problems.append(
                f"expect.placed.{job} says nothing: give all: true, count (exactly so many pods) or min (at least so many); "
                "a job that must wait belongs into expect.pending"
            )
        problems += [
            f"expect.placed.{job}.roles.{role} says nothing: give all: true, count, min, on or same"
            for role, wanted in placed.roles.items()
            if not (wanted.all or wanted.count is not None or wanted.min or wanted.on or wanted.same)
        ]
    evicted = expect.evicted
    if evicted is not None and evicted == EvictedExpect():
        problems.append("expect.evicted says nothing: give none: true, exactly, any_of, count, pods, roles or not")
    return problems


def _quantity_problems(where: str, amounts: dict[str, Quantity]) -> list[str]:
    return [f"{where}: {name}: {doubt}" for name, value in amounts.items() if (doubt := quantity_doubt(str(value)))]


def _twice(names: Sequence[str], what: str) -> list[str]:
    return [f"{what} {name} is there twice" for name in sorted({name for name in names if names.count(name) > 1})]


def _amount_problems(queue: QueueForm) -> list[str]:
    problems = []
    for kind in ("guarantee", "deserved", "capability"):
        for resource, value in getattr(queue, kind).items():
            try:
                amount(resource, value)
            except (ValueError, QuantityError) as error:
                problems.append(f"queue {queue.name}: {kind}.{resource}: {error}")
    return problems


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
