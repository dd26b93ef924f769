"""Plans that lead nowhere are taken back by the leader itself (rule E). Whether a plan is still right is the preemptor's to judge.

its gang is gone, held, or needs nothing more        nobody would use the room
a node that it nominates is gone                      the room will not be there
grace is over, and for too long nothing has changed   the victims do not leave, or the room cannot be used;
                                                      while people have paused either, that time does not run
"""

from collections.abc import Iterable

from muster.decide.commitments import LedgerView, OpenEntry, reached
from muster.decide.join import Join
from muster.decide.reasons import count
from muster.decide.settling import remaining
from muster.model.gangs import Gang
from muster.model.ledger import Victim, Withdrawing
from muster.model.policy import Timeouts
from muster.model.units import Sequence
from muster.scheduler.deadlines import Since
from muster.view.pausing import plan_paused
from muster.view.world import World

Why = tuple[str, str]
"""Reason code, and a sentence."""


class Withdrawals:
    """Since when the victims of each plan are as many as now, in active seconds (see `deadlines`)."""

    def __init__(self, *, world: World, timeouts: Timeouts) -> None:
        self._world = world
        self.timeouts = timeouts
        self._unchanged: Since[tuple[Sequence, int]] = Since()

    def due(
        self, join: Join, view: LedgerView, *, freshness: str, complete: str, now: float, wall: float
    ) -> Iterable[Withdrawing]:
        """The plans to be taken back now.

        Args:
            join: of this view and of STATE as it is now.
            view: the LEDGER up to now.
            freshness: the highest pod resourceVersion of the view of STATE.
            complete: every pod event up to this resourceVersion is in that view.
            now: active seconds.
            wall: Unix seconds.
        """
        left = {plan.sequence: remaining(plan, self._world.by_uid, complete=complete) for plan in view.plans()}
        running = (plan for plan in view.plans() if not self._paused(plan, view, left[plan.sequence]))
        self._unchanged.keep(((plan.sequence, len(left[plan.sequence])) for plan in running), now)
        for plan in view.plans():
            if not reached(complete, plan.freshness):
                continue  # this view may know nothing yet of what the plan was made for
            why = self._useless(plan, join.gang(plan.gang)) or self._stuck(plan, left[plan.sequence], now, wall)
            if why is not None:
                yield Withdrawing(
                    gang=plan.gang, plan=plan.sequence, reason=why[0], message=why[1], freshness=freshness
                )

    def _paused(self, plan: OpenEntry, view: LedgerView, left: tuple[Victim, ...]) -> bool:
        return plan_paused("evict" if left else "bind", view, self._world, plan) is not None

    def _useless(self, plan: OpenEntry, gang: Gang | None) -> Why | None:
        if gang is None or gang.uid != plan.gang_uid:
            return "GANG_GONE", f"{plan.gang} is gone"
        if gang.hold:
            return "GANG_HELD", f"{plan.gang} is held: {gang.hold_message or gang.hold}"
        if gang.complete:
            return "GANG_SERVED", f"{plan.gang} needs nothing more"
        for one in plan.nominated:
            for slot in one.slots:
                node = self._world.nodes.get(slot.node)
                if node is None or slot.node_uid not in {"", node.uid}:
                    return "NODE_GONE", f"node {slot.node}, of which {one.gang} was to get room, is gone"
        return None

    def _stuck(self, plan: OpenEntry, left: tuple[Victim, ...], now: float, wall: float) -> Why | None:
        waited = self._unchanged.lasted((plan.sequence, len(left)), now)
        graced = max((victim.evict_after for victim in plan.victims), default=plan.at)
        if wall <= graced or waited <= self.timeouts.start:
            return None
        if not left:
            return "ROOM_NOT_USED", f"its room is free, and for {waited:.0f} s it could not be placed"
        stay = sum(not self._leaves(victim) for victim in left)
        if not stay:
            return None
        return "VICTIMS_STAY", f"{count(stay, 'pod')} of {len(plan.victims)} did not leave within {waited:.0f} s"

    def _leaves(self, victim: Victim) -> bool:
        pod = self._world.by_uid.get(victim.uid)
        return pod is not None and pod.terminating
