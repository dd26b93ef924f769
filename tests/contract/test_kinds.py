"""Kinds with rules of their own: leases, Events, priority classes, Jobs, and what the server fills into a pod."""

from typing import Any

import pytest

from tests.contract.api import Api

LEASES = "coordination.k8s.io/v1"
PRIORITIES = "scheduling.k8s.io/v1"


async def create_lease(api: Api) -> dict[str, Any]:
    body = {
        "apiVersion": LEASES,
        "kind": "Lease",
        "metadata": api.metadata(api.name("lease")),
        "spec": {
            "holderIdentity": "first",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-02T03:04:05.678901Z",
            "renewTime": "2026-01-02T03:04:05.000000Z",
            "leaseTransitions": 0,
        },
    }
    return dict((await api.post(api.grouped(LEASES, "leases"), body)).ok().body)


async def test_a_lease_keeps_microseconds(api: Api):
    lease = await create_lease(api)
    assert lease["spec"]["acquireTime"] == "2026-01-02T03:04:05.678901Z"
    assert lease["spec"]["renewTime"] == "2026-01-02T03:04:05.000000Z"


async def test_of_two_that_take_over_a_lease_one_wins(api: Api):
    lease = await create_lease(api)
    path = api.grouped(LEASES, "leases", lease["metadata"]["name"])
    taken = {**lease, "spec": {**lease["spec"], "holderIdentity": "second", "leaseTransitions": 1}}
    winner = (await api.put(path, taken)).ok()
    late = {**lease, "spec": {**lease["spec"], "holderIdentity": "third", "leaseTransitions": 1}}
    (await api.put(path, late)).refused(409, "Conflict", "the object has been modified")
    assert (await api.get(path)).ok().body == winner.body
    assert winner.body["spec"]["holderIdentity"] == "second"


async def test_a_lease_cannot_be_replaced_without_its_version(api: Api):
    lease = await create_lease(api)
    del lease["metadata"]["resourceVersion"]
    answer = await api.put(api.grouped(LEASES, "leases", lease["metadata"]["name"]), lease)
    answer.refused(422, "Invalid", "metadata.resourceVersion")


async def test_a_lease_with_a_negative_duration_is_invalid(api: Api):
    body = {"metadata": api.metadata(api.name("lease")), "spec": {"holderIdentity": "x", "leaseDurationSeconds": -1}}
    (await api.post(api.grouped(LEASES, "leases"), body)).refused(422, "Invalid", "spec.leaseDurationSeconds")


def event_body(api: Api, pod: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pod['metadata']['name']}.", "labels": api.labels},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": api.namespace,
            "name": pod["metadata"]["name"],
            "uid": pod["metadata"]["uid"],
        },
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": "0/8 nodes",
        "source": {"component": "muster"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
        **rest,
    }


async def test_an_event_about_a_pod_is_found_by_that_pod_and_counted_up(api: Api):
    pod = await api.create_pod("eventful")
    made = (await api.post(api.core("events"), event_body(api, pod))).ok().body
    query = {"fieldSelector": f"involvedObject.name={pod['metadata']['name']},reason=FailedScheduling,type=Warning"}
    found = (await api.get(api.core("events"), query)).ok().body["items"]
    assert [one["metadata"]["uid"] for one in found] == [made["metadata"]["uid"]]
    again = {"count": 2, "lastTimestamp": "2026-01-02T03:05:05Z"}
    assert (await api.patch(api.core("events", made["metadata"]["name"]), again)).ok().body["count"] == 2


async def test_an_event_about_another_namespace_is_invalid(api: Api):
    pod = await api.create_pod("foreign")
    body = event_body(api, pod)
    body["involvedObject"]["namespace"] = "somewhere-else"
    (await api.post(api.core("events"), body)).refused(422, "Invalid", "involvedObject.namespace")


async def create_priority_class(api: Api, stem: str, value: int, **rest: Any) -> str:
    body = {
        "apiVersion": PRIORITIES,
        "kind": "PriorityClass",
        "metadata": api.metadata(api.name(stem)),
        "value": value,
        **rest,
    }
    return str((await api.post(api.cluster_scoped(PRIORITIES, "priorityclasses"), body)).ok().body["metadata"]["name"])


async def test_a_pod_takes_value_and_preemption_policy_of_its_priority_class(api: Api):
    high = await create_priority_class(api, "high", 1_000_000_000)
    pod = await api.create_pod("high", priorityClassName=high)
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (1_000_000_000, "PreemptLowerPriority")
    polite = await create_priority_class(api, "polite", -5, preemptionPolicy="Never")
    pod = await api.create_pod("polite", priorityClassName=polite)
    assert (pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]) == (-5, "Never")


async def test_a_pod_of_an_unknown_priority_class_is_forbidden(api: Api):
    body = api.pod_body(api.name("unknown"), priorityClassName=api.name("no-such-class"))
    (await api.post(api.pod(), body)).refused(403, "Forbidden", "no PriorityClass with name")


