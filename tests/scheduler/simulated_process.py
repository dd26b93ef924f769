"""One scheduler process of a simulation: the real Book, World, Leadership, Proposals and Executor (see `simulated_connections`)."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from muster.bus.errors import NotConnectedError
from muster.decide.basis import Basis, start_of
from muster.decide.commitments import holds
from muster.decide.gangs import build_snapshot
from muster.decide.join import being_carried_out
from muster.decide.memory import CoreMemory
from muster.decide.scheduling import Decision
from muster.fenced.executor import Result
from muster.model.gangs import Gang, MemberState
from muster.model.instructions import Instruction, Place, Slot
from muster.model.ledger import Plan
from muster.model.pods import CardUse
from muster.model.policy import Actions, Debounce, Policy, Timeouts
from muster.model.snapshot import Snapshot
from muster.model.units import CardIndex, NodeName, Sequence
from muster.model.workloads import PodGroup
from muster.scheduler.book import Deposed
from muster.scheduler.judging import Standpoint
from muster.scheduler.leading import Leadership
from muster.scheduler.proposals import Proposals
from tests.scheduler.plan_room import room_refusal
from tests.scheduler.simulated_connections import Connected, Faults, wall
from tests.scheduler.simulated_truth import Truth, Violation

POLICY = Policy(
    actions=Actions(consolidate="act"),
    timeouts=Timeouts(start=8.0, bind=15.0, backoff_initial=1.0, backoff_max=4.0),
    debounce=Debounce(quiet=0.02, longest=0.2),
    bind_concurrency=4,
)


class Log:
    """A structlog logger's place; it tells the truth when a take-over is finished, and of unforeseen errors."""

    def __init__(self, process: "Process") -> None:
        self._process = process

    def info(self, event: str, **fields: Any) -> None:
        truth = self._process.truth
        if event == "took over":
            truth.taken_over = max(truth.taken_over, fields["epoch"])
            truth.note(
                f"{self._process.name} took over (epoch {fields['epoch'] & 0xFFFF}, {fields['touched']} touched)"
            )

    def warning(self, event: str, **fields: Any) -> None:
        pass

    error = warning

    def exception(self, event: str, **fields: Any) -> None:
        self._process.broken(RuntimeError(f"{event}: {fields}"))


class Reporter:
    """Nobody listens; defects end the simulation."""

    def __init__(self, process: "Process") -> None:
        self._process = process

    def committed(self, entries: Any, sequence: Sequence, epoch: Sequence) -> None:
        pass

    def decided(self, snapshot: Snapshot, decision: Decision, seconds: float) -> None:
        pass

    def acted(self, verb: str, result: Result, seconds: float) -> None:
        pass

    def refused(self, gang: Any, code: str, message: str, numbers: Any) -> None:
        pass

    def cards(self, findings, news) -> None:
        """Nothing is looked at here."""

    def failed(self, what: str, error: Exception) -> None:
        self._process.broken(error)


