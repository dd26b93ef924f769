"""Why a gang waits: a closed set of codes, each with its sentence for people.

A sentence names things and gives numbers, the same in the CLI, Events and conditions. `NEVER` are the codes under which
nothing but a change of the job, the queue or the nodes themselves will help; such gangs stand in no line.
"""

import re
from enum import StrEnum

from muster.model.quantity import format_bytes, format_cpu
from muster.model.units import ONE_CARD

UID_BEHIND = re.compile(r"(?<!\bpodgroup)-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$")


class Reason(StrEnum):
    """Every code that a pending instruction may carry."""

    NO_NODES = "NO_NODES"
    """There is no node at all, or none is ready."""
    NO_MATCHING_NODE = "NO_MATCHING_NODE"
    """Nodes exist, but the predicates leave none; the counts say which predicate."""
    NOT_ENOUGH_ROOM = "NOT_ENOUGH_ROOM"
    CARD_SHARE_TOO_LARGE = "CARD_SHARE_TOO_LARGE"
    """No single card has that much free."""
    SHARING_NOT_AVAILABLE = "SHARING_NOT_AVAILABLE"
    """No node's device plugin gives out shares."""
    TOPOLOGY_UNFIT = "TOPOLOGY_UNFIT"
    """Enough room in all, but in no domain of the required level."""
    TOPOLOGY_LEVEL_UNKNOWN = "TOPOLOGY_LEVEL_UNKNOWN"
    QUEUE_UNKNOWN = "QUEUE_UNKNOWN"
    QUEUE_CLOSED = "QUEUE_CLOSED"
    QUEUE_CAPABILITY = "QUEUE_CAPABILITY"
    """The queue, or a parent, is at its limit now, or is smaller than what is asked."""
    GUARANTEE_RESERVED = "GUARANTEE_RESERVED"
    """What is free is guaranteed to other queues."""
    NEVER_FITS = "NEVER_FITS"
    """Larger than the whole cluster."""
    TOO_FEW_PODS = "TOO_FEW_PODS"
    """Fewer pods exist (or are free to run) than the minimum."""
    NO_PODGROUP = "NO_PODGROUP"
    PRIORITY_CLASS_MISSING = "PRIORITY_CLASS_MISSING"
    """The PodGroup names a PriorityClass that does not exist."""
    POD_SPECS_DIFFER = "POD_SPECS_DIFFER"
    UNIT_TRAP = "UNIT_TRAP"
    VOLUME_UNSUPPORTED = "VOLUME_UNSUPPORTED"
    DRA_UNSUPPORTED = "DRA_UNSUPPORTED"
    CLAIM_MISSING = "CLAIM_MISSING"
    """A PersistentVolumeClaim that a pod mounts does not exist, or is being deleted."""
    CLAIM_UNBOUND = "CLAIM_UNBOUND"
    """A claim waits for its volume, or has lost it."""
    CLAIM_IN_USE = "CLAIM_IN_USE"
    """Another pod uses a claim that is for one pod at a time (ReadWriteOncePod)."""
    POD_AFFINITY_UNFIT = "POD_AFFINITY_UNFIT"
    """Enough room in all, but not where pod affinity and anti-affinity allow."""
    SPREAD_UNFIT = "SPREAD_UNFIT"
    """Enough room in all, but not as evenly as topologySpreadConstraints ask."""
    POD_AFFINITY_UNSUPPORTED = "POD_AFFINITY_UNSUPPORTED"
    """Required pod affinity to namespaces chosen by their labels."""
    SUB_GROUP_UNSUPPORTED = "SUB_GROUP_UNSUPPORTED"
    """A subGroupPolicy whose groups are made of several roles."""
    BEHIND = "BEHIND"
    """It fits by itself; gangs ahead of it take the room."""
    FREEING = "FREEING"
    """Jobs are leaving to make room for it."""
    RESERVED = "RESERVED"
    """Room is reserved for it: it starts when all of it is free."""
    HELD_FOR_OTHERS = "HELD_FOR_OTHERS"
    """It fits, but the room is kept for a gang that it would keep waiting."""
    BACKOFF = "BACKOFF"
    PLAN_REJECTED = "PLAN_REJECTED"
    """The validator found the plan for it unsound: a defect of the core, reported and never committed."""
    BINDING = "BINDING"
    """Its last placement, or the plan that made room for it, is being carried out or taken back."""
    LEAVING = "LEAVING"
    """Pods of it are leaving to make room for another job."""
    FENCE_FORGED = "FENCE_FORGED"
    """A pod of it carries a fence that the LEDGER has not reached: somebody wrote it by hand."""
    PAUSED = "PAUSED"
    """People told Muster to start nothing, or nothing of this queue."""
    NAMESPACE_NOT_ALLOWED = "NAMESPACE_NOT_ALLOWED"
    """The policy's rules of the queue do not name the job's namespace."""
    PRIORITY_NOT_ALLOWED = "PRIORITY_NOT_ALLOWED"
    """Nor its priority class."""


