"""Runs a scenario on the pure core until it settles.

    snapshot ─► decide, else propose ─► places bind, victims leave ─► next round …    until a round changes nothing;
    then five more rounds, which must change nothing either

Pods are values here; no service, bus or clock is involved (time is the number of the round). An evicted pod is re-created by
its owner as a waiting pod with a new uid; a pod that is terminating at the start is gone after the first round.
"""

import itertools
from collections.abc import Callable

import msgspec

from muster.decide.memory import CoreMemory, nominated
from muster.decide.preemption import propose
from muster.decide.scheduling import Decision, decide
from muster.model.gangs import Gang, Member, MemberState, Role
from muster.model.instructions import Evict, Pending, Place, Slot
from muster.model.nodes import Card, CardMode, Node, Taint
from muster.model.pods import CardUse, Request, Shape, Share, Toleration, TopologyWish
from muster.model.policy import Actions, Policy
from muster.model.quantity import to_bytes, to_milli_cpu
from muster.model.snapshot import Snapshot
from muster.model.units import (
    Bytes,
    CardCount,
    CardIndex,
    CorePercent,
    GangKey,
    MiB,
    MilliCpu,
    NodeName,
    PodUid,
    QueueName,
    RoleName,
)
from muster.model.workloads import Limits, Queue, QueueState
from muster.scenarios.format import (
    JobForm,
    NodeForm,
    Quantity,
    QueueForm,
    RequestForm,
    Scenario,
    TaskForm,
    TopologyForm,
    amount,
)

NAMESPACE = "scenario"
UNLIMITED_PODS = 1_000_000
MOST_ROUNDS = 60
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
    restless: list[str]
    """What the five rounds after settling still changed; empty when all is well."""

    def members(self, job: str) -> list[Member]:
        """The job's pods."""
        return [m for gang in self.snapshot.gangs if gang.key == f"{NAMESPACE}/{job}" for m in gang.members]

    def placed(self, job: str) -> list[Member]:
        """The job's pods that stand and did not at the start."""
        return [m for m in self.members(job) if m.state is MemberState.BOUND and m.uid in self.pending_at_start]


def scenario_policy(scenario: Scenario) -> Policy:
    """The policy of scenarios: preemption, reclaim and consolidation act at once."""
    act = Actions(bind="act", preempt="act", reclaim="act", consolidate="act")
    return Policy(actions=act, topology_levels=scenario.topology_levels)


def build(scenario: Scenario) -> Snapshot:
    """The scenario as a snapshot."""
    jobs: dict[str, list[tuple[JobForm, bool]]] = {}
    for job, running in (*((j, True) for j in scenario.running), *((j, False) for j in scenario.pending)):
        jobs.setdefault(job.job, []).append((job, running))
    nodes = tuple(_node(node) for node in scenario.nodes)
    used: dict[tuple[str, int], int] = {}
    for job in scenario.running:  # cards that are told, before those that are not
        for task in job.tasks:
            for name, index in zip(task.placed_on, itertools.cycle(task.cards or (-1,)), strict=False):
                for card in task.cards if task.requests.gpu else (index,):
                    used[(name, card)] = 1
    gangs = tuple(_gang(name, parts, nodes, used) for name, parts in jobs.items())
    return Snapshot(
        nodes=nodes,
        queues=tuple(_queue(queue) for queue in scenario.queues),
        gangs=gangs,
        topology_levels=scenario.topology_levels,
    )


def _node(form: NodeForm) -> Node:
    return Node(
        name=NodeName(form.name),
        labels=form.labels,
        taints=tuple(Taint(key=t.key, effect=t.effect, value=t.value) for t in form.taints),
        unschedulable=form.unschedulable,
        cpu=to_milli_cpu(form.cpu),
        memory=to_bytes(form.memory),
        max_pods=UNLIMITED_PODS if form.max_pods is None else form.max_pods,
        cards=tuple(Card(index=CardIndex(i), memory_mib=MiB(form.gpu_memory_mib)) for i in range(form.gpus)),
        allocatable_cards=form.gpus,
        card_mode=CardMode.VOLCANO,
        gpu_model=form.gpu_model,
    )


def _queue(form: QueueForm) -> Queue:
    return Queue(
        name=QueueName(form.name),
        parent=QueueName(form.parent) if form.parent is not None else None,
        weight=form.weight,
        priority=form.priority,
        reclaimable=form.reclaimable,
        state=QueueState.CLOSED if form.state == "closed" else QueueState.OPEN,
        guarantee=_limits(form.guarantee),
        deserved=_limits(form.deserved),
        capability=_limits(form.capability),
    )


def _limits(amounts: dict[str, Quantity]) -> Limits:
    return Limits(amounts={name: amount(name, value) for name, value in amounts.items()})


def _request(form: RequestForm) -> Request:
    share = None
    if form.gpu_memory_mib or form.gpu_core_percent:
        share = Share(memory_mib=MiB(form.gpu_memory_mib), core_percent=CorePercent(form.gpu_core_percent))
    return Request(
        cpu=MilliCpu(to_milli_cpu(form.cpu)),
        memory=Bytes(to_bytes(form.memory)),
        cards=CardCount(form.gpu),
        share=share,
    )


def _wish(form: TopologyForm) -> TopologyWish:
    return TopologyWish(required_level=form.required_level, preferred_level=form.preferred_level)


def _shape(job: JobForm, task: TaskForm) -> Shape:
    return Shape(
        request=_request(task.requests),
        node_selector=tuple(sorted({**job.node_selector, **task.node_selector}.items())),
        tolerations=tuple(
            Toleration(key=t.key, operator=t.operator, value=t.value, effect=t.effect) for t in job.tolerations
        ),
    )


