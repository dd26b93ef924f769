"""What the LEDGER says is promised, and what follows from it: the pure half of the commit protocol.

    fold:    (view, sequence, commit) ─► view'          every reader of LEDGER does this, in order
    settle:  (view, what STATE shows) ─► entries to append, binds and undos to carry out

Rules (letters as in docs/protocol.md): one leader at a time acts (A); a bind entry closes only when STATE shows every
member bound, and its room is counted as held until the reader's own pod view has reached the freshness that the close
names (B); undoing touches every member, evicts the bound ones, and closes when STATE shows each of them unbound under
that fence, finished or gone (D); a bind to a node that has vanished counts as unbound (F).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from muster.model.instructions import Slot
from muster.model.ledger import Bind, Close, Commit, Entry, Leader, Memory, Undoing
from muster.model.pods import Pod, Request
from muster.model.snapshot import Hold
from muster.model.units import GangKey, NodeName, PodUid, Sequence


class Kind(StrEnum):
    """What an open entry is about."""

    BIND = "bind"
    UNDOING = "undoing"


class OpenEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that is not closed: its slots are held."""

    sequence: Sequence
    kind: Kind
    gang: GangKey
    gang_uid: str
    slots: tuple[Slot, ...]
    at: float
    reason: str = ""
    message: str = ""


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
    memory: dict[str, dict[str, object]] = {}
    refused: int = 0
    """Commits that were in the stream although their leader was deposed; always 0 unless the rules were broken."""

    def named_uids(self) -> frozenset[PodUid]:
        """Every uid that an open entry names."""
        return frozenset(slot.uid for entry in self.open.values() for slot in entry.slots)


def reached(freshness: str, wanted: str) -> bool:
    """Whether a view at `freshness` has seen `wanted`; both are resourceVersions of one kind, '' is nothing.

    Kubernetes promises since 1.35 that resourceVersions of one resource compare as integers; every API server backed by
    etcd has always given such.
    """
    if not wanted:
        return True
    if not freshness:
        return False
    return int(freshness) >= int(wanted)


def fold(view: LedgerView, sequence: Sequence, commit: Commit) -> LedgerView:
    """The view after one more commit. A commit at or below the view's sequence changes nothing (replays are harmless)."""
    if sequence <= view.sequence:
        return view
    first = commit.entries[0] if commit.entries else None
    if not isinstance(first, Leader) and commit.epoch != view.leader:
        return msgspec.structs.replace(view, sequence=sequence, refused=view.refused + 1)
    entries = dict(view.open)
    lingering = list(view.lingering)
    memory = dict(view.memory)
    leader, identity = view.leader, view.leader_identity
    for entry in commit.entries:
        match entry:
            case Leader():
                leader, identity = sequence, entry.identity
            case Bind():
                entries[entry.gang] = OpenEntry(
                    sequence=sequence,
                    kind=Kind.BIND,
                    gang=entry.gang,
                    gang_uid=entry.gang_uid,
                    slots=entry.slots,
                    at=commit.at,
                )
            case Undoing():
                replaced = entries.get(entry.gang)
                undone = {slot.uid for slot in entry.slots}
                kept = tuple(slot for slot in replaced.slots if slot.uid not in undone) if replaced else ()
                if kept:
                    lingering.append(Lingering(gang=entry.gang, slots=kept, freshness=entry.freshness))
                entries[entry.gang] = OpenEntry(
                    sequence=sequence,
                    kind=Kind.UNDOING,
                    gang=entry.gang,
                    gang_uid=entry.gang_uid,
                    slots=entry.slots,
                    at=commit.at,
                    reason=entry.reason,
                    message=entry.message,
                )
            case Close():
                closed = entries.get(entry.gang)
                if closed is not None and closed.sequence == entry.entry:
                    del entries[entry.gang]
                    lingering.append(Lingering(gang=entry.gang, slots=closed.slots, freshness=entry.freshness))
            case Memory():
                memory[entry.core] = entry.value
    return LedgerView(
        sequence=sequence,
        leader=leader,
        leader_identity=identity,
        open=entries,
        lingering=tuple(lingering),
        memory=memory,
        refused=view.refused,
    )


def forget_lingering(view: LedgerView, freshness: str) -> LedgerView:
    """Drop the lingering holds that a pod view at `freshness` no longer needs."""
    still = tuple(item for item in view.lingering if not reached(freshness, item.freshness))
    return view if len(still) == len(view.lingering) else msgspec.structs.replace(view, lingering=still)


