"""A tiny API server without HTTP: one counter of versions, a log to watch, and failures on demand.

It implements `muster.kube.transport.Transport` for one kind, with paging, bookmarks, compaction and merge patches,
so that thousands of interleavings can be tried in a second.
"""

import asyncio
import json
from contextlib import asynccontextmanager

from muster.kube.errors import AlreadyExists, Conflict, Gone, KubeError, NotFound, Unavailable

EXPIRED = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


class MemoryApi:
    def __init__(self) -> None:
        self.version = 100
        self.objects: dict[str, dict] = {}
        self.log: list[tuple[int, str, dict]] = []
        self.compacted = 100
        self.requests: list[tuple[str, str]] = []
        self.failures: list[KubeError | None] = []
        self.lose_answers = 0
        self.hang = False
        self.expire_over_http = False
        self.expire_pages = 0
        self.chunk_size = 10_000
        self.open_streams = 0
        self._cut: KubeError | str | None = None
        self._cut_serial = 0
        self._changed = asyncio.Event()
        self._uids = 0

    # What happens on the server

    def create(self, key: str, **fields) -> dict:
        namespace, _, name = key.rpartition("/")
        self._uids += 1
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{self._uids}", **fields.pop("metadata", {})}
        return self._store("ADDED", key, {"metadata": metadata, **fields})

    def update(self, key: str, **fields) -> dict:
        old = self.objects[key]
        return self._store("MODIFIED", key, {**old, **fields, "metadata": dict(old["metadata"])})

    def delete(self, key: str) -> None:
        gone = self.objects.pop(key)
        self._log("DELETED", {**gone, "metadata": dict(gone["metadata"])})

    def bookmark(self) -> None:
        """Tell watchers that nothing else happened."""
        self.log.append((self.version, "BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}))
        self._wake()

    def compact(self) -> None:
        """Forget the log: a watch from before now is expired."""
        self.compacted = self.version
        self.log.clear()
        self.cut("end")

    def cut(self, how: "KubeError | str") -> None:
        """End every open stream: 'end' cleanly, 'torn' in the middle of a line, or with an error."""
        self._cut = how
        self._cut_serial += 1
        self._wake()

    def _store(self, kind: str, key: str, obj: dict) -> dict:
        self.objects[key] = obj
        self._log(kind, obj)
        return obj

    def _log(self, kind: str, obj: dict) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.log.append((self.version, kind, json.loads(json.dumps(obj))))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # What clients ask

    async def request(self, method, path, *, query=(), body=None, content_type=None, headers=None, timeout_seconds):
        self.requests.append((method, path))
        await asyncio.sleep(0)
        if self.hang:
            await asyncio.get_running_loop().create_future()
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        answer = self._answer(method, path, dict(query), body)
        if method != "GET" and self.lose_answers:
            self.lose_answers -= 1
            raise Unavailable(f"{method} {path}: no answer in time", cause="timeout", unknown_outcome=True)
        return json.dumps(answer).encode()

    def _answer(self, method: str, path: str, query: dict, body):
        parts = path.split("/namespaces/", 1)[-1].split("/")
        if method == "GET" and len(parts) != 3:
            return self._page(query)
        key = f"{parts[0]}/{body['metadata']['name'] if method == 'POST' else parts[2]}"
        if method == "POST":
            if key in self.objects:
                raise AlreadyExists(f"{key} exists", status=409, reason="AlreadyExists")
            return self.create(key, spec=body["spec"], metadata={"annotations": body["metadata"].get("annotations")})
        if key not in self.objects:
            raise NotFound(f"{key} not found")
        if method == "PATCH":
            wanted = body["metadata"].get("resourceVersion")
            if wanted is not None and wanted != self.objects[key]["metadata"]["resourceVersion"]:
                raise Conflict(f"{key}: the object has been modified", precondition=True)
            merged = merge(self.objects[key], body)
            return self._store("MODIFIED", key, merged)
        return self.objects[key]

    def _page(self, query: dict):
        if "continue" in query and self.expire_pages:
            self.expire_pages -= 1
            raise Gone("continue token expired", status=410, reason="Expired")
        version, start, listed = self.version, 0, list(self.objects.values())
        if "continue" in query:
            version, start, listed = self._snapshots[query["continue"]]
        limit = int(query.get("limit", 10**9))
        page = listed[start : start + limit]
        metadata = {"resourceVersion": str(version)}
        if start + limit < len(listed):
            token = f"t{version}-{start + limit}"
            self._snapshots[token] = (version, start + limit, listed)
            metadata["continue"] = token
        return {"metadata": metadata, "items": page or None}

    @property
    def _snapshots(self) -> dict:
        return self.__dict__.setdefault("snapshots", {})

    @asynccontextmanager
    async def stream(self, path, *, query=(), open_timeout_seconds, read_timeout_seconds):
        self.requests.append(("WATCH", path))
        await asyncio.sleep(0)
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        since = int(dict(query)["resourceVersion"])
        if since < self.compacted and self.expire_over_http:
            raise Gone("too old resource version", status=410, reason="Expired")
        self.open_streams += 1
        try:
            yield self._chunks(since)
        finally:
            self.open_streams -= 1

    async def _chunks(self, since: int):
        if since < self.compacted:
            yield json.dumps({"type": "ERROR", "object": EXPIRED}).encode() + b"\n"
            return
        serial = self._cut_serial
        sent = next((at for at, entry in enumerate(self.log) if entry[0] > since), len(self.log))
        while True:
            changed = self._changed
            while self._cut_serial == serial and sent < len(self.log):
                _, kind, obj = self.log[sent]
                sent += 1
                line = json.dumps({"type": kind, "object": obj}).encode() + b"\n"
                for start in range(0, len(line), self.chunk_size):
                    yield line[start : start + self.chunk_size]
            if self._cut_serial != serial:
                if isinstance(self._cut, KubeError):
                    raise self._cut
                if self._cut == "torn":
                    yield b'{"type":"MODIFIED","object":{"metadata":{"name":"to'
                return
            await changed.wait()


def merge(target, patch):
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged
