"""Versions of one stored object: the same JSON under another apiVersion, and events under events.k8s.io/v1.

Core v1 events are what is stored; events.k8s.io/v1 shows the same objects with its own field names.
"""

from typing import Any

import orjson

from muster.simulator.resources import Registry, ResourceType
from muster.simulator.watching import Record

JsonObject = dict[str, Any]
NEW_EVENTS = "events.events.k8s.io"

_RENAMED = (
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
)


def to_new_event(event: JsonObject) -> JsonObject:
    """A core event as events.k8s.io/v1 shows it."""
    shown = dict(event)
    for core, new in _RENAMED:
        if core in shown:
            shown[new] = shown.pop(core)
    shown["apiVersion"] = "events.k8s.io/v1"
    return shown


def to_core_event(event: JsonObject) -> JsonObject:
    """An events.k8s.io/v1 event as it is stored."""
    kept = dict(event)
    for core, new in _RENAMED:
        if new in kept:
            kept[core] = kept.pop(new)
    kept["apiVersion"] = "v1"
    return kept


class View:
    """How the stored objects of a type look in one served version."""

    def __init__(self, resource_type: ResourceType, version: str, registry: Registry) -> None:
        self.shown = resource_type
        self.stored = registry.get("events") if resource_type.key == NEW_EVENTS else resource_type
        self.api_version = resource_type.api_version_of(version)
        self.identical = self.stored is resource_type and version == resource_type.storage_version

    def show(self, obj: JsonObject) -> JsonObject:
        """A stored object as the client of this version sees it."""
        if self.identical:
            return obj
        if self.shown.key == NEW_EVENTS:
            return to_new_event(obj)
        return {**obj, "apiVersion": self.api_version}

    def raw(self, record: Record) -> bytes:
        """The JSON of a record in this version."""
        return record.raw if self.identical else orjson.dumps(self.show(record.obj))

    def item(self, record: Record) -> bytes:
        """The JSON of a record inside a list; items of built-in kinds carry no kind and apiVersion."""
        return record.item() if self.identical and not self.stored.custom else self.raw(record)

    def keep(self, obj: JsonObject) -> JsonObject:
        """What a client of this version sent, as it is stored."""
        return to_core_event(obj) if self.shown.key == NEW_EVENTS else obj
