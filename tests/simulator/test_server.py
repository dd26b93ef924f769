"""What the contract suite cannot ask of a real server: faults, slow watchers, the event log, restarts, counted verbs."""

import asyncio
import io

import aiohttp
import pytest

from tests.simulator.http_api import TABLE, pod, serving

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def api():
    async with serving() as found:
        yield found


async def test_a_rule_fails_matching_requests_with_retry_after_and_then_stops(api):
    api.server.faults.add("error", verb="create", resource="pods", code=429, retry_after=2, count=2)
    for _ in range(2):
        status, body = await api.call("POST", PODS, pod("web"))
        assert (status, body["reason"], body["details"]["retryAfterSeconds"]) == (429, "TooManyRequests", 2)
    assert (await api.get(PODS))[0] == 200
    assert (await api.call("POST", PODS, pod("web")))[0] == 201


async def test_a_rule_may_let_some_requests_pass_and_pick_a_user_agent(api):
    api.server.faults.add("error", user_agent="sched*", code=500, skip=1, count=1)
    answers = [(await api.get(PODS, User_Agent=agent))[0] for agent in ("scheduler", "other", "scheduler", "scheduler")]
    assert answers == [200, 200, 500, 200]


async def test_a_lost_answer_is_a_write_that_was_done(api):
    api.server.faults.add("lose_answer", verb="create", resource="pods/binding")
    api.store.create("pods", pod("web"))
    with pytest.raises(aiohttp.ClientError):
        await api.call("POST", f"{PODS}/web/binding", {"target": {"name": "n"}})
    assert api.store.get("pods", "default", "web")["spec"]["nodeName"] == "n"


async def test_a_reset_is_a_request_that_was_not_done(api):
    api.server.faults.add("reset", verb="create")
    with pytest.raises(aiohttp.ClientError):
        await api.call("POST", PODS, pod("web"))
    assert api.store.find("pods", "default", "web") is None


async def test_faults_are_set_and_shown_over_http_and_a_bad_rule_is_named(api):
    status, shown = await api.call(
        "POST", "/debug/faults", {"rules": [{"action": "error", "code": 503, "verb": "list"}]}
    )
    assert (status, shown["rules"][0]["code"]) == (200, 503)
    assert (await api.get(PODS))[0] == 503
    assert (await api.call("POST", "/debug/faults", {"rules": [{"action": "melt"}]}))[0] == 400
    assert (await api.call("POST", "/debug/faults", {"rules": [{"action": "error", "colour": 1}]}))[0] == 400
    assert (await api.call("DELETE", "/debug/faults"))[1]["rules"] == []
    assert (await api.get(PODS))[0] == 200


async def test_a_cut_watch_ends_without_an_error_and_resumes_from_the_last_version(api):
    made = api.store.create("pods", pod("a"))
    async with api.watch(f"{PODS}?watch=1") as watch:
        assert await watch.names(1) == [("ADDED", "a")]
        assert api.server.faults.cut_watches("pods") == 1
        assert await watch.next() is None
    api.store.create("pods", pod("b"))
    async with api.watch(f"{PODS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}") as watch:
        assert await watch.names(1) == [("ADDED", "b")]


async def test_an_expired_watch_gets_410_in_the_stream_and_so_does_every_resume(api):
    made = api.store.create("pods", pod("a"))
    api.store.create("pods", pod("b"))
    path = f"{PODS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}"
    async with api.watch(path) as watch:
        assert await watch.names(1) == [("ADDED", "b")]
        api.server.faults.expire_watches()
        kind, status = await watch.next()
        assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        assert await watch.next() is None
    async with api.watch(path) as watch:
        assert (await watch.next())[1]["code"] == 410
    api.server.faults.http_expired = True
    assert (await api.get(path))[0] == 410


async def test_a_held_watch_is_silent_until_released_and_then_misses_nothing(api):
    async with api.watch(f"{PODS}?watch=1&resourceVersion={api.store.version}") as watch:
        api.server.faults.hold_watches("pods")
        for index in range(3):
            api.store.create("pods", pod(f"p{index}"))
        late = asyncio.ensure_future(watch.next())
        assert (await api.get(PODS))[0] == 200
        assert not late.done()
        api.server.faults.release_watches()
        assert (await late)[1]["metadata"]["name"] == "p0"
        assert await watch.names(2) == [("ADDED", "p1"), ("ADDED", "p2")]


async def test_a_watcher_that_falls_behind_is_cut_with_a_clean_end():
    async with (
        serving(watch_capacity=50) as api,
        api.watch(f"{PODS}?watch=1&resourceVersion={api.store.version}") as watch,
    ):
        while not api.store.open_watches("pods"):
            await asyncio.sleep(0)
        for index in range(60):
            api.store.create("pods", pod(f"p{index}"))
        seen = []
        while (event := await watch.next()) is not None:
            seen.append(event[0])
        assert "ERROR" not in seen
        assert len(seen) < 60


async def test_the_event_log_is_bounded():
    async with serving(log_size=10) as api:
        start = api.store.version
        for index in range(10):
            api.store.create("pods", pod(f"p{index}"))
        async with api.watch(f"{PODS}?watch=1&resourceVersion={start}") as watch:
            assert len(await watch.names(10)) == 10
        api.store.create("pods", pod("one-more"))
        async with api.watch(f"{PODS}?watch=1&resourceVersion={start}") as watch:
            assert (await watch.next())[1]["code"] == 410
        status, body = await api.get(f"{PODS}?resourceVersion={start}&resourceVersionMatch=Exact")
        assert (status, body["reason"]) == (410, "Expired")


