"""Creating, replacing and deleting objects: what is answered, what is refused, and who wins when two write."""

import re
from typing import Any

import pytest

from tests.contract.api import Api


async def test_a_created_object_gets_uid_resource_version_and_creation_time(api: Api):
    answer = await api.post(api.core("configmaps"), {"metadata": api.metadata(api.name("created")), "data": {"a": "b"}})
    assert answer.status == 201
    metadata = answer.body["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", metadata["uid"])
    assert int(metadata["resourceVersion"]) > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["namespace"] == api.namespace
    assert (answer.body["apiVersion"], answer.body["kind"]) == ("v1", "ConfigMap")
    assert (await api.get(api.core("configmaps", metadata["name"]))).ok().body["data"] == {"a": "b"}


async def test_what_the_server_owns_in_metadata_cannot_be_set_by_a_create(api: Api):
    name = api.name("owned")
    body = {
        "metadata": api.metadata(
            name, uid="00000000-0000-0000-0000-000000000001", creationTimestamp="2001-01-01T00:00:00Z"
        )
    }
    metadata = (await api.post(api.core("configmaps"), body)).ok().body["metadata"]
    assert metadata["uid"] != body["metadata"]["uid"]
    assert not metadata["creationTimestamp"].startswith("2001")


async def test_creating_a_name_twice_is_refused_and_names_the_object(api: Api):
    made = await api.create_config_map("twice")
    answer = await api.post(api.core("configmaps"), {"metadata": {"name": made["metadata"]["name"]}})
    answer.refused(409, "AlreadyExists", "already exists")
    assert answer.body["details"]["name"] == made["metadata"]["name"]
    assert answer.body["details"]["kind"] == "configmaps"


async def test_generate_name_appends_a_distinct_suffix_each_time(api: Api):
    prefix = api.name("generated") + "-"
    names = set()
    for _ in range(3):
        body = {"metadata": {"generateName": prefix, "labels": api.labels}}
        metadata = (await api.post(api.core("configmaps"), body)).ok().body["metadata"]
        assert metadata["generateName"] == prefix
        assert metadata["name"].startswith(prefix)
        names.add(metadata["name"])
    assert len(names) == 3


async def test_a_recreated_name_is_a_new_object_with_a_new_uid(api: Api):
    first = await api.create_config_map("recreated")
    path = api.core("configmaps", first["metadata"]["name"])
    (await api.delete(path)).ok()
    (await api.get(path)).refused(404, "NotFound", "not found")
    second = (await api.post(api.core("configmaps"), {"metadata": {"name": first["metadata"]["name"]}})).ok()
    assert second.body["metadata"]["uid"] != first["metadata"]["uid"]
    assert int(second.resource_version) > int(first["metadata"]["resourceVersion"])


REFUSED_CREATES: list[Any] = [
    pytest.param(
        "configmaps",
        {"metadata": {}},
        (422, "Invalid", "name or generateName is required"),
        id="an object without a name",
    ),
    pytest.param(
        "configmaps",
        {"metadata": {"name": "Capital"}},
        (422, "Invalid", "metadata.name"),
        id="a name with a capital letter",
    ),
    pytest.param(
        "configmaps",
        {"metadata": {"name": "stray", "namespace": "somewhere-else"}},
        (400, "BadRequest", "namespace"),
        id="a body that names another namespace than the path",
    ),
    pytest.param(
        "configmaps",
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mislabelled"}},
        (400, "BadRequest", "Pod"),
        id="a body of another kind than the path",
    ),
    pytest.param("configmaps", "{not json", (400, "BadRequest", ""), id="a body that is not JSON"),
    pytest.param(
        "configmaps",
        {"metadata": {"name": "labelled", "labels": {"a": "not valid!"}}},
        (422, "Invalid", "metadata.labels"),
        id="a label value with a forbidden character",
    ),
    pytest.param(
        "pods",
        {"metadata": {"name": "hollow"}, "spec": {}},
        (422, "Invalid", "spec.containers"),
        id="a pod without containers",
    ),
    pytest.param(
        "pods",
        {
            "metadata": {"name": "fractional"},
            "spec": {
                "containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]
            },
        },
        (422, "Invalid", "must be an integer"),
        id="a pod that asks for half a card of a whole-number resource",
    ),
    pytest.param(
        "pods",
        {
            "metadata": {"name": "uneven"},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "none",
                        "resources": {"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 1}},
                    }
                ]
            },
        },
        (422, "Invalid", "must be equal to nvidia.com/gpu limit"),
        id="a pod whose card request and limit differ",
    ),
    pytest.param(
        "pods",
        {
            "metadata": {"name": "unmeasured"},
            "spec": {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "a lot"}}}]},
        },
        (400, "BadRequest", "quantities must match"),
        id="a pod with a quantity that is none",
    ),
]


@pytest.mark.parametrize(("resource", "body", "refusal"), REFUSED_CREATES)
async def test_a_create_is_refused_for(api: Api, resource: str, body: Any, refusal: tuple[int, str, str]):
    (await api.post(api.core(resource), body)).refused(*refusal)


