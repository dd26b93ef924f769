import asyncio
import contextlib

import msgspec
import pytest_asyncio
import structlog

from muster.bus.client import connect
from muster.bus.messages import StateMessage
from muster.bus.server import EmbeddedServer
from muster.bus.state import StateReader
from muster.bus.streams import StreamName, last_sequence
from muster.bus.subjects import state_subject
from muster.kube.view import Changed, Deleted, Fresh, Listed
from muster.model.policy import Policy
from muster.model.units import incarnation_of
from muster.runtime.config import LeaseTimings, ServiceConfig
from muster.runtime.service import ServiceContext
from muster.simulator.run import SimulatedCluster
from muster.watcher import service
from muster.watcher.following import Follower, Received
from muster.watcher.kinds import watched_kinds
from muster.watcher.metrics import WatcherMetrics
from tests.nats_fixtures import eventually

TIMINGS = LeaseTimings(duration=6.0, renew=2.0, write_timeout=2.0)


class Reading:
    """What a reader of STATE holds."""

    def __init__(self, bus):
        self.reader = StateReader(bus)
        self.objects = {}

    async def run(self):
        async for batch in self.reader.batches():
            if batch.reset:
                self.objects.clear()
            for change in batch.changes:
                if change.object is None:
                    self.objects.pop((change.kind, change.key), None)
                else:
                    self.objects[change.kind, change.key] = change.object

    def keys(self, kind):
        return {key for found, key in self.objects if found == kind}


class Rig:
    def __init__(self, sim, server, bus):
        self.sim, self.store, self.server, self.bus = sim, sim.store, server, bus
        self.reading = Reading(bus)
        self.tasks = {}

    def start(self, name):
        config = ServiceConfig(
            nats_url=self.server.url, kubeconfig=self.sim.kubeconfig_path, lease=TIMINGS, identity=name
        )
        context = ServiceContext(name="watcher", config=config, log=structlog.get_logger())
        self.tasks[name] = asyncio.create_task(service.main(context))
        return context

    async def stop(self, name):
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.wait({task}, timeout=10)
        assert task.done()

    def pod(self, name):
        spec = {"containers": [{"name": "c", "image": "x"}]}
        self.store.create(
            "pods", {"metadata": {"name": name, "namespace": "default"}, "spec": spec}, namespace="default"
        )

    def equal(self):
        """STATE holds every pod at its present version."""
        there = {
            f"default/{pod['metadata']['name']}": pod["metadata"]["resourceVersion"] for pod in self.store.list("pods")
        }
        held = {key: found.resource_version for (kind, key), found in self.reading.objects.items() if kind == "pod"}
        return self.reading.reader.ready and there == held


@pytest_asyncio.fixture(loop_scope="session")
async def rig(tmp_path):
    async with (
        EmbeddedServer(store_dir=tmp_path / "nats") as server,
        await connect(server.url, name="reader") as bus,
        SimulatedCluster("2x8") as sim,
    ):
        with contextlib.suppress(Exception):
            sim.store.create("namespaces", {"metadata": {"name": "muster-system"}})
        running = Rig(sim, server, bus)
        reading = asyncio.create_task(running.reading.run())
        running.start("one")
        try:
            yield running
        finally:
            for name in list(running.tasks):
                await running.stop(name)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def test_state_follows_the_cluster_and_says_how_far_it_has_seen(rig):
    await eventually(lambda: rig.reading.reader.ready)
    assert len(rig.reading.keys("node")) == 2
    for number in range(20):
        rig.pod(f"p{number}")
    await eventually(rig.equal)
    for number in range(0, 20, 2):
        rig.store.delete("pods", "default", f"p{number}", grace_period=0)
    await eventually(rig.equal)
    rig.store.create(
        "podgroups.scheduling.volcano.sh",
        {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}},
        namespace="default",
    )
    await eventually(lambda: "default/g" in rig.reading.keys("podgroup"))
    newest = max(int(pod["metadata"]["resourceVersion"]) for pod in rig.store.list("pods"))
    await eventually(lambda: int(rig.reading.reader.freshness["pod"]) >= newest)


