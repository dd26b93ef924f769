"""What evictions mean for a batch/v1 Job: a pod that had to leave failed, and counts toward backoffLimit, unless the Job says otherwise.

Every eviction leaves the condition DisruptionTarget on the pod. A Job whose podFailurePolicy ignores such pods loses no retry
by it; Kubernetes takes a podFailurePolicy with restartPolicy Never only, and never changes it on a Job that exists.
"""

from collections.abc import Mapping
from typing import Any

DISRUPTION_TARGET = "DisruptionTarget"
DEFAULT_BACKOFF_LIMIT = 6
RULE: Mapping[str, Any] = {
    "action": "Ignore",
    "onPodConditions": [{"type": DISRUPTION_TARGET, "status": "True"}],
}


def evictions_count(spec: Mapping[str, Any]) -> bool:
    """Whether a pod that was evicted takes one of the Job's retries."""
    policy = spec.get("podFailurePolicy")
    for rule in (policy.get("rules") if isinstance(policy, Mapping) else None) or ():
        if not isinstance(rule, Mapping):
            continue
        conditions = rule.get("onPodConditions") or ()
        if any(isinstance(one, Mapping) and one.get("type") == DISRUPTION_TARGET for one in conditions):
            return rule.get("action") != "Ignore"
    return True


def with_evictions_ignored(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The same Job, losing no retry by evictions; unchanged where it has a podFailurePolicy or Kubernetes would take none."""
    if spec.get("podFailurePolicy") is not None or not _never_restarts(spec):
        return dict(spec)
    return {**spec, "podFailurePolicy": {"rules": [dict(RULE)]}}


def what_evictions_cost(spec: Mapping[str, Any]) -> str:
    """For people: what an eviction costs this Job, and what would spare it; '' when it costs nothing."""
    if not evictions_count(spec):
        return ""
    limit = spec.get("backoffLimit", DEFAULT_BACKOFF_LIMIT)
    needs = "" if _never_restarts(spec) else ", which needs restartPolicy: Never"
    return (
        f"each of its pods that has to leave for another job counts as a failure (backoffLimit {limit}); "
        f"podFailurePolicy with action Ignore on the condition {DISRUPTION_TARGET} spares it{needs}"
    )


def _never_restarts(spec: Mapping[str, Any]) -> bool:
    template = spec.get("template")
    pod = template.get("spec") if isinstance(template, Mapping) else None
    return isinstance(pod, Mapping) and pod.get("restartPolicy") == "Never"
