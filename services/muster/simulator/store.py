"""The objects of the simulated cluster: create, read, update, patch, delete, bind, evict, and being told about writes.

    request ─► admission (namespace, defaults, priority, schema, validation) ─► one new resourceVersion
            ─► table + change log ─► watches (at once) ─► subscribers (queued, in write order)

One event loop, synchronous methods, one resourceVersion counter for everything. Stored objects are plain dicts that are
never changed in place: a caller that wants to edit what it got must copy it. Each is encoded to JSON once, when written.
A subscriber may write to the store: its write is done at once, its notification waits until the current one is over.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from muster.simulator import admission, deletion, pods
from muster.simulator.clock import Clock, RealClock, timestamp
from muster.simulator.definitions import CRD_KEY, established, resource_type_of
from muster.simulator.errors import (
    ApiError,
    JsonObject,
    already_exists,
    bad_request,
    invalid,
    invalid_value,
    not_found,
    required,
)
from muster.simulator.patching import MERGE_PATCH
from muster.simulator.resources import Registry, ResourceType, built_in_types
from muster.simulator.scaling import scale_of
from muster.simulator.transitions import (
    KEPT_BY_SERVER,
    apply_patch,
    check_finalizers,
    check_patch_type,
    check_preconditions,
    check_version,
    is_new_generation,
    next_state,
)
from muster.simulator.watching import ADDED, DELETED, MODIFIED, Change, Record, Selector, Table, Watch

__all__ = ["ApiError", "Change", "JsonObject", "Record", "Store", "private_copy"]

Subscriber = Callable[[str, JsonObject, JsonObject | None], None]

LOG_SIZE = 32_768
WATCH_CAPACITY = 16_384
SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def private_copy(obj: Mapping[str, Any]) -> JsonObject:
    """A deep copy of a JSON object."""
    copied: JsonObject = orjson.loads(orjson.dumps(obj))
    return copied


class Store:
    """All objects of one simulated cluster; see the module's model.

    `seed` makes uids and generated names repeatable; `log_size` is how many changes of one resource can be replayed;
    `watch_capacity` is how many events a watcher may fall behind.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        seed: int | None = None,
        log_size: int = LOG_SIZE,
        watch_capacity: int = WATCH_CAPACITY,
    ) -> None:
        self.clock: Clock = clock if clock is not None else RealClock()
        self.registry = Registry(built_in_types())
        self.version = 1
        self._random = random.Random(seed)  # noqa: S311 - names and uids of a simulation, not secrets
        self._log_size = log_size
        self._watch_capacity = watch_capacity
        self._tables: dict[str, Table] = {}
        self._subscribers: dict[str, list[Subscriber]] = {}
        self._untold: deque[tuple[str, Change]] = deque()
        self._telling = False
        for name in SYSTEM_NAMESPACES:
            self.create("namespaces", {"metadata": {"name": name}})
        for priority_class in admission.system_priority_classes():
            self.create("priorityclasses.scheduling.k8s.io", priority_class)

    # -- reading -------------------------------------------------------------------------------------------------

    def table(self, resource: str) -> Table:
        """The table of a resource; LookupError when the resource is not served."""
        self.registry.get(resource)
        found = self._tables.get(resource)
        if found is None:
            found = self._tables[resource] = Table(log_size=self._log_size)
        return found

    def record(self, resource_type: ResourceType, namespace: str | None, name: str) -> Record:
        """The current record; 404 when there is none."""
        found = self.table(resource_type.key).get((namespace or "", name))
        if found is None:
            raise not_found(resource_type.plural, name, group=resource_type.group)
        return found

    def get(self, resource: str, namespace: str | None, name: str) -> JsonObject:
        """The object (do not change it); ApiError 404."""
        return self.record(self.registry.get(resource), namespace, name).obj

    def find(self, resource: str, namespace: str | None, name: str) -> JsonObject | None:
        """The object, or None."""
        found = self.table(resource).get((namespace or "", name))
        return None if found is None else found.obj

    def list(self, resource: str, namespace: str | None = None) -> list[JsonObject]:
        """All objects, of one namespace when it is named, sorted by namespace and name."""
        return [record.obj for record in self.table(resource).records(namespace)]

    def objects(self, resource: str, namespace: str | None = None) -> Iterator[JsonObject]:
        """As `list`, without building one; the store must not be written to meanwhile."""
        return (record.obj for record in self.table(resource).records(namespace))

    # -- writing -------------------------------------------------------------------------------------------------

    def create(
        self, resource: str, obj: Mapping[str, Any], *, namespace: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """Admit and store a new object; ApiError 400, 403, 404 (namespace), 409, 422."""
        return self.create_owned(
            self.registry.get(resource), private_copy(obj), namespace=namespace, dry_run=dry_run
        ).obj

    def create_owned(
        self, resource_type: ResourceType, obj: JsonObject, *, namespace: str | None = None, dry_run: bool = False
    ) -> Record:
        """As `create`, for an object nobody else holds (it is changed)."""
        metadata = self._own_metadata(resource_type, obj, namespace)
        name = metadata.get("name")
        if not name:
            prefix = metadata.get("generateName")
            if not prefix:
                raise invalid(
                    resource_type.kind,
                    "",
                    group=resource_type.group,
                    errors=[required("metadata.name", "name or generateName is required")],
                )
            name = metadata["name"] = prefix + self._suffix()
        key = (metadata.get("namespace", ""), name)
        table = self.table(resource_type.key)
        now = self.clock.now()
        for field in (*KEPT_BY_SERVER, "resourceVersion", "selfLink", "managedFields"):
            metadata.pop(field, None)
        metadata["uid"] = self._uid()
        metadata["creationTimestamp"] = timestamp(now)
        if resource_type.generation or resource_type.custom:
            metadata["generation"] = 1
        admission.admit_create(resource_type, obj, store=self)
        if table.get(key) is not None:
            raise already_exists(resource_type.plural, name, group=resource_type.group)
        return self._commit(resource_type, ADDED, key, obj, old=None, dry_run=dry_run)

    def update(
        self, resource: str, obj: Mapping[str, Any], *, subresource: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """Replace an object (or its status, scale, finalizers); ApiError 404, 409 (stale resourceVersion or uid), 422."""
        return self.update_owned(
            self.registry.get(resource), private_copy(obj), subresource=subresource, dry_run=dry_run
        ).obj

    def update_owned(
        self,
        resource_type: ResourceType,
        obj: JsonObject,
        *,
        subresource: str | None = None,
        namespace: str | None = None,
        name: str | None = None,
        dry_run: bool = False,
    ) -> Record:
        """As `update`, for an object nobody else holds (it is changed)."""
        metadata = self._own_metadata(resource_type, obj, namespace)
        if name is not None and metadata.setdefault("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        old = self.record(resource_type, metadata.get("namespace"), metadata.get("name", ""))
        return self._replace(resource_type, obj, old=old, subresource=subresource, dry_run=dry_run)

    def patch(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        content_type: str = MERGE_PATCH,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """Apply a patch of any supported content type; ApiError as `update`, and 415."""
        return self.patch_owned(
            self.registry.get(resource),
            namespace,
            name,
            orjson.loads(orjson.dumps(body)),
            content_type=content_type,
            subresource=subresource,
            dry_run=dry_run,
        ).obj

    def patch_owned(
        self,
        resource_type: ResourceType,
        namespace: str | None,
        name: str,
        body: Any,
        *,
        content_type: str,
        subresource: str | None = None,
        dry_run: bool = False,
        inspect: Callable[[JsonObject], JsonObject] | None = None,
    ) -> Record:
        """As `patch`, for a body nobody else holds; `inspect` may refuse or clean the patched object."""
        check_patch_type(resource_type, content_type)
        old = self.record(resource_type, namespace, name)
        current = scale_of(resource_type, old.obj) if subresource == "scale" else old.obj
        patched = apply_patch(current, body, content_type=content_type)
        metadata = patched.get("metadata")
        if not isinstance(metadata, dict) or metadata.get("name") != name:
            raise bad_request("metadata.name: a patch must not change or remove the name")
        if (metadata.get("namespace") or "") != (namespace or ""):
            raise bad_request("metadata.namespace: a patch must not change the namespace")
        if metadata.get("uid") not in {None, "", old.obj["metadata"]["uid"]}:
            immutable = invalid_value("metadata.uid", metadata["uid"], detail="field is immutable")
            raise invalid(resource_type.kind, name, group=resource_type.group, errors=[immutable])
        if inspect is not None:
            patched = inspect(patched)
        return self._replace(resource_type, patched, old=old, subresource=subresource, dry_run=dry_run)

    def delete(
        self,
        resource: str,
        namespace: str | None,
        name: str,
        *,
        grace_period: int | None = None,
        preconditions: Mapping[str, str] | None = None,
        propagation: str = "Background",
        dry_run: bool = False,
    ) -> JsonObject:
        """Delete, or mark for deletion when a grace period or finalizers ask for it; ApiError 404, 409.

        Answers the object while it still exists (and for pods and namespaces always), else a success Status.
        """
        resource_type = self.registry.get(resource)
        old = self.record(resource_type, namespace, name)
        check_preconditions(resource_type, old, preconditions)
        return deletion.delete(
            self, resource_type, old, grace_period=grace_period, propagation=propagation, dry_run=dry_run
        )

    def bind(self, namespace: str, name: str, binding: Mapping[str, Any]) -> None:
        """POST pods/NAME/binding: give the pod its node and the Binding's annotations, atomically; ApiError 404, 409."""
        pods.bind(self, namespace, name, binding)

    def evict(self, namespace: str, name: str, eviction: Mapping[str, Any] | None = None) -> None:
        """POST pods/NAME/eviction (policy/v1): delete under the disruption budgets; ApiError 404, 409, 429."""
        pods.evict(self, namespace, name, eviction or {})

    # -- following -----------------------------------------------------------------------------------------------

    def subscribe(self, resource: str, callback: Subscriber) -> Callable[[], None]:
        """Call `callback(event_type, obj, old)` after each write to a resource; returns how to stop.

        Existing objects are not replayed. The resource need not be served yet (a CRD may come later).
        """
        callbacks = self._subscribers.setdefault(resource, [])
        callbacks.append(callback)
        return lambda: callbacks.remove(callback)

    def watch(self, resource: str, *, namespace: str | None = None, selector: Selector | None = None) -> Watch:
        """An open watch on a resource from now on; give it back with `unwatch`."""
        watch = Watch(namespace=namespace, selector=selector, capacity=self._watch_capacity)
        self.table(resource).watches.add(watch)
        return watch

    def unwatch(self, resource: str, watch: Watch) -> None:
        """Stop feeding a watch."""
        table = self._tables.get(resource)
        if table is not None:
            table.watches.discard(watch)

    def open_watches(self, resource: str | None = None) -> tuple[Watch, ...]:
        """The watches that are open, for tests and fault hooks."""
        return tuple(watch for key, table in self._tables.items() if resource in {None, key} for watch in table.watches)

    def compact(self, resource: str | None = None) -> None:
        """Forget the change log, so that every earlier resourceVersion is Expired."""
        for key, table in self._tables.items():
            if resource in {None, key}:
                table.compact()

    # -- shared with deletion and pods ---------------------------------------------------------------------------

    def commit_update(
        self, resource_type: ResourceType, old: Record, obj: JsonObject, *, dry_run: bool = False
    ) -> Record:
        """Store an already admitted new state of an object; a state equal to the old one is no write."""
        if obj == old.obj:
            return old
        return self._commit(resource_type, MODIFIED, _key(obj), obj, old=old, dry_run=dry_run)

    def commit_removal(self, resource_type: ResourceType, old: Record, *, dry_run: bool = False) -> Record:
        """Remove an object; the answer is its last state under the version of the removal."""
        removed = self._commit(resource_type, DELETED, _key(old.obj), dict(old.obj), old=old, dry_run=dry_run)
        if resource_type.key == CRD_KEY and not dry_run:
            self._withdraw(old.obj)
        return removed

    # -- inside --------------------------------------------------------------------------------------------------

    def _uid(self) -> str:
        bits = f"{self._random.getrandbits(128):032x}"
        return f"{bits[:8]}-{bits[8:12]}-4{bits[13:16]}-a{bits[17:20]}-{bits[20:]}"

    def _suffix(self) -> str:
        return "".join(self._random.choices(_SUFFIX_LETTERS, k=5))

    def _own_metadata(self, resource_type: ResourceType, obj: JsonObject, namespace: str | None) -> JsonObject:
        """The object's metadata with its namespace settled; apiVersion and kind are those of the stored type."""
        obj["apiVersion"] = resource_type.api_version
        obj["kind"] = resource_type.kind
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            if metadata is not None:
                raise bad_request(f"metadata: {metadata!r} must be an object")
            metadata = obj["metadata"] = {}
        if not resource_type.namespaced:
            metadata.pop("namespace", None)
            return metadata
        given = metadata.get("namespace")
        if namespace is not None and given and given != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = namespace or given or "default"
        return metadata

    def _replace(
        self, resource_type: ResourceType, obj: JsonObject, *, old: Record, subresource: str | None, dry_run: bool
    ) -> Record:
        check_version(resource_type, obj["metadata"], old.obj)
        new = next_state(resource_type, obj, old.obj, subresource=subresource)
        check_finalizers(resource_type, new, old.obj)
        new = admission.admit_update(resource_type, new, old.obj, subresource=subresource, store=self)
        new_metadata = new["metadata"]
        if "generation" in new_metadata and is_new_generation(resource_type, new, old.obj):
            new_metadata["generation"] += 1
        if deletion.finished(resource_type, new):
            return self.commit_removal(resource_type, old, dry_run=dry_run)
        return self.commit_update(resource_type, old, new, dry_run=dry_run)

    def _commit(
        self,
        resource_type: ResourceType,
        event_type: str,
        key: tuple[str, str],
        obj: JsonObject,
        *,
        old: Record | None,
        dry_run: bool,
    ) -> Record:
        """Give the object the next version, store it and tell everyone. `obj` and its metadata become the store's."""
        if event_type == ADDED and resource_type.key == CRD_KEY:
            established(obj, now=self.clock.now())
        version = self.version if dry_run else self.version + 1
        # Kind and apiVersion lead, as the real server writes them: lists of built-in kinds cut them off.
        obj = {"kind": resource_type.kind, "apiVersion": resource_type.api_version, "metadata": None, **obj}
        metadata = obj["metadata"] = dict(obj["metadata"])
        if not (dry_run and event_type == ADDED):
            metadata["resourceVersion"] = str(version)
        record = Record(obj, orjson.dumps(obj), version)
        if dry_run:
            return record
        if resource_type.key == CRD_KEY and event_type != DELETED:
            self._serve(obj, version)
        self.version = version
        change = Change(event_type, key, record, old=old)
        self.table(resource_type.key).apply(change)
        if resource_type.key in self._subscribers:
            self._untold.append((resource_type.key, change))
            self._tell()
        return record

    def _tell(self) -> None:
        if self._telling:
            return
        self._telling = True
        failures: list[Exception] = []
        try:
            while self._untold:
                resource, change = self._untold.popleft()
                for callback in tuple(self._subscribers.get(resource, ())):
                    try:
                        callback(change.type, change.record.obj, change.old.obj if change.old is not None else None)
                    except Exception as failure:  # noqa: BLE001 - the others must still be told; raised below
                        failures.append(failure)
        finally:
            self._telling = False
        if failures:
            raise ExceptionGroup("subscribers of the store failed", failures)

    def _serve(self, definition: JsonObject, version: int) -> None:
        served = resource_type_of(definition)
        known = self.registry.has(served.key)
        self.registry.add(served)
        if not known:
            self.table(served.key).begin(version)

    def _withdraw(self, definition: JsonObject) -> None:
        key = resource_type_of(definition).key
        table = self.table(key)
        resource_type = self.registry.get(key)
        for record in list(table.records()):
            self.commit_removal(resource_type, record)
        for watch in table.watches:
            watch.close("withdrawn")
        self.registry.remove(key)


def _key(obj: JsonObject) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
