"""The preemptor of a simulation: it proposes to whoever leads, and evicts what the LEDGER that it has read lets it evict.

Its plans come from its own late view, and some are nonsense: the leader's judgement is what is looked at. Evictions are the
real Executor's, under the token of the plan or of the newest leader entry it has read.
"""

import asyncio
from collections.abc import Callable

from muster.bus.proposals import PlanProposal, ProposalReply, WithdrawProposal
from muster.decide.commitments import OpenEntry
from muster.decide.settling import remaining
from muster.model.instructions import Slot
from muster.model.ledger import Nominated, Plan, Victim
from muster.model.pods import CardUse, Pod
from muster.model.units import CardIndex, GangKey, NodeName
from muster.model.workloads import PodGroup
from tests.scheduler.simulated_connections import Connected, Faults, wall
from tests.scheduler.simulated_process import Process
from tests.scheduler.simulated_truth import NAMESPACE, Truth

ANSWER_SECONDS = 8.0
Free = dict[NodeName, set[int]]


class Preemptor(Connected):
    """See the module."""

    def __init__(
        self,
        name: str,
        truth: Truth,
        faults: Faults,
        groups: dict[str, PodGroup],
        fail: Callable,
        *,
        schedulers: Callable[[], list[Process]],
    ) -> None:
        super().__init__(name, truth, faults, groups, fail)
        self._schedulers = schedulers
        self._epoch = 0
        self._travelling: set[asyncio.Task[ProposalReply]] = set()
        """Proposals on their way, also after nobody waits for the answer any more."""
        self.run(self._execute_plans())
        self.run(self._propose_plans())

    @property
    def epoch(self) -> int:
        return self._epoch

    # --- executing ---------------------------------------------------------------------------------------------------

    async def _execute_plans(self) -> None:
        while True:
            await asyncio.sleep(0.1 + self.rng.random())
            await self.gate.wait()
            if not self.state.ready or not self.ledger.ready:
                continue
            for plan in self.book.view.plans():
                for victim in remaining(plan, self.world.by_uid, complete=self.state.pod_freshness):
                    await self._execute(plan, victim)

    async def _execute(self, plan: OpenEntry, victim: Victim) -> None:
        view = self.book.view
        if view.open.get(plan.gang) is not plan:
            return
        self._epoch, token = view.leader, view.token(plan)
        if wall() < victim.evict_after:
            await self.executor.touch(NAMESPACE, victim.pod, uid=victim.uid, token=token)
            return
        await self.executor.undo(NAMESPACE, victim.pod, uid=victim.uid, node=victim.node, token=token)

    # --- proposing ---------------------------------------------------------------------------------------------------

    async def _propose_plans(self) -> None:
        while True:
            await asyncio.sleep(0.2 + 1.5 * self.rng.random())
            await self.gate.wait()
            if not self.faults.on or not self.state.ready:
                continue
            plans = self.book.view.plans()
            if plans and self.rng.random() < 0.1:
                plan = self.rng.choice(plans)
                await self._ask(WithdrawProposal(gang=plan.gang, plan=plan.sequence, reason="UNSOUND"))
            elif (proposal := self._plan()) is not None:
                await self._ask(proposal)

    def _plan(self) -> PlanProposal | None:
        """A gang that waits gets the room of one that stands, or stands in its way and may go elsewhere."""
        gangs: dict[GangKey, list[Pod]] = {}
        for pod in self.world.pods.values():
            if pod.gang is not None and not pod.finished and not pod.terminating:
                gangs.setdefault(pod.gang, []).append(pod)
        waiting = [key for key, pods in gangs.items() if any(pod.node is None for pod in pods)]
        standing = [key for key, pods in gangs.items() if any(pod.cards for pod in pods)]
        if not waiting or not standing:
            return None
        gang = self.rng.choice(sorted(waiting))
        wanted = [pod for pod in gangs[gang] if pod.node is None]
        leaving: list[Pod] = []
        moved: list[Pod] = []
        free = self._free(leaving)
        for victim_gang in self.rng.sample(standing, len(standing)):
            if victim_gang != gang and (not leaving or sum(map(len, free.values())) < len(wanted) + len(moved)):
                pods = [pod for pod in gangs[victim_gang] if pod.cards]
                moved = pods if not leaving and self.rng.random() < 0.4 else moved
                leaving += pods
                free = self._free(leaving)
        if self.rng.random() < 0.1:
            leaving, moved = leaving[:1], []
        if not leaving:
            return None
        nominated = [self._room(gang, wanted, free)]
        if moved:
            nominated.append(self._room(moved[0].gang or GangKey(""), moved, free))
        after = wall() + self.rng.choice((0.0, 0.0, 3.0, 10.0))
        plan = Plan(
            gang=gang,
            gang_uid=gang.partition("/")[2],
            cause="preempt" if len(nominated) == 1 else "consolidate",
            victims=tuple(
                Victim(
                    gang=pod.gang or GangKey(""),
                    uid=pod.uid,
                    pod=pod.name,
                    node=pod.node or NodeName(""),
                    evict_after=after,
                )
                for pod in leaving
            ),
            nominated=tuple(one for one in nominated if one.slots),
        )
        return PlanProposal(plan=plan, ledger=self.book.view.sequence)

    def _free(self, leaving: list[Pod]) -> Free:
        gone = {pod.uid for pod in leaving}
        used: Free = {}
        for pod in self.world.pods.values():
            if pod.node is not None and pod.holds_room and pod.uid not in gone:
                used.setdefault(pod.node, set()).update(card.index for card in pod.cards)
        return {
            name: {card.index for card in node.cards} - used.get(name, set()) for name, node in self.world.nodes.items()
        }

    def _room(self, gang: GangKey, pods: list[Pod], free: Free) -> Nominated:
        slots = []
        for pod in pods:
            nodes = [name for name, cards in sorted(free.items()) if cards]
            if not nodes:
                break
            node = self.rng.choice(nodes)
            card = CardUse(index=CardIndex(free[node].pop()), whole=True)
            slots.append(Slot(uid=pod.uid, pod=pod.name, role=pod.role, node=node, cards=(card,)))
        return Nominated(gang=gang, gang_uid=gang.partition("/")[2], slots=tuple(slots))

    async def _ask(self, proposal: PlanProposal | WithdrawProposal) -> None:
        """Whoever leads, or thinks so, hears it after a while; the answer may come late or never."""
        served = [one for one in self._schedulers() if one.proposals is not None]
        if not served:
            return
        proposals = self.rng.choice(served).proposals
        there = self.faults.latency()

        async def travel() -> ProposalReply:
            await asyncio.sleep(there)
            return await proposals.propose(proposal)

        asked = asyncio.create_task(travel())
        self._travelling.add(asked)
        asked.add_done_callback(self._travelling.discard)
        await asyncio.wait({asked}, timeout=ANSWER_SECONDS)
        if asked.done():
            reply = asked.result()
            self.truth.written["accepted" if reply.committed else f"refused {reply.code}"] += 1
