"""Tables of objects, the bounded log of their changes, and the watches that follow it.

    write ──► Change(version, old record, new record) ──► log of the resource (bounded) ──► every open Watch

An object is kept as a dict together with its JSON, encoded once; a change encodes its watch event once and every
watcher sends the same bytes. A watch that starts at an old version replays the log; when that part of the log is gone
it is told 410. The state at an earlier version is the present state with the logged changes taken back, which makes
paged lists consistent. A watcher that does not read is closed when its buffer is full, with no ERROR event.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from muster.simulator.errors import ApiError, expired

JsonObject = dict[str, Any]
Selector = Callable[[JsonObject], bool]
Key = tuple[str, str]

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"
ERROR_START = b'{"type":"ERROR"'


class Record:
    """One version of one object: the dict (never changed in place), its JSON and its resourceVersion."""

    __slots__ = ("obj", "raw", "version")

    def __init__(self, obj: JsonObject, raw: bytes, version: int) -> None:
        self.obj = obj
        self.raw = raw
        self.version = version

    def item(self) -> bytes:
        """The JSON as a list of a built-in kind shows it: without the leading kind and apiVersion."""
        return b"{" + self.raw[self.raw.index(b',"metadata":') + 1 :]


class Change:
    """One write: `record` is the new state (for DELETED the last one, with the version of the deletion)."""

    __slots__ = ("_encoded", "key", "old", "record", "type", "version")

    def __init__(self, kind: str, key: Key, record: Record, *, old: Record | None) -> None:
        self.type = kind
        self.key = key
        self.record = record
        self.old = old
        self.version = record.version
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        """The watch event as one line."""
        if self._encoded is None:
            self._encoded = watch_line(self.type, self.record.raw)
        return self._encoded

    def seen_through(self, selector: Selector | None) -> str | None:
        """The event type for a watcher with a selector; None when neither the old nor the new state matches."""
        if selector is None:
            return self.type
        before = self.old is not None and selector(self.old.obj)
        after = self.type != DELETED and selector(self.record.obj)
        if after:
            return MODIFIED if before else ADDED
        return DELETED if before else None

    def shown(self, event_type: str) -> Record:
        """What an event carries: for an object that left a selector, its last matching state under this version."""
        if event_type != DELETED or self.type == DELETED or self.old is None:
            return self.record
        left = {**self.old.obj, "metadata": {**self.old.obj["metadata"], "resourceVersion": str(self.version)}}
        return Record(left, orjson.dumps(left), self.version)


def watch_line(event_type: str, raw: bytes) -> bytes:
    """One event of a watch stream."""
    return b'{"type":"' + event_type.encode() + b'","object":' + raw + b"}\n"


def error_line(error: ApiError) -> bytes:
    """An in-stream ERROR event."""
    return watch_line("ERROR", orjson.dumps(error.status()))


class Watch:
    """A bounded buffer between the store and one watching client; `closed` tells why nothing more will come."""

    __slots__ = ("_capacity", "_wake", "changes", "closed", "final", "namespace", "selector")

    def __init__(self, *, namespace: str | None, selector: Selector | None, capacity: int) -> None:
        self.namespace = namespace
        self.selector = selector
        self.changes: deque[Change] = deque()
        self.closed: str | None = None
        self.final: bytes = b""
        self._capacity = capacity
        self._wake = asyncio.Event()

    def offer(self, change: Change) -> None:
        """Take a change, or close when the client has not kept up."""
        if self.closed is not None or (self.namespace is not None and change.key[0] != self.namespace):
            return
        if len(self.changes) >= self._capacity:
            self.close("slow")
            return
        self.changes.append(change)
        self._wake.set()

    def close(self, reason: str, *, final: bytes = b"") -> None:
        """End the stream: what is buffered is dropped, `final` (an ERROR line or nothing) is the last thing sent."""
        if self.closed is None:
            self.closed = reason
            self.final = final
            self.changes.clear()
            self._wake.set()

    def take(self) -> list[Change]:
        """Everything buffered, in order."""
        taken = list(self.changes)
        self.changes.clear()
        self._wake.clear()
        return taken

    async def wait(self, seconds: float) -> None:
        """Return when there is something to take or the watch was closed; TimeoutError after `seconds` (real time)."""
        async with asyncio.timeout(seconds):
            await self._wake.wait()


class Table:
    """All objects of one resource by namespace and name, their change log, and who watches them."""

    def __init__(self, *, log_size: int) -> None:
        self._namespaces: dict[str, dict[str, Record]] = {}
        self._orders: dict[str, list[str]] = {}
        self.log: deque[Change] = deque()
        self._log_size = log_size
        self.compacted = 0
        self.watches: set[Watch] = set()

    def get(self, key: Key) -> Record | None:
        """The current record of (namespace, name)."""
        names = self._namespaces.get(key[0])
        return None if names is None else names.get(key[1])

    def records(self, namespace: str | None = None) -> Iterator[Record]:
        """Current records in key order."""
        for found in [namespace] if namespace is not None else sorted(self._namespaces):
            names = self._namespaces.get(found)
            if names is None:
                continue
            order = self._orders.get(found)
            if order is None:
                order = self._orders[found] = sorted(names)
            for name in order:
                yield names[name]

    def count(self) -> int:
        """How many objects there are."""
        return sum(map(len, self._namespaces.values()))

    def apply(self, change: Change) -> None:
        """Make a change current, log it and hand it to the watchers."""
        namespace, name = change.key
        if change.type == DELETED:
            names = self._namespaces[namespace]
            del names[name]
            self._orders.pop(namespace, None)
            if not names:
                del self._namespaces[namespace]
        else:
            names = self._namespaces.setdefault(namespace, {})
            if name not in names:
                self._orders.pop(namespace, None)
            names[name] = change.record
        self.log.append(change)
        if len(self.log) > self._log_size:
            self.compacted = self.log.popleft().version
        for watch in self.watches:
            watch.offer(change)

    def begin(self, version: int) -> None:
        """Start the history at a version: a kind has none from before its definition."""
        self.log.clear()
        self.compacted = version

    def compact(self) -> None:
        """Forget the whole log: every older resourceVersion is Expired from now on."""
        if self.log:
            self.compacted = self.log[-1].version
            self.log.clear()

    def since(self, version: int) -> list[Change]:
        """Changes after `version`, oldest first; 410 when the log no longer reaches back that far."""
        self.check_reach(version)
        newer: list[Change] = []
        for change in reversed(self.log):
            if change.version <= version:
                break
            newer.append(change)
        newer.reverse()
        return newer

    def check_reach(self, version: int) -> None:
        """410 when `version` is older than the log."""
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted + 1})")

    def records_at(self, version: int, namespace: str | None) -> list[Record]:
        """The records as they were at `version`, in key order; 410 when that is too long ago."""
        undone = self.since(version)
        if not undone:
            return list(self.records(namespace))
        state: dict[Key, Record] = {}
        for space, names in self._namespaces.items():
            if namespace is None or space == namespace:
                state.update(((space, name), record) for name, record in names.items())
        for change in reversed(undone):
            if namespace is not None and change.key[0] != namespace:
                continue
            if change.old is None:
                state.pop(change.key, None)
            else:
                state[change.key] = change.old
        return [state[key] for key in sorted(state)]
