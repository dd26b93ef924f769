"""The connection to one API server: configuration, credentials and one connection pool.

kubernetes_asyncio loads kubeconfig files and in-cluster service accounts, builds TLS contexts and authorises requests.
`Kube` wraps its ApiClient so that every answer is read and released, every status is checked, every request has a
time limit, and a 401 reads the credentials anew once before it is an error.

The environment's KUBECONFIG is never read implicitly: whoever starts a service says which cluster is meant.
"""

import asyncio
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import yaml

from muster.kube.errors import KubeError, Unauthorized, Unavailable, error_from_reply
from muster.kube.transport import Query

DEFAULT_POOL_SIZE = 128
_RELOAD_SPACING_SECONDS = 1.0
_READ_BUFFER_BYTES = 2**20


class ConfigurationError(Exception):
    """The kubeconfig or the in-cluster account cannot be used; the message says what is wrong and where."""


class _Source:
    """Where configuration comes from, so that credentials can be loaded again."""

    def __init__(self, *, kubeconfig: Path | None, context: str | None) -> None:
        self.kubeconfig = kubeconfig
        self.context = context

    async def load(self) -> Any:
        """A new kubernetes_asyncio Configuration. Raises ConfigurationError."""
        # Importing any part of kubernetes_asyncio imports all of it (a second), so it happens at the first connect.
        from kubernetes_asyncio.client.configuration import Configuration
        from kubernetes_asyncio.config.config_exception import ConfigException
        from kubernetes_asyncio.config.incluster_config import load_incluster_config
        from kubernetes_asyncio.config.kube_config import load_kube_config

        configuration = Configuration()
        try:
            if self.kubeconfig is None:
                load_incluster_config(client_configuration=configuration)
            else:
                await load_kube_config(
                    config_file=str(self.kubeconfig),
                    context=self.context,
                    client_configuration=configuration,
                    persist_config=False,
                )
        except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            where = "in-cluster configuration" if self.kubeconfig is None else f"kubeconfig {self.kubeconfig}"
            raise ConfigurationError(f"{where}: {error}") from error
        token = configuration.api_key.get("BearerToken")
        if token is not None:
            configuration.api_key["BearerToken"] = token.strip()
        return configuration


