"""Events (core/v1) as the components of a cluster record them; only what goes wrong is recorded, to keep the store small."""

import itertools
from collections.abc import Mapping
from typing import Any

from muster.simulator.clock import timestamp
from muster.simulator.errors import ApiError
from muster.simulator.store import Store


class Recorder:
    """Records Events in the name of one component."""

    def __init__(self, store: Store, component: str) -> None:
        self._store = store
        self._component = component
        self._numbers = itertools.count(1)

    def warning(self, involved: Mapping[str, Any], reason: str, *, message: str, host: str = "") -> None:
        """One Warning about an object; nothing when its namespace is going away."""
        metadata = involved["metadata"]
        namespace = metadata.get("namespace", "default")
        now = timestamp(self._store.clock.now())
        reference = {
            "apiVersion": involved.get("apiVersion", "v1"),
            "kind": involved.get("kind", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        }
        if "namespace" in metadata:
            reference["namespace"] = namespace
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata['name']}.{self._component}.{next(self._numbers):x}",
                "namespace": namespace,
            },
            "involvedObject": reference,
            "reason": reason,
            "message": message,
            "type": "Warning",
            "count": 1,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "source": {"component": self._component, **({"host": host} if host else {})},
            "reportingComponent": self._component,
            "reportingInstance": host or self._component,
        }
        try:
            self._store.create("events", event, namespace=namespace)
        except ApiError as error:
            # As in a real cluster, an Event about something in a vanishing namespace is lost.
            if error.code not in {403, 404}:
                raise
