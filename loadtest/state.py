"""From an empty STATE to readers that are ready, and from a restarted watcher to readers that are ready again.

    python -m loadtest state [--pods 40000] [--nodes 5000] [--json FILE]

    lists as a cluster serves them ──► watcher (a process) ──► STATE in a real NATS server ──► reader (a process)

first publish: STATE is empty, everything is published; a reader follows from the start and another one comes when all is there.
restart: STATE is intact, a new watcher loads it, lists, and publishes only differences: there are none but its epoch and clocks.
Times in seconds, resident memory in MiB, both of the process itself; the machine may be shared.
"""

import argparse
import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from loadtest.decoder import PAGE, pod
from muster.bus.client import connect
from muster.bus.server import EmbeddedServer
from muster.bus.state import StateReader
from muster.bus.streams import StreamName, ensure_streams, last_sequence
from muster.model.policy import Policy
from muster.runtime.health import Readiness
from muster.watcher.following import Follower
from muster.watcher.kinds import watched_kinds
from muster.watcher.metrics import WatcherMetrics

VERSION = "5000000"
CARDS = 8


def node(number: int) -> dict[str, Any]:
    """A node with eight cards, as a cluster serves it."""
    name = f"gpu-{number}"
    amounts = {"cpu": "128", "memory": "2113442664Ki", "pods": "110", "nvidia.com/gpu": str(CARDS)}
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
    }
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(1_000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": f"zone-{number // 1024}",
                "topology.muster.dev/block": f"block-{number // 128}",
                "topology.muster.dev/rack": f"rack-{number // 16}",
                "nvidia.com/gpu.product": "A100-SXM4-80GB",
                "nvidia.com/gpu.memory": "81920",
                "nvidia.com/gpu.count": str(CARDS),
            },
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    }


class Recorded:
    """A transport that serves recorded lists and watches that stay silent."""

    def __init__(self, lists: Mapping[str, list[bytes]]) -> None:
        self._lists = lists

    async def request(self, method: str, path: str, *, query: Sequence[tuple[str, str]] = (), **_more: Any) -> bytes:
        """A page of a list."""
        del method
        number = int(dict(query).get("continue", "0"))
        return self._lists.get(path, [page([], "")])[number]

    @asynccontextmanager
    async def stream(self, path: str, **_more: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        """Silence."""
        del path

        async def silent() -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

        yield silent()


def page(items: list[dict[str, Any]], following: str) -> bytes:
    """One page of a list."""
    return json.dumps({"metadata": {"resourceVersion": VERSION, "continue": following}, "items": items}).encode()


def pages(count: int, make: Callable[[int], dict[str, Any]]) -> list[bytes]:
    """All pages of ``count`` objects."""
    starts = range(0, count, PAGE)
    return [
        page(
            [make(number) for number in range(start, min(start + PAGE, count))],
            "" if start + PAGE >= count else str(at),
        )
        for at, start in enumerate(starts, start=1)
    ]


def memory_mib() -> float:
    """Resident memory of this process at its highest."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def watcher(url: str, pods: int, nodes: int, pipe: Connection) -> None:
    """A process: says when its lists are recorded, begins when told, ends when told."""

    async def follow() -> None:
        transport = Recorded({"/api/v1/pods": pages(pods, pod), "/api/v1/nodes": pages(nodes, node)})
        pipe.send("recorded")
        await asyncio.to_thread(pipe.recv)
        began = time.process_time()
        ready = Readiness()
        ready.set("state", False)
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
        async with await connect(url, name="watcher") as bus:
            follower = Follower(
                bus,
                transport,
                watched_kinds(Policy()),
                identity="measured",
                metrics=WatcherMetrics(CollectorRegistry()),
                ready=ready,
                log=structlog.get_logger(),
            )
            task = asyncio.create_task(follower.run())
            while not ready.ready and not task.done():
                await asyncio.sleep(0.01)
            pipe.send((memory_mib(), round(time.process_time() - began, 2)))
            await asyncio.to_thread(pipe.recv)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(follow())


def reader(url: str, pipe: Connection) -> None:
    """A process: says when it is ready for an epoch it has not told of yet."""

    async def read() -> None:
        objects: dict[tuple[str, str], Any] = {}
        told, began = 0, time.process_time()
        async with await connect(url, name="reader") as bus:
            state = StateReader(bus)
            pipe.send("connected")
            async for batch in state.batches():
                for change in batch.changes:
                    objects[change.kind, change.key] = change.object
                if state.ready and state.epoch > told:
                    told = state.epoch
                    pipe.send((len(objects), memory_mib(), round(time.process_time() - began, 2)))

    asyncio.run(read())


def started(context: Any, target: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """A process and our end of its pipe, once it has said its first word."""
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    ours.recv()
    return process, ours


async def measure(pods: int, nodes: int) -> dict[str, Any]:
    """All figures."""
    context = multiprocessing.get_context("spawn")
    figures: dict[str, Any] = {"pods": pods, "nodes": nodes}
    with tempfile.TemporaryDirectory() as folder:
        async with EmbeddedServer(store_dir=Path(folder)) as server, await connect(server.url, name="measure") as bus:
            await ensure_streams(bus, incarnation=1, names=(StreamName.STATE,))
            follower, follower_pipe = started(context, reader, server.url)
            for phase in ("first publish", "restart"):
                process, pipe = started(context, watcher, server.url, pods, nodes)
                before, began = await last_sequence(bus, StreamName.STATE), time.monotonic()
                pipe.send("begin")
                memory, cpu = await asyncio.to_thread(pipe.recv)
                figures[f"{phase}: watcher ready, s"] = round(time.monotonic() - began, 2)
                objects, reader_memory, reader_cpu = await asyncio.to_thread(follower_pipe.recv)
                figures[f"{phase}: reader ready, s"] = round(time.monotonic() - began, 2)
                figures[f"{phase}: messages"] = await last_sequence(bus, StreamName.STATE) - before
                figures[f"{phase}: watcher, MiB, cpu s"] = (memory, cpu)
                figures[f"{phase}: reader, MiB, cpu s"] = (reader_memory, reader_cpu)
                figures["objects"] = objects
                pipe.send("end")
                process.join()
                late, late_pipe = started(context, reader, server.url)
                if phase == "first publish":
                    # It comes when all is there: with no watcher the last clock still tells how far STATE reaches.
                    began = time.monotonic()
                    figures["late reader: objects, MiB, cpu s"] = await asyncio.to_thread(late_pipe.recv)
                    figures["late reader: ready, s"] = round(time.monotonic() - began, 2)
                late.terminate()
            follower.terminate()
    return figures


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m loadtest state", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pods", type=int, default=40_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.pods, arguments.nodes))
    for name, value in figures.items():
        print(f"{name:36} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