class Standing(StrEnum):
    """Where STATE shows the pod of a slot."""

    WAITING = "waiting"
    """There, unbound, not finished."""
    HERE = "here"
    """Bound to the slot's node, which exists (finished since then or not)."""
    ELSEWHERE = "elsewhere"
    """Bound to another node, by somebody else: nothing of ours can follow for it."""
    LOST = "lost"
    """Gone, or finished without ever being bound."""
    VANISHED = "vanished"
    """Bound to, or meant for, a node that does not exist (rule F)."""


def standing(slot: Slot, pod: Pod | None, nodes: Mapping[NodeName, object]) -> Standing:
    """Where STATE shows the pod of a slot."""
    if pod is None:
        return Standing.LOST
    if pod.node is None:
        if pod.finished:
            return Standing.LOST
        return Standing.WAITING if slot.node in nodes else Standing.VANISHED
    if pod.node != slot.node:
        return Standing.ELSEWHERE
    return Standing.HERE if slot.node in nodes or pod.finished else Standing.VANISHED


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from the open entries now."""

    entries: tuple[Entry, ...] = ()
    binds: tuple[tuple[OpenEntry, Slot], ...] = ()
    undos: tuple[tuple[OpenEntry, Slot], ...] = ()


def settle(
    view: LedgerView,
    pods: Mapping[PodUid, Pod],
    nodes: Mapping[NodeName, object],
    *,
    freshness: str,
    overdue: Iterable[GangKey] = (),
    failed: Mapping[PodUid, str] | None = None,
) -> Steps:
    """The closes and undos that the open entries call for, and the binds and undos still to be carried out.

    Args:
        view: the LEDGER up to now.
        pods: what STATE shows, by uid.
        nodes: the nodes that STATE shows.
        freshness: the pod resourceVersion that STATE has reached.
        overdue: gangs whose bind entry has passed its deadline (deadlines stop while the API server is away).
        failed: uids whose Binding was refused for good, with the reason.
    """
    late = frozenset(overdue)
    refused = failed or {}
    entries: list[Entry] = []
    binds: list[tuple[OpenEntry, Slot]] = []
    undos: list[tuple[OpenEntry, Slot]] = []
    for entry in view.open.values():
        where = [(slot, standing(slot, pods.get(slot.uid), nodes)) for slot in entry.slots]
        if entry.kind is Kind.UNDOING:
            left = [slot for slot, stand in where if not _undone(stand, pods.get(slot.uid), entry.sequence)]
            undos.extend((entry, slot) for slot in left)
            if not left:
                entries.append(_close(entry, "undone", freshness))
            continue
        if all(stand in {Standing.HERE, Standing.ELSEWHERE} for _, stand in where):
            entries.append(_close(entry, "bound", freshness))
            continue
        reason = _failure(where, refused, is_late=entry.gang in late)
        if reason is None:
            binds.extend((entry, slot) for slot, stand in where if stand is Standing.WAITING)
            continue
        code, message = reason
        open_slots = tuple(slot for slot, stand in where if stand not in {Standing.HERE, Standing.ELSEWHERE})
        entries.append(
            Undoing(
                gang=entry.gang,
                gang_uid=entry.gang_uid,
                slots=open_slots,
                reason=code,
                message=message,
                freshness=freshness,
            )
        )
    return Steps(entries=tuple(entries), binds=tuple(binds), undos=tuple(undos))


def _undone(stand: Standing, pod: Pod | None, sequence: Sequence) -> bool:
    match stand:
        case Standing.LOST | Standing.ELSEWHERE:
            return True
        case Standing.WAITING:
            return pod is not None and pod.fence >= sequence
        case Standing.VANISHED:
            return pod is None or (pod.node is None and pod.fence >= sequence)
        case Standing.HERE:
            return pod is not None and pod.finished


def _failure(
    where: list[tuple[Slot, Standing]], refused: Mapping[PodUid, str], *, is_late: bool
) -> tuple[str, str] | None:
    for slot, stand in where:
        if stand is Standing.LOST:
            return "POD_GONE", f"pod {slot.pod} is gone"
        if stand is Standing.VANISHED:
            return "NODE_GONE", f"node {slot.node} of pod {slot.pod} is gone"
        if slot.uid in refused and stand is Standing.WAITING:
            return "BIND_REFUSED", f"pod {slot.pod} on {slot.node}: {refused[slot.uid]}"
    if is_late:
        missing = sum(stand is Standing.WAITING for _, stand in where)
        return "BIND_TIMEOUT", f"{missing} of {len(where)} pods were not bound in time"
    return None


def _close(entry: OpenEntry, outcome: str, freshness: str) -> Close:
    return Close(gang=entry.gang, entry=entry.sequence, outcome=outcome, freshness=freshness)


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