async def test_a_pod_cannot_claim_a_priority_that_its_class_does_not_give(api: Api):
    low = await create_priority_class(api, "low", 5)
    body = api.pod_body(api.name("claimed"), priorityClassName=low, priority=900)
    (await api.post(api.pod(), body)).refused(403, "Forbidden", "priority")


async def test_the_value_of_a_priority_class_is_fixed_and_bounded(api: Api):
    name = await create_priority_class(api, "fixed", 5)
    path = api.cluster_scoped(PRIORITIES, "priorityclasses", name)
    (await api.patch(path, {"value": 6})).refused(422, "Invalid", "may not be changed")
    body = {"metadata": api.metadata(api.name("huge")), "value": 1_000_000_001}
    (await api.post(api.cluster_scoped(PRIORITIES, "priorityclasses"), body)).refused(
        422, "Invalid", "maximum allowed value"
    )


async def test_the_server_fills_in_what_a_pod_leaves_open(api: Api):
    body = api.pod_body(api.name("bare"))
    del body["spec"]["schedulerName"]
    body["spec"]["schedulingGates"] = [{"name": "muster.dev/keep-away"}]  # no scheduler may take it
    pod = (await api.post(api.pod(), body)).ok().body
    spec = pod["spec"]
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["serviceAccountName"] == "default"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["priority"] == 0
    tolerations = {
        one["key"]: (one["operator"], one["effect"], one["tolerationSeconds"]) for one in spec["tolerations"]
    }
    assert tolerations == {
        "node.kubernetes.io/not-ready": ("Exists", "NoExecute", 300),
        "node.kubernetes.io/unreachable": ("Exists", "NoExecute", 300),
    }
    assert pod["status"]["qosClass"] == "BestEffort"


async def test_requests_default_to_limits(api: Api):
    resources = {"limits": {"cpu": "2", "nvidia.com/gpu": 4}}
    pod = await api.create_pod("limits", containers=[{"name": "main", "image": "none", "resources": resources}])
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "nvidia.com/gpu": "4"},
        "requests": {"cpu": "2", "nvidia.com/gpu": "4"},
    }
    assert pod["status"]["qosClass"] == "Burstable"


async def test_a_job_gets_its_counts_its_selector_and_its_pods_labels(api: Api):
    name = api.name("job")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}}
    body = {"metadata": api.metadata(name), "spec": {"suspend": True, "template": template}}
    job = (await api.post(api.grouped("batch/v1", "jobs"), body)).ok().body
    spec = job["spec"]
    assert (spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (1, 1, 6)
    assert spec["completionMode"] == "NonIndexed"
    assert spec["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": job["metadata"]["uid"]}
    labels = spec["template"]["metadata"]["labels"]
    assert labels["batch.kubernetes.io/job-name"] == labels["job-name"] == name
    assert labels["batch.kubernetes.io/controller-uid"] == labels["controller-uid"] == job["metadata"]["uid"]
    answer = (await api.patch(api.grouped("batch/v1", "jobs", name), {"spec": {"parallelism": 3}})).ok()
    assert answer.body["spec"]["parallelism"] == 3


async def test_a_job_whose_pods_would_restart_for_ever_is_invalid(api: Api):
    template = {"spec": {"restartPolicy": "Always", "containers": [{"name": "main", "image": "none"}]}}
    body = {"metadata": api.metadata(api.name("job")), "spec": {"suspend": True, "template": template}}
    answer = await api.post(api.grouped("batch/v1", "jobs"), body)
    answer.refused(422, "Invalid", "spec.template.spec.restartPolicy")


async def test_the_template_of_a_job_cannot_be_changed_once_it_runs(api: Api):
    name = api.name("job")
    template = {
        "spec": {
            "schedulerName": "muster-contract-nobody",
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "none"}],
        }
    }
    body = {"metadata": api.metadata(name), "spec": {"parallelism": 0, "template": template}}
    (await api.post(api.grouped("batch/v1", "jobs"), body)).ok()
    patch = {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}
    (await api.patch(api.grouped("batch/v1", "jobs", name), patch)).refused(422, "Invalid", "spec.template")


@pytest.mark.parametrize(
    "scheme", [pytest.param("v1", id="the core group"), pytest.param("events.k8s.io/v1", id="the events group")]
)
async def test_an_event_is_seen_through(api: Api, scheme: str):
    pod = await api.create_pod("twofold")
    made = (await api.post(api.core("events"), event_body(api, pod))).ok().body
    name = made["metadata"]["name"]
    path = api.core("events", name) if scheme == "v1" else api.grouped(scheme, "events", name)
    seen = (await api.get(path)).ok().body
    assert seen["metadata"]["uid"] == made["metadata"]["uid"]
