"""One watch: a long answer of JSON lines, cut into events.

Lines may have any length (an event carries a whole object) and chunks any cut. A line without its end is what a server
that was cut off leaves behind: it is dropped, the next watch sends that event again.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from muster.kube.decoding import KindInfo, WatchEvent, decode_event
from muster.kube.transport import Query, Transport


class LineSplitter:
    """Collects chunks and gives whole lines; linear in the bytes, however long a line grows."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines this chunk completes, without line ends and empty lines."""
        first, *rest = chunk.split(b"\n")
        self._begun.append(first)
        if not rest:
            return []
        lines = [b"".join(self._begun), *rest[:-1]]
        self._begun = [rest[-1]] if rest[-1] else []
        return [line for line in lines if line.strip()]


async def watch_batches(
    transport: Transport,
    info: KindInfo[Any],
    *,
    namespace: str | None,
    selectors: Query,
    resource_version: str,
    server_timeout_seconds: int,
    open_timeout_seconds: float,
    read_timeout_seconds: float,
) -> AsyncGenerator[list[WatchEvent], None]:
    """The events after `resource_version`, in the batches they arrive in; ends when the server ends the answer.

    The first batch is empty: it says that the watch is open. Raises KubeError: what the request, the connection or
    an ERROR event said. The events before an error in the same chunk are given first.
    """
    query = [
        ("watch", "true"),
        ("allowWatchBookmarks", "true"),
        ("resourceVersion", resource_version),
        ("timeoutSeconds", str(server_timeout_seconds)),
        *selectors,
    ]
    splitter = LineSplitter()
    async with transport.stream(
        info.path(namespace),
        query=query,
        open_timeout_seconds=open_timeout_seconds,
        read_timeout_seconds=read_timeout_seconds,
    ) as chunks:
        yield []
        async for chunk in chunks:
            batch: list[WatchEvent] = []
            try:
                for line in splitter.feed(chunk):
                    batch.append(decode_event(info, line))  # noqa: PERF401  # what precedes an error is kept
            except Exception:
                if batch:
                    yield batch
                raise
            if batch:
                yield batch
            # A burst keeps the connection's buffer full, and reading it would never let other tasks run.
            await asyncio.sleep(0)
