"""The executor's writes on the real API."""

from muster.kube.decoding import PODS
from muster.kube.pods import RawPod
from muster.kube.writer import Writer, fence_of
from muster.model.units import NodeName, PodUid, Sequence
from muster.scheduler.executor import Seen

FINISHED = frozenset({"Succeeded", "Failed"})


class ApiPods:
    """Fenced writes on pods by one Writer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def get(self, namespace: str, name: str) -> Seen:
        """The pod as it is now."""
        return _seen(await self._writer.get(PODS, namespace, name))

    async def touch(self, namespace: str, name: str, *, uid: PodUid, token: Sequence) -> Seen:
        """Raise the fence to the token; the answer shows the pod after that."""
        touched = await self._writer.touch(PODS, namespace, name, uid=uid, fence=token)
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


def _seen(pod: RawPod) -> Seen:
    return Seen(
        uid=PodUid(pod.metadata.uid),
        resource_version=pod.metadata.resource_version,
        node=NodeName(pod.spec.node_name) if pod.spec.node_name else None,
        fence=fence_of(pod.metadata.annotations),
        finished=pod.status.phase in FINISHED,
        terminating=pod.metadata.deletion_timestamp is not None,
    )
