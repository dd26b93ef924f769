"""STATE written: one writer at a time (commit protocol, rule I; DESIGN 5, rule 2).

    publisher = StatePublisher(bus, identity=...)
    stored = await publisher.take_over()          # epoch first, then everything STATE holds
    await publisher.publish(changes)              # what the list says and STATE does not; tombstones for what is gone
    await publisher.tell_clock(synced=True, ...)  # each second, when everything before it is stored
    await publisher.remove_old_epochs()           # once, when what was stray is published over

    StateMovedError: a stray message slipped in → stored = await publisher.reload(), list again, publish what differs
    DeposedError: another watcher took over → stop for good

Every message carries the whole stream's expected last sequence, pipelined, so that a deposed writer is refused. Publishes that were
never answered may still land, so the writer goes on under a new epoch, which makes them strays.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import msgspec
import nats.errors
import nats.js.errors

from muster.bus.client import Bus
from muster.bus.envelope import decoder
from muster.bus.errors import (
    BusError,
    DeposedError,
    MessageTooLargeError,
    NotConnectedError,
    StateMovedError,
    UnknownOutcomeError,
    WrongLastSequenceError,
)
from muster.bus.messages import NULL, Clock, Epoch, StateKind, StateMessage
from muster.bus.ordered import Delivery, OrderedReader
from muster.bus.state import OBJECTS, TOMBSTONE_SECONDS, StateFilter
from muster.bus.streams import StreamName, last_sequence
from muster.bus.subjects import STATE_EPOCHS, WATCHER_KEY, SubjectError, split_subject, state_subject
from muster.model.units import Sequence

LOAD_SECONDS = 60.0
TAKE_OVER_TRIES = 50
IN_FLIGHT = 1000
STORE_SECONDS = 30.0
"""For an answer: everything in flight may be synced to a slow disk message by message."""
Place = tuple[StateKind, str]


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """One object to publish; ``object`` None is a tombstone. ``resource_version`` of a tombstone: that of the deletion."""

    kind: StateKind
    key: str
    object: msgspec.Struct | None
    resource_version: str = ""


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What STATE holds of one object."""

    kind: StateKind
    raw: bytes
    """As it was encoded; ``null`` for a tombstone; empty when unknown."""
    resource_version: str
    sequence: Sequence

    @property
    def unknown(self) -> bool:
        """A stray took its place: readers may show anything, so it must be published again, whatever it is."""
        return not self.raw

    @property
    def gone(self) -> bool:
        """It is a tombstone."""
        return self.raw == b"null"

    @property
    def object(self) -> Any:
        """A struct of `OBJECTS`; None for a tombstone, when unknown, and when a later version of the watcher wrote it."""
        if self.unknown or self.gone:
            return None
        try:
            return decoder(OBJECTS[self.kind]).decode(self.raw)
        except msgspec.DecodeError:
            return None


