"""STATE read: the cluster as the watcher sees it, applied in one order (commit protocol, rules B and I; DESIGN 5, rule 1).

    reader = StateReader(bus)
    async for batch in reader.batches():
        if batch.reset: forget everything
        for change in batch.changes: apply it
        context.ready.set("state", reader.ready)

Ready means: the newest watcher's epoch has told that everything was listed, and everything the stream held at (re-)subscription was
read. Dropped are messages whose epoch is below the highest seen earlier in the stream, messages older than what is known of their
key, and messages whose subject and content disagree.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from muster.bus.client import Bus
from muster.bus.envelope import decode, decoder
from muster.bus.errors import UndecodableError
from muster.bus.messages import Clock, Epoch, StateKind, StateMessage
from muster.bus.ordered import Batch, Delivery, OrderedReader
from muster.bus.streams import StreamName
from muster.bus.subjects import SubjectError, split_subject
from muster.model.nodes import Node
from muster.model.pods import Pod
from muster.model.units import Sequence
from muster.model.workloads import Namespace, PodGroup, PriorityClass, Queue, Workload

TOMBSTONE_SECONDS = 3600
"""How long a tombstone stays in STATE; whoever was away for half of that reads everything anew."""
REMEMBERED_TOMBSTONES = 20_000

OBJECTS: dict[StateKind, type[msgspec.Struct]] = {
    "node": Node,
    "pod": Pod,
    "podgroup": PodGroup,
    "queue": Queue,
    "workload": Workload,
    "namespace": Namespace,
    "priorityclass": PriorityClass,
    "clock": Clock,
    "epoch": Epoch,
}
"""What each kind of STATE message holds."""


class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One object is now so; None: it is gone."""

    kind: StateKind
    key: str
    object: Any
    """A struct of `OBJECTS`, or None."""
    resource_version: str
    sequence: Sequence


class StateBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes in stream order. After a ``reset`` everything applied before is void; the changes start from nothing."""

    changes: tuple[Change, ...] = ()
    reset: str = ""


def version_number(resource_version: str) -> int:
    """A resourceVersion for comparison; -1 when it is not a number and so comes before nothing."""
    return int(resource_version) if resource_version.isdecimal() else -1


class StateFilter:
    """Decides which messages of STATE count; pure, shared by reader and publisher."""

    def __init__(self) -> None:
        """Nothing seen yet."""
        self.epoch = 0
        """Highest seen so far in the stream."""
        self.dropped: Counter[str] = Counter()
        """Messages that did not count, by cause: ``epoch``, ``older``, ``mismatch``, ``undecodable``."""
        self._known: dict[tuple[str, str], int] = {}
        self._gone: dict[tuple[str, str], int] = {}

    def admit(self, delivery: Delivery) -> StateMessage | None:
        """The message, or None when it must be dropped."""
        try:
            message = decode(StateMessage, delivery.body, delivery.headers)
            told = split_subject(delivery.subject)
        except (UndecodableError, SubjectError):
            self.dropped["undecodable"] += 1
            return None
        if told != ("state", message.kind, message.key):
            self.dropped["mismatch"] += 1
            return None
        if message.epoch < self.epoch:
            self.dropped["epoch"] += 1
            return None
        if message.kind == "epoch" and message.epoch != delivery.sequence:
            # An epoch is its own sequence: anything else would lock every later writer out.
            self.dropped["mismatch"] += 1
            return None
        if message.epoch > delivery.sequence:
            self.dropped["mismatch"] += 1
            return None
        self.epoch = max(self.epoch, message.epoch)
        place = (message.kind, message.key)
        version = version_number(message.resource_version)
        if 0 <= version < max(self._known.get(place, -1), self._gone.get(place, -1)):
            self.dropped["older"] += 1
            return None
        self._remember(place, version, gone=message.gone)
        return message

    def _remember(self, place: tuple[str, str], version: int, *, gone: bool) -> None:
        self._known.pop(place, None)
        self._gone.pop(place, None)
        if not gone:
            self._known[place] = version
            return
        self._gone[place] = version
        # Pods come and go for ever; a stray is only late by seconds.
        if len(self._gone) > REMEMBERED_TOMBSTONES:
            del self._gone[next(iter(self._gone))]


class StateReader:
    """Follows STATE; see the module."""

    def __init__(self, bus: Bus, *, tombstone_seconds: float = TOMBSTONE_SECONDS) -> None:
        """Reading starts with `batches`."""
        self.bus = bus
        self._ordered = OrderedReader(bus, StreamName.STATE, resume_seconds=tombstone_seconds / 2)
        self._filter = StateFilter()
        self.clock: Clock | None = None
        """The last clock message that counted."""
        self.clock_received = 0.0
        """Loop time at which it came."""

    @property
    def sequence(self) -> Sequence:
        """Everything up to here is applied, once the loop over `batches` asks for the next batch."""
        return self._ordered.sequence

    @property
    def epoch(self) -> int:
        """The newest watcher's, 0 before the first."""
        return self._filter.epoch

    @property
    def ready(self) -> bool:
        """The newest watcher has listed everything, and all that was there at subscription is read (rule 1)."""
        clock = self.clock
        return self._ordered.caught_up and clock is not None and clock.synced and clock.epoch == self._filter.epoch

    @property
    def freshness(self) -> dict[str, str]:
        """The resourceVersion that the watcher had reached, by kind, as the last clock message told; empty when not ready."""
        return self.clock.freshness if self.clock is not None and self.ready else {}

    @property
    def dropped(self) -> Counter[str]:
        """Messages that did not count, by cause."""
        return self._filter.dropped

    def clock_age(self) -> float:
        """Seconds since the last clock message came; infinite before the first."""
        if self.clock is None:
            return float("inf")
        return asyncio.get_running_loop().time() - self.clock_received

    async def batches(self) -> AsyncIterator[StateBatch]:
        """Batches for ever; an empty one tells that `ready` may have changed."""
        async for batch in self._ordered.batches():
            yield self._apply(batch)

    def _apply(self, batch: Batch) -> StateBatch:
        if batch.reset:
            dropped = self._filter.dropped
            self._filter = StateFilter()
            self._filter.dropped = dropped
            self.clock = None
            self.bus.observer.warning("STATE is read anew", reason=batch.reset)
        changes = []
        for delivery in batch.deliveries:
            message = self._filter.admit(delivery)
            if message is not None and (change := self._change(message, delivery)) is not None:
                changes.append(change)
        return StateBatch(changes=tuple(changes), reset=batch.reset)

    def _change(self, message: StateMessage, delivery: Delivery) -> Change | None:
        try:
            found = None if message.gone else decoder(OBJECTS[message.kind]).decode(message.object)
        except msgspec.DecodeError as error:
            self._filter.dropped["undecodable"] += 1
            self.bus.observer.warning("an object in STATE cannot be read", subject=delivery.subject, error=str(error))
            return None
        if isinstance(found, Clock):
            self.clock = found
            self.clock_received = asyncio.get_running_loop().time()
        return Change(
            kind=message.kind,
            key=message.key,
            object=found,
            resource_version=message.resource_version,
            sequence=delivery.sequence,
        )
