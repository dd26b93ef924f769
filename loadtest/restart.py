"""From the start of a scheduler process to its first decision that is committed, over a cluster that stands.

    python -m loadtest restart [--nodes 5000] [--pods 40000] [--restarts 3] [--write docs/benchmarks.md] [--json FILE]

    simulated API server (a process, no kubelets) ◄── watcher (a process) ──► STATE in a real NATS server
                 ▲ lease, touches, Bindings                                     │
                 └──────────────── scheduler (the measured process) ◄───────────┘──► LEDGER: the first bind

restart     the LEDGER is there, nothing in it is open; one gang of eight waits. The scheduler before it was told to stop.
new LEDGER  the store is empty but for STATE: every pod of ours is touched before anything is decided (rule H of docs/protocol.md)

Seconds from the moment the process is made, its imports included, until the commit can be read back from the LEDGER. Memory is
the most that was resident in that process by then. Everything runs on one machine, which serves the API and NATS too.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from loadtest import decoder
from loadtest.state import CARDS, node, reader, started
from loadtest.tables import machine, table, write_between
from muster.bus.client import Bus, connect
from muster.bus.ledger import Ledger
from muster.bus.server import EmbeddedServer
from muster.bus.streams import StreamName, ensure_streams, last_sequence, missing_streams
from muster.model.ledger import Bind
from muster.runtime.processes import end, spawn
from muster.simulator.cluster import seed
from muster.simulator.server import SimulatedServer
from muster.simulator.store import Store

GANG = 8
WAITING_AT_FIRST = 8
"""Gangs that wait when the LEDGER is new."""
LONGEST = 900.0
"""Seconds after which a start is given up."""
POLICY = "timeouts: {start: 86400}\n"
"""There are no kubelets: what is bound never runs."""
PODGROUPS, QUEUES = "podgroups.scheduling.volcano.sh", "queues.scheduling.volcano.sh"


class Start(NamedTuple):
    """One measured start."""

    seconds: float
    cpu_seconds: float
    peak_mebibytes: int


def api_server(kubeconfig: Path, nodes: int, standing: int, pipe: Connection) -> None:
    """A process: serves a cluster that stands, makes a gang when told its number, ends when told nothing."""

    async def serve() -> None:
        store = Store()
        seed(store)
        fill(store, nodes, standing)
        server = SimulatedServer(store)
        await server.start()
        server.write_kubeconfig(kubeconfig)
        pipe.send("serves")
        while (number := await asyncio.to_thread(pipe.recv)) is not None:
            make_gang(store, number)
            pipe.send("made")
        await server.stop()

    asyncio.run(serve())


def fill(store: Store, nodes: int, standing: int) -> None:
    """Nodes, a queue, and gangs of which every pod runs."""
    for name in ("muster-system", *(f"team-{number}" for number in range(20))):
        store.create("namespaces", {"metadata": {"name": name}})
    store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "research-high"}, "value": 1000})
    store.create(QUEUES, {"metadata": {"name": "research"}, "spec": {"weight": 1}})
    for number in range(nodes):
        document = node(number)
        name, status = document["metadata"]["name"], document.pop("status")
        store.create("nodes", document)
        store.patch("nodes", None, name, {"spec": {"taints": None}})
        store.patch("nodes", None, name, {"status": status}, subresource="status")
    for number in range(standing // GANG):
        make_gang(store, number, stands=True)


def make_gang(store: Store, number: int, *, stands: bool = False) -> None:
    """A gang of eight pods of one card; one that stands fills a node."""
    first = decoder.pod(number * GANG)
    namespace = first["metadata"]["namespace"]
    group = {"metadata": {"name": f"train-{number}"}, "spec": {"minMember": GANG, "queue": "research"}}
    store.create(PODGROUPS, group, namespace=namespace)
    for member in range(GANG):
        document = decoder.pod(number * GANG + member)
        metadata, spec, status = document["metadata"], document["spec"], document.pop("status")
        for field in ("managedFields", "ownerReferences"):
            del metadata[field]
        spec["volumes"] = []
        spec["containers"][0]["volumeMounts"] = []
        del spec["nodeName"]
        if stands:
            spec["nodeName"] = f"gpu-{number * GANG // CARDS}"
        store.create("pods", document)
        if stands:
            store.patch("pods", namespace, metadata["name"], {"status": status}, subresource="status")


async def first_bind(bus: Bus, *, after: int) -> int:
    """The sequence of the first commit beyond ``after`` that binds a gang."""
    while await missing_streams(bus, (StreamName.LEDGER,)):
        await asyncio.sleep(0.05)
    async for batch in Ledger(bus).batches():
        for sequence, commit in batch.commits:
            if sequence > after and any(isinstance(entry, Bind) for entry in commit.entries):
                return sequence
    raise RuntimeError("the LEDGER ended")


async def quiet(bus: Bus) -> int:
    """The LEDGER's last sequence, once it has grown no more for two seconds: what was bound is closed."""
    since = time.monotonic()
    last = await last_sequence(bus, StreamName.LEDGER)
    while time.monotonic() - since < 2.0:
        await asyncio.sleep(0.2)
        found = await last_sequence(bus, StreamName.LEDGER)
        if found != last:
            last, since = found, time.monotonic()
    return last