class StatePublisher:
    """The watcher's side of STATE; see the module. Its methods must not run at the same time: it is one writer."""

    def __init__(self, bus: Bus, *, identity: str, tombstone_seconds: int = TOMBSTONE_SECONDS) -> None:
        """``identity`` is that of this process."""
        self.bus = bus
        self.identity = identity
        self.tombstone_seconds = tombstone_seconds
        self.epoch = 0
        """0 before `take_over`."""
        self.sequence = Sequence(0)
        """Last sequence of the stream, as far as this writer knows."""
        self._stuck = False
        self._unanswered = False
        """Publishes of this epoch may still land."""

    async def take_over(self) -> dict[Place, Stored]:
        """Publish a new epoch, then load everything STATE holds.

        Raises:
            StateMovedError: others keep writing.
            DeposedError: another watcher took over meanwhile.
            BusError: NATS did not answer; call it again.
        """
        for _ in range(TAKE_OVER_TRIES):
            if await self._announce(await last_sequence(self.bus, StreamName.STATE)):
                return await self.reload()
        raise StateMovedError(f"STATE moved {TAKE_OVER_TRIES} times while an epoch was being published")

    async def _announce(self, last: Sequence) -> bool:
        """Publish a new epoch right behind ``last``; False when others were quicker."""
        epoch = last + 1
        told = _raw(Epoch(epoch=epoch, identity=self.identity))
        message = StateMessage(epoch=epoch, kind="epoch", key=str(epoch), object=told)
        try:
            await self.bus.publish(state_subject("epoch", str(epoch)), message, expected_last_sequence=last)
        except WrongLastSequenceError:
            return False
        self.epoch, self.sequence = epoch, Sequence(epoch)
        self._stuck = self._unanswered = False
        return True

    async def reload(self) -> dict[Place, Stored]:
        """Load everything STATE holds; afterwards this writer may publish again.

        Raises:
            DeposedError: STATE holds a newer epoch.
            StateMovedError: others keep writing.
            BusError: it could not be read in time.
        """
        for _ in range(TAKE_OVER_TRIES):
            stored, sequence = await self._load()
            self.sequence = sequence
            # Right behind what was loaded, the new epoch makes what is still on its way stray.
            if not self._unanswered or await self._announce(sequence):
                self._stuck = False
                return stored
        raise StateMovedError(f"STATE moved {TAKE_OVER_TRIES} times while it was loaded")

    async def _load(self) -> tuple[dict[Place, Stored], Sequence]:
        judge = StateFilter()
        stored: dict[Place, Stored] = {}
        reader = OrderedReader(self.bus, StreamName.STATE, must_exist=True)
        batches = reader.batches()
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                async for batch in batches:
                    if batch.reset:
                        stored.clear()
                        judge = StateFilter()
                    for delivery in batch.deliveries:
                        # The last message of a key is what later readers get, also when it is older than one before.
                        _take(stored, judge.read(delivery), delivery)
                    if reader.caught_up:
                        break
        except TimeoutError as error:
            raise BusError(f"STATE could not be loaded within {LOAD_SECONDS:g} s") from error
        finally:
            await batches.aclose()  # type: ignore[attr-defined]  # an async generator
        if judge.epoch > self.epoch:
            raise DeposedError(f"STATE holds epoch {judge.epoch}, this writer has {self.epoch}")
        if judge.epoch < self.epoch:
            raise DeposedError(f"STATE no longer holds this writer's epoch {self.epoch}: the store was emptied")
        return stored, reader.sequence

    async def publish(self, publications: Iterable[Publication]) -> Sequence:
        """Publish in order, pipelined; all are stored when it returns. Gives the sequence of the last one.

        Raises:
            StateMovedError: refused, or of unknown outcome; some may be stored. `reload`, list, publish the difference.
            MessageTooLargeError: one object is too large, and those before it are stored; go on without it.
        """
        if self.epoch == 0 or self._stuck:
            raise StateMovedError("this writer must take over, or reload, before it publishes")
        flights: list[asyncio.Future[Sequence]] = []
        # Until every answer is there it is not known where the stream stands.
        self._stuck = True
        too_large: MessageTooLargeError | None = None
        try:
            for publication in publications:
                try:
                    flights.append(await self._send(publication))
                except MessageTooLargeError as error:
                    too_large = error
                    break
                self.sequence = Sequence(self.sequence + 1)
                if len(flights) >= IN_FLIGHT:
                    await asyncio.gather(*flights[: IN_FLIGHT // 2])
                    del flights[: IN_FLIGHT // 2]
            await asyncio.gather(*flights)
        except BusError as error:
            # Every answer must be in when this writer reads where the stream stands.
            answers = await asyncio.gather(*flights, return_exceptions=True)
            self._unanswered |= any(isinstance(answer, UnknownOutcomeError) for answer in answers)
            raise StateMovedError(str(error)) from error
        except asyncio.CancelledError:
            self._unanswered = True
            raise
        self._stuck = False
        if too_large is not None:
            raise too_large
        return self.sequence

    async def tell_clock(self, *, synced: bool, freshness: dict[str, str], now: float | None = None) -> Sequence:
        """Publish the clock: how far the watcher has seen. Call it each second, also when nothing changed.

        ``freshness`` vouches for what `publish` has stored: `publish` returns when it is, and a refusal makes this one fail.

        Raises:
            StateMovedError: as `publish`.
        """
        at = time.time() if now is None else now
        clock = Clock(epoch=self.epoch, at=at, synced=synced, freshness=freshness)
        return await self.publish([Publication(kind="clock", key=WATCHER_KEY, object=clock)])

    async def remove_old_epochs(self) -> None:
        """Remove the epochs before this writer's; call it when everything that `reload` gave as unknown was published.

        They tell later readers which messages are stray. No message that was stray then is stored any more, and for what still
        comes in this epoch is enough.

        Raises:
            NotConnectedError: it is not known whether they are removed.
        """
        if self.epoch == 0 or self._stuck:
            return
        try:
            await self.bus.jetstream.purge_stream(StreamName.STATE, seq=self.epoch, subject=STATE_EPOCHS)
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(f"old epochs of STATE could not be removed: {error or 'timeout'}") from error

    async def _send(self, publication: Publication) -> "asyncio.Future[Sequence]":
        message = StateMessage(
            epoch=self.epoch,
            kind=publication.kind,
            key=publication.key,
            resource_version=publication.resource_version,
            object=NULL if publication.object is None else _raw(publication.object),
        )
        return await self.bus.send(
            state_subject(publication.kind, publication.key),
            message,
            expected_last_sequence=self.sequence,
            time_to_live=self.tombstone_seconds if publication.object is None else None,
            seconds=STORE_SECONDS,
        )


def _raw(found: msgspec.Struct) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(found))


def _take(stored: dict[Place, Stored], message: StateMessage | None, delivery: Delivery) -> None:
    """Note what the last message of a place is worth."""
    if message is not None:
        stored[message.kind, message.key] = Stored(
            kind=message.kind,
            raw=bytes(message.object),
            resource_version=message.resource_version,
            sequence=delivery.sequence,
        )
        return
    try:
        kind, key = split_subject(delivery.subject)[1:]
    except (SubjectError, ValueError):
        return
    if kind in OBJECTS:
        stored[kind, key] = Stored(kind=kind, raw=b"", resource_version="", sequence=delivery.sequence)
