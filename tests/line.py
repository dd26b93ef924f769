"""The whole line in one process for tests: simulated cluster, real NATS, the services' real main()s.

async with Line(nats.url, cluster="2x8") as line:
    line.sim, line.bus, line.writer, line.client
    await line.stop("scheduler"); await line.start("scheduler")
"""

import asyncio
import contextlib
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from muster.bus.client import Bus
from muster.bus.client import connect as connect_bus
from muster.client import Muster
from muster.kube.config import Kube
from muster.kube.config import connect as connect_kube
from muster.kube.writer import Writer
from muster.model.policy import Policy
from muster.runtime import ServiceConfig, ServiceContext
from muster.runtime.config import LeaseTimings
from muster.runtime.policy_watch import PolicySource
from muster.simulator.run import SimulatedCluster
from tests.nats_fixtures import eventually

SHORT_LEASE = LeaseTimings(duration=6.0, renew=2.0, write_timeout=2.0)


class Line:
    """See the module."""

    def __init__(
        self,
        nats_url: str,
        *,
        cluster: Any = "2x8",
        services: tuple[str, ...] = ("watcher", "controller", "scheduler"),
        policy: Policy | None = None,
        policy_path: Path | None = None,
        speed: float = 10.0,
    ) -> None:
        self.sim = SimulatedCluster(cluster, speed=speed)
        self.nats_url = nats_url
        self._services = services
        self._policy = policy or Policy()
        self._policy_path = policy_path
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.contexts: dict[str, ServiceContext] = {}
        self._exits = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._exits.enter_async_context(self.sim)
        self.bus: Bus = await self._exits.enter_async_context(await connect_bus(self.nats_url, name="line"))
        self.client = Muster(self.bus, tenant="default")
        kube: Kube = await self._exits.enter_async_context(
            await connect_kube(kubeconfig=Path(self.sim.kubeconfig_path), user_agent="line")
        )
        self.writer = Writer(kube)
        await self.writer.create("namespaces", None, {"metadata": {"name": "muster-system"}})
        for name in self._services:
            await self.start(name)
        await self.ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._tasks):
            await self.stop(name)
        await self._exits.aclose()

    async def start(self, name: str, *, identity: str | None = None) -> None:
        """Run a service's main() as a task."""
        fields: dict[str, Any] = {"identity": identity} if identity else {}
        config = ServiceConfig(
            nats_url=self.nats_url, kubeconfig=Path(self.sim.kubeconfig_path), lease=SHORT_LEASE, **fields
        )
        log = structlog.get_logger().bind(service=name)
        if self._policy_path is None:
            policies = PolicySource(policy=self._policy)
        else:
            policies = PolicySource(self._policy_path, log=log)
            self._watches[name] = asyncio.create_task(policies.run(every=0.1))
        context = ServiceContext(name=name, config=config, log=log, policies=policies)
        self.contexts[name] = context
        self._tasks[name] = asyncio.create_task(import_module(f"muster.{name}.service").main(context))

    async def stop(self, name: str) -> None:
        """Cancel a service and wait until it is gone."""
        task = self._tasks.pop(name)
        if name in self._watches:
            self._watches.pop(name).cancel()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def ready(self) -> None:
        """Every service says that it is ready; one that has failed is told."""

        def all_ready() -> bool:
            for task in self._tasks.values():
                if task.done():
                    task.result()
            return all(self.contexts[name].ready.ready for name in self._tasks)

        await eventually(all_ready)

    async def pods(self, namespace: str = "default") -> list[Any]:
        """The pods of a namespace."""
        return list(await self.writer.list("pods", namespace))

    async def create_gang(
        self,
        name: str,
        *,
        pods: int,
        minimum: int | None = None,
        cards: int = 1,
        queue: str = "default",
        annotations: dict[str, str] | None = None,
        priority: str = "",
        labels: dict[str, str] | None = None,
        group_annotations: dict[str, str] | None = None,
    ) -> None:
        """A PodGroup and its pods, as an operator that knows Volcano makes them."""
        await self.writer.create(
            "podgroups.scheduling.volcano.sh",
            "default",
            {
                "metadata": {"name": name, "namespace": "default", "annotations": group_annotations or {}},
                "spec": {
                    "minMember": minimum if minimum is not None else pods,
                    "queue": queue,
                    **({"priorityClassName": priority} if priority else {}),
                },
            },
        )
        for number in range(pods):
            await self.writer.create(
                "pods",
                "default",
                {
                    "metadata": {
                        "name": f"{name}-{number}",
                        "namespace": "default",
                        "labels": labels or {},
                        "annotations": {"scheduling.k8s.io/group-name": name, **(annotations or {})},
                    },
                    "spec": {
                        **({"priorityClassName": priority} if priority else {}),
                        "schedulerName": "muster",
                        "restartPolicy": "Never",
                        "containers": [
                            {
                                "name": "main",
                                "image": "registry.example.com/x:1",
                                "resources": {"limits": {"nvidia.com/gpu": cards}},
                            }
                        ],
                    },
                },
            )

    async def create_priority(self, name: str, value: int) -> None:
        """A PriorityClass."""
        await self.writer.create(
            "priorityclasses.scheduling.k8s.io", None, {"metadata": {"name": name}, "value": value}
        )

    async def create_queue(self, name: str, **spec: Any) -> None:
        """A Queue."""
        await self.writer.create(
            "queues.scheduling.volcano.sh", None, {"metadata": {"name": name}, "spec": {"weight": 1, **spec}}
        )
