"""A simulated cluster, NATS, and the watcher and controller as tasks of the test's own process."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog
from nats.js.errors import NotFoundError

from muster.bus.client import Bus, connect
from muster.bus.envelope import decode
from muster.bus.messages import Cancel, Decision, StatusEvent, Submit
from muster.bus.server import EmbeddedServer
from muster.bus.streams import StreamName
from muster.bus.subjects import decision_subject, jobs_cancel, jobs_submit, status_subject
from muster.bus.submissions import Submissions
from muster.controller import service as controller
from muster.model.policy import Policy, Tenant
from muster.runtime.config import LeaseTimings, ServiceConfig
from muster.runtime.service import ServiceContext
from muster.simulator.errors import ApiError
from muster.simulator.pod_plan import Plan
from muster.simulator.run import SimulatedCluster
from muster.watcher import service as watcher
from tests.nats_fixtures import eventually

TIMINGS = LeaseTimings(duration=6.0, renew=2.0, write_timeout=2.0)
PODS = "pods"
VCJOBS = "jobs.batch.volcano.sh"
BATCH_JOBS = "jobs.batch"
PODGROUPS = "podgroups.scheduling.volcano.sh"
QUEUES = "queues.scheduling.volcano.sh"
STOP_SECONDS = 10.0
CLUSTER = "2x8:stock"
POLICY = Policy(
    tenants={
        "default": Tenant(),
        "team-a": Tenant(namespaces=("team-a",), default_namespace="team-a", queues=("default", "closed", "nowhere")),
    }
)


def phase_of(job: dict[str, Any]) -> str:
    """The phase that a job's status names; '' before it has one."""
    return str(((job.get("status") or {}).get("state") or {}).get("phase", ""))


class Rig:
    """Everything together."""

    def __init__(self, sim: SimulatedCluster, server: EmbeddedServer, bus: Bus) -> None:
        self.sim = sim
        self.store = sim.store
        self.server = server
        self.bus = bus
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, name: str, main: Any) -> ServiceContext:
        config = ServiceConfig(
            nats_url=self.server.url,
            kubeconfig=self.sim.kubeconfig_path,
            lease=TIMINGS,
            identity=f"{name}-{id(object())}",
        )
        context = ServiceContext(name=name, config=config, log=structlog.get_logger().bind(service=name), policy=POLICY)
        self.tasks[name] = asyncio.create_task(main(context))
        return context

    async def stop(self, name: str) -> None:
        task = self.tasks.pop(name)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=STOP_SECONDS)
        if not done:
            stuck = [other for other in asyncio.all_tasks() if other is not asyncio.current_task()]
            for other in stuck:
                other.print_stack()
        assert done, f"{name} does not stop"
        if not task.cancelled():
            task.result()

    async def stop_all(self) -> None:
        for name in list(self.tasks):
            await self.stop(name)

    def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        try:
            return self.store.get(kind, namespace, name)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        return sorted(self.store.list(PODS, namespace), key=lambda pod: pod["metadata"]["name"])

    def events(self, namespace: str, name: str) -> list[tuple[str, str]]:
        return [
            (event["reason"], event["message"])
            for event in self.store.list("events", namespace)
            if event["involvedObject"]["name"] == name
        ]

    def bind(self, namespace: str, name: str, node: str) -> None:
        self.store.bind(
            namespace,
            name,
            {"metadata": {"name": name, "namespace": namespace}, "target": {"kind": "Node", "name": node}},
        )

    def bind_all(self, namespace: str, prefix: str, *, limit: int = 100) -> int:
        """Bind the unbound pods of this prefix to the first node; how many are bound now."""
        node = self.store.list("nodes")[0]["metadata"]["name"]
        mine = [pod for pod in self.pods(namespace) if pod["metadata"]["name"].startswith(prefix)]
        bound = sum(bool(pod["spec"].get("nodeName")) for pod in mine)
        for pod in mine:
            waits = not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
            if waits and bound < limit:
                self.bind(namespace, pod["metadata"]["name"], node)
                bound += 1
        return bound

    def phase(self, name: str, namespace: str = "default") -> str:
        job = self.get(VCJOBS, namespace, name)
        return "" if job is None else phase_of(job)

    async def decide(self, gang: str, **values: Any) -> None:
        verb = values.pop("verb", "pending")
        decision = Decision(verb=verb, gang=gang, at=time.time(), **values)
        await self.bus.publish(decision_subject(verb, gang), decision)

    async def cancel(self, tenant: str, submission_id: str) -> None:
        await self.bus.publish(jobs_cancel(tenant), Cancel(id=submission_id))

    async def states(self, tenant: str, submission_id: str) -> list[str]:
        events = await self.statuses(tenant, submission_id)
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        return [event.state for event in events]

    async def submit(self, tenant: str, **values: Any) -> None:
        await self.bus.publish(jobs_submit(tenant), Submit(**values))

    async def outcome(self, tenant: str, submission_id: str) -> Any:
        found = await Submissions(self.bus).find(tenant, submission_id)
        return None if found is None else found.outcome

    async def statuses(self, tenant: str, submission_id: str) -> list[StatusEvent]:
        subject, events, sequence = status_subject(tenant, submission_id), [], 1
        while True:
            try:
                found = await self.bus.jetstream.get_msg(StreamName.STATUS, seq=sequence, subject=subject, next=True)
            except NotFoundError:
                return events
            events.append(decode(StatusEvent, found.data, found.headers))
            sequence = found.seq + 1


@contextlib.asynccontextmanager
async def running(directory: Path, *, plan: Plan | None = None) -> AsyncIterator[Rig]:
    """A cluster of two nodes with eight cards each, and everything that this directory tests."""
    async with (
        EmbeddedServer(store_dir=directory / "nats") as server,
        await connect(server.url, name="test") as bus,
        SimulatedCluster(CLUSTER, plan=plan) as sim,
    ):
        for name in ("muster-system", "team-a"):
            with contextlib.suppress(ApiError):
                sim.store.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        rig = Rig(sim, server, bus)
        rig.start("watcher", watcher.main)
        rig.start("controller", controller.main)
        try:
            await eventually(lambda: rig.get(QUEUES, None, "default") and rig.get(QUEUES, None, "root"), within=30)
            yield rig
        finally:
            await rig.stop_all()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    """One for the session: every test uses names of its own."""
    async with running(tmp_path_factory.mktemp("rig")) as rig:
        yield rig


@pytest_asyncio.fixture(loop_scope="session")
async def own_rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """One for the test: it stops and breaks things."""
    async with running(tmp_path) as rig:
        yield rig
