"""The reflector against a scripted HTTP server: each fault, the request that follows it, and the pause between."""

import asyncio
import contextlib
from collections import Counter

import pytest

from muster.kube.decoding import PODS
from muster.kube.errors import Unavailable
from muster.kube.reflector import Changed, Deleted, Fresh, Listed, Reflector, ReflectorLimits, Unserved
from tests.kube.memory_api import MemoryApi
from tests.kube.scripted_server import event, listing, pod, replies, resets, says, status_reply, streams
from tests.kube.timings import InstantTiming

EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}
FUTURE = status_reply(504, "Timeout", "Timeout: Too large resource version: 99, current: 5")


class Watcher:
    """Collects changes and restart causes."""

    def __init__(self):
        self.changes = []
        self.causes = Counter()
        self.messages = []
        self.skipped = []

    async def deliver(self, change):
        self.changes.append(change)

    def listed(self, kind, items, seconds):
        pass

    def restarted(self, kind, cause, message):
        self.causes[cause] += 1
        self.messages.append(message)

    def malformed(self, kind, key, message):
        self.skipped.append(key)

    async def until(self, condition):
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)

    def told(self):
        return [describe(change) for change in self.changes]

    def changed(self):
        return [told for told in self.told()[2:] if told[0] != "fresh"]


def describe(change):
    if isinstance(change, Listed):
        return ("listed", *[item.metadata.key for item in change.items])
    if isinstance(change, Changed):
        return ("changed", change.object.metadata.key, change.object.metadata.resource_version)
    if isinstance(change, Deleted):
        return ("deleted", change.key, change.uid)
    if isinstance(change, Fresh):
        return ("fresh", change.resource_version)
    return ("unserved", change.cause)


@contextlib.asynccontextmanager
async def reflecting(transport, watcher, *, kind=PODS, **options):
    timing = InstantTiming()
    reflector = Reflector(transport, kind, watcher.deliver, timing=timing, observer=watcher, **options)
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector, timing
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def watches(server):
    return [seen.query["resourceVersion"] for seen in server.seen if "watch" in seen.query]


def lists(server):
    return [seen.query for seen in server.seen if "watch" not in seen.query]


