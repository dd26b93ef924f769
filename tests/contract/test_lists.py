"""Lists: selectors, pages that show one moment, resource versions, tables."""

from typing import Any

import pytest

from tests.contract.api import Answer, Api

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def names(answer: Answer) -> list[str]:
    return sorted(item["metadata"]["name"] for item in answer.ok().body["items"] or [])


@pytest.fixture(scope="module")
async def family(api: Api) -> dict[str, dict[str, Any]]:
    """Four pods that differ in labels, node, phase and scheduler."""
    stem = api.name("family")
    made: dict[str, dict[str, Any]] = {}

    async def add(key: str, labels: dict[str, str], **spec: Any) -> None:
        body = api.pod_body(f"{stem}-{key}", metadata={"labels": {"family": stem, **labels}}, **spec)
        made[key] = (await api.post(api.pod(), body)).ok().body

    await add("a", {"team": "red", "tier": "1"})
    await add("b", {"team": "blue", "tier": "2"}, nodeName="muster-contract-none")
    await add("c", {"team": "green"}, schedulerName="muster-contract-other")
    await add("d", {"tier": "1"}, restartPolicy="Never")
    (await api.patch(api.pod(made["c"]["metadata"]["name"], "status"), {"status": {"phase": "Failed"}})).ok()
    return made


LABEL_SELECTORS: list[Any] = [
    pytest.param("team=red", "a", id="a label that equals"),
    pytest.param("team==red", "a", id="a label that equals, spelt with two signs"),
    pytest.param("team!=red", "bcd", id="a label that differs, or is absent"),
    pytest.param("team in (red, blue)", "ab", id="a label in a set"),
    pytest.param("team notin (red,blue)", "cd", id="a label outside a set, or absent"),
    pytest.param("team", "abc", id="a label that exists"),
    pytest.param("!team", "d", id="a label that does not exist"),
    pytest.param("team,tier=1", "a", id="two requirements at once"),
    pytest.param("tier>1", "b", id="a label greater than a number"),
]


@pytest.mark.parametrize(("selector", "expected"), LABEL_SELECTORS)
async def test_a_label_selector_picks(api: Api, family: dict[str, Any], selector: str, expected: str):
    own = family["a"]["metadata"]["labels"]["family"]
    answer = await api.get(api.pod(), {"labelSelector": f"family={own},{selector}"})
    assert names(answer) == [family[key]["metadata"]["name"] for key in expected]


FIELD_SELECTORS: list[Any] = [
    pytest.param("spec.nodeName=muster-contract-none", "b", id="pods of a node"),
    pytest.param("spec.nodeName=", "acd", id="pods without a node"),
    pytest.param("spec.nodeName!=", "b", id="pods with any node"),
    pytest.param("status.phase=Failed", "c", id="pods in a phase"),
    pytest.param("status.phase!=Failed,status.phase!=Succeeded", "abd", id="pods outside two phases"),
    pytest.param("spec.schedulerName=muster-contract-other", "c", id="pods of a scheduler"),
    pytest.param("spec.restartPolicy==Never", "d", id="pods with a restart policy"),
]


@pytest.mark.parametrize(("selector", "expected"), FIELD_SELECTORS)
async def test_a_field_selector_picks(api: Api, family: dict[str, Any], selector: str, expected: str):
    own = family["a"]["metadata"]["labels"]["family"]
    answer = await api.get(api.pod(), {"labelSelector": f"family={own}", "fieldSelector": selector})
    assert names(answer) == [family[key]["metadata"]["name"] for key in expected]


async def test_a_field_selector_picks_by_name(api: Api, family: dict[str, Any]):
    name = family["a"]["metadata"]["name"]
    assert names(await api.get(api.pod(), {"fieldSelector": f"metadata.name={name}"})) == [name]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        pytest.param({"fieldSelector": "spec.shoeSize=43"}, "field label not supported", id="an unknown field"),
        pytest.param({"labelSelector": "a=b=c"}, "", id="a malformed label selector"),
        pytest.param({"fieldSelector": "spec.nodeName"}, "", id="a malformed field selector"),
        pytest.param({"continue": "abc"}, "continue", id="a continue token that is none"),
    ],
)
async def test_a_list_is_a_bad_request_with(api: Api, query: dict[str, str], words: str):
    (await api.get(api.pod(), query)).refused(400, "BadRequest", words)


async def test_a_list_over_all_namespaces_finds_the_same_pods(api: Api, family: dict[str, Any]):
    own = family["a"]["metadata"]["labels"]["family"]
    answer = await api.get("/api/v1/pods", {"labelSelector": f"family={own}"})
    assert names(answer) == [family[key]["metadata"]["name"] for key in "abcd"]
    assert {item["metadata"]["namespace"] for item in answer.body["items"]} == {api.namespace}


async def test_a_list_has_a_resource_version_and_its_core_items_carry_no_kind(api: Api, family: dict[str, Any]):
    answer = (await api.get(api.pod())).ok()
    assert (answer.body["apiVersion"], answer.body["kind"]) == ("v1", "PodList")
    newest = max(int(pod["metadata"]["resourceVersion"]) for pod in family.values())
    assert int(answer.resource_version) >= newest
    assert all("kind" not in item for item in answer.body["items"])


