"""Whenever a reader claims a freshness, its view is the API's objects at that freshness or later, whatever publishers do."""

import asyncio

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.bus import state, state_publishing
from muster.bus.errors import DeposedError, StateMovedError
from muster.bus.state import StateReader
from muster.bus.state_publishing import StatePublisher
from muster.model.policy import Policy
from muster.watcher.kinds import watched_kinds
from muster.watcher.mirror import Mirror
from tests.watcher.memory_state import MemoryBus, MemoryReader, Stream, memory_last_sequence

KINDS = watched_kinds(Policy())
POD = next(kind for kind in KINDS if kind.name == "pod")
KEYS = ("a", "b")


@pytest.fixture(autouse=True)
def in_memory(monkeypatch):
    for module in (state, state_publishing):
        monkeypatch.setattr(module, "OrderedReader", MemoryReader)
    monkeypatch.setattr(state_publishing, "last_sequence", memory_last_sequence)


class Api:
    """The API server: every revision of every pod; None where it is absent."""

    def __init__(self):
        self.revision = 1
        self.history = {key: [(0, False)] for key in KEYS}

    def change(self, key, there):
        self.revision += 1
        self.history[key].append((self.revision, there))

    def at(self, key, revision):
        return next(version for version in reversed(self.history[key]) if version[0] <= revision)

    def pod(self, key, revision):
        metadata = {"name": key, "namespace": "ns", "uid": key, "resourceVersion": str(revision)}
        return msgspec.convert({"metadata": metadata}, POD.info.struct)

    def listed(self, revision):
        there = [(key, *self.at(key, revision)) for key in KEYS]
        return [self.pod(key, version) for key, version, here in there if here]


class Process:
    """A watcher: takes over, lists, publishes what it is told to see, and tells how far it is."""

    def __init__(self, api, stream, lag):
        self.api = api
        self.bus = MemoryBus(stream)
        self.publisher = StatePublisher(self.bus, identity="w")
        self.mirror = Mirror(KINDS)
        self.wishes = asyncio.Queue()
        self.lag = lag
        self.at = 0
        self.task = asyncio.create_task(self.run())

    async def run(self):
        try:
            self.mirror.loaded(await self.publisher.take_over())
            while True:
                try:
                    await self.follow()
                except StateMovedError:
                    self.mirror.loaded(await self.publisher.reload())
        except (DeposedError, state_publishing.BusError):
            return

    async def follow(self):
        self.at = max(1, self.api.revision - self.lag)
        self.lag = 0
        await self.publisher.publish(self.mirror.listed(POD, self.api.listed(self.at), str(self.at)))
        while True:
            wish = await self.wishes.get()
            if wish:
                await self.see(wish)
                continue
            await self.publisher.tell_clock(synced=True, freshness={"pod": str(self.at)}, now=0.0)
            if not self.mirror.unknown:
                await self.publisher.remove_old_epochs()

    async def see(self, count):
        until = min(self.at + count, self.api.revision)
        publications = []
        for revision in range(self.at + 1, until + 1):
            for key in KEYS:
                version, there = self.api.at(key, revision)
                if version == revision and there:
                    publications += self.mirror.changed(POD, self.api.pod(key, version))
                elif version == revision:
                    publications += self.mirror.deleted(POD, f"ns/{key}", str(revision))
        await self.publisher.publish(publications)
        self.at = until


class Lingering:
    """What a process sent over a connection that is lost."""

    def __init__(self, bus):
        self.bus = bus
        self.wishes = asyncio.Queue()
        self.task = asyncio.create_task(asyncio.sleep(0))


class Reading:
    """A reader and what it shows: (revision, whether it is there) by key."""

    def __init__(self, stream):
        self.reader = StateReader(MemoryBus(stream))
        self.view = dict.fromkeys(KEYS, (0, False))
        self.task = asyncio.create_task(self.run())

    async def run(self):
        async for batch in self.reader.batches():
            for change in batch.changes:
                if change.kind == "pod":
                    version = int(change.resource_version)
                    name = change.key.removeprefix("ns/")
                    assert version >= self.view[name][0], "a view goes back"
                    self.view[name] = (version, change.object is not None)

    def read(self, count):
        self.reader._ordered.wishes.put_nowait(count)

    def check(self, api):
        fresh = int(self.reader._claims.freshness.get("pod", 0))
        for key, (shown, here) in self.view.items():
            version, there = api.at(key, fresh)
            assert shown >= version or not (here or there), (
                f"fresh {fresh}: {key} {(shown, here)}, was {(version, there)}"
            )


async def settle():
    for _ in range(12):
        await asyncio.sleep(0)


