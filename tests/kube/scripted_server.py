"""An HTTP server that answers from a script: each request takes the next answer, and is noted."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import yaml
from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: object


@dataclass
class ScriptedServer:
    url: str = ""
    script: list[Answer] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    forever: Answer | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        self.seen.append(
            Seen(
                request.method,
                request.path,
                dict(request.query),
                dict(request.headers),
                json.loads(content) if content else None,
            )
        )
        answer = self.script.pop(0) if self.script else self.forever
        if answer is None:
            return web.json_response({"code": 500, "message": "the script has ended"}, status=500)
        return await answer(request)

    def write_kubeconfig(self, path, *, token: str = "first"):
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(document))
        return path


@asynccontextmanager
async def serving():
    server = ScriptedServer()
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{rest:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def replies(document, *, status: int = 200, headers=None) -> Answer:
    async def answer(request):
        return web.json_response(document, status=status, headers=headers)

    return answer


def says(text: str, *, status: int) -> Answer:
    async def answer(request):
        return web.Response(text=text, status=status)

    return answer


def status_reply(code: int, reason: str, message: str, *, headers=None, details=None) -> Answer:
    document = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details or {}}
    return replies(document, status=code, headers=headers)


def streams(*parts: bytes, then: str = "end", pause: float = 0.0) -> Answer:
    """Send the parts, then end cleanly, reset the connection, or hang."""

    async def answer(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(pause)
        if then == "reset":
            request.transport.abort()
        if then == "hang":
            await asyncio.sleep(60)
        return response

    return answer


def resets() -> Answer:
    async def answer(request):
        request.transport.abort()
        return web.Response()

    return answer


def hangs() -> Answer:
    async def answer(request):
        await asyncio.sleep(60)
        return web.Response()

    return answer


def event(kind: str, obj: dict) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def pod(name: str, version: int, *, uid: str | None = None, namespace: str = "team", **extra) -> dict:
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": {**metadata, **extra.pop("metadata", {})}, **extra}


def listing(version: int, *items: dict, token: str = "") -> Answer:
    return replies({"metadata": {"resourceVersion": str(version), "continue": token}, "items": list(items)})
