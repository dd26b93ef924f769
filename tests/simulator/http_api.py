"""A small raw client for tests of the simulated API server: verbs, and watches as lists of events."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from muster.simulator.server import SimulatedServer
from muster.simulator.store import Store

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


class Watching:
    """An open watch; `next` gives the next event as (type, object)."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, dict[str, Any]] | None:
        """The next event; None at the end of the stream."""
        async with asyncio.timeout(10):
            line = await self.response.content.readline()
        if not line:
            return None
        event = json.loads(line)
        return event["type"], event["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        """The next `count` events as (type, name)."""
        found = []
        for _ in range(count):
            event = await self.next()
            assert event is not None
            found.append((event[0], event[1]["metadata"].get("name", "")))
        return found


class Api:
    """Requests against one server; answers are (status, body)."""

    def __init__(self, session: aiohttp.ClientSession, server: SimulatedServer) -> None:
        self.session = session
        self.server = server
        self.store = server.store

    async def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **headers: str
    ) -> tuple[int, Any]:
        """Send one request; keyword arguments are headers (underscores become dashes)."""
        data = None if body is None else body if isinstance(body, str | io.BytesIO) else json.dumps(body)
        sent = {"Content-Type": content_type} if data is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(method, self.server.url + path, data=data, headers=sent) as response:
            raw = await response.read()
            if response.content_type.startswith("application/json"):
                return response.status, json.loads(raw)
            return response.status, raw.decode()

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return await self.call("GET", path, **headers)

    @asynccontextmanager
    async def watch(self, path: str, **headers: str) -> AsyncIterator[Watching]:
        """Open a watch on a path that already has its query."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.get(self.server.url + path, headers=sent) as response:
            assert response.status == 200, await response.text()
            yield Watching(response)


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Api]:
    """A store with its server and a client; options go to the Store, bookmark_seconds to the server."""
    bookmark_seconds = options.pop("bookmark_seconds", 30.0)
    store = Store(**{"seed": 1, **options})
    server = SimulatedServer(store, bookmark_seconds=bookmark_seconds)
    await server.start()
    try:
        async with aiohttp.ClientSession() as session:
            yield Api(session, server)
    finally:
        await server.stop()


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A minimal pod; `labels` and `annotations` go to its metadata, everything else to its spec."""
    metadata: dict[str, Any] = {"name": name}
    for field in ("labels", "annotations", "finalizers"):
        if field in spec:
            metadata[field] = spec.pop(field)
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "x:1"}], **spec}}


def definition(
    schema: dict[str, Any] | None = None, *, plural: str = "widgets", kind: str = "Widget", **version: Any
) -> dict[str, Any]:
    """A namespaced CRD of group example.com with a status subresource."""
    spec = schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": ["wd"], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": spec,
                                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            },
                        }
                    },
                    **version,
                }
            ],
        },
    }


CRDS = "customresourcedefinitions.apiextensions.k8s.io"
