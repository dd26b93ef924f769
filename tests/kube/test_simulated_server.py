"""The whole edge against the simulated API server: what writes mean, and that views converge through real faults."""

import asyncio
import contextlib
import random

import pytest

from muster.kube.config import connect
from muster.kube.decoding import KINDS
from muster.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, TooManyRequests, Unavailable
from muster.kube.lease import SHORT_TIMINGS, LeaseLock
from muster.kube.recording import reference_to
from muster.kube.reflector import Reflector, ReflectorLimits
from muster.kube.writer import Fenced, Writer
from muster.simulator.crds import load_crds
from muster.simulator.server import SimulatedServer
from muster.simulator.store import Store
from tests.kube.consumer import Consumer
from tests.kube.timings import InstantTiming

POD = {
    "metadata": {"name": "a"},
    "spec": {"schedulerName": "muster", "containers": [{"name": "main", "image": "train"}]},
}


@pytest.fixture
async def simulated():
    server = SimulatedServer(Store(seed=1))
    for definition in load_crds():
        server.store.create("customresourcedefinitions.apiextensions.k8s.io", definition)
    await server.start()
    server.store.create("namespaces", {"metadata": {"name": "team"}})
    yield server
    await server.stop()


@pytest.fixture
async def kube(simulated, tmp_path):
    path = simulated.write_kubeconfig(tmp_path / "simulated")
    async with await connect(kubeconfig=path, user_agent="muster-test") as connected:
        yield connected


@pytest.fixture
async def writer(kube):
    async with Writer(kube, component="muster-test") as made:
        yield made


async def bind(writer, pod, node="n1", **annotations):
    await writer.bind(
        "team",
        pod.metadata.name,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
        node=node,
        annotations=annotations,
    )


async def test_a_bind_puts_node_and_annotations_on_the_pod_together(writer):
    pod = await writer.create("pods", "team", POD)
    await bind(writer, pod, cards="0,1")
    bound = await writer.get("pods", "team", "a")
    assert bound.spec.node_name == "n1"
    assert bound.metadata.annotations["cards"] == "0,1"


async def test_a_second_bind_is_refused_and_names_the_node(writer):
    pod = await writer.create("pods", "team", POD)
    await bind(writer, pod)
    bound = await writer.get("pods", "team", "a")
    with pytest.raises(Conflict) as caught:
        await bind(writer, bound, node="n2")
    assert (caught.value.already_assigned, caught.value.assigned_node) == (True, "n1")


async def test_a_touched_pod_refuses_the_binding_of_a_deposed_leader(writer):
    pod = await writer.create("pods", "team", POD)
    touched = await writer.touch("pods", "team", "a", uid=pod.metadata.uid, fence=7)
    assert touched.object.spec.node_name == ""
    with pytest.raises(Conflict) as caught:
        await bind(writer, pod)
    assert caught.value.precondition
    await bind(writer, touched.object)
    with pytest.raises(Fenced):
        await writer.touch("pods", "team", "a", uid=pod.metadata.uid, fence=6)


async def test_a_binding_for_a_pod_of_the_same_name_but_another_uid_is_refused(writer):
    old = await writer.create("pods", "team", POD)
    await writer.delete("pods", "team", "a", grace_period=0)
    await writer.create("pods", "team", POD)
    with pytest.raises(Conflict) as caught:
        await bind(writer, old)
    assert caught.value.precondition


async def test_a_gated_pod_refuses_a_binding_without_being_stale_or_assigned(writer):
    gated = {**POD, "spec": {**POD["spec"], "schedulingGates": [{"name": "wait"}]}}
    pod = await writer.create("pods", "team", gated)
    with pytest.raises(Conflict) as caught:
        await bind(writer, pod)
    assert not caught.value.already_assigned


