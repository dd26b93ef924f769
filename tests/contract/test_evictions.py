"""Pods end with a grace period: deletion, eviction, disruption budgets, and the events that a watcher sees."""

from datetime import datetime
from typing import Any

import pytest

from tests.contract.api import STRATEGIC, Answer, Api

ANOTHER_UID = "00000000-0000-0000-0000-000000000001"


async def bound_pod(api: Api, stem: str, **spec: Any) -> dict[str, Any]:
    """A pod bound to a node that no kubelet serves."""
    pod = await api.create_pod(stem, **spec)
    assert (await api.bind(pod["metadata"]["name"], "muster-contract-none")).status == 201
    return dict((await api.get(api.pod(pod["metadata"]["name"]))).ok().body)


async def end(api: Api, name: str) -> Answer:
    """Delete with grace 0, as a kubelet does when the containers have stopped; a cluster's own helper may have done so."""
    answer = await api.delete(api.pod(name), {"gracePeriodSeconds": 0})
    assert answer.status in {200, 404}, answer.text
    return answer


def seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def disruption_target(pod: dict[str, Any]) -> dict[str, Any] | None:
    return next((one for one in pod["status"].get("conditions", []) if one["type"] == "DisruptionTarget"), None)


async def test_a_pod_without_a_node_is_gone_at_once_when_deleted(api: Api):
    pod = await api.create_pod("unbound")
    name = pod["metadata"]["name"]
    answer = (await api.delete(api.pod(name))).ok()
    assert (answer.body["kind"], answer.body["metadata"]["name"]) == ("Pod", name)
    (await api.get(api.pod(name))).refused(404, "NotFound")


async def test_a_bound_pod_stays_with_a_deletion_timestamp_until_its_kubelet_ends_it(api: Api):
    pod = await bound_pod(api, "graceful")
    name = pod["metadata"]["name"]
    query = {"resourceVersion": pod["metadata"]["resourceVersion"], "fieldSelector": f"metadata.name={name}"}
    async with api.watch(api.pod(), query) as watch:
        leaving = (await api.delete(api.pod(name))).ok().body
        assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
        marked = (await watch.take(1))[0]
        assert marked.type == "MODIFIED"
        assert marked.object["metadata"]["deletionTimestamp"] == leaving["metadata"]["deletionTimestamp"]
        assert (
            25 < seconds(leaving["metadata"]["deletionTimestamp"]) - seconds(pod["metadata"]["creationTimestamp"]) < 60
        )
        await end(api, name)
        last = (await watch.until(lambda event: event.type == "DELETED"))[-1]
    assert last.object["metadata"]["uid"] == pod["metadata"]["uid"]
    assert last.object["spec"]["nodeName"] == "muster-contract-none"
    assert last.resource_version > marked.resource_version
    (await api.get(api.pod(name))).refused(404, "NotFound")


async def test_the_grace_period_is_the_pods_own_unless_the_delete_names_one(api: Api):
    own = await bound_pod(api, "own-grace", terminationGracePeriodSeconds=77)
    answer = (await api.delete(api.pod(own["metadata"]["name"]))).ok()
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 77
    named = await bound_pod(api, "named-grace", terminationGracePeriodSeconds=77)
    answer = (await api.delete(api.pod(named["metadata"]["name"]), {"gracePeriodSeconds": 500})).ok()
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 500


async def test_a_later_delete_shortens_the_grace_period_and_never_lengthens_it(api: Api):
    pod = await bound_pod(api, "shortened", terminationGracePeriodSeconds=3000)
    path = api.pod(pod["metadata"]["name"])
    first = (await api.delete(path)).ok().body["metadata"]
    longer = (await api.delete(path, {"gracePeriodSeconds": 6000})).ok().body["metadata"]
    assert longer["deletionTimestamp"] == first["deletionTimestamp"]
    assert longer["deletionGracePeriodSeconds"] == 3000
    shorter = (await api.delete(path, {"gracePeriodSeconds": 500})).ok().body["metadata"]
    assert shorter["deletionGracePeriodSeconds"] == 500
    assert seconds(shorter["deletionTimestamp"]) < seconds(first["deletionTimestamp"])


async def test_a_grace_0_delete_of_a_bound_pod_is_seen_as_modified_then_deleted(api: Api):
    pod = await bound_pod(api, "forced")
    name = pod["metadata"]["name"]
    query = {"resourceVersion": pod["metadata"]["resourceVersion"], "fieldSelector": f"metadata.name={name}"}
    async with api.watch(api.pod(), query) as watch:
        (await api.delete(api.pod(name), {"gracePeriodSeconds": 0})).ok()
        events = await watch.take(2)
    assert [event.type for event in events] == ["MODIFIED", "DELETED"]
    assert events[0].object["metadata"]["deletionTimestamp"]
    assert events[0].object["metadata"]["deletionGracePeriodSeconds"] == 0
    (await api.get(api.pod(name))).refused(404, "NotFound")


async def test_a_finished_pod_is_gone_at_once_when_deleted(api: Api):
    pod = await bound_pod(api, "finished")
    path = api.pod(pod["metadata"]["name"])
    (await api.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})).ok()
    (await api.delete(path)).ok()
    (await api.get(path)).refused(404, "NotFound")


@pytest.mark.parametrize(
    ("preconditions", "words"),
    [
        pytest.param({"uid": ANOTHER_UID}, "does not match the UID in record", id="another uid"),
        pytest.param(
            {"resourceVersion": "1"}, "does not match the ResourceVersion in record", id="a stale resource version"
        ),
    ],
)
async def test_a_pod_delete_is_refused_that_names(api: Api, preconditions: dict[str, str], words: str):
    pod = await bound_pod(api, "guarded")
    path = api.pod(pod["metadata"]["name"])
    (await api.delete(path, {"preconditions": preconditions})).refused(409, "Conflict", words)
    assert "deletionTimestamp" not in (await api.get(path)).ok().body["metadata"]