class Kube:
    """One ApiClient and its pool. Use as an async context manager, or call `close`."""

    def __init__(self, *, source: _Source, configuration: Any, user_agent: str, pool_size: int) -> None:
        self._source = source
        self._user_agent = user_agent
        self._pool_size = pool_size
        self._retired: list[Any] = []
        self._reload = asyncio.Lock()
        self._reloaded_at = float("-inf")
        self._generation = 0
        self._client = self._build(configuration)

    @property
    def server(self) -> str:
        """The API server's base address."""
        return str(self._client.configuration.host)

    def _build(self, configuration: Any) -> Any:
        from kubernetes_asyncio.client.api_client import ApiClient

        configuration.connection_pool_maxsize = self._pool_size
        client = ApiClient(configuration=configuration)
        client.user_agent = self._user_agent
        rest: Any = client.rest_client
        # Its session trusts the environment, which costs two thread hops a request (netrc, proxies). The proxy is
        # looked up once here instead, and the connector with its TLS context moves to a session without that.
        if rest.proxy is None:
            rest.proxy = _environment_proxy(configuration.host)
        connector = rest.pool_manager.connector
        rest.pool_manager.detach()
        rest.pool_manager = aiohttp.ClientSession(connector=connector, read_bufsize=_READ_BUFFER_BYTES)
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; requests under way fail as Unavailable."""
        clients = [*self._retired, self._client]
        self._retired.clear()
        for client in clients:
            await client.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query = (),
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        content_type: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float,
    ) -> bytes:
        """Send one request and return the body of a 2xx answer.

        `body` is JSON-ready data; `content_type` defaults to application/json. Raises a KubeError for every other
        answer, Unavailable for none. GET, PUT and DELETE may be sent twice by aiohttp when a pooled connection
        turns out to be dead; PATCH and POST never are.
        """
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, connect=timeout_seconds * 0.8)
        for last in (False, True):
            generation = self._generation
            try:
                response = await self._send(
                    method, path, query=query, body=body, content_type=content_type, headers=headers, timeout=timeout
                )
                async with response:
                    content: bytes = await response.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise _unavailable(error, request=f"{method} {path}") from error
            if 200 <= response.status < 300:
                return content
            failure = error_from_reply(response.status, content, response.headers, request=f"{method} {path}")
            if last or not isinstance(failure, Unauthorized):
                raise failure
            await self._answer_unauthorized(failure, generation)
        raise AssertionError("unreachable: the second attempt returns or raises")

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Query, open_timeout_seconds: float, read_timeout_seconds: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a GET whose answer is read as it comes; yields an iterator of chunks of any size.

        Raises what `request` raises, also while chunks are read. A clean end of the answer ends the iterator.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, connect=open_timeout_seconds, sock_connect=open_timeout_seconds, sock_read=read_timeout_seconds
        )
        request = f"GET {path}"
        generation = self._generation
        try:
            response = await self._send(
                "GET", path, query=query, body=None, content_type=None, headers=None, timeout=timeout
            )
            if response.status >= 300:
                async with response:
                    content = await response.read()
                failure: KubeError | None = error_from_reply(
                    response.status, content, response.headers, request=request
                )
            else:
                failure = None
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise _unavailable(error, request=request) from error
        if failure is not None:
            if isinstance(failure, Unauthorized):
                await self._answer_unauthorized(failure, generation)
            raise failure
        try:
            yield _chunks(response, request=request)
        finally:
            response.close()

    async def _answer_unauthorized(self, failure: Unauthorized, generation: int) -> None:
        try:
            await self.reload_credentials(generation)
        except ConfigurationError as error:
            message = f"{failure.message}; and the credentials could not be read anew: {error}"
            raise Unauthorized(message, status=failure.status, reason=failure.reason) from error

    async def reload_credentials(self, generation: int | None = None) -> None:
        """Read kubeconfig or the service account again, at most once a second for all callers together.

        `generation`: the one the failing request used; nothing happens when a newer one is in place already.
        """
        async with self._reload:
            now = asyncio.get_running_loop().time()
            if generation is not None and generation != self._generation:
                return
            if now - self._reloaded_at < _RELOAD_SPACING_SECONDS:
                return
            configuration = await self._source.load()
            self._reloaded_at = now
            self._generation += 1
            # The old pool serves the watches that are open on it; those end by themselves within minutes.
            self._retired.append(self._client)
            self._client = self._build(configuration)
            await self._close_idle()

    async def _close_idle(self) -> None:
        while len(self._retired) > 2:
            await self._retired.pop(0).close()

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Query,
        body: Any,
        content_type: str | None,
        headers: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # aiohttp's own limits, handed through
    ) -> Any:
        header = {"Accept": "application/json", **(headers or {})}
        if content_type is not None:
            header["Content-Type"] = content_type
        return await self._client.call_api(
            path,
            method,
            query_params=list(query),
            header_params=header,
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _request_timeout=timeout,
        )


async def connect(
    *,
    kubeconfig: str | Path | None = None,
    in_cluster: bool = False,
    context: str | None = None,
    user_agent: str,
    pool_size: int = DEFAULT_POOL_SIZE,
) -> Kube:
    """Load the configuration and build the client; no request is sent.

    Exactly one of `kubeconfig` (a file) and `in_cluster` names the cluster. `pool_size` limits connections: each open
    watch takes one. Raises ConfigurationError.
    """
    if (kubeconfig is None) == (not in_cluster):
        given = "both" if in_cluster else "neither"
        raise ConfigurationError(f"kubeconfig and in_cluster: {given} given; name the cluster by exactly one of them")
    if in_cluster and context is not None:
        raise ConfigurationError(f"context {context!r}: only a kubeconfig has contexts; leave it out with in_cluster")
    if pool_size < 1:
        raise ConfigurationError(f"pool_size {pool_size}: must be at least 1")
    source = _Source(kubeconfig=None if kubeconfig is None else _existing(kubeconfig), context=context)
    configuration = await source.load()
    return Kube(source=source, configuration=configuration, user_agent=user_agent, pool_size=pool_size)


def _existing(kubeconfig: str | Path) -> Path:
    path = Path(kubeconfig).expanduser()
    if not path.is_file():
        raise ConfigurationError(f"kubeconfig {path}: no such file")
    return path


async def _chunks(response: Any, *, request: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise _unavailable(error, request=request) from error


def _unavailable(error: Exception, *, request: str) -> Unavailable:
    """Which failures certainly left the server untouched: those before a connection stood."""
    said = str(error) or type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return Unavailable(f"{request}: no connection: {said}", cause="refused", unknown_outcome=False)
    if isinstance(error, TimeoutError):
        return Unavailable(f"{request}: no answer in time: {said}", cause="timeout", unknown_outcome=True)
    return Unavailable(f"{request}: connection lost: {said}", cause="reset", unknown_outcome=True)


def _environment_proxy(host: str) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY and NO_PROXY name for this address."""
    parts = urllib.parse.urlsplit(host)
    if parts.hostname is None or urllib.request.proxy_bypass(parts.hostname):
        return None
    return urllib.request.getproxies().get(parts.scheme)
