"""Which of a Job's pods have ended and count: as successes (by index), as failures, or not at all.

Every pod is counted once, by uid; a podFailurePolicy may ignore a failure or let it fail the whole Job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Object = dict[str, Any]
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True)
class JobMemory:
    """Pods counted so far by uid (succeeded ones with their index), and the failures since the last success."""

    succeeded: Mapping[str, int | None] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset()
    failures_in_a_row: int = 0
    last_failure: float = 0.0


def count_ended(
    spec: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], memory: JobMemory, *, now: float
) -> tuple[JobMemory, Object | None]:
    """Count pods that ended since; the second value is the end that a podFailurePolicy demands."""
    succeeded, failed, ignored = dict(memory.succeeded), set(memory.failed), set(memory.ignored)
    in_a_row, last = memory.failures_in_a_row, memory.last_failure
    demanded: Object | None = None
    only_failed = spec.get("podReplacementPolicy") == "Failed"
    indexed = spec.get("completionMode") == "Indexed"
    for pod in pods:
        uid, phase = pod["metadata"]["uid"], phase_of(pod)
        if uid in succeeded or uid in failed or uid in ignored:
            continue
        if phase == "Succeeded":
            index = pod_index(pod)
            if not indexed:
                succeeded[uid] = None
            elif index is not None and index < spec["completions"] and index not in succeeded.values():
                succeeded[uid] = index
            in_a_row = 0
        elif phase == "Failed" or ("deletionTimestamp" in pod["metadata"] and not only_failed):
            action, why = _failure_action(spec, pod)
            if action == "Ignore":
                ignored.add(uid)
                continue
            if action == "FailJob":
                demanded = {"kind": "FailureTarget", "reason": "PodFailurePolicy", "message": why}
            failed.add(uid)
            in_a_row += 1
            last = now
    counted = replace(
        memory,
        succeeded=succeeded,
        failed=frozenset(failed),
        ignored=frozenset(ignored),
        failures_in_a_row=in_a_row,
        last_failure=last,
    )
    return counted, demanded


def _failure_action(spec: Mapping[str, Any], pod: Mapping[str, Any]) -> tuple[str, str]:
    """The first matching rule of podFailurePolicy: Count (also without a rule), Ignore or FailJob, and why."""
    status = pod.get("status") or {}
    codes = {
        container["name"]: container["state"]["terminated"]["exitCode"]
        for container in status.get("containerStatuses") or ()
        if "terminated" in (container.get("state") or {})
    }
    present = {(condition["type"], condition["status"]) for condition in status.get("conditions") or ()}
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for number, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        exit_codes = rule.get("onExitCodes")
        if exit_codes is not None:
            for container, code in codes.items():
                if code == 0 or exit_codes.get("containerName") not in {None, "", container}:
                    continue
                if (code in exit_codes["values"]) == (exit_codes["operator"] == "In"):
                    action = rule["action"]
                    return (
                        action,
                        f"Container {container} for pod {name} failed with exit code {code} matching {action} rule at index {number}",
                    )
        for pattern in rule.get("onPodConditions") or ():
            if (pattern["type"], pattern.get("status", "True")) in present:
                action = rule["action"]
                return action, f"Pod {name} has condition {pattern['type']} matching {action} rule at index {number}"
    return "Count", ""


def pod_index(pod: Mapping[str, Any]) -> int | None:
    """The completion index of an indexed Job's pod."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_ANNOTATION, "")
    return int(text) if text.isdigit() else None


def phase_of(pod: Mapping[str, Any]) -> str:
    """The pod's phase; Pending when nobody has said."""
    return str((pod.get("status") or {}).get("phase", "Pending"))
