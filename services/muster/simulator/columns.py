"""The columns `kubectl get` shows for built-in kinds: hand-written cells, worded as the real server's printers do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from muster.simulator.clock import parse_timestamp

JsonObject = dict[str, Any]
Cell = Any


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its header, its type, whether it is shown only with -o wide (priority 1), and its cell."""

    name: str
    cell: Callable[[JsonObject, float], Cell]
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""


def human_duration(seconds: float) -> str:
    """A duration as kubectl prints ages: two significant parts, coarser as it grows."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if total < 120:
        return f"{total}s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if minutes < 10:
        return f"{minutes}m{total % 60}s" if total % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return f"{years}y{days % 365}d" if days % 365 else f"{years}y"
    return f"{years}y"


def since(text: str | None, now: float) -> str:
    """How long ago a timestamp was, as an age."""
    return human_duration(now - parse_timestamp(text)) if text else "<unknown>"


def _name(obj: JsonObject, _now: float) -> str:
    name: str = obj["metadata"]["name"]
    return name


def _age(obj: JsonObject, now: float) -> str:
    return since(obj["metadata"].get("creationTimestamp"), now)


def field(path: str, *, missing: Cell = "") -> Callable[[JsonObject, float], Cell]:
    """A cell that shows one field."""
    steps = path.split(".")

    def cell(obj: JsonObject, _now: float) -> Cell:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, Mapping) else None
        return missing if value is None else value

    return cell


NAME = Column("Name", _name, format="name", description="Name must be unique within a namespace.")
AGE = Column("Age", _age, description="CreationTimestamp is the server time when this object was created.")


# -- pods ----------------------------------------------------------------------------------------------------------


def _pod_ready(pod: JsonObject, _now: float) -> str:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    ready = sum(bool(status.get("ready")) for status in statuses)
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def _container_reason(status: JsonObject) -> str | None:
    state = status.get("state") or {}
    waiting, terminated = state.get("waiting") or {}, state.get("terminated") or {}
    if waiting.get("reason"):
        return str(waiting["reason"])
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated:
        signal = terminated.get("signal")
        return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"
    return None


def pod_status(pod: JsonObject) -> str:
    """The STATUS column: phase, refined by the pod's reason, its containers and its deletion."""
    status = pod.get("status") or {}
    shown = str(status.get("reason") or status.get("phase") or "Unknown")
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            shown = "SchedulingGated"
    running = False
    for container in reversed(status.get("containerStatuses") or []):
        reason = _container_reason(container)
        if reason is not None:
            shown = reason
        elif container.get("ready") and (container.get("state") or {}).get("running"):
            running = True
    if shown == "Completed" and running:
        shown = "Running"
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in {"Succeeded", "Failed"}:
            return "Terminating"
    return shown


def _pod_status(pod: JsonObject, _now: float) -> str:
    return pod_status(pod)


