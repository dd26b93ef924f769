"""What the API server fills in on built-in kinds, as far as clients see it: pods, pod templates, jobs, nodes, namespaces.

Everything works in place on an object that nobody else holds and may be applied twice without a further change.
"""

from collections.abc import Callable, Mapping
from typing import Any

from muster.model.quantity import QuantityError
from muster.simulator.errors import JsonObject, bad_request
from muster.simulator.quantities import canonical_quantity

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_TOLERATED_SECONDS = 300
_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_JOB_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name")


def _canonical(quantities: JsonObject | None) -> None:
    """Rewrite quantities as the server shows them; 400 when one cannot be read, as it fails to decode."""
    for name, quantity in (quantities or {}).items():
        try:
            assert quantities is not None
            quantities[name] = canonical_quantity(quantity)
        except QuantityError as error:
            raise bad_request(
                f"{error}: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ) from error


def node_quantities(node: JsonObject) -> JsonObject:
    """A copy of a node with the quantities of its status in canonical form."""
    status = dict(node.get("status") or {})
    for part in ("capacity", "allocatable"):
        if status.get(part):
            status[part] = dict(status[part])
            _canonical(status[part])
    return {**node, "status": status}


def _container(container: JsonObject) -> None:
    image = container.get("image") or ""
    _registry, _, last = image.rpartition("/")
    latest = "@" not in last and (":" not in last or last.endswith(":latest"))
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    resources = container.setdefault("resources", {})
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        for name, quantity in limits.items():
            requests.setdefault(name, quantity)
    for part in ("limits", "requests"):
        _canonical(resources.get(part))
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe):
            for field, value in (
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ):
                container[probe].setdefault(field, value)


def pod_spec(spec: JsonObject) -> None:
    """Defaults of a PodSpec, in a pod or a template."""
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            if isinstance(container, dict):
                _container(container)
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes") or ():
        for source in ("configMap", "secret", "projected", "downwardAPI"):
            if isinstance(volume, dict) and isinstance(volume.get(source), dict):
                volume[source].setdefault("defaultMode", 420)
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])


def _template(obj: JsonObject) -> None:
    template = (obj.get("spec") or {}).get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        pod_spec(template["spec"])


def _pod(pod: JsonObject) -> None:
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return
    pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)


def start_pod(pod: JsonObject) -> None:
    """What admission and the registry add to a new pod: service account, node tolerations, first status."""
    spec = pod.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("serviceAccountName", "default")
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
        tolerations = spec.setdefault("tolerations", [])
        for taint in (NOT_READY, UNREACHABLE):
            if not any(_tolerates_no_execute(toleration, taint) for toleration in tolerations):
                tolerations.append(
                    {
                        "key": taint,
                        "operator": "Exists",
                        "effect": "NoExecute",
                        "tolerationSeconds": _TOLERATED_SECONDS,
                    }
                )
    status: JsonObject = {"phase": "Pending", "qosClass": qos_class(spec or {})}
    if isinstance(spec, dict) and spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": pod["metadata"]["creationTimestamp"],
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    pod["status"] = status


def _tolerates_no_execute(toleration: Mapping[str, Any], key: str) -> bool:
    return toleration.get("key") in {None, "", key} and toleration.get("effect") in {None, "", "NoExecute"}


def qos_class(spec: Mapping[str, Any]) -> str:
    """Guaranteed, Burstable or BestEffort, from the cpu and memory of all containers."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    asked = False
    guaranteed = bool(containers)
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            asked = asked or name in limits or name in requests
            guaranteed = guaranteed and name in limits and requests.get(name) == limits[name]
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def keep_admitted(new: JsonObject, old: Mapping[str, Any]) -> None:
    """A client that writes back a pod without the fields admission once filled in does not mean to remove them."""
    for field in ("priority", "preemptionPolicy", "priorityClassName", "serviceAccountName", "serviceAccount"):
        if field in old["spec"]:
            new["spec"].setdefault(field, old["spec"][field])


def _job(job: JsonObject) -> None:
    spec = job.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    spec.setdefault("manualSelector", False)
    template = spec.get("template")
    if not isinstance(template, dict):
        return
    _template(job)
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    if not spec["manualSelector"]:
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        for label in _JOB_LABELS:
            labels.setdefault(label, uid if label.endswith("controller-uid") else name)
        spec.setdefault("selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}})
    if spec["manualSelector"] is False:
        del spec["manualSelector"]


def _replicated(obj: JsonObject) -> None:
    spec = obj.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("replicas", 1)
        _template(obj)


def _deployment(obj: JsonObject) -> None:
    _replicated(obj)
    spec = obj.get("spec")
    if isinstance(spec, dict):
        spec.setdefault(
            "strategy", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
        )
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)


def _cron_job(obj: JsonObject) -> None:
    spec = obj.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        _template(spec.get("jobTemplate") or {})


def _priority_class(obj: JsonObject) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _service(obj: JsonObject) -> None:
    spec = obj.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port.get("port"))


def _secret(obj: JsonObject) -> None:
    obj.setdefault("type", "Opaque")


_BY_RESOURCE: Mapping[str, Callable[[JsonObject], None]] = {
    "pods": _pod,
    "jobs.batch": _job,
    "cronjobs.batch": _cron_job,
    "deployments.apps": _deployment,
    "replicasets.apps": _replicated,
    "statefulsets.apps": _replicated,
    "daemonsets.apps": _template,
    "replicationcontrollers": _replicated,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    "services": _service,
    "secrets": _secret,
}


def apply_defaults(resource: str, obj: JsonObject) -> None:
    """Fill in the defaults of a built-in kind."""
    default = _BY_RESOURCE.get(resource)
    if default is not None:
        default(obj)


def start_node(node: JsonObject) -> None:
    """A new node may take no pods until something says it is ready (the TaintNodesByCondition plugin)."""
    spec = node.setdefault("spec", {})
    status = node.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    status.setdefault("nodeInfo", dict.fromkeys(_NODE_INFO, ""))
    taints = spec.setdefault("taints", [])
    if not any(taint.get("key") == NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})


def start_namespace(namespace: JsonObject) -> None:
    """Phase, finalizer and the label that names it."""
    namespace.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
    namespace["status"] = {"phase": "Active"}
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"]["name"]