async def test_evictions_obey_preconditions_and_budgets(writer, simulated):
    pod = await writer.create("pods", "team", {**POD, "metadata": {"name": "a", "labels": {"app": "x"}}})
    await bind(writer, pod)
    bound = await writer.get("pods", "team", "a")
    with pytest.raises(Conflict):
        await writer.evict("team", "a", uid=bound.metadata.uid, resource_version=pod.metadata.resource_version)
    with pytest.raises(Conflict):
        await writer.evict("team", "a", uid="another")
    budget = {
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    simulated.store.create("poddisruptionbudgets.policy", budget, namespace="team")
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    bound = await writer.patch_status("pods", "team", "a", running)
    with pytest.raises(TooManyRequests) as caught:
        await writer.evict("team", "a", uid=bound.metadata.uid)
    assert caught.value.disruption_budget
    await writer.delete("poddisruptionbudgets.policy", "team", "keep")
    await writer.evict("team", "a", uid=bound.metadata.uid, resource_version=bound.metadata.resource_version)
    evicted = await writer.get("pods", "team", "a")
    assert evicted.metadata.deletion_timestamp is not None


async def test_deletes_and_node_patches_obey_their_preconditions(writer, simulated):
    simulated.store.create("nodes", {"metadata": {"name": "n1"}})
    node = await writer.get("nodes", None, "n1")
    version = node.metadata.resource_version
    cordon = {"metadata": {"resourceVersion": version}, "spec": {"unschedulable": True}}
    cordoned = await writer.merge_patch("nodes", None, "n1", cordon)
    assert cordoned.spec.unschedulable
    with pytest.raises(Conflict) as caught:
        await writer.merge_patch("nodes", None, "n1", cordon)
    assert caught.value.precondition
    with pytest.raises(Conflict):
        await writer.delete("nodes", None, "n1", uid="another")
    await writer.delete("nodes", None, "n1", uid=node.metadata.uid)
    with pytest.raises(NotFound) as missing:
        await writer.get("nodes", None, "n1")
    assert not missing.value.kind_missing


async def test_creates_replaces_and_status_patches_of_objects(writer):
    queue = {"metadata": {"name": "q"}, "spec": {"weight": 2, "capability": {"nvidia.com/gpu": 8}}}
    created = await writer.create("queues.scheduling.volcano.sh", None, queue)
    assert created.spec.weight == 2
    with pytest.raises(AlreadyExists):
        await writer.create("queues.scheduling.volcano.sh", None, queue)
    with pytest.raises(Invalid):
        await writer.create(
            "queues.scheduling.volcano.sh", None, {"metadata": {"name": "bad"}, "spec": {"weight": "x"}}
        )
    document = await writer.get_document("queues.scheduling.volcano.sh", None, "q")
    document["spec"]["weight"] = 3
    assert (await writer.replace("queues.scheduling.volcano.sh", None, "q", document)).spec.weight == 3
    with pytest.raises(Conflict) as caught:
        await writer.replace("queues.scheduling.volcano.sh", None, "q", document)
    assert caught.value.precondition
    patched = await writer.patch_status("queues.scheduling.volcano.sh", None, "q", {"state": "Open"})
    assert (patched.status.state, patched.spec.weight) == ("Open", 3)


async def test_a_write_whose_answer_is_lost_was_perhaps_done(writer, simulated):
    pod = await writer.create("pods", "team", POD)
    simulated.faults.add("lose_answer", count=1)
    with pytest.raises(Unavailable) as caught:
        await bind(writer, pod)
    assert caught.value.unknown_outcome
    assert (await writer.get("pods", "team", "a")).spec.node_name == "n1"


async def test_events_are_written_and_counted(writer, simulated):
    pod = await writer.create("pods", "team", POD)
    for _ in range(3):
        writer.record_event(reference_to(KINDS["pods"], pod.metadata), "Unschedulable", "no room", type="Warning")
        await writer.recorder.drained()
    (recorded,) = simulated.store.list("events", "team")
    assert (recorded["count"], recorded["reason"], recorded["involvedObject"]["name"]) == (3, "Unschedulable", "a")
    assert writer.recorder.failed == 0


async def test_leadership_moves_between_two_processes_with_rising_epochs(kube, simulated):
    locks = [
        LeaseLock(kube, namespace="team", name="scheduler", identity=name, timings=SHORT_TIMINGS) for name in ("a", "b")
    ]
    async with locks[0].leading() as first:
        assert first.epoch == 1
        await locks[1].set_incarnation(4)
        lease = simulated.store.get("leases.coordination.k8s.io", "team", "scheduler")
        assert lease["spec"]["holderIdentity"] == "a"
    async with locks[1].leading() as second:
        assert second.epoch == 2
        assert await locks[0].incarnation() == 4


@pytest.mark.parametrize("seed", range(3))
async def test_the_view_of_a_busy_server_with_faults_ends_equal_to_the_server(kube, simulated, seed):
    chance = random.Random(seed)
    store, faults = simulated.store, simulated.faults
    consumer = Consumer()
    reflector = Reflector(kube, "pods", consumer.deliver, timing=InstantTiming(), limits=ReflectorLimits(page_size=7))
    running = asyncio.create_task(reflector.run())
    for _ in range(300):
        name = f"p{chance.randrange(40)}"
        match chance.randrange(14):
            case 0:
                faults.cut_watches("pods")
            case 1:
                faults.expire_watches("pods")
                store.compact("pods")
            case 2:
                faults.add("error", code=chance.choice([429, 500, 503]), resource="pods", count=1)
            case 3:
                faults.add("reset", resource="pods", count=1)
            case 4 | 5 | 6 if store.find("pods", "team", name):
                store.delete("pods", "team", name, grace_period=0)
            case 7 if store.find("pods", "team", name):
                store.delete("pods", "team", name, grace_period=0)
                store.create("pods", {**POD, "metadata": {"name": name}}, namespace="team")
            case _ if store.find("pods", "team", name):
                store.patch("pods", "team", name, {"metadata": {"labels": {"n": str(chance.random())}}})
            case _:
                store.create("pods", {**POD, "metadata": {"name": name}}, namespace="team")
        if chance.random() < 0.2:
            await asyncio.sleep(0.002)
    faults.clear()

    def identities():
        return {
            f"team/{pod['metadata']['name']}": (pod["metadata"]["uid"], pod["metadata"]["resourceVersion"])
            for pod in store.list("pods")
        }

    async with asyncio.timeout(10):
        while True:
            seen = {key: (pod.metadata.uid, pod.metadata.resource_version) for key, pod in consumer.objects.items()}
            if seen == identities() or running.done():
                break
            await asyncio.sleep(0.01)
    assert not running.done()
    assert consumer.listed == 1
    assert sum(count for key, count in simulated.verbs.items() if "list" in key) > 1, "no fault led to a new list"
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
