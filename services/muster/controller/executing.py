"""Carries out what a reconcile function asks for, in its order.

Creates that follow each other go out together; everything else one by one, and the first failure ends the list: what
comes after may rest on it. What was created is remembered until STATE shows it, so that it is not asked for again
while the answer is still on its way round.
"""

import asyncio
from collections.abc import Sequence

from muster.controller.metrics import ControllerMetrics
from muster.controller.pacing import TokenBucket
from muster.decide.lifecycle.actions import Action, Create, Patch, Remove, Tell, Wake
from muster.kube.decoding import kind_info
from muster.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from muster.kube.recording import ObjectReference
from muster.kube.writer import Writer
from muster.model.policy import Policy

CREATES_AT_ONCE = 16
SEEN_WITHIN = 5.0
"""Seconds after which a created object that STATE does not show is asked for again."""
TELLS_PER_SECOND = 100.0
TELL_BURST = 200.0

Name = tuple[str, str, str]


class NameTakenError(Exception):
    """An object of the wanted name exists and belongs to somebody else."""


class Executor:
    """See the module."""

    def __init__(self, writer: Writer, *, metrics: ControllerMetrics, policy: Policy) -> None:
        """One for the process; workers share it."""
        self.writer = writer
        self._metrics = metrics
        self.policy = policy
        self._room = asyncio.Semaphore(CREATES_AT_ONCE)
        self._tells = TokenBucket(rate=TELLS_PER_SECOND, burst=TELL_BURST)
        self._created: dict[Name, float] = {}

    async def carry_out(self, actions: Sequence[Action]) -> float | None:
        """Do them; the result is when to look again (Unix seconds), None when nothing asks for it.

        Raises:
            KubeError: an action failed; those after it were not tried.
            NameTakenError: an object of a wanted name is somebody else's.
        """
        wake: float | None = None
        number = 0
        while number < len(actions):
            action = actions[number]
            if isinstance(action, Create):
                end = number
                while end < len(actions) and isinstance(actions[end], Create) and actions[end].kind == action.kind:  # type: ignore[union-attr]  # isinstance stands before
                    end += 1
                await self._create_all([one for one in actions[number:end] if isinstance(one, Create)])
                number = end
                continue
            if isinstance(action, Wake):
                wake = action.at if wake is None else min(wake, action.at)
            elif isinstance(action, Tell):
                self.tell(action)
            elif isinstance(action, Patch):
                await self._patch(action)
            else:
                await self._remove(action)
            number += 1
        return wake

    def seen(self, kind: str, namespace: str, name: str) -> None:
        """STATE shows this object: should it go, it may be asked for again."""
        self._created.pop((kind, namespace, name), None)

    def forget(self) -> None:
        """A new leadership: nothing is remembered."""
        self._created.clear()

    async def _create_all(self, creates: Sequence[Create]) -> None:
        results = await asyncio.gather(*(self._create(one) for one in creates), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _create(self, action: Create) -> None:
        name = (action.kind, action.namespace, action.name)
        now = asyncio.get_running_loop().time()
        if now - self._created.get(name, -SEEN_WITHIN) < SEEN_WITHIN:
            return
        async with self._room:
            try:
                await self.writer.create(action.kind, action.namespace or None, action.document)
            except AlreadyExists:
                await self._accept_existing(action)
                self._metrics.actions.labels("create", action.kind, "existed").inc()
            except KubeError:
                self._metrics.actions.labels("create", action.kind, "failed").inc()
                raise
            else:
                self._metrics.actions.labels("create", action.kind, "done").inc()
        self._created[name] = now

    async def _accept_existing(self, action: Create) -> None:
        if not action.owner_uid:
            return
        found = await self.writer.get(action.kind, action.namespace or None, action.name)
        owner = found.metadata.controller
        if owner is None or owner.uid != action.owner_uid:
            whose = f"{owner.kind} {owner.name}" if owner is not None else "nobody"
            raise NameTakenError(f"{action.kind} {action.namespace}/{action.name} exists and belongs to {whose}")

    async def _patch(self, action: Patch) -> None:
        if action.status:
            await self._tells.take()
        body = dict(action.body)
        if action.resource_version:
            body["metadata"] = {**body.get("metadata", {}), "resourceVersion": action.resource_version}
        write = self.writer.strategic_patch if action.strategic else self.writer.merge_patch
        verb = "status" if action.status else "patch"
        try:
            await write(
                action.kind,
                action.namespace or None,
                action.name,
                body,
                subresource="status" if action.status else None,
            )
        except NotFound:
            self._metrics.actions.labels(verb, action.kind, "gone").inc()
        except Conflict:
            self._metrics.actions.labels(verb, action.kind, "conflict").inc()
            raise
        except KubeError:
            self._metrics.actions.labels(verb, action.kind, "failed").inc()
            raise
        else:
            self._metrics.actions.labels(verb, action.kind, "done").inc()

    async def _remove(self, action: Remove) -> None:
        try:
            await self.writer.delete(
                action.kind, action.namespace or None, action.name, uid=action.uid, propagation="Background"
            )
        except (NotFound, Conflict):
            # Gone, or another object of that name: this one is no more.
            self._metrics.actions.labels("delete", action.kind, "gone").inc()
        except KubeError:
            self._metrics.actions.labels("delete", action.kind, "failed").inc()
            raise
        else:
            self._metrics.actions.labels("delete", action.kind, "done").inc()

    def tell(self, action: Tell) -> None:
        """Note an Event; never waits."""
        info = kind_info(action.kind)
        self.writer.record_event(
            ObjectReference(
                api_version=info.api_version,
                kind=info.kind,
                namespace=action.namespace,
                name=action.name,
                uid=action.uid,
            ),
            action.reason,
            action.message,
            type="Warning" if action.warning else "Normal",
        )
