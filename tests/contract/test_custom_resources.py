"""Custom resources: schema, pruning, defaults, the status subresource, and which patch types they take."""

import copy
from typing import Any

import pytest

from tests.contract.api import JSON, JSON_PATCH, STRATEGIC, Answer, Api

SPEC_SCHEMA = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 100},
        "color": {"type": "string", "enum": ["red", "green"], "default": "green"},
        "title": {"type": "string", "maxLength": 10, "pattern": "^[a-z]+$"},
        "amount": {"x-kubernetes-int-or-string": True},
        "parts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "replicas": {"type": "integer", "default": 1}},
            },
        },
        "limits": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
STATUS_SCHEMA = {
    "type": "object",
    "properties": {"phase": {"type": "string"}, "ready": {"type": "integer", "default": 0}},
}


def definition(api: Api) -> dict[str, Any]:
    """The CustomResourceDefinition of gadgets, in a group of this run alone."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": api.metadata(f"gadgets.{api.group}"),
        "spec": {
            "group": api.group,
            "scope": "Namespaced",
            "names": {
                "plural": "gadgets",
                "singular": "gadget",
                "kind": "Gadget",
                "listKind": "GadgetList",
                "shortNames": ["gg"],
            },
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": SPEC_SCHEMA, "status": STATUS_SCHEMA},
                        }
                    },
                }
            ],
        },
    }


def is_established(answer: Answer) -> bool:
    conditions = answer.body.get("status", {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


class Gadgets:
    """Paths and bodies of the suite's custom resource."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.group_version = f"{api.group}/v1beta1"

    def path(self, name: str = "", sub: str = "") -> str:
        return self.api.grouped(self.group_version, "gadgets", name, sub)

    def body(self, stem: str, **rest: Any) -> dict[str, Any]:
        metadata = self.api.metadata(self.api.name(stem))
        return {"apiVersion": self.group_version, "kind": "Gadget", "metadata": metadata, "spec": {"size": 3}, **rest}

    async def create(self, stem: str, **rest: Any) -> dict[str, Any]:
        return dict((await self.api.post(self.path(), self.body(stem, **rest))).ok().body)


@pytest.fixture(scope="session")
async def gadgets(api: Api) -> Gadgets:
    """The custom resource, established and served."""
    made = (await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(api))).ok()
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{made.body['metadata']['name']}"
    await api.eventually(path, is_established)
    own = Gadgets(api)
    await api.eventually(own.path(), lambda answer: answer.status == 200)
    return own


async def test_an_established_definition_is_listed_in_discovery(api: Api, gadgets: Gadgets):
    listed = await api.eventually(f"/apis/{gadgets.group_version}", lambda answer: answer.status == 200)
    resources = {resource["name"]: resource for resource in listed.body["resources"]}
    assert resources["gadgets"]["kind"] == "Gadget"
    assert resources["gadgets"]["namespaced"] is True
    assert resources["gadgets"]["shortNames"] == ["gg"]
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(resources["gadgets"]["verbs"])
    assert {"get", "patch", "update"} <= set(resources["gadgets/status"]["verbs"])
    await api.eventually("/apis", lambda answer: any(group["name"] == api.group for group in answer.body["groups"]))


async def test_a_definition_whose_name_is_not_plural_dot_group_is_refused(api: Api):
    body = definition(api)
    body["metadata"]["name"] = f"widgets.{api.group}"
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    (await api.post(path, body)).refused(422, "Invalid", "metadata.name")


async def test_defaults_of_the_schema_are_filled_in_also_inside_lists(gadgets: Gadgets):
    made = await gadgets.create("defaults", spec={"size": 1, "parts": [{"name": "a"}, {"name": "b", "replicas": 4}]})
    assert made["spec"]["color"] == "green"
    assert made["spec"]["parts"] == [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 4}]


