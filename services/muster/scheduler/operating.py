"""What operators tell the leader: pauses, which it keeps in the LEDGER, and what they ask of the policy.

    muster.api.<tenant>.pause | resume ─► memory entry "pauses" ─► every reader of the LEDGER holds back
    muster.api.<tenant>.pauses | policy ─► what is in force

A pause is answered when it stands in the LEDGER. A decision that was made before is refused there, since the LEDGER has
moved on: from the answer on nothing more is committed. What was committed before is completed, so that no gang stands half.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

import msgspec
import structlog

from muster.bus.client import Question
from muster.bus.errors import RequestRefusedError
from muster.bus.operating import (
    PauseRequest,
    PausesReply,
    PausesRequest,
    PolicyReply,
    PolicyRequest,
    ResumeRequest,
)
from muster.decide.pauses import CORE, pauses_of, value_of, with_pauses, without
from muster.decide.spelling import meant
from muster.model.ledger import Memory
from muster.model.pauses import Act, Pause
from muster.runtime.policy_watch import PolicySource
from muster.scheduler.book import Book, Deposed
from muster.view.world import World

APPEND_SECONDS = 15.0
"""How long an operator waits for the LEDGER."""
RETRY_SECONDS = 0.1


class Operating:
    """Answers to operators, while this scheduler leads."""

    def __init__(
        self,
        *,
        world: World,
        book: Book,
        policies: PolicySource,
        wake: Callable[[], None],
        log: structlog.stdlib.BoundLogger,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._world = world
        self._book = book
        self._policies = policies
        self._wake = wake
        self._log = log
        self._wall = wall

    async def pause(self, request: PauseRequest, place: Question) -> PausesReply:
        """Pause acts.

        Raises:
            RequestRefusedError: not an operator, no such queue, no act, or the LEDGER takes nothing.
        """
        tenant = self._operator(place)
        self._check(request.acts)
        if request.queue and request.queue not in self._world.queues:
            known = ", ".join(sorted(self._world.queues)) or "none"
            near = meant(request.queue, self._world.queues)
            raise RequestRefusedError("not-found", f"no queue {request.queue}{near or f'; queues here: {known}'}")
        by = request.by or tenant
        now = self._wall()
        new = tuple(
            Pause(act=act, queue=request.queue, by=by, reason=request.reason, since=now)
            for act in dict.fromkeys(request.acts)
        )
        pauses = await self._save(lambda before: with_pauses(before, new))
        self._log.warning("paused", acts=request.acts, queue=request.queue, by=by, reason=request.reason)
        return PausesReply(at=now, pauses=pauses, changed=new)

    async def resume(self, request: ResumeRequest, place: Question) -> PausesReply:
        """Lift pauses; `changed` is empty when there were none of these.

        Raises:
            RequestRefusedError: not an operator, no act, or the LEDGER takes nothing.
        """
        tenant = self._operator(place)
        self._check(request.acts)
        lifted: tuple[Pause, ...] = ()

        def change(before: tuple[Pause, ...]) -> tuple[Pause, ...]:
            nonlocal lifted
            after, lifted = without(before, request.acts, request.queue)
            return after

        pauses = await self._save(change)
        if lifted:
            acts = [one.act for one in lifted]
            self._log.warning("resumed", acts=acts, queue=request.queue, by=request.by or tenant)
        return PausesReply(at=self._wall(), pauses=pauses, changed=lifted)

    async def pauses(self, _request: PausesRequest, _place: Question) -> PausesReply:
        """What is paused; everybody may know why a job waits."""
        return PausesReply(at=self._wall(), pauses=pauses_of(self._book.view.memory))

    async def policy(self, _request: PolicyRequest, place: Question) -> PolicyReply:
        """The policy in force.

        Raises:
            RequestRefusedError: not an operator.
        """
        self._operator(place)
        source = self._policies
        return PolicyReply(
            at=self._wall(),
            loaded_at=source.loaded_at,
            source=str(source.path) if source.path is not None else "",
            problem=source.problem,
            policy=msgspec.to_builtins(source.current),
        )

    async def restore(self, pauses: tuple[Pause, ...]) -> None:
        """The LEDGER that kept these was lost: they stand in the new one before anything is decided by it."""
        if not pauses:
            return
        try:
            await self._save(lambda before: with_pauses(before, pauses))
        except RequestRefusedError as error:
            self._log.error("pauses are lost with the LEDGER; pause again", pauses=value_of(pauses), why=str(error))
            return
        self._log.warning("pauses outlived their LEDGER", pauses=value_of(pauses))

    def _operator(self, place: Question) -> str:
        name = place.tokens[1]
        tenant = self._policies.current.tenants.get(name)
        if tenant is None or not tenant.operator:
            raise RequestRefusedError(
                "not-allowed",
                f"tenant {name} is no operator: that is for tenants with operator: true under tenants.{name} of the policy",
            )
        return name

    def _check(self, acts: Iterable[Act]) -> None:
        if not tuple(acts):
            raise RequestRefusedError("invalid", "acts is empty: name bind, evict, cordon or several of them")

    async def _save(self, change: Callable[[tuple[Pause, ...]], tuple[Pause, ...]]) -> tuple[Pause, ...]:
        """Append what the pauses become; returns them when they stand."""
        clock = asyncio.get_running_loop().time
        until = clock() + APPEND_SECONDS
        while clock() < until:
            view = self._book.view
            before = pauses_of(view.memory)
            after = change(before)
            if set(after) == set(before):
                return after
            note = Memory(core=CORE, value=value_of(after))
            try:
                if await self._book.append((note,), expected=view.sequence, at=self._wall()) is not None:
                    self._wake()
                    return pauses_of(self._book.view.memory)
            except Deposed:
                # It may be about to lead: its leader entry comes first.
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(0)
        raise RequestRefusedError("stale", f"the LEDGER took nothing within {APPEND_SECONDS:g} s; ask again")