class World:
    def __init__(self):
        self.api, self.stream = Api(), Stream()
        self.processes = []
        self.readings = [Reading(self.stream)]

    def step(self, name, which, number):
        process = self.processes[which % len(self.processes)] if self.processes else None
        if name == "change":
            self.api.change(KEYS[which % len(KEYS)], number > 0)
        elif name == "start":
            self.processes.append(Process(self.api, self.stream, number))
        elif name == "reader":
            self.readings.append(Reading(self.stream))
        elif name == "read":
            self.readings[which % len(self.readings)].read((1, 2, 100)[number])
        elif process is None:
            return
        elif name == "kill":
            process.task.cancel()
        elif name == "load":
            process.bus.may_load.set()
        elif name == "land":
            for _ in range((1, 2, 100)[number]):
                process.bus.land()
        elif name == "lose":
            self.processes.append(Lingering(process.bus.lose()))
        elif name in {"see", "tell"}:
            process.wishes.put_nowait(1 + 2 * number if name == "see" else 0)

    async def go_on_without_faults(self):
        self.processes.append(Process(self.api, self.stream, 0))
        for _ in range(6):
            for _ in range(60):
                for process in self.processes:
                    process.bus.may_load.set()
                    process.bus.land()
                await settle()
            newest = self.processes[-1]
            newest.wishes.put_nowait(self.api.revision)
            newest.wishes.put_nowait(0)
            for reading in self.readings:
                reading.read(1000)
            await settle()

    def check(self):
        for reading in self.readings:
            if reading.task.done():
                reading.task.result()
            reading.check(self.api)


NAMES = ("change", "see", "tell", "land", "land", "read", "read", "start", "load", "kill", "lose", "reader")
STEPS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 2), st.integers(0, 2)), min_size=5, max_size=50)
BEGIN = [
    ("start", 0, 0),
    ("land", 0, 2),
    ("load", 0, 0),
    ("land", 0, 2),
    ("tell", 0, 0),
    ("land", 0, 2),
    ("read", 0, 2),
]
"""A watcher that has told all, and a reader that has read it."""


async def play(steps):
    world = World()
    await settle()
    for step in [*BEGIN, *steps]:
        world.step(*step)
        await settle()
        world.check()
    await world.go_on_without_faults()
    world.check()
    for reading in world.readings:
        truth = {key: world.api.at(key, world.api.revision) for key in KEYS}
        assert {key: there for key, (_, there) in reading.view.items()} == {
            key: there for key, (_, there) in truth.items()
        }
        assert reading.reader.ready
        assert reading.reader.freshness == {"pod": str(world.api.revision)}
    assert sum(name.startswith("muster.state.epoch.") for name in world.stream.messages) == 1
    for task in [process.task for process in world.processes] + [reading.task for reading in world.readings]:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_a_view_is_what_its_freshness_says_whatever_publishers_do(steps):
    asyncio.run(play(steps))


A, OLD, NEW, NEWEST, ALL = 0, 0, 1, 2, 2
CHANGE = ("change", A, 1)
DELETE = ("change", A, 0)
SEE_ALL = ("see", OLD, 2)
STRAY_LANDS = [("start", 0, 0), ("land", NEW, 0), ("read", 0, 0), ("land", OLD, ALL)]
"""A new watcher's epoch is stored, the reader sees it, and the second of the old one's publishes in flight is stored behind it."""


def publishes(process, *more):
    return [("land", process, ALL), *more, ("tell", process, 0), ("land", process, ALL)]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [CHANGE, SEE_ALL, *publishes(OLD), CHANGE, SEE_ALL, ("land", OLD, ALL), ("read", 0, 0)],
            id="a clock does not count while a message that superseded another waits behind it",
        ),
        pytest.param(
            [CHANGE, CHANGE, CHANGE, CHANGE, SEE_ALL, ("start", 0, 0), ("land", NEW, 0), CHANGE, ("load", NEW, 0), *publishes(NEW), ("land", OLD, ALL), ("read", 0, ALL)],
            id="a stray voids the clocks before it",
        ),
        pytest.param(
            [CHANGE, CHANGE, SEE_ALL, *publishes(OLD), ("start", 0, 1), ("land", NEW, 0), ("load", NEW, 0), ("land", NEW, ALL), ("reader", 0, 0), ("read", 1, ALL)],
            id="a new epoch voids the clocks of the old one",
        ),
        pytest.param(
            [CHANGE, CHANGE, SEE_ALL, *publishes(OLD), ("read", 0, ALL), ("start", 0, 1), ("land", NEW, 0), ("load", NEW, 0), ("land", NEW, ALL), ("read", 0, ALL)],
            id="a view does not go back with a watcher that lists late",
        ),
        pytest.param(
            [CHANGE, CHANGE, SEE_ALL, *STRAY_LANDS, ("load", NEW, 0), *publishes(NEW), ("read", 0, ALL)],
            id="what a stray overwrote is published although the list says the same",
        ),
        pytest.param(
            [CHANGE, CHANGE, SEE_ALL, *STRAY_LANDS, ("kill", NEW, 0), ("start", 0, 0), ("land", NEWEST, 0), ("load", NEWEST, 0), *publishes(NEWEST), ("read", 0, ALL)],
            id="a later watcher knows a stray by the epoch of one that repaired nothing",
        ),
        pytest.param(
            [CHANGE, SEE_ALL, *publishes(OLD), ("read", 0, ALL), CHANGE, CHANGE, SEE_ALL, *STRAY_LANDS, DELETE, ("load", NEW, 0), *publishes(NEW), ("read", 0, ALL)],
            id="what a stray overwrote and is gone gets a tombstone",
        ),
        pytest.param(
            [CHANGE, CHANGE, CHANGE, SEE_ALL, ("lose", OLD, 0), CHANGE, ("load", OLD, 0), *publishes(OLD), ("land", NEW, ALL), ("reader", 0, 0), ("read", 1, ALL)],
            id="publishes that were never answered and land late are strays",
        ),
    ],
)  # fmt: skip
def test_a_view_is_what_its_freshness_says_when(steps):
    asyncio.run(play(steps))