async def test_unknown_fields_are_pruned_where_the_schema_does_not_preserve_them(gadgets: Gadgets):
    made = await gadgets.create(
        "pruned",
        spec={
            "size": 1,
            "surplus": 1,
            "parts": [{"name": "a", "surplus": 2}],
            "free": {"kept": {"deep": 1}},
            "limits": {"any": "1"},
        },
        extra={"gone": 1},
    )
    assert "extra" not in made
    assert "surplus" not in made["spec"]
    assert made["spec"]["parts"] == [{"name": "a", "replicas": 1}]
    assert made["spec"]["free"] == {"kept": {"deep": 1}}
    assert made["spec"]["limits"] == {"any": "1"}


@pytest.mark.parametrize("amount", [pytest.param(3, id="an integer"), pytest.param("20%", id="a string")])
async def test_an_int_or_string_field_takes(gadgets: Gadgets, amount: int | str):
    assert (await gadgets.create("either", spec={"size": 1, "amount": amount}))["spec"]["amount"] == amount


INVALID_SPECS: list[Any] = [
    pytest.param({}, "spec.size", "FieldValueRequired", id="a required field that is missing"),
    pytest.param({"size": "big"}, "spec.size", "FieldValueTypeInvalid", id="a field of the wrong type"),
    pytest.param({"size": 0}, "spec.size", "FieldValueInvalid", id="a number below the minimum"),
    pytest.param({"size": 101}, "spec.size", "FieldValueInvalid", id="a number above the maximum"),
    pytest.param(
        {"size": 1, "color": "blue"}, "spec.color", "FieldValueNotSupported", id="a value outside the enumeration"
    ),
    pytest.param(
        {"size": 1, "title": "UPPER"}, "spec.title", "FieldValueInvalid", id="a string that does not match the pattern"
    ),
    pytest.param(
        {"size": 1, "title": "muchtoolong"}, "spec.title", "FieldValueTooLong", id="a string that is too long"
    ),
    pytest.param(
        {"size": 1, "parts": [{"name": "a"}, {"name": 2}]},
        "spec.parts[1].name",
        "FieldValueTypeInvalid",
        id="a wrong type inside a list",
    ),
    pytest.param(
        {"size": 1, "limits": {"gpu": 8}}, "spec.limits.gpu", "FieldValueTypeInvalid", id="a wrong type inside a map"
    ),
    pytest.param({"size": None}, "spec.size", "FieldValueRequired", id="a required field that is null"),
]


@pytest.mark.parametrize(("spec", "field", "reason"), INVALID_SPECS)
async def test_the_schema_refuses_with_the_path_of_the_field(
    api: Api, gadgets: Gadgets, spec: dict[str, Any], field: str, reason: str
):
    answer = (await api.post(gadgets.path(), gadgets.body("invalid", spec=spec))).refused(422, "Invalid", "is invalid")
    causes = {cause["field"]: cause["reason"] for cause in answer.body["details"]["causes"]}
    assert causes.get(field) == reason, causes
    assert (answer.body["details"]["group"], answer.body["details"]["kind"]) == (api.group, "Gadget")


async def test_the_schema_is_applied_to_patches_too(api: Api, gadgets: Gadgets):
    made = await gadgets.create("patched")
    (await api.patch(gadgets.path(made["metadata"]["name"]), {"spec": {"size": 0}})).refused(
        422, "Invalid", "spec.size"
    )


async def test_a_create_drops_the_status(gadgets: Gadgets):
    made = await gadgets.create("statusless", status={"phase": "Running"})
    assert "phase" not in made.get("status", {})


async def test_a_write_to_the_object_leaves_its_status_alone(api: Api, gadgets: Gadgets):
    made = await gadgets.create("apart")
    path = gadgets.path(made["metadata"]["name"])
    (await api.patch(gadgets.path(made["metadata"]["name"], "status"), {"status": {"phase": "Running"}})).ok()
    answer = (await api.patch(path, {"spec": {"size": 9}, "status": {"phase": "Failed"}})).ok()
    assert (answer.body["spec"]["size"], answer.body["status"]["phase"]) == (9, "Running")
    replaced = copy.deepcopy(answer.body)
    replaced["status"] = {"phase": "Failed"}
    assert (await api.put(path, replaced)).ok().body["status"]["phase"] == "Running"


