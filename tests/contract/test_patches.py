"""The three patch types: what merges by key, what is replaced whole, and what is refused."""

from typing import Any

import pytest

from tests.contract.api import JSON, JSON_PATCH, MERGE, STRATEGIC, Api

READY = {"type": "Ready", "status": "False", "reason": "Contract", "message": "by test"}
PRESSURE = {"type": "MemoryPressure", "status": "False", "reason": "Contract", "message": "by test"}
FIRST_TAINT = {"key": "contract.muster.dev/first", "effect": "NoSchedule"}
SECOND_TAINT = {"key": "contract.muster.dev/second", "effect": "NoSchedule"}


def conditions_of(body: dict[str, Any]) -> dict[str, str]:
    """Status of the suite's conditions by type; a cluster's own controllers may write others."""
    return {
        condition["type"]: condition["status"]
        for condition in body["status"].get("conditions", [])
        if condition.get("reason") == "Contract"
    }


async def test_a_merge_patch_sets_adds_and_removes_by_null(api: Api):
    made = await api.create_config_map("merged", annotations={"kept": "1", "changed": "1", "removed": "1"})
    patch = {"metadata": {"annotations": {"changed": "2", "added": "3", "removed": None, "absent": None}}}
    answer = (await api.patch(api.core("configmaps", made["metadata"]["name"]), patch)).ok()
    assert answer.body["metadata"]["annotations"] == {"kept": "1", "changed": "2", "added": "3"}


@pytest.mark.parametrize(
    "content_type",
    [
        pytest.param(MERGE, id="a merge patch replaces the list of taints whole"),
        pytest.param(STRATEGIC, id="a strategic patch replaces the list of taints whole, for it has no merge key"),
    ],
)
async def test_taints(api: Api, content_type: str):
    node = await api.create_node("tainted")
    path = api.node(node["metadata"]["name"])
    (await api.patch(path, {"spec": {"taints": [FIRST_TAINT]}}, content_type)).ok()
    answer = (await api.patch(path, {"spec": {"taints": [SECOND_TAINT]}}, content_type)).ok()
    ours = [taint for taint in answer.body["spec"]["taints"] if taint["key"].startswith("contract.muster.dev/")]
    assert ours == [SECOND_TAINT]


async def test_a_strategic_patch_merges_node_conditions_by_their_type(api: Api):
    node = await api.create_node("conditions")
    path = api.node(node["metadata"]["name"], "status")
    (await api.patch(path, {"status": {"conditions": [READY, PRESSURE]}}, STRATEGIC)).ok()
    changed = {**READY, "status": "Unknown"}
    answer = (await api.patch(path, {"status": {"conditions": [changed]}}, STRATEGIC)).ok()
    assert conditions_of(answer.body) == {"Ready": "Unknown", "MemoryPressure": "False"}


async def test_a_strategic_patch_removes_a_condition_by_its_delete_directive(api: Api):
    node = await api.create_node("directive")
    path = api.node(node["metadata"]["name"], "status")
    (await api.patch(path, {"status": {"conditions": [READY, PRESSURE]}}, STRATEGIC)).ok()
    removal = {"status": {"conditions": [{"$patch": "delete", "type": "MemoryPressure"}]}}
    assert conditions_of((await api.patch(path, removal, STRATEGIC)).ok().body) == {"Ready": "False"}


async def test_a_merge_patch_replaces_the_list_of_conditions_whole(api: Api):
    node = await api.create_node("whole")
    path = api.node(node["metadata"]["name"], "status")
    (await api.patch(path, {"status": {"conditions": [READY, PRESSURE]}}, MERGE)).ok()
    answer = (await api.patch(path, {"status": {"conditions": [READY]}}, MERGE)).ok()
    assert conditions_of(answer.body) == {"Ready": "False"}


async def test_a_strategic_patch_merges_pod_conditions_by_their_type(api: Api):
    pod = await api.create_pod("conditions")
    path = api.pod(pod["metadata"]["name"], "status")
    (await api.patch(path, {"status": {"conditions": [READY]}}, STRATEGIC)).ok()
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Contract", "message": "no room"}
    answer = (await api.patch(path, {"status": {"conditions": [scheduled]}}, STRATEGIC)).ok()
    assert conditions_of(answer.body) == {"Ready": "False", "PodScheduled": "False"}


