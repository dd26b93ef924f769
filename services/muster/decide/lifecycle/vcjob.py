"""A Volcano Job as a state machine.

    Pending ──► Running ──► Completed                minimum up; all ended well enough (or minSuccess reached)
       │           ├──────► Failed
       │           ├──────► Restarting ──► Pending   policy RestartJob: every pod goes, version and retryCount go up
       │           │             └───────► Failed    maxRetry reached
       │           ├──────► Aborting ──► Aborted, Terminating ──► Terminated, Completing ──► Completed
       └── held: problems in the spec; no pods, the reason in status.state

Which start of the job a pod belongs to stands on the pod (job-version, job-retry-count): a failure is answered once,
however often it is seen and whoever sees it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from muster.decide.lifecycle.actions import (
    PODGROUPS,
    PODS,
    VCJOBS,
    Action,
    Leaving,
    Patch,
    Remove,
    Tell,
    Waiting,
    Wake,
    merge_difference,
)
from muster.decide.lifecycle.completions import SUCCEEDED, Completions, completions_of
from muster.decide.lifecycle.jobspec import (
    Checked,
    JobSpec,
    SpecError,
    Task,
    check_spec,
    pod_name,
    read_spec,
    scheduler_of,
)
from muster.decide.lifecycle.leaving import is_preempted
from muster.decide.lifecycle.policies import RESTARTS_PODS, Happening, chosen_action
from muster.decide.lifecycle.queues import queue_of
from muster.decide.lifecycle.vcjob_objects import (
    JOB_RETRY,
    JOB_VERSION,
    group_name,
    group_spec,
    pod_of,
    podgroup_of,
    service_of,
)
from muster.decide.reasons import Reason
from muster.decide.timing import LAST_CHECKPOINT
from muster.model.pods import Phase, Pod
from muster.model.policy import Policy
from muster.model.quantity import whole_number
from muster.model.units import QueueName
from muster.model.workloads import Namespace, PodGroup, Workload

INVALID = "InvalidSpec"
FINISHED = frozenset({"Completed", "Failed", "Terminated", "Aborted"})
LEADS_TO: Mapping[str, str] = {"Aborting": "Aborted", "Terminating": "Terminated", "Completing": "Completed"}
ON_ACTION: Mapping[str, str] = {
    "RestartJob": "Restarting",
    "AbortJob": "Aborting",
    "TerminateJob": "Terminating",
    "CompleteJob": "Completing",
}
COUNTED: Mapping[Phase, str] = {
    Phase.PENDING: "pending",
    Phase.RUNNING: "running",
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
    Phase.UNKNOWN: "unknown",
}
REFUSALS = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity", "TaintToleration", "NodeName", "NodePorts", "Topology")
"""Reasons with which a kubelet refuses a pod before it ran; `OutOf` is a prefix (OutOfcpu, OutOfnvidia.com/gpu …)."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where the job stands, read from its status."""

    phase: str
    version: int
    retries: int


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What else a job's reconcile looks at."""

    policy: Policy
    now: float
    podgroup: PodGroup | None = None
    namespace: Namespace | None = None
    waiting: Waiting | None = None
    leaving: Leaving | None = None
    """For whom its pods leave, or left a while ago."""
    largest_card_mib: int = 0


def refused_by_kubelet(pod: Pod) -> bool:
    """The pod failed without ever running: a failed placement, not a failure of the job."""
    return pod.phase is Phase.FAILED and pod.exit_code is None and pod.reason.startswith(REFUSALS)


def reconcile_vcjob(job: Workload, pods: Iterable[Pod], around: Surroundings) -> tuple[Action, ...]:
    """What is to be done about a Volcano Job now.

    Args:
        job: the job; jobs of other schedulers and jobs that are being deleted are left alone.
        pods: the pods it controls, in any order.
        around: its PodGroup and Namespace, why it waits, the policy and the time.
    """
    if job.terminating or scheduler_of(job, policy=around.policy) not in around.policy.scheduler_names:
        return ()
    own = sorted((pod for pod in pods if pod.owner is not None and pod.owner.uid == job.uid), key=lambda pod: pod.name)
    standing = standing_of(job)
    try:
        spec = read_spec(job.spec)
    except SpecError as error:
        return _held(job, standing, reason=INVALID, message=str(error), around=around)
    if standing.phase in FINISHED:
        return _finished(job, spec, own, standing, around)
    if standing.phase == "Restarting" or standing.phase in LEADS_TO:
        return _leaving(job, spec, own, standing, around)
    checked = check_spec(spec, job=job.name, policy=around.policy, largest_card_mib=around.largest_card_mib)
    if checked.problems and not own:
        first = checked.problems[0]
        reason = str(Reason.UNIT_TRAP) if "Did you mean" in first.message else INVALID
        return _held(job, standing, reason=reason, message=f"{first.field}: {first.message}", around=around)
    return _live(job, checked, own, standing, around)


