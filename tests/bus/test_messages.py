import json
import zlib
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.bus import schemas
from muster.bus.client import connect
from muster.bus.envelope import COMPRESS_ABOVE, NAMES, Envelope, decode, encode_body, type_of
from muster.bus.errors import UndecodableError
from muster.bus.messages import NULL, Cancel, Progress, StateMessage, StatusEvent, Submit
from muster.bus.streams import STREAMS
from muster.bus.subjects import PREFIX, jobs_submit
from muster.bus.submissions import parse_submit
from tests.bus import wire_strategies

ROOT = Path(__file__).parents[2]
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
BY_NAME = {name: kind for kind, name in NAMES.items()}
CLOSED = {Submit, Cancel}
VALIDATORS = {kind: jsonschema_rs.Draft202012Validator(schemas.schema_of(kind)) for kind in NAMES}


def kind_of(path: Path) -> type[msgspec.Struct]:
    return BY_NAME[path.name.partition(".")[0]]


def known(message: msgspec.Struct) -> msgspec.Struct:
    """With the raw object decoded, so that messages can be compared."""
    return (
        msgspec.structs.replace(message, object=msgspec.json.decode(message.object))
        if isinstance(message, StateMessage)
        else message
    )


def holds(found: object, stored: object) -> bool:
    """Everything that was stored is there; defaults may have come to it."""
    if isinstance(stored, dict) and isinstance(found, dict):
        return all(key in found and holds(found[key], value) for key, value in stored.items())
    if isinstance(stored, list) and isinstance(found, list):
        return len(stored) == len(found) and all(map(holds, found, stored))
    return found == stored


def test_the_committed_schemas_are_those_of_the_structs() -> None:
    assert schemas.main(["--check", "--directory", str(ROOT / "schemas")]) == 0


def test_the_check_tells_what_differs(tmp_path, capsys) -> None:
    assert schemas.main(["--write", "--directory", str(tmp_path)]) == 0
    assert schemas.main(["--check", "--directory", str(tmp_path)]) == 0
    (tmp_path / "submit.json").write_text("{}")
    (tmp_path / "cancel.json").unlink()
    (tmp_path / "other.json").write_text("{}")
    assert schemas.main(["--check", "--directory", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "other.json belongs to no message" in told
    assert "cancel.json is missing" in told
    assert "submit.json differs" in told


@pytest.mark.parametrize("kind", NAMES, ids=lambda kind: NAMES[kind])
def test_a_message_is_valid_by_its_schema_and_comes_back(kind: type[msgspec.Struct]) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(wire_strategies.of(kind), st.floats(0, 4e9))
    def comes_back(message: msgspec.Struct, now: float) -> None:
        body, encoding = encode_body(message)
        headers = {**Envelope(source="test", nonce="n").headers(message, now=now, subject="k"), **encoding}
        VALIDATORS[kind].validate(json.loads(body))
        assert known(decode(kind, body, headers)) == known(message)

    comes_back()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_stored_messages_decode_and_are_valid(path: Path) -> None:
    kind = kind_of(path)
    value = json.loads(path.read_text())
    VALIDATORS[kind].validate(value)
    message = decode(kind, path.read_bytes(), {"ce-type": type_of(kind)})
    assert holds(msgspec.json.decode(msgspec.json.encode(message)), value)


@pytest.mark.parametrize("path", [path for path in GOLDEN if kind_of(path) not in CLOSED], ids=lambda path: path.stem)
def test_a_field_that_a_later_version_adds_is_ignored(path: Path) -> None:
    value = json.loads(path.read_text())
    later = json.dumps({**value, "added_later": {"x": 1}}).encode()
    VALIDATORS[kind_of(path)].validate(json.loads(later))
    assert known(decode(kind_of(path), later)) == known(decode(kind_of(path), path.read_bytes()))


def test_every_message_has_a_stored_one() -> None:
    assert {path.name.partition(".")[0] for path in GOLDEN} == set(BY_NAME)


@pytest.mark.parametrize("kind", schemas.EXAMPLES, ids=lambda kind: NAMES[kind])
def test_the_examples_are_valid_and_decode(kind: type[msgspec.Struct]) -> None:
    for example in schemas.EXAMPLES[kind]:
        VALIDATORS[kind].validate(example)
        decode(kind, json.dumps(example).encode())


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"id": "a", "short": {"image": "x", "gpu": 1}}, id="a misspelt field"),
        pytest.param({"id": "a", "short": {"image": "x"}, "extra": 1}, id="an unknown field on top"),
        pytest.param({"id": "a"}, id="neither form"),
        pytest.param({"id": "a", "short": {"image": "x"}, "manifest": {}}, id="both forms"),
        pytest.param({"id": "a", "short": None, "manifest": None}, id="both forms null"),
        pytest.param({"id": "a/b", "short": {"image": "x"}}, id="an id with a slash"),
        pytest.param({"id": "a", "short": {"image": ""}}, id="an empty image"),
        pytest.param({"id": "a", "short": {"image": "x", "cpu": "lots"}}, id="no quantity"),
        pytest.param({"id": "a", "short": {"image": "x", "replicas": 0}}, id="no replicas"),
        pytest.param({"id": "a", "short": {"image": "x", "gpu_core_percent": 101}}, id="more than a card's core"),
        pytest.param({"id": "a", "namespace": "Team A", "short": {"image": "x"}}, id="no namespace name"),
        pytest.param({"short": {"image": "x"}}, id="no id"),
    ],
)
def test_schema_and_service_refuse_the_same_submissions(wrong: dict[str, object]) -> None:
    assert not VALIDATORS[Submit].is_valid(wrong)
    assert parse_submit(json.dumps(wrong).encode()).errors


