"""The spec of a Volcano Job, read once: tasks, policies, minimums, and what is wrong with it.

Defaults are Volcano's own: a job's minimum is the sum of its tasks' minimums, a task's minimum its replicas, unnamed
tasks are ``default0``, ``default1`` …, three attempts.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from muster.decide.cards import normalise_containers
from muster.decide.field_problems import in_words
from muster.decide.findings import Note, Problem
from muster.decide.lifecycle.forms import Template, form_problem
from muster.model.policy import Policy
from muster.model.workloads import Workload

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
MAX_RETRY = 3
LONGEST_POD_NAME = 63
"""A pod's name is its host name."""
SUPPORTED_PLUGINS = frozenset({"env", "svc"})
EVENTS = frozenset({"*", "PodFailed", "PodEvicted", "TaskCompleted"})
ACTIONS = frozenset({"AbortJob", "RestartJob", "RestartTask", "RestartPod", "TerminateJob", "CompleteJob", "SyncJob"})


class LifecyclePolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """``event`` (or exit code) → ``action``."""

    action: str = ""
    event: str = ""
    events: tuple[str, ...] = ()
    exit_code: int | None = None
    timeout: str = ""

    def matches(self, event: str, exit_code: int | None) -> bool:
        """This policy speaks of the event, or of the exit code."""
        if self.exit_code is not None:
            return event == "PodFailed" and exit_code == self.exit_code
        names = {self.event, *self.events} - {""}
        return event in names or "*" in names