def standing_of(job: Workload) -> Standing:
    """Phase, version and retries of a job; a new one is Pending."""
    state = job.status.get("state") or {}
    return Standing(
        phase=str(state.get("phase") or "Pending"),
        version=int(job.status.get("version") or 0),
        retries=int(job.status.get("retryCount") or 0),
    )


def _held(job: Workload, standing: Standing, *, reason: str, message: str, around: Surroundings) -> tuple[Action, ...]:
    changed = _status(job, standing, counts={}, tasks={}, minimum=0, reason=reason, message=message, around=around)
    if not changed:
        return ()
    return (_tell(job, reason=reason, message=message, warning=True), *changed)


def _live(
    job: Workload, checked: Checked, own: Sequence[Pod], standing: Standing, around: Surroundings
) -> tuple[Action, ...]:
    """Pending or Running: answer what happened to pods, else make what is missing and say how it stands."""
    spec = checked.spec
    current = [pod for pod in own if _marked(pod, JOB_VERSION) == standing.version]
    superfluous = _superfluous(job, spec, own, standing)
    completions = completions_of(
        job,
        spec,
        current,
        version=standing.version,
        group=around.podgroup,
        leaving=(action.name for action in superfluous),
    )
    counts, tasks = _with_vanished(*count_pods(own, standing.version), completions)
    happening = _happening(job, spec, current, standing, preempted=around.leaving is not None, completions=completions)
    if happening is not None:
        action, cause = happening
        if action in RESTARTS_PODS:
            after = "Failed" if standing.retries + 1 >= spec.attempts else standing.phase
            following = Standing(phase=after, version=standing.version, retries=standing.retries + 1)
            tasks = {name: phases for name, phases in tasks.items() if name != cause.task}
            completions = completions.without(cause.task) if action == "RestartTask" else completions
        else:
            restart = action == "RestartJob"
            # The job did nothing wrong when it had to leave for another one: that costs it no retry.
            following = Standing(
                phase=ON_ACTION[action],
                version=standing.version + restart,
                retries=standing.retries + (restart and not cause.preempted),
            )
        return (
            _tell(job, reason=action, message=cause.message, warning=True),
            *_remembered(completions, standing.version, around.podgroup),
            *_status(
                job, following, counts=counts, tasks=tasks, minimum=spec.minimum,
                reason=cause.event, message=cause.message, around=around,
            ),
        )  # fmt: skip
    queue = queue_of(spec.queue, job.annotations, around.namespace, policy=around.policy)
    actions: list[Action] = [*_remembered(completions, standing.version, around.podgroup)]
    actions += _podgroup(job, spec, queue, around, completions)
    missing = _missing_pods(job, spec, own, standing, queue=queue, around=around, completions=completions)
    if missing and not own:
        actions += [_tell(job, reason="CardsRewritten", message=f"{n.field}: {n.message}") for n in checked.notes]
    if missing and "svc" in spec.plugins:
        actions.append(service_of(job))
    actions += missing
    phase = following_phase(spec, counts, tasks, standing.phase)
    waiting = around.waiting if phase == "Pending" else None
    actions += _status(
        job,
        Standing(phase=phase, version=standing.version, retries=standing.retries),
        counts=counts,
        tasks=tasks,
        minimum=spec.minimum,
        reason=waiting.code if waiting is not None else "",
        message=waiting.message if waiting is not None else "",
        around=around,
    )
    # After the status: it no longer counts these, so that their going is not taken for an eviction.
    actions += superfluous
    return tuple(actions)


def _leaving(
    job: Workload, spec: JobSpec, own: Sequence[Pod], standing: Standing, around: Surroundings
) -> tuple[Action, ...]:
    """Restarting, Aborting …: pods go; when they are gone the phase moves on."""
    restarting = standing.phase == "Restarting"
    leaving = [
        pod for pod in own if (_marked(pod, JOB_VERSION) != standing.version if restarting else not pod.finished)
    ]
    counts, tasks = count_pods(own, standing.version)
    phase = standing.phase
    if not leaving:
        if restarting:
            phase = "Failed" if standing.retries >= spec.attempts else "Pending"
        else:
            phase = LEADS_TO[standing.phase]
    state = job.status.get("state") or {}
    return (
        *(_remove(pod) for pod in leaving if not pod.terminating),
        *_status(
            job,
            Standing(phase=phase, version=standing.version, retries=standing.retries),
            counts=counts,
            tasks=tasks,
            minimum=spec.minimum,
            reason="" if phase == "Pending" else str(state.get("reason") or ""),
            message="" if phase == "Pending" else str(state.get("message") or ""),
            around=around,
        ),
    )


