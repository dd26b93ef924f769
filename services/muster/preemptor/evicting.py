"""Carries out open plans: warns their victims, and evicts them when their time is over (rules C and E).

    plan in the LEDGER ─► touch each victim, with the warning on its pod ─► (grace) ─► judged once more ─► Eviction API

Nothing is remembered that a restart would lose: whom to warn and whom to evict is read from the LEDGER and from the pods
themselves. A token is the plan's sequence or the newest leader's; what a newer one has touched is out of reach, but not what
a user has written there (see `muster.fenced.forged`). Budgets that forbid an eviction are waited for, and told; after a while the plan is given back instead.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from math import ceil
from typing import NamedTuple

import structlog

from muster.decide.commitments import OpenEntry
from muster.decide.warnings import Duties, Warned, duties_of, marks_of
from muster.fenced.actions import Actions
from muster.fenced.executor import DONE, Executor, Outcome, Result, Seen, seen_in_state
from muster.fenced.forged import forged_version
from muster.model.ledger import Victim
from muster.model.policy import Policy
from muster.model.units import PodUid, Sequence, split_key
from muster.preemptor.metrics import PreemptorMetrics
from muster.preemptor.telling import Telling
from muster.view.ledger import LedgerCopy
from muster.view.world import World


class Hopeless(NamedTuple):
    """A plan that cannot be carried out, and why."""

    plan: OpenEntry
    reason: str
    message: str


class Evictor:
    """The actions on victims of one term."""

    def __init__(
        self,
        *,
        world: World,
        ledger: LedgerCopy,
        executor: Executor,
        telling: Telling,
        metrics: PreemptorMetrics,
        policy: Policy,
        caught_up: Callable[[], Awaitable[bool]],
        wake: Callable[[], None],
        clock: Callable[[], float],
        wall: Callable[[], float],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """`caught_up` reads the LEDGER to its present end; False when that cannot be done now."""
        self._world = world
        self._ledger = ledger
        self._caught_up = caught_up
        self._executor = executor
        self._telling = telling
        self._metrics = metrics
        self.timeouts = policy.timeouts
        """Of the policy in force."""
        self._clock = clock
        self._wall = wall
        self._log = log
        self._actions = Actions(
            concurrency=policy.bind_concurrency, wake=wake, clock=clock, log=log, observe=metrics.acted
        )
        self._blocked: dict[Sequence, float] = {}
        """Since when budgets forbid evictions of a plan, by the monotonic clock."""
        self._refused: dict[Sequence, str] = {}
        """What the API server said of an eviction that it will never do."""
        self._promised: dict[tuple[Sequence, PodUid], float] = {}
        """What this process told victims: whatever becomes of the warning on the pod, it counts."""
        self._leaving: dict[PodUid, float] = {}
        """Since when evicted pods take their time to go, by the monotonic clock."""
        self._budgets: dict[str, int] = {}
        """What each budget allowed at the last look."""

    async def stop(self) -> None:
        """Cancel what is under way: whoever comes next finds it in the LEDGER."""
        await self._actions.stop()

    # --- looking -----------------------------------------------------------------------------------------------------

    def duties(self, entry: OpenEntry, complete: str) -> Duties:
        """What this plan asks for now."""
        return duties_of(entry, self._world.by_uid, complete=complete, now=self._wall(), promised=self._promised)

    def next_moment(self, complete: str) -> float | None:
        """Seconds until something is due by time alone; None when nothing is."""
        retry = self._actions.next_retry()
        moments = [retry - self._clock()] if retry is not None else []
        moments += [since + self.timeouts.bind + 0.01 - self._clock() for since in self._blocked.values()]
        for entry in self._ledger.view.plans():
            due = self.duties(entry, complete).due
            if due is not None:
                moments.append(due - self._wall())
        return max(0.0, min(moments)) if moments else None

    def due(self, complete: str) -> list[OpenEntry]:
        """Plans of which victims may be evicted now, and are not being evicted already."""
        self._keep()
        found = []
        for entry in self._ledger.view.plans():
            evict = self.duties(entry, complete).evict
            if any(self._actions.may_start(_key(entry, victim)) for victim in evict):
                found.append(entry)
        return found

    def hopeless(self) -> Iterable[Hopeless]:
        """Plans that budgets have forbidden for too long, or that the API server will not let be carried out."""
        now = self._clock()
        for entry in self._ledger.view.plans():
            if entry.sequence in self._refused:
                yield Hopeless(entry, "REFUSED", f"an eviction is refused: {self._refused[entry.sequence]}")
                continue
            since = self._blocked.get(entry.sequence)
            if since is not None and now - since > self.timeouts.bind:
                message = f"PodDisruptionBudgets have forbidden its evictions for {now - since:.0f} s"
                yield Hopeless(entry, "DISRUPTION_BUDGET", message)

    def _keep(self) -> None:
        opened = frozenset(entry.sequence for entry in self._ledger.view.plans())
        self._actions.keep_only(opened)
        self._blocked = {sequence: since for sequence, since in self._blocked.items() if sequence in opened}
        self._refused = {sequence: why for sequence, why in self._refused.items() if sequence in opened}
        self._promised = {key: moment for key, moment in self._promised.items() if key[0] in opened}
        self._telling.keep_only(opened)
        for uid, since in tuple(self._leaving.items()):
            pod = self._world.by_uid.get(uid)
            if pod is None or pod.finished:
                self._metrics.leaving.observe(self._clock() - since)
                del self._leaving[uid]
        budgets = {key: budget.allowed for key, budget in self._world.budgets.items()}
        if budgets != self._budgets:
            self._budgets = budgets
            self._actions.hurry(frozenset(self._blocked))

    # --- acting ------------------------------------------------------------------------------------------------------

    def warn(self, complete: str) -> None:
        """Warn every victim that its plan has not told yet."""
        self._keep()
        for entry in self._ledger.view.plans():
            duties = self.duties(entry, complete)
            for warned in duties.warn:
                key = (entry.sequence, PodUid(f"warn {warned.victim.uid}"))
                self._actions.start("warn", key, partial(self._warn, entry, warned))
            if not duties.warn and duties.due is not None:
                self._telling.planned(entry, duties.due)

    def evict(self, entry: OpenEntry, complete: str) -> int:
        """Evict the victims of a plan whose time is over; how many evictions were begun."""
        begun = 0
        for victim in self.duties(entry, complete).evict:
            begun += self._actions.start("evict", _key(entry, victim), partial(self._evict, entry, victim))
        if begun:
            self._log.info("evicts", gang=entry.gang, cause=entry.cause, plan=entry.sequence, pods=begun)
        return begun

    def _still_open(self, entry: OpenEntry) -> bool:
        return self._ledger.view.open.get(entry.gang) is entry

    async def _warn(self, entry: OpenEntry, warned: Warned) -> Result:
        if not self._still_open(entry):
            return _over()
        victim = warned.victim
        namespace, _ = split_key(victim.gang)
        touched = await self._executor.touch(
            namespace,
            victim.pod,
            uid=victim.uid,
            token=self._ledger.view.token(entry),
            known=seen_in_state(self._world.by_uid.get(victim.uid)),
            annotations=marks_of(entry, warned.evict_at, room_for=self._world.job_of(entry.gang)),
        )
        if isinstance(touched, Result) and touched.outcome is Outcome.SUPERSEDED:
            touched = await self._warn_forged(entry, warned)
        if isinstance(touched, Result) and touched.outcome is not Outcome.DONE:
            return _again_later(touched)
        self._promised.setdefault((entry.sequence, victim.uid), float(ceil(warned.evict_at)))  # as it is written
        self._telling.warned(entry, victim, warned.evict_at)
        return DONE

    async def _warn_forged(self, entry: OpenEntry, warned: Warned) -> Result:
        """The pod carries a fence that nobody gave: it hears all the same, and its fence stays."""
        victim = warned.victim
        forged = await self._forged(entry, victim)
        if isinstance(forged, Result):
            return forged
        self._telling.forged(victim, forged.fence)
        namespace, _ = split_key(victim.gang)
        marks = marks_of(entry, warned.evict_at, room_for=self._world.job_of(entry.gang))
        return await self._executor.annotate_version(namespace, victim.pod, forged, annotations=marks)

    async def _forged(self, entry: OpenEntry, victim: Victim) -> Seen | Result:
        namespace, _ = split_key(victim.gang)
        token = self._ledger.view.token(entry)

        async def still_open() -> bool:
            return await self._caught_up() and self._still_open(entry) and self._ledger.view.token(entry) == token

        return await forged_version(
            self._executor, namespace, victim.pod, uid=victim.uid, token=token, still_open=still_open
        )

    async def _evict(self, entry: OpenEntry, victim: Victim) -> Result:
        if not self._still_open(entry):
            return _over()
        namespace, _ = split_key(victim.gang)
        result = await self._executor.undo(
            namespace, victim.pod, uid=victim.uid, node=victim.node, token=self._ledger.view.token(entry)
        )
        if result.outcome is Outcome.SUPERSEDED:
            forged = await self._forged(entry, victim)
            result = (
                forged
                if isinstance(forged, Result)
                else await self._executor.evict_version(namespace, victim.pod, forged, node=victim.node)
            )
        if result.budget:
            self._blocked.setdefault(entry.sequence, self._clock())
            self._metrics.budget_refusals.inc()
            self._telling.blocked(entry, victim, result.message)
        elif result.outcome is Outcome.REFUSED:
            self._refused[entry.sequence] = f"pod {victim.pod} of {self._world.job_of(victim.gang)}: {result.message}"
        elif result.outcome is Outcome.DONE:
            self._blocked.pop(entry.sequence, None)
            if victim.uid not in self._leaving:
                self._leaving[victim.uid] = self._clock()
                self._metrics.evicted(entry, self._world, victim, now=self._wall())
        return _again_later(result)


def _key(entry: OpenEntry, victim: Victim) -> tuple[Sequence, PodUid]:
    return entry.sequence, victim.uid


def _over() -> Result:
    return Result(outcome=Outcome.FINISHED, message="the plan is not open any more")


def _again_later(result: Result) -> Result:
    """A newer fence is a newer leader's that this view has not read yet: it is tried again with what is read then."""
    if result.outcome is not Outcome.SUPERSEDED:
        return result
    return Result(outcome=Outcome.AGAIN, message=result.message, retry_after=1.0)
