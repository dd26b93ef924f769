"""One leadership of the scheduler: take over, then decide and commit round by round until it ends.

    take over   leader entry ─► wait for STATE ─► touch every uid named in open entries (all our unbound pods when the
                LEDGER is new) ─► rounds
    a round     settle open entries ─► snapshot ─► decide (off the event loop) ─► drop what changed meanwhile ─► one append
                ─► start the binds and undos that the view now calls for

Nothing is carried out that is not committed, and nothing is committed on a view other than the one that decided.
"""

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import msgspec
import structlog

from muster.decide.commitments import Kind, LedgerView, OpenEntry, Steps, holds, settle
from muster.decide.gangs import build_snapshot
from muster.decide.memory import CORE, CoreMemory, gang_failed, node_refused
from muster.decide.scheduling import Decision
from muster.model.instructions import Place, Slot
from muster.model.ledger import Bind, Entry, Memory, Undoing
from muster.model.pods import Shape
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import NodeName, Sequence, split_key
from muster.scheduler.actions import Actions
from muster.scheduler.binding import annotations_of, may_bind_now, seen_in_state
from muster.scheduler.book import Book, Deposed
from muster.scheduler.executor import Executor, Outcome, Result
from muster.scheduler.releases import Releases
from muster.scheduler.reporting import Reporter
from muster.scheduler.takeover import saved_memory, take_over
from muster.scheduler.wake import Wake
from muster.scheduler.world import World

IDLE_ROUND = 5.0
"""Seconds without any change after which a round is run all the same: back-offs and deadlines end by time alone."""


Decide = Callable[[Snapshot, CoreMemory, float, Policy], Awaitable[Decision]]


