import asyncio
import json

import pytest

from muster.kube.decoding import PODS, ObjectMeta
from muster.kube.errors import AlreadyExists, NotFound, Unavailable
from muster.kube.recording import EventRecorder, RecorderLimits, reference_to
from muster.kube.writer import Writer
from tests.kube.timings import InstantTiming

POD = reference_to(PODS, ObjectMeta(name="a", namespace="team", uid="u", resource_version="7"))


class Api:
    """Notes requests and fails those it is told to."""

    def __init__(self):
        self.sent = []
        self.failures = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def request(self, method, path, *, body=None, **_):
        await self.gate.wait()
        self.sent.append((method, path, body))
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        return json.dumps({}).encode()


@pytest.fixture
def api():
    return Api()


@pytest.fixture
async def recorder(api):
    made = EventRecorder(api, component="muster", timing=InstantTiming(), limits=RecorderLimits(closing_timeout=0.2))
    yield made
    await made.close()


async def test_an_event_names_its_object_its_component_and_its_times(api, recorder):
    recorder.record(POD, reason="Scheduled", message="bound to n1")
    await recorder.drained()
    method, path, body = api.sent[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/team/events")
    assert body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "team",
        "name": "a",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert (body["type"], body["reason"], body["message"], body["count"]) == ("Normal", "Scheduled", "bound to n1", 1)
    assert body["source"] == {"component": "muster"}
    assert body["firstTimestamp"].endswith("Z")
    assert body["metadata"]["name"].startswith("a.")


async def test_the_same_event_again_raises_the_count(api, recorder):
    for _ in range(3):
        recorder.record(POD, reason="Unschedulable", message="no room")
        await recorder.drained()
    assert [(method, body["count"]) for method, _, body in api.sent] == [("POST", 1), ("PATCH", 2), ("PATCH", 3)]
    assert api.sent[1][1] == f"/api/v1/namespaces/team/events/{api.sent[0][2]['metadata']['name']}"


async def test_events_that_are_equal_while_they_wait_are_written_once(api, recorder):
    for _ in range(100):
        recorder.record(POD, reason="Unschedulable", message="no room")
    await recorder.drained()
    assert [(method, body["count"]) for method, _, body in api.sent] == [("POST", 100)]


async def test_an_event_that_has_expired_is_created_anew(api, recorder):
    recorder.record(POD, reason="r", message="m")
    await recorder.drained()
    api.failures = [NotFound("expired")]
    recorder.record(POD, reason="r", message="m")
    await recorder.drained()
    assert [method for method, _, _ in api.sent] == ["POST", "PATCH", "POST"]
    assert api.sent[2][2]["count"] == 1


async def test_a_create_whose_answer_was_lost_counts_as_written(api, recorder):
    api.failures = [AlreadyExists("exists", status=409)]
    recorder.record(POD, reason="r", message="m")
    recorder.record(POD, reason="r", message="m2")
    await recorder.drained()
    assert recorder.failed == 0
    assert len({body["metadata"]["name"] for _, _, body in api.sent}) == 2


async def test_failures_are_counted_and_hold_nothing_up(api, recorder):
    api.failures = [Unavailable("down", cause="refused", unknown_outcome=False)]
    recorder.record(POD, reason="r", message="lost")
    recorder.record(POD, reason="r", message="kept")
    await recorder.drained()
    assert recorder.failed == 1
    assert api.sent[-1][2]["message"] == "kept"


async def test_writes_keep_to_their_rate(api):
    timing = InstantTiming()
    recorder = EventRecorder(api, component="m", timing=timing, limits=RecorderLimits(rate=2.0, burst=5))
    started = timing.now
    for number in range(25):
        recorder.record(POD, reason="r", message=str(number))
    await recorder.drained()
    assert len(api.sent) == 25
    assert timing.now - started == pytest.approx((25 - 5) / 2.0)
    await recorder.close()


async def test_recording_never_waits_and_drops_when_too_much_is_waiting(api):
    api.gate.clear()
    limits = RecorderLimits(waiting=10, closing_timeout=0.05)
    recorder = EventRecorder(api, component="m", timing=InstantTiming(), limits=limits)
    for number in range(25):
        recorder.record(POD, reason="r", message=str(number))
    assert recorder.dropped == 15
    await recorder.close()
    assert recorder.dropped == 25
    assert api.sent == []


async def test_cluster_scoped_objects_are_reported_in_the_default_namespace_and_long_messages_cut(api, recorder):
    node = reference_to(PODS, ObjectMeta(name="n" * 253, uid="u"))
    recorder.record(node, reason="r", message="x" * 5000)
    await recorder.drained()
    _, path, body = api.sent[0]
    assert path == "/api/v1/namespaces/default/events"
    assert len(body["message"]) == 1024
    assert len(body["metadata"]["name"]) <= 253


async def test_a_writer_records_and_writes_what_waits_when_it_closes(api):
    async with Writer(api, component="muster", timing=InstantTiming()) as writer:
        writer.record_event(POD, "Scheduled", "bound", type="Warning")
    assert api.sent[0][2]["type"] == "Warning"
