"""Status of pods and nodes is a subresource: who may write what through which path."""

from tests.contract.api import STRATEGIC, Api


async def test_a_created_pod_is_pending_whatever_status_it_was_given(api: Api):
    body = {**api.pod_body(api.name("status")), "status": {"phase": "Running", "message": "no"}}
    made = (await api.post(api.pod(), body)).ok()
    assert made.body["status"]["phase"] == "Pending"
    assert "message" not in made.body["status"]


async def test_a_write_to_a_pod_leaves_its_status_alone(api: Api):
    pod = await api.create_pod("main")
    path = api.pod(pod["metadata"]["name"])
    patch = {"metadata": {"annotations": {"a": "1"}}, "status": {"message": "sneaked in"}}
    answer = (await api.patch(path, patch)).ok()
    assert answer.body["metadata"]["annotations"] == {"a": "1"}
    assert "message" not in answer.body["status"]


async def test_a_write_to_the_status_of_a_pod_leaves_its_spec_alone(api: Api):
    pod = await api.create_pod("sub", containers=[{"name": "main", "image": "none:1"}])
    path = api.pod(pod["metadata"]["name"], "status")
    patch = {"spec": {"containers": [{"name": "main", "image": "none:2"}]}, "status": {"message": "waiting for room"}}
    answer = (await api.patch(path, patch, STRATEGIC)).ok()
    assert answer.body["spec"]["containers"][0]["image"] == "none:1"
    assert answer.body["status"]["message"] == "waiting for room"
    assert answer.body["status"]["phase"] == "Pending"


async def test_a_pod_status_with_a_stale_resource_version_is_a_conflict(api: Api):
    pod = await api.create_pod("stale")
    path = api.pod(pod["metadata"]["name"], "status")
    (await api.patch(path, {"status": {"message": "first"}})).ok()
    stale = {"metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]}, "status": {"message": "second"}}
    (await api.patch(path, stale)).refused(409, "Conflict", "the object has been modified")


async def test_a_pod_status_patch_with_another_uid_is_refused(api: Api):
    pod = await api.create_pod("other")
    patch = {"metadata": {"uid": "00000000-0000-0000-0000-000000000001"}, "status": {"message": "second"}}
    answer = await api.patch(api.pod(pod["metadata"]["name"], "status"), patch)
    answer.refused(422, "Invalid", "metadata.uid")


async def test_a_nomination_is_written_through_the_status(api: Api):
    pod = await api.create_pod("nominated")
    path = api.pod(pod["metadata"]["name"], "status")
    answer = (await api.patch(path, {"status": {"nominatedNodeName": "some-node"}})).ok()
    assert answer.body["status"]["nominatedNodeName"] == "some-node"


async def test_a_write_to_a_node_leaves_its_status_alone_and_the_other_way_round(api: Api):
    node = await api.create_node("apart")
    path = api.node(node["metadata"]["name"])
    main = (await api.patch(path, {"metadata": {"labels": {"a": "1"}}, "status": {"allocatable": {"cpu": "1"}}})).ok()
    assert main.body["metadata"]["labels"]["a"] == "1"
    assert "cpu" not in main.body["status"].get("allocatable", {})
    room = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
    patch = {"spec": {"unschedulable": None}, "status": {"capacity": room, "allocatable": room}}
    sub = (await api.patch(f"{path}/status", patch, STRATEGIC)).ok()
    assert sub.body["status"]["allocatable"] == room
    assert sub.body["spec"]["unschedulable"] is True


async def test_quantities_come_back_in_their_canonical_form(api: Api):
    resources = {"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {"cpu": "2000m", "memory": "2147483648"}}
    pod = await api.create_pod("canonical", containers=[{"name": "main", "image": "none", "resources": resources}])
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"cpu": "2", "memory": "2147483648"},
    }