async def test_a_write_to_the_status_leaves_spec_and_labels_alone(api: Api, gadgets: Gadgets):
    made = await gadgets.create("inverse")
    path = gadgets.path(made["metadata"]["name"], "status")
    patch = {"spec": {"size": 9}, "status": {"phase": "Running"}, "metadata": {"labels": {"sneaked": "in"}}}
    answer = (await api.patch(path, patch)).ok()
    assert (answer.body["spec"]["size"], answer.body["status"]["phase"]) == (3, "Running")
    assert "sneaked" not in answer.body["metadata"]["labels"]
    answer.body["spec"]["size"] = 8
    answer.body["status"]["phase"] = "Done"
    put = (await api.put(path, answer.body)).ok()
    assert (put.body["spec"]["size"], put.body["status"]["phase"]) == (3, "Done")
    assert (await api.get(path)).ok().body["status"]["phase"] == "Done"


async def test_the_generation_counts_changes_of_the_spec_alone(api: Api, gadgets: Gadgets):
    made = await gadgets.create("generations")
    path = gadgets.path(made["metadata"]["name"])
    assert made["metadata"]["generation"] == 1
    (await api.patch(f"{path}/status", {"status": {"phase": "Running"}})).ok()
    labelled = (await api.patch(path, {"metadata": {"labels": {"a": "b"}}})).ok()
    assert labelled.body["metadata"]["generation"] == 1
    assert (await api.patch(path, {"spec": {"size": 4}})).ok().body["metadata"]["generation"] == 2


async def test_replacing_a_custom_object_demands_its_resource_version(api: Api, gadgets: Gadgets):
    made = await gadgets.create("versioned")
    path = gadgets.path(made["metadata"]["name"])
    without = copy.deepcopy(made)
    del without["metadata"]["resourceVersion"]
    (await api.put(path, without)).refused(422, "Invalid", "metadata.resourceVersion")
    (await api.patch(path, {"spec": {"size": 5}})).ok()
    (await api.put(path, made)).refused(409, "Conflict", "the object has been modified")


async def test_a_merge_patch_with_a_stale_resource_version_is_a_conflict(api: Api, gadgets: Gadgets):
    made = await gadgets.create("stale")
    path = gadgets.path(made["metadata"]["name"])
    (await api.patch(path, {"spec": {"size": 5}})).ok()
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "spec": {"size": 6}}
    (await api.patch(path, stale)).refused(409, "Conflict", "the object has been modified")


async def test_a_json_patch_is_taken(api: Api, gadgets: Gadgets):
    made = await gadgets.create("listed")
    patch = [{"op": "replace", "path": "/spec/size", "value": 7}]
    answer = (await api.patch(gadgets.path(made["metadata"]["name"]), patch, JSON_PATCH)).ok()
    assert answer.body["spec"]["size"] == 7


@pytest.mark.parametrize(
    "content_type", [pytest.param(STRATEGIC, id="a strategic merge patch"), pytest.param(JSON, id="plain JSON")]
)
async def test_a_custom_object_refuses_as_a_patch(api: Api, gadgets: Gadgets, content_type: str):
    made = await gadgets.create("unstrategic")
    answer = await api.patch(gadgets.path(made["metadata"]["name"]), {"spec": {"size": 4}}, content_type)
    answer.refused(415, "UnsupportedMediaType", "application/merge-patch+json")


