"""What is wrong, or likely meant otherwise, in objects that people write: the checks of `muster lint`.

The same functions judge submissions and jobs in the cluster, so that a file that passes here is not held there.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from muster.decide.cards import GPU_MEMORY, GPU_NUMBER, canonical, node_memory_doubt, normalise_containers
from muster.decide.findings import Note, Problem
from muster.decide.known_fields import container_problems, resource_problems, unknown_fields, unknown_template_fields
from muster.decide.lifecycle.batch_jobs import what_evictions_cost
from muster.decide.lifecycle.forms import Metadata, Template, form_problem
from muster.decide.lifecycle.jobspec import SpecError, check_spec, read_spec, without_nulls
from muster.decide.lifecycle.podgroups import MINIMUM_ANNOTATIONS, MinimumError, minimum_of
from muster.decide.linting_queues import limits_in_order
from muster.decide.projection.groups import limits_of
from muster.decide.spelling import meant
from muster.decide.timing import timing_problems
from muster.model.policy import Policy
from muster.model.quantity import QuantityError, to_units
from muster.model.units import QueueName
from muster.model.workloads import Queue

Finding = Problem | Note

VOLCANO_KINDS: Mapping[str, frozenset[str]] = {
    "scheduling.volcano.sh/v1beta1": frozenset({"PodGroup", "Queue"}),
    "batch.volcano.sh/v1alpha1": frozenset({"Job"}),
    "bus.volcano.sh/v1alpha1": frozenset({"Command"}),
    "topology.volcano.sh/v1alpha1": frozenset({"HyperNode"}),
}
HOMES: Mapping[str, str] = {
    "PriorityClass": "scheduling.k8s.io/v1",
    **{kind: version for version, kinds in VOLCANO_KINDS.items() for kind in kinds if kind != "Job"},
}
"""Where a kind lives, for those that are often written under another group."""
PREFIXES = ("volcano.sh/", "scheduling.volcano.sh/", "scheduling.k8s.io/", "muster.dev/")
ANNOTATIONS = frozenset({
    *MINIMUM_ANNOTATIONS,
    "scheduling.volcano.sh/queue-name", "scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-min-resources", "scheduling.volcano.sh/queue-allocation-gate",
    "volcano.sh/job-queue", "volcano.sh/queue", "volcano.sh/queue-name", "volcano.sh/preemptable",
    "volcano.sh/cooldown-time", "volcano.sh/revocable-zone", "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable", "volcano.sh/sla-waiting-time", "volcano.sh/task-spec",
    "volcano.sh/network-topology-mode", "volcano.sh/network-topology-highest-tier", "volcano.sh/hierarchy",
    "volcano.sh/hierarchy-weights", "volcano.sh/numa-topology-policy", "volcano.sh/qos-level",
    "volcano.sh/vgpu-mode", "volcano.sh/vgpu-use-gpuuuid", "volcano.sh/vgpu-nouse-gpuuuid",
    "muster.dev/expected-duration", "muster.dev/min-runtime", "muster.dev/checkpoint-interval",
    "muster.dev/last-checkpoint", "muster.dev/preemption-grace", "muster.dev/topology-required",
    "muster.dev/topology-preferred", "muster.dev/max-wait", "muster.dev/card-mode", "muster.dev/card-link-groups",
    "muster.dev/card-uuids",
})  # fmt: skip
"""Annotations that have a meaning; another one under the same prefixes is likely misspelt."""
TEMPLATE_KINDS = frozenset({"Job", "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"})


def lint_document(document: Any, *, policy: Policy) -> list[Finding]:
    """What is wrong with one Kubernetes object: problems stop it, notes only tell."""
    if isinstance(document, Mapping) and (patched := _node_patch(document)):
        return list(_node(patched))
    if not isinstance(document, Mapping) or not document.get("kind") or not document.get("apiVersion"):
        return [
            Problem(field="", value=_short(document), message="no Kubernetes object: apiVersion and kind are missing")
        ]
    version, kind = str(document["apiVersion"]), str(document["kind"])
    if (wrong := _wrong_home(version, kind)) is not None:
        return [wrong]
    formless: list[Finding] = list(_formless(document, kind))
    if formless:
        return formless
    return list(dict.fromkeys([*_meaning(document, version, kind, policy), *_unknown(document, version, kind, policy)]))


def _formless(document: Mapping[str, Any], kind: str) -> Iterable[Problem]:
    """What stands where something else belongs, so that nothing more can be said."""
    for field in ("metadata", "spec", "status"):
        if not isinstance(document.get(field) or {}, Mapping):
            yield Problem(field=field, value=_short(document[field]), message="must be a mapping")
            return
    metadata = without_nulls(document.get("metadata") or {})
    if (wrong := form_problem(metadata, Metadata, path="metadata")) is not None:
        yield wrong
    if kind in {"Pod", *TEMPLATE_KINDS}:
        template, path = _template_of(document, kind)
        if not isinstance(template, Mapping):
            yield Problem(field=path, value=_short(template), message="must be a mapping")
        elif (wrong := form_problem(without_nulls(template), Template, path=path)) is not None:
            yield wrong


def _template_of(document: Mapping[str, Any], kind: str) -> tuple[Any, str]:
    """The pod template of a kind that has one, and where it stands."""
    if kind == "Pod":
        return {name: document.get(name) for name in ("metadata", "spec")}, ""
    return (document.get("spec") or {}).get("template") or {}, "spec.template"


def _meaning(document: Mapping[str, Any], version: str, kind: str, policy: Policy) -> Iterable[Finding]:
    findings = list(_annotations(document))
    if version == "batch.volcano.sh/v1alpha1" and kind == "Job":
        findings += _volcano_job(document, policy)
    elif version == "scheduling.volcano.sh/v1beta1" and kind == "Queue":
        findings += _queue(document)
    elif kind == "Pod":
        findings += _template(document, "", policy)
    elif kind == "Node":
        findings += _node({"status": document.get("status") or {}})
    elif kind in TEMPLATE_KINDS:
        spec = document.get("spec") or {}
        findings += _template(spec.get("template") or {}, "spec.template.", policy)
        findings += _minimum(document)
        scheduler = ((spec.get("template") or {}).get("spec") or {}).get("schedulerName")
        ours = (version, kind) == ("batch/v1", "Job") and scheduler in policy.scheduler_names
        if ours and (cost := what_evictions_cost(spec)):
            findings.append(Note(field="spec.podFailurePolicy", message=cost))
    return findings


def _unknown(document: Mapping[str, Any], version: str, kind: str, policy: Policy) -> Iterable[Problem]:
    """Fields and resource names that nobody knows, and containers that lack something."""
    yield from unknown_fields(document)
    spec = document.get("spec") or {}
    if (version, kind) == ("batch.volcano.sh/v1alpha1", "Job"):
        tasks = spec.get("tasks")
        for number, task in enumerate(tasks if isinstance(tasks, list) else ()):
            template = (task.get("template") or {}) if isinstance(task, Mapping) else None
            if (
                not isinstance(template, Mapping)
                or form_problem(without_nulls(template), Template, path="") is not None
            ):
                continue
            yield from resource_problems(template, path=f"spec.tasks[{number}].template.", policy=policy)
            yield from container_problems(template, path=f"spec.tasks[{number}].template.")
    elif kind in {"Pod", *TEMPLATE_KINDS}:
        template, path = _template_of(document, kind)
        if kind != "Pod" and version != "batch/v1":  # there it is looked at as a part of the Job
            yield from unknown_template_fields(template, path=path)
        yield from resource_problems(template, path=f"{path}." if path else "", policy=policy)
        yield from container_problems(template, path=f"{path}." if path else "")


def _node_patch(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A patch of a Node's status, bare or under ``patch``; empty when the document is none."""
    if document.get("kind"):
        return {}
    for patch in (document, document.get("patch")):
        status = patch.get("status") if isinstance(patch, Mapping) else None
        if isinstance(status, Mapping) and ("capacity" in status or "allocatable" in status):
            return {"status": status}
    return {}


