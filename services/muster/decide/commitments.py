"""What the LEDGER says is promised, and what follows from it: the pure half of the commit protocol.

    fold:    (view, sequence, commit) ─► view'          every reader of LEDGER does this, in order
    settle:  (view, what STATE shows) ─► entries to append, binds and undos to carry out

Rules (letters as in docs/protocol.md): one leader at a time acts (A); a bind entry closes only when STATE shows every
member bound, and its room is counted as held until the reader's own pod view has reached the freshness that the close
names (B); undoing touches every member, evicts the bound ones, and closes when STATE shows each of them unbound under
that fence, finished or gone (D), and an absent pod is gone only in a view that has reached the freshness at which its uid
was named; a bind to a node that has vanished counts as unbound (F).
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from muster.model.instructions import Slot
from muster.model.ledger import Bind, Close, Commit, Entry, Leader, Memory, Undoing
from muster.model.nodes import Node
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
    freshness: str = ""
    """Pod resourceVersion at which its uids were named; a view that has not reached it knows of no absence."""


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
    memory_at: dict[str, Sequence] = {}
    """Sequence of the last memory entry of each core."""
    refused: int = 0
    """Commits that were in the stream although their leader was deposed; always 0 unless the rules were broken."""

    def named_uids(self) -> frozenset[PodUid]:
        """Every uid that an open entry names."""
        return frozenset(slot.uid for entry in self.open.values() for slot in entry.slots)


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


def fold(view: LedgerView, sequence: Sequence, commit: Commit) -> LedgerView:
    """The view after one more commit. A commit at or below the view's sequence changes nothing (replays are harmless)."""
    return fold_all(view, ((sequence, commit),))


def fold_all(view: LedgerView, commits: Iterable[tuple[Sequence, Commit]]) -> LedgerView:
    """The view after more commits, in stream order; one copy of the view for all of them.

    The first commit of a LEDGER whose beginning was trimmed away is its writer's: no deposed leader's commit can stand
    after a newer leader entry, so its epoch is the leader's.
    """
    work = _Folding(view)
    for sequence, commit in commits:
        work.add(sequence, commit)
    return work.view()


class _Folding:
    """A view that is being folded on, in place."""

    def __init__(self, view: LedgerView) -> None:
        self._before = view
        self.sequence = view.sequence
        self.leader = view.leader
        self.identity = view.leader_identity
        self.refused = view.refused
        self.open = dict(view.open)
        self.lingering = list(view.lingering)
        self.memory = dict(view.memory)
        self.memory_at = dict(view.memory_at)

    def view(self) -> LedgerView:
        if self.sequence == self._before.sequence:
            return self._before
        return LedgerView(
            sequence=self.sequence,
            leader=self.leader,
            leader_identity=self.identity,
            open=self.open,
            lingering=tuple(self.lingering),
            memory=self.memory,
            memory_at=self.memory_at,
            refused=self.refused,
        )

    def add(self, sequence: Sequence, commit: Commit) -> None:
        if sequence <= self.sequence:
            return
        self.sequence = sequence
        first = commit.entries[0] if commit.entries else None
        if not isinstance(first, Leader):
            if not self.leader:
                self.leader, self.identity = commit.epoch, commit.identity
            if commit.epoch != self.leader:
                self.refused += 1
                return
        for entry in commit.entries:
            self._entry(sequence, commit, entry)

    def _entry(self, sequence: Sequence, commit: Commit, entry: Entry) -> None:
        match entry:
            case Leader():
                self.leader, self.identity = sequence, entry.identity
            case Bind():
                self.open[entry.gang] = OpenEntry(
                    sequence=sequence,
                    kind=Kind.BIND,
                    gang=entry.gang,
                    gang_uid=entry.gang_uid,
                    slots=entry.slots,
                    at=commit.at,
                    freshness=entry.freshness,
                )
            case Undoing():
                self._undoing(sequence, commit, entry)
            case Close():
                closed = self.open.get(entry.gang)
                if closed is not None and closed.sequence == entry.entry:
                    del self.open[entry.gang]
                    self.lingering.append(Lingering(gang=entry.gang, slots=closed.slots, freshness=entry.freshness))
            case Memory():
                self.memory[entry.core] = entry.value
                self.memory_at[entry.core] = sequence

    def _undoing(self, sequence: Sequence, commit: Commit, entry: Undoing) -> None:
        replaced = self.open.get(entry.gang)
        named_at = entry.freshness
        if replaced is not None:
            named_at = later(named_at, replaced.freshness)
            undone = {slot.uid for slot in entry.slots}
            kept = tuple(slot for slot in replaced.slots if slot.uid not in undone)
            if kept:
                self.lingering.append(Lingering(gang=entry.gang, slots=kept, freshness=entry.freshness))
        self.open[entry.gang] = OpenEntry(
            sequence=sequence,
            kind=Kind.UNDOING,
            gang=entry.gang,
            gang_uid=entry.gang_uid,
            slots=entry.slots,
            at=commit.at,
            reason=entry.reason,
            message=entry.message,
            freshness=named_at,
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
    """The closes and undos that the open entries call for, and the binds and undos still to be carried out.

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
    seen = freshness if complete is None else complete
    for entry in view.open.values():
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
