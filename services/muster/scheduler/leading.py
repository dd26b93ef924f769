"""One leadership of the scheduler: take over, then decide and commit round by round until it ends.

    take over   leader entry ─► see `takeover` ─► rounds
    a round     settle open entries ─► withdraw plans, answer proposals ─► snapshot ─► decide (off the event loop)
                ─► drop what changed meanwhile ─► one append ─► start what the view now calls for (see `carrying`)

Nothing is carried out that is not committed, and nothing is committed on a view other than the one that decided. While a
plan is open its gang is bound only by an entry that consumes it, once the victims are gone (rule E).
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from muster.decide.commitments import Kind, LedgerView, later
from muster.decide.settling import Steps, consumable, settle
from muster.fenced.actions import Actions
from muster.fenced.executor import Executor
from muster.fenced.nodes import NodeExecutor
from muster.fenced.volumes import VolumeExecutor
from muster.model.instructions import Place
from muster.model.ledger import Entry
from muster.model.pods import CardUse, Shape
from muster.model.policy import Policy
from muster.model.units import GangKey, NodeName, Sequence
from muster.scheduler.book import Book, Deposed
from muster.scheduler.card_watch import CardWatch
from muster.scheduler.carrying import Carrying
from muster.scheduler.committing import Committing, Upset, within_one_commit
from muster.scheduler.deadlines import ActiveTime, Since
from muster.scheduler.judging import Standpoint
from muster.scheduler.nodes import NodeCommitments
from muster.scheduler.proposals import Proposals
from muster.scheduler.releases import Releases
from muster.scheduler.reporting import Reporter
from muster.scheduler.reservations import Reservations
from muster.scheduler.solving import Decide
from muster.scheduler.takeover import State, TakeOver, saved_memory
from muster.scheduler.withdrawals import Withdrawals
from muster.view.keeping import Keeping
from muster.view.wake import Wake
from muster.view.world import World

IDLE_ROUND = 5.0
"""Seconds without any change after which a round is run all the same: back-offs and deadlines end by time alone."""
KEPT_SECONDS = 30 * 86_400.0
"""How long closed entries stay in the LEDGER."""
TIDY_SECONDS = 3600.0


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
        volumes: VolumeExecutor | None = None,
        proposals: Proposals | None = None,
        nodes: NodeExecutor | None = None,
        wall: Callable[[], float] = time.time,
        policy_now: Callable[[], Policy] | None = None,
    ) -> None:
        """`policy_now` gives the policy in force, which is taken over before a round; without it `policy` stays.

        `wall` gives Unix seconds; everything that is waited for is measured by the event loop's own clock.
        """
        self._world = world
        self._state = state
        self._book = book
        self._executor = executor
        self._reporter = reporter
        self._policy = policy
        self._policy_now = policy_now if policy_now is not None else lambda: policy
        self._wake = wake
        self._decide = decide
        self._log = log
        self._incarnation = incarnation
        self._paused = paused
        self._reservations = reservations
        self._proposals = proposals
        self._wall = wall
        self._clock = asyncio.get_running_loop().time
        self._active = ActiveTime(self._clock())
        self._open_since: Since[Sequence] = Since()
        self._keeping = Keeping(world=world, policy=policy)
        self._releases = Releases(world=world, timeouts=policy.timeouts)
        self._withdrawals = Withdrawals(world=world, timeouts=policy.timeouts)
        self._nodes = NodeCommitments(world=world, executor=nodes)
        self._tidied = self._clock()
        self._committing = Committing(
            world=world, book=book, reporter=reporter, timeouts=policy.timeouts, clock=self._clock, wall=wall
        )
        self._actions = Actions(
            concurrency=policy.bind_concurrency,
            wake=wake,
            clock=self._clock,
            log=log,
            observe=reporter.acted,
        )
        self._carrying = Carrying(
            world=world,
            book=book,
            executor=executor,
            actions=self._actions,
            card_watch=CardWatch(world=world, reporter=reporter),
            reservations=reservations,
            volumes=volumes,
            not_made=self._committing.volume_refused,
            clock=self._clock,
            wall=wall,
        )

    async def run(self, *, transitions: int) -> None:
        """Take over and lead until cancelled or deposed.

        Raises:
            Deposed: a newer leader stands in the LEDGER.
        """
        try:
            token = await self._book.lead(transitions=transitions, at=self._wall())
            self._log.info("leads", epoch=token)
            self._committing.begin(saved_memory(self._book.view, reporter=self._reporter))
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
            self._take_over(self._policy_now())
            if self._state.ready:
                await self._round()
            if self._clock() - self._tidied > TIDY_SECONDS:
                self._tidied = self._clock()
                await self._book.trim(older_than=self._wall() - KEPT_SECONDS, at=self._wall())

    def _take_over(self, policy: Policy) -> None:
        """This policy is in force from here on; what is committed was judged by the one before."""
        if policy is self._policy:
            return
        self._policy = policy
        self._keeping = Keeping(world=self._world, policy=policy)
        for part in (self._releases, self._withdrawals, self._committing):
            part.timeouts = policy.timeouts
        self._log.info("decides by a new policy")

    def _stop_when_deposed(self) -> None:
        if self._book.deposed.is_set():
            raise Deposed

    def kubelet_refused(self, node: NodeName, shape: Shape, cards: tuple[CardUse, ...] = ()) -> None:
        """A kubelet would not admit a pod of this shape: the pair is left alone for a while.

        So are these cards of the node: handing them over failed.
        """
        self._committing.kubelet_refused(node, shape, cards)

    # --- a round -----------------------------------------------------------------------------------------------------

    async def _round(self) -> None:
        self._book.saw_pods(self._state.pod_freshness)
        if not await self._commit_now((*self._settle().entries, *self._settle_nodes())):
            return
        if self._state.ready and not await self._tend_plans():
            return
        if self._state.ready and not self._paused():
            await self._decide_and_commit()
        # STATE may have been emptied, or a newer leader seen, while any of this was awaited.
        self._stop_when_deposed()
        if self._state.ready:
            self._carrying.act(self._settle())
            self._nodes.act(self._book.view, self._actions, wall=self._wall())

    async def _commit_now(self, wanted: tuple[Entry, ...]) -> bool:
        """Append entries that need no decision; False: the view has moved on, another round comes."""
        if not wanted:
            return True
        entries = tuple(within_one_commit(wanted))
        sequence = await self._committing.commit(entries, self._committing.memory, expected=self._book.view.sequence)
        if sequence is None or len(entries) < len(wanted):
            self._wake()
        return sequence is not None

    def _freshness(self) -> str:
        """The latest pod event in the view: what a close or a naming rests on does not lie behind it."""
        return later(self._world.pod_version, self._state.pod_freshness)

    def _settle(self) -> Steps:
        opened = {entry.sequence: entry for entry in self._book.view.open.values()}
        now = self._active.seconds
        self._open_since.keep(opened, now)
        promised = {promise.sequence for promise in self._book.view.nodes.values()}
        self._actions.keep_only(frozenset({*opened, *promised}))
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
            failed={**self._actions.refused, **self._carrying.without_volume()},
        )

    def _settle_nodes(self) -> tuple[Entry, ...]:
        """What follows from open entries of nodes, and from marks of ours that no entry tells of."""
        return self._nodes.due(
            self._book.view,
            policy=self._policy,
            complete=self._state.pod_freshness,
            now=self._active.seconds,
            wall=self._wall(),
        )

    async def _tend_plans(self) -> bool:
        """Take back plans that lead nowhere, and answer what was proposed; False: the view has moved on."""
        if self._book.view.plans():
            self._keeping.snapshot(self._book.view)
            due = self._withdrawals.due(
                self._keeping.join,
                self._book.view,
                freshness=self._freshness(),
                complete=self._state.pod_freshness,
                now=self._active.seconds,
                wall=self._wall(),
            )
            if not await self._commit_now(tuple(due)):
                return False
        if self._proposals is not None:
            await self._answer(self._proposals)
        return True

    async def _answer(self, proposals: Proposals) -> None:
        """Judge each proposal on the view of this moment, and commit what is sound with that view's sequence."""
        for asked in proposals.take():
            view = self._book.view
            with asked:
                at = Standpoint(
                    view=view,
                    snapshot=self._keeping.snapshot(view),
                    memory=self._committing.remembering(view),
                    policy=self._policy,
                    now=self._wall(),
                    freshness=self._freshness(),
                    ready=self._state.ready,
                )
                entries = await proposals.judge(asked, at)
                if entries:
                    sequence = await self._committing.commit(entries, self._committing.memory, expected=view.sequence)
                    asked.committed(sequence)
        if proposals.waiting:
            self._wake()

    async def _decide_and_commit(self) -> None:
        view = self._book.view
        self._world.take_news()
        snapshot = self._keeping.snapshot(view)
        began = self._clock()
        try:
            decision = await self._decide(
                snapshot, self._committing.remembering(view), self._wall(), self._policy, basis=self._keeping.basis
            )
        except Exception as error:  # noqa: BLE001  (whatever the core did: what is committed has to be carried out)
            self._reporter.failed("decide", error)
            return
        self._reporter.decided(snapshot, decision, self._clock() - began)
        if self._policy.actions.bind != "act" or not self._state.ready:
            self._committing.keep(decision.memory)
            return
        now = self._active.seconds
        released = tuple(self._releases.due(self._keeping.join, view, freshness=self._freshness(), now=now))
        entries: list[Entry] = [*released]
        taken = {entry.gang for entry in released} | self._occupied(view)
        upset = Upset(self._world.take_news(), view)
        for instruction in decision.instructions:
            if not isinstance(instruction, Place) or instruction.gang in taken:
                continue
            if self._committing.still_holds(instruction, upset):
                entries.append(self._committing.bind(instruction, freshness=self._freshness()))
            else:
                self._wake()
        commit = tuple(within_one_commit(entries))
        sequence = await self._committing.commit(commit, decision.memory, expected=view.sequence)
        if sequence is None or len(commit) < len(entries):
            self._wake()

    def _occupied(self, view: LedgerView) -> set[GangKey]:
        """Gangs that may not be bound now: one has an open entry, unless it is a plan whose victims are gone."""
        pods, complete = self._world.by_uid, self._state.pod_freshness
        return {gang for gang, entry in view.open.items() if not consumable(entry, pods, complete=complete)}
