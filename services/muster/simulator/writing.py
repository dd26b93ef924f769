"""POST, PUT, PATCH and DELETE: from bodies and options to the store, with field validation on the way."""

from typing import Any

import orjson
import yaml
from aiohttp import web

from muster.simulator import pods
from muster.simulator.answers import json_bytes, json_object, success
from muster.simulator.errors import ApiError, JsonObject, bad_request, unsupported_media_type
from muster.simulator.field_checks import checked_fields
from muster.simulator.patching import APPLY_PATCH
from muster.simulator.protobuf import PROTOBUF_TYPE, decode_body
from muster.simulator.reading import Reader
from muster.simulator.routing import Target, is_dry_run, parse_list_options, whole
from muster.simulator.scaling import scale_of
from muster.simulator.store import Store
from muster.simulator.transitions import unconditional_update_error
from muster.simulator.views import View

_YAML_TYPES = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})
# Kinds the real server does not update without a resourceVersion.
_CONDITIONAL = frozenset({"leases.coordination.k8s.io", "customresourcedefinitions.apiextensions.k8s.io"})
_REVIEWS = frozenset({"selfsubjectaccessreviews", "subjectaccessreviews"})


async def read_body(request: web.BaseRequest) -> Any:
    """The parsed body; 400 when it cannot be read, 415 for protobuf, None when there is none."""
    try:
        raw = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise ApiError(413, "RequestEntityTooLarge", message=f"Request entity is too large: {error.text}") from error
    if not raw:
        return None
    content_type = request.content_type
    if content_type in _YAML_TYPES or content_type == APPLY_PATCH:
        try:
            return yaml.safe_load(raw)
        except yaml.YAMLError as error:
            raise bad_request(f"the object provided is unrecognized (must be of type Object): {error}") from error
    if content_type == PROTOBUF_TYPE:
        return decode_body(raw)
    if "Content-Type" in request.headers and not content_type.endswith("json"):
        raise unsupported_media_type(
            f"the body of the request was in an unknown format ({content_type}) - accepted media types include: "
            "application/json, application/yaml"
        )
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type Object): {error}") from error


def _object(body: Any) -> JsonObject:
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized (must be of type Object)")
    return body