def _gang(
    name: str, parts: list[tuple[JobForm, bool]], nodes: tuple[Node, ...], used: dict[tuple[str, int], int]
) -> Gang:
    # The pending part speaks for the job where it is in both lists: selector, topology and order stand only there.
    lead = next((job for job, running in parts if not running), parts[0][0])
    roles: dict[str, Role] = {}
    members: list[Member] = []
    for job, running in sorted(parts, key=lambda part: part[1]):
        for task in job.tasks:
            before = roles.get(task.role)
            roles[task.role] = Role(
                name=RoleName(task.role),
                shape=before.shape if before is not None else _shape(lead, task),
                replicas=task.replicas + (before.replicas if before is not None else 0),
                minimum=max(task.min_available, before.minimum if before is not None else 0),
                topology=before.topology if before is not None else _wish(task.topology),
            )
            members += _members(name, job, task, nodes, used, running=running, start=len(members))
    return Gang(
        key=GangKey(f"{NAMESPACE}/{name}"),
        uid=f"gang-{name}",
        queue=QueueName(lead.queue),
        priority=lead.priority,
        preemptible=lead.preemptible,
        never_preempts=lead.preemption_policy == "Never",
        minimum=len(members) if lead.min_available is None else lead.min_available,
        roles=tuple(roles.values()),
        members=tuple(members),
        topology=_wish(lead.topology),
        order=lead.submit_order or 0,
        namespace=NAMESPACE,
    )


def _members(
    name: str,
    job: JobForm,
    task: TaskForm,
    nodes: tuple[Node, ...],
    used: dict[tuple[str, int], int],
    *,
    running: bool,
    start: int,
) -> list[Member]:
    members = []
    for number in range(task.replicas):
        pod = f"{name}-{task.role}-{start + number}"
        state = MemberState.WAITING
        node: NodeName | None = None
        cards: tuple[CardUse, ...] = ()
        if running:
            state = MemberState.LEAVING if job.terminating else MemberState.BOUND
            node = NodeName(task.placed_on[number])
            cards = _cards(task, node, nodes, used, number=number)
        members.append(
            Member(uid=PodUid(f"uid-{pod}"), name=pod, role=RoleName(task.role), state=state, node=node, cards=cards)
        )
    return members


def _cards(
    task: TaskForm, name: NodeName, nodes: tuple[Node, ...], used: dict[tuple[str, int], int], *, number: int
) -> tuple[CardUse, ...]:
    request = task.requests
    cards = next(node.cards for node in nodes if node.name == name)
    share = request.gpu_memory_mib or request.gpu_core_percent
    if not request.gpu and not share:
        return ()
    if task.cards:
        indexes = list(task.cards) if request.gpu else [task.cards[number % len(task.cards)]]
    else:
        free = [card.index for card in cards if (name, card.index) not in used]
        indexes = [int(index) for index in free[: request.gpu or 1]]
    for index in indexes:
        used[(name, index)] = 1
    size = {int(card.index): card.memory_mib for card in cards}
    if request.gpu:
        return tuple(
            CardUse(index=CardIndex(i), memory_mib=size[i], core_percent=CorePercent(100), whole=True) for i in indexes
        )
    return (
        CardUse(
            index=CardIndex(indexes[0]),
            memory_mib=MiB(request.gpu_memory_mib),
            core_percent=CorePercent(request.gpu_core_percent),
        ),
    )


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
        self.generation = 0

    def run(self) -> Outcome:
        """Rounds until one changes nothing, then five that must not change anything."""
        members = [member for gang in self.snapshot.gangs for member in gang.members]
        initial = frozenset(m.uid for m in members if m.state is MemberState.BOUND)
        pending = frozenset(m.uid for m in members if m.state is MemberState.WAITING)
        rounds = 0
        while rounds < MOST_ROUNDS:
            rounds += 1
            if not self._round(float(rounds)):
                break
        restless = []
        for idle in range(IDLE_ROUNDS):
            changes = self._round(float(rounds + 1 + idle))
            restless += [f"round {rounds + 1 + idle}: {change}" for change in changes]
        return Outcome(
            scenario=self.scenario,
            snapshot=self.snapshot,
            initial=initial,
            pending_at_start=pending,
            evictions=self.evictions,
            reasons=self.reasons,
            rounds=rounds,
            restless=restless,
        )

    def _round(self, now: float) -> list[str]:
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
            leaving = [m for m in gang.members if m.state is MemberState.LEAVING]
            if not leaving:
                continue
            gone += len(leaving)
            fresh = []
            for member in leaving:
                if member.uid in self.evicted:
                    self.generation += 1
                    uid = PodUid(f"{member.uid}~{self.generation}")
                    fresh.append(Member(uid=uid, name=member.name, role=member.role, state=MemberState.WAITING))
            self._replace(gang.key, lambda m: None if m.state is MemberState.LEAVING else m, *fresh)
        return gone

    def _bind(self, key: GangKey, slots: tuple[Slot, ...]) -> None:
        where = {slot.uid: slot for slot in slots}

        def bound(member: Member) -> Member:
            slot = where.get(member.uid)
            if slot is None:
                return member
            return msgspec.structs.replace(member, state=MemberState.BOUND, node=slot.node, cards=slot.cards)

        self._replace(key, bound)

    def _evict(self, plan: Evict) -> None:
        for key, uid in plan.victims:
            gang = next(gang for gang in self.snapshot.gangs if gang.key == key)
            member = next(member for member in gang.members if member.uid == uid)
            self.evicted.add(uid)
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


def run(scenario: Scenario, *, decide_with: Decide = decide) -> Outcome:
    """The settled outcome of a scenario."""
    return Runner(scenario, decide_with=decide_with).run()
