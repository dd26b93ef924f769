"""What follows from the open entries of the LEDGER: the pure half of the commit protocol.

    settle:  (view, what STATE shows) ─► entries to append, binds, undos and touches to carry out

Rules (letters as in docs/protocol.md): a bind entry closes only when STATE shows every member bound (B); undoing touches
every member, evicts the bound ones, and closes when STATE shows each of them unbound under that fence, finished or gone
(D), and an absent pod is gone only in a view that has reached the freshness at which its uid was named; a plan is consumed
when its victims are gone, and its withdrawing closes when each of them is touched or gone (E); a bind to a node that has
vanished counts as unbound (F).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from muster.decide.commitments import Kind, LedgerView, OpenEntry, reached
from muster.model.instructions import Slot
from muster.model.ledger import Close, Entry, Undoing, Victim
from muster.model.nodes import Node
from muster.model.pods import Pod
from muster.model.units import GangKey, NodeName, PodUid, Sequence


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
    UNSEEN = "unseen"
    """Absent from a view that is older than the entry: nothing is known of it yet."""


def standing(slot: Slot, pod: Pod | None, nodes: Mapping[NodeName, Node], *, gone: bool = True) -> Standing:
    """Where STATE shows the pod of a slot; `gone`: the view is late enough for an absent pod to be gone.

    A pod that is not bound yet is not for a node of the same name with another uid. One that is bound stays with the
    name: the new node's kubelet runs it, or refuses it.
    """
    if pod is None:
        return Standing.LOST if gone else Standing.UNSEEN
    node = nodes.get(slot.node)
    if pod.node is None:
        if pod.finished:
            return Standing.LOST
        same = node is not None and slot.node_uid in {"", node.uid}
        return Standing.WAITING if same else Standing.VANISHED
    if pod.node != slot.node:
        return Standing.ELSEWHERE
    return Standing.HERE if node is not None or pod.finished else Standing.VANISHED


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from the open entries now."""

    entries: tuple[Entry, ...] = ()
    binds: tuple[tuple[OpenEntry, Slot], ...] = ()
    undos: tuple[tuple[OpenEntry, Slot], ...] = ()
    touches: tuple[tuple[OpenEntry, Victim], ...] = ()
    """Victims of plans that are being withdrawn; evictions under open plans are the preemptor's."""


def settle(
    view: LedgerView,
    pods: Mapping[PodUid, Pod],
    nodes: Mapping[NodeName, Node],
    *,
    freshness: str,
    complete: str | None = None,
    overdue: Iterable[GangKey] = (),
    failed: Mapping[PodUid, str] | None = None,
) -> Steps:
    """The closes and undos that the open entries call for, and what is still to be carried out.

    Nothing follows here from an open plan: a bind consumes it (see `consumable`), or it is withdrawn.

    Args:
        view: the LEDGER up to now.
        pods: what STATE shows, by uid.
        nodes: the nodes that STATE shows.
        freshness: the highest pod resourceVersion of the view; a close names it.
        complete: every pod event up to this resourceVersion is in the view ('' while nothing is promised); None: `freshness`.
        overdue: gangs whose bind entry has passed its deadline (deadlines stop while the API server is away).
        failed: uids whose Binding was refused for good, with the reason.
    """
    late = frozenset(overdue)
    refused = failed or {}
    entries: list[Entry] = []
    binds: list[tuple[OpenEntry, Slot]] = []
    undos: list[tuple[OpenEntry, Slot]] = []
    touches: list[tuple[OpenEntry, Victim]] = []
    seen = freshness if complete is None else complete
    for entry in view.open.values():
        if entry.kind is Kind.PLAN:
            continue
        if entry.kind is Kind.WITHDRAWING:
            untouched = [one for one in remaining(entry, pods, complete=seen) if not _touched(one, pods, entry)]
            touches.extend((entry, one) for one in untouched)
            if not untouched:
                entries.append(_close(entry, "withdrawn", freshness))
            continue
        gone = reached(seen, entry.freshness)
        where = [(slot, standing(slot, pods.get(slot.uid), nodes, gone=gone)) for slot in entry.slots]
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
    return Steps(entries=tuple(entries), binds=tuple(binds), undos=tuple(undos), touches=tuple(touches))


def remaining(entry: OpenEntry, pods: Mapping[PodUid, Pod], *, complete: str) -> tuple[Victim, ...]:
    """The plan's victims that are not gone: there and not ended, or absent from a view that may not know of them yet.

    Args:
        entry: a plan, open or being withdrawn.
        pods: what STATE shows, by uid.
        complete: every pod event up to this resourceVersion is in the view ('' while nothing is promised).
    """
    gone = reached(complete, entry.freshness)

    def stays(uid: PodUid) -> bool:
        pod = pods.get(uid)
        return not gone if pod is None else not pod.finished

    return tuple(victim for victim in entry.victims if stays(victim.uid))


def consumable(entry: OpenEntry, pods: Mapping[PodUid, Pod], *, complete: str) -> bool:
    """Whether the gang of this open entry may be bound now: it is a plan, and its victims are gone (rule E)."""
    return entry.kind is Kind.PLAN and not remaining(entry, pods, complete=complete)


def _touched(victim: Victim, pods: Mapping[PodUid, Pod], entry: OpenEntry) -> bool:
    pod = pods.get(victim.uid)
    return pod is not None and pod.fence >= entry.sequence


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
        case Standing.UNSEEN:
            return False


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
        missing = sum(stand not in {Standing.HERE, Standing.ELSEWHERE} for _, stand in where)
        return "BIND_TIMEOUT", f"{missing} of {len(where)} pods were not bound in time"
    return None


def _close(entry: OpenEntry, outcome: str, freshness: str) -> Close:
    return Close(gang=entry.gang, entry=entry.sequence, outcome=outcome, freshness=freshness)
