"""How an answer is put on the wire: JSON, Tables when the client asks for them, lists joined from stored bytes."""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence

import orjson
from aiohttp import web

from muster.simulator.errors import ApiError, JsonObject, bad_request
from muster.simulator.routing import Target
from muster.simulator.tables import columns_of, render_table
from muster.simulator.views import View
from muster.simulator.watching import Record

JSON_TYPE = "application/json"


def json_bytes(raw: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """An answer of ready JSON."""
    return web.Response(body=raw, status=status, content_type=JSON_TYPE, headers=headers)


def json_object(body: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """An answer of an object."""
    return json_bytes(orjson.dumps(body), status=status, headers=headers)


def error_answer(error: ApiError) -> web.Response:
    """The Status of a refusal."""
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return json_object(error.status(), status=error.code, headers=headers)


def success(code: int = 200) -> JsonObject:
    """A bare success Status."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def accepts_json(accept: str) -> bool:
    """Whether JSON is among what the client takes."""
    return not accept or "json" in accept or "*/*" in accept or "application/*" in accept


def wants_table(accept: str) -> bool:
    """Whether the client prefers a Table (kubectl get)."""
    return "as=Table" in accept and "g=meta.k8s.io" in accept


def wants_metadata(accept: str) -> bool:
    """Whether the client wants only metadata (metadata informers)."""
    return "as=PartialObjectMetadata" in accept


def table_of(
    target: Target, view: View, objects: Iterable[JsonObject], *, now: float, metadata: JsonObject, include: str
) -> JsonObject:
    """The Table of some stored objects."""
    return render_table(
        columns_of(target.resource_type, target.version),
        map(view.show, objects),
        now=now,
        metadata=metadata,
        include=include,
    )


def list_bytes(target: Target, view: View, records: Sequence[Record], metadata: JsonObject) -> bytes:
    """A List whose items are the stored bytes."""
    head = orjson.dumps(
        {"kind": target.resource_type.kind + "List", "apiVersion": target.api_version, "metadata": metadata}
    )
    return b"".join((head[:-1], b',"items":[', b",".join([view.item(record) for record in records]), b"]}"))


def encode_continue(version: int, key: tuple[str, str]) -> str:
    """The token under which the next page starts after `key`, at the same version."""
    return (
        base64.urlsafe_b64encode(orjson.dumps({"v": version, "namespace": key[0], "name": key[1]})).decode().rstrip("=")
    )


def decode_continue(token: str) -> tuple[int, tuple[str, str]]:
    """What a continue token says; 400 when it is not one of ours."""
    try:
        body = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(body["v"]), (str(body["namespace"]), str(body["name"]))
    except (binascii.Error, orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise bad_request(f"continue key is not valid: {token!r}") from error
