"""A scenario as the core takes it: its policy, and the snapshot at the beginning.

Times of a scenario are seconds from `START` on; pods of running jobs take cards that are told before those that are not.
"""

import itertools

import msgspec

from muster.model.budgets import Budget
from muster.model.gangs import Gang, Member, MemberState, Role, Timing
from muster.model.nodes import Card, CardMode, Node, Taint
from muster.model.pods import CardUse, Request, Shape, Share, Toleration, TopologyWish
from muster.model.policy import Policy
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
START = 1_000_000.0
"""The first second of a scenario."""
UNLIMITED_PODS = 1_000_000


def scenario_policy(scenario: Scenario) -> Policy:
    """The policy of scenarios: preemption, reclaim and consolidation act at once; what the scenario sets otherwise."""
    own = scenario.policy
    act = {"bind": "act", "preempt": "act", "reclaim": "act", "consolidate": "act", **own.get("actions", {})}
    fairness = {"stability": 0.0, **own.get("fairness", {})}
    levels = {"topology_levels": scenario.topology_levels}
    return msgspec.convert({**levels, **own, "actions": act, "fairness": fairness}, Policy)


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


def budgets_now(scenario: Scenario, snapshot: Snapshot) -> tuple[Budget, ...]:
    """The budgets of running jobs that name one, as an API server would have counted them by now."""
    gangs = {gang.key: gang for gang in snapshot.gangs}
    budgets = []
    for job in sorted(scenario.running, key=lambda one: one.job):
        if job.may_lose is None:
            continue
        stands = sorted(
            member.uid
            for member in gangs[GangKey(f"{NAMESPACE}/{job.job}")].members
            if member.state is MemberState.BOUND
        )
        away = max(0, sum(task.replicas for task in job.tasks) - len(stands))
        budgets.append(
            Budget(namespace=NAMESPACE, name=job.job, allowed=max(0, job.may_lose - away), pods=tuple(stands))
        )
    return tuple(budgets)


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
        allocatable_cards=form.gpus if form.allocatable_gpus is None else form.allocatable_gpus,
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
        submitted=START + lead.arrives,
        timing=_timing(next((job for job, running in parts if running), lead), lead),
    )


def _timing(first: JobForm, lead: JobForm) -> Timing:
    """Of a job whose part that stands, if any, is `first`."""
    return Timing(
        started=START - first.started if _is_timed(first) else 0.0,
        last_checkpoint=START - first.last_checkpoint if first.last_checkpoint else 0.0,
        min_runtime=float(lead.min_runtime),
        expected_duration=float(lead.expected_duration),
        max_wait=float(lead.max_wait),
    )


def _is_timed(job: JobForm) -> bool:
    """Whether a running job says anything of its time: then it is known when it started, at the beginning unless said."""
    return job.started > 0 or (any(task.placed_on for task in job.tasks) and job.runs + job.expected_duration > 0)


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
