"""Entries of the LEDGER: what the committer promised, and the core's memory.

One message is one `Commit`: a batch of entries appended atomically by one leader. An entry's token is the sequence of
the message that carried it. Who may append what, and when, is the commit protocol (docs/protocol.md).

    leader ──► bind ──► (uids) ──► close            the normal life of a gang's start
                 └────► undoing ──► close           placement failed, or the gang is released
"""

from typing import Any

import msgspec

from muster.model.instructions import Slot
from muster.model.units import GangKey, Sequence


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


class Close(msgspec.Struct, frozen=True, kw_only=True, tag="close"):
    """The gang's open entry is done. Readers hold its slots until their pod view has reached `freshness` (rule B)."""

    gang: GangKey
    entry: Sequence
    """Sequence of the entry that is closed."""
    outcome: str
    """``bound``, ``undone``."""
    freshness: str
    """Pod resourceVersion that STATE had reached when it showed the outcome."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, tag="memory"):
    """The core's memory, whole; the last one counts."""

    core: str
    value: dict[str, Any]


Entry = Leader | Bind | Undoing | Close | Memory


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One LEDGER message."""

    epoch: Sequence
    """Sequence of the leader entry of the one that appends; 0 in the leader's own first append."""
    identity: str
    entries: tuple[Entry, ...]
    at: float = 0.0
