"""Carries out what was committed, fenced: touches, Bindings and evictions (rules C and D of the commit protocol).

Every write carries the uid and the resourceVersion of an object whose fence was read and is at most the token. After a
409 or an unknown outcome the object is read again before anything is retried. An answer closes nothing: entries close by
what STATE shows.

    bind:  STATE's pod ─► Binding(uid, resourceVersion) ─409/unknown─► GET ─► bound? done : fence ≤ token? retry
    undo, and evicting victims of a plan:
           touch (fence := token) ─► bound to the slot's node? evict(uid, resourceVersion) : done
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from muster.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from muster.kube.writer import Fenced
from muster.model.pods import Pod
from muster.model.units import NodeName, PodUid, Sequence

ATTEMPTS = 6
BUDGET_SECONDS = 5.0
"""Pause before an eviction that a PodDisruptionBudget forbade is asked for again."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as a read or a write's answer showed it."""

    uid: PodUid
    resource_version: str
    node: NodeName | None
    fence: int
    finished: bool = False
    terminating: bool = False


def seen_in_state(pod: Pod | None) -> Seen | None:
    """The pod as STATE shows it, for the first attempt of an action."""
    if pod is None or not pod.resource_version:
        return None
    return Seen(
        uid=pod.uid,
        resource_version=pod.resource_version,
        node=pod.node,
        fence=pod.fence,
        finished=pod.finished,
        terminating=pod.terminating,
    )