async def test_an_invalid_object_is_refused_with_the_path_of_each_wrong_field(api: Api):
    body = api.pod_body(api.name("wrong"), containers=[{"name": "UPPER", "image": "none"}], restartPolicy="Sometimes")
    answer = (await api.post(api.pod(), body)).refused(422, "Invalid", "is invalid")
    causes = {cause["field"]: cause["reason"] for cause in answer.body["details"]["causes"]}
    assert causes["spec.containers[0].name"] == "FieldValueInvalid"
    assert causes["spec.restartPolicy"] == "FieldValueNotSupported"


async def test_a_create_that_carries_a_resource_version_is_refused(api: Api):
    # A real server answers 500 without a reason, so only the words and the refusal are relied on.
    answer = await api.post(api.core("configmaps"), {"metadata": {"name": "versioned", "resourceVersion": "5"}})
    assert answer.status >= 400
    assert answer.body["kind"] == "Status"
    assert "resourceVersion should not be set on objects to be created" in answer.message


async def test_an_object_of_a_missing_namespace_is_refused(api: Api):
    path = f"/api/v1/namespaces/{api.name('nowhere')}/configmaps"
    (await api.post(path, {"metadata": {"name": "lost"}})).refused(404, "NotFound", "namespaces")


async def test_replacing_with_the_current_resource_version_succeeds_and_moves_it(api: Api):
    made = await api.create_config_map("replaced")
    made["data"] = {"key": "new"}
    answer = (await api.put(api.core("configmaps", made["metadata"]["name"]), made)).ok()
    assert answer.status == 200
    assert answer.body["data"] == {"key": "new"}
    assert int(answer.resource_version) > int(made["metadata"]["resourceVersion"])
    assert answer.body["metadata"]["uid"] == made["metadata"]["uid"]


async def test_replacing_with_a_stale_resource_version_is_a_conflict_and_changes_nothing(api: Api):
    made = await api.create_config_map("stale")
    path = api.core("configmaps", made["metadata"]["name"])
    current = (await api.patch(path, {"data": {"key": "newer"}})).ok()
    made["data"] = {"key": "older"}
    (await api.put(path, made)).refused(409, "Conflict", "the object has been modified")
    assert (await api.get(path)).body == current.body


async def test_replacing_without_a_resource_version_overwrites_a_core_object(api: Api):
    made = await api.create_config_map("unconditional")
    name = made["metadata"]["name"]
    answer = (await api.put(api.core("configmaps", name), {"metadata": {"name": name}, "data": {"only": "this"}})).ok()
    assert answer.body["data"] == {"only": "this"}
    assert "labels" not in answer.body["metadata"]
    assert answer.body["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_write_that_changes_nothing_keeps_the_resource_version(api: Api):
    made = await api.create_config_map("same")
    path = api.core("configmaps", made["metadata"]["name"])
    assert (await api.put(path, made)).ok().resource_version == made["metadata"]["resourceVersion"]
    assert (await api.patch(path, {"data": {"key": "value"}})).ok().resource_version == made["metadata"][
        "resourceVersion"
    ]
    assert (await api.patch(path, {})).ok().resource_version == made["metadata"]["resourceVersion"]


async def test_replacing_under_another_name_is_a_bad_request(api: Api):
    made = await api.create_config_map("renamed")
    made["metadata"]["name"] = "other"
    path = api.core("configmaps", made["metadata"]["name"] + "-not")
    (await api.put(path, made)).refused(400, "BadRequest", "the name of the object")


async def test_replacing_a_missing_object_is_not_found(api: Api):
    name = api.name("missing")
    body = {"metadata": {"name": name, "resourceVersion": "1"}, "data": {}}
    (await api.put(api.core("configmaps", name), body)).refused(404, "NotFound", "not found")
    answer = await api.patch(api.core("configmaps", name), {"data": {}})
    answer.refused(404, "NotFound", "not found")
    assert answer.body["details"]["name"] == name


async def test_owner_references_are_stored_as_given(api: Api):
    owner = await api.create_config_map("owner")
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": False,
    }
    owned = await api.create_config_map("dependent", ownerReferences=[reference])
    assert owned["metadata"]["ownerReferences"] == [reference]


async def test_two_controllers_of_one_object_are_refused(api: Api):
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1", "controller": True}
    body = {
        "metadata": api.metadata(api.name("torn"), ownerReferences=[reference, {**reference, "name": "b", "uid": "2"}])
    }
    (await api.post(api.core("configmaps"), body)).refused(422, "Invalid", "metadata.ownerReferences")


async def test_a_deleted_object_is_gone_and_the_answer_is_a_success_status(api: Api):
    made = await api.create_config_map("deleted")
    answer = (await api.delete(api.core("configmaps", made["metadata"]["name"]))).ok()
    assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
    assert answer.body["details"]["name"] == made["metadata"]["name"]
    assert answer.body["details"]["uid"] == made["metadata"]["uid"]
    (await api.delete(api.core("configmaps", made["metadata"]["name"]))).refused(404, "NotFound")