async def test_strict_field_validation_refuses_an_unknown_field_by_its_path(api: Api, gadgets: Gadgets):
    body = gadgets.body("strict", spec={"size": 1, "sise": 2})
    answer = await api.post(gadgets.path(), body, {"fieldValidation": "Strict"})
    answer.refused(400, "BadRequest", 'unknown field "spec.sise"')


async def test_warning_field_validation_stores_and_warns_in_a_header(api: Api, gadgets: Gadgets):
    body = gadgets.body("warned", spec={"size": 1, "sise": 2})
    answer = (await api.post(gadgets.path(), body, {"fieldValidation": "Warn"})).ok()
    assert answer.headers["Warning"].startswith("299 ")
    assert 'unknown field \\"spec.sise\\"' in answer.headers["Warning"]
    silent = (
        await api.post(
            gadgets.path(), gadgets.body("unwarned", spec={"size": 1, "sise": 2}), {"fieldValidation": "Ignore"}
        )
    ).ok()
    assert "Warning" not in silent.headers


async def test_items_of_a_list_of_custom_objects_carry_their_kind(api: Api, gadgets: Gadgets):
    made = await gadgets.create("kinds")
    listed = (await api.get(gadgets.path(), {"fieldSelector": f"metadata.name={made['metadata']['name']}"})).ok()
    assert listed.body["kind"] == "GadgetList"
    assert [(item["apiVersion"], item["kind"]) for item in listed.body["items"]] == [(gadgets.group_version, "Gadget")]


async def test_a_table_of_custom_objects_has_the_printer_columns(api: Api, gadgets: Gadgets):
    made = await gadgets.create("printed", spec={"size": 42})
    name = made["metadata"]["name"]
    (await api.patch(gadgets.path(name, "status"), {"status": {"phase": "Running"}})).ok()
    table = (await api.get(gadgets.path(name), accept="application/json;as=Table;v=v1;g=meta.k8s.io")).ok().body
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Phase"]
    assert table["rows"][0]["cells"] == [name, 42, "Running"]


async def test_a_watch_from_before_the_definition_is_too_old(api: Api, gadgets: Gadgets):
    # The history of a kind cannot reach back behind its definition, so version 1 is too old on every server.
    async with api.watch(gadgets.path(), {"resourceVersion": "1", "timeoutSeconds": "5"}) as watch:
        event = await watch.next()
    assert event is not None
    if watch.status == 200:
        assert event.type == "ERROR"
        assert (event.object["kind"], event.object["code"], event.object["reason"]) == ("Status", 410, "Expired")
        assert "too old resource version" in event.object["message"]
    else:
        assert watch.status == 410


async def test_a_watch_sees_custom_objects_come_change_and_go(api: Api, gadgets: Gadgets):
    start = (await api.get(gadgets.path())).ok().resource_version
    made = await gadgets.create("watched")
    path = gadgets.path(made["metadata"]["name"])
    async with api.watch(gadgets.path(), {"resourceVersion": start}) as watch:
        (await api.patch(f"{path}/status", {"status": {"phase": "Running"}})).ok()
        (await api.delete(path)).ok()
        events = await watch.take(3)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert events[1].object["status"]["phase"] == "Running"


async def test_an_unknown_custom_object_is_not_found_by_group_and_name(api: Api, gadgets: Gadgets):
    answer = (await api.get(gadgets.path("none"))).refused(404, "NotFound", f'gadgets.{api.group} "none" not found')
    assert answer.body["details"]["group"] == api.group


async def test_a_removed_definition_takes_its_resource_with_it(api: Api):
    body = definition(api)
    body["metadata"]["name"] = f"gizmos.{api.group}"
    body["spec"]["names"] = {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "GizmoList"}
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    (await api.post(definitions, body)).ok()
    path = api.grouped(f"{api.group}/v1beta1", "gizmos")
    await api.eventually(path, lambda answer: answer.status == 200)
    (await api.delete(f"{definitions}/gizmos.{api.group}")).ok()
    await api.eventually(path, lambda answer: answer.status == 404)
