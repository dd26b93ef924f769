import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.bus.client import connect
from muster.bus.errors import UndecodableError, WrongLastSequenceError
from muster.bus.messages import StatusEvent, SubmissionOutcome
from muster.bus.statuses import Statuses
from muster.bus.streams import StreamName, ensure_streams
from muster.bus.subjects import status_filter, submission_key
from muster.bus.submissions import Submissions, object_name, parse_cancel, parse_submit
from muster.bus.submit_errors import SubmissionError, field_errors, make_submit
from tests.nats_fixtures import eventually


def outcome(state: str = "accepted", *, submission_id: str = "a", job: str = "j") -> SubmissionOutcome:
    return SubmissionOutcome(tenant="t", id=submission_id, state=state, namespace="ns", job=job, at=1.0)


async def test_the_first_outcome_counts(streams_bus) -> None:
    submissions = Submissions(streams_bus)
    assert await submissions.find("t", "a") is None
    first = await submissions.record(outcome(job="first"))
    assert await submissions.record(outcome(job="second")) == first
    assert await submissions.find("t", "a") == first


async def test_of_two_that_record_at_once_both_learn_the_same(streams_bus, nats_server) -> None:
    async with await connect(nats_server.url, name="other") as other:
        recorded = await asyncio.gather(
            *(Submissions(bus).record(outcome(job=bus.name)) for bus in (streams_bus, other, streams_bus, other))
        )
        assert len({found.outcome.job for found in recorded}) == 1