def _pod_restarts(pod: JsonObject, now: float) -> str:
    restarts, last = 0, ""
    for status in pod.get("status", {}).get("containerStatuses") or ():
        restarts += status.get("restartCount", 0)
        last = max(last, ((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or "")
    return f"{restarts} ({since(last, now)} ago)" if restarts and last else str(restarts)


def _readiness_gates(pod: JsonObject, _now: float) -> str:
    gates = pod["spec"].get("readinessGates") or []
    if not gates:
        return "<none>"
    conditions = {found["type"]: found["status"] for found in pod.get("status", {}).get("conditions") or ()}
    return f"{sum(conditions.get(gate['conditionType']) == 'True' for gate in gates)}/{len(gates)}"


# -- nodes ---------------------------------------------------------------------------------------------------------


def _node_status(node: JsonObject, _now: float) -> str:
    ready = next((found for found in node.get("status", {}).get("conditions") or () if found["type"] == "Ready"), None)
    shown = "Unknown" if ready is None else "Ready" if ready["status"] == "True" else "NotReady"
    return shown + (",SchedulingDisabled" if node.get("spec", {}).get("unschedulable") else "")


def _node_roles(node: JsonObject, _now: float) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(
        label.removeprefix(prefix) for label in node["metadata"].get("labels") or () if label.startswith(prefix)
    )
    return ",".join(roles) or "<none>"


def _node_address(kind: str) -> Callable[[JsonObject, float], str]:
    def cell(node: JsonObject, _now: float) -> str:
        for address in node.get("status", {}).get("addresses") or ():
            if address.get("type") == kind:
                return str(address["address"])
        return "<none>"

    return cell


# -- jobs, events and the rest -------------------------------------------------------------------------------------


def _job_status(job: JsonObject, _now: float) -> str:
    held = {found["type"] for found in job.get("status", {}).get("conditions") or () if found["status"] == "True"}
    for condition, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition in held:
            return shown
    if job["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for condition in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition in held:
            return condition
    return "Running"


def _job_completions(job: JsonObject, _now: float) -> str:
    succeeded, spec = job.get("status", {}).get("succeeded", 0), job["spec"]
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism", 0)
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(job: JsonObject, now: float) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = parse_timestamp(status["completionTime"]) if status.get("completionTime") else now
    return human_duration(end - parse_timestamp(status["startTime"]))


def _template_containers(part: str) -> Callable[[JsonObject, float], str]:
    def cell(obj: JsonObject, _now: float) -> str:
        containers = obj["spec"].get("template", {}).get("spec", {}).get("containers") or ()
        return ",".join(str(container.get(part, "")) for container in containers)

    return cell


def _selector(obj: JsonObject, _now: float) -> str:
    labels = (obj["spec"].get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def _event_object(event: JsonObject, _now: float) -> str:
    involved = event.get("involvedObject") or event.get("regarding") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_last_seen(event: JsonObject, now: float) -> str:
    series = event.get("series") or {}
    moment = (
        series.get("lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("deprecatedLastTimestamp")
        or event.get("eventTime")
        or event.get("firstTimestamp")
    )
    return since(moment, now)


def _event_message(event: JsonObject, _now: float) -> str:
    return str(event.get("message") or event.get("note") or "").strip()


def _ready_replicas(obj: JsonObject, _now: float) -> str:
    return f"{obj.get('status', {}).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"


def _data_count(obj: JsonObject, _now: float) -> int:
    return len(obj.get("data") or ()) + len(obj.get("binaryData") or ())


def _flag(path: str) -> Callable[[JsonObject, float], str]:
    value = field(path, missing=False)
    return lambda obj, now: "true" if value(obj, now) else "false"


BUILT_IN_COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "pods": (
        NAME,
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _pod_restarts),
        AGE,
        Column("IP", field("status.podIP", missing="<none>"), priority=1),
        Column("Node", field("spec.nodeName", missing="<none>"), priority=1),
        Column("Nominated Node", field("status.nominatedNodeName", missing="<none>"), priority=1),
        Column("Readiness Gates", _readiness_gates, priority=1),
    ),
    "nodes": (
        NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        AGE,
        Column("Version", field("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", _node_address("InternalIP"), priority=1),
        Column("External-IP", _node_address("ExternalIP"), priority=1),
        Column("OS-Image", field("status.nodeInfo.osImage", missing="<unknown>"), priority=1),
        Column("Kernel-Version", field("status.nodeInfo.kernelVersion", missing="<unknown>"), priority=1),
        Column("Container-Runtime", field("status.nodeInfo.containerRuntimeVersion", missing="<unknown>"), priority=1),
    ),
    "namespaces": (NAME, Column("Status", field("status.phase")), AGE),
    "jobs.batch": (
        NAME,
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        AGE,
        Column("Containers", _template_containers("name"), priority=1),
        Column("Images", _template_containers("image"), priority=1),
        Column("Selector", _selector, priority=1),
    ),
    "events": (
        Column("Last Seen", _event_last_seen),
        Column("Type", field("type")),
        Column("Reason", field("reason")),
        Column("Object", _event_object),
        Column("Subobject", field("involvedObject.fieldPath"), priority=1),
        Column("Source", field("source.component"), priority=1),
        Column("Message", _event_message),
        Column("First Seen", lambda event, now: since(event.get("firstTimestamp"), now), priority=1),
        Column("Count", field("count", missing=1), type="integer", priority=1),
        Column("Name", _name, format="name", priority=1),
    ),
    "leases.coordination.k8s.io": (NAME, Column("Holder", field("spec.holderIdentity")), AGE),
    "priorityclasses.scheduling.k8s.io": (
        NAME,
        Column("Value", field("value"), type="integer"),
        Column("Global-Default", _flag("globalDefault")),
        AGE,
        Column("PreemptionPolicy", field("preemptionPolicy")),
    ),
    "deployments.apps": (
        NAME,
        Column("Ready", _ready_replicas),
        Column("Up-to-date", field("status.updatedReplicas", missing=0), type="integer"),
        Column("Available", field("status.availableReplicas", missing=0), type="integer"),
        AGE,
        Column("Containers", _template_containers("name"), priority=1),
        Column("Images", _template_containers("image"), priority=1),
        Column("Selector", _selector, priority=1),
    ),
    "replicasets.apps": (
        NAME,
        Column("Desired", field("spec.replicas"), type="integer"),
        Column("Current", field("status.replicas", missing=0), type="integer"),
        Column("Ready", field("status.readyReplicas", missing=0), type="integer"),
        AGE,
    ),
    "statefulsets.apps": (NAME, Column("Ready", _ready_replicas), AGE),
    "configmaps": (NAME, Column("Data", _data_count), AGE),
    "secrets": (NAME, Column("Type", field("type")), Column("Data", _data_count, type="integer"), AGE),
    "poddisruptionbudgets.policy": (
        NAME,
        Column("Min Available", field("spec.minAvailable", missing="N/A")),
        Column("Max Unavailable", field("spec.maxUnavailable", missing="N/A")),
        Column("Allowed Disruptions", field("status.disruptionsAllowed", missing=0), type="integer"),
        AGE,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        NAME,
        Column("Created At", field("metadata.creationTimestamp"), type="date"),
    ),
}
