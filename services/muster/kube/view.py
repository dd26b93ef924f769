"""What is known of a kind, and what a list or a watch event changes in it. Pure: no waiting, no connection.

The view keeps a uid and a resourceVersion per key, never an object, and answers with the changes to pass on:

    replaced(items)  a list is the truth: what it lacks was deleted, what differs was changed
    upserted(object) a new uid under a known name is a delete and an add; a version already seen is nothing
    removed(object)  counts only for the uid that is known

Whoever applies the changes in order has exactly the server's objects.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from muster.kube.decoding import KindInfo, Object


class Listed(msgspec.Struct, frozen=True):
    """The first list: replace whatever was known of this kind."""

    kind: KindInfo[Any]
    items: list[Any]
    resource_version: str


class Changed(msgspec.Struct, frozen=True, gc=False):
    """The object is new (`old_resource_version` is None) or differs from what was known."""

    kind: KindInfo[Any]
    object: Any
    old_resource_version: str | None = None


class Deleted(msgspec.Struct, frozen=True, gc=False):
    """The object of this key and uid is gone. `object` is its last state, or None when a list told of it.

    `resource_version` is that of the deletion, or of the list.
    """

    kind: KindInfo[Any]
    key: str
    uid: str
    resource_version: str
    object: Any = None


class Fresh(msgspec.Struct, frozen=True, gc=False):
    """Every change up to this resourceVersion has been passed on."""

    kind: KindInfo[Any]
    resource_version: str


class Unserved(msgspec.Struct, frozen=True, gc=False):
    """The kind cannot be read for now. `cause` is missing (not installed) or forbidden; `message` is the server's."""

    kind: KindInfo[Any]
    cause: str
    message: str


Change = Listed | Changed | Deleted | Fresh | Unserved


class Known(msgspec.Struct, frozen=True, gc=False):
    """What is remembered of one object."""

    uid: str
    resource_version: str


class View:
    """The known objects of one kind."""

    def __init__(self, info: KindInfo[Any]) -> None:
        self._info = info
        self._known: dict[str, Known] = {}

    @property
    def known(self) -> Mapping[str, Known]:
        """By key; read-only."""
        return MappingProxyType(self._known)

    def loaded(self, items: list[Any], *, resource_version: str) -> list[Change]:
        """Take the first list."""
        self._known = {item.metadata.key: _known(item) for item in items}
        return [Listed(self._info, items, resource_version)]

    def replaced(self, items: list[Any], *, resource_version: str, keep: Iterable[str] = ()) -> list[Change]:
        """Take a later list. Keys in `keep` (objects that could not be decoded) stay as they are known."""
        listed = {item.metadata.key: item for item in items}
        kept = set(keep)
        changes: list[Change] = []
        for key, known in list(self._known.items()):
            item = listed.get(key)
            gone = item is None and key not in kept
            if gone or (item is not None and item.metadata.uid != known.uid):
                del self._known[key]
                changes.append(Deleted(self._info, key, known.uid, resource_version))
        for key, item in listed.items():
            before = self._known.get(key)
            if before is None or before.resource_version != item.metadata.resource_version:
                self._known[key] = _known(item)
                changes.append(Changed(self._info, item, None if before is None else before.resource_version))
        return changes

    def upserted(self, item: Object) -> list[Change]:
        """Take an ADDED or MODIFIED event."""
        metadata = item.metadata
        key = metadata.key
        before = self._known.get(key)
        if before is not None and before.uid == metadata.uid:
            if not is_newer(metadata.resource_version, before.resource_version):
                return []
            self._known[key] = _known(item)
            return [Changed(self._info, item, before.resource_version)]
        self._known[key] = _known(item)
        added = Changed(self._info, item)
        if before is None:
            return [added]
        return [Deleted(self._info, key, before.uid, metadata.resource_version), added]

    def removed(self, item: Object) -> list[Change]:
        """Take a DELETED event."""
        metadata = item.metadata
        key = metadata.key
        before = self._known.get(key)
        if before is None or before.uid != metadata.uid:
            return []
        del self._known[key]
        return [Deleted(self._info, key, before.uid, metadata.resource_version, item)]


def _known(item: Object) -> Known:
    return Known(item.metadata.uid, item.metadata.resource_version)


def is_newer(version: str, than: str) -> bool:
    """Whether a version is later. Versions of one resource compare as numbers; others only as different."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
