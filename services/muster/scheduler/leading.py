"""One leadership of the scheduler: take over, then decide and commit round by round until it ends.

    take over   leader entry ─► see `takeover` ─► rounds
    a round     settle open entries ─► snapshot ─► decide (off the event loop) ─► drop what changed meanwhile ─► one append
                ─► start the binds and undos that the view now calls for

Nothing is carried out that is not committed, and nothing is committed on a view other than the one that decided.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

import msgspec
import structlog

from muster.decide.basis import Basis
from muster.decide.commitments import Kind, LedgerView, OpenEntry, later
from muster.decide.memory import CORE, CoreMemory, card_refused, gang_failed, node_refused
from muster.decide.scheduling import Decision
from muster.decide.settling import Steps, settle
from muster.model.instructions import Place, Slot
from muster.model.ledger import Bind, Entry, Memory, Undoing
from muster.model.nodes import CardMode
from muster.model.pods import CardUse, Shape
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import NodeName, PodUid, Sequence, split_key
from muster.scheduler.actions import Actions
from muster.scheduler.binding import annotations_of, may_bind_now, reserved_places, seen_in_state
from muster.scheduler.book import Book, Deposed
from muster.scheduler.card_watch import CardWatch
from muster.scheduler.deadlines import ActiveTime, Since
from muster.scheduler.executor import Executor, Outcome, Result
from muster.scheduler.keeping import Keeping
from muster.scheduler.releases import Releases
from muster.scheduler.reporting import Reporter
from muster.scheduler.reservations import Reservations
from muster.scheduler.takeover import State, TakeOver, saved_memory
from muster.scheduler.wake import Wake
from muster.scheduler.world import News, World

IDLE_ROUND = 5.0
"""Seconds without any change after which a round is run all the same: back-offs and deadlines end by time alone."""
MEMORY_SECONDS = 60.0
"""How often the core's memory is written when no back-off in it has changed."""
LARGEST_COMMIT = 20_000
"""Slots. What is over goes into the next commit."""
KEPT_SECONDS = 30 * 86_400.0
"""How long closed entries stay in the LEDGER."""
TIDY_SECONDS = 3600.0


class Decide(Protocol):
    """One decision of the core."""

    def __call__(
        self, snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, *, basis: Basis
    ) -> Awaitable[Decision]:
        """What should happen now; the basis is this snapshot's."""
        ...


