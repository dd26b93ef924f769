r"""The protobuf bodies that kubectl's `create` commands send, decoded by field tables into the JSON the server works on.

    "k8s\0" Unknown{1: TypeMeta{1: apiVersion, 2: kind}, 2: the object}

Only the simple kinds and fields of `kubectl create namespace, configmap, secret, serviceaccount, priorityclass, job,
deployment` are known; a field with a value that is not in the tables makes the body refused (415), never lost.
"""

import base64
from collections.abc import Iterator, Mapping
from typing import Any

from muster.simulator.errors import JsonObject, unsupported_media_type

MAGIC = b"k8s\x00"
PROTOBUF_TYPE = "application/vnd.kubernetes.protobuf"

# Message → field number → name and kind. Kinds: string, int, bool, bytes, map (to string), bytes map, or a message;
# a leading + repeats.
_MESSAGES: Mapping[str, Mapping[int, tuple[str, str]]] = {
    "ObjectMeta": {
        1: ("name", "string"),
        2: ("generateName", "string"),
        3: ("namespace", "string"),
        11: ("labels", "map"),
        12: ("annotations", "map"),
    },
    "Namespace": {1: ("metadata", "ObjectMeta")},
    "ServiceAccount": {1: ("metadata", "ObjectMeta")},
    "ConfigMap": {1: ("metadata", "ObjectMeta"), 2: ("data", "map"), 3: ("binaryData", "bytes map")},
    "Secret": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "bytes map"),
        3: ("type", "string"),
        4: ("stringData", "map"),
    },
    "PriorityClass": {
        1: ("metadata", "ObjectMeta"),
        2: ("value", "int"),
        3: ("globalDefault", "bool"),
        4: ("description", "string"),
        5: ("preemptionPolicy", "string"),
    },
    "Job": {1: ("metadata", "ObjectMeta"), 2: ("spec", "JobSpec")},
    "JobSpec": {
        1: ("parallelism", "int"),
        2: ("completions", "int"),
        3: ("activeDeadlineSeconds", "int"),
        6: ("template", "PodTemplateSpec"),
        7: ("backoffLimit", "int"),
    },
    "Deployment": {1: ("metadata", "ObjectMeta"), 2: ("spec", "DeploymentSpec")},
    "DeploymentSpec": {1: ("replicas", "int"), 2: ("selector", "LabelSelector"), 3: ("template", "PodTemplateSpec")},
    "LabelSelector": {1: ("matchLabels", "map")},
    "PodTemplateSpec": {1: ("metadata", "ObjectMeta"), 2: ("spec", "PodSpec")},
    "PodSpec": {2: ("containers", "+Container"), 3: ("restartPolicy", "string")},
    "Container": {
        1: ("name", "string"),
        2: ("image", "string"),
        3: ("command", "+string"),
        4: ("args", "+string"),
        14: ("imagePullPolicy", "string"),
    },
}


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value - (1 << 64) if value >= 1 << 63 else value), at
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and raw values of a message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == 2:
            length, at = _varint(data, at)
        else:
            length = {1: 8, 5: 4}[wire]
        if at + length > len(data):
            raise IndexError(at + length)
        yield number, data[at : at + length]
        at += length


def _is_empty(value: int | bytes) -> bool:
    """Whether a value says nothing: zero, no bytes, or a message of nothing but such."""
    if isinstance(value, int):
        return value == 0
    try:
        return all(_is_empty(inner) for _number, inner in _fields(value))
    except (IndexError, KeyError):
        return False


def _decode(message: str, data: bytes, *, kind: str) -> JsonObject:
    table = _MESSAGES[message]
    found: JsonObject = {}
    for number, value in _fields(data):
        known = table.get(number)
        if known is None:
            if not _is_empty(value):
                raise unsupported_media_type(
                    f"{PROTOBUF_TYPE}: field {number} of {message} in a {kind} is not understood as protobuf; send JSON, for "
                    "example: kubectl create … --dry-run=client -o yaml | kubectl apply -f -"
                )
            continue
        name, form = known
        if form in {"map", "bytes map"}:
            assert isinstance(value, bytes)
            entry = dict(_fields(value))
            key, held = entry.get(1, b""), entry.get(2, b"")
            assert isinstance(key, bytes)
            assert isinstance(held, bytes)
            found.setdefault(name, {})[key.decode()] = _value("string" if form == "map" else "bytes", held, kind=kind)
        elif form.startswith("+"):
            found.setdefault(name, []).append(_value(form[1:], value, kind=kind))
        elif value != b"" or form in _MESSAGES:
            found[name] = _value(form, value, kind=kind)
    return found


def _value(form: str, value: int | bytes, *, kind: str) -> Any:
    if isinstance(value, int):
        return bool(value) if form == "bool" else value
    if form == "string":
        return value.decode()
    if form == "bytes":
        return base64.b64encode(value).decode()
    return _decode(form, value, kind=kind)


def decode_body(raw: bytes) -> JsonObject:
    """The object of a protobuf body; 415 when it is of a kind or holds a field that is not understood."""
    if not raw.startswith(MAGIC):
        raise unsupported_media_type(f"{PROTOBUF_TYPE}: the body does not begin with the magic bytes")
    try:
        unknown = dict(_fields(raw[len(MAGIC) :]))
        type_meta = dict(_fields(_bytes(unknown[1])))
        api_version, kind = _bytes(type_meta[1]).decode(), _bytes(type_meta[2]).decode()
        head = {"apiVersion": api_version, "kind": kind}
        if kind.endswith("AccessReview"):
            return head
        if kind not in _MESSAGES:
            raise unsupported_media_type(f"{PROTOBUF_TYPE}: {kind} is not understood as protobuf; send JSON")
        return {**head, **_decode(kind, _bytes(unknown.get(2, b"")), kind=kind)}
    except (IndexError, KeyError, UnicodeDecodeError) as error:
        raise unsupported_media_type(f"{PROTOBUF_TYPE}: the body cannot be decoded: {error!r}") from error


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise KeyError(value)
    return value
