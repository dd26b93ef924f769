"""A bare HTTP client of a Kubernetes API server, for the contract suite.

kubernetes_asyncio only reads the kubeconfig and authenticates: requests and answers are raw JSON, so that the suite sees
what the server really sends. A client works in one namespace of its own and names every cluster-scoped object after
its run; `sweep` removes all of it again::

    connect(kubeconfig) -> Api --request--> Answer(status, body, headers)
                            └──watch----> Watch -> Event(type, object)
"""

import asyncio
import io
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from kubernetes_asyncio import config

JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

RUN_LABEL = "contract.muster.dev/run"
NOBODY = "muster-contract-nobody"  # a scheduler name that is not served, so that pods stay where the suite puts them
DEADLINE = 20.0  # seconds until a condition that is waited for counts as not met

Body = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """One HTTP answer; `body` is the decoded JSON, None when the answer was not JSON."""

    status: int
    body: Any
    text: str
    headers: Mapping[str, str]

    @property
    def resource_version(self) -> str:
        """metadata.resourceVersion of the object or list."""
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def reason(self) -> str:
        """The reason of a metav1.Status; asserts that the body is one."""
        assert isinstance(self.body, dict), f"not a metav1.Status: {self.text[:300]}"
        assert self.body.get("kind") == "Status", self.text[:300]
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """The message of a metav1.Status."""
        return str(self.body.get("message", ""))

    def ok(self) -> Self:
        """Assert success, showing the server's own words otherwise."""
        assert self.status < 300, f"HTTP {self.status}: {self.text[:600]}"
        return self

    def refused(self, status: int, reason: str, words: str = "") -> Self:
        """Assert a metav1.Status of that code and reason whose message has these words."""
        assert self.status == status, f"HTTP {self.status}, expected {status}: {self.text[:600]}"
        assert self.reason == reason, f"reason {self.reason!r}, expected {reason!r}: {self.text[:600]}"
        assert self.body["apiVersion"] == "v1"
        assert self.body["status"] == "Failure"
        assert self.body["code"] == status
        assert words in self.message, f"{words!r} is not in {self.message!r}"
        return self


@dataclass(frozen=True)
class Event:
    """One line of a watch."""

    type: str
    object: Body

    @property
    def name(self) -> str:
        """metadata.name of the object."""
        return str(self.object["metadata"]["name"])

    @property
    def resource_version(self) -> int:
        """metadata.resourceVersion as a number: opaque to clients, but the suite checks that it grows."""
        return int(self.object["metadata"]["resourceVersion"])


