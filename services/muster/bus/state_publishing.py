"""STATE written: one writer at a time (commit protocol, rule I; DESIGN 5, rule 2).

    publisher = StatePublisher(bus, identity=...)
    stored = await publisher.take_over()          # epoch first, then everything STATE holds
    await publisher.publish(changes)              # what the list says and STATE does not; tombstones for what is gone
    await publisher.tell_clock(synced=True, ...)  # each second

    StateMovedError: a stray message slipped in → stored = await publisher.reload(), list again, publish what differs
    DeposedError: another watcher took over → stop for good

Every message carries the whole stream's expected last sequence, pipelined, so that a deposed writer is refused.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from muster.bus.client import Bus
from muster.bus.errors import BusError, DeposedError, MessageTooLargeError, StateMovedError, WrongLastSequenceError
from muster.bus.messages import NULL, Clock, Epoch, StateKind, StateMessage
from muster.bus.ordered import OrderedReader
from muster.bus.state import OBJECTS, TOMBSTONE_SECONDS, StateFilter
from muster.bus.streams import StreamName, last_sequence
from muster.bus.subjects import WATCHER_KEY, state_subject
from muster.model.units import Sequence

LOAD_SECONDS = 60.0
TAKE_OVER_TRIES = 50
IN_FLIGHT = 1000
Place = tuple[StateKind, str]


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """One object to publish; ``object`` None is a tombstone. ``resource_version`` of a tombstone: that of the deletion."""

    kind: StateKind
    key: str
    object: msgspec.Struct | None
    resource_version: str = ""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """One object as STATE holds it now."""

    object: Any
    """A struct of `OBJECTS`; None: a tombstone."""
    resource_version: str
    sequence: Sequence


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

    async def take_over(self) -> dict[Place, Stored]:
        """Publish a new epoch, then load everything STATE holds.

        Raises:
            StateMovedError: others keep writing.
            DeposedError: another watcher took over meanwhile.
            BusError: NATS did not answer; call it again.
        """
        for _ in range(TAKE_OVER_TRIES):
            last = await last_sequence(self.bus, StreamName.STATE)
            self.epoch = last + 1
            message = StateMessage(
                epoch=self.epoch,
                kind="epoch",
                key=WATCHER_KEY,
                object=_raw(Epoch(epoch=self.epoch, identity=self.identity)),
            )
            try:
                await self.bus.publish(state_subject("epoch", WATCHER_KEY), message, expected_last_sequence=last)
            except WrongLastSequenceError:
                continue
            self._stuck = False
            return await self.reload()
        raise StateMovedError(f"STATE moved {TAKE_OVER_TRIES} times while an epoch was being published")

    async def reload(self) -> dict[Place, Stored]:
        """Load everything STATE holds; afterwards this writer may publish again.

        A stray message is part of what is told here as nothing: its key is missing, so that it is published again.

        Raises:
            DeposedError: STATE holds a newer epoch.
            BusError: it could not be read in time.
        """
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
                        message = judge.admit(delivery)
                        if message is not None:
                            found = None if message.gone else _decode(message)
                            stored[message.kind, message.key] = Stored(
                                object=found, resource_version=message.resource_version, sequence=delivery.sequence
                            )
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
        self.sequence = reader.sequence
        self._stuck = False
        return stored

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
            # Nothing of this writer may be on its way when it reads where the stream stands.
            await asyncio.gather(*flights, return_exceptions=True)
            raise StateMovedError(str(error)) from error
        self._stuck = False
        if too_large is not None:
            raise too_large
        return self.sequence

    async def tell_clock(self, *, synced: bool, freshness: dict[str, str], now: float | None = None) -> Sequence:
        """Publish the clock: how far the watcher has seen. Call it each second, also when nothing changed.

        Raises:
            StateMovedError: as `publish`.
        """
        at = time.time() if now is None else now
        clock = Clock(epoch=self.epoch, at=at, synced=synced, freshness=freshness)
        return await self.publish([Publication(kind="clock", key=WATCHER_KEY, object=clock)])

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
        )


def _raw(found: msgspec.Struct) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(found))


def _decode(message: StateMessage) -> Any:
    """The object, or None when a version of the watcher wrote it that we cannot read: it is then published anew."""
    try:
        return msgspec.json.decode(message.object, type=OBJECTS[message.kind])
    except msgspec.DecodeError:
        return None
