"""Rules of the commit protocol left out on purpose, each as a patch of the scheduler's shell.

A simulation that finds nothing with a rule left out would prove nothing with the rule in place.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from muster.decide import commitments, settling
from muster.decide.join import Join
from muster.fenced.executor import DONE, Executor, Outcome, Result
from muster.kube.errors import KubeError
from muster.model.units import Sequence
from muster.scheduler import leading, takeover
from muster.scheduler.book import Book
from tests.scheduler import simulated_process

Patch = Callable[[pytest.MonkeyPatch], None]
ENDLESS = "9" * 18
"""A resourceVersion that every wish is below."""


def no_touch_on_takeover(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, targets: Any) -> None:
        pass

    patch.setattr(takeover.TakeOver, "_touch_all", nothing)


def no_fence_check(patch: pytest.MonkeyPatch) -> None:
    verdict = Executor._verdict

    def blind(seen: Any, **expected: Any) -> Any:
        return verdict(msgspec.structs.replace(seen, fence=0), **expected)

    patch.setattr(Executor, "_verdict", staticmethod(blind))


def close_on_answer(patch: pytest.MonkeyPatch) -> None:
    bind, settle = Executor.bind, leading.Leadership._settle
    answered: dict[Executor, dict[Any, Any]] = {}

    async def remember(self: Executor, namespace: str, name: str, **fields: Any) -> Any:
        result = await bind(self, namespace, name, **fields)
        if result.outcome is Outcome.DONE:
            answered.setdefault(self, {})[fields["uid"]] = fields["node"]
        return result

    def believe(self: Any) -> Any:
        told, world, shown = answered.get(self._executor, {}), self._world, self._world.by_uid
        world.by_uid = {
            uid: msgspec.structs.replace(pod, node=told[uid]) if pod.node is None and uid in told else pod
            for uid, pod in shown.items()
        }
        try:
            return settle(self)
        finally:
            world.by_uid = shown

    patch.setattr(Executor, "bind", remember)
    patch.setattr(leading.Leadership, "_settle", believe)


def no_lingering_holds(patch: pytest.MonkeyPatch) -> None:
    follow = Join.follow

    def only_open(view: Any, pods: Any) -> Any:
        return commitments.holds(msgspec.structs.replace(view, lingering=()), pods)

    patch.setattr(Join, "follow", lambda self, view: follow(self, msgspec.structs.replace(view, lingering=())))
    patch.setattr(simulated_process, "holds", only_open)


class _OldFences:
    """Pods whose fence is taken from the first read."""

    def __init__(self, pods: Any, known: Any) -> None:
        self._pods = pods
        self._fence = known.fence if known is not None else 0

    async def get(self, namespace: str, name: str) -> Any:
        return msgspec.structs.replace(await self._pods.get(namespace, name), fence=self._fence)

    async def bind(self, *place: Any, **fields: Any) -> None:
        await self._pods.bind(*place, **fields)


def no_fence_read_after_conflict(patch: pytest.MonkeyPatch) -> None:
    bind = Executor.bind

    async def forgetful(self: Executor, namespace: str, name: str, **fields: Any) -> Any:
        return await bind(Executor(_OldFences(self._pods, fields["known"])), namespace, name, **fields)  # type: ignore[arg-type]

    patch.setattr(Executor, "bind", forgetful)


def absent_is_gone(patch: pytest.MonkeyPatch) -> None:
    def settle(view: Any, pods: Any, nodes: Any, **fields: Any) -> Any:
        return settling.settle(view, pods, nodes, **{**fields, "complete": ENDLESS})

    patch.setattr(leading, "settle", settle)


def no_touch_before_eviction(patch: pytest.MonkeyPatch) -> None:
    async def undo(self: Executor, namespace: str, name: str, *, uid: Any, node: Any, token: Any) -> Any:
        try:
            seen = await self._pods.get(namespace, name)
            if seen.uid == uid and seen.node == node and not seen.terminating and not seen.finished:
                await self._pods.evict(namespace, name, uid=uid, resource_version=seen.resource_version)
        except KubeError:
            return Result(outcome=Outcome.AGAIN, retry_after=0.5)
        return DONE

    def unfenced(stand: Any, pod: Any, sequence: Any) -> bool:
        return undone(stand, pod, sequence) or (pod is not None and pod.node is None)

    undone = settling._undone
    patch.setattr(Executor, "undo", undo)
    patch.setattr(settling, "_undone", unfenced)


def no_wait_for_the_view_of_the_touches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takeover, "reached", lambda freshness, wanted: True)


def any_view_is_believed(patch: pytest.MonkeyPatch) -> None:
    absent_is_gone(patch)
    no_wait_for_the_view_of_the_touches(patch)


def fetched_sequence(patch: pytest.MonkeyPatch) -> None:
    append = Book._append_once

    async def fetched(self: Book, commit: Any, expected: Any) -> Any:
        stream, view = self._stream, self.view
        if self.token:
            newest = await stream.last_sequence()
            self.view = msgspec.structs.replace(self.view, sequence=Sequence(newest))
            del view
            return await append(self, commit, Sequence(newest))
        return await append(self, commit, expected)

    patch.setattr(Book, "_append_once", fetched)


def freshness_of_the_last_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leading.Leadership, "_freshness", lambda self: self._state.pod_freshness or "0")


BROKEN: dict[str, Patch] = {
    "a take-over touches nothing": no_touch_on_takeover,
    "the fence is not compared": no_fence_check,
    "an entry closes on the answer to a Binding": close_on_answer,
    "room of closed entries is not held until the view is late enough": no_lingering_holds,
    "after a conflict the fence is not read again": no_fence_read_after_conflict,
    "an undoing touches nothing": no_touch_before_eviction,
    "a take-over believes a view older than the entries": any_view_is_believed,
    "a take-over does not wait for a view of its touches": no_wait_for_the_view_of_the_touches,
    "an append expects the sequence that it fetched": fetched_sequence,
    "a close names the last clock's freshness": freshness_of_the_last_clock,
}