class Watch:
    """An open watch: read events one by one, up to one that matches, or until the server ends the stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response

    async def next(self) -> Event | None:
        """The next event, None when the server has ended the stream."""
        async with asyncio.timeout(DEADLINE):
            line = await self._response.content.readline()
        if not line:
            return None
        decoded = json.loads(line)
        return Event(type=decoded["type"], object=decoded["object"])

    async def until(self, matches: Callable[[Event], bool]) -> list[Event]:
        """Events up to and with the first that matches."""
        seen: list[Event] = []
        while True:
            event = await self.next()
            assert event is not None, f"the watch ended before the event came; seen {summary(seen)}"
            seen.append(event)
            if matches(event):
                return seen

    async def take(self, count: int) -> list[Event]:
        """The next `count` events, bookmarks not counted."""
        seen: list[Event] = []
        while len(seen) < count:
            event = await self.next()
            assert event is not None, f"the watch ended after {summary(seen)}, {count} events were expected"
            if event.type != "BOOKMARK":
                seen.append(event)
        return seen

    async def rest(self) -> list[Event]:
        """All events until the server ends the stream."""
        seen: list[Event] = []
        while (event := await self.next()) is not None:
            seen.append(event)
        return seen


def summary(events: list[Event]) -> list[str]:
    """Types and names of events, for messages and comparisons; bookmarks and errors have no name."""
    return [
        event.type if event.type in {"BOOKMARK", "ERROR"} else f"{event.type} {event.name.rsplit('.', 1)[-1]}"
        for event in events
    ]


class Api:
    """An authenticated client with a namespace and a name prefix of its own."""

    def __init__(
        self, *, session: aiohttp.ClientSession, url: str, headers: Callable[[], Awaitable[dict[str, str]]]
    ) -> None:
        self.run = secrets.token_hex(4)
        self.namespace = f"muster-contract-{self.run}"
        self.group = f"run-{self.run}.contract.muster.dev"
        self.labels = {RUN_LABEL: self.run}
        self.url = url
        self._session = session
        self._headers = headers
        self._count = 0

    # Names and paths

    def name(self, stem: str) -> str:
        """A name nothing else has, usable for cluster-scoped objects too."""
        self._count += 1
        return f"muster-contract-{self.run}-{stem}-{self._count}"

    def core(self, resource: str, name: str = "", sub: str = "") -> str:
        """Path of a namespaced core resource in the suite's namespace."""
        return _join(f"/api/v1/namespaces/{self.namespace}/{resource}", name, sub)

    def pod(self, name: str = "", sub: str = "") -> str:
        """Path of pods, of one pod, or of its subresource."""
        return self.core("pods", name, sub)

    def node(self, name: str = "", sub: str = "") -> str:
        """Path of nodes, of one node, or of its subresource."""
        return _join("/api/v1/nodes", name, sub)

    def grouped(self, group_version: str, resource: str, name: str = "", sub: str = "") -> str:
        """Path of a namespaced resource of a named group, such as ("batch/v1", "jobs")."""
        return _join(f"/apis/{group_version}/namespaces/{self.namespace}/{resource}", name, sub)

    def cluster_scoped(self, group_version: str, resource: str, name: str = "", sub: str = "") -> str:
        """Path of a cluster-scoped resource of a named group."""
        return _join(f"/apis/{group_version}/{resource}", name, sub)

    # Requests

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Answer:
        """Send one request; a str or bytes body goes as it is, everything else as JSON."""
        headers = {"Accept": accept, **(await self._headers())}
        data: io.BytesIO | None = None
        if body is not None:
            headers["Content-Type"] = content_type
            content = body if isinstance(body, bytes | str) else json.dumps(body)
            data = io.BytesIO(content.encode() if isinstance(content, str) else content)
        timeout = aiohttp.ClientTimeout(total=60)
        async with self._session.request(
            method, self.url + path, params=query, data=data, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            text = await response.text()
            is_json = response.content_type in {"application/json", "application/com.github.proto-openapi.spec.v2+json"}
            return Answer(
                status=response.status,
                body=json.loads(text) if is_json and text else None,
                text=text,
                headers=response.headers,
            )

    async def get(self, path: str, query: Mapping[str, str] | None = None, *, accept: str = JSON) -> Answer:
        """GET an object or a list."""
        return await self.request("GET", path, query=query, accept=accept)

    async def post(self, path: str, body: Any, query: Mapping[str, str] | None = None) -> Answer:
        """POST an object."""
        return await self.request("POST", path, body=body, query=query)

    async def put(self, path: str, body: Any, query: Mapping[str, str] | None = None) -> Answer:
        """PUT an object."""
        return await self.request("PUT", path, body=body, query=query)

    async def patch(
        self, path: str, body: Any, content_type: str = MERGE, query: Mapping[str, str] | None = None
    ) -> Answer:
        """PATCH an object, as a merge patch unless told otherwise."""
        return await self.request("PATCH", path, body=body, content_type=content_type, query=query)

    async def delete(self, path: str, body: Any = None, query: Mapping[str, str] | None = None) -> Answer:
        """DELETE an object or a collection; the body is a DeleteOptions."""
        return await self.request("DELETE", path, body=body, query=query)

    @asynccontextmanager
    async def watch(self, path: str, query: Mapping[str, str] | None = None) -> AsyncIterator[Watch]:
        """Open a watch; it is closed when the block is left."""
        headers = {"Accept": JSON, **(await self._headers())}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(
            self.url + path, params={"watch": "true", **(query or {})}, headers=headers, timeout=timeout
        ) as response:
            yield Watch(response)

    async def eventually(self, path: str, holds: Callable[[Answer], bool]) -> Answer:
        """GET until the condition holds; fails after the deadline with the last answer."""
        answer = await self.get(path)
        try:
            async with asyncio.timeout(DEADLINE):
                while not holds(answer):
                    await asyncio.sleep(0.05)
                    answer = await self.get(path)
        except TimeoutError:
            raise AssertionError(f"{path} did not come to hold: HTTP {answer.status} {answer.text[:600]}") from None
        return answer

    # Objects of the suite

    def metadata(self, name: str, **extra: Any) -> Body:
        """metadata with the run's label."""
        labels = {**self.labels, **extra.pop("labels", {})}
        return {"name": name, "labels": labels, **extra}

    def pod_body(self, name: str, *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> Body:
        """A pod that no scheduler takes."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self.metadata(name, **(metadata or {})),
            "spec": {
                "schedulerName": NOBODY,
                "automountServiceAccountToken": False,
                "containers": [{"name": "main", "image": "registry.invalid/none:1"}],
                **spec,
            },
        }

    async def create_pod(self, stem: str, *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> Body:
        """Create a pod; returns the server's object."""
        body = self.pod_body(self.name(stem), metadata=metadata, **spec)
        return dict((await self.post(self.pod(), body)).ok().body)

    async def create_node(self, stem: str, **spec: Any) -> Body:
        """Create a node that real schedulers and DaemonSets leave alone: cordoned, tainted, without labels of its system."""
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": self.metadata(self.name(stem)),
            "spec": {
                "unschedulable": True,
                "taints": [{"key": "contract.muster.dev/test", "value": self.run, "effect": "NoExecute"}],
                **spec,
            },
        }
        return dict((await self.post(self.node(), body)).ok().body)

    def binding(self, pod: str, node: str, **metadata: Any) -> Body:
        """A Binding of a pod to a node."""
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }

    async def bind(self, pod: str, node: str, **metadata: Any) -> Answer:
        """POST a Binding for a pod."""
        return await self.post(self.pod(pod, "binding"), self.binding(pod, node, **metadata))

    def eviction(self, pod: str, **delete_options: Any) -> Body:
        """A policy/v1 Eviction of a pod."""
        body: Body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        if delete_options:
            body["deleteOptions"] = delete_options
        return body

    async def evict(self, pod: str, **delete_options: Any) -> Answer:
        """POST an Eviction for a pod."""
        return await self.post(self.pod(pod, "eviction"), self.eviction(pod, **delete_options))

    async def create_config_map(self, stem: str, **metadata: Any) -> Body:
        """Create a ConfigMap: the plainest object there is, which no controller writes to."""
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": self.metadata(self.name(stem), **metadata),
            "data": {"key": "value"},
        }
        return dict((await self.post(self.core("configmaps"), body)).ok().body)

    # Begin and end

    async def settle(self) -> None:
        """Make the namespace and its default ServiceAccount, which only a controller-manager would make otherwise."""
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": self.metadata(self.namespace, labels={"pod-security.kubernetes.io/enforce": "privileged"}),
        }
        (await self.post("/api/v1/namespaces", namespace)).ok()
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata("default")}
        answer = await self.post(self.core("serviceaccounts"), account)
        assert answer.status in {201, 409}, answer.text

    async def sweep(self) -> None:
        """Remove everything this run made, whatever state it is in; nothing without the run's label or namespace."""
        own = {"labelSelector": f"{RUN_LABEL}={self.run}"}
        definitions = self.cluster_scoped("apiextensions.k8s.io/v1", "customresourcedefinitions")
        for definition in _items(await self.get(definitions, own)):
            names = definition["spec"]["names"]
            for version in definition["spec"]["versions"]:
                await self._clear(self.grouped(f"{definition['spec']['group']}/{version['name']}", names["plural"]))
        for path in (
            self.grouped("batch/v1", "jobs"),
            self.pod(),
            self.core("configmaps"),
            self.core("events"),
            self.grouped("coordination.k8s.io/v1", "leases"),
            self.grouped("policy/v1", "poddisruptionbudgets"),
        ):
            await self._clear(path)
        for path in (definitions, self.node(), self.cluster_scoped("scheduling.k8s.io/v1", "priorityclasses")):
            await self._clear(path, own)
        await self._remove_namespace()

    async def _clear(self, path: str, query: Mapping[str, str] | None = None) -> None:
        # Items of a list come without their kind, so paths are built from names alone.
        for item in _items(await self.get(path, query)):
            name = item["metadata"]["name"]
            if item["metadata"].get("finalizers") and not path.endswith("customresourcedefinitions"):
                await self.patch(_join(path, name), {"metadata": {"finalizers": None}})
            await self.delete(_join(path, name), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

    async def _remove_namespace(self) -> None:
        path = f"/api/v1/namespaces/{self.namespace}"
        await self.delete(path)
        for _ in range(40):
            answer = await self.get(path)
            if answer.status == 404:
                return
            await asyncio.sleep(0.25)
        # No namespace controller runs here, and the namespace has been emptied above: end it in the controller's place.
        answer.body["spec"]["finalizers"] = []
        await self.put(f"{path}/finalize", answer.body)


def _join(path: str, name: str, sub: str = "") -> str:
    return "/".join(part for part in (path, name, sub) if part)


def _items(answer: Answer) -> list[Body]:
    return list(answer.body.get("items") or []) if answer.status == 200 else []


@asynccontextmanager
async def connect(kubeconfig: str) -> AsyncIterator[Api]:
    """An Api for the current context of a kubeconfig file, with its namespace; all is swept when the block is left."""
    client = await config.new_client_from_config(config_file=kubeconfig)
    async with client:

        async def headers() -> dict[str, str]:
            found: dict[str, str] = {}
            await client.update_params_for_auth(found, [], ["BearerToken"])
            return found

        api = Api(session=client.rest_client.pool_manager, url=client.configuration.host.rstrip("/"), headers=headers)
        try:
            await api.settle()
            yield api
        finally:
            await api.sweep()