async def test_a_list_in_pages_is_followed_by_a_watch_from_the_first_pages_version(server, kube):
    server.script = [
        listing(10, pod("a", 3), token="more"),
        listing(10, pod("b", 4)),
        streams(event("MODIFIED", pod("a", 11)), event("ADDED", pod("c", 12)), then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher, limits=ReflectorLimits(page_size=1)):
        await watcher.until(lambda: ("fresh", "12") in watcher.told())
    assert watcher.told()[:2] == [("listed", "team/a", "team/b"), ("fresh", "10")]
    assert watcher.changed() == [("changed", "team/a", "11"), ("changed", "team/c", "12")]
    assert watcher.told()[-1] == ("fresh", "12"), "events tell how far they reach once all of them were passed on"
    assert [query.get("continue") for query in lists(server)] == [None, "more"]
    assert "resourceVersion" not in lists(server)[0], "a list must never be answered from an old cache"
    watch = server.seen[-1].query
    assert watch["resourceVersion"] == "10"
    assert watch["allowWatchBookmarks"] == "true"
    assert 240 <= int(watch["timeoutSeconds"]) <= 300


async def test_selectors_and_namespace_are_sent_with_lists_and_watches(server, kube):
    server.script = [listing(10), streams(then="hang")]
    watcher = Watcher()
    async with reflecting(kube, watcher, namespace="team", label_selector="a=b,c", field_selector="spec.nodeName=n"):
        await watcher.until(lambda: len(server.seen) == 2)
    for seen in server.seen:
        assert seen.path == "/api/v1/namespaces/team/pods"
        assert (seen.query["labelSelector"], seen.query["fieldSelector"]) == ("a=b,c", "spec.nodeName=n")


async def test_a_continue_token_that_expires_twice_leads_to_a_list_in_one_answer(server, kube):
    expired = status_reply(410, "Expired", "The provided continue parameter is too old")
    server.script = [
        listing(10, pod("a", 3), token="t1"),
        expired,
        listing(11, pod("a", 3), token="t2"),
        expired,
        listing(12, pod("a", 3), pod("b", 4)),
        streams(then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher):
        await watcher.until(lambda: len(watcher.changes) == 2)
    assert watcher.told() == [("listed", "team/a", "team/b"), ("fresh", "12")]
    assert [query.get("limit") for query in lists(server)] == ["500", "500", "500", "500", None]


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        pytest.param(streams(event("ADDED", pod("b", 11))), "end", id="a clean end"),
        pytest.param(streams(event("ADDED", pod("b", 11)), then="reset"), "reset", id="a reset in the stream"),
        pytest.param(
            streams(event("ADDED", pod("b", 11)), event("ADDED", pod("c", 12))[:40]), "end", id="a torn last line"
        ),
        pytest.param(
            streams(event("ADDED", pod("b", 11)), b"Internal Server Error\n"), "unreadable", id="text in the stream"
        ),
        pytest.param(
            streams(event("ADDED", pod("b", 11)) + event("ERROR", {"code": 500, "message": "etcd is away"})),
            "unavailable",
            id="an error event that is not an expiry",
        ),
    ],
)
async def test_a_watch_that_breaks_resumes_from_the_last_version_it_saw(server, kube, fault, cause):
    server.script = [listing(10, pod("a", 3)), fault, streams(event("ADDED", pod("c", 12)), then="hang")]
    watcher = Watcher()
    async with reflecting(kube, watcher):
        await watcher.until(lambda: ("changed", "team/c", "12") in watcher.told())
    assert watches(server) == ["10", "11"]
    assert len(lists(server)) == 1
    assert watcher.causes == {cause: 1}


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        pytest.param(streams(event("ERROR", EXPIRED)), "expired", id="an expiry in the stream"),
        pytest.param(status_reply(410, "Gone", "too old"), "expired", id="an expiry as HTTP status"),
        pytest.param(FUTURE, "rewound", id="a server that was restored to an earlier state"),
        pytest.param(status_reply(400, "BadRequest", "invalid resource version"), "invalid", id="a refused version"),
    ],
)
async def test_an_expired_watch_lists_again_and_tells_only_the_differences(server, kube, fault, cause):
    server.script = [
        listing(10, pod("same", 3), pod("gone", 4), pod("changed", 5), pod("again", 6, uid="old")),
        fault,
        listing(20, pod("same", 3), pod("changed", 15), pod("again", 16, uid="new"), pod("added", 17)),
        streams(then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher) as (reflector, _):
        await watcher.until(lambda: ("fresh", "20") in watcher.told())
        assert reflector.freshness.resource_version == "20"
    assert watcher.told()[2:] == [
        ("deleted", "team/gone", "uid-gone"),
        ("deleted", "team/again", "old"),
        ("changed", "team/changed", "15"),
        ("changed", "team/again", "16"),
        ("changed", "team/added", "17"),
        ("fresh", "20"),
    ]
    assert watcher.causes == {cause: 1}


async def test_a_name_that_comes_back_with_a_new_uid_is_a_delete_and_an_add(server, kube):
    server.script = [
        listing(10, pod("a", 3, uid="old")),
        streams(event("ADDED", pod("a", 12, uid="new")), event("DELETED", pod("a", 11, uid="old")), then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher):
        await watcher.until(lambda: ("fresh", "12") in watcher.told())
    assert watcher.changed() == [("deleted", "team/a", "old"), ("changed", "team/a", "12")]


async def test_events_that_were_seen_already_are_not_told_again(server, kube):
    server.script = [
        listing(10, pod("a", 9)),
        streams(
            event("MODIFIED", pod("a", 9)),
            event("MODIFIED", pod("a", 7)),
            event("MODIFIED", pod("a", 11)),
            event("MODIFIED", pod("a", 11)),
            event("DELETED", pod("unknown", 12)),
            event("MODIFIED", pod("a", 13)),
            then="hang",
        ),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher):
        await watcher.until(lambda: ("changed", "team/a", "13") in watcher.told())
    assert watcher.changed() == [("changed", "team/a", "11"), ("changed", "team/a", "13")]


async def test_bookmarks_move_the_version_to_resume_from(server, kube):
    server.script = [
        listing(10, pod("a", 3)),
        streams(
            event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "50"}, "spec": {"containers": None}})
        ),
        streams(then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher) as (reflector, _):
        await watcher.until(lambda: ("fresh", "50") in watcher.told() and len(server.seen) == 3)
        assert reflector.freshness.resource_version == "50"
    assert watches(server) == ["10", "50"]


async def test_clean_ends_right_after_opening_do_not_lead_to_a_hot_loop(server, kube):
    server.script = [listing(10), *[streams() for _ in range(12)], streams(then="hang")]
    watcher = Watcher()
    async with reflecting(kube, watcher) as (_, timing):
        await watcher.until(lambda: watcher.causes["end"] == 12)
        pauses = timing.pauses[:12]
    assert pauses == sorted(pauses)
    assert sum(pauses) > 90
    assert max(pauses) <= 30


