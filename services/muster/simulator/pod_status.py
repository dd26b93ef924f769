"""The statuses a kubelet writes, as merge patches of pods/status: pure functions of the pod and the moment.

State by state::

    bound ─► starting (Pending, ContainerCreating) ─► running ─► ended (Succeeded | Failed)
                                                        ▲   └──► backing_off (CrashLoopBackOff) ─┐
                                                        └────────────────────────────────────────┘
    bound ─► rejected (Failed; no container was ever made)
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.simulator.clock import timestamp

Pod = Mapping[str, Any]
Status = dict[str, Any]

OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the pod runs and what its containers were given there."""

    host_ip: str
    pod_ip: str
    devices: tuple[tuple[str, str], ...] = ()
    """(resource name, device id), shown as allocatedResourcesStatus of the first container."""


def starting(pod: Pod, now: float, *, place: Place) -> Status:
    """Admitted; containers are being made."""
    status = _base(pod, now, place=place)
    status["phase"] = "Pending"
    status["conditions"] = conditions(pod, now, ready=False, initialized=True, reason="ContainersNotReady")
    status["containerStatuses"] = _containers(
        pod, {"waiting": {"reason": "ContainerCreating"}}, place=place, restarts=0, started=False
    )
    return status


def running(pod: Pod, now: float, *, place: Place, restarts: int) -> Status:
    """All containers run and are ready."""
    status = _base(pod, now, place=place)
    status["phase"] = "Running"
    status["conditions"] = conditions(pod, now, ready=True, initialized=True)
    status["podIP"], status["podIPs"] = place.pod_ip, [{"ip": place.pod_ip}]
    status["containerStatuses"] = _containers(
        pod, {"running": {"startedAt": timestamp(now)}}, place=place, restarts=restarts, started=True
    )
    init = pod["spec"].get("initContainers") or ()
    if init:
        done = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": timestamp(now),
                "finishedAt": timestamp(now),
            }
        }
        status["initContainerStatuses"] = [
            _container(pod, container, done, restarts=0, started=False, ready=True) for container in init
        ]
    return status


def backing_off(
    pod: Pod, now: float, *, place: Place, restarts: int, exit_code: int, started_at: float, wait: float
) -> Status:
    """The containers ended and will be started again by the restart policy."""
    status = _base(pod, now, place=place)
    status["phase"] = "Running"
    status["conditions"] = conditions(pod, now, ready=False, initialized=True, reason="ContainersNotReady")
    message = f"back-off {int(wait)}s restarting failed container in pod {pod['metadata']['name']}"
    status["containerStatuses"] = _containers(
        pod,
        {"waiting": {"reason": "CrashLoopBackOff", "message": message}},
        place=place,
        restarts=restarts,
        started=False,
        last=_terminated(now, exit_code=exit_code, started_at=started_at),
    )
    return status


def ended(
    pod: Pod,
    now: float,
    *,
    place: Place,
    restarts: int,
    exit_code: int,
    started_at: float | None,
    reason: str = "",
    message: str = "",
) -> Status:
    """Nothing of the pod runs any more: Succeeded with exit code 0, else Failed. `started_at` None: it never ran."""
    status = _base(pod, now, place=place)
    succeeded = exit_code == 0
    status["phase"] = "Succeeded" if succeeded else "Failed"
    status["conditions"] = conditions(
        pod, now, ready=False, initialized=True, reason="PodCompleted" if succeeded else "PodFailed"
    )
    if reason:
        status["reason"] = reason
    if message:
        status["message"] = message
    state = _terminated(now, exit_code=exit_code, started_at=now if started_at is None else started_at)
    status["containerStatuses"] = _containers(pod, state, place=place, restarts=restarts, started=False)
    return status


def rejected(now: float, *, reason: str, message: str) -> Status:
    """The node refused the pod at admission."""
    return {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}", "startTime": timestamp(now)}


def conditions(pod: Pod, now: float, *, ready: bool, initialized: bool, reason: str = "") -> list[Status]:
    """The pod's conditions with kubelet's own brought up to date; the others (PodScheduled, DisruptionTarget …) stay."""
    kept = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or ()}
    wanted = {
        "PodReadyToStartContainers": (initialized, ""),
        "Initialized": (initialized, ""),
        "ContainersReady": (ready, reason),
        "Ready": (ready, reason),
    }
    for kind, (value, why) in wanted.items():
        text = "True" if value else "False"
        old = kept.get(kind)
        moved = old is None or old["status"] != text
        condition: Status = {
            "type": kind,
            "status": text,
            "lastProbeTime": None,
            "lastTransitionTime": (None if moved or old is None else old.get("lastTransitionTime")) or timestamp(now),
        }
        if why:
            condition["reason"] = why
        kept[kind] = condition
    return list(kept.values())


def _base(pod: Pod, now: float, *, place: Place) -> Status:
    started = (pod.get("status") or {}).get("startTime")
    return {"hostIP": place.host_ip, "hostIPs": [{"ip": place.host_ip}], "startTime": started or timestamp(now)}


def _terminated(now: float, *, exit_code: int, started_at: float) -> Status:
    return {
        "terminated": {
            "exitCode": exit_code,
            "reason": "Completed" if exit_code == 0 else "Error",
            "startedAt": timestamp(started_at),
            "finishedAt": timestamp(now),
        }
    }


def _containers(
    pod: Pod, state: Status, *, place: Place, restarts: int, started: bool, last: Status | None = None
) -> list[Status]:
    statuses = [
        _container(pod, container, state, restarts=restarts, started=started, ready=started, last=last)
        for container in pod["spec"]["containers"]
    ]
    if place.devices and statuses:
        statuses[0]["allocatedResourcesStatus"] = _devices(place.devices)
    return statuses


def _container(
    pod: Pod,
    container: Mapping[str, Any],
    state: Status,
    *,
    restarts: int,
    started: bool,
    ready: bool,
    last: Status | None = None,
) -> Status:
    name, image = container["name"], container.get("image", "")
    status: Status = {
        "name": name,
        "image": image,
        "imageID": "",
        "ready": ready,
        "started": started,
        "restartCount": restarts,
        "state": state,
        "lastState": last or {},
    }
    if "waiting" not in state:
        identity = hashlib.sha256(f"{pod['metadata']['uid']}/{name}/{restarts}".encode()).hexdigest()
        status["containerID"] = f"containerd://{identity}"
        status["imageID"] = f"{image}@sha256:{hashlib.sha256(image.encode()).hexdigest()}"
    return status


def _devices(devices: Sequence[tuple[str, str]]) -> list[Status]:
    by_resource: dict[str, list[Status]] = {}
    for resource, identity in devices:
        by_resource.setdefault(resource, []).append({"resourceID": identity, "health": "Healthy"})
    return [{"name": resource, "resources": resources} for resource, resources in by_resource.items()]
