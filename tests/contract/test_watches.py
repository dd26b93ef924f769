"""Watches: order, resumption, selectors, bookmarks, initial events, and how a stream ends."""

from typing import Any

import pytest

from tests.contract.api import Api, Event, summary


def named(name: str) -> dict[str, str]:
    return {"fieldSelector": f"metadata.name={name}"}


async def test_a_watch_sees_changes_in_order_with_growing_versions(api: Api):
    start = (await api.get(api.core("configmaps"))).ok().resource_version
    label = api.name("ordered")
    query = {"resourceVersion": start, "labelSelector": f"watched={label}"}
    async with api.watch(api.core("configmaps"), query) as watch:
        assert watch.status == 200
        made = await api.create_config_map("ordered", labels={"watched": label})
        path = api.core("configmaps", made["metadata"]["name"])
        changed = (await api.patch(path, {"data": {"key": "new"}})).ok()
        (await api.delete(path)).ok()
        events = await watch.take(3)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [event.resource_version for event in events]
    assert versions == sorted(set(versions))
    assert versions[:2] == [int(made["metadata"]["resourceVersion"]), int(changed.resource_version)]
    last = events[-1].object
    assert (last["kind"], last["apiVersion"], last["data"]) == ("ConfigMap", "v1", {"key": "new"})


async def test_a_watch_resumes_after_the_version_it_names(api: Api):
    made = await api.create_config_map("resumed")
    name = made["metadata"]["name"]
    versions = [
        (await api.patch(api.core("configmaps", name), {"data": {"key": str(count)}})).ok().resource_version
        for count in range(4)
    ]
    async with api.watch(api.core("configmaps"), {**named(name), "resourceVersion": versions[1]}) as watch:
        events = await watch.take(2)
    assert [(event.type, event.object["data"]["key"]) for event in events] == [("MODIFIED", "2"), ("MODIFIED", "3")]


@pytest.mark.parametrize(
    "query",
    [pytest.param({}, id="no resource version"), pytest.param({"resourceVersion": "0"}, id="resource version 0")],
)
async def test_a_watch_begins_with_what_exists_when_it_names(api: Api, query: dict[str, str]):
    made = await api.create_config_map("existing")
    name = made["metadata"]["name"]
    async with api.watch(api.core("configmaps"), {**named(name), **query}) as watch:
        first = (await watch.take(1))[0]
        assert (first.type, first.object["data"]) == ("ADDED", {"key": "value"})
        (await api.patch(api.core("configmaps", name), {"data": {"key": "new"}})).ok()
        assert (await watch.take(1))[0].type == "MODIFIED"


@pytest.mark.parametrize("spelling", ["true", "1", "True"])
async def test_a_watch_is_asked_for_by(api: Api, spelling: str):
    made = await api.create_config_map("spelt")
    query = {**named(made["metadata"]["name"]), "watch": spelling, "timeoutSeconds": "5"}
    async with api.watch(api.core("configmaps"), query) as watch:
        assert summary(await watch.take(1)) == [f"ADDED {made['metadata']['name']}"]


async def test_a_watch_of_one_namespace_sees_no_other(api: Api):
    path = f"/api/v1/namespaces/{api.name('elsewhere')}/configmaps"
    start = (await api.get(api.core("configmaps"))).ok().resource_version
    async with api.watch(path, {"resourceVersion": start, "timeoutSeconds": "1"}) as watch:
        await api.create_config_map("here")
        assert await watch.rest() == []


async def test_an_object_enters_and_leaves_a_label_selector_as_added_and_deleted(api: Api):
    made = await api.create_config_map("labelled")
    path = api.core("configmaps", made["metadata"]["name"])
    label = made["metadata"]["name"]
    query = {"labelSelector": f"inside={label}", "resourceVersion": made["metadata"]["resourceVersion"]}
    async with api.watch(api.core("configmaps"), query) as watch:
        (await api.patch(path, {"data": {"key": "unseen"}})).ok()
        (await api.patch(path, {"metadata": {"labels": {"inside": label}}})).ok()
        (await api.patch(path, {"data": {"key": "seen"}})).ok()
        left = (await api.patch(path, {"metadata": {"labels": {"inside": None}}})).ok()
        (await api.patch(path, {"metadata": {"labels": {"inside": label}}})).ok()
        events = await watch.take(4)
    assert [event.type for event in events] == ["ADDED", "MODIFIED", "DELETED", "ADDED"]
    gone = events[2]
    assert gone.resource_version == int(left.resource_version)
    # The object of such a deletion is the last state that matched.
    assert gone.object["metadata"]["labels"]["inside"] == label


async def test_binding_a_pod_moves_it_from_the_unbound_to_those_of_its_node(api: Api):
    pod = await api.create_pod("moved")
    name = pod["metadata"]["name"]
    node = api.name("node")
    version = pod["metadata"]["resourceVersion"]
    unbound = {"fieldSelector": f"spec.nodeName=,metadata.name={name}", "resourceVersion": version}
    bound = {"fieldSelector": f"spec.nodeName={node}", "resourceVersion": version}
    async with api.watch(api.pod(), unbound) as before, api.watch("/api/v1/pods", bound) as after:
        assert (await api.bind(name, node)).status == 201
        assert summary(await before.take(1)) == [f"DELETED {name}"]
        assert summary(await after.take(1)) == [f"ADDED {name}"]


async def test_a_pod_is_one_event_for_its_binding(api: Api):
    pod = await api.create_pod("single")
    name = pod["metadata"]["name"]
    query = {**named(name), "resourceVersion": pod["metadata"]["resourceVersion"]}
    async with api.watch(api.pod(), query) as watch:
        assert (await api.bind(name, "muster-contract-none")).status == 201
        (await api.patch(api.pod(name), {"metadata": {"annotations": {"mark": "1"}}})).ok()
        events = await watch.take(2)
    assert events[0].object["spec"]["nodeName"] == "muster-contract-none"
    assert "mark" not in events[0].object["metadata"].get("annotations", {})
    assert events[1].object["metadata"]["annotations"]["mark"] == "1"