async def test_freshness_waits_for_the_whole_list(rig):
    """After a watch that expired, a list gives its differences one by one and in any order."""
    kind = next(kind for kind in watched_kinds(Policy()) if kind.name == "pod")
    context = ServiceContext(name="watcher", config=ServiceConfig(nats_url=rig.server.url), log=structlog.get_logger())
    follower = Follower(
        rig.bus, None, (kind,), identity="x", metrics=WatcherMetrics(context.metrics), ready=context.ready, log=context.log
    )  # fmt: skip
    metadata = {"name": "b", "namespace": "ns", "resourceVersion": "15"}
    changed = Changed(kind.info, msgspec.convert({"metadata": metadata}, kind.info.struct))
    for change, fresh in (
        (Listed(kind.info, [], "10"), "10"),
        (Deleted(kind.info, "ns/a", "u", "20"), "10"),
        (changed, "10"),
        (Fresh(kind.info, "20"), "20"),
    ):
        follower._note(Received(kind=kind, change=change, at=0.0))
        assert follower._freshness == {"pod": fresh}


async def test_the_end_of_a_pod_moves_freshness_past_it(rig):
    await eventually(lambda: rig.reading.reader.ready)
    for number in range(5):
        rig.pod(f"p{number}")
    await eventually(rig.equal)
    newest = max(int(pod["metadata"]["resourceVersion"]) for pod in rig.store.list("pods"))
    await eventually(lambda: int(rig.reading.reader.freshness["pod"]) >= newest)
    rig.store.delete("pods", "default", "p0", grace_period=0)
    await eventually(lambda: int(rig.reading.reader.freshness["pod"]) > newest)
    assert "default/p0" not in rig.reading.keys("pod"), "the deletion is in the view that claims its resourceVersion"


async def test_a_stray_message_is_put_right(rig):
    rig.pod("mine")
    await eventually(rig.equal)
    stray = StateMessage(epoch=rig.reading.reader.epoch, kind="pod", key="default/mine", object=None)
    await rig.bus.publish(state_subject("pod", "default/mine"), stray)
    await eventually(lambda: "default/mine" not in rig.reading.keys("pod"))
    await eventually(rig.equal)


async def test_a_new_watcher_brings_up_to_date_what_changed_while_none_was_there(rig):
    rig.pod("goes")
    rig.pod("stays")
    await eventually(rig.equal)
    epoch = rig.reading.reader.epoch
    await rig.stop("one")
    rig.store.delete("pods", "default", "goes", grace_period=0)
    rig.pod("comes")
    rig.start("two")
    await eventually(lambda: rig.reading.reader.epoch > epoch and rig.equal())
    assert rig.reading.keys("pod") == {"default/stays", "default/comes"}


async def test_a_second_watcher_stands_by_and_writes_nothing(rig):
    await eventually(lambda: rig.reading.reader.ready)
    epoch = rig.reading.reader.epoch
    context = rig.start("two")
    await eventually(lambda: context.ready.ready)
    rig.pod("p")
    await eventually(rig.equal)
    assert rig.reading.reader.epoch == epoch


async def test_an_emptied_store_is_filled_again_above_every_old_sequence(rig):
    rig.pod("p")
    await eventually(rig.equal)
    before = await last_sequence(rig.bus, StreamName.STATE)
    await rig.bus.jetstream.delete_stream(StreamName.STATE)
    rig.pod("q")

    async def filled():
        with contextlib.suppress(Exception):
            return await last_sequence(rig.bus, StreamName.STATE) > before and rig.equal()

    await eventually(filled, within=40)
    assert incarnation_of(await last_sequence(rig.bus, StreamName.STATE)) > incarnation_of(before)


async def test_it_goes_on_when_nats_and_watches_are_cut(rig):
    rig.pod("p")
    await eventually(rig.equal)
    await rig.server.kill()
    rig.pod("q")
    await rig.server.restart()
    await eventually(rig.equal, within=30)
