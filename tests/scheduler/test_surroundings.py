"""HyperNodes and volumes from the API to the node: simulated cluster, real NATS, real watcher and scheduler."""

import pytest

from tests.line import Line
from tests.nats_fixtures import eventually

HOST = "kubernetes.io/hostname"
SERVICES = ("watcher", "scheduler")


@pytest.fixture
async def line(nats_server):
    async with Line(nats_server.url, cluster="4x8", services=SERVICES) as running:
        await running.create_queue("default")
        yield running


async def nodes_of(line, gang):
    pods = [pod for pod in await line.pods() if pod.metadata.name.startswith(gang)]
    return [pod.spec.node_name for pod in pods] if pods and all(pod.spec.node_name for pod in pods) else None


async def create_pod(line, name, group, **spec):
    container = {
        "name": "c",
        "image": "registry.example.com/x:1",
        "resources": {"limits": spec.pop("limits", {"cpu": "1"})},
    }
    await line.writer.create(
        "pods",
        "default",
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": {"app": group},
                "annotations": {"scheduling.k8s.io/group-name": group},
            },
            "spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container], **spec},
        },
    )


async def create_group(line, name, **spec):
    document = {"metadata": {"name": name, "namespace": "default"}, "spec": {"queue": "default", **spec}}
    await line.writer.create("podgroups.scheduling.volcano.sh", "default", document)


async def waits_with(line, code):
    async def found():
        return next((row for row in (await line.client.gangs()).gangs if row.code == code), None)

    return await eventually(found)


async def test_a_hard_network_topology_keeps_a_gang_inside_one_hypernode(line):
    names = sorted(node.metadata.name for node in await line.writer.list("nodes"))
    pairs = {"left": (names[0], names[3]), "right": (names[1], names[2])}
    for pair, inside in pairs.items():
        members = [{"type": "Node", "selector": {"exactMatch": {"name": name}}} for name in inside]
        document = {"metadata": {"name": pair}, "spec": {"tier": 1, "members": members}}
        await line.writer.create("hypernodes.topology.volcano.sh", None, document)
    await create_group(line, "g", minMember=2, networkTopology={"mode": "hard", "highestTierAllowed": 1})
    for number in range(2):
        await create_pod(line, f"g-{number}", "g", limits={"nvidia.com/gpu": "8"})
    found = await eventually(lambda: nodes_of(line, "g-"))
    assert tuple(sorted(found)) in pairs.values()
    await create_group(line, "wide", minMember=3, networkTopology={"mode": "hard", "highestTierAllowed": 1})
    for number in range(3):
        await create_pod(line, f"wide-{number}", "wide", limits={"nvidia.com/gpu": "8"})
    row = await waits_with(line, "NEVER_FITS")
    assert row.gang == "default/wide"


async def test_a_pod_goes_where_its_volume_is_and_waits_for_its_claim_until_then(line):
    there = sorted(node.metadata.name for node in await line.writer.list("nodes"))[2]
    await create_group(line, "g", minMember=1)
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await create_pod(line, "g-0", "g", volumes=volumes)
    row = await waits_with(line, "CLAIM_MISSING")
    assert "data" in row.message
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [there]}]}
    await line.writer.create(
        "persistentvolumeclaims",
        "default",
        {
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "local",
                "volumeName": "pv",
            },
        },
    )
    await waits_with(line, "CLAIM_UNBOUND")
    await line.writer.create(
        "persistentvolumes",
        None,
        {
            "metadata": {"name": "pv"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "local": {"path": "/data"},
                "storageClassName": "local",
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
        },
    )
    assert await eventually(lambda: nodes_of(line, "g-")) == [there]


async def test_pods_that_keep_apart_are_bound_to_different_nodes(line):
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "g"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await create_group(line, "g", minMember=3)
    for number in range(3):
        await create_pod(line, f"g-{number}", "g", affinity=affinity)
    found = await eventually(lambda: nodes_of(line, "g-"))
    assert len(set(found)) == 3