async def test_a_version_the_store_never_reached_is_expired_for_watches_and_too_large_for_lists(api):
    async with api.watch(f"{PODS}?watch=1&resourceVersion=999999") as watch:
        assert (await watch.next())[1]["code"] == 410
    assert (await api.get(f"{PODS}?resourceVersion=999999"))[0] == 504


async def test_bookmarks_come_while_nothing_happens():
    async with serving(bookmark_seconds=0.02) as api:
        async with api.watch(f"{PODS}?watch=1&allowWatchBookmarks=true&resourceVersion={api.store.version}") as watch:
            kind, obj = await watch.next()
        assert (kind, obj["kind"], obj["metadata"]["resourceVersion"]) == ("BOOKMARK", "Pod", str(api.store.version))


async def test_a_watch_that_moves_out_of_its_selector_shows_the_last_matching_state(api):
    api.store.create("pods", pod("web", labels={"a": "1"}))
    async with api.watch(f"{PODS}?watch=1&labelSelector=a%3D1") as watch:
        assert await watch.names(1) == [("ADDED", "web")]
        changed = api.store.patch("pods", "default", "web", {"metadata": {"labels": {"a": "2"}}})
        kind, obj = await watch.next()
    assert (kind, obj["metadata"]["labels"]) == ("DELETED", {"a": "1"})
    assert obj["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_a_client_that_leaves_frees_its_watch(api):
    async with api.watch(f"{PODS}?watch=1") as watch:
        assert watch.response.status == 200
        while not api.store.open_watches("pods"):
            await asyncio.sleep(0)
    async with asyncio.timeout(5):
        while api.store.open_watches("pods"):
            await asyncio.sleep(0.01)


async def test_a_restart_ends_watches_and_keeps_the_objects(api):
    api.store.create("pods", pod("web"))
    port = api.server.port
    async with api.watch(f"{PODS}?watch=1") as watch:
        assert await watch.names(1) == [("ADDED", "web")]
        await api.server.stop()
        assert await watch.next() is None
    await api.server.start(port=port)
    assert [found["metadata"]["name"] for found in (await api.get(PODS))[1]["items"]] == ["web"]


async def test_pages_are_one_state_even_when_objects_come_and_go_between(api):
    for name in "abcdef":
        api.store.create("pods", pod(name))
    _status, first = await api.get(f"{PODS}?limit=2")
    api.store.delete("pods", "default", "c", grace_period=0)
    api.store.create("pods", pod("bb"))
    names, token = [found["metadata"]["name"] for found in first["items"]], first["metadata"]["continue"]
    while token:
        _status, page = await api.get(f"{PODS}?limit=2&continue={token}")
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        names += [found["metadata"]["name"] for found in page["items"]]
        token = page["metadata"].get("continue")
    assert names == list("abcdef")
    assert first["metadata"]["remainingItemCount"] == 4


async def test_verbs_are_counted_by_user_agent_and_subresource(api):
    api.store.create("pods", pod("web"))
    await api.call("POST", f"{PODS}/web/binding", {"target": {"name": "n"}}, User_Agent="muster-scheduler")
    await api.get(PODS, User_Agent="muster-scheduler")
    async with api.watch(f"{PODS}?watch=true", User_Agent="muster-watcher"):
        pass
    _status, seen = await api.get("/debug/verbs")
    found = {(one["user_agent"], one["verb"], one["resource"]): one["count"] for one in seen["verbs"]}
    assert found["muster-scheduler", "create", "pods/binding"] == 1
    assert found["muster-scheduler", "list", "pods"] == 1
    assert found["muster-watcher", "watch", "pods"] == 1


async def test_both_spellings_of_an_event_are_one_object(api):
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web"},
        "note": "placed",
        "reportingController": "muster",
        "type": "Normal",
        "reason": "Scheduled",
    }
    path = "/apis/events.k8s.io/v1/namespaces/default/events"
    status, made = await api.call("POST", path, event)
    assert (status, made["apiVersion"], made["note"]) == (201, "events.k8s.io/v1", "placed")
    _status, core = await api.get("/api/v1/namespaces/default/events/e")
    assert (core["message"], core["involvedObject"]["name"], core["reportingComponent"]) == ("placed", "web", "muster")
    _status, listed = await api.get(path)
    assert listed["items"][0]["regarding"]["name"] == "web"


async def test_yaml_bodies_are_read_and_a_big_body_is_refused(api):
    text = "metadata: {name: y}\nspec: {containers: [{name: c, image: x}]}\n"
    assert (await api.call("POST", PODS, text, content_type="application/yaml"))[0] == 201
    status, body = await api.call("POST", PODS, io.BytesIO(b" " * (4 * 1024 * 1024)))
    assert (status, body["reason"]) == (413, "RequestEntityTooLarge")


async def test_a_table_row_carries_metadata_or_the_object_as_asked(api):
    api.store.create("pods", pod("web"))
    _status, table = await api.get(PODS, Accept=TABLE)
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _status, table = await api.get(f"{PODS}?includeObject=Object", Accept=TABLE)
    assert table["rows"][0]["object"]["spec"]["containers"]
