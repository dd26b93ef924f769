"""Discovery, versions, health, and the form of every refusal."""

from typing import Any

import pytest

from tests.contract.api import Api

VOLCANO: list[Any] = [
    ("scheduling.volcano.sh/v1beta1", "podgroups", "PodGroup", True),
    ("scheduling.volcano.sh/v1beta1", "queues", "Queue", False),
    ("batch.volcano.sh/v1alpha1", "jobs", "Job", True),
    ("bus.volcano.sh/v1alpha1", "commands", "Command", True),
    ("topology.volcano.sh/v1alpha1", "hypernodes", "HyperNode", False),
]
KINDS: list[Any] = [
    ("v1", "pods", "Pod", True),
    ("v1", "nodes", "Node", False),
    ("v1", "namespaces", "Namespace", False),
    ("v1", "events", "Event", True),
    ("v1", "configmaps", "ConfigMap", True),
    ("v1", "serviceaccounts", "ServiceAccount", True),
    ("batch/v1", "jobs", "Job", True),
    ("coordination.k8s.io/v1", "leases", "Lease", True),
    ("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", False),
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", True),
    ("apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", False),
]
SUBRESOURCES: list[Any] = [
    ("pods/status", "Pod", {"get", "patch", "update"}),
    ("pods/binding", "Binding", {"create"}),
    ("pods/eviction", "Eviction", {"create"}),
    ("nodes/status", "Node", {"get", "patch", "update"}),
]


def path_of(group_version: str) -> str:
    return "/api/v1" if group_version == "v1" else f"/apis/{group_version}"


def cases(kinds: list[Any]) -> list[Any]:
    return [pytest.param(*kind, id=f"{kind[1]} of {kind[0]}") for kind in kinds]


@pytest.mark.parametrize(("group_version", "resource", "kind", "namespaced"), cases(KINDS + VOLCANO))
async def test_discovery_lists(api: Api, group_version: str, resource: str, kind: str, namespaced: bool):
    answer = await api.get(path_of(group_version))
    if answer.status == 404 and ".volcano.sh/" in group_version:
        pytest.skip("the definitions of Volcano's kinds are not installed on this cluster")
    assert (answer.ok().body["kind"], answer.body["groupVersion"]) == ("APIResourceList", group_version)
    found = next(one for one in answer.body["resources"] if one["name"] == resource)
    assert (found["kind"], found["namespaced"]) == (kind, namespaced)
    assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(found["verbs"])


@pytest.mark.parametrize(
    ("name", "kind", "verbs"), [pytest.param(*one, id=f"the subresource {one[0]}") for one in SUBRESOURCES]
)
async def test_core_discovery_lists(api: Api, name: str, kind: str, verbs: set[str]):
    resources = (await api.get("/api/v1")).ok().body["resources"]
    found = next(one for one in resources if one["name"] == name)
    assert found["kind"] == kind
    assert verbs <= set(found["verbs"])


async def test_groups_are_listed_with_their_preferred_version(api: Api):
    answer = (await api.get("/apis")).ok()
    assert answer.body["kind"] == "APIGroupList"
    groups = {group["name"]: group for group in answer.body["groups"]}
    assert {"batch", "coordination.k8s.io", "scheduling.k8s.io", "policy", "apiextensions.k8s.io"} <= set(groups)
    assert groups["batch"]["preferredVersion"]["groupVersion"] == "batch/v1"
    assert (await api.get("/api")).ok().body["versions"] == ["v1"]
    one = (await api.get("/apis/batch")).ok().body
    assert (one["kind"], one["name"]) == ("APIGroup", "batch")


async def test_a_client_that_prefers_aggregated_discovery_gets_an_answer_it_knows(api: Api):
    wanted = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    answer = (await api.get("/apis", accept=wanted)).ok()
    assert answer.body["kind"] in {"APIGroupDiscoveryList", "APIGroupList"}


async def test_the_version_names_major_and_minor(api: Api):
    version = (await api.get("/version")).ok().body
    assert version["major"] == "1"
    assert version["minor"].rstrip("+").isdigit()
    assert version["gitVersion"].startswith("v1.")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez"])
async def test_health_is_plain_ok_at(api: Api, path: str):
    answer = await api.get(path, accept="*/*")
    assert (answer.status, answer.text) == (200, "ok")


REFUSALS: list[Any] = [
    pytest.param("GET", "/pods/none", {}, (404, "NotFound"), id="an object that does not exist"),
    pytest.param("GET", "/shoes", {}, (404, "NotFound"), id="a resource that does not exist"),
    pytest.param("GET", "/pods/none/shoes", {}, (404, "NotFound"), id="a subresource that does not exist"),
    pytest.param(
        "PUT", "/pods", {"body": {}}, (405, "MethodNotAllowed"), id="a method that a collection does not know"
    ),
    pytest.param(
        "POST", "/pods/none", {"body": {}}, (405, "MethodNotAllowed"), id="a method that an object does not know"
    ),
    pytest.param(
        "GET", "/pods", {"accept": "text/html"}, (406, "NotAcceptable"), id="a representation that is not offered"
    ),
    pytest.param(
        "POST",
        "/pods",
        {"body": "{}", "content_type": "text/plain"},
        (415, "UnsupportedMediaType"),
        id="a body of an unknown type",
    ),
    pytest.param(
        "POST", "/configmaps", {"body": {"metadata": {"name": "NO"}}}, (422, "Invalid"), id="an object that is invalid"
    ),
]


@pytest.mark.parametrize(("method", "path", "rest", "refusal"), REFUSALS)
async def test_a_status_object_is_the_answer_to(
    api: Api, method: str, path: str, rest: dict[str, Any], refusal: tuple[int, str]
):
    answer = await api.request(method, f"/api/v1/namespaces/{api.namespace}{path}", **rest)
    answer.refused(*refusal)
    assert answer.body["metadata"] == {}


async def test_not_found_names_the_object_in_words_and_in_details(api: Api):
    answer = (await api.get(api.pod("none"))).refused(404, "NotFound", 'pods "none" not found')
    assert answer.body["details"] == {"name": "none", "kind": "pods"}


@pytest.mark.parametrize(
    ("validation", "warned"),
    [
        pytest.param("Warn", True, id="warned about when asked"),
        pytest.param("Ignore", False, id="dropped silently when asked"),
    ],
)
async def test_an_unknown_field_of_a_core_object_is(api: Api, validation: str, warned: bool):
    body = {"metadata": api.metadata(api.name("unknown")), "dada": {"a": "b"}}
    answer = (await api.post(api.core("configmaps"), body, {"fieldValidation": validation})).ok()
    assert "dada" not in answer.body
    assert ("Warning" in answer.headers) is warned
    if warned:
        assert 'unknown field \\"dada\\"' in answer.headers["Warning"]


async def test_an_unknown_field_of_a_core_object_is_refused_under_strict_validation(api: Api):
    body = api.pod_body(api.name("strict"))
    body["spec"]["containers"][0]["imagge"] = "typo"
    answer = await api.post(api.pod(), body, {"fieldValidation": "Strict"})
    answer.refused(400, "BadRequest", 'unknown field "spec.containers[0].imagge"')