def test_a_null_form_beside_the_other_is_taken_by_both() -> None:
    value = {"id": "a", "short": {"image": "x"}, "manifest": None}
    VALIDATORS[Submit].validate(value)
    assert parse_submit(json.dumps(value).encode()).errors == ()


def test_a_state_object_of_the_wrong_kind_is_not_valid() -> None:
    value = {"epoch": 1, "kind": "priorityclass", "key": "a", "object": {"name": "a"}}
    assert not VALIDATORS[StateMessage].is_valid(value)
    VALIDATORS[StateMessage].validate({**value, "object": {"name": "a", "value": 7}})


def test_every_field_a_person_writes_has_a_description() -> None:
    definitions = schemas.schema_of(Submit)
    for name, field in {**definitions["properties"], **definitions["$defs"]["ShortJob"]["properties"]}.items():
        assert "description" in json.dumps(field) or "$ref" in json.dumps(field), name


async def test_a_person_with_nats_py_and_the_schema_can_submit(streams_bus) -> None:
    """No envelope, no Muster code: the first example of the schema, as it stands."""
    example = json.loads((ROOT / "schemas" / "submit.json").read_text())["examples"][0]
    document = yaml.safe_load((ROOT / "schemas" / "asyncapi.yaml").read_text())
    subject = document["channels"]["submit"]["address"].replace("{tenant}", "team-a")
    assert subject == jobs_submit("team-a")
    answer = await streams_bus.client.request(subject, json.dumps(example).encode(), timeout=5)
    assert json.loads(answer.data)["stream"] == document["channels"]["submit"]["x-stream"] == "JOBS"
    stored = await streams_bus.jetstream.get_last_msg("JOBS", subject)
    assert parse_submit(stored.data, stored.headers).submit == msgspec.convert(example, Submit)