class Process(Connected):
    """See the module."""

    def __init__(self, name: str, truth: Truth, faults: Faults, groups: dict[str, PodGroup], fail: Callable) -> None:
        super().__init__(name, truth, faults, groups, fail)
        self.granted = asyncio.Event()
        self.proposals: Proposals | None = None
        self.run(self._lead_again_and_again())

    def lose_lease(self) -> None:
        """The lease was lost, and this process has noticed."""
        if self.leading is not None:
            self.leading.cancel()

    async def _lead_again_and_again(self) -> None:
        while True:
            await self.granted.wait()
            await self.gate.wait()
            self.leading = asyncio.create_task(self._lead())
            try:
                await asyncio.wait({self.leading})
            finally:
                self.leading.cancel()
                await asyncio.gather(self.leading, return_exceptions=True)
            self.granted.clear()
            if not self.leading.cancelled() and (error := self.leading.exception()) is not None:
                if not isinstance(error, Deposed | NotConnectedError):
                    raise error
                self.truth.note(f"{self.name} {type(error).__name__}")

    async def _lead(self) -> None:
        if not self.truth.exists:
            self.truth.make_ledger(self.truth.incarnation + 1)
        incarnation = self.truth.incarnation
        while not self.ledger.ready:
            if not self.truth.exists:
                return
            await asyncio.sleep(0.05)
        self.proposals = Proposals(world=self.world, reporter=Reporter(self), refusal=self._refusal, wake=self.wake)
        try:
            await self._lead_with(self.proposals, incarnation)
        finally:
            self.proposals.close()
            self.proposals = None

    async def _lead_with(self, proposals: Proposals, incarnation: int) -> None:
        await Leadership(
            world=self.world,
            state=self.state,
            book=self.book,
            executor=self.executor,
            reporter=Reporter(self),
            policy=POLICY,
            wake=self.wake,
            decide=self._decide,
            log=Log(self),
            incarnation=incarnation,
            proposals=proposals,
            wall=wall,
        ).run(transitions=1)

    async def _refusal(self, at: Standpoint, plan: Plan) -> str:
        """Whether there is room, after a while. The place of the real core, as above: it allows what no share allows."""
        why = room_refusal(at.snapshot, at.view.plans(), plan)
        await asyncio.sleep(self.faults.latency() / 4)
        await self.gate.wait()
        return why

    # --- deciding ----------------------------------------------------------------------------------------------------

    async def _decide(
        self, snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, *, basis: Basis
    ) -> Decision:
        """First fit; it believes the snapshot. The place of the real core, which is tested elsewhere.

        It keeps off the room that others have nominated, and now and then places a gang although its victims still stand.
        """
        self._compare(snapshot, basis)
        await asyncio.sleep(self.faults.latency() / 4)
        await self.gate.wait()
        used: dict[NodeName, set[int]] = {}
        for gang in snapshot.gangs:
            for member in gang.members:
                if member.node is not None and member.state in {
                    MemberState.BOUND,
                    MemberState.ASSUMED,
                    MemberState.LEAVING,
                }:
                    used.setdefault(member.node, set()).update(card.index for card in member.cards)
        for hold in snapshot.holds:
            used.setdefault(hold.node, set()).update(card.index for card in hold.cards)
        places: list[Instruction] = []
        nominated = {one.gang: one for one in memory.nominations if one.until > now}
        standing = {member.uid for gang in snapshot.gangs for member in gang.members if member.node is not None}
        for gang in self.rng.sample(snapshot.gangs, len(snapshot.gangs)):
            backoff, own = memory.gangs.get(gang.key), nominated.get(gang.key)
            if gang.hold or (backoff is not None and backoff.until > now):
                continue
            if own is not None and standing.intersection(own.victims) and self.rng.random() < 0.7:
                continue
            kept: dict[NodeName, set[int]] = {}
            for slot in (slot for one in nominated.values() if one is not own for slot in one.slots):
                kept.setdefault(slot.node, set()).update(card.index for card in slot.cards)
            slots = self._fit(gang, snapshot, used, kept)
            if slots:
                places.append(Place(gang=gang.key, gang_uid=gang.uid, slots=slots))
        return Decision(instructions=tuple(places), memory=memory)

    def _compare(self, snapshot: Snapshot, basis: Basis) -> None:
        """What was kept up to date is what is made from nothing."""
        world, view = self.world, self.book.view
        made = build_snapshot(
            world.nodes.values(),
            world.pods.values(),
            world.podgroups.values(),
            world.queues.values(),
            world.workloads.values(),
            world.priority_classes.values(),
            world.namespaces.values(),
            holds(view, world.by_uid),
            POLICY,
        )
        victims = view.victims()
        gangs = tuple(being_carried_out(gang, view.open.get(gang.key), victims) for gang in made.gangs)
        if snapshot != msgspec.structs.replace(made, gangs=gangs):
            raise Violation(f"{self.name} decides on {snapshot}, STATE and LEDGER show {made}")
        kept, anew = basis.start(snapshot), start_of(snapshot)
        basis.give_back()
        if kept.asks != anew.asks or not np.array_equal(kept.room.free, anew.room.free):
            raise Violation(
                f"{self.name} decides on {kept.room.free} and {kept.asks}, not {anew.room.free} and {anew.asks}"
            )

    def _fit(
        self, gang: Gang, snapshot: Snapshot, used: dict[NodeName, set[int]], kept: dict[NodeName, set[int]]
    ) -> tuple[Slot, ...]:
        waiting = [member for member in gang.members if member.state is MemberState.WAITING]
        if not waiting or gang.counted + len(waiting) < gang.minimum:
            return ()
        nodes = self.rng.sample(snapshot.nodes, len(snapshot.nodes))
        taken = {node: set(cards) for node, cards in used.items()}
        slots = []
        for member in waiting:
            for node in nodes:
                free = {card.index for card in node.cards} - taken.get(node.name, set()) - kept.get(node.name, set())
                if free:
                    index = min(free)
                    taken.setdefault(node.name, set()).add(index)
                    card = CardUse(index=CardIndex(index), whole=True)
                    slots.append(Slot(uid=member.uid, pod=member.name, role=member.role, node=node.name, cards=(card,)))
                    break
            else:
                return ()
        used.update(taken)
        return tuple(slots)
