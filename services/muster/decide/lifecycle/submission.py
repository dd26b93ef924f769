"""From a submission to the object it asks for, or to a list of what is wrong with it.

    short form ──► a Volcano Job with one task
    manifest   ──► a Job of batch.volcano.sh/v1alpha1 or batch/v1, checked and completed
                     │
                     ├─ problems: nothing is created, every problem names its field, value and what would be right
                     └─ the object, named <name>-<hash of tenant and id>: the same for every delivery

The object carries whose it is (``muster.dev/tenant``, ``muster.dev/submission``); by that a second delivery knows it again.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from muster.decide.cards import GPU_CORE, GPU_MEMORY, normalise_containers
from muster.decide.findings import Problem
from muster.decide.known_fields import resource_problems, unknown_fields
from muster.decide.lifecycle.actions import BATCH_JOBS, PRIORITY_CLASSES, QUEUES, VCJOBS
from muster.decide.lifecycle.baseline import metadata_problems, template_problems
from muster.decide.lifecycle.batch_jobs import with_evictions_ignored
from muster.decide.lifecycle.forms import BatchSpec, Metadata, Template, form_problem
from muster.decide.lifecycle.jobspec import DNS_LABEL, SpecError, check_spec, read_spec, without_nulls
from muster.decide.lifecycle.podgroups import MINIMUM_ANNOTATIONS, MinimumError, minimum_of
from muster.decide.lifecycle.queues import queue_of
from muster.decide.projection.metadata import TOPOLOGY_REQUIRED, kept_annotations
from muster.decide.queue_rules import forbidden
from muster.decide.reasons import Reason
from muster.decide.spelling import quantity_doubt
from muster.decide.timing import timing_problems
from muster.model.gangs import Gang
from muster.model.policy import Policy, Tenant
from muster.model.quantity import parse_quantity
from muster.model.topology import DIMENSION_KEYS, level_keys, level_name
from muster.model.units import QueueName, gang_key
from muster.model.workloads import Namespace, Queue, QueueState

TENANT = "muster.dev/tenant"
SUBMISSION = "muster.dev/submission"
EXPECTED_DURATION = "muster.dev/expected-duration"
SHORT_TASK = "main"
NODE_LEVEL = "node"
KINDS: Mapping[tuple[str, str], str] = {
    ("batch.volcano.sh/v1alpha1", "Job"): VCJOBS,
    ("batch/v1", "Job"): BATCH_JOBS,
}
BASE_LENGTH = 36
HASH_LENGTH = 10
LARGEST_MANIFEST = 512 * 1024
MOST_REPLICAS = 10_000
MOST_VARIABLES = 1_000
VARIABLE = re.compile(r"[A-Za-z_.-][A-Za-z0-9_.-]*")
LABEL_VALUE = re.compile(r"|[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
SECRET_WORDS = ("PASSWORD", "PASSWD", "SECRET", "TOKEN", "API_KEY", "APIKEY", "ACCESS_KEY", "PRIVATE_KEY")


class ShortForm(Protocol):
    """The fields of the short form."""

    @property
    def image(self) -> str: ...  # noqa: D102
    @property
    def command(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def args(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def env(self) -> dict[str, str]: ...  # noqa: D102
    @property
    def gpus(self) -> int | None: ...  # noqa: D102
    @property
    def gpu_memory_mib(self) -> int | None: ...  # noqa: D102
    @property
    def gpu_core_percent(self) -> int | None: ...  # noqa: D102
    @property
    def cpu(self) -> str | None: ...  # noqa: D102
    @property
    def memory(self) -> str | None: ...  # noqa: D102
    @property
    def replicas(self) -> int: ...  # noqa: D102
    @property
    def min_available(self) -> int | None: ...  # noqa: D102
    @property
    def queue(self) -> str | None: ...  # noqa: D102
    @property
    def priority_class(self) -> str | None: ...  # noqa: D102
    @property
    def topology(self) -> str | None: ...  # noqa: D102
    @property
    def expected_duration(self) -> float | None: ...  # noqa: D102
    @property
    def max_retry(self) -> int | None: ...  # noqa: D102
    @property
    def node_selector(self) -> dict[str, str]: ...  # noqa: D102
    @property
    def labels(self) -> dict[str, str]: ...  # noqa: D102
    @property
    def annotations(self) -> dict[str, str]: ...  # noqa: D102


class Submission(Protocol):
    """The fields of a submission; exactly one of `short` and `manifest` is given."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def namespace(self) -> str | None: ...  # noqa: D102
    @property
    def name(self) -> str | None: ...  # noqa: D102
    @property
    def short(self) -> ShortForm | None: ...  # noqa: D102
    @property
    def manifest(self) -> dict[str, Any] | None: ...  # noqa: D102


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What a submission is judged against."""

    policy: Policy
    queues: Mapping[str, Queue] = {}
    priority_classes: frozenset[str] = frozenset()
    namespaces: Mapping[str, Namespace] = {}
    largest_card_mib: int = 0


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """An object that was looked for and is not known."""

    kind: str
    name: str


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that was judged: an object to create, or problems."""

    namespace: str = ""
    name: str = ""
    kind: str = ""
    document: dict[str, Any] = {}
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    absent: tuple[Absent, ...] = ()
    """Objects named by it that are not known (yet): each is among the problems."""