def _finished(
    job: Workload, spec: JobSpec, own: Sequence[Pod], standing: Standing, around: Surroundings
) -> tuple[Action, ...]:
    """Ended: what still runs goes, the PodGroup goes (it asks for nothing more), and after its time the job itself."""
    counts, tasks = count_pods(own, standing.version)
    state = job.status.get("state") or {}
    actions: list[Action] = [_remove(pod) for pod in own if not pod.finished and not pod.terminating]
    if around.podgroup is not None and not around.podgroup.terminating:
        group = around.podgroup
        actions.append(Remove(kind=PODGROUPS, namespace=group.namespace, name=group.name, uid=group.uid))
    actions += _status(
        job,
        standing,
        counts=counts,
        tasks=tasks,
        minimum=spec.minimum,
        reason=str(state.get("reason") or ""),
        message=str(state.get("message") or ""),
        around=around,
    )
    if spec.ttl_seconds_after_finished is not None and standing.phase != "Aborted":
        due = parse_time(str(state.get("lastTransitionTime") or "")) + spec.ttl_seconds_after_finished
        if due <= around.now:
            return (Remove(kind=VCJOBS, namespace=job.namespace, name=job.name, uid=job.uid),)
        actions.append(Wake(at=due))
    return tuple(actions)


def following_phase(
    spec: JobSpec, counts: Mapping[str, int], tasks: Mapping[str, Mapping[str, int]], phase: str
) -> str:
    """The phase after this count of pods, by Volcano's rules; one step at a time."""
    running, succeeded, failed = (counts.get(name, 0) for name in ("running", "succeeded", "failed"))
    if phase == "Pending":
        return "Running" if running + succeeded + failed >= spec.minimum and running + succeeded + failed else phase
    if not spec.replicas:
        return phase
    if spec.min_success is not None and succeeded >= spec.min_success:
        return "Completed"
    if succeeded + failed < spec.replicas:
        return phase
    if spec.minimum >= sum(task.minimum for task in spec.tasks):
        for task in spec.tasks:
            if task.min_available is not None and tasks.get(task.name, {}).get("Succeeded", 0) < task.min_available:
                return "Failed"
    if spec.min_success is not None or succeeded < spec.minimum:
        return "Failed"
    return "Completed"