async def test_a_list_of_nothing_has_no_items(api: Api):
    answer = (await api.get(api.pod(), {"labelSelector": "family=nobody"})).ok()
    assert not answer.body["items"]
    assert int(answer.resource_version) > 0


async def test_items_of_a_list_are_ordered_by_namespace_and_name(api: Api, family: dict[str, Any]):
    answer = (await api.get("/api/v1/pods")).ok()
    listed = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in answer.body["items"]]
    assert listed == sorted(listed, key=lambda pair: f"{pair[0]}/{pair[1]}")


async def test_pages_show_the_moment_of_the_first_and_every_item_once(api: Api):
    label = api.name("paged")
    made = sorted(
        [(await api.create_config_map("paged", labels={"page": label}))["metadata"]["name"] for _ in range(5)]
    )
    query = {"labelSelector": f"page={label}", "limit": "2"}
    first = (await api.get(api.core("configmaps"), query)).ok()
    assert len(first.body["items"]) == 2
    assert first.body["metadata"]["continue"]

    # Later writes are not seen by the pages that follow.
    late = await api.create_config_map("paged", labels={"page": label})
    (await api.delete(api.core("configmaps", made[4]))).ok()

    found = names(first)
    pages = 1
    token = first.body["metadata"]["continue"]
    while token:
        page = (await api.get(api.core("configmaps"), {**query, "continue": token})).ok()
        assert page.resource_version == first.resource_version
        found += names(page)
        pages += 1
        token = page.body["metadata"].get("continue", "")
    assert pages == 3
    assert found == made
    assert late["metadata"]["name"] not in found


async def test_an_unfiltered_page_tells_how_many_items_remain(api: Api):
    for _ in range(3):
        await api.create_config_map("remaining")
    everything = len((await api.get(api.core("configmaps"))).ok().body["items"])
    page = (await api.get(api.core("configmaps"), {"limit": "1"})).ok()
    assert page.body["metadata"]["remainingItemCount"] == everything - 1


@pytest.mark.parametrize(
    "query",
    [
        pytest.param({"resourceVersion": "0"}, id="resource version 0, any moment will do"),
        pytest.param({"resourceVersion": "0", "limit": "500"}, id="resource version 0 with a limit"),
        pytest.param(
            {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "VERSION"}, id="not older than a version"
        ),
        pytest.param({"resourceVersionMatch": "Exact", "resourceVersion": "VERSION"}, id="exactly a version"),
    ],
)
async def test_a_list_is_answered_at(api: Api, query: dict[str, str]):
    made = await api.create_config_map("moment")
    version = made["metadata"]["resourceVersion"]
    query = {key: value.replace("VERSION", version) for key, value in query.items()}

    # A list at any moment may be served from a cache that lags behind by a moment.
    async def found() -> bool:
        answer = (await api.get(api.core("configmaps"), query)).ok()
        return made["metadata"]["name"] in names(answer)

    assert any([await found() for _ in range(20)])


async def test_an_exact_version_shows_the_past(api: Api):
    made = await api.create_config_map("past")
    name = made["metadata"]["name"]
    (await api.delete(api.core("configmaps", name))).ok()
    query = {"resourceVersionMatch": "Exact", "resourceVersion": made["metadata"]["resourceVersion"], "limit": "500"}
    answer = (await api.get(api.core("configmaps"), query)).ok()
    assert name in names(answer)
    assert answer.resource_version == made["metadata"]["resourceVersion"]


async def test_a_match_rule_without_a_version_is_invalid(api: Api):
    answer = await api.get(api.core("configmaps"), {"resourceVersionMatch": "Exact"})
    answer.refused(422, "Invalid", "resourceVersionMatch")


async def test_a_table_has_columns_and_one_row_an_object(api: Api, family: dict[str, Any]):
    own = family["a"]["metadata"]["labels"]["family"]
    table = (await api.get(api.pod(), {"labelSelector": f"family={own}"}, accept=TABLE)).ok().body
    assert (table["apiVersion"], table["kind"]) == ("meta.k8s.io/v1", "Table")
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns[:3] == ["Name", "Ready", "Status"]
    assert [row["cells"][0] for row in table["rows"]] == [family[key]["metadata"]["name"] for key in "abcd"]
    assert all(row["object"]["kind"] == "PartialObjectMetadata" for row in table["rows"])
    assert all(len(row["cells"]) == len(columns) for row in table["rows"])


async def test_metadata_alone_can_be_listed(api: Api, family: dict[str, Any]):
    own = family["a"]["metadata"]["labels"]["family"]
    answer = (await api.get(api.pod(), {"labelSelector": f"family={own}"}, accept=PARTIAL)).ok()
    assert answer.body["kind"] == "PartialObjectMetadataList"
    assert all("spec" not in item for item in answer.body["items"])
    assert names(answer) == [family[key]["metadata"]["name"] for key in "abcd"]
