"""Makes and removes the reservation pods of one leadership (see `muster.decide.reservations`).

    ready(card)   the reservation of a card group before a share is bound to it: its UUID, or why not yet
    tend()        after every round: what shares lost is made again, what nobody needs is deleted

A reservation that is being deleted is not used again, whatever STATE shows; the first use by a leader touches it, so that a
delete which a former leader sent under an older version is refused.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import structlog

from muster.decide.reservations import Place, card_uuid, reservation_manifest, reservation_name, reserved_card, upkeep
from muster.fenced.executor import Outcome, Result, Seen
from muster.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from muster.kube.writer import Fenced
from muster.model.nodes import CardMode, Node
from muster.model.pods import Phase, Pod
from muster.model.units import CardIndex, NodeName, PodUid, Sequence
from muster.view.world import World

LOOK_AGAIN = 0.25
"""Seconds until a reservation that is not ready is looked at again; STATE wakes the rounds anyway."""


class ReservationWrites(Protocol):
    """The writes on reservation pods."""

    async def create(self, namespace: str, manifest: dict[str, object]) -> None:
        """Create a pod."""

    async def touch(
        self, namespace: str, name: str, *, uid: PodUid, token: Sequence, known: Seen | None = None
    ) -> Seen:
        """Raise the pod's fence to the token."""
        ...

    async def delete(self, namespace: str, name: str, *, uid: PodUid, resource_version: str) -> None:
        """Delete this version of the pod."""


class Reservations:
    """The reservation pods, as one leadership sees and changes them."""

    def __init__(
        self,
        *,
        world: World,
        writes: ReservationWrites,
        namespace: str,
        image: str,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._world = world
        self._writes = writes
        self._namespace = namespace
        self._image = image
        self._log = log
        self._deleting: set[PodUid] = set()
        self._touched: set[PodUid] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._looked = False
        self._standing = False

    async def ready(self, node: Node, index: CardIndex, *, token: Sequence) -> str | Result:
        """The UUID of the reserved card, or what stands in the way."""
        name = reservation_name(node.name, index)
        pod = self._world.pods.get(f"{self._namespace}/{name}")
        if pod is None:
            try:
                await self._create(node, index, token)
            except KubeError as error:
                return _waiting(f"reservation pod {name}: {error.message}")
            return _waiting(f"reservation pod {name} was made")
        if pod.terminating or pod.uid in self._deleting:
            return _waiting(f"a former reservation pod {name} is leaving")
        if pod.finished:
            message = f"reservation pod {name}: {pod.reason or pod.phase.value} {pod.message}".strip()
            return Result(outcome=Outcome.REFUSED, message=message)
        uuid = card_uuid(pod)
        if pod.phase is not Phase.RUNNING or not uuid:
            return _waiting(f"reservation pod {name} has not reported its card yet")
        if pod.uid not in self._touched and pod.fence < token:
            try:
                await self._writes.touch(self._namespace, name, uid=pod.uid, token=token)
            except Fenced as error:
                return Result(outcome=Outcome.SUPERSEDED, message=error.message)
            except KubeError as error:
                return _waiting(f"reservation pod {name}: {error.message}")
        self._touched.add(pod.uid)
        return uuid

    def tend(self, promised: Iterable[Place], *, token: Sequence) -> None:
        """Start what is to be made and deleted now; nothing here is waited for."""
        world = self._world
        if not (self._standing or not self._looked or any(map(_is_reserved, world.nodes.values()))):
            return
        self._looked = True
        self._standing = any(reserved_card(pod) is not None for pod in world.pods.values())
        work = upkeep(world.nodes, world.pods.values(), promised)
        self._deleting &= world.by_uid.keys()
        for node, index in work.missing:
            self._log.warning("shares stand on a card that nothing reserves", node=node, card=index)
            self._start(reservation_name(node, index), lambda n=node, i=index: self._make_again(n, i, token))  # type: ignore[misc]
        for pod in work.useless:
            if pod.namespace == self._namespace:
                self._deleting.add(pod.uid)
                self._start(pod.name, lambda one=pod: self._delete(one))  # type: ignore[misc]

    async def stop(self) -> None:
        """Cancel what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, name: str, action: Callable[[], Awaitable[None]]) -> None:
        if name in self._tasks:
            return

        async def run() -> None:
            try:
                await action()
            except KubeError as error:
                self._log.warning("reservation pod", name=name, problem=error.message)
                await asyncio.sleep(LOOK_AGAIN)
            finally:
                self._tasks.pop(name, None)

        self._tasks[name] = asyncio.create_task(run())

    async def _make_again(self, node: NodeName, index: CardIndex, token: Sequence) -> None:
        found = self._world.nodes.get(node)
        if found is not None:
            await self._create(found, index, token)

    async def _create(self, node: Node, index: CardIndex, token: Sequence) -> None:
        manifest = reservation_manifest(node, index, namespace=self._namespace, image=self._image, fence=token)
        try:
            await self._writes.create(self._namespace, manifest)
        except AlreadyExists:
            return
        self._log.info("reserves a card", node=node.name, card=index)

    async def _delete(self, pod: Pod) -> None:
        try:
            await self._writes.delete(self._namespace, pod.name, uid=pod.uid, resource_version=pod.resource_version)
        except NotFound:
            return
        except Conflict:
            # It was changed since: surely not deleted, so it may be used again until it is looked at anew.
            self._deleting.discard(pod.uid)
            return
        self._log.info("gives a card back", node=pod.node, reservation=pod.name)


def _is_reserved(node: Node) -> bool:
    return node.card_mode is CardMode.RESERVED


def _waiting(message: str) -> Result:
    return Result(outcome=Outcome.AGAIN, message=message, retry_after=LOOK_AGAIN)
