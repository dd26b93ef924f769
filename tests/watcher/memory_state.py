"""STATE in memory, for driving the real publisher and the real reader step by step.

    MemoryBus ── flights wait until `land` ──► Stream (last message of each subject) ──► MemoryReader, read in steps

What is in flight may land after its sender was told that the connection is lost, or is no more.
"""

import asyncio
from collections import deque
from typing import Any, NamedTuple

import msgspec

from muster.bus.errors import UnknownOutcomeError, WrongLastSequenceError
from muster.bus.ordered import Batch, Delivery


class Flight(NamedTuple):
    """A publish on its way."""

    subject: str
    body: bytes
    expected: int
    answer: asyncio.Future


class Stream:
    """STATE: one order, the last message of each subject."""

    def __init__(self):
        self.last = 0
        self.messages = {}

    def store(self, subject, body):
        self.last += 1
        self.messages.pop(subject, None)
        self.messages[subject] = (self.last, body)
        return self.last

    def after(self, position):
        found = sorted((sequence, subject, body) for subject, (sequence, body) in self.messages.items())
        return [
            Delivery(subject=subject, sequence=sequence, body=body, headers={})
            for sequence, subject, body in found
            if sequence > position
        ]


class MemoryBus:
    """The connection of one process."""

    def __init__(self, stream):
        self.stream = stream
        self.flights = deque()
        self.may_load = asyncio.Event()
        """A publisher loads STATE when this is set, once."""
        self.jetstream = self
        self.observer = self

    def warning(self, *_told, **_fields):
        """Nobody listens."""

    async def send(self, subject, message, *, expected_last_sequence, **_options):
        answer = asyncio.get_running_loop().create_future()
        self.flights.append(Flight(subject, msgspec.json.encode(message), expected_last_sequence, answer))
        return answer

    async def publish(self, subject, message, **options):
        return await (await self.send(subject, message, **options))

    async def purge_stream(self, _name, *, seq, subject):
        prefix = subject.removesuffix("*")
        for name, (sequence, _) in list(self.stream.messages.items()):
            if name.startswith(prefix) and sequence < seq:
                del self.stream.messages[name]

    def land(self):
        """The first publish in flight reaches the server."""
        if not self.flights:
            return
        flight = self.flights.popleft()
        if flight.expected != self.stream.last:
            outcome = WrongLastSequenceError(flight.subject, flight.expected, self.stream.last)
        else:
            outcome = self.stream.store(flight.subject, flight.body)
        if flight.answer.done():
            return
        if isinstance(outcome, int):
            flight.answer.set_result(outcome)
        else:
            flight.answer.set_exception(outcome)
            flight.answer.exception()

    def lose(self):
        """The connection is lost: nothing is answered, all may still land, through the bus that this gives."""
        lingering = MemoryBus(self.stream)
        lingering.flights, self.flights = self.flights, deque()
        for flight in lingering.flights:
            if not flight.answer.done():
                flight.answer.set_exception(UnknownOutcomeError(flight.subject))
                flight.answer.exception()
        return lingering


class MemoryReader:
    """An `OrderedReader`: reads all at once for a publisher, in steps for a reader."""

    def __init__(self, bus, _name, *, must_exist=False, **_options):
        self.stream = bus.stream
        self.may_load = bus.may_load
        self.at_once = must_exist
        self.sequence = 0
        self.caught_up = False
        self.wishes: Any = asyncio.Queue()

    async def batches(self):
        if self.at_once:
            await self.may_load.wait()
            self.may_load.clear()
            self.sequence, self.caught_up = self.stream.last, True
            yield Batch(deliveries=tuple(self.stream.after(0)))
            return
        target = self.stream.last
        while True:
            wish = await self.wishes.get()
            waiting = self.stream.after(self.sequence)
            # `pending` stays 0: the server may tell too few.
            read = waiting[:wish]
            self.sequence = read[-1].sequence if read else self.sequence
            self.caught_up = self.caught_up or self.sequence >= target
            yield Batch(deliveries=tuple(read))

    async def ends_at(self, position):
        return self.stream.last == position

    def wake(self):
        self.wishes.put_nowait(0)


async def memory_last_sequence(bus, _name):
    return bus.stream.last
