"""The Lease object itself: read, created and patched under optimistic concurrency, and the incarnation it keeps.

The JetStream incarnation is an annotation of the leaders' Lease because it must outlive the streams: a stream that is
created anew starts above every sequence of the one before (first sequence = incarnation × 2^40).
"""

from typing import Any

import msgspec

from muster.kube.decoding import LEASES, RawLease, decode_object
from muster.kube.errors import AlreadyExists, Conflict, NotFound, UnexpectedReply
from muster.kube.timing import SystemTiming, Timing
from muster.kube.transport import Transport
from muster.kube.writer import MERGE_PATCH

INCARNATION_ANNOTATION = "muster.dev/incarnation"
_ATTEMPTS = 8


class LeaseRecord:
    """One Lease by namespace and name. Every method is at most one write and raises KubeError."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        name: str,
        timeout_seconds: float = 5.0,
        timing: Timing | None = None,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self._transport = transport
        self._timeout = timeout_seconds
        self._timing: Timing = timing or SystemTiming()
        self._path = LEASES.path(namespace, name)

    async def read(self) -> RawLease | None:
        """The Lease as it is; None when there is none."""
        try:
            content = await self._transport.request("GET", self._path, timeout_seconds=self._timeout)
        except NotFound:
            return None
        return self._decoded(content)

    async def patch(
        self, *, resource_version: str, spec: dict[str, Any] | None = None, annotations: dict[str, str] | None = None
    ) -> RawLease:
        """Merge into the Lease of exactly this version. Raises Conflict when it has changed, NotFound."""
        metadata: dict[str, Any] = {"resourceVersion": resource_version}
        if annotations:
            metadata["annotations"] = annotations
        body: dict[str, Any] = {"metadata": metadata}
        if spec is not None:
            body["spec"] = spec
        content = await self._transport.request(
            "PATCH", self._path, body=body, content_type=MERGE_PATCH, timeout_seconds=self._timeout
        )
        return self._decoded(content)

    async def create(self, *, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> RawLease:
        """Create the Lease. Raises AlreadyExists."""
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self.namespace, "annotations": annotations or {}},
            "spec": spec,
        }
        content = await self._transport.request(
            "POST", LEASES.path(self.namespace), body=body, timeout_seconds=self._timeout
        )
        return self._decoded(content)

    async def incarnation(self) -> int:
        """The JetStream incarnation; 0 when none was written yet. Raises ValueError for one that is no number."""
        lease = await self.read()
        return 0 if lease is None else _incarnation_of(lease)

    async def set_incarnation(self, incarnation: int) -> None:
        """Raise the incarnation, never lower it; writing the present one again is nothing.

        Raises ValueError when a higher one is written already.
        """
        annotations = {INCARNATION_ANNOTATION: str(incarnation)}
        for _ in range(_ATTEMPTS):
            lease = await self.read()
            try:
                if lease is None:
                    await self.create(spec={}, annotations=annotations)
                    return
                present = _incarnation_of(lease)
                if present == incarnation:
                    return
                if present > incarnation:
                    raise ValueError(f"incarnation {incarnation}: the Lease has {present}; it only ever rises")
                await self.patch(resource_version=lease.metadata.resource_version, annotations=annotations)
            except (Conflict, AlreadyExists):
                await self._timing.sleep(self._timing.random() / 10)
            else:
                return
        raise Conflict(
            f"lease {self.namespace}/{self.name}: changed {_ATTEMPTS} times while being written", precondition=True
        )

    def _decoded(self, content: bytes) -> RawLease:
        try:
            return decode_object(LEASES, content)
        except msgspec.DecodeError as error:
            raise UnexpectedReply(f"lease {self.namespace}/{self.name}: {error}") from error


def _incarnation_of(lease: RawLease) -> int:
    written = lease.metadata.annotations.get(INCARNATION_ANNOTATION, "0")
    if not (written.isascii() and written.isdecimal()):
        raise ValueError(
            f"lease {lease.metadata.key}: annotation {INCARNATION_ANNOTATION} is {written!r}, expected a number"
        )
    return int(written)