def test_the_asyncapi_document_lists_every_stream_and_message() -> None:
    document = schemas.asyncapi()
    assert {channel.get("x-stream") for channel in document["channels"].values()} - {None} == {
        str(spec.name) for spec in STREAMS
    }
    carried = {name for channel in document["channels"].values() for name in channel["messages"]}
    assert carried == set(document["components"]["messages"]) == set(BY_NAME)
    for operation in document["operations"].values():
        assert operation["channel"]["$ref"].rpartition("/")[2] in document["channels"]
    for channel in document["channels"].values():
        assert channel["address"] is None or channel["address"].startswith((f"{PREFIX}.", "$KV.SUBMISSIONS."))


# Envelope -----------------------------------------------------------------------------------------------------------


def test_headers_are_those_of_cloudevents() -> None:
    envelope = Envelope(source="controller", nonce="n")
    headers = envelope.headers(Progress(step=1), now=1796000000.25, subject="ns/ü", traceparent="00-x")
    assert headers == {
        "ce-specversion": "1.0",
        "ce-id": "n-1",
        "ce-source": "/muster/controller",
        "ce-type": "dev.muster.progress.v1",
        "ce-time": "2026-11-30T00:53:20.250+00:00",
        "ce-subject": "ns/\\xfc",
        "traceparent": "00-x",
        "content-type": "application/json",
    }
    assert envelope.headers(Progress(step=1), now=0)["ce-id"] == "n-2"


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("dev.muster.progress.v2", "major versions 0 and 1 are understood"),
        ("dev.muster.progress.vx", "major versions"),
        ("dev.muster.cancel.v1", "only 'dev.muster.progress.v1' is understood"),
    ],
)
def test_another_type_or_a_later_major_is_refused(told: str, message: str) -> None:
    with pytest.raises(UndecodableError, match=message):
        decode(Progress, b'{"step":1}', {"ce-type": told})


@pytest.mark.parametrize("told", [None, "dev.muster.progress.v1", "dev.muster.progress.v0"])
def test_this_major_the_one_before_and_no_type_are_read(told: str | None) -> None:
    assert decode(Progress, b'{"step":1}', {} if told is None else {"ce-type": told}) == Progress(step=1)


def test_large_bodies_are_compressed_and_small_ones_not() -> None:
    large = StatusEvent(tenant="t", id="a", state="Queued", message="x" * COMPRESS_ABOVE, number=1, at=1.0)
    body, headers = encode_body(large)
    assert len(body) < 2000
    assert decode(StatusEvent, body, headers) == large
    assert encode_body(Progress(step=1)) == (b'{"step":1}', {})


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        pytest.param(b"x", "gzip", id="an unknown encoding"),
        pytest.param(b"x", "deflate", id="damaged"),
        pytest.param(zlib.compress(b'{"step":1}')[:-6], "deflate", id="cut"),
        pytest.param(zlib.compress(bytes(65 * 1024 * 1024)), "deflate", id="a bomb"),
    ],
)
def test_bodies_that_cannot_be_inflated_are_refused(body: bytes, encoding: str) -> None:
    with pytest.raises(UndecodableError):
        decode(Progress, body, {"content-encoding": encoding})


def test_a_state_message_without_an_object_is_a_tombstone() -> None:
    assert decode(StateMessage, b'{"epoch":1,"kind":"pod","key":"a"}').gone
    assert StateMessage(epoch=1, kind="pod", key="a", object=NULL).gone
    assert not decode(StateMessage, b'{"epoch":1,"kind":"pod","key":"a","object":{}}').gone


async def test_published_messages_carry_their_envelope(streams_bus, nats_server) -> None:
    async with await connect(nats_server.url, name="controller") as bus:
        await bus.publish(
            "muster.status.t.a", StatusEvent(tenant="t", id="a", state="Queued", number=1, at=1.0), about="ns/j"
        )
    stored = await streams_bus.jetstream.get_last_msg("STATUS", "muster.status.t.a")
    assert stored.headers["ce-type"] == "dev.muster.status-event.v1"
    assert stored.headers["ce-source"] == "/muster/controller"
    assert stored.headers["ce-subject"] == "ns/j"
