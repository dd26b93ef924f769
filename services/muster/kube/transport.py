"""What the reflector, the writer and the lease need of a connection: two calls. `config.Kube` is the real one."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

Query = Sequence[tuple[str, str]]


class Transport(Protocol):
    """Sends requests to one API server and raises `muster.kube.errors.KubeError` for everything but success."""

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
        """The body of a 2xx answer."""

    def stream(
        self, path: str, *, query: Query, open_timeout_seconds: float, read_timeout_seconds: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The chunks of a 2xx answer as they come; silence longer than the read timeout raises Unavailable."""