class Writer:
    """Answers write requests by changing a store."""

    def __init__(self, store: Store, reader: Reader) -> None:
        self._store = store
        self._reader = reader

    def _view(self, target: Target) -> View:
        return View(target.resource_type, target.version, self._store.registry)

    def create(self, request: web.BaseRequest, target: Target, body: Any) -> web.Response:
        """POST of an object or of a pod's binding or eviction."""
        obj = _object(body)
        dry_run = is_dry_run(request.query)
        if target.subresource is not None:
            return self._create_subresource(target, obj, dry_run=dry_run)
        _check_kind(target, obj)
        if target.resource_type.key == "bindings":
            return self._create_binding(target, obj, dry_run=dry_run)
        if target.resource_type.namespaced and target.namespace is None:
            raise ApiError(
                405, "MethodNotAllowed", message="the server does not allow this method on the requested resource"
            )
        view = self._view(target)
        if (obj.get("metadata") or {}).get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        headers = checked_fields(target, obj, request.query.get("fieldValidation", ""))
        record = self._store.create_owned(view.stored, view.keep(obj), namespace=target.namespace, dry_run=dry_run)
        return json_bytes(view.raw(record), status=201, headers=headers)

    def _create_subresource(self, target: Target, obj: JsonObject, *, dry_run: bool) -> web.Response:
        if target.resource_type.key != "pods" or target.subresource not in {"binding", "eviction"}:
            raise ApiError(
                405, "MethodNotAllowed", message="the server does not allow this method on the requested resource"
            )
        assert target.namespace is not None
        assert target.name is not None
        if target.subresource == "binding":
            pods.bind(self._store, target.namespace, target.name, obj, dry_run=dry_run)
        else:
            options = obj.get("deleteOptions") or {}
            dry_run = dry_run or "All" in (options.get("dryRun") or ())
            pods.evict(self._store, target.namespace, target.name, obj, dry_run=dry_run)
        return json_object(success(201), status=201)

    def _create_binding(self, target: Target, obj: JsonObject, *, dry_run: bool) -> web.Response:
        """POST of a Binding to the collection of bindings, the older spelling of pods/NAME/binding."""
        name = (obj.get("metadata") or {}).get("name")
        if not name or target.namespace is None:
            raise bad_request("metadata.name: a Binding must name its pod")
        pods.bind(self._store, target.namespace, name, obj, dry_run=dry_run)
        return json_object(success(201), status=201)

    def update(self, request: web.BaseRequest, target: Target, body: Any) -> web.Response:
        """PUT of an object, its status, its scale or a namespace's finalizers."""
        obj = _object(body)
        view = self._view(target)
        self._check_subresource(target)
        assert target.name is not None
        headers: dict[str, str] = {}
        if target.subresource == "scale":
            scale_metadata = obj.get("metadata") or {}
            obj = {
                "spec": obj.get("spec"),
                "metadata": {"name": target.name, "resourceVersion": scale_metadata.get("resourceVersion")},
            }
        else:
            _check_kind(target, obj)
            headers = checked_fields(target, obj, request.query.get("fieldValidation", ""))
            conditional = target.resource_type.custom or target.resource_type.key in _CONDITIONAL
            if conditional and not (obj.get("metadata") or {}).get("resourceVersion"):
                self._store.record(view.stored, target.namespace, target.name)
                raise unconditional_update_error(target.resource_type, target.name)
        record = self._store.update_owned(
            view.stored,
            view.keep(obj),
            subresource=target.subresource,
            namespace=target.namespace,
            name=target.name,
            dry_run=is_dry_run(request.query),
        )
        if target.subresource == "scale":
            return json_object(scale_of(view.stored, record.obj))
        return json_bytes(view.raw(record), headers=headers)

    def patch(self, request: web.BaseRequest, target: Target, body: Any) -> web.Response:
        """PATCH by content type."""
        view = self._view(target)
        self._check_subresource(target)
        assert target.name is not None
        mode = request.query.get("fieldValidation", "")
        headers: dict[str, str] = {}

        def inspect(patched: JsonObject) -> JsonObject:
            if target.subresource == "scale":
                return patched
            copied: JsonObject = orjson.loads(
                orjson.dumps(patched)
            )  # the patched object shares parts with the stored one
            headers.update(checked_fields(target, copied, mode))
            return copied if copied != patched else patched

        record = self._store.patch_owned(
            view.stored,
            target.namespace,
            target.name,
            body,
            content_type=request.content_type,
            subresource=target.subresource,
            dry_run=is_dry_run(request.query),
            inspect=inspect,
        )
        if target.subresource == "scale":
            return json_object(scale_of(view.stored, record.obj))
        return json_bytes(view.raw(record), headers=headers)

    def _check_subresource(self, target: Target) -> None:
        known = {"status"} if target.resource_type.status else set()
        known |= set(target.resource_type.subresources) - {"binding", "eviction"}
        if target.resource_type.scale is not None:
            known.add("scale")
        if target.subresource is not None and target.subresource not in known:
            raise ApiError(404, "NotFound", message="the server could not find the requested resource")

    def delete(self, request: web.BaseRequest, target: Target, body: Any) -> web.Response:
        """DELETE of one object."""
        assert target.name is not None
        if target.subresource is not None:
            raise ApiError(
                405, "MethodNotAllowed", message="the server does not allow this method on the requested resource"
            )
        view = self._view(target)
        options = body if isinstance(body, dict) else {}
        deleted = self._store.delete(
            view.stored.key,
            target.namespace,
            target.name,
            **_delete_options(request, options),
            preconditions=options.get("preconditions"),
        )
        return json_object(view.show(deleted) if deleted.get("kind") != "Status" else deleted)

    def delete_collection(self, request: web.BaseRequest, target: Target, body: Any) -> web.Response:
        """DELETE of everything the selectors choose."""
        view = self._view(target)
        options = body if isinstance(body, dict) else {}
        records, metadata = self._reader.page(target, view, parse_list_options(request.query, target))
        items: list[JsonObject] = []
        for record in records:
            found = record.obj["metadata"]
            deleted = self._store.delete(
                view.stored.key, found.get("namespace"), found["name"], **_delete_options(request, options)
            )
            items.append(view.show(record.obj if deleted.get("kind") == "Status" else deleted))
        metadata["resourceVersion"] = str(self._store.version)
        listed: JsonObject = {"kind": target.resource_type.kind + "List", "apiVersion": target.api_version}
        return json_object({**listed, "metadata": metadata, "items": items})


def _delete_options(request: web.BaseRequest, options: JsonObject) -> dict[str, Any]:
    grace = options.get("gracePeriodSeconds")
    if grace is None:
        grace = whole(request.query, "gracePeriodSeconds")
    propagation = options.get("propagationPolicy") or request.query.get("propagationPolicy") or "Background"
    if propagation not in {"Background", "Foreground", "Orphan"}:
        raise bad_request(f"propagationPolicy: {propagation!r} must be Background, Foreground or Orphan")
    if options.get("orphanDependents"):
        propagation = "Orphan"
    dry_run = is_dry_run(request.query) or "All" in (options.get("dryRun") or ())
    return {"grace_period": grace, "propagation": propagation, "dry_run": dry_run}


def _check_kind(target: Target, obj: JsonObject) -> None:
    """400 when the body names another kind or version than the path."""
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    wanted = target.resource_type.kind
    if kind and kind != wanted:
        raise bad_request(
            f'{wanted} in version "{target.version}" cannot be handled as a {wanted}: converting (kind: {kind}) to {wanted}: '
            "the object's kind does not match the path"
        )
    if api_version and api_version != target.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version ({target.api_version})"
        )


def review_answer(plural: str, body: Any) -> JsonObject | None:
    """The answer to an access review: everything is allowed here; None for other resources."""
    if plural not in _REVIEWS:
        return None
    return {**_object(body), "status": {"allowed": True, "reason": "the simulated API server allows everything"}}