class Leadership:
    """Everything one leadership does."""

    def __init__(
        self,
        *,
        world: World,
        state: State,
        book: Book,
        executor: Executor,
        reporter: Reporter,
        policy: Policy,
        wake: Wake,
        decide: Decide,
        log: structlog.stdlib.BoundLogger,
        incarnation: int,
        paused: Callable[[], bool] = lambda: False,
        reservations: Reservations | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`wall` gives Unix seconds; everything that is waited for is measured by the event loop's own clock."""
        self._world = world
        self._state = state
        self._book = book
        self._executor = executor
        self._reporter = reporter
        self._policy = policy
        self._wake = wake
        self._decide = decide
        self._log = log
        self._incarnation = incarnation
        self._paused = paused
        self._reservations = reservations
        self._card_watch = CardWatch(world=world, reporter=reporter)
        self._wall = wall
        self._clock = asyncio.get_running_loop().time
        self._active = ActiveTime(self._clock())
        self._open_since: Since[Sequence] = Since()
        self._keeping = Keeping(world=world, policy=policy)
        self._releases = Releases(world=world, timeouts=policy.timeouts)
        self._memory = CoreMemory()
        self._saved = self._memory
        self._saved_at = self._clock()
        self._tidied = self._clock()
        self._refusals: list[tuple[NodeName, Shape, tuple[CardUse, ...]]] = []
        self._actions = Actions(
            concurrency=policy.bind_concurrency,
            wake=wake,
            clock=self._clock,
            log=log,
            observe=reporter.acted,
        )

    async def run(self, *, transitions: int) -> None:
        """Take over and lead until cancelled or deposed.

        Raises:
            Deposed: a newer leader stands in the LEDGER.
        """
        try:
            token = await self._book.lead(transitions=transitions, at=self._wall())
            self._log.info("leads", epoch=token)
            self._memory = self._saved = saved_memory(self._book.view, reporter=self._reporter)
            await TakeOver(
                book=self._book,
                state=self._state,
                executor=self._executor,
                reporter=self._reporter,
                policy=self._policy,
                incarnation=self._incarnation,
                log=self._log,
                wall=self._wall,
            ).run()
            await self._rounds()
        finally:
            self._book.resign()
            await self._actions.stop()
            if self._reservations is not None:
                await self._reservations.stop()

    async def _rounds(self) -> None:
        self._active.advance(self._clock(), counts=False)
        while True:
            self._stop_when_deposed()
            retry = self._actions.next_retry()
            idle = IDLE_ROUND if retry is None else max(0.02, min(IDLE_ROUND, retry - self._clock()))
            debounce = self._policy.debounce
            await self._wake.wait(quiet=debounce.quiet, longest=debounce.longest, timeout=idle)
            self._active.advance(self._clock(), counts=self._state.ready and not self._actions.away)
            if self._state.ready:
                await self._round()
            if self._clock() - self._tidied > TIDY_SECONDS:
                self._tidied = self._clock()
                await self._book.trim(older_than=self._wall() - KEPT_SECONDS, at=self._wall())

    def _stop_when_deposed(self) -> None:
        if self._book.deposed.is_set():
            raise Deposed

    # --- a round -----------------------------------------------------------------------------------------------------

    async def _round(self) -> None:
        self._book.saw_pods(self._state.pod_freshness)
        steps = self._settle()
        if steps.entries:
            entries = tuple(_within_one_commit(steps.entries))
            if await self._commit(entries, self._memory, expected=self._book.view.sequence) is None:
                self._wake()
                return
            if len(entries) < len(steps.entries):
                self._wake()
        if self._state.ready and not self._paused():
            await self._decide_and_commit()
        # STATE may have been emptied, or a newer leader seen, while any of this was awaited.
        self._stop_when_deposed()
        if self._state.ready:
            self._act(self._settle())

    def _freshness(self) -> str:
        """The latest pod event in the view: what a close or a naming rests on does not lie behind it."""
        return later(self._world.pod_version, self._state.pod_freshness)

    def _settle(self) -> Steps:
        opened = {entry.sequence: entry for entry in self._book.view.open.values()}
        now = self._active.seconds
        self._open_since.keep(opened, now)
        self._actions.keep_only(frozenset(opened))
        overdue = [
            entry.gang
            for entry in opened.values()
            if entry.kind is Kind.BIND and self._open_since.lasted(entry.sequence, now) > self._policy.timeouts.bind
        ]
        return settle(
            self._book.view,
            self._world.by_uid,
            self._world.nodes,
            freshness=self._freshness(),
            complete=self._state.pod_freshness,
            overdue=overdue,
            failed=self._actions.refused,
        )

    async def _decide_and_commit(self) -> None:
        view = self._book.view
        self._world.take_news()
        snapshot = self._keeping.snapshot(view)
        began = self._clock()
        try:
            decision = await self._decide(
                snapshot, self._remembering(), self._wall(), self._policy, basis=self._keeping.basis
            )
        except Exception as error:  # noqa: BLE001  (whatever the core did: what is committed has to be carried out)
            self._reporter.failed("decide", error)
            return
        self._reporter.decided(snapshot, decision.instructions, self._clock() - began)
        if self._policy.actions.bind != "act" or not self._state.ready:
            self._memory = decision.memory
            return
        now = self._active.seconds
        released = tuple(self._releases.due(self._keeping.join, view, freshness=self._freshness(), now=now))
        entries: list[Entry] = [*released]
        taken = {entry.gang for entry in released} | set(view.open)
        news = _Upset(self._world.take_news(), view)
        for instruction in decision.instructions:
            if not isinstance(instruction, Place) or instruction.gang in taken:
                continue
            if self._still_holds(instruction, news):
                entries.append(self._bind(instruction))
            else:
                self._wake()
        commit = tuple(_within_one_commit(entries))
        if await self._commit(commit, decision.memory, expected=view.sequence) is None or len(commit) < len(entries):
            self._wake()

    def kubelet_refused(self, node: NodeName, shape: Shape, cards: tuple[CardUse, ...] = ()) -> None:
        """A kubelet would not admit a pod of this shape: the pair is left alone for a while.

        So are these cards of the node: handing them over failed.
        """
        self._refusals.append((node, shape, cards))

    def _remembering(self) -> CoreMemory:
        """The memory with what was learned since the last decision."""
        refusals, self._refusals = self._refusals, []
        now, timeouts = self._wall(), self._policy.timeouts
        for node, shape, cards in refusals:
            self._memory = node_refused(self._memory, node, shape, now=now, timeouts=timeouts)
            self._memory = card_refused(self._memory, node, cards, now=now, timeouts=timeouts)
        return self._memory

    def _still_holds(self, place: Place, upset: "_Upset") -> bool:
        """Whether what the decision looked at is unchanged for these slots: their pods wait, their nodes are no fuller."""
        for slot in place.slots:
            pod = self._world.by_uid.get(slot.uid)
            if pod is None or pod.node is not None or pod.finished or pod.terminating or pod.gated:
                return False
            if slot.node in upset.nodes or slot.node not in self._world.nodes:
                return False
        return True

    def _bind(self, place: Place) -> Bind:
        slots = tuple(
            msgspec.structs.replace(
                slot,
                request=self._world.by_uid[slot.uid].shape.request,
                node_uid=self._world.nodes[slot.node].uid,
            )
            for slot in place.slots
        )
        return Bind(
            gang=place.gang,
            gang_uid=place.gang_uid,
            slots=slots,
            decided_at=self._wall(),
            freshness=self._freshness(),
        )

    # --- committing and acting ---------------------------------------------------------------------------------------

    async def _commit(self, entries: tuple[Entry, ...], memory: CoreMemory, *, expected: Sequence) -> Sequence | None:
        """Append the entries, with the memory when it is worth it; None: the view has moved on, and nothing is as if done.

        An undoing makes its gang back off.
        """
        for entry in entries:
            if isinstance(entry, Undoing):
                memory = gang_failed(memory, entry.gang, now=self._wall(), timeouts=self._policy.timeouts)
        if not entries:
            self._memory = memory
            return expected
        note = self._is_worth_saving(memory)
        with_note = (*entries, Memory(core=CORE, value=memory.to_data())) if note else entries
        sequence = await self._book.append(with_note, expected=expected, at=self._wall())
        if sequence is None:
            return None
        self._memory = memory
        if note:
            self._saved, self._saved_at = memory, self._clock()
        self._reporter.committed(with_note, sequence, self._book.token)
        return sequence

    def _is_worth_saving(self, memory: CoreMemory) -> bool:
        """A back-off must outlive us; what else the core remembers may be a minute old."""
        saved = self._saved
        if (memory.gangs, memory.nodes, memory.cards) != (saved.gangs, saved.nodes, saved.cards):
            return True
        return memory != self._saved and self._clock() - self._saved_at > MEMORY_SECONDS

    def _act(self, steps: Steps) -> None:
        if self._reservations is not None:
            self._reservations.tend(reserved_places(self._book.view, self._world), token=self._book.token)
        self._card_watch.look(self._clock())
        for entry, slot in may_bind_now(self._world, steps):
            self._actions.start("bind", (entry.sequence, slot.uid), partial(self._bind_slot, entry, slot))
        for entry, slot in steps.undos:
            self._actions.start("undo", (entry.sequence, slot.uid), partial(self._undo_slot, entry, slot))

    async def _bind_slot(self, entry: OpenEntry, slot: Slot) -> Result:
        namespace, _ = split_key(entry.gang)
        node = self._world.nodes.get(slot.node)
        if self._book.deposed.is_set():
            return Result(outcome=Outcome.SUPERSEDED, message="a newer leader stands")
        if node is None or slot.node_uid not in {"", node.uid}:
            return Result(outcome=Outcome.AGAIN, message=f"node {slot.node} is gone", retry_after=1.0)
        reserved_uuid = ""
        if node.card_mode is CardMode.RESERVED and slot.cards:
            if self._reservations is None:
                return Result(outcome=Outcome.REFUSED, message=f"node {slot.node}: cards cannot be reserved here")
            reserved = await self._reservations.ready(node, slot.cards[0].index, token=self._book.token)
            if isinstance(reserved, Result):
                return reserved
            reserved_uuid = reserved
        result = await self._executor.bind(
            namespace,
            slot.pod,
            uid=slot.uid,
            node=slot.node,
            token=Sequence(max(entry.sequence, self._book.token)),
            annotations=annotations_of(slot, node, self._wall(), reserved_uuid=reserved_uuid),
            known=seen_in_state(self._world.by_uid.get(slot.uid)),
        )
        return await self._judged(entry, result)

    async def _judged(self, entry: OpenEntry, result: Result) -> Result:
        """A newer fence is a newer entry's or leader's; when none stands, no LEDGER gave it and the pod cannot be bound."""
        if result.outcome is not Outcome.SUPERSEDED:
            return result
        try:
            await self._book.caught_up()
        except Deposed:
            return result
        current = self._book.view.open.get(entry.gang)
        if current is None or current.sequence != entry.sequence:
            return result
        return Result(outcome=Outcome.REFUSED, message=f"{result.message}, which no LEDGER gave")

    async def _undo_slot(self, entry: OpenEntry, slot: Slot) -> Result:
        namespace, _ = split_key(entry.gang)
        if self._book.deposed.is_set():
            return Result(outcome=Outcome.SUPERSEDED, message="a newer leader stands")
        return await self._executor.undo(
            namespace,
            slot.pod,
            uid=slot.uid,
            node=slot.node,
            token=Sequence(max(entry.sequence, self._book.token)),
        )


class _Upset:
    """Nodes on which a plan made before the news may not hold: they changed, or took a pod that was not expected there."""

    def __init__(self, news: News, view: LedgerView) -> None:
        expected: set[tuple[PodUid, NodeName]] = set()
        if news.arrived:
            expected = {(slot.uid, slot.node) for entry in view.open.values() for slot in entry.slots}
        self.nodes = news.changed | {node for uid, node in news.arrived if node and (uid, node) not in expected}


def _within_one_commit(entries: Iterable[Entry]) -> Iterable[Entry]:
    """As many of the entries as one commit takes, at least one."""
    slots = 0
    for number, entry in enumerate(entries):
        slots += len(entry.slots) if isinstance(entry, Bind | Undoing) else 1
        if number and slots > LARGEST_COMMIT:
            return
        yield entry