async def test_a_finalizer_keeps_a_deleted_object_until_it_is_removed(api: Api):
    made = await api.create_config_map("finalized", finalizers=["contract.muster.dev/hold"])
    path = api.core("configmaps", made["metadata"]["name"])
    (await api.delete(path)).ok()
    kept = (await api.get(path)).ok()
    assert kept.body["metadata"]["deletionTimestamp"]
    assert kept.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert int(kept.resource_version) > int(made["metadata"]["resourceVersion"])
    (await api.post(api.core("configmaps"), {"metadata": {"name": made["metadata"]["name"]}})).refused(
        409, "AlreadyExists"
    )
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()
    (await api.get(path)).refused(404, "NotFound")


async def test_a_finalizer_cannot_be_added_once_deletion_has_begun(api: Api):
    made = await api.create_config_map("late", finalizers=["contract.muster.dev/hold"])
    path = api.core("configmaps", made["metadata"]["name"])
    (await api.delete(path)).ok()
    more = {"metadata": {"finalizers": ["contract.muster.dev/hold", "contract.muster.dev/more"]}}
    (await api.patch(path, more)).refused(422, "Invalid", "metadata.finalizers")
    (await api.patch(path, {"metadata": {"finalizers": []}})).ok()


PRECONDITIONS: list[Any] = [
    pytest.param({"uid": "00000000-0000-0000-0000-000000000001"}, "does not match the UID in record", id="another uid"),
    pytest.param(
        {"resourceVersion": "1"}, "does not match the ResourceVersion in record", id="a stale resource version"
    ),
]


@pytest.mark.parametrize(("preconditions", "words"), PRECONDITIONS)
async def test_a_delete_is_refused_when_its_precondition_names(api: Api, preconditions: dict[str, str], words: str):
    made = await api.create_config_map("guarded")
    path = api.core("configmaps", made["metadata"]["name"])
    (await api.delete(path, {"preconditions": preconditions})).refused(409, "Conflict", words)
    (await api.get(path)).ok()


async def test_a_delete_with_right_preconditions_succeeds(api: Api):
    made = await api.create_config_map("guarded-right")
    path = api.core("configmaps", made["metadata"]["name"])
    right = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
    (await api.delete(path, {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": right})).ok()
    (await api.get(path)).refused(404, "NotFound")


async def test_a_dry_run_answers_like_the_real_write_and_stores_nothing(api: Api):
    name = api.name("dry")
    made = await api.post(api.core("configmaps"), {"metadata": {"name": name}}, {"dryRun": "All"})
    assert made.status == 201
    assert made.body["metadata"]["uid"]
    (await api.get(api.core("configmaps", name))).refused(404, "NotFound")

    kept = await api.create_config_map("dry-kept")
    path = api.core("configmaps", kept["metadata"]["name"])
    patched = await api.patch(path, {"data": {"key": "dry"}}, query={"dryRun": "All"})
    assert patched.ok().body["data"] == {"key": "dry"}
    (await api.delete(path, query={"dryRun": "All"})).ok()
    assert (await api.get(path)).ok().body == kept


async def test_deleting_a_collection_removes_what_its_selector_matches_and_nothing_else(api: Api):
    first = await api.create_config_map("many", labels={"batch": "go"})
    second = await api.create_config_map("many", labels={"batch": "go"})
    third = await api.create_config_map("many", labels={"batch": "stay"})
    (await api.delete(api.core("configmaps"), query={"labelSelector": "batch=go"})).ok()
    for gone in (first, second):
        (await api.get(api.core("configmaps", gone["metadata"]["name"]))).refused(404, "NotFound")
    (await api.get(api.core("configmaps", third["metadata"]["name"]))).ok()


async def test_a_foreground_deletion_waits_behind_a_finalizer(api: Api):
    made = await api.create_config_map("foreground")
    path = api.core("configmaps", made["metadata"]["name"])
    answer = (await api.delete(path, {"propagationPolicy": "Foreground"})).ok()
    assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert answer.body["metadata"]["deletionTimestamp"]
    # A garbage collector removes the finalizer, if one runs; otherwise this does.
    assert (await api.patch(path, {"metadata": {"finalizers": None}})).status in {200, 404}
    await api.eventually(path, lambda answer: answer.status == 404)


async def test_a_body_that_is_too_large_is_refused(api: Api):
    body = {"metadata": api.metadata(api.name("large")), "data": {"key": "x" * 4_000_000}}
    (await api.post(api.core("configmaps"), body)).refused(413, "RequestEntityTooLarge", "3145728")


async def test_annotations_are_bounded_in_sum(api: Api):
    annotations = {f"part-{number}": "x" * 100_000 for number in range(3)}
    body = {"metadata": api.metadata(api.name("annotated"), annotations=annotations)}
    (await api.post(api.core("configmaps"), body)).refused(422, "Invalid", "metadata.annotations")
