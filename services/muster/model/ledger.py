"""Entries of the LEDGER: what the committer promised, and the core's memory.

One message is one `Commit`: a batch of entries appended atomically by one leader. An entry's token is the sequence of
the message that carried it. Who may append what, and when, is the commit protocol (docs/protocol.md).

    leader ──► bind ──► (uids) ──► close            the normal life of a gang's start
                 └────► undoing ──► close           placement failed, or the gang is released
    leader ──► plan ──► bind that consumes it       victims leave under the plan; its room is held for the gang meanwhile
                 └────► withdrawing ──► close       the victims that are still there are touched, and stay
    leader ──► cordon ──► removable ──► node-close  an empty node is cordoned, may be removed, and is gone
                 └───────────┴──► uncordon ──► node-close      it is given back
"""

from typing import Any

import msgspec

from muster.model.instructions import Slot
from muster.model.units import GangKey, NodeName, PodUid, Sequence


class Leader(msgspec.Struct, frozen=True, kw_only=True, tag="leader"):
    """The first append of a leader: from here on it alone commits (rule A)."""

    identity: str
    lease_transitions: int


class Bind(msgspec.Struct, frozen=True, kw_only=True, tag="bind"):
    """These uids are to be bound to these nodes; their room is held until the close (rules B, F)."""

    gang: GangKey
    gang_uid: str
    slots: tuple[Slot, ...]
    decided_at: float = 0.0
    freshness: str = ""
    """Pod resourceVersion of the view that named these uids; to a view before it an absent pod is not gone."""


class Undoing(msgspec.Struct, frozen=True, kw_only=True, tag="undoing"):
    """The members of these slots are being taken back: touch, then evict the bound ones (rule D).

    It replaces the gang's open bind entry when there is one; a broken gang whose entry was closed gets a fresh one.
    """

    gang: GangKey
    gang_uid: str
    slots: tuple[Slot, ...]
    reason: str
    message: str = ""
    freshness: str = ""
    """Pod resourceVersion of the view that decided: it showed the other slots of the replaced entry bound; readers hold them until then."""


class Victim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod that leaves under a plan."""

    gang: GangKey
    uid: PodUid
    pod: str
    """Its name; the namespace is its gang's."""
    node: NodeName
    evict_after: float = 0.0
    """Unix seconds: its grace to write a checkpoint ends then; not evicted before."""
    cards: int = 0
    """What it holds of cards, in millionths."""


class Nominated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Room held for a gang by a plan: for the gang itself, or for one that moves (consolidation)."""

    gang: GangKey
    gang_uid: str
    slots: tuple[Slot, ...]


class Plan(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    """A proven plan, which is the nomination too: from here on its room is held (rule E)."""

    gang: GangKey
    gang_uid: str
    cause: str
    """``preempt``, ``reclaim``, ``backfill`` or ``consolidate``."""
    victims: tuple[Victim, ...]
    nominated: tuple[Nominated, ...]
    """The gang's own room first; after it, for moves, that of each gang that is placed again."""
    decided_at: float = 0.0
    freshness: str = ""
    message: str = ""
    """For people: who leaves for whom, and why that is allowed."""


class Withdrawing(msgspec.Struct, frozen=True, kw_only=True, tag="withdrawing"):
    """The gang's open plan is taken back: its victims are touched, then it is closed (rule E)."""

    gang: GangKey
    plan: Sequence
    """Sequence of the plan entry."""
    reason: str
    message: str = ""
    freshness: str = ""


class Cordon(msgspec.Struct, frozen=True, kw_only=True, tag="cordon"):
    """The node is to be cordoned; from here on nothing is committed to it (rule G)."""

    node: NodeName
    node_uid: str
    reason: str
    message: str = ""
    """For people: why it is not needed."""
    pool: str = ""
    decided_at: float = 0.0


class Removable(msgspec.Struct, frozen=True, kw_only=True, tag="removable"):
    """The node is cordoned, and the view showed it without pods at or past its cordon: it may be removed (rule G)."""

    node: NodeName
    cordon: Sequence
    """Sequence of the cordon entry."""
    freshness: str = ""
    """Pod resourceVersion of the view that decided."""


class Uncordon(msgspec.Struct, frozen=True, kw_only=True, tag="uncordon"):
    """The node is given back. Nothing is committed to it until STATE shows that, and the removal grace has passed (rule G)."""

    node: NodeName
    node_uid: str
    reason: str
    message: str = ""
    gang: GangKey = GangKey("")
    """For whom it is given back, if for somebody."""
    labelled: bool = False
    """Whether it may have carried the removable label: then a removal may still be on its way."""


class NodeClose(msgspec.Struct, frozen=True, kw_only=True, tag="node-close"):
    """The node's open entry is done."""

    node: NodeName
    entry: Sequence
    outcome: str
    """``returned`` or ``removed``."""


class Close(msgspec.Struct, frozen=True, kw_only=True, tag="close"):
    """The gang's open entry is done. Readers hold its slots until their pod view has reached `freshness` (rule B)."""

    gang: GangKey
    entry: Sequence
    """Sequence of the entry that is closed."""
    outcome: str
    """``bound``, ``undone``, ``withdrawn``."""
    freshness: str
    """Pod resourceVersion that STATE had reached when it showed the outcome."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, tag="memory"):
    """The core's memory, whole; the last one counts."""

    core: str
    value: dict[str, Any]


NodeEntry = Cordon | Removable | Uncordon | NodeClose
Entry = Leader | Bind | Undoing | Plan | Withdrawing | Close | Memory | NodeEntry


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One LEDGER message."""

    epoch: Sequence
    """Sequence of the leader entry of the one that appends; 0 in the leader's own first append."""
    identity: str
    entries: tuple[Entry, ...]
    at: float = 0.0
