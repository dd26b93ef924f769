import asyncio
import contextlib
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from muster.bus.chunks import CHUNK, COMMIT
from muster.bus.client import Bus, connect
from muster.bus.dlq import DeadLetters
from muster.bus.errors import BusError
from muster.bus.messages import Cancel, ShortJob, SubmissionOutcome, Submit
from muster.bus.streams import StreamName, ensure_streams, stream_info
from muster.bus.subjects import consumer_name, jobs_cancel, jobs_submit
from muster.bus.submissions import Submissions, parse_cancel, parse_submit
from muster.bus.work import Job, Unhandled, WorkQueue, waiting_tenants
from tests.nats_fixtures import eventually


def submit(submission_id: str) -> Submit:
    return Submit(id=submission_id, short=ShortJob(image="x"))


@contextlib.asynccontextmanager
async def serving(
    bus: Bus, handler: Callable[[Job], Awaitable[None]], *tenants: str, **options: float
) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue(bus, handler, pause_shortest=0.01, **options)
    task = asyncio.create_task(queue.run(tenants, discover_seconds=0.05))
    try:
        yield queue
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def left(bus: Bus) -> int:
    info = await stream_info(bus, StreamName.JOBS)
    assert info is not None
    return info.state.messages


async def test_a_tenants_messages_are_handled_in_order_and_leave_the_queue(streams_bus) -> None:
    handled: list[tuple[str, str]] = []

    async def handle(job: Job) -> None:
        found = parse_submit(job.body, job.headers) if job.verb == "submit" else parse_cancel(job.body, job.headers)
        handled.append((job.verb, found.id))

    expected = []
    for number in range(40):
        await streams_bus.publish(jobs_submit("team a"), submit(f"j{number}"))
        await streams_bus.publish(jobs_cancel("team a"), Cancel(id=f"j{number}"))
        expected += [("submit", f"j{number}"), ("cancel", f"j{number}")]
    async with serving(streams_bus, handle, "team a"):
        await eventually(lambda: handled == expected)

        async def nothing_is_left() -> bool:
            return await left(streams_bus) == 0

        await eventually(nothing_is_left)


async def test_each_tenant_has_one_consumer_filtered_to_its_subjects(streams_bus) -> None:
    async def handle(_job: Job) -> None: ...

    async with serving(streams_bus, handle, "a", "b.1"):

        async def consumers() -> dict[str, list[str]]:
            found = await streams_bus.jetstream.consumers_info(StreamName.JOBS)
            return {consumer.name: sorted(consumer.config.filter_subjects) for consumer in found}

        wanted = {
            consumer_name("jobs", tenant): sorted([jobs_submit(tenant), jobs_cancel(tenant)]) for tenant in ("a", "b.1")
        }

        async def made() -> bool:
            return await consumers() == wanted

        await eventually(made)


async def test_a_tenant_nobody_declared_is_found_and_served(streams_bus) -> None:
    handled = []

    async def handle(job: Job) -> None:
        handled.append(job.tenant)

    async with serving(streams_bus, handle):
        await streams_bus.publish(jobs_submit("stranger"), submit("a"))
        assert await waiting_tenants(streams_bus) in {("stranger",), ()}
        await eventually(lambda: handled == ["stranger"])


async def test_a_message_that_cannot_be_handled_now_holds_up_its_own_tenant_only(streams_bus) -> None:
    stuck = asyncio.Event()
    handled = []

    async def handle(job: Job) -> None:
        if job.tenant == "slow":
            await stuck.wait()
        handled.append(parse_submit(job.body).id)

    for number in range(3):
        await streams_bus.publish(jobs_submit("slow"), submit(f"s{number}"))
        await streams_bus.publish(jobs_submit("quick"), submit(f"q{number}"))
    async with serving(streams_bus, handle, "slow", "quick"):
        await eventually(lambda: handled == ["q0", "q1", "q2"])
        stuck.set()
        await eventually(lambda: handled[3:] == ["s0", "s1", "s2"])