async def test_an_eviction_starts_a_graceful_deletion_and_marks_the_pod_disrupted(api: Api):
    pod = await bound_pod(api, "evicted")
    name = pod["metadata"]["name"]
    query = {"resourceVersion": pod["metadata"]["resourceVersion"], "fieldSelector": f"metadata.name={name}"}
    async with api.watch(api.pod(), query) as watch:
        answer = await api.evict(name)
        assert answer.status == 201
        assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
        seen = await watch.until(lambda event: "deletionTimestamp" in event.object["metadata"])
    leaving = seen[-1].object
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 30
    condition = disruption_target(leaving)
    assert condition is not None
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
    await end(api, name)


async def test_an_eviction_takes_its_grace_period_from_the_delete_options(api: Api):
    pod = await bound_pod(api, "evicted-slowly")
    name = pod["metadata"]["name"]
    assert (await api.evict(name, gracePeriodSeconds=120)).status == 201
    leaving = (await api.get(api.pod(name))).ok().body
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 120


async def test_an_eviction_of_a_pod_that_is_leaving_already_succeeds(api: Api):
    pod = await bound_pod(api, "evicted-twice")
    name = pod["metadata"]["name"]
    assert (await api.evict(name)).status == 201
    assert (await api.evict(name)).status == 201


async def test_an_eviction_of_a_missing_pod_is_not_found(api: Api):
    (await api.evict(api.name("missing"))).refused(404, "NotFound", "not found")


@pytest.mark.parametrize(
    "preconditions",
    [
        pytest.param({"uid": ANOTHER_UID}, id="another uid"),
        pytest.param({"resourceVersion": "1"}, id="a stale resource version"),
    ],
)
async def test_an_eviction_is_refused_that_names(api: Api, preconditions: dict[str, str]):
    pod = await bound_pod(api, "fenced")
    name = pod["metadata"]["name"]
    (await api.evict(name, preconditions=preconditions)).refused(409, "Conflict", "recondition")
    now = (await api.get(api.pod(name))).ok().body
    assert "deletionTimestamp" not in now["metadata"]
    assert disruption_target(now) is None


async def test_an_eviction_that_names_the_present_uid_and_version_succeeds(api: Api):
    pod = await bound_pod(api, "fenced-right")
    name = pod["metadata"]["name"]
    for _ in range(5):  # a cluster's own kubelet stand-in may touch the pod in between
        now = (await api.get(api.pod(name))).ok()
        preconditions = {"uid": pod["metadata"]["uid"], "resourceVersion": now.resource_version}
        answer = await api.evict(name, preconditions=preconditions)
        if answer.status != 409:
            break
    assert answer.status == 201
    leaving = await api.get(api.pod(name))
    assert leaving.status == 404 or leaving.body["metadata"]["deletionTimestamp"]


async def test_a_dry_run_of_an_eviction_evicts_nothing(api: Api):
    pod = await bound_pod(api, "dry")
    name = pod["metadata"]["name"]
    assert (await api.evict(name, dryRun=["All"])).status == 201
    assert "deletionTimestamp" not in (await api.get(api.pod(name))).ok().body["metadata"]


async def running_pod(api: Api, stem: str) -> dict[str, Any]:
    """A bound pod that reports to be running and ready, so that budgets count it."""
    app = api.name(stem)
    pod = await api.create_pod(stem, metadata={"labels": {"app": app}})
    name = pod["metadata"]["name"]
    assert (await api.bind(name, "muster-contract-none")).status == 201
    ready = {"type": "Ready", "status": "True"}
    status = {"status": {"phase": "Running", "conditions": [ready]}}
    return dict((await api.patch(api.pod(name, "status"), status, STRATEGIC)).ok().body)


async def budget(api: Api, app: str, **spec: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": api.metadata(api.name("budget")),
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }
    return dict((await api.post(api.grouped("policy/v1", "poddisruptionbudgets"), body)).ok().body)


async def test_an_eviction_under_a_budget_is_refused_with_429_until_the_budget_allows_it(api: Api):
    pod = await running_pod(api, "budgeted")
    name = pod["metadata"]["name"]
    made = await budget(api, pod["metadata"]["labels"]["app"], minAvailable=1)
    answer = (await api.evict(name)).refused(429, "TooManyRequests", "disruption budget")
    assert answer.body["details"]["causes"][0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in (await api.get(api.pod(name))).ok().body["metadata"]

    path = api.grouped("policy/v1", "poddisruptionbudgets", made["metadata"]["name"])
    widened = (await api.patch(path, {"spec": {"minAvailable": 0}})).ok().body
    # What a controller-manager would compute; where none runs somebody has to write it.
    status = {
        "observedGeneration": widened["metadata"]["generation"],
        "disruptionsAllowed": 1,
        "currentHealthy": 1,
        "desiredHealthy": 0,
        "expectedPods": 1,
    }
    (await api.patch(f"{path}/status", {"status": status})).ok()
    assert (await api.evict(name)).status == 201
    now = await api.get(api.pod(name))
    assert now.status == 404 or now.body["metadata"]["deletionTimestamp"]


async def test_a_pending_pod_is_evicted_whatever_its_budget_says(api: Api):
    app = api.name("pending")
    pod = await api.create_pod("pending", metadata={"labels": {"app": app}})
    await budget(api, app, minAvailable=1)
    assert (await api.evict(pod["metadata"]["name"])).status == 201
