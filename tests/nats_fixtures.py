"""A real NATS server for tests.

nats_server     one server for the session, its JetStream emptied before each test that asks for it
bus             a connected Bus on it
streams_bus     the same, with all streams declared (incarnation 1)
own_server      a server of the test's own, to be killed, paused, emptied
eventually      poll a condition with a deadline
"""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from muster.bus.client import Bus, connect
from muster.bus.server import EmbeddedServer
from muster.bus.streams import ensure_streams


class Heard:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    def names(self) -> list[str]:
        return [event for event, _ in self.events]


async def eventually(
    condition: Callable[[], Any] | Callable[[], Awaitable[Any]], *, within: float = 30.0, every: float = 0.02
) -> Any:
    """The condition's first true value.

    Raises:
        AssertionError: it was never true within the deadline.
    """
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() > deadline:
            source = inspect.getsource(condition).strip()
            raise AssertionError(f"not within {within:g} s: {source}")
        await asyncio.sleep(every)


async def empty(bus: Bus) -> None:
    """Delete every stream."""
    for stream in await bus.jetstream.streams_info():
        await bus.jetstream.delete_stream(stream.config.name)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def session_nats_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(store_dir=tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def nats_server(session_nats_server: EmbeddedServer) -> EmbeddedServer:
    await session_nats_server.start()
    async with await connect(session_nats_server.url, name="cleaner") as bus:
        await empty(bus)
    return session_nats_server


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest_asyncio.fixture(loop_scope="session")
async def bus(nats_server: EmbeddedServer, heard: Heard) -> AsyncIterator[Bus]:
    async with await connect(nats_server.url, name="test", observer=heard) as connected:
        yield connected


@pytest_asyncio.fixture(loop_scope="session")
async def streams_bus(bus: Bus) -> Bus:
    await ensure_streams(bus, incarnation=1)
    return bus


@pytest_asyncio.fixture(loop_scope="session")
async def own_server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(store_dir=tmp_path / "nats") as server:
        yield server
