"""Deletion of namespaces: everything in a terminating namespace is deleted, then its finalizer is taken away."""

from typing import Any

from muster.simulator.controllers.work_queue import WorkQueue
from muster.simulator.errors import ApiError
from muster.simulator.store import Store
from muster.simulator.timers import Timers

Object = dict[str, Any]
RECHECK_SECONDS = 1.0


class Namespaces:
    """Empties and releases terminating namespaces."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._queue = WorkQueue[str](timers, self._sync)
        store.subscribe("namespaces", self._on_namespace)
        for namespace in store.list("namespaces"):
            self._on_namespace("ADDED", namespace, None)

    def _on_namespace(self, event: str, namespace: Object, _old: Object | None) -> None:
        if event != "DELETED" and "deletionTimestamp" in namespace["metadata"]:
            self._queue.add(namespace["metadata"]["name"])

    def _sync(self, name: str) -> None:
        namespace = self._store.find("namespaces", None, name)
        if namespace is None or "deletionTimestamp" not in namespace["metadata"]:
            return
        if self._empty(name):
            self._store.update(
                "namespaces", {**namespace, "spec": {**namespace["spec"], "finalizers": []}}, subresource="finalize"
            )
        else:
            self._queue.add_after(name, RECHECK_SECONDS)

    def _empty(self, name: str) -> bool:
        """Delete what is not being deleted yet; whether nothing is left."""
        left = False
        for resource_type in list(self._store.registry):
            if not resource_type.namespaced or not resource_type.stored:
                continue
            for obj in self._store.list(resource_type.key, name):
                metadata = obj["metadata"]
                if "deletionTimestamp" not in metadata:
                    self._delete(resource_type.key, name, metadata)
            left = left or bool(self._store.list(resource_type.key, name))
        return not left

    def _delete(self, resource: str, namespace: str, metadata: Object) -> None:
        try:
            self._store.delete(resource, namespace, metadata["name"], preconditions={"uid": metadata["uid"]})
        except ApiError as error:
            # Deleting one object may have removed the next.
            if error.code not in {404, 409}:
                raise
