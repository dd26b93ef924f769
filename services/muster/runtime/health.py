"""/metrics, /healthz and /readyz of a service.

A service is healthy while its event loop turns, and ready while every condition that it named holds.
"""

import asyncio
import time

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.exposition import choose_encoder


class Readiness:
    """Named conditions; ready when all that were named hold, and at least one was named."""

    def __init__(self) -> None:
        self._conditions: dict[str, bool] = {}

    def set(self, name: str, value: bool) -> None:  # noqa: FBT001  (reads as a sentence: set("state", True))
        """Say whether a condition holds now."""
        self._conditions[name] = value

    @property
    def ready(self) -> bool:
        """True when every named condition holds."""
        return bool(self._conditions) and all(self._conditions.values())

    def missing(self) -> list[str]:
        """The conditions that do not hold."""
        return sorted(name for name, value in self._conditions.items() if not value)


class LoopWatch:
    """Measures how late the event loop runs a timer, in seconds."""

    INTERVAL = 0.25

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "muster_event_loop_lag_seconds",
            "How late the event loop ran a timer.",
            registry=registry,
            buckets=(0.005, 0.02, 0.05, 0.1, 0.25, 1, 5),
        )
        self.last_turn = time.monotonic()

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(self.INTERVAL)
            self.last_turn = time.monotonic()
            self._lag.observe(max(0.0, self.last_turn - before - self.INTERVAL))


class HealthServer:
    """The small HTTP server of a service."""

    def __init__(self, *, registry: CollectorRegistry, readiness: Readiness, service: str, version: str) -> None:
        self._registry = registry
        self._readiness = readiness
        self._runner: web.AppRunner | None = None
        self.port = 0
        Gauge("muster_build_info", "Version of the running service.", ["service", "version"], registry=registry).labels(
            service, version
        ).set(1)

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes any free one, which is in `port` afterwards."""
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/healthz", self._healthy)
        application.router.add_get("/readyz", self._ready)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        encoder, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encoder(self._registry), headers={"Content-Type": content_type})

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        if self._readiness.ready:
            return web.Response(text="ok\n")
        return web.Response(status=503, text=f"waiting for: {', '.join(self._readiness.missing()) or 'start'}\n")
