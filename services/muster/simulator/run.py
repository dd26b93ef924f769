"""A whole simulated cluster in one object: store, API server, controllers, kubelets, on one clock.

    async with SimulatedCluster("2x8") as sim:          # tests, in process
        sim.url, sim.kubeconfig_path, sim.store, sim.kubelets, sim.clock, sim.faults

`run_simulated_cluster` is the same as a process of its own, until SIGTERM or SIGINT.
"""

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from muster.simulator.clock import Clock, RealClock, VirtualClock
from muster.simulator.cluster import ClusterSpec, load_cluster, seed
from muster.simulator.controllers import Controllers
from muster.simulator.dcgm import CardExporter
from muster.simulator.faults import Faults
from muster.simulator.kubelet import Kubelets, KubeletTimes
from muster.simulator.pod_plan import Plan
from muster.simulator.server import BOOKMARK_SECONDS, SimulatedServer
from muster.simulator.store import Store
from muster.simulator.timers import Timers

READY_SECONDS = 1.0


class SimulatedCluster:
    """A running cluster between ``async with`` and its end; every node is Ready when it is entered.

    `cluster`: shorthand, a file, or a ClusterSpec. `clock`: ``"real"`` (times `speed`), ``"virtual"`` (only `sim.clock.advance`
    moves it), or a Clock. `serve=False` leaves the HTTP server away for tests that use the store alone. `metrics_port`: where the
    cards' DCGM metrics are served (0: any free port); None: nowhere.
    """

    def __init__(
        self,
        cluster: str | Path | ClusterSpec,
        *,
        clock: str | Clock = "real",
        speed: float = 1.0,
        plan: Plan | None = None,
        times: KubeletTimes | None = None,
        random_seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
        kubeconfig_path: Path | None = None,
        metrics_port: int | None = None,
        serve: bool = True,
    ) -> None:
        self.spec = cluster if isinstance(cluster, ClusterSpec) else load_cluster(cluster)
        self.clock: Clock = make_clock(clock, speed=speed) if isinstance(clock, str) else clock
        self.store = Store(self.clock, seed=random_seed)
        seed(self.store)
        self.faults = Faults()
        self.timers = Timers(self.clock)
        plan = plan if plan is not None else Plan(seed=random_seed)
        self.kubelets = Kubelets(self.store, self.spec, plan=plan, timers=self.timers, times=times)
        self._server = None
        if serve:
            bookmarks = BOOKMARK_SECONDS / (speed if clock == "real" else 1.0)
            self._server = SimulatedServer(self.store, faults=self.faults, bookmark_seconds=bookmarks)
        self._exporter = CardExporter(self.kubelets) if metrics_port is not None else None
        self._host, self._port, self._metrics_port = host, port, metrics_port or 0
        self._kubeconfig_path = kubeconfig_path
        self._cleanup = contextlib.ExitStack()
        self.controllers: Controllers | None = None

    @property
    def url(self) -> str:
        """The API server's address."""
        if self._server is None:
            raise RuntimeError("url: this cluster was made with serve=False")
        return self._server.url

    @property
    def metrics_url(self) -> str:
        """Where the cards' metrics are served."""
        if self._exporter is None:
            raise RuntimeError("metrics_url: this cluster was made without metrics_port")
        return self._exporter.url

    @property
    def kubeconfig_path(self) -> Path:
        """A kubeconfig for `url`."""
        if self._kubeconfig_path is None:
            raise RuntimeError("kubeconfig_path: the cluster is not running, or was made with serve=False")
        return self._kubeconfig_path

    async def advance(self, seconds: float) -> None:
        """Move a virtual clock; TypeError on a real one."""
        if not isinstance(self.clock, VirtualClock):
            raise TypeError("clock: only a virtual clock can be advanced; this cluster runs on a real one")
        await self.clock.advance(seconds)

    async def start(self) -> None:
        """Start everything and wait until the nodes are Ready."""
        self.controllers = Controllers(self.store, timers=self.timers)
        self.kubelets.start()
        if self._server is not None:
            await self._server.start(self._host, self._port)
            if self._kubeconfig_path is None:
                directory = self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="muster-simulator-"))
                self._kubeconfig_path = Path(directory) / "kubeconfig"
            self._server.write_kubeconfig(self._kubeconfig_path)
        if self._exporter is not None:
            await self._exporter.start(self._host, self._metrics_port)
        if isinstance(self.clock, VirtualClock):
            await self.clock.advance(READY_SECONDS)
        else:
            await self.clock.sleep(READY_SECONDS)

    async def stop(self) -> None:
        """Stop everything; harmless when it is stopped already."""
        self.kubelets.stop()
        if self.controllers is not None:
            self.controllers.stop()
        if self._exporter is not None:
            await self._exporter.stop()
        if self._server is not None:
            await self._server.stop()
        self._cleanup.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def run_simulated_cluster(
    *,
    cluster: str | Path | ClusterSpec,
    port: int,
    kubeconfig_path: Path,
    clock: str | Clock = "real",
    speed: float = 1.0,
    plan: Plan | None = None,
    metrics_port: int | None = None,
    on_ready: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Run a cluster until SIGTERM or SIGINT. `on_ready` is told url, kubeconfig and, when served, metrics.

    Raises:
        ClusterError: the cluster cannot be built.
        OSError: the port is taken.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        running = SimulatedCluster(
            cluster,
            clock=clock,
            speed=speed,
            plan=plan,
            port=port,
            kubeconfig_path=kubeconfig_path,
            metrics_port=metrics_port,
        )
        async with running as sim:
            if on_ready is not None:
                told: dict[str, Any] = {"url": sim.url, "kubeconfig": str(sim.kubeconfig_path)}
                if metrics_port is not None:
                    told["metrics"] = sim.metrics_url
                on_ready(told)
            await stopped.wait()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def make_clock(name: str, *, speed: float) -> Clock:
    """A clock by name; ValueError names the two there are."""
    if name == "real":
        return RealClock(speed=speed)
    if name == "virtual":
        return VirtualClock()
    raise ValueError(f"clock: {name!r} must be real or virtual")
