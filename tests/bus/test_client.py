import asyncio

import pytest

from muster.bus.client import Question, connect
from muster.bus.compatibility import check_server
from muster.bus.errors import (
    BusError,
    MessageTooLargeError,
    NoAnswerError,
    NotConnectedError,
    RequestRefusedError,
    UnknownOutcomeError,
    UnsuitableServerError,
    WrongLastSequenceError,
)
from muster.bus.messages import Progress
from muster.bus.publishing import Flight, read_answer
from muster.bus.queries import ExplainReply, ExplainRequest, NodesRequest
from muster.bus.streams import ensure_streams, last_sequence
from muster.bus.subjects import api_filter, api_subject, ledger_subject, status_subject
from tests.nats_fixtures import eventually


@pytest.mark.parametrize(
    ("info", "message"),
    [
        pytest.param(
            {"version": "2.10.29", "jetstream": True}, "is version 2.10.29; Muster needs 2.11 or newer", id="too old"
        ),
        pytest.param({"version": "1.4.0", "jetstream": True}, "is version 1.4.0", id="much too old"),
        pytest.param({"version": "", "jetstream": True}, "tells no usable version", id="no version"),
        pytest.param({"version": "2.12.0"}, "has no JetStream", id="no JetStream"),
    ],
)
def test_an_unsuitable_server_is_refused_with_what_would_be_right(info: dict[str, object], message: str) -> None:
    with pytest.raises(UnsuitableServerError, match=message):
        check_server({"server_name": "n", **info})


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0-RC.1", "2.15.1", "3.0.0", "v2.14.0"])
def test_a_suitable_server_is_taken(version: str) -> None:
    check_server({"version": version, "jetstream": True})


async def test_an_old_server_is_refused_at_connect() -> None:
    async def old_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b'INFO {"server_id":"OLD","version":"2.9.10","max_payload":1048576,"headers":true,"jetstream":true}\r\n'
        )
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    server = await asyncio.start_server(old_server, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(UnsuitableServerError, match=r"2\.9\.10; Muster needs 2\.11"):
        await connect(f"nats://127.0.0.1:{port}", name="test")
    server.close()


async def test_connecting_to_nobody_ends_with_the_address_and_the_cause() -> None:
    with pytest.raises(NotConnectedError, match=r"no NATS server at nats://127\.0\.0\.1:9 within 0\.6 s"):
        await connect("nats://127.0.0.1:9", name="test", seconds=0.6)


async def test_pipelined_publishes_with_expected_sequences_are_stored_in_order(streams_bus) -> None:
    last = await last_sequence(streams_bus, "LEDGER")
    flights = [
        await streams_bus.send(ledger_subject("bind", f"g{n}"), b"x", expected_last_sequence=last + n)
        for n in range(300)
    ]
    assert await asyncio.gather(*flights) == [last + 1 + n for n in range(300)]


async def test_a_wrong_expected_sequence_is_refused_and_tells_the_actual_one(streams_bus) -> None:
    sequence = await streams_bus.publish(ledger_subject("bind", "g"), b"x")
    with pytest.raises(WrongLastSequenceError) as refused:
        await streams_bus.publish(ledger_subject("bind", "g"), b"y", expected_last_sequence=sequence - 1)
    assert refused.value.actual == sequence
    assert await last_sequence(streams_bus, "LEDGER") == sequence


async def test_a_message_too_large_is_not_sent_and_the_limit_is_told(streams_bus) -> None:
    with pytest.raises(MessageTooLargeError, match="the server takes 8388608 at most"):
        await streams_bus.publish(status_subject("t", "j"), b"x" * (streams_bus.max_payload + 1))
    await streams_bus.publish(status_subject("t", "j"), b"x")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"}}', WrongLastSequenceError),
        (b'{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}', WrongLastSequenceError),
        (b'{"error":{"code":500,"err_code":10002,"description":"no"}}', BusError),
    ],
)
def test_refusals_are_told_apart(body: bytes, kind: type[BusError]) -> None:
    loop = asyncio.new_event_loop()
    try:
        assert isinstance(read_answer(Flight("s", 3, loop.create_future()), body, None), kind)
    finally:
        loop.close()


