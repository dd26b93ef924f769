"""What keeps a gang from being tried at all, whatever the room."""

from typing import NamedTuple

from muster.decide.asks import Ask
from muster.decide.memory import CoreMemory
from muster.decide.reasons import Reason, count
from muster.decide.shares import Tree
from muster.model.pods import UNKNOWN_NAMESPACES


class Held(NamedTuple):
    """Why a gang is not tried."""

    code: str
    message: str
    numbers: dict[str, int | str]


def hold_of(ask: Ask, tree: Tree, memory: CoreMemory, now: float) -> Held | None:
    """The first thing that holds the gang, or None."""
    gang = ask.gang
    if gang.hold:
        return Held(gang.hold, gang.hold_message or f"{gang.key} is held: {gang.hold}", {})
    if gang.queue not in tree.queues:
        known = ", ".join(sorted(tree.queues)) or "none"
        return Held(
            Reason.QUEUE_UNKNOWN,
            f"queue {gang.queue} does not exist; queues here: {known}",
            {"queue": gang.queue},
        )
    if not tree.open(gang.queue):
        closed = next(name for name in tree.path(gang.queue) if not tree.takes_jobs(name))
        return Held(Reason.QUEUE_CLOSED, f"queue {closed} is closed and takes no jobs", {"queue": closed})
    unsupported = _unsupported(ask)
    if unsupported is not None:
        return unsupported
    if ask.short > 0:
        have = ask.gang.counted + ask.waiting
        return Held(
            Reason.TOO_FEW_PODS,
            f"{count(have, 'pod')} of the minimum {gang.minimum} exist; {ask.short} more must be created or ungated",
            {"have": have, "minimum": gang.minimum, "missing": ask.short},
        )
    backoff = memory.gangs.get(gang.key)
    if backoff is not None and backoff.until > now:
        wait = round(backoff.until - now)
        return Held(
            Reason.BACKOFF,
            f"started and failed {count(backoff.failures, 'time')}; tried again in {wait} s",
            {"failures": backoff.failures, "seconds": wait},
        )
    return None


def _unsupported(ask: Ask) -> Held | None:
    for role in ask.roles:
        shape = role.shape
        name = role.name or ask.gang.key
        if shape.resource_claims:
            return Held(Reason.DRA_UNSUPPORTED, f"{name} uses resourceClaims, which are not supported yet", {})
        if shape.claims:
            claims = ", ".join(shape.claims)
            return Held(
                Reason.VOLUME_UNSUPPORTED,
                f"{name} mounts {claims}; pods with PersistentVolumeClaims are not supported yet",
                {"claims": claims},
            )
        if any(not term.weight and term.namespaces == UNKNOWN_NAMESPACES for term in shape.pod_terms):
            return Held(
                Reason.POD_AFFINITY_UNSUPPORTED,
                f"{name} has required pod affinity with a namespaceSelector, which is not supported; name the namespaces instead",
                {},
            )
    return None
