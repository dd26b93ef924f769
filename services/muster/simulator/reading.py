"""GET, LIST and WATCH.

A list is a state at one version: the present one, an exact earlier one, or the one its continue token names. A watch
sends, in this order: the present objects (when asked from nowhere or with sendInitialEvents), the bookmark that ends
them, what the log holds since the asked version, then every change as it happens, with bookmarks between, until its
timeout, a fault, or a buffer that its client let run full.
"""

import asyncio
from collections.abc import Iterable

import orjson
from aiohttp import web

from muster.simulator.answers import (
    decode_continue,
    encode_continue,
    json_bytes,
    json_object,
    list_bytes,
    table_of,
    wants_metadata,
    wants_table,
)
from muster.simulator.errors import ApiError, JsonObject, expired
from muster.simulator.faults import Faults
from muster.simulator.routing import ListOptions, Target, parse_list_options
from muster.simulator.scaling import scale_of
from muster.simulator.store import Store
from muster.simulator.views import View
from muster.simulator.watching import ADDED, ERROR_START, Change, Record, Table, Watch, error_line, watch_line

DEFAULT_WATCH_SECONDS = 1800.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Reader:
    """Answers read requests from a store; `bookmark_seconds` is how often an idle watch sends a bookmark."""

    def __init__(self, store: Store, faults: Faults, *, bookmark_seconds: float) -> None:
        self._store = store
        self._faults = faults
        self._bookmark_seconds = bookmark_seconds

    def get(self, request: web.BaseRequest, target: Target) -> web.Response:
        """One object, its Table row, or its scale."""
        view = View(target.resource_type, target.version, self._store.registry)
        assert target.name is not None
        record = self._store.record(view.stored, target.namespace, target.name)
        if target.subresource == "scale":
            return json_object(scale_of(view.stored, record.obj))
        if target.subresource == "log":
            return web.Response(text="", content_type="text/plain")
        if target.subresource not in {None, "status"}:
            raise ApiError(405, "MethodNotAllowed", message=f"{target.subresource}: this subresource cannot be read")
        accept = request.headers.get("Accept", "")
        if wants_table(accept):
            metadata = {"resourceVersion": str(record.version)}
            return json_object(self._table(request, target, view, [record], metadata))
        if wants_metadata(accept):
            return json_object(_only_metadata(record.obj))
        return json_bytes(view.raw(record))

    def get_list(self, request: web.BaseRequest, target: Target) -> web.Response:
        """A list, whole or by pages."""
        view = View(target.resource_type, target.version, self._store.registry)
        options = parse_list_options(request.query, target)
        records, metadata = self.page(target, view, options)
        accept = request.headers.get("Accept", "")
        if wants_table(accept):
            return json_object(self._table(request, target, view, records, metadata))
        if wants_metadata(accept):
            items = [_only_metadata(record.obj) for record in records]
            body = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "items": items,
            }
            return json_object(body)
        return json_bytes(list_bytes(target, view, records, metadata))

    def page(self, target: Target, view: View, options: ListOptions) -> tuple[list[Record], JsonObject]:
        """The records of one page and the list's metadata."""
        table = self._store.table(view.stored.key)
        version, after = self._store.version, None
        if options.continue_token:
            version, after = decode_continue(options.continue_token)
        elif options.version is not None:
            self._check_reached(options.version)
            if options.version_match == "Exact":
                version = options.version
        if version == self._store.version:
            records = self._current(table, target.namespace, options.name)
        else:
            records = self._earlier(table, target.namespace, version)
        if options.selector is not None:
            selector = options.selector
            records = [record for record in records if selector(record.obj)]
        if after is not None:
            records = [record for record in records if _key(record) > after]
        metadata: JsonObject = {"resourceVersion": str(version)}
        if options.limit and len(records) > options.limit:
            left = len(records) - options.limit
            records = records[: options.limit]
            metadata["continue"] = encode_continue(version, _key(records[-1]))
            if options.selector is None:
                metadata["remainingItemCount"] = left
        return records, metadata

    @staticmethod
    def _current(table: Table, namespace: str | None, name: str | None) -> list[Record]:
        if name is not None and namespace is not None:
            found = table.get((namespace, name))
            return [] if found is None else [found]
        return list(table.records(namespace))

    @staticmethod
    def _earlier(table: Table, namespace: str | None, version: int) -> list[Record]:
        try:
            return table.records_at(version, namespace)
        except ApiError as error:
            raise expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list "
                "without the continue parameter."
            ) from error

    def _check_reached(self, version: int) -> None:
        if version > self._store.version:
            raise ApiError(
                504,
                "Timeout",
                message=f"Timeout: Too large resource version: {version}, current: {self._store.version}",
                details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]},
                retry_after=1,
            )

    def _table(
        self, request: web.BaseRequest, target: Target, view: View, records: Iterable[Record], metadata: JsonObject
    ) -> JsonObject:
        return table_of(
            target,
            view,
            (record.obj for record in records),
            now=self._store.clock.now(),
            metadata=metadata,
            include=request.query.get("includeObject", "Metadata"),
        )

    # -- watching ------------------------------------------------------------------------------------------------

    async def watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Stream changes until the client leaves or the watch ends."""
        view = View(target.resource_type, target.version, self._store.registry)
        options = parse_list_options(request.query, target)
        if self._faults.http_expired and options.version:
            raise expired(f"too old resource version: {options.version} ({self._store.version})")
        encoder = _Encoder(self, request, target, view)
        key = view.stored.key
        # The stream opens before anything is waited for, so that no change falls between the state and the buffer.
        watch = self._store.watch(key, namespace=target.namespace, selector=options.selector)
        try:
            first = self._first_lines(target, view, options, encoder)
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            response.enable_chunked_encoding()
            await response.prepare(request)
            if first:
                await response.write(first)
            if not first.startswith(ERROR_START):
                await self._follow(response, watch, options, encoder, key=key)
            await response.write_eof()
        finally:
            self._store.unwatch(key, watch)
        return response

    def _first_lines(self, target: Target, view: View, options: ListOptions, encoder: "_Encoder") -> bytes:
        table = self._store.table(view.stored.key)
        from_nowhere = options.version in {None, 0}
        if options.initial_events or (options.initial_events is None and from_nowhere):
            selector = options.selector
            lines = [
                encoder.initial(record)
                for record in self._current(table, target.namespace, options.name)
                if selector is None or selector(record.obj)
            ]
            if options.initial_events and options.bookmarks:
                lines.append(encoder.bookmark(annotations={INITIAL_EVENTS_END: "true"}))
            return b"".join(lines)
        if from_nowhere:
            return b""
        assert options.version is not None
        if options.version > self._store.version:  # a version this store never reached: it was emptied since
            return error_line(expired(f"too old resource version: {options.version} ({self._store.version})"))
        try:
            missed = table.since(options.version)
        except ApiError as error:
            return error_line(error)
        inside = [change for change in missed if target.namespace is None or change.key[0] == target.namespace]
        return encoder.changes(inside, options)

    async def _follow(
        self, response: web.StreamResponse, watch: Watch, options: ListOptions, encoder: "_Encoder", *, key: str
    ) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + (options.timeout or DEFAULT_WATCH_SECONDS)
        while watch.closed is None:
            left = end - loop.time()
            if left <= 0:
                break
            try:
                await watch.wait(min(left, self._bookmark_seconds))
            except TimeoutError:
                if options.bookmarks:
                    await response.write(encoder.bookmark())
                continue
            await self._faults.released(key)
            lines = encoder.changes(watch.take(), options)
            if lines:
                await response.write(lines)
        if watch.final:
            await response.write(watch.final)

    @property
    def now(self) -> float:
        """The simulated time."""
        return self._store.clock.now()

    @property
    def version(self) -> int:
        """The present resourceVersion."""
        return self._store.version


class _Encoder:
    """Lines of one watch: stored bytes where possible, otherwise the other version, a Table or metadata only."""

    def __init__(self, reader: Reader, request: web.BaseRequest, target: Target, view: View) -> None:
        self._reader = reader
        self._target = target
        self._view = view
        accept = request.headers.get("Accept", "")
        self._table = wants_table(accept)
        self._metadata = wants_metadata(accept)
        self._include = request.query.get("includeObject", "Metadata")
        self._plain = view.identical and not self._table and not self._metadata

    def _raw(self, record: Record) -> bytes:
        if self._table:
            metadata = {"resourceVersion": str(record.version)}
            table = table_of(
                self._target, self._view, [record.obj], now=self._reader.now, metadata=metadata, include=self._include
            )
            return orjson.dumps(table)
        if self._metadata:
            return orjson.dumps(_only_metadata(record.obj))
        return self._view.raw(record)

    def initial(self, record: Record) -> bytes:
        """An object that is there when the watch starts."""
        return watch_line(ADDED, record.raw if self._plain else self._raw(record))

    def changes(self, changes: Iterable[Change], options: ListOptions) -> bytes:
        """The lines of some changes, as the watch's selector sees them."""
        if self._plain and options.selector is None:
            return b"".join([change.encoded for change in changes])
        lines: list[bytes] = []
        for change in changes:
            event_type = change.seen_through(options.selector)
            if event_type is None:
                continue
            if self._plain and event_type == change.type:
                lines.append(change.encoded)
            else:
                lines.append(watch_line(event_type, self._raw(change.shown(event_type))))
        return b"".join(lines)

    def bookmark(self, *, annotations: dict[str, str] | None = None) -> bytes:
        """A BOOKMARK at the present version."""
        metadata: JsonObject = {"resourceVersion": str(self._reader.version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        shown = {"kind": self._target.resource_type.kind, "apiVersion": self._target.api_version, "metadata": metadata}
        if self._table:
            shown = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata,
                "columnDefinitions": [],
                "rows": [],
            }
        return watch_line("BOOKMARK", orjson.dumps(shown))


def _key(record: Record) -> tuple[str, str]:
    metadata = record.obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _only_metadata(obj: JsonObject) -> JsonObject:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
