"""One term of the autoscaler: while it holds the Lease it proposes cordons and carries out what is committed.

    carry     STATE or the LEDGER changed ─► entries of nodes that STATE does not show yet are written     (at once)
    look      quiet, or a while has passed ─► the core: who is needed, who is idle ─► muster.propose.uncordon, cordon

The Lease is a courtesy, so that two do not ask the same: what keeps nodes safe are the fences and the LEDGER.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
import structlog

from muster.autoscaler.metrics import AutoscalerMetrics
from muster.autoscaler.telling import Telling
from muster.bus.errors import BusError
from muster.bus.proposals import CordonProposal, CordonWish, ProposalReply, RememberProposal, UncordonProposal
from muster.decide.commitments import nominations
from muster.decide.cordons import named_nodes, written
from muster.decide.idle import CORE, CordonIdea, IdleMemory, Look, Sight, UncordonIdea, look
from muster.decide.idle.memory import was_cordoned
from muster.decide.memory import CORE as SCHEDULING
from muster.decide.memory import CoreMemory
from muster.decide.pauses import paused
from muster.fenced.actions import Actions
from muster.fenced.nodes import NodeExecutor
from muster.model.policy import Policy
from muster.model.units import PodUid, Sequence
from muster.runtime.tasks import in_thread, run_together
from muster.view.following import Following
from muster.view.keeping import Keeping
from muster.view.wake import Wake

LOOK_SECONDS = 5.0
"""How often the nodes are looked at although nothing has changed: windows end by time alone."""
SPARING = 4.0
"""Looking takes a fifth of the process's time at the most."""
REMEMBER_SECONDS = 60.0
MARKS_AT_ONCE = 20

NodeProposal = CordonProposal | UncordonProposal | RememberProposal
Ask = Callable[[NodeProposal], Awaitable[ProposalReply]]


class Term:
    """See the module."""

    def __init__(
        self,
        *,
        following: Following,
        executor: NodeExecutor,
        ask: Ask,
        telling: Telling,
        metrics: AutoscalerMetrics,
        carry_wake: Wake,
        look_wake: Wake,
        policy: Callable[[], Policy],
        clock: Callable[[], float],
        wall: Callable[[], float],
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        """`policy` gives the one in force; another one is taken over before a look."""
        self._following = following
        self._world = following.world
        self._executor = executor
        self._ask = ask
        self._telling = telling
        self._metrics = metrics
        self._carry_wake = carry_wake
        self._look_wake = look_wake
        self._policy_now = policy
        self._policy = policy()
        self._clock = clock
        self._wall = wall
        self._log = log
        self._keeping = Keeping(world=self._world, policy=self._policy)
        self._actions = Actions(
            concurrency=self._policy.bind_concurrency,
            wake=carry_wake,
            clock=clock,
            log=log,
            observe=metrics.acted,
        )
        self._memory = self._remembered()
        self._saved = self._memory.to_data()
        self._saved_at = clock()
        self._after = Sequence(0)
        """The LEDGER has to be read up to here before anything more is proposed."""
        self._not_before = 0.0
        self._counted_at = clock()

    async def run(self) -> None:
        """Work until cancelled."""
        self._metrics.leader.set(1)
        try:
            await run_together(self._carry(), self._looks())
        finally:
            self._metrics.leader.set(0)
            await self._actions.stop()

    # --- what is committed ---------------------------------------------------------------------------------------

    async def _carry(self) -> None:
        while True:
            view = self._following.ledger.view
            if self._following.ready:
                self._actions.keep_only(frozenset(promise.sequence for promise in view.nodes.values()))
                for name, promise in view.nodes.items():
                    node = self._world.nodes.get(name)
                    if node is None or node.uid != promise.node_uid or written(promise, node):
                        continue
                    key = (promise.sequence, PodUid(promise.node_uid))
                    self._actions.start(promise.verb.value, key, partial(self._executor.carry_out, promise))
                self._telling.entries(view.nodes)
            retry = self._actions.next_retry()
            soon = LOOK_SECONDS if retry is None else max(0.02, min(LOOK_SECONDS, retry - self._clock()))
            debounce = self._policy.debounce
            await self._carry_wake.wait(quiet=debounce.quiet, longest=debounce.longest, timeout=soon)

    # --- what is proposed ----------------------------------------------------------------------------------------

    async def _looks(self) -> None:
        while True:
            quiet = self._policy.debounce.longest
            timeout = max(0.02, LOOK_SECONDS, self._not_before - self._clock())
            await self._look_wake.wait(quiet=quiet, longest=5 * quiet, timeout=timeout)
            await asyncio.sleep(max(0.0, self._not_before - self._clock()))
            view = self._following.ledger.view
            if not self._following.ready or view.sequence < self._after:
                continue
            self._take_over(self._policy_now())
            now = self._clock()
            self._metrics.standing(view.nodes.values(), self._world.nodes, now - self._counted_at)
            self._counted_at = now
            found = await self._look()
            self._not_before = self._clock() + SPARING * (self._clock() - now)
            if found is not None:
                await self._act(found)

    def _take_over(self, policy: Policy) -> None:
        if policy is self._policy:
            return
        self._policy = policy
        self._keeping = Keeping(world=self._world, policy=policy)
        self._log.info("looks by a new policy")

    async def _look(self) -> Look | None:
        view = self._following.ledger.view
        sight = Sight(
            snapshot=self._keeping.snapshot(view),
            core=msgspec.structs.replace(self._core(), nominations=nominations(view)),
            promises=view.nodes,
            named=named_nodes(view),
            now=self._wall(),
            policy=self._policy,
        )
        began = self._clock()
        try:
            found = await in_thread(lambda: look(sight, self._memory))
        except Exception:  # noqa: BLE001  (whatever the core did: what is committed has to be carried out)
            self._metrics.defects.inc()
            self._log.exception("a defect: looking must not fail")
            return None
        self._metrics.look.observe(self._clock() - began)
        self._metrics.looked(found)
        self._memory = found.memory
        return found

    async def _act(self, found: Look) -> None:
        view = self._following.ledger.view
        pause = paused(view.memory, "cordon")
        self._metrics.paused.set(pause is not None)
        self._metrics.demanded(found.demands)
        self._metrics.demands.inc(self._telling.wanted(found.demands))
        await self._give_back(found.uncordons)
        acts = self._policy.actions.cordon == "act"
        self._telling.would_cordon(() if acts else found.cordons)
        if acts and pause is None:
            await self._cordon(found.cordons)
            for names, keep in ((found.keep, True), (found.release, False)):
                for name in names[:MARKS_AT_ONCE]:
                    result = await self._executor.mark(name, keep=keep)
                    self._metrics.acted("keep" if keep else "release", result, 0.0)
        await self._remember()

    async def _give_back(self, ideas: tuple[UncordonIdea, ...]) -> None:
        """One proposal for each gang: it gets all of its nodes back at once."""
        groups: dict[tuple[str, str], list[UncordonIdea]] = {}
        for idea in ideas:
            groups.setdefault((idea.reason, idea.gang), []).append(idea)
        for (reason, gang), members in groups.items():
            names = tuple(idea.node for idea in members)
            message = members[0].message
            reply = await self._propose(
                "uncordon", UncordonProposal(nodes=names, reason=reason, message=message, gang=gang), len(names)
            )
            if reply is None or not reply.committed:
                continue
            for idea in members:
                promise = self._following.ledger.view.nodes.get(idea.node)
                if promise is not None and self._wall() - promise.since < self._policy.idle.min_down:
                    self._metrics.flaps.inc()

    async def _cordon(self, ideas: tuple[CordonIdea, ...]) -> None:
        if not ideas:
            return
        wishes = tuple(
            CordonWish(node=one.node, node_uid=one.node_uid, pool=one.pool, reason="IDLE", message=one.message)
            for one in ideas
        )
        proposal = CordonProposal(nodes=wishes, ledger=self._following.ledger.view.sequence)
        reply = await self._propose("cordon", proposal, len(wishes))
        if reply is not None and reply.committed:
            for _ in range(len(wishes) - len(reply.refused)):
                self._memory = was_cordoned(self._memory, self._wall())

    async def _propose(self, verb: str, proposal: NodeProposal, number: int) -> ProposalReply | None:
        """Ask the leader; None: no answer, the LEDGER will tell."""
        try:
            reply = await self._ask(proposal)
        except BusError as error:
            self._metrics.proposals.labels(verb, "unanswered").inc(number)
            self._log.warning("no answer", verb=verb, why=str(error))
            return None
        self._metrics.proposals.labels(verb, "committed" if reply.committed else reply.code).inc(number)
        if reply.committed:
            self._after = Sequence(max(self._after, reply.sequence))
        for name, why in reply.refused.items():
            self._log.info("refused", verb=verb, node=name, why=why)
        return reply

    # --- memory --------------------------------------------------------------------------------------------------

    async def _remember(self) -> None:
        if self._clock() - self._saved_at < REMEMBER_SECONDS:
            return
        self._saved_at = self._clock()
        value = self._memory.to_data()
        if value == self._saved:
            return
        reply = await self._propose("remember", RememberProposal(core=CORE, value=value), 1)
        if reply is not None and reply.committed:
            self._saved = value

    def _remembered(self) -> IdleMemory:
        saved = self._following.ledger.view.memory.get(CORE)
        if saved is None:
            return IdleMemory()
        try:
            return IdleMemory.from_data(saved)
        except msgspec.ValidationError:
            self._metrics.defects.inc()
            self._log.exception("the memory of idle nodes cannot be read; it begins anew")
            return IdleMemory()

    def _core(self) -> CoreMemory:
        """What the scheduler's leader last wrote."""
        saved = self._following.ledger.view.memory.get(SCHEDULING)
        if saved is None:
            return CoreMemory()
        try:
            return CoreMemory.from_data(saved)
        except msgspec.ValidationError:
            self._metrics.defects.inc()
            self._log.exception("the scheduler's memory cannot be read")
            return CoreMemory()


def subject_verb(proposal: NodeProposal) -> str:
    """The verb under which a proposal is sent."""
    match proposal:
        case CordonProposal():
            return "cordon"
        case UncordonProposal():
            return "uncordon"
        case RememberProposal():
            return "remember"
