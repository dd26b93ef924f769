"""What the cluster does not tell of idle nodes. Frozen; every function returns a new memory.

Since when a node is empty is not kept in the LEDGER: whoever starts anew watches a whole window before it calls one idle.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from muster.model.policy import Idle

CORE = "idle"
BUCKET_SECONDS = 300.0
"""Demand is remembered as the most within each of these."""
HISTORY_SECONDS = 86_400.0
HOUR = 3600.0


class Demanded(msgspec.Struct, frozen=True, array_like=True):
    """The most cards that were used and waited for within a bucket."""

    bucket: int
    cards: int


class IdleMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Times are Unix seconds."""

    empty: dict[str, float] = {}
    """Since when nodes are empty, by uid."""
    returned: dict[str, float] = {}
    """When nodes were given back last, by uid; those that it still matters for."""
    cordoned: tuple[float, ...] = ()
    """When nodes were cordoned, of the last hour."""
    demanded: dict[str, tuple[Demanded, ...]] = {}
    """By pool, the latest last."""

    def to_data(self) -> dict[str, Any]:
        """As plain data, for the LEDGER: what must outlive a restart."""
        kept = msgspec.structs.replace(self, empty={})
        data: dict[str, Any] = msgspec.to_builtins(kept)
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "IdleMemory":
        """From what `to_data` gave. Raises msgspec.ValidationError for anything else."""
        return msgspec.convert(dict(data), cls)


def seen(
    memory: IdleMemory,
    *,
    empty: Iterable[str],
    returning: Iterable[str],
    there: Collection[str],
    now: float,
    idle: Idle,
) -> IdleMemory:
    """These nodes are empty now, these are being given back, and those are there (uids)."""
    returned = {uid: at for uid, at in memory.returned.items() if uid in there and at + idle.min_up > now}
    return msgspec.structs.replace(
        memory,
        empty={uid: memory.empty.get(uid, now) for uid in empty},
        returned=returned | dict.fromkeys(returning, now),
        cordoned=tuple(at for at in memory.cordoned if at + HOUR > now),
    )


def was_cordoned(memory: IdleMemory, now: float) -> IdleMemory:
    """A cordon was committed."""
    return msgspec.structs.replace(memory, cordoned=(*memory.cordoned, now))


def wanted(memory: IdleMemory, cards: Mapping[str, int], now: float) -> IdleMemory:
    """So many cards are used and waited for now, by pool."""
    bucket = int(now // BUCKET_SECONDS)
    oldest = bucket - int(HISTORY_SECONDS // BUCKET_SECONDS)
    after: dict[str, tuple[Demanded, ...]] = {}
    for pool, number in cards.items():
        past = tuple(one for one in memory.demanded.get(pool, ()) if oldest < one.bucket <= bucket)
        if past and past[-1].bucket == bucket:
            number = max(number, past[-1].cards)  # noqa: PLW2901  (the most of this bucket)
            past = past[:-1]
        after[pool] = (*past, Demanded(bucket, number))
    return memory if after == memory.demanded else msgspec.structs.replace(memory, demanded=after)