def object_name(base: str, *, tenant: str, submission_id: str) -> str:
    """``<base>-<hash>``: one name for every delivery of a submission, no other submission's."""
    digest = hashlib.sha256(f"{tenant}\0{submission_id}".encode()).hexdigest()[:HASH_LENGTH]
    return f"{base[:BASE_LENGTH].rstrip('-.')}-{digest}"


def given_name(name: str, *, submission: str) -> str:
    """The name that was asked for, of an object that was made from a submission; the name itself of every other."""
    base, _, digest = name.rpartition("-")
    made = bool(submission and base) and len(digest) == HASH_LENGTH and set(digest) <= set("0123456789abcdef")
    return base if made else name


def is_ours(annotations: Mapping[str, str], *, tenant: str, submission_id: str) -> bool:
    """An existing object was made by this very submission."""
    return annotations.get(TENANT) == tenant and annotations.get(SUBMISSION) == submission_id


def judge(submission: Submission, *, tenant: str, cluster: Cluster) -> Judged:
    """Check a submission against the tenant's rights and the cluster, and make the object it asks for."""
    policy = cluster.policy
    rights = policy.tenants.get(tenant)
    if rights is None:
        known = ", ".join(sorted(policy.tenants))
        return _refused(Problem(field="tenant", value=tenant, message=f"is not known here; known are {known}"))
    if (submission.short is None) == (submission.manifest is None):
        given = "neither" if submission.short is None else "both"
        message = f"exactly one of short and manifest must be given; {given} is"
        return _refused(Problem(field="short", value="", message=message))
    problems: list[Problem] = []
    if submission.short is not None:
        kind, document = VCJOBS, {}
        problems += _short_problems(submission.short, policy=policy)
        if not problems:
            document = _from_short(submission.short, policy=policy)
        base = submission.name or "job"
    else:
        kind, document, found = _from_manifest(submission.manifest or {})
        problems += found
        metadata = document.get("metadata") or {}
        base = submission.name or str(metadata.get("name") or metadata.get("generateName") or "job").rstrip("-")
    if DNS_LABEL.fullmatch(base) is None:
        message = "must be lower-case letters, digits and '-', beginning and ending with a letter or digit"
        problems.append(Problem(field="name", value=base[:80], message=message))
    namespace, found = _namespace(submission, document, rights, cluster)
    problems += found
    if not problems:
        prefix = "short." if submission.short is not None else "manifest."
        found = list(
            _document_problems(
                kind, document, name=base, namespace=namespace, rights=rights, cluster=cluster, prefix=prefix
            )
        )
        problems += found if submission.short is None else [in_short_form(problem) for problem in found]
    if problems:
        return Judged(problems=tuple(problems), absent=tuple(_absent(problems)))
    name = object_name(base, tenant=tenant, submission_id=submission.id)
    metadata = document.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), TENANT: tenant, SUBMISSION: submission.id}
    return Judged(
        namespace=namespace,
        name=name,
        kind=kind,
        document={
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": dict(metadata.get("labels") or {}),
                "annotations": annotations,
            },
            "spec": document["spec"] if kind != BATCH_JOBS else with_evictions_ignored(document["spec"]),
        },
        warnings=tuple(_warnings(kind, document)),
    )


