"""Garbage collection by owner references: background, foreground and orphan deletion.

    owner gone                     dependents whose owners are all gone are deleted; others lose the dangling reference
    owner has foregroundDeletion   dependents are deleted first; the finalizer goes when no blocking one is left
    owner has orphan               dependents lose the reference; then the finalizer goes

The graph (owner uid → dependents) is kept from what the store tells about every resource, CRDs that come later included.
"""

from collections.abc import Mapping
from typing import Any

from muster.simulator.controllers.work_queue import WorkQueue
from muster.simulator.errors import ApiError
from muster.simulator.resources import ResourceType
from muster.simulator.store import Store
from muster.simulator.timers import Timers

Object = dict[str, Any]
Reference = tuple[str, str, str]
"""(resource key, namespace or '', name)."""
FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class GarbageCollector:
    """Follows every resource of the store; see the module's model."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._dependents: dict[str, set[Reference]] = {}
        self._followed: set[str] = set()
        self._kinds: dict[tuple[str, str], ResourceType] = {}
        self._revision = -1
        self._orphans = WorkQueue[Reference](timers, self._collect)
        self._owners = WorkQueue[Reference](timers, self._release)
        self._follow_all()
        store.subscribe(CRDS, lambda *_: self._follow_all())

    # -- the graph -------------------------------------------------------------------------------------------------

    def _follow_all(self) -> None:
        for resource_type in list(self._store.registry):
            key = resource_type.key
            # Events are never owned and are too many to look at.
            if key in self._followed or not resource_type.stored or key == "events":
                continue
            self._followed.add(key)
            self._store.subscribe(key, self._follower(key))
            for obj in self._store.list(key):
                self._seen(key, obj, None)

    def _follower(self, key: str) -> Any:
        def follow(event: str, obj: Object, old: Object | None) -> None:
            if event == "DELETED":
                self._removed(key, obj)
            else:
                self._seen(key, obj, old)

        return follow

    def _seen(self, key: str, obj: Object, old: Object | None) -> None:
        metadata = obj["metadata"]
        owners = metadata.get("ownerReferences") or ()
        before = (old["metadata"].get("ownerReferences") or ()) if old is not None else ()
        if owners != before:
            reference = _reference(key, obj)
            for gone in {owner["uid"] for owner in before} - {owner["uid"] for owner in owners}:
                self._forget(gone, reference)
            for owner in owners:
                self._dependents.setdefault(owner["uid"], set()).add(reference)
            if any(self._owner(owner, metadata.get("namespace", "")) is None for owner in owners):
                self._orphans.add(reference)
        if "deletionTimestamp" in metadata and not {FOREGROUND, ORPHAN}.isdisjoint(metadata.get("finalizers") or ()):
            self._owners.add(_reference(key, obj))

    def _removed(self, key: str, obj: Object) -> None:
        metadata = obj["metadata"]
        reference = _reference(key, obj)
        for owner in metadata.get("ownerReferences") or ():
            self._forget(owner["uid"], reference)
            found = self._owner(owner, metadata.get("namespace", ""))
            if found is not None and _waits_in_foreground(found[1]):
                self._owners.add(found[0])
        for dependent in sorted(self._dependents.get(metadata["uid"], ())):
            self._orphans.add(dependent)

    def _forget(self, owner_uid: str, dependent: Reference) -> None:
        dependents = self._dependents.get(owner_uid)
        if dependents is not None:
            dependents.discard(dependent)
            if not dependents:
                del self._dependents[owner_uid]

    def _owner(self, owner: Mapping[str, Any], namespace: str) -> tuple[Reference, Object] | None:
        """The owner as it is now; None when it is gone. An unknown kind counts as gone only if its uid is known nowhere."""
        resource_type = self._kind(owner["apiVersion"], owner["kind"])
        if resource_type is None:
            return None
        where = namespace if resource_type.namespaced else ""
        obj = self._store.find(resource_type.key, where, owner["name"])
        if obj is None or obj["metadata"]["uid"] != owner["uid"]:
            return None
        return (resource_type.key, where, owner["name"]), obj

    def _kind(self, api_version: str, kind: str) -> ResourceType | None:
        if self._revision != self._store.registry.revision:
            self._revision = self._store.registry.revision
            self._kinds = {(each.group, each.kind): each for each in self._store.registry if each.stored}
        group, slash, _ = api_version.rpartition("/")
        return self._kinds.get((group if slash else "", kind))

    # -- acting ----------------------------------------------------------------------------------------------------

    def _collect(self, reference: Reference) -> None:
        """Delete a dependent nobody owns any more, or take away references that lead nowhere."""
        obj = self._find(reference)
        if obj is None or "deletionTimestamp" in obj["metadata"]:
            return
        metadata = obj["metadata"]
        owners = metadata.get("ownerReferences") or ()
        solid, waiting = [], False
        for owner in owners:
            if self._kind(owner["apiVersion"], owner["kind"]) is None:
                # A kind that is not served may come back: as the real collector, wait rather than delete.
                solid.append(owner)
                continue
            found = self._owner(owner, metadata.get("namespace", ""))
            if found is None:
                continue
            if _waits_in_foreground(found[1]) and owner.get("blockOwnerDeletion"):
                waiting = True
            else:
                solid.append(owner)
        if solid:
            if len(solid) < len(owners):
                self._patch(reference, {"ownerReferences": solid})
            return
        if not owners:
            return
        finalizers = metadata.get("finalizers") or ()
        foreground = FOREGROUND in finalizers or (waiting and bool(self._dependents.get(metadata["uid"])))
        propagation = "Orphan" if ORPHAN in finalizers else "Foreground" if foreground else "Background"
        try:
            self._store.delete(
                reference[0],
                reference[1] or None,
                reference[2],
                propagation=propagation,
                preconditions={"uid": metadata["uid"]},
            )
        except ApiError as error:
            # Somebody else deleted it first, and perhaps made another of the same name.
            if error.code not in {404, 409}:
                raise

    def _release(self, reference: Reference) -> None:
        """Do for an owner that is being deleted what its finalizer waits for."""
        obj = self._find(reference)
        if obj is None or "deletionTimestamp" not in obj["metadata"]:
            return
        metadata = obj["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        dependents = sorted(self._dependents.get(metadata["uid"], ()))
        if ORPHAN in finalizers:
            for dependent in dependents:
                self._disown(dependent, metadata["uid"])
            self._patch(reference, {"finalizers": [each for each in finalizers if each != ORPHAN]})
        elif FOREGROUND in finalizers:
            blocking = False
            for dependent in dependents:
                found = self._find(dependent)
                if found is None:
                    continue
                blocking = blocking or _blocks(found, metadata["uid"])
                self._orphans.add(dependent)
            if not blocking:
                self._patch(reference, {"finalizers": [each for each in finalizers if each != FOREGROUND]})

    def _disown(self, dependent: Reference, owner_uid: str) -> None:
        obj = self._find(dependent)
        if obj is not None:
            owners = [owner for owner in obj["metadata"].get("ownerReferences") or () if owner["uid"] != owner_uid]
            self._patch(dependent, {"ownerReferences": owners})

    def _find(self, reference: Reference) -> Object | None:
        key, namespace, name = reference
        return self._store.find(key, namespace or None, name) if self._store.registry.has(key) else None

    def _patch(self, reference: Reference, metadata: Object) -> None:
        key, namespace, name = reference
        self._store.patch(key, namespace or None, name, {"metadata": metadata})


def _reference(key: str, obj: Mapping[str, Any]) -> Reference:
    metadata = obj["metadata"]
    return key, metadata.get("namespace", ""), metadata["name"]


def _waits_in_foreground(owner: Mapping[str, Any]) -> bool:
    metadata = owner["metadata"]
    return "deletionTimestamp" in metadata and FOREGROUND in (metadata.get("finalizers") or ())


def _blocks(dependent: Mapping[str, Any], owner_uid: str) -> bool:
    return any(
        owner["uid"] == owner_uid and owner.get("blockOwnerDeletion")
        for owner in dependent["metadata"].get("ownerReferences") or ()
    )
