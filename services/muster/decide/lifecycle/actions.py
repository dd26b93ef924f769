"""What a reconcile function asks for. The controller's shell carries it out; nothing here knows how.

Create   AlreadyExists is success when the object is owned as asked (`owner_uid`)
Patch    a merge patch (strategic for built-in kinds' conditions), refused when the object moved on
Remove   with the uid, so that a newer object of the same name is safe
Tell     an Event
Wake     look again at this time, nothing else to do before
"""

from typing import Any

import msgspec

VCJOBS = "jobs.batch.volcano.sh"
BATCH_JOBS = "jobs.batch"
PODGROUPS = "podgroups.scheduling.volcano.sh"
QUEUES = "queues.scheduling.volcano.sh"
PODS = "pods"
SERVICES = "services"
PRIORITY_CLASSES = "priorityclasses.scheduling.k8s.io"


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Create an object. `document` has no apiVersion and kind: the kind's name says them."""

    kind: str
    namespace: str
    name: str
    document: dict[str, Any]
    owner_uid: str = ""
    """An existing object of that name is accepted only with this controlling owner ('' accepts any)."""


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Merge `body` into an object, if it still is at this resourceVersion ('' always)."""

    kind: str
    namespace: str
    name: str
    body: dict[str, Any]
    resource_version: str = ""
    status: bool = False
    strategic: bool = False


class Remove(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the object with this uid; already gone is success."""

    kind: str
    namespace: str
    name: str
    uid: str


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """An Event about an object."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    warning: bool = False


class Wake(msgspec.Struct, frozen=True, kw_only=True):
    """Reconcile the same object again at this time (Unix seconds)."""

    at: float


Action = Create | Patch | Remove | Tell | Wake


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Why the scheduler says that a gang waits."""

    code: str
    message: str
    position: int = 0
    quota: bool = False
    """More nodes would not help: the queue's limits stop it."""
    nodes_help: bool = True
    """More nodes could help; False as well where something else is missing."""


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of a job leave, or left, to make room for another."""

    room_for: str
    """The gang that gets it, ``namespace/name``."""
    cause: str = ""
    """``preempt``, ``reclaim``, ``backfill`` or ``consolidate``; '' when only the warning on the pods is known."""
    message: str = ""
    evict_at: float = 0.0
    """Unix seconds: they are evicted then; 0 when no warning was seen."""
    pods: int = 0
    """How many leave, as it was decided."""
    warned: int = 0
    """Pods that carry a warning now."""
    at: float = 0.0
    """When it was decided."""


def merge_difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that turns `old` into `new`; empty when they are equal. Lists are replaced whole."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = merge_difference(before, value)
            if inner:
                patch[key] = inner
        elif value != before or key not in old:
            patch[key] = value
    return patch