async def test_a_failure_is_tried_again_before_the_next_message(streams_bus) -> None:
    tries: list[tuple[str, int]] = []

    async def handle(job: Job) -> None:
        found = parse_submit(job.body).id
        tries.append((found, job.deliveries))
        if found == "a" and len(tries) < 3:
            raise ConnectionError("the API server is away")

    await streams_bus.publish(jobs_submit("t"), submit("a"))
    await streams_bus.publish(jobs_submit("t"), submit("b"))
    async with serving(streams_bus, handle, "t"):
        await eventually(lambda: tries == [("a", 1), ("a", 2), ("a", 3), ("b", 1)])


async def test_poison_becomes_a_dead_letter_after_so_many_deliveries_and_the_next_is_handled(
    streams_bus, heard
) -> None:
    tries = []

    async def handle(job: Job) -> None:
        tries.append(parse_submit(job.body).id)
        if tries[-1] == "bad":
            raise ZeroDivisionError("oh")

    await streams_bus.publish(jobs_submit("t"), submit("bad"))
    await streams_bus.publish(jobs_submit("t"), submit("good"))
    async with serving(streams_bus, handle, "t", deliveries=3):
        await eventually(lambda: tries == ["bad", "bad", "bad", "good"])
        letters = await DeadLetters(streams_bus).list()
        assert [(found.letter.reason, found.letter.error) for found in letters] == [("poison", "ZeroDivisionError: oh")]
        assert letters[0].letter.origin_subject == jobs_submit("t")
    assert "a message could not be handled" in heard.names()


async def test_a_message_refused_for_good_is_filed_at_once_with_its_reason(streams_bus) -> None:
    async def handle(_job: Job) -> None:
        raise Unhandled("mismatch", "subject and content disagree")

    await streams_bus.publish(jobs_submit("t"), submit("a"))
    async with serving(streams_bus, handle, "t"):

        async def filed() -> bool:
            return await DeadLetters(streams_bus).count() == 1

        await eventually(filed)
    [found] = await DeadLetters(streams_bus).list()
    assert (found.letter.reason, found.letter.error) == ("mismatch", "subject and content disagree")
    assert await left(streams_bus) == 0


async def test_what_was_not_acknowledged_is_delivered_again_and_counted(streams_bus, nats_server) -> None:
    """A process that dies in mid-message leaves it to the next one; one that always dies makes it a dead letter."""
    deliveries: list[int] = []

    async def hang(job: Job) -> None:
        deliveries.append(job.deliveries)
        await asyncio.Event().wait()

    await streams_bus.publish(jobs_submit("t"), submit("a"))
    for life in range(2):
        async with (
            await connect(nats_server.url, name="doomed") as doomed,
            serving(doomed, hang, "t", ack_wait=0.5, deliveries=2),
        ):
            await eventually(lambda life=life: deliveries == [1, 2][: life + 1])
    async with serving(streams_bus, hang, "t", ack_wait=0.5, deliveries=2):

        async def filed() -> bool:
            return await DeadLetters(streams_bus).count() == 1

        await eventually(filed)
    assert deliveries == [1, 2]
    [found] = await DeadLetters(streams_bus).list()
    assert (found.letter.reason, found.letter.deliveries) == ("poison", 3)


async def test_slow_work_is_not_delivered_twice(streams_bus) -> None:
    handled = []

    async def handle(job: Job) -> None:
        handled.append(parse_submit(job.body).id)
        await asyncio.sleep(0.8)

    await streams_bus.publish(jobs_submit("t"), submit("a"))
    await streams_bus.publish(jobs_submit("t"), submit("b"))
    async with serving(streams_bus, handle, "t", ack_wait=0.3):

        async def nothing_is_left() -> bool:
            return await left(streams_bus) == 0

        await eventually(nothing_is_left)
    assert handled == ["a", "b"]


async def test_a_deleted_consumer_is_made_again(streams_bus, monkeypatch) -> None:
    monkeypatch.setattr("muster.bus.work.FETCH_SECONDS", 0.3)
    monkeypatch.setattr("muster.bus.work.IDLE_FETCHES", 2)
    handled = []

    async def handle(job: Job) -> None:
        handled.append(parse_submit(job.body).id)

    async with serving(streams_bus, handle, "t"):
        await streams_bus.publish(jobs_submit("t"), submit("a"))
        await eventually(lambda: handled == ["a"])
        await streams_bus.jetstream.delete_consumer(StreamName.JOBS, consumer_name("jobs", "t"))
        await streams_bus.publish(jobs_submit("t"), submit("b"))
        await eventually(lambda: handled == ["a", "b"])