class DependsOn(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that must be up before this one's pods are made."""

    name: tuple[str, ...] = ()
    iteration: str = "all"


class Volume(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A volume mounted into every container."""

    mount_path: str = ""
    volume_claim_name: str = ""
    volume_claim: dict[str, Any] | None = None


class Task(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A role of the job."""

    name: str = ""
    replicas: int = 1
    min_available: int | None = None
    template: dict[str, Any] = {}
    policies: tuple[LifecyclePolicy, ...] = ()
    depends_on: DependsOn | None = None
    partition_policy: dict[str, Any] | None = None

    @property
    def minimum(self) -> int:
        """Own minimum, or that of its partitions, or all replicas."""
        if self.min_available is not None:
            return self.min_available
        return self.least_partitions * self.partition_size or self.replicas

    @property
    def partition_size(self) -> int:
        """Pods of one partition, 0 when it has none."""
        return int((self.partition_policy or {}).get("partitionSize") or 0)

    @property
    def least_partitions(self) -> int:
        """Partitions that must run together."""
        return int((self.partition_policy or {}).get("minPartitions") or 0)


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A Volcano Job's spec."""

    scheduler_name: str = ""
    min_available: int | None = None
    tasks: tuple[Task, ...] = ()
    policies: tuple[LifecyclePolicy, ...] = ()
    plugins: dict[str, tuple[str, ...] | None] = {}
    queue: str = ""
    max_retry: int | None = None
    ttl_seconds_after_finished: int | None = None
    priority_class_name: str = ""
    min_success: int | None = None
    network_topology: dict[str, Any] | None = None
    volumes: tuple[Volume, ...] = ()

    @property
    def replicas(self) -> int:
        """Pods of all tasks."""
        return sum(task.replicas for task in self.tasks)

    @property
    def minimum(self) -> int:
        """Pods that must run together."""
        if self.min_available:
            return self.min_available
        return sum(task.minimum for task in self.tasks)

    @property
    def attempts(self) -> int:
        """Volcano's maxRetry: the job has failed when it was restarted for the this-many-th time."""
        return MAX_RETRY if self.max_retry is None else self.max_retry

    def task(self, name: str) -> Task | None:
        """The task of that name."""
        return next((task for task in self.tasks if task.name == name), None)


class SpecError(ValueError):
    """A spec that is no Volcano Job's; the message names the field."""


def read_spec(document: Mapping[str, Any]) -> JobSpec:
    """The spec with task names filled in.

    Raises:
        SpecError: a field has the wrong form.
    """
    try:
        spec = msgspec.convert(without_nulls(document), JobSpec)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        raise SpecError(f"spec{where.strip('`').removeprefix('$')}: {in_words(what)}") from error
    named = tuple(
        task if task.name else msgspec.structs.replace(task, name=f"default{number}")
        for number, task in enumerate(spec.tasks)
    )
    return msgspec.structs.replace(spec, tasks=named)


def without_nulls(value: Any) -> Any:
    """Plain JSON without null fields: to Kubernetes they are absent."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def scheduler_of(job: Workload, *, policy: Policy) -> str:
    """The schedulerName of a Volcano Job's pods. Without one Volcano's webhook writes ``volcano``; so does this when
    that name is ours, and Muster's own otherwise.
    """
    written = job.spec.get("schedulerName")
    if written:
        return str(written)
    return "volcano" if "volcano" in policy.scheduler_names else policy.scheduler_name


def pod_name(job: str, task: str, index: int) -> str:
    """Volcano's name of a job's pod."""
    return f"{job}-{task}-{index}"


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A spec whose templates have their cards in one form, and what was found on the way."""

    spec: JobSpec
    notes: tuple[Note, ...] = ()
    problems: tuple[Problem, ...] = ()


def check_spec(spec: JobSpec, *, job: str, policy: Policy, largest_card_mib: int = 0) -> Checked:
    """Everything that keeps this job from being made into pods, each with what would be right.

    Args:
        spec: from `read_spec`.
        job: the job's name, which is part of its pods' names.
        policy: what is a card, what is an absurd amount.
        largest_card_mib: memory of the cluster's largest card, 0 when unknown.
    """
    notes: list[Note] = []
    formless = [
        problem
        for number, task in enumerate(spec.tasks)
        if (problem := form_problem(task.template, Template, path=f"spec.tasks[{number}].template")) is not None
    ]
    if formless:
        return Checked(spec=spec, problems=tuple(formless))
    problems = list(_shape_problems(spec, job=job))
    tasks = []
    for number, task in enumerate(spec.tasks):
        prefix = f"spec.tasks[{number}].template."
        normal = normalise_containers(task.template, policy=policy, largest_card_mib=largest_card_mib)
        tasks.append(msgspec.structs.replace(task, template=normal.template))
        notes += [Note(field=prefix + note.field, message=note.message) for note in normal.notes]
        problems += [problem.under(prefix) for problem in normal.problems]
    return Checked(spec=msgspec.structs.replace(spec, tasks=tuple(tasks)), notes=tuple(notes), problems=tuple(problems))


def _shape_problems(spec: JobSpec, *, job: str) -> Iterable[Problem]:
    if not spec.tasks:
        yield Problem(field="spec.tasks", value="[]", message="a job needs at least one task")
    if spec.min_available is not None and not 0 <= spec.min_available <= spec.replicas:
        yield Problem(
            field="spec.minAvailable",
            value=str(spec.min_available),
            message=f"must be between 0 and the {spec.replicas} pods of all tasks",
        )
    if spec.max_retry is not None and spec.max_retry < 0:
        yield Problem(field="spec.maxRetry", value=str(spec.max_retry), message="must not be negative")
    for name in sorted(spec.plugins.keys() - SUPPORTED_PLUGINS):
        yield Problem(
            field=f"spec.plugins.{name}",
            value=name,
            message=f"this plugin is not supported yet; supported are {', '.join(sorted(SUPPORTED_PLUGINS))}",
        )
    for number, volume in enumerate(spec.volumes):
        if volume.volume_claim is not None:
            yield Problem(
                field=f"spec.volumes[{number}].volumeClaim",
                value="{…}",
                message="claims are not created by Muster yet; create the claim and name it in volumeClaimName",
            )
    yield from _policy_problems(spec.policies, "spec.policies")
    seen: set[str] = set()
    for number, task in enumerate(spec.tasks):
        path = f"spec.tasks[{number}]"
        if task.name in seen:
            yield Problem(field=f"{path}.name", value=task.name, message="two tasks have this name")
        seen.add(task.name)
        if DNS_LABEL.fullmatch(task.name) is None:
            message = "must be lower-case letters, digits and '-', beginning and ending with a letter or digit"
            yield Problem(field=f"{path}.name", value=task.name, message=message)
        if task.replicas < 0:
            yield Problem(field=f"{path}.replicas", value=str(task.replicas), message="must not be negative")
        if task.min_available is not None and not 0 <= task.min_available <= task.replicas:
            yield Problem(
                field=f"{path}.minAvailable",
                value=str(task.min_available),
                message=f"must be between 0 and replicas ({task.replicas})",
            )
        longest = pod_name(job, task.name, max(0, task.replicas - 1))
        if len(longest) > LONGEST_POD_NAME:
            yield Problem(
                field=f"{path}.name",
                value=task.name,
                message=f"its pods would be named {longest}: {len(longest)} characters, at most {LONGEST_POD_NAME}",
            )
        if not (task.template.get("spec") or {}).get("containers"):
            yield Problem(field=f"{path}.template.spec.containers", value="[]", message="needs at least one container")
        yield from _policy_problems(task.policies, f"{path}.policies")
        for wanted in task.depends_on.name if task.depends_on is not None else ():
            if spec.task(wanted) is None or wanted == task.name:
                known = ", ".join(other.name for other in spec.tasks if other.name != task.name) or "no other task"
                message = f"there is no other task of this name; there is {known}"
                yield Problem(field=f"{path}.dependsOn.name", value=wanted, message=message)


def _policy_problems(policies: Iterable[LifecyclePolicy], path: str) -> Iterable[Problem]:
    for number, policy in enumerate(policies):
        here = f"{path}[{number}]"
        events = {policy.event, *policy.events} - {""}
        if (policy.exit_code is None) == (not events):
            yield Problem(field=here, value=policy.action, message="needs either an event or an exitCode")
        if policy.exit_code == 0:
            yield Problem(field=f"{here}.exitCode", value="0", message="0 is no error code")
        for event in sorted(events - EVENTS):
            message = f"this event is not supported yet; supported are {', '.join(sorted(EVENTS))}"
            yield Problem(field=f"{here}.event", value=event, message=message)
        if policy.action not in ACTIONS:
            message = f"this action is not supported yet; supported are {', '.join(sorted(ACTIONS))}"
            yield Problem(field=f"{here}.action", value=policy.action, message=message)
        if policy.timeout:
            message = "delayed actions are not supported yet; leave the timeout out"
            yield Problem(field=f"{here}.timeout", value=policy.timeout, message=message)
