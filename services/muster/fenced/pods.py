"""The executor's writes on the real API."""

from collections.abc import Mapping

from muster.fenced.executor import Present, Seen
from muster.kube.decoding import PODS
from muster.kube.objects import ObjectMeta
from muster.kube.pods import RawPod
from muster.kube.writer import FENCE_ANNOTATION, Writer, fence_of
from muster.model.units import NodeName, PodUid, Sequence

FINISHED = frozenset({"Succeeded", "Failed"})


class ApiPods:
    """Fenced writes on pods by one Writer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def get(self, namespace: str, name: str) -> Seen:
        """The pod as it is now."""
        return _seen(await self._writer.get(PODS, namespace, name))

    async def present(self, scheduler_names: frozenset[str]) -> tuple[Present, ...]:
        """Every pod of these schedulers, as the API server holds them now."""
        pods = await self._writer.list(PODS)
        return tuple(
            Present(namespace=pod.metadata.namespace, name=pod.metadata.name, seen=_seen(pod))
            for pod in pods
            if pod.spec.scheduler_name in scheduler_names
        )

    async def touch(
        self,
        namespace: str,
        name: str,
        *,
        uid: PodUid,
        token: Sequence,
        known: Seen | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Seen:
        """Raise the fence to the token, with these annotations; the answer shows the pod after that."""
        raw = None if known is None else _raw(namespace, name, known)
        touched = await self._writer.touch(
            PODS, namespace, name, uid=uid, fence=token, known=raw, annotations=annotations
        )
        return _seen(touched.object)

    async def bind(
        self,
        namespace: str,
        name: str,
        *,
        uid: PodUid,
        resource_version: str,
        node: NodeName,
        annotations: dict[str, str],
    ) -> None:
        """Create the Binding."""
        await self._writer.bind(
            namespace, name, uid=uid, resource_version=resource_version, node=node, annotations=annotations
        )

    async def evict(self, namespace: str, name: str, *, uid: PodUid, resource_version: str) -> None:
        """Create the Eviction."""
        await self._writer.evict(namespace, name, uid=uid, resource_version=resource_version)

    async def annotate(
        self, namespace: str, name: str, *, uid: PodUid, resource_version: str, annotations: Mapping[str, str]
    ) -> None:
        """Write annotations on this version of the pod."""
        metadata = {"uid": uid, "resourceVersion": resource_version, "annotations": dict(annotations)}
        await self._writer.merge_patch(PODS, namespace, name, {"metadata": metadata})

    async def create(self, namespace: str, manifest: dict[str, object]) -> None:
        """Create a pod."""
        await self._writer.create(PODS, namespace, manifest)

    async def delete(self, namespace: str, name: str, *, uid: PodUid, resource_version: str) -> None:
        """Delete this version of the pod."""
        await self._writer.delete(PODS, namespace, name, uid=uid, resource_version=resource_version)


def _seen(pod: RawPod) -> Seen:
    return Seen(
        uid=PodUid(pod.metadata.uid),
        resource_version=pod.metadata.resource_version,
        node=NodeName(pod.spec.node_name) if pod.spec.node_name else None,
        fence=fence_of(pod.metadata.annotations),
        finished=pod.status.phase in FINISHED,
        terminating=pod.metadata.deletion_timestamp is not None,
    )


def _raw(namespace: str, name: str, seen: Seen) -> RawPod:
    """As much of a pod as a touch looks at."""
    annotations = {FENCE_ANNOTATION: str(seen.fence)} if seen.fence else {}
    return RawPod(
        metadata=ObjectMeta(
            namespace=namespace,
            name=name,
            uid=seen.uid,
            resource_version=seen.resource_version,
            annotations=annotations,
        )
    )