async def test_publishing_while_disconnected_sends_nothing_and_says_so(own_server, heard) -> None:
    async with await connect(own_server.url, name="test", observer=heard) as bus:
        await ensure_streams(bus, incarnation=0)
        await own_server.kill()
        await eventually(lambda: not bus.connected)
        with pytest.raises(NotConnectedError, match="nothing was sent"):
            await bus.publish(status_subject("t", "j"), Progress(step=1))
        await own_server.start()
        await eventually(lambda: bus.connected)
        assert await last_sequence(bus, "STATUS") == 0
        assert await bus.publish(status_subject("t", "j"), Progress(step=1)) == 1
    assert "the NATS connection was lost" in heard.names()
    assert "the NATS connection is back" in heard.names()


async def test_a_connection_lost_in_mid_publish_leaves_an_unknown_outcome_at_once(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=0)
        await own_server.pause()
        flight = await bus.send(status_subject("t", "j"), Progress(step=1))
        await own_server.kill()
        with pytest.raises(UnknownOutcomeError, match="connection was lost"):
            await flight


async def test_a_server_that_never_answers_leaves_an_unknown_outcome_in_time(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=0)
        await own_server.pause()
        with pytest.raises(UnknownOutcomeError, match=r"no answer within 0\.2 s"):
            await bus.publish(status_subject("t", "j"), Progress(step=1), seconds=0.2)
        own_server.resume()


async def test_the_client_comes_back_after_a_kill_and_listeners_hear_of_it(own_server) -> None:
    returned = []
    async with await connect(own_server.url, name="test", on_reconnect=lambda: returned.append(1)) as bus:
        for _ in range(2):
            await own_server.kill()
            await eventually(lambda: not bus.connected)
            await own_server.start()
            await eventually(lambda: bus.connected)
        await eventually(lambda: len(returned) == 2)
        assert bus.generation == 3


async def test_closing_is_bounded_while_the_server_is_silent(own_server) -> None:
    bus = await connect(own_server.url, name="test")
    await own_server.pause()
    async with asyncio.timeout(60):  # it hung for ever when it waited for the server
        await bus.close()
    own_server.resume()


async def test_a_question_is_answered(bus) -> None:
    async def explain(request: ExplainRequest, place: Question) -> ExplainReply:
        return ExplainReply(job=request.job, state="Waiting", queue=place.tokens[1])

    served = await bus.serve(api_filter("explain"), ExplainRequest, explain, queue="schedulers")
    reply = await bus.request(api_subject("team a", "explain"), ExplainRequest(job="j"), ExplainReply)
    assert reply == ExplainReply(job="j", state="Waiting", queue="team a")
    await served.stop()
    with pytest.raises(NoAnswerError, match="nobody serves this"):
        await bus.request(api_subject("team a", "explain"), ExplainRequest(job="j"), ExplainReply)


async def test_a_refused_question_tells_code_and_text(bus) -> None:
    async def refuse(request: ExplainRequest, _place: Question) -> ExplainReply:
        raise RequestRefusedError("not-found", f"there is no job {request.job!r}")

    await bus.serve(api_filter("explain"), ExplainRequest, refuse)
    with pytest.raises(RequestRefusedError, match="there is no job 'j'") as refused:
        await bus.request(api_subject("t", "explain"), ExplainRequest(job="j"), ExplainReply)
    assert refused.value.code == "not-found"


async def test_a_failing_service_answers_all_the_same_and_the_failure_is_observed(bus, heard) -> None:
    async def fail(_request: ExplainRequest, _place: Question) -> ExplainReply:
        raise ZeroDivisionError("secret detail")

    await bus.serve(api_filter("explain"), ExplainRequest, fail)
    with pytest.raises(RequestRefusedError) as refused:
        await bus.request(api_subject("t", "explain"), ExplainRequest(job="j"), ExplainReply)
    assert refused.value.code == "internal"
    assert "secret" not in str(refused.value)
    assert "a request failed" in heard.names()


async def test_a_malformed_question_is_refused_with_the_field(bus) -> None:
    async def explain(request: ExplainRequest, _place: Question) -> ExplainReply:
        return ExplainReply(job=request.job, state="Waiting")

    await bus.serve(api_filter("explain"), ExplainRequest, explain)
    with pytest.raises(RequestRefusedError, match=r"ce-type is 'dev\.muster\.nodes-request\.v1'"):
        await bus.request(api_subject("t", "explain"), NodesRequest(), ExplainReply)
    raw = await bus.client.request(api_subject("t", "explain"), b'{"job":5}')
    assert raw.headers["Nats-Service-Error-Code"] == "bad-request"
    assert "$.job" in raw.headers["Nats-Service-Error"]