def count_pods(own: Iterable[Pod], version: int) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Pods by phase, and by task and phase; terminating ones apart. Pods of an older start count only while terminating."""
    counts: dict[str, int] = {}
    tasks: dict[str, dict[str, int]] = {}
    for pod in own:
        if pod.terminating:
            counts["terminating"] = counts.get("terminating", 0) + 1
            continue
        if _marked(pod, JOB_VERSION) != version or refused_by_kubelet(pod):
            continue
        name = COUNTED[pod.phase]
        counts[name] = counts.get(name, 0) + 1
        of_task = tasks.setdefault(pod.role, {})
        of_task[pod.phase.value] = of_task.get(pod.phase.value, 0) + 1
    return counts, tasks


def _happening(
    job: Workload,
    spec: JobSpec,
    current: Sequence[Pod],
    standing: Standing,
    *,
    preempted: bool,
    completions: Completions,
) -> tuple[str, Happening] | None:
    """The first policy that answers something that happened to a pod of this start, if any.

    `preempted`: pods left for another job lately. One that left so is made anew by itself: policies that replace pods, and
    count a retry for it, are not asked.
    """
    if not any(task.policies for task in spec.tasks) and not spec.policies:
        return None
    for happening in _happenings(job, spec, current, standing, preempted=preempted, completions=completions):
        action = chosen_action(spec, happening)
        if action in RESTARTS_PODS and happening.preempted:
            continue
        if action is not None and not (action in RESTARTS_PODS and happening.retries < standing.retries):
            return action, happening
    return None


def _happenings(
    job: Workload,
    spec: JobSpec,
    current: Sequence[Pod],
    standing: Standing,
    *,
    preempted: bool,
    completions: Completions,
) -> Iterable[Happening]:
    told = job.status.get("taskStatusCount") or {}
    for task in spec.tasks:
        members = {pod.name: pod for pod in current if pod.role == task.name}
        expected = [pod_name(job.name, task.name, index) for index in range(task.replicas)]
        for name in expected:
            pod = members.get(name)
            if pod is None or refused_by_kubelet(pod):
                continue
            retries = _marked(pod, JOB_RETRY)
            if pod.terminating and pod.phase is not Phase.SUCCEEDED:
                yield Happening(
                    event="PodEvicted",
                    task=task.name,
                    message=f"pod {name} was evicted",
                    retries=retries,
                    preempted=is_preempted(pod),
                )
            elif pod.phase is Phase.FAILED:
                code = f" with exit code {pod.exit_code}" if pod.exit_code is not None else ""
                because = f": {pod.reason}" if pod.reason else ""
                yield Happening(
                    event="PodFailed",
                    task=task.name,
                    exit_code=pod.exit_code,
                    message=f"pod {name} failed{code}{because}",
                    retries=retries,
                )
        # A pod that was counted and is gone, though nobody here took it: it was evicted while no one looked.
        counted = sum(((told.get(task.name) or {}).get("phase") or {}).values())
        ended = {pod_name(job.name, task.name, one) for one in completions.vanished.get(task.name, ())}
        gone = [name for name in expected if name not in members and name not in ended]
        if standing.phase == "Running" and gone and counted == task.replicas:
            yield Happening(
                event="PodEvicted",
                task=task.name,
                message=f"pod {gone[0]} is gone",
                retries=standing.retries,
                preempted=preempted,
            )
        done = [name for name in expected if name in members and members[name].phase is Phase.SUCCEEDED]
        done += ended
        if expected and len(done) == len(expected):
            yield Happening(
                event="TaskCompleted",
                task=task.name,
                message=f"all pods of task {task.name} succeeded",
                retries=standing.retries,
            )


def _with_vanished(
    counts: dict[str, int], tasks: dict[str, dict[str, int]], completions: Completions
) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """The count, with pods that have succeeded and are gone."""
    for task, indexes in completions.vanished.items():
        counts["succeeded"] = counts.get("succeeded", 0) + len(indexes)
        phases = tasks.setdefault(task, {})
        phases[Phase.SUCCEEDED.value] = phases.get(Phase.SUCCEEDED.value, 0) + len(indexes)
    return counts, tasks


def _remembered(completions: Completions, version: int, group: PodGroup | None) -> Iterable[Patch]:
    """Write down what has succeeded while its pods can still be seen."""
    text = completions.text(version)
    if group is None or group.terminating or text == group.annotations.get(SUCCEEDED, ""):
        return
    yield Patch(
        kind=PODGROUPS,
        namespace=group.namespace,
        name=group.name,
        body={"metadata": {"annotations": {SUCCEEDED: text or None}}},
    )


def _podgroup(
    job: Workload, spec: JobSpec, queue: QueueName, around: Surroundings, completions: Completions
) -> Iterable[Action]:
    group = around.podgroup
    if group is None:
        yield podgroup_of(job, spec, queue)
        return
    wanted = group_spec(spec, queue, completions)
    there: dict[str, Any] = {"minMember": group.min_member, "queue": group.queue}
    if group.min_task_member:
        there["minTaskMember"] = group.min_task_member
    if group.priority_class:
        there["priorityClassName"] = group.priority_class
    wanted.pop("networkTopology", None)
    wanted.pop("subGroupPolicy", None)
    difference = merge_difference(there, wanted)
    if difference and not group.terminating:
        yield Patch(
            kind=PODGROUPS,
            namespace=group.namespace,
            name=group.name,
            body={"spec": difference},
            resource_version=group.resource_version,
        )


def _missing_pods(
    job: Workload,
    spec: JobSpec,
    own: Sequence[Pod],
    standing: Standing,
    *,
    queue: QueueName,
    around: Surroundings,
    completions: Completions,
) -> list[Action]:
    checkpoint = around.podgroup.annotations.get(LAST_CHECKPOINT, "") if around.podgroup is not None else ""
    there = {pod.name for pod in own}
    return [
        pod_of(
            job,
            spec,
            task,
            index,
            version=standing.version,
            retries=standing.retries,
            queue=queue,
            policy=around.policy,
            checkpoint=checkpoint,
        )
        for task in spec.tasks
        if _may_start(spec, task, own, completions)
        for index in range(task.replicas)
        if pod_name(job.name, task.name, index) not in there and not completions.holds(task.name, index)
    ]


def _may_start(spec: JobSpec, task: Task, own: Sequence[Pod], completions: Completions) -> bool:
    if task.depends_on is None or not task.depends_on.name:
        return True
    met = []
    for name in task.depends_on.name:
        wanted = spec.task(name)
        up = sum(pod.role == name and pod.phase in {Phase.RUNNING, Phase.SUCCEEDED} for pod in own)
        met.append(wanted is not None and up + completions.gone(name) >= wanted.minimum)
    return any(met) if task.depends_on.iteration == "any" else all(met)


def _superfluous(job: Workload, spec: JobSpec, own: Sequence[Pod], standing: Standing) -> list[Remove]:
    """Pods that must go: no longer declared, of an older start, refused by a kubelet, or replaced by a policy."""
    leaving = []
    for pod in own:
        task = spec.task(pod.role)
        declared = task is not None and pod.name in {
            pod_name(job.name, task.name, index) for index in range(task.replicas)
        }
        if not declared or _marked(pod, JOB_VERSION) != standing.version or refused_by_kubelet(pod):
            leaving.append(pod)
    for task in spec.tasks:
        members = [pod for pod in own if pod.role == task.name and pod not in leaving]
        leaving += _replaced(spec, task, members, standing)
    return [_remove(pod) for pod in leaving if not pod.terminating]


def _replaced(spec: JobSpec, task: Task, members: Sequence[Pod], standing: Standing) -> list[Pod]:
    """Pods that an answered RestartTask or RestartPod replaces.

    The pod that caused it goes last: while it is there, what the policy means can still be seen.
    """
    older = [pod for pod in members if _marked(pod, JOB_RETRY) < standing.retries]
    causes = []
    whole_task = False
    for pod in older:
        if (not pod.terminating and pod.phase is not Phase.FAILED) or is_preempted(pod):
            continue
        event = "PodEvicted" if pod.terminating else "PodFailed"
        happened = Happening(event=event, task=task.name, exit_code=pod.exit_code, message="")
        action = chosen_action(spec, happened)
        if action in RESTARTS_PODS:
            causes.append(pod)
            whole_task = whole_task or action == "RestartTask"
    others = [pod for pod in older if pod not in causes and not pod.terminating] if whole_task else []
    return others or causes


def _status(
    job: Workload,
    standing: Standing,
    *,
    counts: Mapping[str, int],
    tasks: Mapping[str, Mapping[str, int]],
    minimum: int,
    reason: str,
    message: str,
    around: Surroundings,
) -> tuple[Action, ...]:
    """The status patch, if anything in it changes."""
    old = job.status
    old_state = old.get("state") or {}
    state: dict[str, Any] = {"phase": standing.phase}
    if reason:
        state["reason"] = reason
    if message:
        state["message"] = message
    moved = old_state.get("phase") != standing.phase
    state["lastTransitionTime"] = format_time(around.now) if moved else old_state.get("lastTransitionTime")
    new: dict[str, Any] = {
        **{name: value for name, value in old.items() if name not in MANAGED},
        "state": state,
        **{name: count for name, count in counts.items() if count},
    }
    if minimum:
        new["minAvailable"] = minimum
    if standing.version:
        new["version"] = standing.version
    if standing.retries:
        new["retryCount"] = standing.retries
    if tasks:
        new["taskStatusCount"] = {name: {"phase": dict(sorted(phases.items()))} for name, phases in tasks.items()}
    if moved:
        condition = {"status": standing.phase, "lastTransitionTime": state["lastTransitionTime"]}
        new["conditions"] = [*(old.get("conditions") or []), condition][-LONGEST_HISTORY:]
    before = {name: value for name, value in old.items() if value or name not in MANAGED}
    difference = merge_difference(before, new)
    if not difference:
        return ()
    return (
        Patch(
            kind=VCJOBS,
            namespace=job.namespace,
            name=job.name,
            body={"status": difference},
            resource_version=job.resource_version,
            status=True,
        ),
    )


MANAGED = frozenset(
    {"state", "minAvailable", "version", "retryCount", "taskStatusCount", "terminating", *COUNTED.values()}
)
LONGEST_HISTORY = 32


def _marked(pod: Pod, annotation: str) -> int:
    return whole_number(pod.annotations.get(annotation))


def _remove(pod: Pod) -> Remove:
    return Remove(kind=PODS, namespace=pod.namespace, name=pod.name, uid=pod.uid)


def _tell(job: Workload, *, reason: str, message: str, warning: bool = False) -> Tell:
    return Tell(
        kind=VCJOBS,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        reason=reason,
        message=message,
        warning=warning,
    )


def format_time(moment: float) -> str:
    """Unix seconds as Kubernetes writes a time."""
    return datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Unix seconds of a Kubernetes time; 0 for no time."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


__all__ = ["Standing", "Surroundings", "count_pods", "following_phase", "group_name", "reconcile_vcjob", "standing_of"]