SHORT_FIELDS: Mapping[str, str] = {
    'limits["volcano.sh/gpu-memory"]': "gpu_memory_mib",
    'limits["volcano.sh/gpu-core"]': "gpu_core_percent",
    'limits["memory"]': "memory",
    'requests["memory"]': "memory",
    'requests["cpu"]': "cpu",
    "limits[": "gpus",
    "].image": "image",
    "].env": "env",
    "nodeSelector": "node_selector",
    "metadata.annotations": "annotations",
    "metadata.labels": "labels",
    "spec.minAvailable": "min_available",
    "spec.maxRetry": "max_retry",
    "spec.tasks[0].name": "name",
    "spec.tasks[0].replicas": "replicas",
}
"""A part of a path in the object made of a short form → the field of the short form that it came from."""


def in_short_form(problem: Problem) -> Problem:
    """A problem of the object made of a short form, told of the field that people wrote."""
    if not problem.field.startswith(("short.spec.", "short.metadata.")):
        return problem
    field = next((name for part, name in SHORT_FIELDS.items() if part in problem.field), "")
    if not field and problem.field == "short.spec.tasks":
        field = "replicas"
    if not field:
        return problem
    return msgspec.structs.replace(problem, field=field if field == "name" else f"short.{field}")


NO_NAMESPACE = "there is no such namespace"
NO_QUEUE = "there is no such queue"
NO_CLASS = "there is no such PriorityClass"
LOOKED_FOR = {NO_NAMESPACE: "namespaces", NO_QUEUE: QUEUES, NO_CLASS: PRIORITY_CLASSES}


def _absent(problems: Iterable[Problem]) -> Iterable[Absent]:
    for problem in problems:
        for beginning, kind in LOOKED_FOR.items():
            if problem.message.startswith(beginning):
                yield Absent(kind=kind, name=problem.value)


def _refused(problem: Problem) -> Judged:
    return Judged(problems=(problem,))


def _short_problems(short: ShortForm, *, policy: Policy) -> Iterable[Problem]:
    if not short.image or any(character.isspace() for character in short.image):
        message = "needs an image such as registry.example.com/llm:3, without spaces"
        yield Problem(field="short.image", value=short.image, message=message)
    shared = short.gpu_memory_mib or short.gpu_core_percent
    if short.gpus and shared:
        message = "give whole GPUs or a share of one GPU (gpu_memory_mib, gpu_core_percent), not both"
        yield Problem(field="short.gpus", value=str(short.gpus), message=message)
    if short.gpus is not None and short.gpus < 0:
        message = f"{short.gpus} is below 0; give the number of whole cards of a pod"
        yield Problem(field="short.gpus", value=str(short.gpus), message=message)
    if short.gpu_core_percent is not None and not 0 < short.gpu_core_percent <= 100:
        value = str(short.gpu_core_percent)
        yield Problem(field="short.gpu_core_percent", value=value, message=f"{value} is not from 1 to 100 (percent)")
    if not 1 <= short.replicas <= MOST_REPLICAS:
        value = str(short.replicas)
        yield Problem(field="short.replicas", value=value, message=f"{value} is not from 1 to {MOST_REPLICAS}")
    if short.min_available is not None and not 1 <= short.min_available <= short.replicas:
        value, message = str(short.min_available), f"must be between 1 and replicas ({short.replicas})"
        yield Problem(field="short.min_available", value=value, message=message)
    for field, quantity in (("cpu", short.cpu), ("memory", short.memory)):
        if quantity is None:
            continue
        if doubt := quantity_doubt(quantity):
            yield Problem(field=f"short.{field}", value=quantity, message=doubt)
        elif parse_quantity(quantity) <= 0:
            yield Problem(field=f"short.{field}", value=quantity, message="must be above 0")
    if short.max_retry is not None and short.max_retry < 0:
        yield Problem(field="short.max_retry", value=str(short.max_retry), message="must not be negative")
    if short.expected_duration is not None and short.expected_duration <= 0:
        value = str(short.expected_duration)
        yield Problem(field="short.expected_duration", value=value, message="must be a number of seconds above 0")
    levels = [level_name(entry) for entry in policy.topology_levels]
    keys = {key for entry in policy.topology_levels for key in level_keys(entry)}
    dimensions = {name for short_name, names in DIMENSION_KEYS.items() for name in (short_name, *names)}
    if short.topology and short.topology not in {*levels, *keys, *dimensions, NODE_LEVEL}:
        message = f"is no topology level of this cluster; there are {', '.join((*levels, NODE_LEVEL, *DIMENSION_KEYS))}"
        yield Problem(field="short.topology", value=short.topology, message=message)
    if len(short.env) > MOST_VARIABLES:
        message = f"at most {MOST_VARIABLES} variables"
        yield Problem(field="short.env", value=str(len(short.env)), message=message)
    for name in short.env:
        if VARIABLE.fullmatch(name) is None:
            yield Problem(field="short.env", value=name[:80], message="is no name of an environment variable")
    for group, marks in (("labels", short.labels), ("node_selector", short.node_selector)):
        for key, value in marks.items():
            if LABEL_KEY.fullmatch(key) is None or LABEL_VALUE.fullmatch(value) is None:
                message = "is no Kubernetes label: at most 63 letters, digits, '-', '_' and '.'"
                yield Problem(field=f"short.{group}", value=f"{key}={value}"[:160], message=message)
    for key in short.annotations.keys() - kept_annotations(short.annotations).keys():
        message = "only muster.dev/ and volcano.sh/ annotations can be given"
        yield Problem(field="short.annotations", value=key[:80], message=message)


