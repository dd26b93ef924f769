"""Kubernetes Events for people (`kubectl describe`): recorded without waiting, aggregated, rate-limited.

    record() ──► waiting, by (object, type, reason, message) ──► one task, a token bucket ──► create, or patch the count

Saying the same of the same object again only raises a count. When too many different things wait, the newest are
dropped and counted: Events inform, they never hold up a decision.
"""

import asyncio
import hashlib
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from muster.kube.decoding import KINDS, KindInfo, ObjectMeta
from muster.kube.errors import AlreadyExists, KubeError, NotFound
from muster.kube.timing import SystemTiming, Timing
from muster.kube.transport import Transport

EventType = Literal["Normal", "Warning"]
_EVENTS = KINDS["events"]
_MAXIMUM_MESSAGE = 1024
_MAXIMUM_NAME = 253


class ObjectReference(msgspec.Struct, frozen=True):
    """The object an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""


def reference_to(kind: KindInfo[Any], metadata: ObjectMeta) -> ObjectReference:
    """A reference to a decoded object."""
    return ObjectReference(
        api_version=kind.api_version,
        kind=kind.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


class RecorderLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Rates per second, sizes in entries, times in seconds."""

    rate: float = 10.0
    burst: int = 50
    waiting: int = 1000
    remembered: int = 4096
    write_timeout: float = 5.0
    closing_timeout: float = 2.0


_Key = tuple[str, str, str, str, str, str, str]


class _Pending(msgspec.Struct):
    regarding: ObjectReference
    type: EventType
    reason: str
    message: str
    first: float
    last: float
    count: int = 1


class _Recorded(msgspec.Struct):
    name: str
    namespace: str
    count: int


class EventRecorder:
    """Writes Events in the background. `close` writes what waits, for a bounded time."""

    def __init__(
        self,
        transport: Transport,
        *,
        component: str,
        instance: str = "",
        limits: RecorderLimits | None = None,
        timing: Timing | None = None,
    ) -> None:
        self._transport = transport
        self._component = component
        self._instance = instance or component
        self._limits = limits or RecorderLimits()
        self._timing: Timing = timing or SystemTiming()
        self._waiting: OrderedDict[_Key, _Pending] = OrderedDict()
        self._recorded: OrderedDict[_Key, _Recorded] = OrderedDict()
        self._in_flight = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._tokens = float(self._limits.burst)
        self._filled_at = self._timing.monotonic()
        self.dropped = 0
        """How many calls of `record` were given up because too many waited."""
        self.failed = 0
        """How many Events the API server refused or did not answer for."""

    def record(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        message: str,
        type: EventType = "Normal",  # noqa: A002
    ) -> None:
        """Take a note; returns at once. Needs a running event loop. Messages are cut at 1,024 characters."""
        if len(message) > _MAXIMUM_MESSAGE:
            message = message[: _MAXIMUM_MESSAGE - 1] + "…"
        key: _Key = (
            regarding.kind,
            regarding.namespace,
            regarding.name,
            regarding.uid,
            type,
            reason,
            message,
        )
        now = self._timing.wall()
        pending = self._waiting.get(key)
        if pending is not None:
            pending.count += 1
            pending.last = now
        elif len(self._waiting) >= self._limits.waiting:
            self.dropped += 1
            return
        else:
            self._waiting[key] = _Pending(regarding, type, reason, message, first=now, last=now)
        self._idle.clear()
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all(), name="kubernetes-events")

    async def drained(self) -> None:
        """Wait until nothing waits to be written."""
        await self._idle.wait()

    async def close(self) -> None:
        """Write what waits, at most `closing_timeout` seconds long, and end the task."""
        if self._task is None:
            return
        try:
            async with asyncio.timeout(self._limits.closing_timeout):
                await self.drained()
        except TimeoutError:
            self.dropped += self._in_flight + sum(pending.count for pending in self._waiting.values())
            self._waiting.clear()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None

    async def _write_all(self) -> None:
        while True:
            await self._wake.wait()
            while self._waiting:
                await self._take_token()
                key, pending = self._waiting.popitem(last=False)
                self._in_flight = pending.count
                try:
                    await self._write(key, pending)
                    self._in_flight = 0
                except KubeError:
                    # Events are a courtesy: a failure is counted for the metrics and not retried.
                    self.failed += 1
                    self._in_flight = 0
            self._wake.clear()
            self._idle.set()

    async def _take_token(self) -> None:
        while True:
            now = self._timing.monotonic()
            grown = self._tokens + (now - self._filled_at) * self._limits.rate
            self._tokens = min(float(self._limits.burst), grown)
            self._filled_at = now
            if self._tokens >= 1.0:
                self._tokens -= 1.0
                return
            await self._timing.sleep((1.0 - self._tokens) / self._limits.rate)

    async def _write(self, key: _Key, pending: _Pending) -> None:
        earlier = self._recorded.get(key)
        if earlier is not None:
            try:
                await self._patch_count(earlier, pending)
            except NotFound:
                # Events expire after an hour; then the count begins anew.
                del self._recorded[key]
            else:
                self._recorded.move_to_end(key)
                return
        recorded = await self._create(key, pending)
        self._recorded[key] = recorded
        while len(self._recorded) > self._limits.remembered:
            self._recorded.popitem(last=False)

    async def _patch_count(self, earlier: _Recorded, pending: _Pending) -> None:
        count = earlier.count + pending.count
        await self._transport.request(
            "PATCH",
            _EVENTS.path(earlier.namespace, earlier.name),
            body={"count": count, "lastTimestamp": _timestamp(pending.last), "message": pending.message},
            content_type="application/merge-patch+json",
            timeout_seconds=self._limits.write_timeout,
        )
        earlier.count = count

    async def _create(self, key: _Key, pending: _Pending) -> _Recorded:
        regarding = pending.regarding
        namespace = regarding.namespace or "default"
        name = self._name(key, pending)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "namespace": regarding.namespace,
                "name": regarding.name,
                "uid": regarding.uid,
                "resourceVersion": regarding.resource_version,
            },
            "type": pending.type,
            "reason": pending.reason,
            "message": pending.message,
            "count": pending.count,
            "firstTimestamp": _timestamp(pending.first),
            "lastTimestamp": _timestamp(pending.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }
        # The name holds everything that tells Events apart: if it exists, it was created and only the answer got lost.
        with suppress(AlreadyExists):
            await self._transport.request(
                "POST", _EVENTS.path(namespace), body=body, timeout_seconds=self._limits.write_timeout
            )
        return _Recorded(name=name, namespace=namespace, count=pending.count)

    def _name(self, key: _Key, pending: _Pending) -> str:
        digest = hashlib.sha256(repr((self._instance, pending.first, *key)).encode()).hexdigest()[:16]
        return f"{pending.regarding.name[: _MAXIMUM_NAME - len(digest) - 1]}.{digest}"


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
