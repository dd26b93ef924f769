"""Claims that wait for their pods, end to end: simulated cluster with its volumes, real NATS, real watcher and scheduler."""

import pytest

from muster.model.policy import Policy, Timeouts
from tests.line import Line
from tests.nats_fixtures import eventually
from tests.scheduler.test_surroundings import HOST, create_group, create_pod, nodes_of, waits_with

CLASSES = "storageclasses.storage.k8s.io"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
LATER = "WaitForFirstConsumer"
QUICK = Policy(timeouts=Timeouts(bind=4.0, backoff_initial=0.5))


@pytest.fixture
async def line(nats_server):
    async with Line(nats_server.url, cluster="3x8", services=("watcher", "scheduler"), policy=QUICK) as running:
        await running.create_queue("default")
        yield running


class Bound:
    """What stood when pods were bound: whether every claim that a pod mounts was bound then."""

    def __init__(self, line):
        self._store = line.sim.store
        self.ready: dict[str, bool] = {}
        self._store.subscribe("pods", self._on_pod)

    def _on_pod(self, event, pod, old):
        if pod["spec"].get("nodeName") and not (old or {"spec": {}})["spec"].get("nodeName"):
            names = [one["persistentVolumeClaim"]["claimName"] for one in pod["spec"].get("volumes", ())]
            claims = [self._store.get("persistentvolumeclaims", "default", name) for name in names]
            self.ready[pod["metadata"]["name"]] = all(one["status"]["phase"] == "Bound" for one in claims)


async def create_class(line, provisioner="csi.example.com", **more):
    body = {"metadata": {"name": "c"}, "provisioner": provisioner, "volumeBindingMode": LATER, **more}
    await line.writer.create(CLASSES, None, body)


async def create_claim(line, name, mode="ReadWriteOnce"):
    spec = {"accessModes": [mode], "storageClassName": "c", "resources": {"requests": {"storage": "1Gi"}}}
    document = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    await line.writer.create("persistentvolumeclaims", "default", document)


async def create_volume(line, name, node):
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "c",
        "capacity": {"storage": "1Gi"},
        "local": {"path": f"/mnt/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    await line.writer.create("persistentvolumes", None, {"metadata": {"name": name}, "spec": spec})


async def create_gang(line, name, claims):
    await create_group(line, name, minMember=len(claims))
    for number, claim in enumerate(claims):
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        await create_pod(line, f"{name}-{number}", name, volumes=volumes)


async def test_volumes_are_made_where_the_class_admits_them_before_the_pods_are_bound(line):
    bound = Bound(line)
    admitted = {"matchLabelExpressions": [{"key": HOST, "values": ["gpu-node-02"]}]}
    parameters = {"simulator.muster.dev/topology-key": HOST}
    await create_class(line, allowedTopologies=[admitted], parameters=parameters)
    for name in ("a", "b"):
        await create_claim(line, name)
    await create_gang(line, "g", ["a", "b"])
    assert await eventually(lambda: nodes_of(line, "g-")) == ["gpu-node-02"] * 2
    assert bound.ready == {"g-0": True, "g-1": True}
    claim = await line.writer.get("persistentvolumeclaims", "default", "a")
    assert claim.metadata.annotations[SELECTED_NODE] == "gpu-node-02"
    assert int(claim.metadata.annotations["muster.dev/fence"]) > 0


async def test_where_a_provisioner_gives_up_the_gang_is_taken_back_and_goes_elsewhere(line):
    bound = Bound(line)
    await create_class(line, parameters={"simulator.muster.dev/refuses": "gpu-node-01"})
    await create_claim(line, "a")
    await create_gang(line, "g", ["a"])
    assert await eventually(lambda: nodes_of(line, "g-")) == ["gpu-node-02"]
    assert bound.ready == {"g-0": True}


async def test_a_volume_that_takes_too_long_undoes_the_placement_and_is_used_when_it_is_there(line):
    bound = Bound(line)
    await create_class(line, parameters={"simulator.muster.dev/seconds": "80"})
    await create_claim(line, "a")
    await create_gang(line, "g", ["a"])
    found = await eventually(lambda: nodes_of(line, "g-"))
    selected = (await line.writer.get("persistentvolumeclaims", "default", "a")).metadata.annotations[SELECTED_NODE]
    assert found == [selected]
    assert bound.ready == {"g-0": True}
    # The pod was touched by the undoing, under a later entry than that of the first choice.
    pod = next(pod for pod in await line.pods() if pod.metadata.name == "g-0")
    claim = await line.writer.get("persistentvolumeclaims", "default", "a")
    assert int(pod.metadata.annotations["muster.dev/fence"]) > int(claim.metadata.annotations["muster.dev/fence"])


async def test_a_new_leader_waits_for_the_volume_that_the_old_one_asked_for(line):
    bound = Bound(line)
    await create_class(line, parameters={"simulator.muster.dev/seconds": "30"})
    await create_claim(line, "a")
    await create_gang(line, "g", ["a"])

    async def selected():
        claim = await line.writer.get("persistentvolumeclaims", "default", "a")
        marks = claim.metadata.annotations
        return (marks[SELECTED_NODE], marks["muster.dev/fence"]) if SELECTED_NODE in marks else None

    asked = await eventually(selected)
    await line.stop("scheduler")
    await line.start("scheduler", identity="second")
    assert await eventually(lambda: nodes_of(line, "g-")) == [asked[0]]
    assert await selected() == asked
    assert bound.ready == {"g-0": True}


async def test_volumes_made_by_people_are_given_out_once_each_and_decide_the_nodes(line):
    bound = Bound(line)
    await create_class(line, "kubernetes.io/no-provisioner")
    for name, node in (("v1", "gpu-node-02"), ("v2", "gpu-node-03"), ("v3", "gpu-node-03")):
        await create_volume(line, name, node)
    for name in ("a", "b", "c", "d"):
        await create_claim(line, name)
    await create_gang(line, "g", ["a", "b", "c"])
    found = await eventually(lambda: nodes_of(line, "g-"))
    assert sorted(found) == ["gpu-node-02", "gpu-node-03", "gpu-node-03"]
    assert bound.ready == {"g-0": True, "g-1": True, "g-2": True}
    claims = [await line.writer.get("persistentvolumeclaims", "default", name) for name in "abc"]
    assert {claim.spec["volumeName"] for claim in claims} == {"v1", "v2", "v3"}
    await create_gang(line, "h", ["d"])
    row = await waits_with(line, "CLAIM_UNBOUND")
    assert "no unbound volume of StorageClass c suits the PersistentVolumeClaim d of h-0" in row.message
    await create_volume(line, "v4", "gpu-node-01")
    assert await eventually(lambda: nodes_of(line, "h-")) == ["gpu-node-01"]


async def test_a_claim_for_one_pod_keeps_the_next_pod_waiting_until_the_first_has_ended(line):
    await create_class(line)
    await create_claim(line, "a", "ReadWriteOncePod")
    await create_gang(line, "g", ["a"])
    await eventually(lambda: nodes_of(line, "g-"))
    await create_gang(line, "h", ["a"])
    row = await waits_with(line, "CLAIM_IN_USE")
    assert "default/g-0 uses it" in row.message
    (pod,) = [pod for pod in await line.pods() if pod.metadata.name == "g-0"]
    await line.writer.delete("pods", "default", "g-0", uid=pod.metadata.uid)
    assert await eventually(lambda: nodes_of(line, "h-"))
