"""Answers to questions (muster.api.<tenant>.<verb>): explain, gangs, nodes, queues.

Read from the last snapshot that was decided on and from the LEDGER's view, so that an answer and a decision never disagree.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from muster.bus.queries import (
    CardCell,
    ExplainReply,
    ExplainRequest,
    FreeBlock,
    GangRow,
    GangsReply,
    GangsRequest,
    NodeRow,
    NodesReply,
    NodesRequest,
    QueueRow,
    QueuesReply,
    QueuesRequest,
)
from muster.decide.commitments import Kind, OpenEntry
from muster.decide.explaining.details import Details, Scene, details_of
from muster.decide.lifecycle.queues import ROOT
from muster.decide.lifecycle.submission import SUBMISSION, given_name
from muster.decide.queue_rules import ignored, preemptible
from muster.model.gangs import Gang, Member, MemberState
from muster.model.nodes import Node
from muster.model.pods import CardUse, Phase, Pod, Request
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.topology import value_at
from muster.model.units import ONE_CARD, CardIndex, GangKey, NodeName, split_key
from muster.model.workloads import Limits, Queue
from muster.scheduler.book import Book
from muster.scheduler.explanations import Subject, reply_of
from muster.scheduler.journal import Journal
from muster.view.world import World

ON_NODE = frozenset({MemberState.BOUND, MemberState.ASSUMED, MemberState.LEAVING})


class UnknownJobError(LookupError):
    """No gang of that name is known, or several are."""


class Queries:
    """Answers from one scheduler's memory; works on a follower too, with what it has seen."""

    def __init__(self, *, world: World, book: Book, journal: Journal, policy: Callable[[], Policy] = Policy) -> None:
        """`policy` gives the present one: what it only observes is told."""
        self._world = world
        self._book = book
        self._journal = journal
        self._policy = policy
        self._scene: tuple[Snapshot, Scene] | None = None

    def gangs(self, request: GangsRequest) -> GangsReply:
        """Gangs in the order in which they would be served: running first, then waiting by position, then what
        stands in no line because it cannot run as it is.
        """
        snapshot = self._journal.snapshot
        if snapshot is None:
            return GangsReply(at=time.time())
        rows = [
            self._gang_row(gang)
            for gang in snapshot.gangs
            if (not request.namespace or gang.namespace == request.namespace)
            and (not request.queue or gang.queue == request.queue)
        ]
        kept = [row for row in rows if request.finished or row.state not in {"Succeeded", "Failed"}]
        kept.sort(key=lambda row: (row.state == "Waiting" and not row.position, row.position, row.submitted, row.gang))
        return GangsReply(at=time.time(), gangs=tuple(kept))

    async def explain(self, request: ExplainRequest) -> ExplainReply:
        """Why a job waits or where it runs.

        Raises:
            UnknownJobError: no gang carries that name, or several were submitted under it.
        """
        snapshot = self._journal.snapshot
        gang = None if snapshot is None else self._find(snapshot, request)
        if snapshot is None or gang is None:
            raise UnknownJobError(f"no job {request.job!r} is known; muster get --all lists every job that is")
        reason = self._journal.pending.get(gang.key)
        subject = Subject(
            gang=gang,
            row=self._gang_row(gang),
            reason=reason,
            queue=next(iter(self.queues(QueuesRequest(queue=gang.queue)).queues), None),
            entry=self._book.view.open.get(gang.key),
            history=tuple(self._journal.history.get(gang.key, ())),
            ignored=ignored(gang, self._policy()),
        )
        details = Details()
        if reason is not None and subject.row.code:
            policy, now = self._policy(), time.time()
            if self._scene is None or self._scene[0] is not snapshot:
                # The whole cluster is looked at: off the event loop, and once for all questions about this snapshot.
                self._scene = (snapshot, await asyncio.to_thread(Scene.of, snapshot))
            details = await asyncio.to_thread(
                details_of, self._scene[1], gang, reason.code, policy, now, named=self._job_name
            )
        return reply_of(subject, details, self._world, named=self._job_name)

    def nodes(self, request: NodesRequest) -> NodesReply:
        """Nodes with what every card carries."""
        snapshot = self._journal.snapshot
        if snapshot is None:
            return NodesReply(at=time.time())
        used: dict[NodeName, list[tuple[str, Request, tuple[CardUse, ...], bool]]] = defaultdict(list)
        for gang in snapshot.gangs:
            shapes = {role.name: role.shape.request for role in gang.roles}
            for member in gang.members:
                if member.node is not None and member.state in ON_NODE:
                    promised = member.state is MemberState.ASSUMED
                    used[member.node].append((gang.key, shapes.get(member.role, Request()), member.cards, promised))
        for occupant in snapshot.occupants:
            used[occupant.node].append((occupant.key, occupant.request, occupant.cards, occupant.promised))
        for hold in snapshot.holds:
            used[hold.node].append((hold.gang, hold.request, hold.cards, True))
        rows = [
            _node_row(node, used.get(node.name, []), snapshot.topology_levels)
            for node in sorted(snapshot.nodes, key=lambda node: node.name)
        ]
        if request.domain:
            rows = [row for row in rows if request.domain in row.domains.values() or row.name == request.domain]
        cells = [cell for row in rows for cell in row.cards]
        return NodesReply(
            at=time.time(),
            nodes=tuple(rows),
            total_cards=len(cells) * ONE_CARD,
            used_cards=sum(_used(cell) for cell in cells if not cell.held),
            held_cards=sum(_used(cell) for cell in cells if cell.held),
            free_cards=sum(row.free_cards for row in rows),
            largest_free=tuple(_largest_blocks(rows, snapshot.topology_levels)),
        )

    def queues(self, request: QueuesRequest) -> QueuesReply:
        """Queues with used, deserved and capability in cards, and who waits there."""
        snapshot = self._journal.snapshot
        if snapshot is None:
            return QueuesReply(at=time.time())
        cards: dict[NodeName, dict[CardIndex, int]] = {
            node.name: {card.index: card.memory_mib for card in node.cards} for node in snapshot.nodes
        }
        used: dict[str, int] = defaultdict(int)
        for gang in snapshot.gangs:
            for member in gang.members:
                if member.node is not None and member.state in ON_NODE:
                    used[gang.queue] += sum(_millionths(use, cards.get(member.node, {})) for use in member.cards)
        parents = {str(queue.name): _parent(queue) for queue in snapshot.queues}
        for name, amount in list(used.items()):
            above = parents.get(name)
            passed = {name}
            while above is not None and above not in passed:
                used[above] += amount
                passed.add(above)
                above = parents.get(above)
        rows = [
            self._queue_row(queue, used[queue.name], snapshot)
            for queue in sorted(snapshot.queues, key=lambda queue: (queue.parent is not None, queue.name))
            if not request.queue or queue.name == request.queue
        ]
        return QueuesReply(at=time.time(), queues=tuple(rows))

    def _find(self, snapshot: Snapshot, request: ExplainRequest) -> Gang | None:
        """By the name of the gang, of its job, by the submission's id, or by the name that a submission asked for."""
        wanted = request.job
        named = f"{request.namespace}/{wanted}" if request.namespace and "/" not in wanted else wanted
        given: dict[str, Gang] = {}
        for gang in snapshot.gangs:
            job, submission = self._known_as(gang.key, gang.namespace)
            asked = f"{gang.namespace}/{given_name(split_key(job)[1], submission=submission)}"
            names, loose = {gang.key, job, submission}, {asked}
            if not request.namespace:
                names |= {split_key(gang.key)[1], split_key(job)[1]}
                loose.add(split_key(asked)[1])
            if named in names:
                return gang
            if named in loose:
                given[job] = gang
        live = {job: gang for job, gang in given.items() if not all(_ended(member) for member in gang.members)} or given
        if len(live) > 1:
            raise UnknownJobError(
                f"{len(live)} jobs are called {wanted!r}: {', '.join(sorted(live))}; name one of them"
            )
        return next(iter(live.values()), None)

    def _job_name(self, key: GangKey) -> str:
        return split_key(self._known_as(key, split_key(key)[0])[0])[1]

    def _known_as(self, key: GangKey, namespace: str) -> tuple[str, str]:
        """The job's own name (``namespace/name``) and its submission id ('' when it came another way)."""
        group = self._world.podgroups.get(key)
        owner = group.owner if group is not None else None
        if owner is None:
            return key, ""
        job = f"{namespace}/{owner.name}"
        for kind in ("vcjob", "job"):
            workload = self._world.workloads.get(f"{kind}/{job}")
            if workload is not None and workload.uid == owner.uid:
                return job, workload.annotations.get(SUBMISSION, "")
        return job, ""

    def _gang_row(self, gang: Gang) -> GangRow:
        reason = self._journal.pending.get(gang.key)
        entry = self._book.view.open.get(gang.key)
        pods = [pod for member in gang.members if (pod := self._world.by_uid.get(member.uid)) is not None]
        shapes = {role.name: role.shape.request for role in gang.roles}
        state = _state(gang, entry, pods)
        waiting = state == "Waiting" or (reason is not None and state == "Broken")
        job, submission = self._known_as(gang.key, gang.namespace)
        return GangRow(
            gang=gang.key,
            job=job,
            submission=submission,
            queue=gang.queue,
            state=state,
            code=reason.code if reason is not None and waiting else "",
            message=reason.message if reason is not None and waiting else "",
            position=reason.position if reason is not None and waiting else 0,
            priority=gang.priority,
            priority_class=gang.priority_class,
            preemptible=preemptible(gang, self._policy()),
            members=len(gang.members),
            minimum=gang.minimum,
            bound=sum(member.node is not None for member in gang.members),
            running=sum(pod.phase is Phase.RUNNING for pod in pods),
            cards_per_member=max((_asked(request) for request in shapes.values()), default=0),
            cards=sum(_asked(shapes.get(member.role, Request())) for member in gang.members),
            nodes=tuple(sorted({member.node for member in gang.members if member.node is not None})),
            submitted=gang.submitted,
            since=self._journal.since.get(gang.key, gang.submitted),
        )

    def _queue_row(self, queue: Queue, used: int, snapshot: Snapshot) -> QueueRow:
        waiting = {
            gang.key: gang for gang in snapshot.gangs if gang.queue == queue.name and gang.key in self._journal.pending
        }
        reasons: dict[str, int] = defaultdict(int)
        for key in waiting:
            reasons[self._journal.pending[key].code] += 1
        deserved = cards_named(queue.deserved)
        return QueueRow(
            name=queue.name,
            parent=queue.parent,
            state=queue.state.value,
            weight=queue.weight,
            priority=queue.priority,
            used=used,
            guarantee=cards_named(queue.guarantee) or 0,
            deserved=deserved,
            capability=cards_named(queue.capability),
            borrowed=max(0, used - deserved) if deserved is not None else 0,
            pending_gangs=len(waiting),
            pending=sum(self._gang_row(gang).cards for gang in waiting.values()),
            oldest_since=min((gang.submitted for gang in waiting.values()), default=None),
            reasons=dict(reasons),
        )


