"""Nodes: the first taint, cordons, fenced writes, and how a node's labels and resources are stored."""

from tests.contract.api import JSON_PATCH, STRATEGIC, Api


async def test_a_new_node_gets_the_not_ready_taint_beside_its_own(api: Api):
    node = await api.create_node("new")
    taints = {(taint["key"], taint["effect"]) for taint in node["spec"]["taints"]}
    assert ("node.kubernetes.io/not-ready", "NoSchedule") in taints
    assert ("contract.muster.dev/test", "NoExecute") in taints


async def test_the_not_ready_taint_can_be_removed_and_the_others_kept(api: Api):
    node = await api.create_node("cleared")
    kept = [taint for taint in node["spec"]["taints"] if taint["key"] != "node.kubernetes.io/not-ready"]
    answer = (await api.patch(api.node(node["metadata"]["name"]), {"spec": {"taints": kept}}, STRATEGIC)).ok()
    assert answer.body["spec"]["taints"] == kept


async def test_a_node_is_uncordoned_and_cordoned_by_merge_patches(api: Api):
    node = await api.create_node("cordon")
    path = api.node(node["metadata"]["name"])
    assert node["spec"]["unschedulable"] is True
    assert "unschedulable" not in (await api.patch(path, {"spec": {"unschedulable": None}})).ok().body["spec"]
    note = {"spec": {"unschedulable": True}, "metadata": {"annotations": {"muster.dev/cordon": "idle"}}}
    answer = (await api.patch(path, note)).ok()
    assert answer.body["spec"]["unschedulable"] is True
    assert answer.body["metadata"]["annotations"]["muster.dev/cordon"] == "idle"


async def test_a_node_patch_with_a_stale_resource_version_is_a_conflict(api: Api):
    node = await api.create_node("fenced")
    path = api.node(node["metadata"]["name"])
    (await api.patch(path, {"metadata": {"annotations": {"muster.dev/fence": "9"}}})).ok()
    stale = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"unschedulable": None}}
    (await api.patch(path, stale)).refused(409, "Conflict", "the object has been modified")
    assert (await api.get(path)).ok().body["spec"]["unschedulable"] is True
    node["spec"]["unschedulable"] = False
    (await api.put(path, node)).refused(409, "Conflict", "the object has been modified")


async def test_a_json_patch_may_test_before_it_removes_a_taint(api: Api):
    node = await api.create_node("tested")
    path = api.node(node["metadata"]["name"])
    wrong = [
        {"op": "test", "path": "/spec/taints/0/key", "value": "somebody-elses"},
        {"op": "remove", "path": "/spec/taints/0"},
    ]
    (await api.patch(path, wrong, JSON_PATCH)).refused(422, "Invalid")


async def test_a_node_taint_with_an_unknown_effect_is_invalid(api: Api):
    node = await api.create_node("effect")
    patch = {"spec": {"taints": [{"key": "a", "effect": "Never"}]}}
    (await api.patch(api.node(node["metadata"]["name"]), patch)).refused(422, "Invalid", "taints[0].effect")


async def test_a_node_is_not_namespaced_and_deleted_at_once(api: Api):
    node = await api.create_node("gone")
    assert "namespace" not in node["metadata"]
    answer = (await api.delete(api.node(node["metadata"]["name"]))).ok()
    assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
    (await api.get(api.node(node["metadata"]["name"]))).refused(404, "NotFound")


async def test_a_node_recreated_under_its_name_has_another_uid(api: Api):
    node = await api.create_node("again")
    path = api.node(node["metadata"]["name"])
    (await api.delete(path)).ok()
    body = {"metadata": api.metadata(node["metadata"]["name"]), "spec": {"unschedulable": True}}
    again = (await api.post(api.node(), body)).ok().body
    assert again["metadata"]["uid"] != node["metadata"]["uid"]