NEVER = frozenset(
    {
        Reason.NEVER_FITS,
        Reason.QUEUE_UNKNOWN,
        Reason.UNIT_TRAP,
        Reason.VOLUME_UNSUPPORTED,
        Reason.DRA_UNSUPPORTED,
        Reason.CLAIM_MISSING,
        Reason.CLAIM_UNBOUND,
        Reason.POD_AFFINITY_UNSUPPORTED,
        Reason.SUB_GROUP_UNSUPPORTED,
        Reason.SHARING_NOT_AVAILABLE,
        Reason.TOPOLOGY_LEVEL_UNKNOWN,
        Reason.NO_PODGROUP,
        Reason.PRIORITY_CLASS_MISSING,
        Reason.POD_SPECS_DIFFER,
        Reason.NAMESPACE_NOT_ALLOWED,
        Reason.PRIORITY_NOT_ALLOWED,
    }
)


CURED_BY_NODES = frozenset(
    {
        Reason.NO_NODES,
        Reason.NO_MATCHING_NODE,
        Reason.NOT_ENOUGH_ROOM,
        Reason.CARD_SHARE_TOO_LARGE,
        Reason.SHARING_NOT_AVAILABLE,
        Reason.TOPOLOGY_UNFIT,
        Reason.GUARANTEE_RESERVED,
        Reason.NEVER_FITS,
        Reason.POD_AFFINITY_UNFIT,
        Reason.SPREAD_UNFIT,
        Reason.BEHIND,
        Reason.RESERVED,
        Reason.HELD_FOR_OTHERS,
    }
)
"""What more nodes could cure: only pods that wait for these look unschedulable to an autoscaler."""


def format_amount(resource: str, amount: int) -> str:
    """An amount of a queue's resource for people: cards from millionths, cores from thousandths."""
    if resource == "cpu":
        return f"{format_cpu(amount)} cores"
    if resource in {"memory", "ephemeral-storage"}:
        return format_bytes(amount)
    if resource == "gpu" or resource.endswith("/gpu") or resource.startswith("gpu."):
        cards = amount / ONE_CARD
        return f"{cards:g} {'card' if cards == 1 else 'cards'}"
    return f"{amount} {resource}"


def count(number: int, one: str, many: str = "") -> str:
    """``1 pod``, ``2 pods``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def known_name(gang: str) -> str:
    """A gang as people know it: the uid that a Volcano Job's PodGroup carries behind the job's name is left out; a PodGroup
    that was made for pods is called by its own.
    """
    return UID_BEHIND.sub("", gang)


def span(seconds: float) -> str:
    """A duration: ``12 s``, ``3 min``, ``5 h``, ``2 d``."""
    amount = max(0.0, seconds)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if amount >= size * (2 if unit == "d" else 1):
            return f"{amount / size:.0f} {unit}"
    return f"{amount:.0f} s"