def cards_named(limits: Limits) -> int | None:
    """The tightest amount of cards that is named, under ``gpu`` or a card resource's own name; None when none is."""
    named = [amount for name, amount in limits.amounts.items() if name.lower() == "gpu" or name.endswith("/gpu")]
    return min(named, default=None)


def _state(gang: Gang, entry: OpenEntry | None, pods: list[Pod]) -> str:
    if entry is not None and entry.kind in {Kind.BIND, Kind.UNDOING}:
        return "Placed" if entry.kind is Kind.BIND else "Undoing"
    bound = [member for member in gang.members if member.state is MemberState.BOUND]
    if gang.members and all(_ended(member) for member in gang.members):
        failed = any(member.state is MemberState.FAILED for member in gang.members)
        return "Failed" if failed else "Succeeded"
    if gang.members and all(member.state is MemberState.LEAVING or _ended(member) for member in gang.members):
        return "Leaving"
    if gang.broken:
        return "Broken"
    if not bound:
        return "Waiting"
    running = sum(pod.phase is Phase.RUNNING for pod in pods)
    return "Running" if running and running == sum(member.counts for member in gang.members) else "Bound"


def _ended(member: Member) -> bool:
    return member.state in {MemberState.SUCCEEDED, MemberState.FAILED}


def _asked(request: Request) -> int:
    if request.share is not None:
        return request.share.core_percent * ONE_CARD // 100
    return request.cards * ONE_CARD


