"""The HTTP side of the simulated API server.

    request ─► count the verb ─► fault rules ─► discovery, health, debug
                                             └► Target ─► Reader (get, list, watch) or Writer ─► Store

It speaks plain HTTP on a local address and lets everybody in; what each user agent does is counted, so that the RBAC
rules of the charts can be checked against what the services really ask for (GET /debug/verbs).
"""

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from muster.simulator import discovery, openapi
from muster.simulator.answers import accepts_json, error_answer, json_object
from muster.simulator.errors import ApiError, JsonObject, no_such_path
from muster.simulator.faults import ConnectionReset, Faults
from muster.simulator.reading import Reader
from muster.simulator.routing import Target, parse_target, verb_of
from muster.simulator.store import Store
from muster.simulator.writing import Writer, read_body, review_answer

LOG = logging.getLogger(__name__)
MAX_BODY_BYTES = 3 * 1024 * 1024  # what the real server takes
KEEP_ALIVE_SECONDS = 120.0
BOOKMARK_SECONDS = 30.0
"""How often a watch that nothing happens on is told the present version; a real server does about once a minute."""
_HEALTH_PATHS = frozenset({"/healthz", "/readyz", "/livez"})


class SimulatedServer:
    """Serves a store over HTTP; `start` and `stop` may alternate, as when an API server is restarted."""

    def __init__(
        self, store: Store, *, faults: Faults | None = None, bookmark_seconds: float = BOOKMARK_SECONDS
    ) -> None:
        self.store = store
        self.faults = faults if faults is not None else Faults()
        self.faults.attach(store)
        self.verbs: Counter[tuple[str, str, str]] = Counter()
        self._reader = Reader(store, self.faults, bookmark_seconds=bookmark_seconds)
        self._writer = Writer(store, self._reader)
        self._runner: web.ServerRunner | None = None
        self._address = ("127.0.0.1", 0)

    # -- life ----------------------------------------------------------------------------------------------------

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one."""
        if self._runner is not None:
            raise RuntimeError(f"the server already listens on {self.url}")
        server = web.Server(
            self._handle,
            request_factory=_make_request,
            handler_cancellation=True,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            access_log=None,
        )
        runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, host, port, backlog=1024).start()
        self._runner = runner
        bound = runner.addresses[0]
        self._address = (bound[0], bound[1])

    async def stop(self) -> None:
        """End all watches and stop listening; harmless when the server is stopped."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for watch in self.store.open_watches():
            watch.close("stopped")
        await runner.cleanup()

    @property
    def port(self) -> int:
        """The TCP port."""
        return self._address[1]

    @property
    def url(self) -> str:
        """Where clients connect."""
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def kubeconfig(self) -> JsonObject:
        """A kubeconfig that points here."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "simulated", "cluster": {"server": self.url}}],
            "users": [{"name": "simulated", "user": {}}],
            "contexts": [
                {"name": "simulated", "context": {"cluster": "simulated", "user": "simulated", "namespace": "default"}}
            ],
            "current-context": "simulated",
        }

    def write_kubeconfig(self, path: str | Path) -> Path:
        """Write the kubeconfig, readable by its owner only; returns its path."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_text(yaml.safe_dump(self.kubeconfig()))
        return target

    # -- requests ------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ApiError as error:
            return error_answer(error)
        except ConnectionReset:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)
        except (ConnectionError, asyncio.CancelledError, web.HTTPException):
            raise
        except Exception as error:
            LOG.exception("request failed: %s %s", request.method, request.path)
            return error_answer(ApiError(500, "InternalError", message=f"Internal error occurred: {error!r}"))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        parts = path.strip("/").split("/")
        is_resource = (parts[0] == "api" and len(parts) > 2) or (parts[0] == "apis" and len(parts) > 3)
        if not is_resource:
            return await self._answer_other(request, path, parts)
        target = parse_target(path, self.store.registry)
        query = request.query
        verb = verb_of(request.method, target, query)
        agent = request.headers.get("User-Agent", "")
        self.verbs[agent, verb, target.label] += 1
        rule = self.faults.find(verb=verb, resource=target.label, user_agent=agent)
        if rule is not None:
            await self.faults.apply_before(rule)
        if target.subresource != "log" and not accepts_json(request.headers.get("Accept", "")):
            raise ApiError(
                406, "NotAcceptable", message="only the following media types are accepted: application/json"
            )
        answer = await self._serve(request, target, verb)
        if rule is not None and rule.action == "lose_answer":
            raise ConnectionReset
        return answer

    async def _serve(self, request: web.BaseRequest, target: Target, verb: str) -> web.StreamResponse:
        match verb:
            case "get":
                return self._reader.get(request, target)
            case "list":
                return self._reader.get_list(request, target)
            case "watch":
                return await self._reader.watch(request, target)
            case _:
                body = await read_body(request)
        match verb:
            case "create":
                review = review_answer(target.resource_type.plural, body)
                if review is not None:
                    return json_object(review, status=201)
                return self._writer.create(request, target, body)
            case "update":
                return self._writer.update(request, target, body)
            case "patch":
                return self._writer.patch(request, target, body)
            case "delete":
                return self._writer.delete(request, target, body)
            case _:
                return self._writer.delete_collection(request, target, body)

    async def _answer_other(self, request: web.BaseRequest, path: str, parts: list[str]) -> web.Response:
        registry = self.store.registry
        if path in _HEALTH_PATHS:
            return web.Response(text="ok")
        match parts:
            case ["version"]:
                return json_object(discovery.SERVER_VERSION)
            case ["api" | "apis"]:
                return self._discovery_root(request, core=parts == ["api"])
            case ["api", version]:
                return json_object(discovery.api_resources(registry, "", version))
            case ["apis", group]:
                return json_object(discovery.api_group(registry, group))
            case ["apis", group, version]:
                return json_object(discovery.api_resources(registry, group, version))
            case ["openapi", "v2"]:
                if openapi.PROTOBUF_V2_ACCEPT in request.headers.get("Accept", ""):
                    headers = {"Content-Type": openapi.PROTOBUF_V2_TYPE}
                    return web.Response(body=openapi.document_v2_protobuf(), headers=headers)
                return json_object(openapi.document_v2())
            case ["openapi", "v3"]:
                return json_object(openapi.index(registry))
            case ["openapi", "v3", "api", version]:
                return json_object(openapi.document(registry, "", version))
            case ["openapi", "v3", "apis", group, version]:
                return json_object(openapi.document(registry, group, version))
            case ["debug", "verbs"]:
                return json_object(self._verbs_seen())
            case ["debug", "faults"]:
                if request.method == "POST":
                    self.faults.load(await read_body(request) or {})
                elif request.method == "DELETE":
                    self.faults.clear()
                return json_object(self.faults.describe())
            case _:
                raise no_such_path()

    def _discovery_root(self, request: web.BaseRequest, *, core: bool) -> web.Response:
        registry = self.store.registry
        if "as=APIGroupDiscoveryList" in request.headers.get("Accept", ""):
            body = orjson.dumps(discovery.aggregated(registry, core=core))
            return web.Response(body=body, headers={"Content-Type": discovery.AGGREGATED_TYPE})
        return json_object(discovery.api_versions() if core else discovery.api_groups(registry))

    def _verbs_seen(self) -> JsonObject:
        seen: list[dict[str, Any]] = [
            {"user_agent": agent, "verb": verb, "resource": resource, "count": count}
            for (agent, verb, resource), count in sorted(self.verbs.items())
        ]
        return {"verbs": seen}


def _make_request(
    message: Any, payload: Any, protocol: Any, writer: Any, task: "asyncio.Task[None]"
) -> web.BaseRequest:
    return web.BaseRequest(
        message, payload, protocol, writer, task, asyncio.get_running_loop(), client_max_size=MAX_BODY_BYTES
    )