def of_process(pid: int) -> tuple[float, int]:
    """CPU seconds and the most resident memory in MiB of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) // 1024
    return (int(fields[11]) + int(fields[12])) / ticks, peak


class Services:
    """Service processes of one measurement."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        self._environment = {**os.environ, **environment}
        self._folder = folder

    def start(self, name: str) -> Any:
        """A process of the service, writing its log into the folder."""
        log = self._folder / f"{name}.log"
        return spawn([sys.executable, "-m", "muster", "service", name], log_path=log, environ=self._environment)

    async def measured(self, bus: Bus, *, after: int) -> tuple[Start, Any]:
        """Start a scheduler and wait for its first bind.

        Raises:
            RuntimeError: it ended, or did not decide in time; the end of its log is told.
        """
        began = time.monotonic()
        process = self.start("scheduler")
        waiting = asyncio.create_task(first_bind(bus, after=after))
        while not waiting.done():
            if process.poll() is not None or time.monotonic() - began > LONGEST:
                waiting.cancel()
                tail = (self._folder / "scheduler.log").read_text(encoding="utf-8")[-2000:]
                raise RuntimeError(f"scheduler: no decision after {time.monotonic() - began:.0f} s\n{tail}")
            await asyncio.wait((waiting,), timeout=0.1)
        seconds = time.monotonic() - began
        waiting.result()
        cpu, peak = of_process(process.pid)
        return Start(seconds, cpu, peak), process


async def measure(nodes: int, pods: int, restarts: int) -> dict[str, list[Start]]:
    """The starts by kind."""
    context = multiprocessing.get_context("spawn")
    standing = pods // GANG - WAITING_AT_FIRST - restarts
    if standing < 0 or standing * GANG > nodes * CARDS:
        raise ValueError(
            f"pods: {pods} must be at least {(WAITING_AT_FIRST + restarts) * GANG}, at most {nodes * CARDS}"
        )
    found: dict[str, list[Start]] = {"new LEDGER": [], "restart": []}
    with tempfile.TemporaryDirectory(prefix="muster-restart-") as name:
        folder = Path(name)
        kubeconfig, policy = folder / "kubeconfig", folder / "policy.yaml"
        policy.write_text(POLICY, encoding="utf-8")
        async with (
            EmbeddedServer(store_dir=folder / "nats") as server,
            await connect(server.url, name="measure") as bus,
        ):
            api, api_pipe = started(context, api_server, kubeconfig, nodes, standing * GANG)
            settings = {
                "MUSTER_NATS_URL": server.url,
                "MUSTER_KUBECONFIG": str(kubeconfig),
                "MUSTER_POLICY": str(policy),
                "MUSTER_LOG_LEVEL": "warning",
            }
            services = Services(settings, folder)
            next_gang = standing

            def gang() -> None:
                nonlocal next_gang
                api_pipe.send(next_gang)
                api_pipe.recv()
                next_gang += 1

            for _ in range(WAITING_AT_FIRST):
                gang()
            await ensure_streams(bus, incarnation=1, names=(StreamName.STATE,))
            looking, look = started(context, reader, server.url)
            watcher = services.start("watcher")
            objects, *_ = await asyncio.to_thread(look.recv)
            looking.terminate()
            print(f"STATE holds {objects} objects", file=sys.stderr)
            start, scheduler = await services.measured(bus, after=0)
            found["new LEDGER"].append(start)
            try:
                for _ in range(restarts):
                    last = await quiet(bus)
                    await end(scheduler)
                    gang()
                    start, scheduler = await services.measured(bus, after=last)
                    found["restart"].append(start)
            finally:
                await end(scheduler)
                await end(watcher)
                api_pipe.send(None)
                api.join(10)
    return found


def report(found: Mapping[str, list[Start]], nodes: int, pods: int) -> str:
    """The table for people."""
    rows = []
    for kind, starts in found.items():
        if starts:
            seconds = [one.seconds for one in starts]
            rows.append(
                (
                    kind,
                    len(starts),
                    f"{statistics.median(seconds):.1f}",
                    f"{max(seconds):.1f}",
                    f"{statistics.median(one.cpu_seconds for one in starts):.1f}",
                    max(one.peak_mebibytes for one in starts),
                )
            )
    head = ("start", "runs", "first decision, s (median)", "worst", "CPU of the process, s", "peak memory, MiB")
    about = (
        "`python -m loadtest restart --write docs/benchmarks.md`. A real scheduler process over real NATS and a simulated API"
        " server on the same machine; targets for a restart: 10 s, 1 GiB. With a new LEDGER every pod of ours is touched"
        " before anything is decided."
    )
    return "\n\n".join(
        (
            f"### Restart to the first decision: {nodes:,} nodes, {pods:,} pods",
            about,
            table(head, rows),
            machine(),
        )
    )


def main() -> int:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(prog="python -m loadtest restart", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--pods", type=int, default=40_000)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--write", type=Path, help="Markdown file whose table is replaced")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    asked = parser.parse_args()
    found = asyncio.run(measure(asked.nodes, asked.pods, asked.restarts))
    text = report(found, asked.nodes, asked.pods)
    print(text)
    if asked.write:
        write_between(asked.write, "restart", text)
    if asked.json:
        figures = {kind: [one._asdict() for one in starts] for kind, starts in found.items()}
        asked.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