def _node(node: Mapping[str, Any]) -> Iterable[Finding]:
    """Card memory that a node's status offers by hand: the node's total, in MiB."""
    for side in ("capacity", "allocatable"):
        amounts = node["status"].get(side) or {}
        for name, value in amounts.items():
            if canonical(name) != GPU_MEMORY:
                continue
            field = f'status.{side}["{name}"]'
            try:
                total = to_units(value)
                cards = max(to_units(amounts.get(name, 0)) for name in ("nvidia.com/gpu", GPU_NUMBER))
            except QuantityError as error:
                yield Problem(field=field, value=str(value), message=str(error))
                continue
            if doubt := node_memory_doubt(total, cards=cards):
                yield Problem(field=field, value=str(value), message=doubt)
            elif side == "capacity":
                yield Note(
                    field=field,
                    message=f"{total} MiB is the node's total, all its cards together; without a device plugin that "
                    "hands out shares it is read as card memory only, and nothing isolates shares",
                )


def _wrong_home(version: str, kind: str) -> Problem | None:
    home = HOMES.get(kind)
    if home is not None and home != version and (".volcano.sh" in version or kind == "PriorityClass"):
        return Problem(field="apiVersion", value=version, message=f"{kind} lives in {home}, not in {version}")
    if ".volcano.sh/" in version and kind not in VOLCANO_KINDS.get(version, frozenset()):
        known = ", ".join(f"{name} of {where}" for where, names in VOLCANO_KINDS.items() for name in sorted(names))
        return Problem(field="kind", value=kind, message=f"no kind {kind} in {version}; there are: {known}")
    return None


