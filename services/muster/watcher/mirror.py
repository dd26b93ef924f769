"""What STATE holds, as short digests, and what must be published so that it holds what Kubernetes shows.

    loaded(stored)           after a take-over or a reload: what STATE says
    changed, deleted         one object
    listed(kind, objects)    a whole kind: objects that differ, tombstones for keys that are gone

What a stray message overwrote is unknown: it is published again whatever it is, a tombstone when it is gone.
Pure: it gives publications and never sends them. The digests move on with what it gives, so it must be loaded anew when
a publication was refused.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from muster.bus.messages import StateKind
from muster.bus.state_publishing import Place, Publication, Stored
from muster.watcher.kinds import Watched

_encoder = msgspec.json.Encoder()
OWN: frozenset[StateKind] = frozenset({"clock", "epoch"})
UNKNOWN = b""
"""In the place of a digest: readers may show anything."""


class Skipped(msgspec.Struct, frozen=True):
    """An object that could not be projected; STATE keeps what it holds of it."""

    kind: str
    key: str
    error: str


def fingerprint(encoded: bytes) -> bytes:
    """A short digest of what readers would see."""
    return hashlib.blake2b(encoded, digest_size=16).digest()


def without_version(projected: msgspec.Struct) -> bytes:
    """An object encoded as if it had no resourceVersion."""
    return _encoder.encode(msgspec.structs.replace(projected, resource_version=""))


class Mirror:
    """Digests by place; see the module."""

    def __init__(self, kinds: Iterable[Watched]) -> None:
        """Nothing is held yet."""
        self._ignored = {kind.state_kind for kind in kinds if kind.ignore_version}
        self._held: dict[Place, bytes] = {}
        self.skipped: list[Skipped] = []
        """Objects that could not be projected since this was last emptied."""

    @property
    def unknown(self) -> bool:
        """Something that a stray message overwrote was not given for publication yet."""
        return any(held == UNKNOWN for held in self._held.values())

    def loaded(self, stored: Mapping[Place, Stored]) -> None:
        """Take over what STATE holds; what is unknown or could not be read there is published anew."""
        self._held = {
            place: self._digest(found) for place, found in stored.items() if not found.gone and place[0] not in OWN
        }

    def _digest(self, found: Stored) -> bytes:
        if found.unknown or found.kind not in self._ignored:
            return UNKNOWN if found.unknown else fingerprint(found.raw)
        projected = found.object
        return UNKNOWN if projected is None else fingerprint(without_version(projected))

    def changed(self, kind: Watched, raw: Any) -> tuple[Publication, ...]:
        """An object is new or differs; () when readers would see no difference."""
        key = kind.key(raw.metadata.key)
        try:
            projected = kind.project(raw)
        except Exception as error:  # noqa: BLE001  (whatever is odd about one object must not hide the others)
            self.skipped.append(Skipped(kind=kind.name, key=key, error=f"{type(error).__name__}: {error}"))
            return ()
        place = (kind.state_kind, key)
        digest = fingerprint(without_version(projected) if kind.ignore_version else _encoder.encode(projected))
        if self._held.get(place) == digest:
            return ()
        self._held[place] = digest
        version = raw.metadata.resource_version
        return (Publication(kind=kind.state_kind, key=key, object=projected, resource_version=version),)

    def deleted(self, kind: Watched, key: str, resource_version: str) -> tuple[Publication, ...]:
        """An object is gone; () when STATE does not hold it."""
        place = (kind.state_kind, kind.key(key))
        if self._held.pop(place, None) is None:
            return ()
        return (Publication(kind=place[0], key=place[1], object=None, resource_version=resource_version),)

    def listed(self, kind: Watched, items: Iterable[Any], resource_version: str) -> tuple[Publication, ...]:
        """A whole kind as it is now."""
        publications: list[Publication] = []
        there = set()
        for raw in items:
            there.add(kind.key(raw.metadata.key))
            publications += self.changed(kind, raw)
        gone = [
            key
            for state_kind, key in self._held
            if state_kind == kind.state_kind and key.startswith(kind.prefix) and key not in there
        ]
        for key in sorted(gone):
            publications += self.deleted(kind, key.removeprefix(kind.prefix), resource_version)
        return tuple(publications)

    def forget(self, kind: StateKind, key: str) -> None:
        """A publication was not sent (too large): STATE holds an older version, or none."""
        self._held[kind, key] = UNKNOWN

    def __len__(self) -> int:
        """Objects held."""
        return len(self._held)
