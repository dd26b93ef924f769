"""What a decision says should happen. The scheduler's shell turns these into LEDGER entries and carries them out."""

import msgspec

from muster.model.pods import CardUse, Request
from muster.model.units import GangKey, NodeName, PodUid, QueueName, RoleName


class Slot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod of a gang on one node, with its cards."""

    uid: PodUid
    pod: str
    """The pod's name (the namespace is the gang's)."""
    role: RoleName
    node: NodeName
    cards: tuple[CardUse, ...] = ()
    request: Request | None = None
    """Filled in when the slot is committed, so that its room is known even when the pod is gone."""
    node_uid: str = ""
    """Filled in when the slot is committed: a node of the same name with another uid is another node."""


class Place(msgspec.Struct, frozen=True, kw_only=True, tag="place"):
    """Start (or grow, or heal) a gang: all slots together or none."""

    gang: GangKey
    gang_uid: str
    slots: tuple[Slot, ...]


class Evict(msgspec.Struct, frozen=True, kw_only=True, tag="evict"):
    """A proven plan: these victims leave so that the gang fits on these slots."""

    gang: GangKey
    victims: tuple[tuple[GangKey, PodUid], ...]
    slots: tuple[Slot, ...]
    cause: str
    """``preempt``, ``reclaim`` or ``consolidate``."""


class Pending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="pending"):
    """Why a gang waits: a reason code (decide.reasons) with the numbers that decided and a sentence for people."""

    gang: GangKey
    queue: QueueName
    code: str
    message: str
    numbers: dict[str, int | str] = {}
    position: int = 0
    """1 is next in its queue; 0 when it stands in no line (it can never run as it is)."""


Instruction = Place | Evict | Pending
