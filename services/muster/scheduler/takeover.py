"""Taking over (rules A, C and H of the commit protocol): what a new leader does before its first round.

    leader entry, STATE ready ─► touch every uid that an open entry names, victims of plans too, whatever STATE shows
                    new LEDGER ─► touch every pod of ours that the API server lists: the lost LEDGER may have named any
    ─► wait until the view of the pods shows those touches ─► note that this incarnation was taken over

The view must show the touches because what a touch found bound may be named by no entry any more. The note carries the
freshness they need, so that every later leader waits for it too.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import msgspec
import structlog

from muster.decide.commitments import LedgerView, later, reached
from muster.decide.memory import CORE, CoreMemory
from muster.fenced.executor import Executor, Outcome, Result, Seen
from muster.model.ledger import Memory
from muster.model.policy import Policy
from muster.model.units import PodUid, split_key
from muster.scheduler.book import Book, Deposed
from muster.scheduler.reporting import Reporter

INCARNATION = "incarnation"
"""Name of the note that says for which incarnation all our pods were touched, and how fresh a view must be since."""
LOOK_SECONDS = 0.2


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A pod to be touched."""

    namespace: str
    name: str
    known: Seen | None = None


class State(Protocol):
    """The consumer side of STATE, as far as a leader needs it."""

    @property
    def ready(self) -> bool:
        """Rule 1: the watcher's epoch is current and everything up to now is applied."""
        ...

    @property
    def pod_freshness(self) -> str:
        """Every pod event up to this resourceVersion has been applied; '' while nothing is promised."""
        ...


def saved_memory(view: LedgerView, *, reporter: Reporter) -> CoreMemory:
    """The core's memory as the last leader left it; what cannot be read is told and forgotten."""
    saved = view.memory.get(CORE)
    if saved is None:
        return CoreMemory()
    try:
        return CoreMemory.from_data(saved)
    except msgspec.ValidationError as error:
        reporter.failed("memory", error)
        return CoreMemory()


class TakeOver:
    """One take-over; see the module."""

    def __init__(
        self,
        *,
        book: Book,
        state: State,
        executor: Executor,
        reporter: Reporter,
        policy: Policy,
        incarnation: int,
        log: structlog.stdlib.BoundLogger,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._book = book
        self._state = state
        self._executor = executor
        self._reporter = reporter
        self._policy = policy
        self._incarnation = incarnation
        self._log = log
        self._wall = wall
        self._freshness = ""
        self._limit = asyncio.Semaphore(policy.bind_concurrency)

    async def run(self) -> None:
        """Touch what a former leader may still have Bindings or evictions under way for, and wait for the view of it.

        Raises:
            Deposed: a newer leader stands.
        """
        await self._wait_for(lambda: self._state.ready)
        note = self._book.view.memory.get(INCARNATION, {})
        new_ledger = note.get("touched") != self._incarnation
        self._freshness = "" if new_ledger else str(note.get("freshness", ""))
        targets = await self._everything() if new_ledger else {}
        for entry in self._book.view.open.values():
            for slot in entry.slots:
                targets.setdefault(slot.uid, Target(namespace=split_key(entry.gang)[0], name=slot.pod))
            for victim in entry.victims:
                targets.setdefault(victim.uid, Target(namespace=split_key(victim.gang)[0], name=victim.pod))
        await self._touch_all(targets)
        await self._wait_for(lambda: reached(self._state.pod_freshness, self._freshness))
        if new_ledger:
            await self._remember()
        self._log.info(
            "took over",
            epoch=self._book.token,
            open_entries=len(self._book.view.open),
            touched=len(targets),
            new_ledger=new_ledger,
        )

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._stop_when_deposed()
            await asyncio.sleep(LOOK_SECONDS)
        self._stop_when_deposed()

    def _stop_when_deposed(self) -> None:
        if self._book.deposed.is_set():
            raise Deposed

    async def _everything(self) -> dict[PodUid, Target]:
        """Our pods as the API server lists them now: STATE may lag behind what the lost LEDGER named."""
        names = self._policy.scheduler_names
        while isinstance(found := await self._executor.present(names), Result):
            self._log.warning("pods cannot be listed yet", why=found.message)
            self._stop_when_deposed()
            await asyncio.sleep(found.retry_after or LOOK_SECONDS)
        return {
            one.seen.uid: Target(namespace=one.namespace, name=one.name, known=one.seen)
            for one in found
            if not one.seen.finished
        }

    async def _touch_all(self, targets: dict[PodUid, Target]) -> None:
        async def touch(uid: PodUid, target: Target) -> None:
            async with self._limit:
                await self._touch(uid, target)

        async with asyncio.TaskGroup() as tasks:
            for uid, target in targets.items():
                tasks.create_task(touch(uid, target))

    async def _touch(self, uid: PodUid, target: Target) -> None:
        clock = asyncio.get_running_loop().time
        known = target.known
        while not self._book.deposed.is_set():
            began = clock()
            result = await self._executor.touch(
                target.namespace, target.name, uid=uid, token=self._book.token, known=known
            )
            known = None
            if not isinstance(result, Result):
                self._freshness = later(self._freshness, result.resource_version)
                return
            self._reporter.acted("touch", result, clock() - began)
            if result.outcome is Outcome.GONE:
                return
            if result.outcome is Outcome.SUPERSEDED:
                await self._superseded(target, result)
                return
            await asyncio.sleep(result.retry_after or 0.5)

    async def _superseded(self, target: Target, result: Result) -> None:
        """A newer leader's touch, or a fence that no LEDGER gave: nothing that was sent before it can succeed either way."""
        try:
            await self._book.caught_up()
        except Deposed:
            return
        if not self._book.deposed.is_set():
            self._log.error(
                "a pod carries a fence that no LEDGER gave: it cannot be bound or evicted",
                pod=f"{target.namespace}/{target.name}",
                why=result.message,
            )

    async def _remember(self) -> None:
        note = Memory(core=INCARNATION, value={"touched": self._incarnation, "freshness": self._freshness})
        while await self._book.append((note,), expected=self._book.view.sequence, at=self._wall()) is None:
            await self._book.caught_up()
