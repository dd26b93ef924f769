"""Binding pods: what a Binding carries into the pod, what fences it, and what the server does not check."""

from typing import Any

import pytest

from tests.contract.api import Api

ANOTHER_UID = "00000000-0000-0000-0000-000000000001"


async def test_a_binding_sets_the_node_and_the_scheduled_condition(api: Api):
    node = (await api.create_node("target"))["metadata"]["name"]
    pod = await api.create_pod("bound")
    answer = await api.bind(pod["metadata"]["name"], node)
    assert answer.status == 201
    assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
    bound = (await api.get(api.pod(pod["metadata"]["name"]))).ok()
    assert bound.body["spec"]["nodeName"] == node
    conditions = {one["type"]: one["status"] for one in bound.body["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    assert int(bound.resource_version) > int(pod["metadata"]["resourceVersion"])


async def test_a_binding_through_the_collection_of_bindings_works_too(api: Api):
    pod = await api.create_pod("collection")
    name = pod["metadata"]["name"]
    assert (await api.post(api.core("bindings"), api.binding(name, "muster-contract-none"))).status == 201
    assert (await api.get(api.pod(name))).ok().body["spec"]["nodeName"] == "muster-contract-none"


async def test_annotations_of_a_binding_arrive_together_with_the_node(api: Api):
    pod = await api.create_pod("annotated", metadata={"annotations": {"kept": "1", "changed": "1"}})
    name = pod["metadata"]["name"]
    async with api.watch(
        api.pod(), {"resourceVersion": pod["metadata"]["resourceVersion"], "fieldSelector": f"metadata.name={name}"}
    ) as watch:
        assert (
            await api.bind(name, "muster-contract-none", annotations={"changed": "2", "cards": "0,1"})
        ).status == 201
        event = (await watch.take(1))[0]
    assert event.type == "MODIFIED"
    assert event.object["spec"]["nodeName"] == "muster-contract-none"
    assert event.object["metadata"]["annotations"] == {"kept": "1", "changed": "2", "cards": "0,1"}


async def test_a_second_binding_is_refused_and_leaves_node_and_annotations(api: Api):
    pod = await api.create_pod("twice")
    name = pod["metadata"]["name"]
    assert (await api.bind(name, "muster-contract-first", annotations={"cards": "0"})).status == 201
    before = (await api.get(api.pod(name))).ok().body
    second = await api.bind(name, "muster-contract-second", annotations={"cards": "1"})
    second.refused(409, "Conflict", 'is already assigned to node "muster-contract-first"')
    again = await api.bind(name, "muster-contract-first")
    again.refused(409, "Conflict", "already assigned to node")
    after = (await api.get(api.pod(name))).ok().body
    assert after["spec"]["nodeName"] == "muster-contract-first"
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"] == {"cards": "0"}


async def test_a_binding_with_a_stale_resource_version_is_a_conflict_and_has_no_effect(api: Api):
    pod = await api.create_pod("fenced")
    name = pod["metadata"]["name"]
    (await api.patch(api.pod(name), {"metadata": {"annotations": {"muster.dev/fence": "9"}}})).ok()
    answer = await api.bind(
        name, "muster-contract-none", resourceVersion=pod["metadata"]["resourceVersion"], annotations={"cards": "0"}
    )
    answer.refused(409, "Conflict", "Precondition failed: ResourceVersion in precondition")
    now = (await api.get(api.pod(name))).ok()
    assert "nodeName" not in now.body["spec"]
    assert now.body["metadata"]["annotations"] == {"muster.dev/fence": "9"}
    right = await api.bind(
        name, "muster-contract-none", resourceVersion=now.resource_version, uid=pod["metadata"]["uid"]
    )
    assert right.status == 201


async def test_a_binding_for_another_uid_is_a_conflict(api: Api):
    pod = await api.create_pod("namesake")
    answer = await api.bind(pod["metadata"]["name"], "muster-contract-none", uid=ANOTHER_UID)
    answer.refused(409, "Conflict", "Precondition failed: UID in precondition")
    assert "nodeName" not in (await api.get(api.pod(pod["metadata"]["name"]))).ok().body["spec"]


async def test_a_cordoned_node_and_one_that_does_not_exist_accept_a_binding(api: Api):
    cordoned = await api.create_node("cordoned")
    assert cordoned["spec"]["unschedulable"] is True
    first = await api.create_pod("cordoned")
    assert (await api.bind(first["metadata"]["name"], cordoned["metadata"]["name"])).status == 201
    second = await api.create_pod("nowhere")
    assert (await api.bind(second["metadata"]["name"], "muster-contract-does-not-exist")).status == 201


async def test_a_scheduling_gate_refuses_a_binding_until_it_is_removed(api: Api):
    pod = await api.create_pod("gated", schedulingGates=[{"name": "muster.dev/wait"}])
    name = pod["metadata"]["name"]
    condition = next(one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled")
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")
    (await api.bind(name, "muster-contract-none")).refused(409, "Conflict", "non-empty .spec.schedulingGates")
    (await api.patch(api.pod(name), {"spec": {"schedulingGates": None}})).ok()
    assert (await api.bind(name, "muster-contract-none")).status == 201


async def test_a_scheduling_gate_cannot_be_added_later(api: Api):
    pod = await api.create_pod("ungated")
    patch = {"spec": {"schedulingGates": [{"name": "muster.dev/wait"}]}}
    (await api.patch(api.pod(pod["metadata"]["name"]), patch)).refused(422, "Invalid", "spec.schedulingGates")


async def test_a_pod_being_deleted_refuses_a_binding(api: Api):
    pod = await api.create_pod("leaving", metadata={"finalizers": ["contract.muster.dev/hold"]})
    name = pod["metadata"]["name"]
    (await api.delete(api.pod(name))).ok()
    (await api.bind(name, "muster-contract-none")).refused(
        409, "Conflict", "is being deleted, cannot be assigned to a host"
    )
    (await api.patch(api.pod(name), {"metadata": {"finalizers": None}})).ok()


async def test_a_missing_pod_cannot_be_bound(api: Api):
    (await api.bind(api.name("missing"), "muster-contract-none")).refused(404, "NotFound", "not found")


TARGETS: list[Any] = [
    pytest.param({"apiVersion": "v1", "kind": "Node", "name": ""}, "target.name", id="nameless"),
    pytest.param({"apiVersion": "v1", "kind": "Pod", "name": "x"}, "target.kind", id="not a node"),
]


@pytest.mark.parametrize(("target", "field"), TARGETS)
async def test_a_binding_is_refused_whose_target_is(api: Api, target: dict[str, str], field: str):
    pod = await api.create_pod("targetless")
    body = {**api.binding(pod["metadata"]["name"], "x"), "target": target}
    # A real server answers 500 without a reason here: only the refusal and its words are relied on.
    answer = await api.post(api.pod(pod["metadata"]["name"], "binding"), body)
    assert answer.status >= 400
    assert field in answer.message
    assert "nodeName" not in (await api.get(api.pod(pod["metadata"]["name"]))).ok().body["spec"]


async def test_a_pod_created_with_a_node_name_needs_no_binding(api: Api):
    pod = await api.create_pod("preset", nodeName="muster-contract-none")
    assert pod["spec"]["nodeName"] == "muster-contract-none"
    (await api.bind(pod["metadata"]["name"], "muster-contract-none")).refused(409, "Conflict", "already assigned")


async def test_a_dry_run_of_a_binding_binds_nothing(api: Api):
    pod = await api.create_pod("dry")
    name = pod["metadata"]["name"]
    answer = await api.post(api.pod(name, "binding"), api.binding(name, "muster-contract-none"), {"dryRun": "All"})
    assert answer.status == 201
    assert "nodeName" not in (await api.get(api.pod(name))).ok().body["spec"]
