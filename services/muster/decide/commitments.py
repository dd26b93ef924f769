"""What the LEDGER says is promised, as a view that every reader folds for itself (see `muster.decide.folding`).

    holds:         (view, pods) ─► room of open and lingering bind and undoing entries
    nominations:   view ─► room of plans, as the core takes it (its places are not among the holds: room counts once)

Rules (letters as in docs/protocol.md): one leader at a time acts (A); room of a closed entry is counted as held until the
reader's own pod view has reached the freshness that the close names (B); a plan is its gang's one open entry until a bind
of the gang consumes it, or it is withdrawn and closed (E). What follows from open entries: `muster.decide.settling`.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from muster.decide.memory import Nomination
from muster.model.instructions import Slot
from muster.model.ledger import Nominated, Victim
from muster.model.pods import Pod, Request
from muster.model.snapshot import Hold
from muster.model.units import GangKey, NodeName, PodUid, Sequence

NEVER = 1e12
"""Unix seconds. A plan's room does not lapse with time: the committer withdraws the plan."""


class Kind(StrEnum):
    """What an open entry is about."""

    BIND = "bind"
    UNDOING = "undoing"
    PLAN = "plan"
    WITHDRAWING = "withdrawing"


class OpenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that is not closed: its slots are held, and so is what it nominates."""

    sequence: Sequence
    kind: Kind
    gang: GangKey
    gang_uid: str
    slots: tuple[Slot, ...]
    at: float
    reason: str = ""
    message: str = ""
    freshness: str = ""
    """Pod resourceVersion at which its uids were named; a view that has not reached it knows of no absence."""
    victims: tuple[Victim, ...] = ()
    """Of a plan, also while it is withdrawn."""
    nominated: tuple[Nominated, ...] = ()
    """Of a plan: the gang's own room first, then that of moved gangs which were not bound again yet."""
    cause: str = ""
    """Of a plan."""
    plan: Sequence = Sequence(0)
    """Of a withdrawing: the sequence of the plan that it takes back; else 0."""

    @property
    def begins(self) -> Sequence:
        """The first LEDGER sequence that is needed to know this entry."""
        return self.plan or self.sequence


class NodeVerb(StrEnum):
    """What an open entry says of a node (rule G)."""

    CORDON = "cordon"
    REMOVABLE = "removable"
    UNCORDON = "uncordon"


class NodePromise(msgspec.Struct, frozen=True, kw_only=True):
    """The open entry of a node: nothing may be committed to the node while there is one."""

    sequence: Sequence
    verb: NodeVerb
    node: NodeName
    node_uid: str
    begins: Sequence
    """Sequence of the cordon that it began with."""
    at: float
    """Unix seconds of this entry."""
    since: float
    """Unix seconds of the cordon."""
    reason: str = ""
    message: str = ""
    pool: str = ""
    labelled: bool = False
    """Whether the removable label may stand on the node, or have stood since it was given back last."""
    gang: GangKey = GangKey("")


class Returning(msgspec.Struct, frozen=True, kw_only=True):
    """Room of a gang that moved for a plan which was consumed since; it ends with the gang's next entry, or with time."""

    nominated: Nominated
    until: float


class Lingering(msgspec.Struct, frozen=True, kw_only=True):
    """Slots of a closed or replaced entry, held by a reader until its pod view has reached `freshness`."""

    gang: GangKey
    slots: tuple[Slot, ...]
    freshness: str


class LedgerView(msgspec.Struct, frozen=True, kw_only=True):
    """The LEDGER folded up to `sequence`."""

    sequence: Sequence = Sequence(0)
    leader: Sequence = Sequence(0)
    """Sequence of the newest leader entry; 0 before the first."""
    leader_identity: str = ""
    open: dict[GangKey, OpenEntry] = {}
    lingering: tuple[Lingering, ...] = ()
    returning: dict[GangKey, Returning] = {}
    nodes: dict[NodeName, NodePromise] = {}
    """Open entries of nodes."""
    memory: dict[str, dict[str, object]] = {}
    memory_at: dict[str, Sequence] = {}
    """Sequence of the last memory entry of each core."""
    refused: int = 0
    """Commits that were in the stream although their leader was deposed; always 0 unless the rules were broken."""

    def named_uids(self) -> frozenset[PodUid]:
        """Every uid that a Binding or an eviction may be under way for: of slots and of victims, nominations apart."""
        return frozenset(slot.uid for entry in self.open.values() for slot in entry.slots) | self.victims()

    def victims(self) -> frozenset[PodUid]:
        """Every uid that an open plan names as a victim, plans that are being withdrawn included."""
        return frozenset(victim.uid for entry in self.open.values() for victim in entry.victims)

    def plans(self) -> tuple[OpenEntry, ...]:
        """The plans that are to be carried out: open, and not being withdrawn."""
        return tuple(entry for entry in self.open.values() if entry.kind is Kind.PLAN)

    def token(self, entry: OpenEntry) -> Sequence:
        """The fence token of whoever carries out an entry of this view: its own, or the newest leader's (rule C)."""
        return max(entry.sequence, self.leader)


def reached(freshness: str, wanted: str) -> bool:
    """Whether a view at `freshness` has seen `wanted`; both are resourceVersions of one kind, '' is nothing.

    Kubernetes promises since 1.35 that resourceVersions of one resource compare as integers; every API server backed by
    etcd has always given such. What is no number is reached by itself alone.
    """
    if not wanted or freshness == wanted:
        return True
    if not (freshness.isdecimal() and wanted.isdecimal()):
        return False
    return int(freshness) >= int(wanted)


def later(one: str, other: str) -> str:
    """The later of two resourceVersions of one kind."""
    return one if reached(one, other) else other


def forget_lingering(view: LedgerView, freshness: str) -> LedgerView:
    """Drop the lingering holds that a pod view at `freshness` no longer needs."""
    still = tuple(item for item in view.lingering if not reached(freshness, item.freshness))
    return view if len(still) == len(view.lingering) else msgspec.structs.replace(view, lingering=still)


def holds(view: LedgerView, pods: Mapping[PodUid, Pod]) -> tuple[Hold, ...]:
    """The room that open and lingering entries hold for uids that STATE does not show on the slot's node."""
    held: dict[PodUid, Hold] = {}
    promised = [(entry.gang, entry.slots) for entry in view.open.values()]
    lingering = [(item.gang, item.slots) for item in view.lingering]
    for gang, slots in (*lingering, *promised):
        for slot in slots:
            pod = pods.get(slot.uid)
            if pod is not None and pod.node == slot.node:
                continue
            request = slot.request or (pod.shape.request if pod is not None else Request())
            held[slot.uid] = Hold(gang=gang, uid=slot.uid, node=slot.node, request=request, cards=slot.cards)
    return tuple(held.values())


def nominations(view: LedgerView) -> tuple[Nomination, ...]:
    """The room that plans hold for their gangs, and for those that move, as the core's memory takes it.

    It is held until the plan is consumed or closed. Room that was nominated to a gang with a bind of its own is not here:
    that entry holds it, or the gang stands there.
    """
    open_plans = [
        Nomination(gang=one.gang, slots=one.slots, victims=tuple(victim.uid for victim in entry.victims), until=NEVER)
        for entry in view.open.values()
        for one in entry.nominated
    ]
    moved = [
        Nomination(gang=one.nominated.gang, slots=one.nominated.slots, victims=(), until=one.until)
        for one in view.returning.values()
    ]
    return (*open_plans, *moved)
