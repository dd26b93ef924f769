"""STATE read: the cluster as the watcher sees it, applied in one order (commit protocol, rules B and I; DESIGN 5, rule 1).

    reader = StateReader(bus)
    async for batch in reader.batches():
        if batch.reset: forget everything
        for change in batch.changes: apply it
        context.ready.set("state", reader.ready)

Ready means: the newest watcher's epoch has told that everything was listed, all that STATE held then or later was applied, and so
was everything the stream held at (re-)subscription. Dropped are messages whose epoch is below the highest seen earlier in the stream
(strays), messages older than what is known of their key, and messages whose subject and content disagree. How fresh the view is:
`muster.bus.freshness`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from muster.bus.client import Bus
from muster.bus.envelope import decode, decoder
from muster.bus.errors import UndecodableError
from muster.bus.freshness import Claims, version_number
from muster.bus.messages import Clock, Epoch, StateKind, StateMessage
from muster.bus.ordered import Batch, Delivery, OrderedReader
from muster.bus.streams import StreamName
from muster.bus.subjects import SubjectError, split_subject
from muster.model.budgets import Budget
from muster.model.nodes import Node
from muster.model.pods import Pod
from muster.model.topology import HyperNode
from muster.model.units import Sequence
from muster.model.volumes import Claim, StorageClass, Volume
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
    "hypernode": HyperNode,
    "claim": Claim,
    "volume": Volume,
    "storageclass": StorageClass,
    "pdb": Budget,
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
        """The message, or None when it must be dropped; `read`, then `outdated`."""
        message = self.read(delivery)
        return None if message is None or self.outdated(message) else message

    def read(self, delivery: Delivery) -> StateMessage | None:
        """The message, or None for a stray: one of a deposed writer, or none that a watcher writes."""
        try:
            message = decode(StateMessage, delivery.body, delivery.headers)
            told = split_subject(delivery.subject)
        except (UndecodableError, SubjectError):
            self.dropped["undecodable"] += 1
            return None
        # An epoch is its own sequence, and its key: anything else would lock every later writer out.
        forged = message.kind == "epoch" and not message.epoch == delivery.sequence == version_number(message.key)
        if forged or told != ("state", message.kind, message.key) or message.epoch > delivery.sequence:
            self.dropped["mismatch"] += 1
            return None
        if message.epoch < self.epoch:
            self.dropped["epoch"] += 1
            return None
        self.epoch = message.epoch
        return message

    def outdated(self, message: StateMessage) -> bool:
        """Whether more is known of its key than this message, one that `read` gave, tells."""
        place = (message.kind, message.key)
        version = version_number(message.resource_version)
        if 0 <= version < max(self._known.get(place, -1), self._gone.get(place, -1)):
            self.dropped["older"] += 1
            return True
        self._remember(place, version, gone=message.gone)
        return False

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
        self._claims = Claims()
        self._looking: asyncio.Task[None] | None = None
        self._counted_at = float("-inf")
        self._behind = False

    @property
    def sequence(self) -> Sequence:
        """Everything up to here is applied, once the loop over `batches` asks for the next batch."""
        return self._ordered.sequence

    @property
    def epoch(self) -> int:
        """The newest watcher's, 0 before the first."""
        return self._filter.epoch

    @property
    def clock(self) -> Clock | None:
        """The last clock message that counted."""
        return self._claims.counted

    @property
    def ready(self) -> bool:
        """The newest watcher has listed everything, all of that is applied, and all that was there at subscription (rule 1)."""
        clock = self._claims.counted
        return self._ordered.caught_up and clock is not None and clock.synced and clock.epoch == self._filter.epoch

    @property
    def freshness(self) -> dict[str, str]:
        """By kind, the resourceVersion up to which the view shows everything; it never goes back. Empty when not ready."""
        return dict(self._claims.freshness) if self.ready else {}

    @property
    def dropped(self) -> Counter[str]:
        """Messages that did not count, by cause."""
        return self._filter.dropped

    def clock_age(self) -> float:
        """Seconds since the moment of which the last clock that counted told; infinite before the first."""
        return asyncio.get_running_loop().time() - self._counted_at

    async def batches(self) -> AsyncIterator[StateBatch]:
        """Batches for ever; an empty one tells that `ready` or `freshness` may have changed."""
        try:
            async for batch in self._ordered.batches():
                yield self._apply(batch)
                if batch.deliveries:
                    self._behind = batch.deliveries[-1].pending > 0
                if self._claims.open and not self._behind:
                    self._look()
        finally:
            if self._looking is not None:
                self._looking.cancel()

    def _apply(self, batch: Batch) -> StateBatch:
        if batch.reset:
            dropped = self._filter.dropped
            self._filter = StateFilter()
            self._filter.dropped = dropped
            self._claims = Claims()
            self._counted_at = float("-inf")
            self.bus.observer.warning("STATE is read anew", reason=batch.reset)
        changes = []
        for delivery in batch.deliveries:
            epoch = self._filter.epoch
            message = self._filter.read(delivery)
            if message is None or message.epoch > epoch:
                self._claims.void()
            if message is None or self._filter.outdated(message):
                continue
            if (change := self._change(message, delivery)) is not None:
                changes.append(change)
        return StateBatch(changes=tuple(changes), reset=batch.reset)

    def _look(self) -> None:
        """Ask whether the stream ends where everything is applied, one question at a time."""
        if self._claims.claimed is not None and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_for_end(self._claims, self._claims.claimed, self.sequence))

    async def _look_for_end(self, claims: Claims, clock: Clock, position: Sequence) -> None:
        asked = asyncio.get_running_loop().time()
        # After a reset these claims are those of a view that is no more.
        if await self._ordered.ends_at(position) and claims is self._claims:
            claims.count(clock)
            self._counted_at = asked
            self._ordered.wake()
        elif self._claims.claimed is not clock or self.sequence != position:
            # What came meanwhile asks again.
            self._ordered.wake()

    def _change(self, message: StateMessage, delivery: Delivery) -> Change | None:
        try:
            found = None if message.gone else decoder(OBJECTS[message.kind]).decode(message.object)
        except msgspec.DecodeError as error:
            self._filter.dropped["undecodable"] += 1
            self.bus.observer.warning("an object in STATE cannot be read", subject=delivery.subject, error=str(error))
            return None
        if isinstance(found, Clock):
            self._claims.tell(found)
        return Change(
            kind=message.kind,
            key=message.key,
            object=found,
            resource_version=message.resource_version,
            sequence=delivery.sequence,
        )