class Present(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that exists, and its name."""

    namespace: str
    name: str
    seen: Seen


class PodWrites(Protocol):
    """The fenced writes on pods that the executor needs; muster.fenced.pods gives them on the real API."""

    async def get(self, namespace: str, name: str) -> Seen:
        """The pod as it is now."""
        ...

    async def present(self, scheduler_names: frozenset[str]) -> tuple["Present", ...]:
        """Every pod of these schedulers, as the API server holds them now (never from a cache)."""
        ...

    async def touch(
        self,
        namespace: str,
        name: str,
        *,
        uid: PodUid,
        token: Sequence,
        known: "Seen | None" = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Seen:
        """Raise the fence to the token, with these annotations in the same write; `known` saves the first read.

        Raises Fenced when a newer one stands, NotFound when the uid is gone.
        """
        ...

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

    async def evict(self, namespace: str, name: str, *, uid: PodUid, resource_version: str) -> None:
        """Create the Eviction."""

    async def annotate(
        self, namespace: str, name: str, *, uid: PodUid, resource_version: str, annotations: Mapping[str, str]
    ) -> None:
        """Write these annotations on exactly this version of the pod."""


class Outcome(StrEnum):
    """What became of one action, as far as its answers tell."""

    DONE = "done"
    """Carried out, or found to be so already."""
    GONE = "gone"
    """The uid does not exist any more."""
    ELSEWHERE = "elsewhere"
    """Bound to another node by somebody else."""
    FINISHED = "finished"
    """The pod has ended."""
    SUPERSEDED = "superseded"
    """A newer token stands on the pod: this action has no right any more."""
    REFUSED = "refused"
    """The API server will not do it, now or later."""
    AGAIN = "again"
    """Not now: the API server is away, throttles, or the object keeps changing."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome with what the API server said."""

    outcome: Outcome
    message: str = ""
    retry_after: float = 0.0
    """Seconds, for AGAIN."""
    away: bool = False
    """The API server gave no answer, or none that it gives while it works."""
    budget: bool = False
    """A PodDisruptionBudget forbids the eviction for now."""


DONE = Result(outcome=Outcome.DONE)
GONE = Result(outcome=Outcome.GONE)


class Executor:
    """Fenced actions on pods. Stateless: whoever calls decides what is in flight."""

    def __init__(self, pods: PodWrites) -> None:
        self._pods = pods

    async def bind(
        self,
        namespace: str,
        name: str,
        *,
        uid: PodUid,
        node: NodeName,
        token: Sequence,
        annotations: dict[str, str],
        known: Seen | None,
    ) -> Result:
        """Bind the pod to the node unless it is bound already.

        Args:
            known: the pod as STATE shows it, if it does; else it is read first.
        """
        seen = known
        for _ in range(ATTEMPTS):
            try:
                if seen is None:
                    seen = await self._pods.get(namespace, name)
                verdict = self._verdict(seen, uid=uid, node=node, token=token)
                if verdict is not None:
                    return verdict
                await self._pods.bind(
                    namespace,
                    name,
                    uid=uid,
                    resource_version=seen.resource_version,
                    node=node,
                    annotations=annotations,
                )
            except NotFound:
                return GONE
            except (Conflict, AlreadyExists):
                seen = None
                continue
            except KubeError as error:
                return not_now(error)
            return DONE
        return Result(outcome=Outcome.AGAIN, message=f"pod {namespace}/{name} keeps changing", retry_after=1.0)

    async def present(self, scheduler_names: frozenset[str]) -> tuple[Present, ...] | Result:
        """Every pod of these schedulers, as the API server holds them now, or why they cannot be told."""
        try:
            return await self._pods.present(scheduler_names)
        except KubeError as error:
            return not_now(error)

    async def touch(
        self,
        namespace: str,
        name: str,
        *,
        uid: PodUid,
        token: Sequence,
        known: Seen | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Seen | Result:
        """Raise the pod's fence to the token, with these annotations; the answer says whether and where it is bound.

        Returns:
            The pod as the write's answer showed it, or why it was not touched.
        """
        try:
            return await self._pods.touch(namespace, name, uid=uid, token=token, known=known, annotations=annotations)
        except NotFound:
            return GONE
        except Fenced as error:
            return Result(outcome=Outcome.SUPERSEDED, message=error.message)
        except Conflict as error:
            return Result(outcome=Outcome.AGAIN, message=error.message, retry_after=0.2)
        except KubeError as error:
            return not_now(error)

    async def undo(self, namespace: str, name: str, *, uid: PodUid, node: NodeName, token: Sequence) -> Result:
        """Touch the pod, and evict it when it is bound to the node of its slot (or where the plan says that it stands)."""
        touched = await self.touch(namespace, name, uid=uid, token=token)
        if isinstance(touched, Result):
            return touched
        for _ in range(ATTEMPTS):
            if touched.node is None or touched.terminating or touched.finished:
                return DONE
            if touched.node != node:
                return Result(outcome=Outcome.ELSEWHERE, message=f"bound to {touched.node}")
            try:
                await self._pods.evict(namespace, name, uid=uid, resource_version=touched.resource_version)
            except NotFound:
                return GONE
            except Conflict:
                again = await self.touch(namespace, name, uid=uid, token=token)
                if isinstance(again, Result):
                    return again
                touched = again
                continue
            except KubeError as error:
                return not_now(error)
            return DONE
        return Result(outcome=Outcome.AGAIN, message=f"pod {namespace}/{name} keeps changing", retry_after=1.0)

    async def read(self, namespace: str, name: str, *, uid: PodUid) -> Seen | Result:
        """The pod as the API server holds it now, or why it cannot be told."""
        try:
            seen = await self._pods.get(namespace, name)
        except NotFound:
            return GONE
        except KubeError as error:
            return not_now(error)
        return seen if seen.uid == uid else GONE

    async def evict_version(self, namespace: str, name: str, seen: Seen, *, node: NodeName) -> Result:
        """Evict exactly this version of the pod, whose fence is nobody's (see `muster.fenced.forged`)."""
        if seen.node is None or seen.terminating or seen.finished:
            return DONE
        if seen.node != node:
            return Result(outcome=Outcome.ELSEWHERE, message=f"bound to {seen.node}")
        try:
            await self._pods.evict(namespace, name, uid=seen.uid, resource_version=seen.resource_version)
        except NotFound:
            return GONE
        except Conflict as error:
            return Result(outcome=Outcome.AGAIN, message=error.message, retry_after=0.2)
        except KubeError as error:
            return not_now(error)
        return DONE

    async def annotate_version(
        self, namespace: str, name: str, seen: Seen, *, annotations: Mapping[str, str]
    ) -> Result:
        """Write annotations on exactly this version of the pod, and leave its fence as it is."""
        try:
            await self._pods.annotate(
                namespace, name, uid=seen.uid, resource_version=seen.resource_version, annotations=annotations
            )
        except NotFound:
            return GONE
        except Conflict as error:
            return Result(outcome=Outcome.AGAIN, message=error.message, retry_after=0.2)
        except KubeError as error:
            return not_now(error)
        return DONE

    @staticmethod
    def _verdict(seen: Seen, *, uid: PodUid, node: NodeName, token: Sequence) -> Result | None:
        if seen.uid != uid:
            return GONE
        if seen.node is not None:
            if seen.node == node:
                return DONE
            return Result(outcome=Outcome.ELSEWHERE, message=f"bound to {seen.node}")
        if seen.finished:
            return Result(outcome=Outcome.FINISHED, message="the pod has ended")
        if seen.terminating:
            return GONE
        if seen.fence > token:
            return Result(outcome=Outcome.SUPERSEDED, message=f"fence {seen.fence} is above {token}")
        return None


def not_now(error: KubeError) -> Result:
    """What an error means for the action. A repeated action reads the object first, so an unknown outcome is settled there.

    Only what the API server judged and will judge again in the same way is final.
    """
    if isinstance(error, Forbidden | Invalid):
        return Result(outcome=Outcome.REFUSED, message=error.message)
    if isinstance(error, TooManyRequests):
        wait = BUDGET_SECONDS if error.disruption_budget else 1.0
        return Result(
            outcome=Outcome.AGAIN,
            message=error.message,
            retry_after=max(wait, error.retry_after or 0.0),
            budget=error.disruption_budget,
        )
    if isinstance(error, Unavailable):
        return Result(outcome=Outcome.AGAIN, message=error.message, retry_after=error.retry_after or 0.5, away=True)
    return Result(outcome=Outcome.AGAIN, message=error.message, retry_after=1.0)