def _from_short(short: ShortForm, *, policy: Policy) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    if short.gpus:
        limits[policy.card_resources[0]] = short.gpus
    if short.gpu_memory_mib:
        limits[GPU_MEMORY] = short.gpu_memory_mib
    if short.gpu_core_percent:
        limits[GPU_CORE] = short.gpu_core_percent
    if short.cpu:
        requests["cpu"] = short.cpu
    if short.memory:
        requests["memory"] = limits["memory"] = short.memory
    container: dict[str, Any] = {"name": SHORT_TASK, "image": short.image}
    if short.command:
        container["command"] = list(short.command)
    if short.args:
        container["args"] = list(short.args)
    if short.env:
        container["env"] = [{"name": name, "value": value} for name, value in short.env.items()]
    resources = {name: amounts for name, amounts in (("limits", limits), ("requests", requests)) if amounts}
    if resources:
        container["resources"] = resources
    pod: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if short.node_selector:
        pod["nodeSelector"] = dict(short.node_selector)
    spec: dict[str, Any] = {
        "schedulerName": policy.scheduler_name,
        "minAvailable": short.min_available or short.replicas,
        # A gang without one of its pods is of no use: it starts anew, or has failed. Volcano counts attempts.
        "maxRetry": (short.max_retry or 0) + 1,
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
        "tasks": [
            {
                "name": SHORT_TASK,
                "replicas": short.replicas,
                "template": {"metadata": {"labels": dict(short.labels)}, "spec": pod},
            }
        ],
    }
    if short.queue:
        spec["queue"] = short.queue
    if short.priority_class:
        spec["priorityClassName"] = short.priority_class
        pod["priorityClassName"] = short.priority_class
    annotations = dict(short.annotations)
    if short.topology:
        annotations[TOPOLOGY_REQUIRED] = short.topology
    if short.expected_duration:
        annotations[EXPECTED_DURATION] = f"{short.expected_duration:g}"
    return {"metadata": {"labels": dict(short.labels), "annotations": annotations}, "spec": spec}


def _from_manifest(manifest: Mapping[str, Any]) -> tuple[str, dict[str, Any], list[Problem]]:
    document: dict[str, Any] = without_nulls(manifest)
    size = len(msgspec.json.encode(document))
    if size > LARGEST_MANIFEST:
        message = f"at most {LARGEST_MANIFEST} bytes"
        return "", {}, [Problem(field="manifest", value=f"{size} bytes", message=message)]
    named = (str(document.get("apiVersion") or ""), str(document.get("kind") or ""))
    kind = KINDS.get(named)
    if kind is None:
        allowed = " and ".join(f"{api_version} {name}" for api_version, name in KINDS)
        message = f"only {allowed} can be submitted"
        return "", {}, [Problem(field="manifest.kind", value=" ".join(named).strip(), message=message)]
    for field in ("metadata", "spec"):
        if not isinstance(document.get(field, {}), dict):
            return kind, {}, [Problem(field=f"manifest.{field}", value="", message="must be a mapping")]
    if not document.get("spec"):
        return kind, document, [Problem(field="manifest.spec", value="", message="is missing")]
    problem = form_problem(document.get("metadata", {}), Metadata, path="manifest.metadata")
    if problem is None and kind == BATCH_JOBS:
        problem = form_problem(document["spec"], BatchSpec, path="manifest.spec")
    if problem is not None:
        return kind, {}, [problem, *unknown_fields(document, path="manifest")]
    return kind, document, []


