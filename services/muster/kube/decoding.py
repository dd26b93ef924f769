"""From bytes of the Kubernetes API to narrow structs: one decoder per kind, lists and watch events.

    list page   ──► Page(items, resource_version, continue_token, malformed)
    watch line  ──► peek {type, object: raw} ──► Upserted | Removed | Bookmark | a typed error

The fast path decodes straight into structs. Only when that fails is the JSON read untyped: nulls are dropped (to
Kubernetes a null field is an absent one) and the rest converted; what still does not fit is reported as Malformed with
its key, so that one bad object never hides the others.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from muster.kube.errors import Status, UnexpectedReply, error_from_status
from muster.kube.objects import (
    Object,
    ObjectMeta,
    RawCommand,
    RawLease,
    RawNamespace,
    RawNode,
    RawObject,
    RawPodGroup,
    RawPriorityClass,
    RawQueue,
    RawStorageClass,
)
from muster.kube.pods import RawPod

__all__ = [
    "KINDS",
    "NODES",
    "PODS",
    "Bookmark",
    "KindInfo",
    "Malformed",
    "Object",
    "ObjectMeta",
    "Page",
    "RawCommand",
    "RawLease",
    "RawNamespace",
    "RawNode",
    "RawObject",
    "RawPod",
    "RawPodGroup",
    "RawPriorityClass",
    "RawQueue",
    "RawStorageClass",
    "Removed",
    "Upserted",
    "WatchEvent",
    "decode_event",
    "decode_object",
    "decode_page",
    "kind_info",
]

ObjectT = TypeVar("ObjectT", bound=Object)


class _ListMeta(msgspec.Struct, rename={"resource_version": "resourceVersion", "token": "continue"}):
    resource_version: str = ""
    token: str = ""


class _ListOf(msgspec.Struct, Generic[ObjectT]):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[ObjectT] | None = None


class _RawList(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _Identity(msgspec.Struct):
    metadata: Any = None


class _Envelope(msgspec.Struct):
    type: str
    object: msgspec.Raw


class KindInfo(Generic[ObjectT]):
    """One kind: where the API server serves it and how it is decoded.

    `name` is the key in KINDS, `resource` the full ``plural.group``. Immutable by convention; compared by identity.
    """

    def __init__(
        self, *, name: str, group: str, version: str, plural: str, kind: str, namespaced: bool, struct: type[ObjectT]
    ) -> None:
        self.name = name
        self.group = group
        self.version = version
        self.plural = plural
        self.kind = kind
        self.namespaced = namespaced
        self.struct = struct
        self.decoder: msgspec.json.Decoder[ObjectT] = msgspec.json.Decoder(struct)
        self.list_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(_ListOf[struct])  # type: ignore[valid-type]

    def __repr__(self) -> str:
        return f"KindInfo({self.resource})"

    @property
    def resource(self) -> str:
        """``plural.group``, or the bare plural of the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """As in an object's apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def custom(self) -> bool:
        """Whether a CustomResourceDefinition serves it, so that it may be missing from a healthy cluster."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of a collection (all namespaces when none is given), an object or its subresource."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


PODS = KindInfo(name="pods", group="", version="v1", plural="pods", kind="Pod", namespaced=True, struct=RawPod)
NODES = KindInfo(name="nodes", group="", version="v1", plural="nodes", kind="Node", namespaced=False, struct=RawNode)
LEASES = KindInfo(
    name="leases",
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    namespaced=True,
    struct=RawLease,
)
EVENTS = KindInfo(
    name="events", group="", version="v1", plural="events", kind="Event", namespaced=True, struct=RawObject
)


def _kind(
    name: str, version: str, kind: str, struct: type[ObjectT], *, namespaced: bool = True, group: str | None = None
) -> KindInfo[ObjectT]:
    plural, _, implied = name.partition(".")
    return KindInfo(
        name=name,
        group=implied if group is None else group,
        version=version,
        plural=plural,
        kind=kind,
        namespaced=namespaced,
        struct=struct,
    )


KINDS: Mapping[str, KindInfo[Any]] = MappingProxyType(
    {
        info.name: info
        for info in (
            PODS,
            NODES,
            LEASES,
            EVENTS,
            _kind("namespaces", "v1", "Namespace", RawNamespace, namespaced=False),
            _kind("configmaps", "v1", "ConfigMap", RawObject),
            _kind("secrets", "v1", "Secret", RawObject),
            _kind("services", "v1", "Service", RawObject),
            _kind("persistentvolumeclaims", "v1", "PersistentVolumeClaim", RawObject),
            _kind("persistentvolumes", "v1", "PersistentVolume", RawObject, namespaced=False),
            _kind(
                "priorityclasses",
                "v1",
                "PriorityClass",
                RawPriorityClass,
                namespaced=False,
                group="scheduling.k8s.io",
            ),
            _kind("poddisruptionbudgets.policy", "v1", "PodDisruptionBudget", RawObject),
            _kind("jobs.batch", "v1", "Job", RawObject),
            _kind("deployments.apps", "v1", "Deployment", RawObject),
            _kind("replicasets.apps", "v1", "ReplicaSet", RawObject),
            _kind("statefulsets.apps", "v1", "StatefulSet", RawObject),
            _kind("daemonsets.apps", "v1", "DaemonSet", RawObject),
            _kind("jobs.batch.volcano.sh", "v1alpha1", "Job", RawObject),
            _kind("podgroups.scheduling.volcano.sh", "v1beta1", "PodGroup", RawPodGroup),
            _kind("queues.scheduling.volcano.sh", "v1beta1", "Queue", RawQueue, namespaced=False),
            _kind("storageclasses.storage.k8s.io", "v1", "StorageClass", RawStorageClass, namespaced=False),
            _kind("hypernodes.topology.volcano.sh", "v1alpha1", "HyperNode", RawObject, namespaced=False),
            _kind("commands.bus.volcano.sh", "v1alpha1", "Command", RawCommand),
        )
    }
)
"""The kinds Muster knows, by name. Another is one more line, or a KindInfo passed where a name is expected."""

