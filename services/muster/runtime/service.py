"""The frame of every service process.

run_service(name, main, config)
  logs, metrics and health first ─► main(context) ─► SIGTERM or SIGINT sets context.stopping and cancels main
  ─► main has a bounded time to leave ─► exit code
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from muster import __version__
from muster.model.policy import Policy
from muster.runtime.config import ServiceConfig
from muster.runtime.health import HealthServer, LoopWatch, Readiness
from muster.runtime.logs import configure_logs
from muster.runtime.policy_watch import PolicySource

STOP_SECONDS = 10.0


class ServiceContext:
    """What a service's main() gets."""

    def __init__(
        self,
        *,
        name: str,
        config: ServiceConfig,
        log: structlog.stdlib.BoundLogger,
        policy: Policy | None = None,
        policies: PolicySource | None = None,
    ) -> None:
        """`policies` follows a file; without it the policy is `policy`, or the default one, for good."""
        self.name = name
        self.config = config
        self.log = log
        self.policies = policies if policies is not None else PolicySource(policy=policy or Policy())
        self.metrics = CollectorRegistry()
        self.policies.measure(self.metrics)
        self.ready = Readiness()
        self.stopping = asyncio.Event()

    @property
    def policy(self) -> Policy:
        """The policy in force now; whoever keeps it follows `policies`."""
        return self.policies.current


async def run_service(name: str, main: Callable[[ServiceContext], Awaitable[None]], config: ServiceConfig) -> int:
    """Run a service until it ends or is told to stop; returns the process's exit code."""
    log = configure_logs(log_format=config.log_format, level=config.log_level, service=name)
    policies = PolicySource(config.policy_path, log=log)
    context = ServiceContext(name=name, config=config, log=log, policies=policies)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=context.metrics)
    health = HealthServer(registry=context.metrics, readiness=context.ready, service=name, version=__version__)
    await health.start(config.metrics_host, config.metrics_port)
    port_file = None
    if config.ports_directory is not None:
        port_file = config.ports_directory / f"{name}-{os.getpid()}.port"
        port_file.write_bytes(msgspec.json.encode({"service": name, "pid": os.getpid(), "port": health.port}))
    watches = [asyncio.create_task(LoopWatch(context.metrics).run()), asyncio.create_task(policies.run())]
    work = asyncio.create_task(_work(main, context))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, context, work)
    log.info("started", version=__version__, identity=config.identity, metrics_port=health.port)
    try:
        return await _outcome(work, context)
    finally:
        for watch in watches:
            watch.cancel()
        await health.stop()
        if port_file is not None:
            with contextlib.suppress(FileNotFoundError):
                port_file.unlink()
        log.info("stopped")


async def _work(main: Callable[[ServiceContext], Awaitable[None]], context: ServiceContext) -> None:
    await main(context)


def _stop(context: ServiceContext, work: "asyncio.Task[None]") -> None:
    context.stopping.set()
    work.cancel()


async def _outcome(work: "asyncio.Task[None]", context: ServiceContext) -> int:
    stopping = asyncio.create_task(context.stopping.wait())
    await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not work.done():
        await asyncio.wait({work}, timeout=STOP_SECONDS)
    if not work.done():
        context.log.error("did not stop in time", seconds=STOP_SECONDS)
        return 1
    if work.cancelled():
        return 0
    error = work.exception()
    if error is None:
        return 0
    if context.stopping.is_set() and isinstance(error, asyncio.CancelledError):
        return 0
    context.log.error("failed", exc_info=error)
    return 1