def _namespace(
    submission: Submission, document: Mapping[str, Any], rights: Tenant, cluster: Cluster
) -> tuple[str, list[Problem]]:
    written = (document.get("metadata") or {}).get("namespace")
    namespace = submission.namespace or written or rights.default_namespace
    field = "namespace" if submission.namespace or not written else "manifest.metadata.namespace"
    if submission.namespace and written and written != submission.namespace:
        message = f"the manifest says {written}; both must be the same"
        return str(namespace), [Problem(field=field, value=submission.namespace, message=message)]
    if rights.namespaces and namespace not in rights.namespaces:
        message = f"this tenant may use {', '.join(rights.namespaces)}"
        return str(namespace), [Problem(field=field, value=str(namespace), message=message)]
    found = cluster.namespaces.get(str(namespace))
    if found is None or found.terminating:
        message = NO_NAMESPACE if found is None else "this namespace is being deleted"
        return str(namespace), [Problem(field=field, value=str(namespace), message=message)]
    return str(namespace), []


def _document_problems(
    kind: str,
    document: Mapping[str, Any],
    *,
    name: str,
    namespace: str,
    rights: Tenant,
    cluster: Cluster,
    prefix: str,
) -> Iterable[Problem]:
    """What is wrong with the object itself: the same checks whatever form it came in."""
    policy = cluster.policy
    spec: Mapping[str, Any] = document["spec"]
    metadata = document.get("metadata") or {}
    if prefix == "manifest.":
        yield from unknown_fields(document, path="manifest")
    yield from (problem.under(prefix) for problem in metadata_problems(metadata, path="metadata"))
    annotations = metadata.get("annotations") or {}
    yield from timing_problems(annotations, path=f"{prefix}metadata.annotations")
    if kind == VCJOBS:
        try:
            read = read_spec(spec)
        except SpecError as error:
            field, _, message = str(error).partition(": ")
            yield Problem(field=prefix + field, value="", message=message)
            return
        scheduler = read.scheduler_name
        if scheduler and scheduler not in policy.scheduler_names:
            names = ", ".join(sorted(policy.scheduler_names))
            message = f"must be one of {names}, or left out"
            yield Problem(field=f"{prefix}spec.schedulerName", value=scheduler, message=message)
        if read.replicas > MOST_REPLICAS:
            message = f"at most {MOST_REPLICAS} pods in one job"
            yield Problem(field=f"{prefix}spec.tasks", value=str(read.replicas), message=message)
        longest = object_name(name, tenant="", submission_id="")
        checked = check_spec(read, job=longest, policy=policy, largest_card_mib=cluster.largest_card_mib)
        yield from (problem.under(prefix) for problem in checked.problems)
        if any(form_problem(task.template, Template, path="") is not None for task in read.tasks):
            return
        for number, task in enumerate(read.tasks):
            path = f"{prefix}spec.tasks[{number}].template"
            yield from template_problems(task.template, path=path, tenant=rights, policy=policy)
            yield from resource_problems(task.template, path=f"{path}.", policy=policy)
            yield from timing_problems(_marks_of(task.template), path=f"{path}.metadata.annotations")
        classes = {read.priority_class_name, *(_class_of(task.template) for task in read.tasks)}
        written = read.queue
    else:
        template = spec.get("template")
        if not isinstance(template, Mapping) or not (template.get("spec") or {}).get("containers"):
            message = "needs at least one container"
            yield Problem(field=f"{prefix}spec.template.spec.containers", value="[]", message=message)
            return
        scheduler = str((template.get("spec") or {}).get("schedulerName") or "")
        if scheduler not in policy.scheduler_names:
            names = ", ".join(sorted(policy.scheduler_names))
            message = f"must be one of {names}: otherwise another scheduler places the pods"
            yield Problem(field=f"{prefix}spec.template.spec.schedulerName", value=scheduler, message=message)
        normal = normalise_containers(template, policy=policy, largest_card_mib=cluster.largest_card_mib)
        yield from (problem.under(f"{prefix}spec.template.") for problem in normal.problems)
        yield from template_problems(template, path=f"{prefix}spec.template", tenant=rights, policy=policy)
        yield from resource_problems(template, path=f"{prefix}spec.template.", policy=policy)
        marks = _marks_of(template)
        yield from timing_problems(marks, path=f"{prefix}spec.template.metadata.annotations")
        try:
            minimum = minimum_of(annotations, marks)
        except MinimumError as error:
            yield Problem(field=f"{prefix}metadata.annotations", value="", message=str(error))
            minimum = 1
        parallelism = spec.get("parallelism", 1)
        if isinstance(parallelism, int) and minimum > parallelism:
            message = f"more than parallelism ({parallelism}): so many pods never exist at once"
            field = f'{prefix}metadata.annotations["{MINIMUM_ANNOTATIONS[1]}"]'
            yield Problem(field=field, value=str(minimum), message=message)
        classes = {_class_of(template)}
        written, annotations = "", {**annotations, **marks}
    queue = queue_of(written, annotations, cluster.namespaces.get(namespace), policy=policy)
    queue_field = f"{prefix}queue" if prefix == "short." else f"{prefix}spec.queue"
    yield from _queue_problems(queue, field=queue_field, rights=rights, cluster=cluster)
    yield from _rule_problems(queue, namespace, classes - {""}, field=queue_field, policy=policy)
    for class_name in sorted(classes - {""}):
        field = f"{prefix}priority_class" if prefix == "short." else f"{prefix}spec.priorityClassName"
        if rights.priority_classes and class_name not in rights.priority_classes:
            message = f"this tenant may use {', '.join(rights.priority_classes)}"
            yield Problem(field=field, value=class_name, message=message)
        elif class_name not in cluster.priority_classes:
            there = ", ".join(sorted(cluster.priority_classes)) or "none"
            message = f"{NO_CLASS} (scheduling.k8s.io/v1); there are {there}"
            yield Problem(field=field, value=class_name, message=message)


