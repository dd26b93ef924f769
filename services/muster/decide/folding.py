"""The fold of the LEDGER: (view, sequence, commit) ─► view'. Every reader makes it, in order, and arrives at the same view.

bind ──► open until closed          a plan of the gang's own is consumed by it, and so ends
undoing ──► replaces the gang's bind entry, or opens anew
plan ──► open; withdrawing ──► the plan, marked
close ──► nothing is open for the gang; its slots linger until the reader's pod view is late enough
cordon ──► removable ──► uncordon: the node's one open entry, each replacing the one before; node-close ends it
"""

from collections.abc import Iterable

import msgspec

from muster.decide.commitments import (
    Kind,
    LedgerView,
    Lingering,
    NodePromise,
    NodeVerb,
    OpenEntry,
    Returning,
    later,
)
from muster.model.ledger import (
    Bind,
    Close,
    Commit,
    Cordon,
    Entry,
    Leader,
    Memory,
    NodeClose,
    NodeEntry,
    Plan,
    Removable,
    Uncordon,
    Undoing,
    Withdrawing,
)
from muster.model.units import GangKey, Sequence

RETURN_SECONDS = 300.0
"""How long a moved gang's room is held for its new pods after the plan that moved it was consumed."""


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
        self.returning = dict(view.returning)
        self.nodes = dict(view.nodes)
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
            returning=self.returning,
            nodes=self.nodes,
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
                self._returned(commit, entry.gang)
                # Open entries stand in the order of the LEDGER: of two that want a node to themselves the older comes first.
                self.open.pop(entry.gang, None)
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
            case Plan():
                self._plan(sequence, commit, entry)
            case Withdrawing():
                self._withdrawing(sequence, entry)
            case Close():
                closed = self.open.get(entry.gang)
                if closed is not None and closed.sequence == entry.entry:
                    del self.open[entry.gang]
                    if closed.slots:
                        self.lingering.append(Lingering(gang=entry.gang, slots=closed.slots, freshness=entry.freshness))
            case Memory():
                self.memory[entry.core] = entry.value
                self.memory_at[entry.core] = sequence
            case _:
                self._node(sequence, commit, entry)

    def _node(self, sequence: Sequence, commit: Commit, entry: NodeEntry) -> None:
        before = self.nodes.get(entry.node)
        match entry:
            case Cordon():
                self.nodes[entry.node] = NodePromise(
                    sequence=sequence,
                    verb=NodeVerb.CORDON,
                    node=entry.node,
                    node_uid=entry.node_uid,
                    begins=sequence,
                    at=commit.at,
                    since=commit.at,
                    reason=entry.reason,
                    message=entry.message,
                    pool=entry.pool,
                )
            case Removable():
                if before is not None and before.sequence == entry.cordon:
                    self.nodes[entry.node] = msgspec.structs.replace(
                        before, sequence=sequence, verb=NodeVerb.REMOVABLE, at=commit.at, labelled=True
                    )
            case Uncordon():
                self.nodes[entry.node] = NodePromise(
                    sequence=sequence,
                    verb=NodeVerb.UNCORDON,
                    node=entry.node,
                    node_uid=entry.node_uid,
                    begins=before.begins if before is not None else sequence,
                    at=commit.at,
                    since=before.since if before is not None else commit.at,
                    reason=entry.reason,
                    message=entry.message,
                    pool=before.pool if before is not None else "",
                    labelled=entry.labelled or (before is not None and before.labelled),
                    gang=entry.gang,
                )
            case NodeClose():
                if before is not None and before.sequence == entry.entry:
                    del self.nodes[entry.node]

    def _returned(self, commit: Commit, gang: GangKey) -> None:
        """A gang is bound: what plans nominate for it is its own now, and a plan of its own is consumed."""
        self.returning = {key: one for key, one in self.returning.items() if key != gang and one.until > commit.at}
        consumed = self.open.get(gang)
        for one in consumed.nominated if consumed is not None else ():
            if one.gang != gang:
                self.returning[one.gang] = Returning(nominated=one, until=commit.at + RETURN_SECONDS)
        for key, other in self.open.items():
            if key != gang and any(one.gang == gang for one in other.nominated):
                left = tuple(one for one in other.nominated if one.gang != gang)
                self.open[key] = msgspec.structs.replace(other, nominated=left)

    def _plan(self, sequence: Sequence, commit: Commit, entry: Plan) -> None:
        for one in entry.nominated:
            self.returning.pop(one.gang, None)
        self.open[entry.gang] = OpenEntry(
            sequence=sequence,
            kind=Kind.PLAN,
            gang=entry.gang,
            gang_uid=entry.gang_uid,
            slots=(),
            at=commit.at,
            message=entry.message,
            freshness=entry.freshness,
            victims=entry.victims,
            nominated=entry.nominated,
            cause=entry.cause,
        )

    def _withdrawing(self, sequence: Sequence, entry: Withdrawing) -> None:
        plan = self.open.get(entry.gang)
        if plan is None or plan.kind is not Kind.PLAN or plan.sequence != entry.plan:
            return
        self.open[entry.gang] = msgspec.structs.replace(
            plan,
            sequence=sequence,
            kind=Kind.WITHDRAWING,
            plan=plan.sequence,
            reason=entry.reason,
            message=entry.message,
            freshness=later(plan.freshness, entry.freshness),
        )

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
