"""Volumes and claims on a cluster with virtual time: who is bound to whom, and what a provisioner does."""

import pytest

from muster.simulator.controllers.volumes import CLAIMS, CLASSES, REFUSES, SELECTED_NODE, TOPOLOGY_KEY, VOLUMES
from muster.simulator.run import SimulatedCluster

RACK = "topology.muster.dev/rack"


@pytest.fixture
async def sim():
    async with SimulatedCluster("4x8:2racks", clock="virtual", serve=False) as running:
        running.store.create("namespaces", {"metadata": {"name": "team"}})
        await running.advance(1.0)
        yield running


def create_class(sim, provisioner="csi.example.com", mode="WaitForFirstConsumer", **parameters):
    body = {"metadata": {"name": "c"}, "provisioner": provisioner, "volumeBindingMode": mode, "parameters": parameters}
    sim.store.create(CLASSES, body)


def create_claim(sim, name="data", size="1Gi", **more):
    asks = {"accessModes": ["ReadWriteOnce"], "storageClassName": "c", "resources": {"requests": {"storage": size}}}
    sim.store.create(CLAIMS, {"metadata": {"name": name}, "spec": {**asks, **more}}, namespace="team")


def create_volume(sim, name, size="1Gi", **more):
    offers = {"accessModes": ["ReadWriteOnce"], "storageClassName": "c", "capacity": {"storage": size}}
    sim.store.create(VOLUMES, {"metadata": {"name": name}, "spec": {**offers, **more}})


def claim(sim, name="data"):
    found = sim.store.get(CLAIMS, "team", name)
    return found["status"]["phase"], found["spec"].get("volumeName")


def select(sim, node):
    sim.store.patch(CLAIMS, "team", "data", {"metadata": {"annotations": {SELECTED_NODE: node}}})


async def test_a_claim_that_waits_for_a_pod_gets_a_volume_that_the_selected_node_reaches(sim):
    create_class(sim, **{TOPOLOGY_KEY: RACK})
    create_claim(sim)
    await sim.advance(10.0)
    assert claim(sim) == ("Pending", None)
    select(sim, "gpu-node-03")
    await sim.advance(10.0)
    phase, name = claim(sim)
    assert phase == "Bound"
    volume = sim.store.get(VOLUMES, None, name)
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": RACK, "operator": "In", "values": ["rack-b"]}]
    assert volume["status"]["phase"] == "Bound"
    sim.store.delete(CLAIMS, "team", "data")
    await sim.advance(1.0)
    assert sim.store.find(VOLUMES, None, name) is None


@pytest.mark.parametrize(
    "node",
    [
        pytest.param("gpu-node-02", id="a node for which it cannot"),
        pytest.param("gone", id="a node that does not exist"),
    ],
)
async def test_a_provisioner_gives_up_by_taking_the_selected_node_away(sim, node):
    create_class(sim, **{REFUSES: "gpu-node-01,gpu-node-02"})
    create_claim(sim)
    select(sim, node)
    await sim.advance(10.0)
    assert claim(sim) == ("Pending", None)
    assert SELECTED_NODE not in sim.store.get(CLAIMS, "team", "data")["metadata"]["annotations"]
    select(sim, "gpu-node-03")
    await sim.advance(10.0)
    assert claim(sim)[0] == "Bound"


async def test_volumes_made_by_people_are_bound_to_the_claim_that_they_are_kept_for(sim):
    create_class(sim, "kubernetes.io/no-provisioner")
    create_volume(sim, "v")
    create_volume(sim, "w")
    create_claim(sim)
    select(sim, "gpu-node-01")
    await sim.advance(10.0)
    assert claim(sim) == ("Pending", None)
    assert sim.store.get(VOLUMES, None, "v")["status"]["phase"] == "Available"
    uid = sim.store.get(CLAIMS, "team", "data")["metadata"]["uid"]
    for name in ("w", "v"):  # the second comes too late, and is free again
        kept = {"claimRef": {"namespace": "team", "name": "data", "uid": uid}}
        marks = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
        sim.store.patch(VOLUMES, None, name, {"metadata": marks, "spec": kept})
        await sim.advance(10.0)
    assert claim(sim) == ("Bound", "w")
    assert sim.store.get(VOLUMES, None, "v")["status"]["phase"] == "Available"
    assert "claimRef" not in sim.store.get(VOLUMES, None, "v")["spec"]
    sim.store.delete(CLAIMS, "team", "data")
    await sim.advance(1.0)
    assert sim.store.get(VOLUMES, None, "w")["status"]["phase"] == "Released"


async def test_a_claim_with_immediate_binding_takes_the_smallest_volume_that_suits(sim):
    create_class(sim, "kubernetes.io/no-provisioner", mode="Immediate")
    for name, size in (("large", "9Gi"), ("small", "2Gi"), ("smaller", "500Mi")):
        create_volume(sim, name, size)
    create_claim(sim)
    await sim.advance(1.0)
    assert claim(sim) == ("Bound", "small")


async def test_a_claim_that_names_its_volume_waits_for_it(sim):
    create_claim(sim, volumeName="mine")
    await sim.advance(1.0)
    assert claim(sim) == ("Pending", "mine")
    create_volume(sim, "mine")
    await sim.advance(1.0)
    assert claim(sim) == ("Bound", "mine")