_BY_RESOURCE: Mapping[str, KindInfo[Any]] = MappingProxyType({info.resource: info for info in KINDS.values()})


def kind_info(kind: str | KindInfo[Any]) -> KindInfo[Any]:
    """The kind of this name (`pods`, `leases`) or full resource (`leases.coordination.k8s.io`). Raises KeyError."""
    if isinstance(kind, KindInfo):
        return kind
    found = KINDS.get(kind) or _BY_RESOURCE.get(kind)
    if found is None:
        raise KeyError(f"kind {kind!r}: not known; known are {', '.join(sorted(KINDS))}")
    return found


class Malformed(msgspec.Struct, frozen=True):
    """An object that does not fit its kind. `key` is '' when not even its metadata could be read."""

    key: str
    resource_version: str
    message: str


class Page(msgspec.Struct, frozen=True):
    """One answer to a LIST. `continue_token` is '' on the last page."""

    items: list[Any]
    resource_version: str
    continue_token: str
    malformed: tuple[Malformed, ...] = ()


class Upserted(msgspec.Struct, frozen=True, gc=False):
    """ADDED or MODIFIED: the object as it is now."""

    object: Any


class Removed(msgspec.Struct, frozen=True, gc=False):
    """DELETED: the object's last state, with the resourceVersion of the deletion."""

    object: Any


class Bookmark(msgspec.Struct, frozen=True, gc=False):
    """Nothing changed up to this resourceVersion."""

    resource_version: str


WatchEvent = Upserted | Removed | Bookmark | Malformed

_envelopes = msgspec.json.Decoder(_Envelope)
_statuses = msgspec.json.Decoder(Status)
_raw_lists = msgspec.json.Decoder(_RawList)
_identities = msgspec.json.Decoder(_Identity)


def decode_object(info: KindInfo[ObjectT], content: bytes | msgspec.Raw) -> ObjectT:
    """One object. Raises msgspec.ValidationError when it does not fit its kind, DecodeError when it is no JSON."""
    try:
        return info.decoder.decode(content)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(msgspec.json.decode(content)), info.struct)


def decode_page(info: KindInfo[Any], content: bytes) -> Page:
    """One page of a LIST; ``"items": null`` is an empty list. Raises UnexpectedReply when it is no list at all."""
    try:
        listed = info.list_decoder.decode(content)
    except msgspec.ValidationError:
        return _decode_items_one_by_one(info, content)
    except msgspec.DecodeError as error:
        raise UnexpectedReply(f"list of {info.resource}: not JSON: {error}") from error
    return Page(
        items=listed.items or [],
        resource_version=listed.metadata.resource_version,
        continue_token=listed.metadata.token,
    )


def _decode_items_one_by_one(info: KindInfo[Any], content: bytes) -> Page:
    try:
        listed = _raw_lists.decode(content)
    except msgspec.DecodeError as error:
        raise UnexpectedReply(f"list of {info.resource}: not a list: {error}") from error
    items: list[Any] = []
    malformed: list[Malformed] = []
    for raw in listed.items or []:
        try:
            items.append(decode_object(info, raw))
        except msgspec.ValidationError as error:
            malformed.append(_malformed(raw, error))
    return Page(
        items=items,
        resource_version=listed.metadata.resource_version,
        continue_token=listed.metadata.token,
        malformed=tuple(malformed),
    )


def decode_event(info: KindInfo[Any], line: bytes) -> WatchEvent:
    """One line of a watch. Raises the typed error of an ERROR event, UnexpectedReply for a line that is no event."""
    try:
        envelope = _envelopes.decode(line)
    except msgspec.DecodeError as error:
        raise UnexpectedReply(f"watch of {info.resource}: not an event: {error}") from error
    if envelope.type == "ERROR":
        try:
            status = _statuses.decode(envelope.object)
        except msgspec.DecodeError as error:
            raise UnexpectedReply(f"watch of {info.resource}: an ERROR event without a Status: {error}") from error
        raise error_from_status(status, request=f"watch of {info.resource}")
    if envelope.type == "BOOKMARK":
        _, resource_version = _identity(envelope.object)
        return Bookmark(resource_version)
    if envelope.type not in {"ADDED", "MODIFIED", "DELETED"}:
        raise UnexpectedReply(f"watch of {info.resource}: unknown event type {envelope.type!r}")
    try:
        decoded = decode_object(info, envelope.object)
    except msgspec.ValidationError as error:
        return _malformed(envelope.object, error)
    return Removed(decoded) if envelope.type == "DELETED" else Upserted(decoded)


def _malformed(raw: msgspec.Raw, error: msgspec.ValidationError) -> Malformed:
    key, resource_version = _identity(raw)
    return Malformed(key=key, resource_version=resource_version, message=str(error))


def _identity(raw: msgspec.Raw) -> tuple[str, str]:
    """Key and resourceVersion, as far as they can be read."""
    try:
        metadata = msgspec.convert(_without_nulls(_identities.decode(raw).metadata), ObjectMeta)
    except msgspec.ValidationError:
        return "", ""
    return metadata.key, metadata.resource_version


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