def _queue_problems(name: str, *, field: str, rights: Tenant, cluster: Cluster) -> Iterable[Problem]:
    if rights.queues and name not in rights.queues:
        yield Problem(field=field, value=name, message=f"this tenant may use {', '.join(rights.queues)}")
        return
    queue = cluster.queues.get(name)
    if queue is None:
        there = ", ".join(sorted(set(cluster.queues) - {"root"})) or "none"
        yield Problem(field=field, value=name, message=f"{NO_QUEUE}; there are {there}")
    elif queue.state is not QueueState.OPEN:
        yield Problem(field=field, value=name, message=f"this queue is {queue.state.value}; it takes no new jobs")
    elif any(other.parent == name for other in cluster.queues.values()):
        yield Problem(field=field, value=name, message="this queue has queues below it; name one of those")


def _rule_problems(queue: str, namespace: str, classes: set[str], *, field: str, policy: Policy) -> Iterable[Problem]:
    """What would be held by the queue's rules; without a class of its own the job gets the cluster's default one later."""
    for class_name in sorted(classes) or [""]:
        gang = Gang(
            key=gang_key(namespace, ""), uid="", queue=QueueName(queue), priority_class=class_name, roles=(),
            namespace=namespace,
        )  # fmt: skip
        ruling = forbidden(gang, policy)
        if ruling is not None and (class_name or ruling.code is Reason.NAMESPACE_NOT_ALLOWED):
            yield Problem(field=field, value=queue, message=ruling.message)
            return


def _marks_of(template: Mapping[str, Any]) -> Mapping[str, Any]:
    return (template.get("metadata") or {}).get("annotations") or {}


def _class_of(template: Mapping[str, Any]) -> str:
    return str((template.get("spec") or {}).get("priorityClassName") or "")


def _warnings(kind: str, document: Mapping[str, Any]) -> Iterable[str]:
    """Literal secrets: they can be read by everyone who may read pods."""
    spec = document["spec"]
    templates = (
        [task.get("template") or {} for task in spec.get("tasks") or ()] if kind == VCJOBS else [spec["template"]]
    )
    for template in templates:
        for container in (template.get("spec") or {}).get("containers") or ():
            for variable in container.get("env") or ():
                name = str(variable.get("name") or "")
                if variable.get("value") and any(word in name.upper() for word in SECRET_WORDS):
                    yield f"environment variable {name} looks like a secret in plain text; use a Secret (valueFrom)"
