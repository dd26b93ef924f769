"""Answers to questions (muster.api.<tenant>.<verb>): explain, gangs, nodes, queues.

Read from the last snapshot that was decided on and from the LEDGER's view, so that an answer and a decision never disagree.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec

from muster.bus.queries import (
    ExplainReply,
    ExplainRequest,
    GangRow,
    GangsReply,
    GangsRequest,
    NodesReply,
    NodesRequest,
    QueuesReply,
    QueuesRequest,
)
from muster.decide.commitments import Kind, OpenEntry, nominations
from muster.decide.explaining.details import ROOM, Details, Scene, details_of
from muster.decide.lifecycle.submission import SUBMISSION, given_name
from muster.decide.memory import CORE, CoreMemory
from muster.decide.preemption.observing import observed_plan, observes
from muster.decide.queue_rules import ignored, preemptible
from muster.model.gangs import Gang, Member, MemberState
from muster.model.ledger import Plan
from muster.model.pods import Owner, Phase, Pod, Request
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, Sequence, split_key
from muster.scheduler.book import Book
from muster.scheduler.explanations import Subject, reply_of
from muster.scheduler.journal import Journal
from muster.scheduler.node_rows import nodes_reply
from muster.scheduler.plan_facts import Plans
from muster.scheduler.queue_rows import amount_asked, queue_rows
from muster.view.world import World

OBSERVED_SECONDS = 10.0
"""How long an answer about what would be done is taken for true."""


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
        self._remembered: tuple[Sequence, CoreMemory] | None = None
        self._observed: tuple[float, Plan | None] | None = None

    async def gangs(self, request: GangsRequest) -> GangsReply:
        """Gangs in the order in which they would be served: running first, then waiting by position, then what
        stands in no line because it cannot run as it is.
        """
        snapshot = self._journal.snapshot
        if snapshot is None:
            return GangsReply(at=time.time())
        plans = self._plans(await self._observed_lately(snapshot))
        rows = [
            plans.row(self._gang_row(gang), gang)
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
        plans = self._plans(await self._observed_for(snapshot, gang))
        subject = Subject(
            gang=gang,
            row=self._gang_row(gang),
            reason=reason,
            queue=next(iter(self.queues(QueuesRequest(queue=gang.queue)).queues), None),
            history=tuple(self._journal.history.get(gang.key, ())),
            ignored=ignored(gang, self._policy()),
            for_it=plans.for_it(gang),
            plans=tuple(plans.facts(gang)),
        )
        details = Details()
        if reason is not None and subject.row.code:
            policy, now = self._policy(), time.time()
            if self._scene is None or self._scene[0] is not snapshot:
                # The whole cluster is looked at: off the event loop, and once for all questions about this snapshot.
                self._scene = (snapshot, await asyncio.to_thread(Scene.of, snapshot))
            details = await asyncio.to_thread(
                details_of,
                self._scene[1],
                gang,
                reason.code,
                policy,
                now,
                named=self._job_name,
                memory=self._memory(),
            )
        return reply_of(subject, details, self._world)

    def _memory(self) -> CoreMemory:
        """What the leader's core last wrote into the LEDGER."""
        view = self._book.view
        at = view.memory_at.get(CORE, Sequence(0))
        if self._remembered is None or self._remembered[0] != at:
            try:
                self._remembered = (at, CoreMemory.from_data(view.memory.get(CORE, {})))
            except msgspec.ValidationError:  # the leader says so, where it is acted upon
                self._remembered = (at, CoreMemory())
        return self._remembered[1]

    def _plans(self, observed: Plan | None) -> Plans:
        return Plans(
            self._book.view,
            self._world.by_uid,
            self._memory(),
            self._policy(),
            time.time(),
            self._job_name,
            observed,
        )

    async def _observed_for(self, snapshot: Snapshot, gang: Gang) -> Plan | None:
        """What an actor that only observes would do for this gang, or to it."""
        if gang.key in self._book.view.open:
            return None
        if any(member.node is not None for member in gang.members):
            return await self._observed_lately(snapshot)
        if self._journal.pending.get(gang.key) is None or not observes(self._policy().actions):
            return None
        return await self._observe(snapshot, gang.key)

    async def _observed_lately(self, snapshot: Snapshot) -> Plan | None:
        """What actors that only observe would do first of all; looked at anew every few seconds at the most."""
        if not observes(self._policy().actions) or not any(one.code in ROOM for one in self._journal.pending.values()):
            return None
        now = time.monotonic()
        if self._observed is None or now - self._observed[0] > OBSERVED_SECONDS:
            self._observed = (now, None)
            self._observed = (now, await self._observe(snapshot, None))
        return self._observed[1]

    async def _observe(self, snapshot: Snapshot, only: GangKey | None) -> Plan | None:
        view, policy = self._book.view, self._policy()
        memory = msgspec.structs.replace(self._memory(), nominations=nominations(view))
        return await asyncio.to_thread(
            observed_plan, snapshot, memory, time.time(), policy, only=only, named=self._job_name
        )

    def nodes(self, request: NodesRequest) -> NodesReply:
        """Nodes with what every card carries."""
        snapshot = self._journal.snapshot
        return NodesReply(at=time.time()) if snapshot is None else nodes_reply(snapshot, request, at=time.time())

    def queues(self, request: QueuesRequest) -> QueuesReply:
        """Queues with used, deserved, share and capability in cards, and who waits there."""
        snapshot = self._journal.snapshot
        if snapshot is None:
            return QueuesReply(at=time.time())
        rows = queue_rows(snapshot, self._journal.pending, self._journal.shares)
        chosen = tuple(row for row in rows if not request.queue or row.name == request.queue)
        return QueuesReply(at=time.time(), queues=chosen)

    def _find(self, snapshot: Snapshot, request: ExplainRequest) -> Gang | None:
        """By the name of the gang, of its job, by the submission's id, or by the name that a submission asked for."""
        wanted = request.job
        named = f"{request.namespace}/{wanted}" if request.namespace and "/" not in wanted else wanted
        given: dict[str, Gang] = {}
        for gang in snapshot.gangs:
            job, submission = self._known_as(gang)
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
        return split_key(self._world.job_of(key))[1]

    def _known_as(self, gang: Gang) -> tuple[str, str]:
        """The job's own name (``namespace/name``) and its submission id ('' when it came another way)."""
        group = self._world.podgroups.get(gang.key)
        owner = group.owner if group is not None else self._owner_of_pods(gang)
        if owner is None:
            return self._world.job_of(gang.key), ""
        job = f"{gang.namespace}/{owner.name}"
        for kind in ("vcjob", "job"):
            workload = self._world.workloads.get(f"{kind}/{job}")
            if workload is not None and workload.uid == owner.uid:
                return job, workload.annotations.get(SUBMISSION, "")
        return job, ""

    def _owner_of_pods(self, gang: Gang) -> Owner | None:
        """The job whose pods outlived their PodGroup."""
        pods = (self._world.by_uid.get(member.uid) for member in gang.members)
        return next((pod.owner for pod in pods if pod is not None and pod.owner is not None), None)

    def _gang_row(self, gang: Gang) -> GangRow:
        reason = self._journal.pending.get(gang.key)
        entry = self._book.view.open.get(gang.key)
        pods = [pod for member in gang.members if (pod := self._world.by_uid.get(member.uid)) is not None]
        shapes = {role.name: role.shape.request for role in gang.roles}
        state = _state(gang, entry, pods)
        waiting = state == "Waiting" or (reason is not None and state == "Broken")
        job, submission = self._known_as(gang)
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
            cards_per_member=max((amount_asked(request) for request in shapes.values()), default=0),
            cards=sum(amount_asked(shapes.get(member.role, Request())) for member in gang.members),
            nodes=tuple(sorted({member.node for member in gang.members if member.node is not None})),
            submitted=gang.submitted,
            since=self._journal.since.get(gang.key, gang.submitted),
        )


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
