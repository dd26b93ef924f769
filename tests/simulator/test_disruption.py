"""The status of PodDisruptionBudgets on a cluster with virtual time, and evictions that go by it."""

import pytest

from muster.simulator.errors import ApiError
from muster.simulator.run import SimulatedCluster

BUDGETS = "poddisruptionbudgets.policy"


@pytest.fixture
async def sim():
    async with SimulatedCluster("2x8", clock="virtual", serve=False) as running:
        running.store.create("namespaces", {"metadata": {"name": "team"}})
        await running.advance(1.0)
        yield running


def create_pod(sim, name: str, node: str = "gpu-node-01") -> None:
    container = {"name": "main", "image": "registry.example.com/x:1"}
    spec = {"containers": [container], "schedulerName": "muster", "terminationGracePeriodSeconds": 5}
    sim.store.create("pods", {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": spec}, namespace="team")
    sim.store.bind("team", name, {"target": {"name": node}})


def create_budget(sim, **spec) -> None:
    body = {"metadata": {"name": "keep"}, "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec}}
    sim.store.create(BUDGETS, body, namespace="team")


def status(sim, *names):
    found = sim.store.get(BUDGETS, "team", "keep").get("status") or {}
    return tuple(found.get(name) for name in names)


COUNTED = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed")


async def test_a_budget_counts_the_pods_that_are_ready_and_an_eviction_takes_one_of_them(sim):
    for name in ("a", "b", "c"):
        create_pod(sim, name)
    create_budget(sim, minAvailable=2)
    await sim.advance(10.0)
    assert status(sim, *COUNTED) == (3, 2, 3, 1)
    sim.store.evict("team", "a", {})
    with pytest.raises(ApiError, match="disruption budget") as refusal:
        sim.store.evict("team", "b", {})
    assert refusal.value.status()["details"]["causes"][0]["reason"] == "DisruptionBudget"
    await sim.advance(1.0)
    assert status(sim, "currentHealthy", "disruptionsAllowed", "disruptedPods") == (2, 0, {})
    with pytest.raises(ApiError, match="disruption budget"):
        sim.store.evict("team", "b", {})
    await sim.advance(30.0)
    assert sim.store.find("pods", "team", "a") is None
    assert status(sim, *COUNTED) == (2, 2, 2, 0)
    create_pod(sim, "d")
    await sim.advance(10.0)
    assert status(sim, *COUNTED) == (3, 2, 3, 1)
    sim.store.evict("team", "b", {})


async def test_a_changed_budget_forbids_until_it_is_counted_again(sim):
    for name in ("a", "b"):
        create_pod(sim, name)
    create_budget(sim, minAvailable=1)
    await sim.advance(10.0)
    sim.store.patch(BUDGETS, "team", "keep", {"spec": {"minAvailable": 2}})
    with pytest.raises(ApiError, match="disruption budget") as refusal:
        sim.store.evict("team", "a", {})
    assert refusal.value.retry_after == 10
    await sim.advance(1.0)
    assert status(sim, "disruptionsAllowed", "observedGeneration") == (0, 2)


async def test_what_has_no_replicas_may_not_be_evicted_under_max_unavailable(sim):
    create_pod(sim, "a")
    create_budget(sim, maxUnavailable=1)
    await sim.advance(10.0)
    found = sim.store.get(BUDGETS, "team", "keep")["status"]
    assert found["disruptionsAllowed"] == 0
    assert found["conditions"][0]["reason"] == "SyncFailed"


@pytest.mark.parametrize(
    ("spec", "desired"),
    [
        ({"maxUnavailable": 1}, 2),
        ({"maxUnavailable": "50%"}, 1),
        ({"minAvailable": "50%"}, 2),
        ({"minAvailable": 1}, 1),
    ],
    ids=["maxUnavailable", "maxUnavailable in percent", "minAvailable in percent", "minAvailable"],
)
async def test_what_is_desired_follows_the_replicas(sim, spec, desired):
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    made = sim.store.create(
        "replicasets.apps",
        {
            "metadata": {"name": "web"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "x"}}, "template": template},
        },
        namespace="team",
    )
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    for name in ("a", "b", "c"):
        create_pod(sim, name)
        sim.store.patch("pods", "team", name, {"metadata": {"ownerReferences": [owner]}})
    create_budget(sim, **spec)
    await sim.advance(10.0)
    assert status(sim, *COUNTED) == (3, desired, 3, 3 - desired)