async def test_deleting_a_collection_is_seen_object_by_object(api: Api):
    label = api.name("many")
    made = [await api.create_config_map("many", labels={"batch": label}) for _ in range(3)]
    start = max(int(one["metadata"]["resourceVersion"]) for one in made)
    query = {"labelSelector": f"batch={label}", "resourceVersion": str(start)}
    async with api.watch(api.core("configmaps"), query) as watch:
        (await api.delete(api.core("configmaps"), query={"labelSelector": f"batch={label}"})).ok()
        events = await watch.take(3)
    assert sorted(summary(events)) == sorted(f"DELETED {one['metadata']['name']}" for one in made)


async def test_a_watch_ends_cleanly_after_its_timeout(api: Api):
    start = (await api.get(api.core("configmaps"))).ok().resource_version
    query = {**named(api.name("quiet")), "resourceVersion": start, "timeoutSeconds": "1"}
    async with api.watch(api.core("configmaps"), query) as watch:
        assert watch.status == 200
        assert await watch.rest() == []


async def test_bookmarks_come_when_asked_for_and_carry_only_a_version(api: Api):
    made = await api.create_config_map("bookmarked")
    query = {
        **named(api.name("other")),
        "resourceVersion": made["metadata"]["resourceVersion"],
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "4",
    }
    async with api.watch(api.core("configmaps"), query) as watch:
        newer = await api.create_config_map("bookmarked")
        events = await watch.rest()
    assert events, "no bookmark came before the timeout"
    assert {event.type for event in events} == {"BOOKMARK"}
    last = events[-1].object
    assert (last["kind"], last["apiVersion"]) == ("ConfigMap", "v1")
    assert int(last["metadata"]["resourceVersion"]) >= int(newer["metadata"]["resourceVersion"])
    assert not last["metadata"].get("name")


async def test_a_watch_resumes_from_the_version_of_a_bookmark(api: Api):
    made = await api.create_config_map("from-bookmark")
    name = made["metadata"]["name"]
    query = {**named(name), "resourceVersion": made["metadata"]["resourceVersion"], "allowWatchBookmarks": "true"}
    async with api.watch(api.core("configmaps"), {**query, "timeoutSeconds": "4"}) as watch:
        await api.create_config_map("unseen")  # a bookmark is sent only for a version newer than the watch's own
        bookmark = (await watch.rest())[-1]
    assert bookmark.type == "BOOKMARK"
    assert bookmark.resource_version > int(made["metadata"]["resourceVersion"])
    (await api.patch(api.core("configmaps", name), {"data": {"key": "new"}})).ok()
    query["resourceVersion"] = bookmark.object["metadata"]["resourceVersion"]
    async with api.watch(api.core("configmaps"), query) as watch:
        event = (await watch.take(1))[0]
    assert (event.type, event.object["data"]) == ("MODIFIED", {"key": "new"})


def ends_initial_events(event: Event) -> bool:
    annotations = event.object["metadata"].get("annotations") or {}
    return event.type == "BOOKMARK" and annotations.get("k8s.io/initial-events-end") == "true"


async def test_initial_events_end_with_a_marked_bookmark_or_are_refused_as_documented(api: Api):
    label = api.name("initial")
    made = [await api.create_config_map("initial", labels={"initial": label}) for _ in range(3)]
    query = {
        "labelSelector": f"initial={label}",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "10",
    }
    async with api.watch(api.core("configmaps"), query) as watch:
        if watch.status == 422:  # a server without the feature
            return
        assert watch.status == 200
        seen = await watch.until(lambda event: event.type == "ERROR" or ends_initial_events(event))
        if seen[-1].type == "ERROR":  # an etcd without watch progress
            assert seen[-1].object["kind"] == "Status"
            return
        assert sorted(summary(seen[:-1])) == sorted(f"ADDED {one['metadata']['name']}" for one in made)
        assert seen[-1].resource_version >= max(int(one["metadata"]["resourceVersion"]) for one in made)
        (await api.patch(api.core("configmaps", made[0]["metadata"]["name"]), {"data": {"key": "new"}})).ok()
        assert (await watch.take(1))[0].type == "MODIFIED"


async def test_initial_events_without_the_matching_rule_are_invalid(api: Api):
    answer = await api.get(api.core("configmaps"), {"watch": "true", "sendInitialEvents": "true"})
    answer.refused(422, "Invalid", "resourceVersionMatch")


async def test_a_version_that_is_no_number_is_refused(api: Api):
    answer = await api.get(api.core("configmaps"), {"watch": "true", "resourceVersion": "abc"})
    assert answer.status >= 400
    assert answer.body["kind"] == "Status"
    assert "abc" in answer.message


async def test_many_watchers_of_one_kind_see_the_same_events_in_the_same_order(api: Api):
    start = (await api.get(api.core("configmaps"))).ok().resource_version
    label = api.name("shared")
    query: dict[str, Any] = {"labelSelector": f"shared={label}", "resourceVersion": start}
    async with api.watch(api.core("configmaps"), query) as one, api.watch(api.core("configmaps"), query) as two:
        for _ in range(5):
            made = await api.create_config_map("shared", labels={"shared": label})
            (await api.delete(api.core("configmaps", made["metadata"]["name"]))).ok()
        first, second = await one.take(10), await two.take(10)
    assert summary(first) == summary(second)
    assert [event.resource_version for event in first] == sorted(event.resource_version for event in first)