async def test_serving_goes_on_after_a_kill_of_the_server(own_server) -> None:
    handled = []

    async def handle(job: Job) -> None:
        handled.append(parse_submit(job.body).id)

    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        async with serving(bus, handle, "t"):
            await bus.publish(jobs_submit("t"), submit("a"))
            await eventually(lambda: handled == ["a"])
            await own_server.kill()
            await own_server.start()
            await eventually(lambda: bus.connected)
            await bus.publish(jobs_submit("t"), submit("b"))
            await eventually(lambda: handled[-1] == "b")


async def test_the_same_submission_twice_over_a_restart_has_one_outcome(own_server) -> None:
    """Rule 3: the ledger is the guarantee, not the server's de-duplication window."""
    effects: list[str] = []
    seen: list[str] = []
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        ledger = Submissions(bus)

        async def handle(job: Job) -> None:
            found = parse_submit(job.body)
            seen.append(found.id)
            if await ledger.find(job.tenant, found.id) is None:
                effects.append(found.id)
                await ledger.record(
                    SubmissionOutcome(tenant=job.tenant, id=found.id, state="accepted", job="j", at=1.0)
                )

        async with serving(bus, handle, "t"):
            await bus.publish(jobs_submit("t"), submit("a"), message_id="a")
            await eventually(lambda: effects == ["a"])
            await own_server.kill()
            await own_server.start()
            await eventually(lambda: bus.connected)
            await bus.publish(jobs_submit("t"), submit("a"))
            await bus.publish(jobs_submit("t"), submit("b"))
            await eventually(lambda: effects[-1] == "b")
    assert effects == ["a", "b"]
    assert seen.count("a") >= 2


async def test_chunks_are_handled_as_one_message_once_committed(streams_bus) -> None:
    handled: list[bytes] = []

    async def handle(job: Job) -> None:
        handled.append(job.body)

    subject = jobs_submit("t")
    async with serving(streams_bus, handle, "t"):
        await streams_bus.publish(subject, b"one ", headers={CHUNK: "m 0 2"})
        await streams_bus.publish(subject, b"two", headers={CHUNK: "m 1 2"})
        await streams_bus.publish(jobs_submit("u"), b"other")
        await eventually(lambda: handled == [b"other"])
        digest = hashlib.sha256(b"one two").hexdigest()
        await streams_bus.publish(subject, b"", headers={COMMIT: f"m 2 {digest}"})
        await eventually(lambda: handled == [b"other", b"one two"])

        async def nothing_is_left() -> bool:
            return await left(streams_bus) == 0

        await eventually(nothing_is_left)


async def test_a_manifest_larger_than_a_message_is_submitted_whole(streams_bus) -> None:
    handled = []

    async def handle(job: Job) -> None:
        handled.append(parse_submit(job.body, job.headers).submit)

    large = [
        Submit(id=f"large-{number}", manifest={"data": random.Random(number).randbytes(9_000_000).hex()})
        for number in range(2)
    ]
    async with serving(streams_bus, handle, "t"):
        await asyncio.gather(*(streams_bus.publish_whole(jobs_submit("t"), found) for found in large))
        await eventually(lambda: len(handled) == 2)
    assert sorted(found.id for found in handled) == ["large-0", "large-1"]
    # Not compared by pytest: the difference of two such texts would take minutes.
    whole = sorted(handled, key=lambda found: found.id) == large
    assert whole


async def test_chunks_without_a_commit_are_never_handled_and_filed(streams_bus, monkeypatch) -> None:
    monkeypatch.setattr("muster.bus.work.FETCH_SECONDS", 0.2)
    handled: list[bytes] = []

    async def handle(job: Job) -> None:
        handled.append(job.body)

    async with serving(streams_bus, handle, "t", series_seconds=0.3):
        await streams_bus.publish(jobs_submit("t"), b"one ", headers={CHUNK: "m 0 2"})

        async def filed() -> bool:
            return await DeadLetters(streams_bus).count() == 1

        await eventually(filed)
    [found] = await DeadLetters(streams_bus).list()
    assert (found.letter.reason, found.letter.payload, handled) == ("incomplete", b"one ", [])