async def test_ends_of_watches_that_delivered_pause_for_a_second_at_most(server, kube):
    server.script = [
        listing(10),
        *[streams(event("ADDED", pod(f"p{number}", 11 + number))) for number in range(12)],
        streams(then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher) as (_, timing):
        await watcher.until(lambda: watcher.causes["end"] == 12)
        pauses = timing.pauses[:12]
    assert min(pauses) > 0
    assert max(pauses) <= 1.0


async def test_a_watch_that_lasted_clears_the_back_off(server, kube):
    watcher = Watcher()
    timing = InstantTiming()

    async def deliver(change):
        await watcher.deliver(change)
        if isinstance(change, Changed):
            timing.now += 60

    server.script = [
        listing(10),
        *[streams() for _ in range(8)],
        streams(event("ADDED", pod("a", 11))),
        streams(then="hang"),
    ]
    reflector = Reflector(kube, PODS, deliver, timing=timing, observer=watcher)
    task = asyncio.create_task(reflector.run())
    await watcher.until(lambda: watcher.causes["end"] == 9)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert timing.pauses[7] > 5
    assert timing.pauses[8] < 0.2


async def test_a_throttled_list_waits_at_least_as_long_as_the_server_asks(server, kube):
    server.script = [
        status_reply(429, "TooManyRequests", "slow down", headers={"Retry-After": "17"}),
        listing(10),
        streams(then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher) as (_, timing):
        await watcher.until(lambda: ("fresh", "10") in watcher.told())
        assert 17 <= timing.pauses[0] <= 17 * 1.2
    assert watcher.causes == {"throttled": 1}


async def test_errors_with_text_bodies_and_dead_connections_are_retried_with_growing_pauses(server, kube):
    server.script = [
        says("panic", status=500),
        says("<html>bad gateway</html>", status=502),
        resets(),
        resets(),  # GET is repeated once by the HTTP client itself
        says("<html>a proxy's login page</html>", status=200),
        listing(10, pod("a", 1)),
        streams(then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher) as (_, timing):
        await watcher.until(lambda: ("fresh", "10") in watcher.told())
        pauses = timing.pauses
    assert pauses == sorted(pauses)
    assert set(watcher.causes) == {"unavailable", "reset", "unreadable"}
    assert watcher.told()[0] == ("listed", "team/a")


async def test_a_kind_that_is_not_installed_is_told_once_and_retried_slowly(server, kube):
    missing = says("404 page not found", status=404)
    server.script = [missing, missing, missing, listing(10, pod("q", 1)), streams(then="hang")]
    watcher = Watcher()
    async with reflecting(kube, watcher, kind="podgroups.scheduling.volcano.sh") as (_, timing):
        await watcher.until(lambda: ("fresh", "10") in watcher.told())
        assert min(timing.pauses[:3]) > 20
    assert watcher.told() == [("unserved", "missing"), ("listed", "team/q"), ("fresh", "10")]
    assert watcher.causes == {"missing": 3}


async def test_a_missing_right_is_told_with_the_servers_words(server, kube):
    server.script = [status_reply(403, "Forbidden", 'User "x" cannot list pods'), listing(10), streams(then="hang")]
    watcher = Watcher()
    async with reflecting(kube, watcher) as (_, timing):
        await watcher.until(lambda: ("fresh", "10") in watcher.told())
        assert timing.pauses[0] > 20
    told = watcher.changes[0]
    assert isinstance(told, Unserved)
    assert told.cause == "forbidden"
    assert 'User "x" cannot list pods' in told.message


async def test_a_custom_kind_that_stays_missing_has_no_objects_but_one_answer_is_not_believed(server, kube):
    missing = says("404 page not found", status=404)
    server.script = [
        listing(10, pod("g", 1)),
        streams(event("ERROR", EXPIRED)),
        missing,
        listing(11, pod("g", 1)),
        streams(event("ERROR", EXPIRED)),
        missing,
        missing,
        listing(12, pod("g", 11, uid="second")),
        streams(then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher, kind="podgroups.scheduling.volcano.sh"):
        await watcher.until(lambda: ("fresh", "12") in watcher.told())
    assert watcher.told() == [
        ("listed", "team/g"),
        ("fresh", "10"),
        ("unserved", "missing"),
        ("fresh", "11"),
        ("unserved", "missing"),
        ("deleted", "team/g", "uid-g"),
        ("changed", "team/g", "11"),
        ("fresh", "12"),
    ]


async def test_a_built_in_kind_that_answers_404_keeps_its_objects(server, kube):
    missing = says("404 page not found", status=404)
    server.script = [
        listing(10, pod("a", 1)),
        streams(event("ERROR", EXPIRED)),
        missing,
        missing,
        missing,
        listing(11, pod("a", 1)),
        streams(then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher):
        await watcher.until(lambda: ("fresh", "11") in watcher.told())
    assert not any(isinstance(change, Deleted) for change in watcher.changes)


async def test_a_silent_watch_is_given_up_and_resumed(server, kube):
    server.script = [listing(10), streams(then="hang"), streams(event("ADDED", pod("a", 11)), then="hang")]
    watcher = Watcher()
    async with reflecting(kube, watcher, limits=ReflectorLimits(read_timeout=0.2)):
        await watcher.until(lambda: ("changed", "team/a", "11") in watcher.told())
    assert watcher.causes["silence"] >= 1


async def test_lines_longer_than_any_buffer_are_read(server, kube):
    large = pod("large", 11, metadata={"annotations": {"blob": "x" * (5 * 2**20)}})
    server.script = [
        listing(10),
        streams(event("ADDED", large) + event("ADDED", pod("b", 12)), then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher):
        await watcher.until(lambda: ("changed", "team/b", "12") in watcher.told())
    assert len(watcher.changes[2].object.metadata.annotations["blob"]) == 5 * 2**20


async def test_an_object_that_does_not_fit_is_skipped_and_what_was_known_of_it_stays(server, kube):
    bad = pod("a", 12, spec={"priority": "high"})
    server.script = [
        listing(10, pod("a", 3)),
        streams(event("MODIFIED", bad), event("ERROR", EXPIRED)),
        listing(13, bad),
        streams(event("MODIFIED", pod("a", 14)), then="hang"),
    ]
    watcher = Watcher()
    async with reflecting(kube, watcher):
        await watcher.until(lambda: ("changed", "team/a", "14") in watcher.told())
    assert watcher.skipped == ["team/a", "team/a"]
    assert not any(isinstance(change, Deleted) for change in watcher.changes)


async def test_an_expired_token_is_read_anew_from_the_kubeconfig(server, kube, tmp_path):
    server.write_kubeconfig(tmp_path / "kubeconfig", token="second")
    server.script = [status_reply(401, "Unauthorized", "expired"), listing(10), streams(then="hang")]
    watcher = Watcher()
    async with reflecting(kube, watcher):
        await watcher.until(lambda: ("fresh", "10") in watcher.told())
    assert [seen.headers["Authorization"] for seen in server.seen[:2]] == ["Bearer first", "Bearer second"]
    assert not watcher.causes


async def test_an_error_of_the_consumer_ends_the_reflector(server, kube):
    async def deliver(change):
        raise RuntimeError("consumer is broken")

    server.script = [listing(10)]
    reflector = Reflector(kube, PODS, deliver, timing=InstantTiming())
    with pytest.raises(RuntimeError, match="consumer is broken"):
        await reflector.run()


async def test_a_stopped_reflector_leaves_no_open_watch():
    api = MemoryApi()
    watcher = Watcher()
    async with reflecting(api, watcher):
        await watcher.until(lambda: watcher.changes)
        for _ in range(5):
            await asyncio.sleep(0)
        assert api.open_streams == 1
    assert api.open_streams == 0


async def test_refused_connections_are_retried(kube, server):
    class Refusing:
        def __init__(self):
            self.left = 3

        async def request(self, *args, **options):
            if self.left:
                self.left -= 1
                raise Unavailable("no connection", cause="refused", unknown_outcome=False)
            return await kube.request(*args, **options)

        def stream(self, *args, **options):
            return kube.stream(*args, **options)

    server.script = [listing(10), streams(then="hang")]
    watcher = Watcher()
    async with reflecting(Refusing(), watcher):
        await watcher.until(lambda: ("fresh", "10") in watcher.told())
    assert watcher.causes == {"refused": 3}


async def test_versions_are_not_repeated_in_requests_of_lists(server, kube):
    server.script = [replies({"metadata": {"resourceVersion": "10"}, "items": None}), streams(then="hang")]
    watcher = Watcher()
    async with reflecting(kube, watcher) as (reflector, _):
        await watcher.until(lambda: ("fresh", "10") in watcher.told())
        assert reflector.synced
        assert reflector.known == {}
