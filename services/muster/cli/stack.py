"""A whole Muster on this machine: embedded NATS, a simulated cluster (or a real one by kubeconfig), every service.

    Stack ── EmbeddedServer
      ├──── python -m muster.simulator          (unless a kubeconfig is given)
      └──── muster service NAME …               restarted, with growing pauses, when one ends by itself

Everything lives under one state directory; everything is gone when the stack stops, or when its process dies.
"""

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import msgspec

from muster.bus.server import EmbeddedServer
from muster.kube.config import connect as connect_kube
from muster.kube.errors import AlreadyExists, KubeError
from muster.kube.writer import Writer
from muster.runtime import ServiceConfig
from muster.runtime.processes import end, spawn

SERVICES = ("watcher", "controller", "scheduler", "preemptor", "autoscaler")
READY_SECONDS = 60.0
PAUSE_SHORTEST = 0.2
PAUSE_LONGEST = 10.0
STEADY_SECONDS = 30.0
CRASHES = 3
"""So many ends before the stack was ready: it will not become ready."""


class StackError(RuntimeError):
    """A part did not start; the message says which, and where its log is."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running stack is found; written to ``up.json`` in its state directory."""

    pid: int
    nats_url: str
    kubeconfig: str
    api_url: str = ""


class SimulatorReady(msgspec.Struct, frozen=True):
    """The line that the simulator prints when it serves."""

    url: str
    kubeconfig: str