async def test_a_cancellation_that_comes_together_with_an_answer_is_not_lost(streams_bus, monkeypatch) -> None:
    """Python 3.11's wait_for returns the answer and forgets the cancellation."""
    asked = asyncio.Event()

    async def answered(_bus: Bus) -> tuple[str, ...]:
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return ()

    monkeypatch.setattr("muster.bus.work.waiting_tenants", answered)
    running = asyncio.create_task(WorkQueue(streams_bus, lambda _job: asyncio.sleep(0)).run([]))
    await asked.wait()
    running.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await running


# Dead letters -------------------------------------------------------------------------------------------------------


async def put(bus: Bus, payload: bytes, *, tenant: str = "t") -> int:
    return await DeadLetters(bus).put(
        origin_subject=jobs_submit(tenant),
        payload=payload,
        headers={"ce-id": "1", "Nats-Msg-Id": "m", "Nats-Expected-Stream": "X"},
        reason="poison",
        error="e",
        deliveries=5,
    )


async def test_dead_letters_are_listed_shown_retried_and_dropped(streams_bus) -> None:
    letters = DeadLetters(streams_bus)
    assert await letters.list() == ()
    first, second, third = [await put(streams_bus, payload) for payload in (b"\x00binary", b"b", b"c")]
    assert [found.sequence for found in await letters.list()] == [first, second, third]
    assert [found.sequence for found in await letters.list(limit=2)] == [first, second]
    shown = (await letters.show(first)).letter
    assert (shown.payload, shown.headers, shown.service) == (b"\x00binary", {"ce-id": "1"}, "test")
    assert await letters.retry(first) == 1
    again = await streams_bus.jetstream.get_last_msg(StreamName.JOBS, jobs_submit("t"))
    assert (again.data, again.headers) == (b"\x00binary", {"ce-id": "1"})
    await letters.drop(second)
    assert [found.sequence for found in await letters.list()] == [third]
    for gone in (first, second):
        with pytest.raises(BusError, match=f"there is no dead letter {gone}"):
            await letters.show(gone)
        with pytest.raises(BusError, match=f"there is no dead letter {gone}"):
            await letters.drop(gone)


async def test_a_letter_that_cannot_be_published_again_stays(streams_bus) -> None:
    letters = DeadLetters(streams_bus)
    sequence = await put(streams_bus, b"x")
    await streams_bus.jetstream.delete_stream(StreamName.JOBS)
    with pytest.raises(BusError):
        await letters.retry(sequence)
    assert await letters.count() == 1


async def test_letters_are_listed_by_subject(streams_bus) -> None:
    await put(streams_bus, b"a", tenant="a")
    await put(streams_bus, b"b", tenant="b")
    found = await DeadLetters(streams_bus).list(subject="muster.dlq.jobs.*.b")
    assert [letter.letter.payload for letter in found] == [b"b"]


async def test_what_somebody_else_put_there_is_shown_as_it_is(streams_bus) -> None:
    sequence = await streams_bus.publish("muster.dlq.x", b"\xff")
    [found] = await DeadLetters(streams_bus).list()
    assert (found.sequence, found.letter.reason, found.letter.payload) == (sequence, "undecodable", b"\xff")


async def test_messages_that_come_while_others_are_handled_are_neither_lost_nor_held_back(
    streams_bus, nats_server, monkeypatch
) -> None:
    # Requests end and begin anew among the messages.
    monkeypatch.setattr("muster.bus.work.FETCH_SECONDS", 0.1)
    handled: dict[str, tuple[float, int]] = {}
    clock = asyncio.get_running_loop().time

    async def handle(job: Job) -> None:
        handled[parse_submit(job.body, job.headers).id] = (clock(), job.deliveries)

    sent: dict[str, float] = {}
    async with await connect(nats_server.url, name="server") as other, serving(other, handle, "t"):
        for burst in range(30):
            for number in range(4):
                name = f"j{burst}-{number}"
                sent[name] = clock()
                await streams_bus.publish(jobs_submit("t"), submit(name))
                await asyncio.sleep(random.uniform(0, 0.002))
            await eventually(lambda: handled.keys() == sent.keys())
            await asyncio.sleep(random.uniform(0, 0.1))
    assert {deliveries for _, deliveries in handled.values()} == {1}
    assert max(handled[name][0] - sent[name] for name in sent) < 0.9