async def test_an_outcome_survives_a_kill_of_the_server(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        first = await Submissions(bus).record(outcome())
        await own_server.kill()
        await own_server.start()
        await eventually(lambda: bus.connected)
        assert await Submissions(bus).record(outcome(job="second")) == first


async def test_a_cancellation_before_the_submission_leaves_a_tombstone(streams_bus) -> None:
    submissions = Submissions(streams_bus)
    await submissions.record(outcome("cancelled", job=""))
    assert (await submissions.record(outcome("accepted"))).outcome.state == "cancelled"


async def test_an_outcome_is_replaced_only_at_the_revision_that_was_read(streams_bus) -> None:
    submissions = Submissions(streams_bus)
    first = await submissions.record(outcome())
    second = await submissions.replace(outcome("cancelled"), revision=first.revision)
    with pytest.raises(WrongLastSequenceError):
        await submissions.replace(outcome("rejected"), revision=first.revision)
    assert await submissions.find("t", "a") == second


async def test_the_bucket_is_an_ordinary_one_and_a_deleted_key_can_be_written_again(streams_bus) -> None:
    submissions = Submissions(streams_bus)
    await submissions.record(outcome())
    bucket = await streams_bus.jetstream.key_value("SUBMISSIONS")
    entry = await bucket.get(submission_key("t", "a"))
    assert msgspec.json.decode(entry.value, type=SubmissionOutcome) == outcome()
    await bucket.delete(submission_key("t", "a"))
    assert await submissions.find("t", "a") is None
    assert (await submissions.record(outcome(job="again"))).outcome.job == "again"


async def test_any_id_and_tenant_has_a_key_of_its_own(streams_bus) -> None:
    submissions = Submissions(streams_bus)
    for tenant, submission_id in (("t.a", "b"), ("t", "a.b"), ("t a", "b:1")):
        stored = await submissions.record(SubmissionOutcome(tenant=tenant, id=submission_id, state="accepted", at=1.0))
        assert stored.outcome.tenant == tenant


@given(st.text(), st.text(), st.text(), st.text())
def test_object_names_are_legal_and_one_for_each_submission(a: str, b: str, c: str, d: str) -> None:
    one, other = object_name(a.replace("\0", ""), b), object_name(c.replace("\0", ""), d)
    assert len(one) <= 63
    assert one.islower()
    assert (one == other) == ((a.replace("\0", ""), b) == (c.replace("\0", ""), d))


@pytest.mark.parametrize(
    ("body", "found_id", "field", "value", "message"),
    [
        pytest.param(b'{"id":"a","short":{"image":"x","gpu":1}}', "a", "short.gpu", "1", "there is no field gpu here; did you mean gpus?", id="a misspelt field is named"),
        pytest.param(b'{"id":"a","short":{"image":"x","gpus":"8"}}', "a", "short.gpus", '"8"', '"8" is a text; give a whole number from 0 to 1024', id="a wrong type is told with its value"),
        pytest.param(b'{"id":"a","short":{"image":"x","gpus":-1}}', "a", "short.gpus", "-1", "-1 is below 0; give a whole number from 0 to 1024", id="a number out of range is told with its value"),
        pytest.param(b'{"id":"a"}', "a", "message", "", "give exactly one of `short` and `manifest`; neither is given", id="neither form"),
        pytest.param(b'{"id":"a","short":{"image":"x"},"manifest":{}}', "a", "message", "", "both are given", id="both forms"),
        pytest.param(b'{"id":"a","short":{"image":"x","env":{"TOKEN":5}}}', "a", "short.env.TOKEN", "", "give a text", id="values of environment variables are not shown"),
        pytest.param(b'{"id":"a","short":{"image":"x","envs":{"TOKEN":"secret"}}}', "a", "short.envs", "", "did you mean env?", id="values below a misspelt field are not shown"),
        pytest.param(b'{"id":"a","short":{"image":"x","memory":"64GB"}}', "a", "short.memory", '"64GB"', "64GB is no quantity; did you mean 64G or 64Gi?", id="a suffix that Kubernetes has not"),
        pytest.param(b'{"id":"a","short":{"image":"x","memory":"-1Gi"}}', "a", "short.memory", '"-1Gi"', "-1Gi is below 0", id="less than no memory"),
        pytest.param(b'{"id":"a","short":{"image":"x","gpu_core_percent":130}}', "a", "short.gpu_core_percent", "130", "130 is above 100; give a whole number from 1 to 100", id="more than a whole card"),
        pytest.param(b'{"id":"a","short":{"image":"x","replicas":0}}', "a", "short.replicas", "0", "0 is below 1", id="no pods"),
        pytest.param(b'{"id":"a","short":{"image":"","gpus":null}}', "a", "short.image", '""', "is empty", id="no image"),
        pytest.param(b'{"id":"a b","short":{"image":"x"}}', "a b", "id", '"a b"', "cannot be used: letters, digits", id="an id that is none"),
        pytest.param(b"{", "", "message", "", "Input data was truncated", id="no JSON"),
        pytest.param(b"[]", "", "message", "", "this is a list; give a mapping with id, namespace", id="no object"),
        pytest.param(b'{"short":{"image":"x"}}', "", "id", "", "is missing", id="no id"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_submission_is_told_by_field(
    body: bytes, found_id: str, field: str, value: str, message: str
) -> None:
    parsed = parse_submit(body)
    assert parsed.submit is None
    assert parsed.id == found_id
    [error] = parsed.errors
    assert (error.field, error.value) == (field, value)
    assert message in error.message


def test_everything_wrong_is_told_at_once_and_reads_as_sentences() -> None:
    with pytest.raises(SubmissionError) as refused:
        make_submit({"id": "a", "short": {"gpus": -1, "replica": 2, "memory": "64GB", "gpu_core_percent": 130}})
    assert str(refused.value).splitlines() == [
        "replica: 2: there is no field replica here; did you mean replicas?",
        "image: is missing",
        "gpus: -1 is below 0; give a whole number from 0 to 1024",
        "gpu_core_percent: 130 is above 100; give a whole number from 1 to 100",
        "memory: 64GB is no quantity; did you mean 64G or 64Gi?",
    ]
    assert field_errors(refused.value) == refused.value.errors


def test_a_submission_is_made_of_plain_values() -> None:
    made = make_submit({"id": "a", "short": {"image": "x", "command": ("a", "b"), "memory": "64Gi"}})
    assert (made.short.command, made.short.memory) == (("a", "b"), "64Gi")
    assert make_submit({"id": "a", "manifest": {"kind": "Job"}}).manifest == {"kind": "Job"}


def test_what_no_field_is_to_blame_for_is_told_as_it_is() -> None:
    with pytest.raises(SubmissionError, match="exactly one of `short` and `manifest`; neither"):
        make_submit({"id": "a"})


def test_a_submission_of_another_type_is_refused() -> None:
    parsed = parse_submit(b'{"id":"a","short":{"image":"x"}}', {"ce-type": "dev.muster.submit.v2"})
    assert parsed.id == "a"
    assert "major versions 0 and 1 are understood" in parsed.errors[0].message


def test_a_cancellation_is_closed_too() -> None:
    assert parse_cancel(b'{"id":"a"}').id == "a"
    with pytest.raises(UndecodableError, match="unknown field `force`"):
        parse_cancel(b'{"id":"a","force":true}')


# STATUS -------------------------------------------------------------------------------------------------------------


def event(state: str, **fields: object) -> StatusEvent:
    return StatusEvent(tenant="t", id="a.1", job="ns/j", state=state, number=1, at=1.0, **fields)


async def test_status_events_are_numbered_without_gaps_and_repetitions_are_left_out(streams_bus) -> None:
    statuses = Statuses(streams_bus)
    stored = [
        await statuses.append(event("Accepted")),
        await statuses.append(event("Queued", reason="NO_ROOM", position=2)),
        await statuses.append(event("Queued", reason="NO_ROOM", position=2)),
        await statuses.append(event("Queued", reason="NO_ROOM", position=1)),
        await statuses.append(event("Running")),
        await statuses.append(event("Succeeded")),
        await statuses.append(event("Queued", reason="NO_ROOM")),
    ]
    assert [found and found.number for found in stored] == [1, 2, None, 3, 4, 5, None]
    last = await statuses.last("t", "a.1")
    assert last is not None
    assert (last.number, last.state) == (5, "Succeeded")


async def test_two_writers_never_give_one_number_twice(streams_bus, nats_server) -> None:
    async with await connect(nats_server.url, name="other") as other:
        states = ["Accepted", "Queued", "Scheduled", "Running"]
        await asyncio.gather(
            *(Statuses(bus).append(event(state)) for state, bus in zip(states, [streams_bus, other] * 2, strict=True))
        )
        numbers = []
        subscription = await streams_bus.jetstream.subscribe(
            status_filter("t"), stream=StreamName.STATUS, ordered_consumer=True
        )
        for _ in states:
            message = await subscription.next_msg(timeout=5)
            numbers.append(msgspec.json.decode(message.data, type=StatusEvent).number)
        await subscription.unsubscribe()
        assert numbers == [1, 2, 3, 4]
