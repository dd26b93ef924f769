"""Runs a scenario on the pure core until it settles.

    snapshot ─► decide, else propose ─► places bind, victims leave ─► next round …    until a round changes nothing;
    then on to the next arrival, end of a job or leave of a pod; then five more rounds, which must change nothing either

Pods are values here; no service, bus or clock is involved: a round takes a second. An evicted pod is re-created by its owner
as a waiting pod with a new uid; a pod that is terminating at the start is gone after the first round.
"""

from collections.abc import Callable, Iterable

import msgspec

from muster.decide.memory import CoreMemory, nominated
from muster.decide.preemption import propose
from muster.decide.scheduling import Decision, decide
from muster.model.gangs import Gang, Member, MemberState
from muster.model.instructions import Evict, Pending, Place, Slot
from muster.model.pods import CardUse
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, PodUid
from muster.scenarios.building import NAMESPACE, START, budgets_now, build, scenario_policy
from muster.scenarios.format import Scenario

MOST_ROUNDS = 60
"""Without rest, and without anything happening from outside."""
IDLE_ROUNDS = 5

Decide = Callable[[Snapshot, CoreMemory, float, Policy], Decision]


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """One pod that had to leave."""

    job: str
    role: str
    cause: str
    pod: str = ""
    node: str = ""
    cards: tuple[CardUse, ...] = ()
    made_room_for: str = ""
    """The job that the room was made for."""


class Outcome(msgspec.Struct, kw_only=True):
    """Where everything stands when nothing changes any more."""

    scenario: Scenario
    snapshot: Snapshot
    initial: frozenset[PodUid]
    """Pods that were running at the start."""
    pending_at_start: frozenset[PodUid]
    evictions: list[Eviction]
    reasons: dict[str, Pending]
    rounds: int
    started: dict[str, float]
    """Seconds from the beginning until a job that waited first stood with its minimum."""
    restless: list[str]
    """What the five rounds after settling still changed; empty when all is well."""

    def members(self, job: str) -> list[Member]:
        """The job's pods."""
        return [m for gang in self.snapshot.gangs if gang.key == f"{NAMESPACE}/{job}" for m in gang.members]

    def placed(self, job: str) -> list[Member]:
        """The job's pods that stand and did not at the start."""
        stood = {MemberState.BOUND, MemberState.SUCCEEDED}
        return [m for m in self.members(job) if m.state in stood and m.uid in self.pending_at_start]