async def test_a_strategic_patch_merges_containers_by_their_name(api: Api):
    containers = [{"name": "main", "image": "none:1"}, {"name": "side", "image": "none:1"}]
    pod = await api.create_pod("containers", containers=containers)
    patch = {"spec": {"containers": [{"name": "side", "image": "none:2"}]}}
    answer = (await api.patch(api.pod(pod["metadata"]["name"]), patch, STRATEGIC)).ok()
    assert {one["name"]: one["image"] for one in answer.body["spec"]["containers"]} == {
        "main": "none:1",
        "side": "none:2",
    }


async def test_a_strategic_patch_replaces_tolerations_whole_so_that_dropping_one_is_refused(api: Api):
    pod = await api.create_pod("tolerations", tolerations=[{"key": "first", "operator": "Exists"}])
    path = api.pod(pod["metadata"]["name"])
    patch = {"spec": {"tolerations": [{"key": "second", "operator": "Exists"}]}}
    (await api.patch(path, patch, STRATEGIC)).refused(422, "Invalid", "spec.tolerations")
    more = [*pod["spec"]["tolerations"], {"key": "second", "operator": "Exists"}]
    answer = (await api.patch(path, {"spec": {"tolerations": more}}, STRATEGIC)).ok()
    assert answer.body["spec"]["tolerations"] == more


async def test_a_json_patch_adds_replaces_and_removes(api: Api):
    made = await api.create_config_map("listed", annotations={"changed": "1", "removed": "1"})
    patch = [
        {"op": "test", "path": "/metadata/annotations/changed", "value": "1"},
        {"op": "replace", "path": "/metadata/annotations/changed", "value": "2"},
        {"op": "remove", "path": "/metadata/annotations/removed"},
        {"op": "add", "path": "/metadata/annotations/muster.dev~1fence", "value": "7"},
    ]
    answer = (await api.patch(api.core("configmaps", made["metadata"]["name"]), patch, JSON_PATCH)).ok()
    assert answer.body["metadata"]["annotations"] == {"changed": "2", "muster.dev/fence": "7"}


FAILED_OPERATIONS: list[Any] = [
    pytest.param({"op": "test", "path": "/data/key", "value": "other"}, id="whose test does not hold"),
    pytest.param({"op": "remove", "path": "/data/absent"}, id="that removes what is not there"),
]


@pytest.mark.parametrize("operation", FAILED_OPERATIONS)
async def test_a_json_patch_is_refused_whole(api: Api, operation: dict[str, Any]):
    made = await api.create_config_map("untouched")
    path = api.core("configmaps", made["metadata"]["name"])
    patch = [{"op": "replace", "path": "/data/key", "value": "value"}, operation]
    (await api.patch(path, patch, JSON_PATCH)).refused(422, "Invalid")
    assert (await api.get(path)).body == made


async def test_a_merge_patch_with_a_stale_resource_version_is_a_conflict(api: Api):
    made = await api.create_config_map("fenced")
    path = api.core("configmaps", made["metadata"]["name"])
    current = (await api.patch(path, {"data": {"key": "newer"}})).ok()
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"key": "older"}}
    (await api.patch(path, stale)).refused(409, "Conflict", "the object has been modified")
    fresh = {"metadata": {"resourceVersion": current.resource_version}, "data": {"key": "newest"}}
    assert (await api.patch(path, fresh)).ok().body["data"] == {"key": "newest"}


async def test_a_merge_patch_with_another_uid_is_refused(api: Api):
    made = await api.create_config_map("identified")
    patch = {"metadata": {"uid": "00000000-0000-0000-0000-000000000001"}, "data": {"key": "x"}}
    (await api.patch(api.core("configmaps", made["metadata"]["name"]), patch)).refused(422, "Invalid", "metadata.uid")


async def test_a_patch_of_unknown_type_is_refused(api: Api):
    made = await api.create_config_map("typed")
    answer = await api.patch(api.core("configmaps", made["metadata"]["name"]), {}, JSON)
    answer.refused(415, "UnsupportedMediaType", "Unsupported Media Type")


async def test_a_patch_that_is_not_json_is_a_bad_request(api: Api):
    made = await api.create_config_map("garbled")
    (await api.patch(api.core("configmaps", made["metadata"]["name"]), "{no")).refused(400, "BadRequest")


async def test_a_patch_cannot_change_what_is_immutable(api: Api):
    pod = await api.create_pod("fixed")
    path = api.pod(pod["metadata"]["name"])
    (await api.patch(path, {"spec": {"nodeName": "elsewhere"}})).refused(422, "Invalid", "spec")
    (await api.patch(path, {"spec": {"schedulerName": "other"}})).refused(422, "Invalid", "pod updates may not change")