class Service:
    """One service process that is kept running."""

    def __init__(self, name: str, *, environ: Mapping[str, str], log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.restarts = 0
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = True

    @property
    def pid(self) -> int | None:
        """Of the running process, None between two runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    async def keep(self) -> None:
        """Run the service, again and again, until cancelled."""
        pause = PAUSE_SHORTEST
        while self._wanted:
            began = time.monotonic()
            self._process = spawn(
                [sys.executable, "-m", "muster", "service", self.name], log_path=self.log_path, environ=self._environ
            )
            while self._process.poll() is None:
                await asyncio.sleep(0.05)
            self.restarts += 1
            pause = PAUSE_SHORTEST if time.monotonic() - began > STEADY_SECONDS else min(pause * 2, PAUSE_LONGEST)
            await asyncio.sleep(pause)

    def signal(self, number: int) -> None:
        """Send a signal to the running process."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    async def stop(self) -> None:
        """End it for good."""
        self._wanted = False
        if self._process is not None:
            await end(self._process)


class Stack:
    """See the module; an async context manager."""

    def __init__(
        self,
        state_dir: Path,
        *,
        cluster: str = "10x8",
        kubeconfig: Path | None = None,
        api_port: int = 0,
        nats_port: int = 0,
        services: tuple[str, ...] = SERVICES,
        environ: Mapping[str, str] | None = None,
        replicas: int = 1,
        simulator_arguments: tuple[str, ...] = (),
    ) -> None:
        self.state_dir = state_dir.resolve()
        self.nats = EmbeddedServer(store_dir=self.state_dir / "nats", port=nats_port)
        self.kubeconfig = kubeconfig
        self.api_url = ""
        self.services: list[Service] = []
        self._cluster = cluster
        self._api_port = api_port
        self._names = services
        self._replicas = replicas
        self._extra = dict(environ or {})
        self._simulator_arguments = simulator_arguments
        self._simulator: subprocess.Popen[bytes] | None = None
        self._keepers: list[asyncio.Task[None]] = []

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

    @property
    def address(self) -> Address:
        """How to reach it."""
        return Address(pid=os.getpid(), nats_url=self.nats.url, kubeconfig=str(self.kubeconfig), api_url=self.api_url)

    async def start(self) -> None:
        """Start every part; returns when each service is ready.

        Raises:
            StackError: a part did not start.
        """
        try:
            self._make_directories()
        except OSError as error:
            raise StackError(f"{self.state_dir} cannot be used: {error.strerror}; name another --state-dir") from error
        nats = asyncio.create_task(self.nats.start())
        if self.kubeconfig is None:
            await self._start_simulator()
        await nats
        await self._create_namespace()
        environ = self._environ()
        for name in self._names:
            for replica in range(self._replicas):
                suffix = f"-{replica + 1}" if self._replicas > 1 else ""
                service = Service(name, environ=environ, log_path=self.state_dir / "logs" / f"{name}{suffix}.log")
                self.services.append(service)
                self._keepers.append(asyncio.create_task(service.keep()))
        await self.ready()
        (self.state_dir / "up.json").write_bytes(msgspec.json.format(msgspec.json.encode(self.address)))

    def _make_directories(self) -> None:
        # A simulated cluster begins empty, so what NATS remembers of the last one is void.
        for name in ("logs", "ports", *(("nats",) if self.kubeconfig is None else ())):
            shutil.rmtree(self.state_dir / name, ignore_errors=True)
            (self.state_dir / name).mkdir(parents=True)
        (self.state_dir / "nats").mkdir(exist_ok=True)

    async def stop(self) -> None:
        """Stop everything; nothing is left running."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(service.stop() for service in self.services))
        if self._simulator is not None:
            await end(self._simulator)
        await self.nats.stop()
        with contextlib.suppress(FileNotFoundError):
            (self.state_dir / "up.json").unlink()

    def service(self, name: str) -> Service:
        """The first process of a service."""
        return next(service for service in self.services if service.name == name)

    def _environ(self) -> dict[str, str]:
        """The services' environment: ours without KUBECONFIG, which is never read."""
        own = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        return own | {
            "MUSTER_NATS_URL": self.nats.url,
            "MUSTER_KUBECONFIG": str(self.kubeconfig),
            "MUSTER_PORTS_DIRECTORY": str(self.state_dir / "ports"),
            **self._extra,
        }

    async def _create_namespace(self) -> None:
        """Where the services keep their Leases."""
        assert self.kubeconfig is not None
        async with await connect_kube(kubeconfig=self.kubeconfig, user_agent="muster-up") as kube:
            try:
                await Writer(kube).create("namespaces", None, {"metadata": {"name": ServiceConfig().namespace}})
            except AlreadyExists:
                return
            except KubeError as error:
                raise StackError(f"the cluster cannot be used: {error}") from error

    async def _start_simulator(self) -> None:
        kubeconfig = self.state_dir / "kubeconfig"
        log_path = self.state_dir / "logs" / "simulator.log"
        command = [
            sys.executable, "-m", "muster.simulator", "--cluster", self._cluster,
            "--port", str(self._api_port), "--kubeconfig", str(kubeconfig), *self._simulator_arguments,
        ]  # fmt: skip
        process = spawn(command, log_path=log_path, stdout=subprocess.PIPE)
        self._simulator = process
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        if not line:
            told = last_line(log_path).removeprefix("error: ")
            raise StackError(f"the simulated cluster did not start: {told} (see {log_path})")
        ready = msgspec.json.decode(line, type=SimulatorReady)
        self.api_url, self.kubeconfig = ready.url, Path(ready.kubeconfig)

    async def ready(self, *, seconds: float = READY_SECONDS) -> None:
        """Wait until every service answers that it is ready.

        Raises:
            StackError: one is not ready in time, with what it waits for.
        """
        waiting: dict[str, str] = {}
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            deadline = time.monotonic() + seconds
            while True:
                waiting = {}
                for service in self.services:
                    answer = await self._readiness(session, service)
                    if answer != "ok":
                        waiting[service.name] = answer
                if not waiting:
                    return
                crashing = next((service for service in self.services if service.restarts >= CRASHES), None)
                if crashing is not None:
                    why = last_error(crashing.log_path)
                    raise StackError(f"{crashing.name} ends again and again: {why} (see {crashing.log_path})")
                if time.monotonic() > deadline:
                    name, why = next(iter(waiting.items()))
                    log_path = self.service(name).log_path
                    raise StackError(f"{name} is not ready after {seconds:g} s: {why} (see {log_path})")
                await asyncio.sleep(0.1)

    async def _readiness(self, session: aiohttp.ClientSession, service: Service) -> str:
        port = self.metrics_port(service)
        if port is None:
            return last_line(service.log_path) or "starting"
        try:
            async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                return (await answer.text()).strip()
        except (aiohttp.ClientError, TimeoutError) as error:
            return str(error) or "no answer"

    def metrics_port(self, service: Service) -> int | None:
        """Where the running process of a service serves its metrics, None while it starts."""
        path = self.state_dir / "ports" / f"{service.name}-{service.pid}.port"
        try:
            return int(msgspec.json.decode(path.read_bytes())["port"])
        except (OSError, msgspec.DecodeError, KeyError):
            return None


def last_line(path: Path) -> str:
    """The last line of a log, '' when there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][:300] if lines else ""


def last_error(path: Path) -> str:
    """The last line of a log that tells of an error, else its last line."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    errors = [line for line in lines if '"level": "error"' in line or line.startswith("muster")]
    return (errors or lines or [""])[-1][-300:]


def find_address(state_dir: Path) -> Address | None:
    """The address of the stack that runs with this state directory, None when none does."""
    try:
        address = msgspec.json.decode((state_dir / "up.json").read_bytes(), type=Address)
        os.kill(address.pid, 0)
    except (OSError, msgspec.DecodeError):
        return None
    return address