class Runner:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, *, decide_with: Decide = decide, policy: Policy | None = None) -> None:
        self.scenario = scenario
        self.policy = policy or scenario_policy(scenario)
        self.decide = decide_with
        self.snapshot = build(scenario)
        self.memory = CoreMemory()
        self.evictions: list[Eviction] = []
        self.reasons: dict[str, Pending] = {}
        self.evicted: set[PodUid] = set()
        """Pods that their owner makes again once they are gone."""
        self.started: dict[str, float] = {}
        self.generation = 0
        self.now = START
        self._forms = {f"{NAMESPACE}/{job.job}": job for job in (*scenario.running, *scenario.pending)}
        later = {f"{NAMESPACE}/{job.job}": START + job.arrives for job in scenario.pending if job.arrives}
        self._arrivals = dict(sorted(later.items(), key=lambda item: item[1]))
        self._ends = {GangKey(f"{NAMESPACE}/{job.job}"): START + job.runs for job in scenario.running if job.runs}
        self._gone: dict[PodUid, float] = {}
        """When pods that are leaving are gone."""

    def run(self) -> Outcome:
        """Rounds until one changes nothing and nothing is to come, then five that must not change anything."""
        everything = self.snapshot.gangs
        members = [member for gang in everything for member in gang.members]
        initial = frozenset(m.uid for m in members if m.state is MemberState.BOUND)
        pending = frozenset(m.uid for m in members if m.state is MemberState.WAITING)
        coming = {gang.key: gang for gang in everything if gang.key in self._arrivals}
        self._set_gangs(gang for gang in everything if gang.key not in coming)
        rounds = since = 0
        while rounds - since < MOST_ROUNDS:
            rounds += 1
            if self._happen(coming):
                since = rounds - 1
            if self._round(self.now):
                self.now += 1.0
                continue
            following = min((*self._arrivals.values(), *self._ends.values(), *self._gone.values()), default=None)
            if following is None:
                break
            self.now = max(self.now + 1.0, following)
        restless = []
        for idle in range(IDLE_ROUNDS):
            self.now += 1.0
            changes = self._round(self.now)
            restless += [f"round {rounds + 1 + idle}: {change}" for change in changes]
        self.now += 1.0
        return Outcome(
            scenario=self.scenario,
            snapshot=self.snapshot,
            initial=initial,
            pending_at_start=pending,
            evictions=self.evictions,
            reasons=self.reasons,
            rounds=rounds,
            started=self.started,
            restless=restless,
        )

    def _happen(self, coming: dict[GangKey, Gang]) -> bool:
        """What is due from outside: jobs arrive, and jobs end."""
        arrived = [coming[GangKey(key)] for key, at in self._arrivals.items() if at <= self.now]
        ended = [key for key, at in self._ends.items() if at <= self.now]
        for gang in arrived:
            del self._arrivals[gang.key]
        self._set_gangs((*self.snapshot.gangs, *arrived))
        for key in ended:
            del self._ends[key]
            self._replace(key, _succeeded)
        return bool(arrived or ended)

    def _set_gangs(self, gangs: Iterable[Gang]) -> None:
        self.snapshot = msgspec.structs.replace(self.snapshot, gangs=tuple(gangs))

    def _round(self, now: float) -> list[str]:
        if any(job.may_lose is not None for job in self.scenario.running):
            budgets = budgets_now(self.scenario, self.snapshot)
            self.snapshot = msgspec.structs.replace(self.snapshot, budgets=budgets)
        decision = self.decide(self.snapshot, self.memory, now, self.policy)
        self.memory = decision.memory
        plan: tuple[Evict, ...] = ()
        if not any(isinstance(one, Place) for one in decision.instructions):
            # The preemptor judges what the scheduler could not place; its proposal is committed as it is.
            proposal = propose(self.snapshot, self.memory, now, self.policy)
            if proposal.plan is not None:
                plan = (proposal.plan,)
                self.memory = nominated(self.memory, proposal.nominations)
        self.reasons = {}
        changes: list[str] = []
        gone = self._leave()
        if gone:
            changes.append(f"{gone} pods left")
        for instruction in (*decision.instructions, *plan):
            if isinstance(instruction, Place):
                self._bind(instruction.gang, instruction.slots)
                changes.append(f"{instruction.gang} placed on {[slot.node for slot in instruction.slots]}")
            elif isinstance(instruction, Evict):
                self._evict(instruction)
                changes.append(f"{len(instruction.victims)} victims for {instruction.gang}")
            else:
                self.reasons[instruction.gang.partition("/")[2]] = instruction
        return changes

    def _replace(self, key: GangKey, change: Callable[[Member], Member | None], *more: Member) -> None:
        gangs = []
        for gang in self.snapshot.gangs:
            if gang.key == key:
                kept = [after for member in gang.members if (after := change(member)) is not None]
                gangs.append(msgspec.structs.replace(gang, members=(*kept, *more)))
            else:
                gangs.append(gang)
        self.snapshot = msgspec.structs.replace(self.snapshot, gangs=tuple(gangs))

    def _leave(self) -> int:
        """Pods that were leaving are gone; the owner of an evicted one has made a new one."""
        gone = 0
        for gang in self.snapshot.gangs:
            leaving = [
                m for m in gang.members if m.state is MemberState.LEAVING and self._gone.get(m.uid, 0.0) <= self.now
            ]
            if not leaving:
                continue
            gone += len(leaving)
            uids = {member.uid for member in leaving}
            fresh = []
            for member in leaving:
                if member.uid in self.evicted:
                    self.generation += 1
                    uid = PodUid(f"{member.uid}~{self.generation}")
                    fresh.append(Member(uid=uid, name=member.name, role=member.role, state=MemberState.WAITING))
                self._gone.pop(member.uid, None)

            def stays(member: Member, *, uids: set[PodUid] = uids) -> Member | None:
                return None if member.uid in uids else member

            self._replace(gang.key, stays, *fresh)
        return gone

    def _bind(self, key: GangKey, slots: tuple[Slot, ...]) -> None:
        where = {slot.uid: slot for slot in slots}

        def bound(member: Member) -> Member:
            slot = where.get(member.uid)
            if slot is None:
                return member
            return msgspec.structs.replace(member, state=MemberState.BOUND, node=slot.node, cards=slot.cards)

        self._replace(key, bound)
        gang = next(gang for gang in self.snapshot.gangs if gang.key == key)
        form = self._forms.get(key)
        if gang.complete and not gang.timing.started:
            self._retime(gang, self.now)
            self.started.setdefault(key.partition("/")[2], self.now - START)
        if gang.complete and form is not None and form.runs:
            self._ends.setdefault(key, self.now + form.runs)

    def _retime(self, gang: Gang, started: float) -> None:
        timing = msgspec.structs.replace(gang.timing, started=started)
        again = msgspec.structs.replace(gang, timing=timing)
        self._set_gangs(again if one.key == gang.key else one for one in self.snapshot.gangs)

    def _evict(self, plan: Evict) -> None:
        for key, uid in plan.victims:
            gang = next(gang for gang in self.snapshot.gangs if gang.key == key)
            member = next(member for member in gang.members if member.uid == uid)
            self.evicted.add(uid)
            form = self._forms.get(key)
            if form is not None and form.leaves_in:
                self._gone[uid] = self.now + form.leaves_in
            self.evictions.append(
                Eviction(
                    job=key.partition("/")[2],
                    role=member.role,
                    cause=plan.cause,
                    pod=member.name,
                    node=str(member.node or ""),
                    cards=member.cards,
                    made_room_for=plan.gang.partition("/")[2],
                )
            )

            def leaves(one: Member, *, uid: PodUid = uid) -> Member:
                if one.uid != uid:
                    return one
                return msgspec.structs.replace(one, state=MemberState.LEAVING)

            self._replace(key, leaves)
        for key in {key for key, _ in plan.victims}:
            gang = next(gang for gang in self.snapshot.gangs if gang.key == key)
            if not gang.complete:  # what it had done is lost: it begins again
                self._ends.pop(key, None)
                self._retime(gang, 0.0)


def _succeeded(member: Member) -> Member:
    if member.state is not MemberState.BOUND:
        return member
    return msgspec.structs.replace(member, state=MemberState.SUCCEEDED)


def run(scenario: Scenario, *, decide_with: Decide = decide) -> Outcome:
    """The settled outcome of a scenario."""
    return Runner(scenario, decide_with=decide_with).run()
