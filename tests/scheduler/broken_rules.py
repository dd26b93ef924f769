"""Rules of the commit protocol left out on purpose, each as a patch of the scheduler's shell.

A simulation that finds nothing with a rule left out would prove nothing with the rule in place.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from muster.decide import commitments, settling
from muster.decide.commitments import LedgerView
from muster.decide.join import Join
from muster.fenced.executor import DONE, Executor, Outcome, Result
from muster.kube.errors import KubeError
from muster.model.units import Sequence
from muster.scheduler import committing, leading, proposals, takeover
from muster.scheduler.book import Book
from muster.scheduler.releases import Releases
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


# --- plans (rule E) ---------------------------------------------------------------------------------------------------


def no_nominated_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(committing, "nominations", lambda view: ())


def consumed_before_victims_are_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leading, "consumable", lambda entry, pods, *, complete: entry.kind is commitments.Kind.PLAN)


def consumed_while_withdrawn(patch: pytest.MonkeyPatch) -> None:
    follow = Join.follow

    def unmarked(view: Any) -> Any:
        plan, taken_back = commitments.Kind.PLAN, commitments.Kind.WITHDRAWING
        opened = {
            gang: msgspec.structs.replace(entry, kind=plan) if entry.kind is taken_back else entry
            for gang, entry in view.open.items()
        }
        return msgspec.structs.replace(view, open=opened)

    def without_victims(entry: Any, pods: Any, *, complete: str) -> bool:
        kinds = {commitments.Kind.PLAN, commitments.Kind.WITHDRAWING}
        return entry.kind in kinds and not settling.remaining(entry, pods, complete=complete)

    patch.setattr(leading, "consumable", without_victims)
    patch.setattr(Join, "follow", lambda self, view: follow(self, unmarked(view)))
    patch.setattr(simulated_process.Process, "_compare", lambda self, snapshot, basis: None)


def withdrawn_without_a_touch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settling, "_touched", lambda victim, pods, entry: True)


def victims_not_touched_on_takeover(patch: pytest.MonkeyPatch) -> None:
    touch_all = takeover.TakeOver._touch_all

    async def members_only(self: Any, targets: Any) -> None:
        victims = self._book.view.victims()
        await touch_all(self, {uid: target for uid, target in targets.items() if uid not in victims})

    patch.setattr(takeover.TakeOver, "_touch_all", members_only)


def victims_of_two_plans(patch: pytest.MonkeyPatch) -> None:
    check = proposals.Proposals._check_victims

    def careless(self: Any, victims: Any, view: Any) -> None:
        check(self, victims, LedgerView())

    patch.setattr(proposals.Proposals, "_check_victims", careless)


def victims_released(patch: pytest.MonkeyPatch) -> None:
    due = Releases.due

    def careless(self: Any, join: Any, view: Any, **fields: Any) -> Any:
        opened = {gang: msgspec.structs.replace(entry, victims=()) for gang, entry in view.open.items()}
        return due(self, join, msgspec.structs.replace(view, open=opened), **fields)

    patch.setattr(Releases, "due", careless)


def second_plan_for_a_gang(patch: pytest.MonkeyPatch) -> None:
    check = proposals.Proposals._check_gangs

    def careless(self: Any, plan: Any, view: Any, snapshot: Any) -> None:
        check(self, plan, LedgerView(), snapshot)

    rooms = proposals.Proposals._check_rooms
    patch.setattr(proposals.Proposals, "_check_gangs", careless)
    patch.setattr(proposals.Proposals, "_check_rooms", lambda self, ones, view: rooms(self, ones, LedgerView()))


def other_plans_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    refusal = simulated_process.room_refusal
    patch.setattr(simulated_process, "room_refusal", lambda snapshot, others, plan: refusal(snapshot, (), plan))


def preemptor_knows_no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedgerView, "token", lambda self, entry: Sequence(2**60))


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
BROKEN_PLANS: dict[str, Patch] = {
    "room of plans is not held": no_nominated_room,
    "a plan is consumed before its victims are gone": consumed_before_victims_are_gone,
    "a plan is withdrawn without a touch": withdrawn_without_a_touch,
    "a take-over does not touch the victims of plans": victims_not_touched_on_takeover,
    "a victim may be in two plans": victims_of_two_plans,
    "a victim's gang is released": victims_released,
    "a gang may have two plans": second_plan_for_a_gang,
    "a plan may nominate what another one nominates": other_plans_not_looked_at,
    "a plan that is being withdrawn is consumed": consumed_while_withdrawn,
    "the preemptor's token is above every fence": preemptor_knows_no_fence,
}