class State(Protocol):
    """The consumer side of STATE, as far as a leader needs it."""

    @property
    def ready(self) -> bool:
        """Rule 1: the watcher's epoch is current and everything up to now is applied."""
        ...

    @property
    def pod_freshness(self) -> str:
        """Every pod event up to this resourceVersion has been applied."""
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
    ) -> None:
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
        self._active: dict[Sequence, float] = {}
        self._releases = Releases(world=world, timeouts=policy.timeouts)
        self._last_round = 0.0
        self._memory = CoreMemory()
        self._saved = self._memory
        self._refusals: list[tuple[NodeName, Shape]] = []
        self._actions = Actions(
            concurrency=policy.bind_concurrency,
            wake=wake,
            clock=time.monotonic,
            log=log,
            observe=reporter.acted,
        )

    async def run(self, *, transitions: int) -> None:
        """Take over and lead until cancelled or deposed.

        Raises:
            Deposed: a newer leader stands in the LEDGER.
        """
        try:
            token = await self._book.lead(transitions=transitions, at=time.time())
            self._log.info("leads", epoch=token)
            while not self._state.ready:
                await self._wake.wait(quiet=0.0, longest=0.0, timeout=0.2)
            self._memory = self._saved = saved_memory(self._book.view)
            await take_over(
                world=self._world,
                book=self._book,
                executor=self._executor,
                reporter=self._reporter,
                policy=self._policy,
                incarnation=self._incarnation,
                log=self._log,
            )
            await self._rounds()
        finally:
            self._book.resign()
            await self._actions.stop()

    async def _rounds(self) -> None:
        self._last_round = time.monotonic()
        while True:
            if self._book.deposed.is_set():
                raise Deposed
            retry = self._actions.next_retry()
            idle = IDLE_ROUND if retry is None else max(0.02, min(IDLE_ROUND, retry - time.monotonic()))
            debounce = self._policy.debounce
            await self._wake.wait(quiet=debounce.quiet, longest=debounce.longest, timeout=idle)
            if self._state.ready:
                await self._round()
            self._last_round = time.monotonic()

    # --- a round -----------------------------------------------------------------------------------------------------

    async def _round(self) -> None:
        self._book.saw_pods(self._state.pod_freshness)
        # What a closing entry names must not lie before any event that shows its outcome.
        freshness = self._world.pod_version
        steps = self._settle(freshness)
        if (
            steps.entries
            and await self._append(self._with_memory(steps.entries), expected=self._book.view.sequence) is None
        ):
            self._wake()
            return
        if not self._paused():
            await self._decide_and_commit(freshness)
        self._act(self._settle(freshness))

    def _with_memory(self, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """The entries, with the core's memory beside them when it has changed. An undoing makes its gang back off."""
        for entry in entries:
            if isinstance(entry, Undoing):
                self._memory = gang_failed(self._memory, entry.gang, now=time.time(), timeouts=self._policy.timeouts)
        if not entries or self._memory == self._saved:
            return entries
        self._saved = self._memory
        return (*entries, Memory(core=CORE, value=self._memory.to_data()))

    def _settle(self, freshness: str) -> Steps:
        elapsed = time.monotonic() - self._last_round
        if not self._actions.unreachable:
            for entry in self._book.view.open.values():
                self._active[entry.sequence] = self._active.get(entry.sequence, 0.0) + elapsed
        self._last_round = time.monotonic()
        sequences = frozenset(entry.sequence for entry in self._book.view.open.values())
        self._active = {key: value for key, value in self._active.items() if key in sequences}
        self._actions.keep_only(sequences)
        overdue = [
            entry.gang
            for entry in self._book.view.open.values()
            if entry.kind is Kind.BIND and self._active.get(entry.sequence, 0.0) > self._policy.timeouts.bind
        ]
        return settle(
            self._book.view,
            self._world.by_uid,
            self._world.nodes,
            freshness=freshness,
            overdue=overdue,
            failed=self._actions.refused,
        )

    async def _decide_and_commit(self, freshness: str) -> None:
        view = self._book.view
        self._world.take_touched()
        snapshot = self._snapshot(view)
        began = time.monotonic()
        decision = await self._decide(snapshot, self._remembering(), time.time(), self._policy)
        self._reporter.decided(snapshot, decision.instructions, time.monotonic() - began)
        entries: list[Entry] = [*self._releases.due(snapshot, view, freshness=freshness, now=began)]
        taken = {entry.gang for entry in entries if isinstance(entry, Undoing)} | set(view.open)
        touched = self._world.take_touched()
        if self._policy.actions.bind == "act":
            for instruction in decision.instructions:
                if not isinstance(instruction, Place) or instruction.gang in taken:
                    continue
                if self._still_holds(instruction, touched):
                    entries.append(self._bind(instruction))
                else:
                    self._wake()
        self._memory = decision.memory
        commit = self._with_memory(tuple(entries))
        if commit and await self._append(commit, expected=view.sequence) is None:
            self._wake()

    def kubelet_refused(self, node: NodeName, shape: Shape) -> None:
        """A kubelet would not admit a pod of this shape: the pair is left alone for a while."""
        self._refusals.append((node, shape))

    def _remembering(self) -> CoreMemory:
        """The memory with what was learned since the last decision."""
        refusals, self._refusals = self._refusals, []
        for node, shape in refusals:
            self._memory = node_refused(self._memory, node, shape, now=time.time(), timeouts=self._policy.timeouts)
        return self._memory

    def _snapshot(self, view: LedgerView) -> Snapshot:
        world = self._world
        snapshot = build_snapshot(
            nodes=world.nodes.values(),
            pods=world.pods.values(),
            podgroups=world.podgroups.values(),
            queues=world.queues.values(),
            workloads=world.workloads.values(),
            priority_classes=world.priority_classes.values(),
            namespaces=world.namespaces.values(),
            holds=holds(view, world.by_uid),
            policy=self._policy,
        )
        if not view.open:
            return snapshot
        busy = tuple(
            msgspec.structs.replace(gang, hold="BINDING", hold_message="its last placement is being carried out")
            if gang.key in view.open and not gang.hold
            else gang
            for gang in snapshot.gangs
        )
        return msgspec.structs.replace(snapshot, gangs=busy)

    def _still_holds(self, place: Place, touched: set[NodeName]) -> bool:
        """Whether what the decision looked at is unchanged for these slots: their pods wait, their nodes were not touched."""
        for slot in place.slots:
            pod = self._world.by_uid.get(slot.uid)
            if pod is None or pod.node is not None or pod.finished or pod.terminating or slot.node in touched:
                return False
        return True

    def _bind(self, place: Place) -> Bind:
        slots = tuple(
            msgspec.structs.replace(slot, request=self._world.by_uid[slot.uid].shape.request) for slot in place.slots
        )
        return Bind(gang=place.gang, gang_uid=place.gang_uid, slots=slots, decided_at=time.time())

    # --- committing and acting ---------------------------------------------------------------------------------------

    async def _append(self, entries: tuple[Entry, ...], *, expected: Sequence) -> Sequence | None:
        sequence = await self._book.append(entries, expected=expected, at=time.time())
        if sequence is not None:
            self._reporter.committed(entries, sequence, self._book.token)
        return sequence

    def _act(self, steps: Steps) -> None:
        allocating = may_bind_now(self._world, steps.binds)
        for entry, slot in allocating:
            self._actions.start("bind", (entry.sequence, slot.uid), partial(self._bind_slot, entry, slot))
        for entry, slot in steps.undos:
            self._actions.start("undo", (entry.sequence, slot.uid), partial(self._undo_slot, entry, slot))

    async def _bind_slot(self, entry: OpenEntry, slot: Slot) -> Result:
        namespace, _ = split_key(entry.gang)
        pod = self._world.by_uid.get(slot.uid)
        node = self._world.nodes.get(slot.node)
        if node is None or self._book.deposed.is_set():
            return Result(outcome=Outcome.SUPERSEDED, message="the node is gone, or a newer leader stands")
        return await self._executor.bind(
            namespace,
            slot.pod,
            uid=slot.uid,
            node=slot.node,
            token=Sequence(max(entry.sequence, self._book.token)),
            annotations=annotations_of(slot, node, time.time()),
            known=seen_in_state(pod),
        )

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
