"""Writes to the Kubernetes API, and the reads that belong to a write. One method is one request, except `touch`.

Nothing here retries: the caller knows whether a write may be repeated. Every write has a time limit; after
`Unavailable.unknown_outcome` the object must be read before anything is decided.

Preconditions go where the API server checks them: in a Binding's metadata, in DeleteOptions of deletes and evictions,
in a patch's metadata. Each of them refuses a stale resourceVersion or another uid with Conflict.
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from muster.kube.decoding import PODS, KindInfo, decode_object, kind_info
from muster.kube.errors import Conflict, Invalid, KubeError, NotFound, UnexpectedReply
from muster.kube.listing import list_all
from muster.kube.recording import EventRecorder, EventType, ObjectReference
from muster.kube.timing import Timing
from muster.kube.transport import Query, Transport
from muster.model.quantity import whole_number
from muster.model.units import NodeName, PodUid
from muster.model.units import Sequence as LedgerSequence

FENCE_ANNOTATION = "muster.dev/fence"
DEFAULT_TIMEOUT_SECONDS = 5.0
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_TOUCH_ATTEMPTS = 8

Propagation = Literal["Foreground", "Background", "Orphan"]
Kind = str | KindInfo[Any]


class Fenced(KubeError):  # noqa: N818  # the protocol's own word
    """The object carries a newer fence: whoever holds the older token was deposed and must stop."""

    def __init__(self, message: str, *, found: LedgerSequence) -> None:
        super().__init__(message, reason="Fenced")
        self.found = found


class Touched(msgspec.Struct, frozen=True):
    """The answer of a touch: from now on writes that carry an older resourceVersion are refused."""

    object: Any
    resource_version: str
    fence: LedgerSequence


def fence_of(annotations: Mapping[str, str]) -> LedgerSequence:
    """The fence an object carries, 0 for none or for one that is no number."""
    return LedgerSequence(whole_number(annotations.get(FENCE_ANNOTATION)))


class Writer:
    """Typed requests on one connection; `close` (or the end of ``async with``) writes the waiting Events."""

    def __init__(
        self,
        transport: Transport,
        *,
        component: str = "muster",
        instance: str = "",
        impersonate: str | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        timing: Timing | None = None,
        recorder: EventRecorder | None = None,
    ) -> None:
        self._transport = transport
        self._timeout = timeout_seconds
        self._headers = {"Impersonate-User": impersonate} if impersonate else {}
        self.recorder = recorder or EventRecorder(transport, component=component, instance=instance, timing=timing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Write the Events that wait, for a bounded time."""
        await self.recorder.close()

    def impersonating(self, user: str) -> "Writer":
        """A writer on the same connection whose requests the API server judges as this user's.

        Events are still recorded as ourselves.
        """
        return Writer(self._transport, impersonate=user, timeout_seconds=self._timeout, recorder=self.recorder)

    # Reading

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Any:
        """The object as its kind's struct. Raises NotFound."""
        info = kind_info(kind)
        return _decoded(info, await self._request("GET", info.path(namespace, name)))

    async def get_document(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any]:
        """The whole object as JSON values, to be changed and given to `replace`. Raises NotFound."""
        info = kind_info(kind)
        content = await self._request("GET", info.path(namespace, name))
        document: dict[str, Any] = msgspec.json.decode(content, type=dict[str, Any])
        return document

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Sequence[Any]:
        """Every matching object as its kind's struct; objects that do not fit their kind raise UnexpectedReply."""
        info = kind_info(kind)
        page = await list_all(
            self._transport,
            info,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
        )
        if page.malformed:
            bad = page.malformed[0]
            raise UnexpectedReply(f"list of {info.resource}: {bad.key or 'an object'}: {bad.message}")
        return page.items

    # Pods

    async def bind(
        self,
        namespace: str,
        name: str,
        *,
        uid: PodUid,
        resource_version: str,
        node: NodeName,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Bind a pod; the annotations arrive in the pod together with its node, atomically.

        Raises Conflict: `already_assigned` (with the node), or `precondition` when uid or resourceVersion differ, or
        neither when the pod has a scheduling gate. The API server checks neither that the node exists nor a cordon.
        """
        metadata = {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": resource_version,
            "annotations": dict(annotations or {}),
        }
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._request("POST", PODS.path(namespace, name, "binding"), body=body)

    async def evict(
        self, namespace: str, name: str, *, uid: PodUid, resource_version: str | None = None, grace: int | None = None
    ) -> None:
        """Evict a pod through the Eviction API; `grace` in seconds, None for the pod's own.

        Raises TooManyRequests with `disruption_budget` while a budget forbids it, Conflict on a failed precondition,
        NotFound.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": _delete_options(
                uid=uid, resource_version=resource_version, grace_period=grace, propagation=None
            ),
        }
        await self._request("POST", PODS.path(namespace, name, "eviction"), body=body)

    # Fences

    async def touch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str,
        fence: LedgerSequence,
        known: Any = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Touched:
        """Raise the object's fence to `fence`, never lower it; the answer is the object after that.

        A pod's answer says by `spec.node_name` whether and where it is bound. An object that carries exactly this
        fence (and these `annotations`, which are written with it) was touched by an earlier attempt and is not written
        again. `known` (a decoded object) saves the first read. Raises Fenced when the object carries a newer fence,
        NotFound when it or this uid is gone.
        """
        marks = annotations or {}
        info = kind_info(kind)
        current = known
        for _ in range(_TOUCH_ATTEMPTS):
            if current is None:
                current = await self.get(info, namespace, name)
            if current.metadata.uid != uid:
                found_uid = current.metadata.uid
                raise NotFound(f"touch {info.resource} {namespace}/{name}: uid {found_uid} is not the asked {uid}")
            found = fence_of(current.metadata.annotations)
            if found > fence:
                message = f"touch {info.resource} {namespace}/{name}: fence {found} is newer than ours, {fence}"
                raise Fenced(message, found=found)
            before = current.metadata.resource_version
            if found == fence:
                if current is known:
                    current = None
                    continue
                if marks.items() <= current.metadata.annotations.items():
                    return Touched(object=current, resource_version=before, fence=fence)
            written_marks = {**marks, FENCE_ANNOTATION: str(fence)}
            body = {"metadata": {"uid": uid, "resourceVersion": before, "annotations": written_marks}}
            try:
                written = await self.merge_patch(info, namespace, name, body)
            except Conflict:
                current = None
                continue
            after = written.metadata.resource_version
            if after == before or fence_of(written.metadata.annotations) != fence:
                raise UnexpectedReply(
                    f"touch {info.resource} {namespace}/{name}: the answer shows version {after} and fence "
                    f"{fence_of(written.metadata.annotations)}, expected a newer version than {before} and {fence}"
                )
            return Touched(object=written, resource_version=after, fence=fence)
        raise Conflict(
            f"touch {info.resource} {namespace}/{name}: changed {_TOUCH_ATTEMPTS} times while being read",
            precondition=True,
        )

    # Objects of any kind

    async def create(self, kind: Kind, namespace: str | None, obj: Mapping[str, Any]) -> Any:
        """Create; the answer is the created object as its kind's struct. Raises AlreadyExists, Invalid, Forbidden."""
        info = kind_info(kind)
        document = {"apiVersion": info.api_version, "kind": info.kind, **obj}
        return _decoded(info, await self._request("POST", info.path(namespace), body=document))

    async def replace(
        self, kind: Kind, namespace: str | None, name: str, obj: Mapping[str, Any], *, subresource: str | None = None
    ) -> Any:
        """Replace the whole object (PUT); metadata.resourceVersion in it is a precondition. Raises Conflict."""
        info = kind_info(kind)
        document = {"apiVersion": info.api_version, "kind": info.kind, **obj}
        return _decoded(info, await self._request("PUT", info.path(namespace, name, subresource), body=document))

    async def merge_patch(
        self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str | None = None
    ) -> Any:
        """JSON merge patch: null deletes, lists are replaced. A resourceVersion in its metadata is a precondition."""
        return await self._patch(kind, namespace, name, body, content_type=MERGE_PATCH, subresource=subresource)

    async def json_patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
    ) -> Any:
        """JSON patch: operations with test, add, replace, remove; a failed test raises Invalid."""
        body = list(operations)
        return await self._patch(kind, namespace, name, body, content_type=JSON_PATCH, subresource=subresource)

    async def strategic_patch(
        self, kind: Kind, namespace: str | None, name: str, body: Mapping[str, Any], *, subresource: str | None = None
    ) -> Any:
        """Strategic merge patch, which merges lists by key (conditions by type, taints by key). Built-in kinds only."""
        info = kind_info(kind)
        if info.custom:
            message = f"strategic patch of {info.resource}: custom kinds do not support it; use merge_patch"
            raise Invalid(message, status=415)
        return await self._patch(
            info, namespace, name, body, content_type=STRATEGIC_MERGE_PATCH, subresource=subresource
        )

    async def patch_status(self, kind: Kind, namespace: str | None, name: str, status: Mapping[str, Any]) -> Any:
        """Merge these fields into the object's status."""
        return await self.merge_patch(kind, namespace, name, {"status": dict(status)}, subresource="status")

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period: int | None = None,
        propagation: Propagation | None = None,
    ) -> None:
        """Delete; `grace_period` in seconds. Raises NotFound, Conflict on a failed precondition."""
        info = kind_info(kind)
        options = _delete_options(
            uid=uid, resource_version=resource_version, grace_period=grace_period, propagation=propagation
        )
        await self._request("DELETE", info.path(namespace, name), body=options)

    def record_event(
        self,
        regarding: ObjectReference,
        reason: str,
        message: str,
        *,
        type: EventType = "Normal",  # noqa: A002
    ) -> None:
        """Note an Event; never waits. See `muster.kube.recording`."""
        self.recorder.record(regarding, reason=reason, message=message, type=type)

    async def _patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any] | Sequence[Any],
        *,
        content_type: str,
        subresource: str | None,
    ) -> Any:
        info = kind_info(kind)
        content = await self._request(
            "PATCH", info.path(namespace, name, subresource), body=body, content_type=content_type
        )
        return _decoded(info, content)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        content_type: str | None = None,
    ) -> bytes:
        return await self._transport.request(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            headers=self._headers,
            timeout_seconds=self._timeout,
        )


def _decoded(info: KindInfo[Any], content: bytes) -> Any:
    try:
        return decode_object(info, content)
    except msgspec.DecodeError as error:
        raise UnexpectedReply(f"answer about {info.resource}: {error}") from error


def _delete_options(
    *, uid: str | None, resource_version: str | None, grace_period: int | None, propagation: Propagation | None
) -> dict[str, Any]:
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    present = {name: value for name, value in preconditions.items() if value is not None}
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if present:
        options["preconditions"] = present
    if grace_period is not None:
        options["gracePeriodSeconds"] = grace_period
    if propagation is not None:
        options["propagationPolicy"] = propagation
    return options