def _millionths(use: CardUse, memory_of: dict[CardIndex, int]) -> int:
    """What a use charges: the larger of its memory part and its core part."""
    if use.whole:
        return ONE_CARD
    memory = memory_of.get(use.index, 0)
    by_memory = -(-use.memory_mib * ONE_CARD // memory) if memory else 0
    return max(by_memory, use.core_percent * ONE_CARD // 100)


def _used(cell: CardCell) -> int:
    if cell.whole:
        return ONE_CARD
    by_memory = -(-cell.used_memory_mib * ONE_CARD // cell.memory_mib) if cell.memory_mib else 0
    return min(ONE_CARD, max(by_memory, cell.used_core_percent * ONE_CARD // 100))


def _node_row(
    node: Node, users: list[tuple[str, Request, tuple[CardUse, ...], bool]], levels: tuple[str, ...]
) -> NodeRow:
    cells = []
    for card in node.cards:
        uses = [(who, use, promised) for who, _, cards, promised in users for use in cards if use.index == card.index]
        cells.append(
            CardCell(
                index=card.index,
                memory_mib=card.memory_mib,
                used_memory_mib=sum(card.memory_mib if use.whole else use.memory_mib for _, use, _ in uses),
                used_core_percent=sum(100 if use.whole else use.core_percent for _, use, _ in uses),
                whole=any(use.whole for _, use, _ in uses),
                healthy=card.healthy,
                held=bool(uses) and all(promised for _, _, promised in uses),
                gangs=tuple(sorted({who for who, _, _ in uses})),
            )
        )
    return NodeRow(
        name=node.name,
        ready=node.ready,
        cordoned=node.unschedulable,
        card_mode=node.card_mode.value if node.card_mode is not None else "",
        gpu_model=node.gpu_model,
        domains={level: value for level in levels if (value := value_at(node.labels, level)) is not None},
        cards=tuple(cells),
        free_cards=sum(ONE_CARD - _used(cell) for cell in cells if cell.healthy),
        cpu=node.cpu,
        used_cpu=sum(request.cpu for _, request, _, _ in users),
        memory=node.memory,
        used_memory=sum(request.memory for _, request, _, _ in users),
        pods=len(users),
    )


def _largest_blocks(rows: Iterable[NodeRow], levels: tuple[str, ...]) -> Iterable[FreeBlock]:
    untouched = {row.name: sum(cell.healthy and not cell.gangs for cell in row.cards) for row in rows}
    for level in levels:
        blocks: dict[str, int] = defaultdict(int)
        for row in rows:
            if level in row.domains and row.ready and not row.cordoned:
                blocks[row.domains[level]] += untouched[row.name]
        if blocks:
            domain = max(sorted(blocks), key=blocks.__getitem__)
            yield FreeBlock(level=level, domain=domain, cards=blocks[domain])
    if untouched:
        name = max(sorted(untouched), key=untouched.__getitem__)
        yield FreeBlock(level="node", domain=name, cards=untouched[name])


def _parent(queue: Queue) -> str | None:
    """A queue that names no parent stands below the root, as Volcano has it."""
    return queue.parent or (ROOT if queue.name != ROOT else None)