def _annotations(document: Mapping[str, Any]) -> Iterable[Finding]:
    places = [("metadata.annotations", (document.get("metadata") or {}).get("annotations") or {})]
    template = ((document.get("spec") or {}).get("template") or {}) if isinstance(document.get("spec"), Mapping) else {}
    places.append(("spec.template.metadata.annotations", (template.get("metadata") or {}).get("annotations") or {}))
    for path, annotations in places:
        yield from timing_problems(annotations, path=path)
        for name in annotations:
            if not name.startswith(PREFIXES) or name in ANNOTATIONS:
                continue
            message = f"no annotation {name} is known{meant(name, ANNOTATIONS, cutoff=0.8)}"
            yield Problem(field=f"{path}[{name}]", value=name, message=message)


def _volcano_job(document: Mapping[str, Any], policy: Policy) -> Iterable[Finding]:
    try:
        spec = read_spec(document.get("spec") or {})
    except SpecError as error:
        field, _, message = str(error).partition(": ")
        return [Problem(field=field, value="", message=message)]
    name = str((document.get("metadata") or {}).get("name") or "")
    checked = check_spec(spec, job=name, policy=policy)
    return [*checked.problems, *checked.notes]


def _template(template: Mapping[str, Any], prefix: str, policy: Policy) -> Iterable[Finding]:
    normal = normalise_containers(template, policy=policy)
    yield from (problem.under(prefix) for problem in normal.problems)
    yield from (Note(field=prefix + note.field, message=note.message) for note in normal.notes)


def _minimum(document: Mapping[str, Any]) -> Iterable[Finding]:
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    try:
        minimum_of(annotations)
    except MinimumError as error:
        yield Problem(field="metadata.annotations", value="", message=str(error))


def _queue(document: Mapping[str, Any]) -> Iterable[Finding]:
    spec = document.get("spec") or {}
    try:
        queue = Queue(
            name=QueueName(""),
            guarantee=limits_of((spec.get("guarantee") or {}).get("resource")),
            deserved=limits_of(spec.get("deserved")),
            capability=limits_of(spec.get("capability")),
        )
    except QuantityError as error:
        yield Problem(field="spec", value="", message=str(error))
        return
    yield from limits_in_order(queue)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
