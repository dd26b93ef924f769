"""A stream of jobs in virtual time on the real cores: what arrives, what is decided, what runs, ends, and is evicted.

    arrivals ─► snapshot ─► decide, else propose ─► places stand, victims leave ─► ends by work done …

Nothing is bound or evicted over a wire and nothing fails; time jumps from event to event. A job is done when its work is:
seconds at full size. With r of n pods it works at r/n, below its minimum not at all. An evicted job goes back to its last
checkpoint and waits again as a whole, or as the pods that it lost when it is still above its minimum.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf

import msgspec

from muster.decide.fleet import Fleet
from muster.decide.memory import CoreMemory, evicted, nominated
from muster.decide.preemption import Proposal, plan_entry, propose
from muster.decide.scheduling import Decision, decide
from muster.model.gangs import Gang, Member, MemberState, Role, Timing
from muster.model.instructions import Evict, Pending, Place, Slot
from muster.model.nodes import Node
from muster.model.pods import Shape, TopologyWish
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, PodUid, QueueName, RoleName
from muster.model.workloads import Queue

Decide = Callable[[Snapshot, CoreMemory, float, Policy], Decision]
Propose = Callable[[Snapshot, CoreMemory, float, Policy], Proposal]

NAMESPACE = "stream"
ROLE = RoleName("worker")
MOST_TURNS = 100
"""Decisions at one moment; more would mean that the cores do not come to rest."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the stream. Seconds."""

    name: str
    at: float
    """When it is submitted."""
    pods: int
    shape: Shape
    work: float
    """At full size and without interruption it runs so long."""
    queue: str = "default"
    priority: int = 0
    minimum: int | None = None
    """Of pods; None: all."""
    preemptible: bool = True
    topology: TopologyWish = TopologyWish()
    expected: float = 0.0
    """What its owner says of its duration, 0 for nothing."""
    checkpoint_interval: float = 0.0
    """Of work; 0: an interrupted job begins again."""
    owner: str = ""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How the world around the cores behaves. Seconds."""

    restart_cost: float = 0.0
    """After an eviction the pods stand for so long before work goes on."""
    leaving: float = 0.0
    """Between an eviction and the room being free."""
    tick: float = inf
    """While somebody waits, a decision is taken at least so often: reservations and back-offs end by time alone."""
    horizon: float = inf
    """The run ends then, whatever still waits or runs."""


class Life(msgspec.Struct, kw_only=True):
    """What became of a job. Times in seconds of the stream, cards as they were held (shares as parts)."""

    job: Job
    started: float | None = None
    """When it first stood with its minimum."""
    ended: float | None = None
    waited: float = 0.0
    """In all, times without its minimum."""
    restarts: int = 0
    """How often it lost its minimum."""
    lost_work: float = 0.0
    """Seconds at full size done again."""
    evicted_pods: int = 0
    evicted_held: float = 0.0
    """Pod-seconds that evicted pods had stood since their job last reached its minimum."""
    held: float = 0.0
    """Pod-seconds, working or not."""


class _Live:
    """A job that is in the cluster."""

    def __init__(self, life: Life, gang: Gang) -> None:
        self.life = life
        self.gang = gang
        self.done = 0.0
        self.stood = life.job.at
        """When it last reached its minimum."""
        self.resumes = 0.0
        """Work goes on from this moment."""
        self.since = life.job.at
        """Up to when `done`, `waited` and `held` are counted."""
        self.turn = 0

    @property
    def standing(self) -> int:
        return sum(member.state is MemberState.BOUND for member in self.gang.members)

    @property
    def works(self) -> bool:
        return self.standing >= self.gang.minimum

    def advance(self, now: float) -> None:
        job = self.life.job
        span = now - self.since
        self.life.held += span * self.standing
        if self.works:
            self.done += max(0.0, now - max(self.since, self.resumes)) * self.standing / job.pods
        else:
            self.life.waited += span
        self.since = now

    def end(self) -> float:
        """When it would be done if nothing changed."""
        if not self.works:
            return inf
        job = self.life.job
        return max(self.since, self.resumes) + max(0.0, job.work - self.done) * job.pods / self.standing

    def checkpoint(self) -> float:
        """Work that an interruption does not lose."""
        interval = self.life.job.checkpoint_interval
        return self.done - self.done % interval if interval else 0.0


class Stream:
    """One run over one stream."""

    def __init__(
        self,
        jobs: Iterable[Job],
        *,
        nodes: Sequence[Node],
        queues: Sequence[Queue],
        policy: Policy,
        rules: Rules | None = None,
        decide_with: Decide | None = None,
        propose_with: Propose = propose,
        levels: tuple[str, ...] = (),
    ) -> None:
        """`levels` are the topology levels of the nodes' labels, widest first."""
        self.rules = rules or Rules()
        self.policy = policy
        self.nodes, self.queues, self.levels = tuple(nodes), tuple(queues), levels
        self._fleet = Fleet(self.nodes, levels, ())
        self._decide = decide_with or self._decide_here
        self._propose = propose_with
        self.memory = CoreMemory()
        self.reasons: dict[GangKey, Pending] = {}
        self.decisions = 0
        self.plans = 0
        self._live: dict[GangKey, _Live] = {}
        self._numbers = itertools.count(1)
        self._events: list[tuple[float, int, str, GangKey | Job]] = []
        self._gone: dict[int, set[PodUid]] = {}
        self._ticked = -inf
        for job in jobs:
            self._push(job.at, "arrival", job)

    def _decide_here(self, snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy) -> Decision:
        return decide(snapshot, memory, now, policy, fleet=self._fleet)

    def _push(self, at: float, what: str, about: GangKey | Job) -> int:
        number = next(self._numbers)
        heapq.heappush(self._events, (at, number, what, about))
        return number

    def snapshot(self) -> Snapshot:
        """The cluster as it stands."""
        gangs = tuple(live.gang for live in self._live.values())
        return Snapshot(nodes=self.nodes, queues=self.queues, gangs=gangs, topology_levels=self.levels)

    def run(self) -> Iterator[Life]:
        """The jobs as they end; those that have not at the horizon come last, without an end."""
        while self._events and self._events[0][0] <= self.rules.horizon:
            now = self._events[0][0]
            news = False
            while self._events and self._events[0][0] <= now:
                _, number, what, about = heapq.heappop(self._events)
                ended = self._happens(now, what, about, number)
                news = news or ended is not None
                if isinstance(ended, Life):
                    yield ended
            if news:
                self._come_to_rest(now)
        for live in self._live.values():
            if self.rules.horizon < inf:
                live.advance(self.rules.horizon)
            yield live.life

    def _happens(self, now: float, what: str, about: GangKey | Job, number: int) -> Life | bool | None:
        """One event; None when it is outdated, a life when it ended."""
        if isinstance(about, Job):
            self._live[_key(about)] = _Live(Life(job=about), self._gang(about, number))
            return True
        live = self._live.get(about)
        if what == "tick":
            return True
        if live is None:
            self._gone.pop(number, None)
            return None
        if what == "gone":
            gone = self._gone.pop(number)
            self._change(live, now, lambda member: self._again(member) if member.uid in gone else member)
            return True
        if live.turn != number:
            return None
        live.advance(now)
        live.life.ended = now
        del self._live[about]
        return live.life

    def _gang(self, job: Job, number: int) -> Gang:
        members = tuple(self._member(f"{job.name}-{pod}") for pod in range(job.pods))
        return Gang(
            key=_key(job),
            uid=f"gang-{job.name}",
            queue=QueueName(job.queue),
            priority=job.priority,
            preemptible=job.preemptible,
            minimum=job.pods if job.minimum is None else job.minimum,
            roles=(Role(name=ROLE, shape=job.shape, replicas=job.pods),),
            members=members,
            topology=job.topology,
            submitted=job.at,
            order=number,
            namespace=NAMESPACE,
            timing=Timing(expected_duration=job.expected, checkpoint_interval=job.checkpoint_interval),
            owner=job.owner,
        )

    def _member(self, name: str) -> Member:
        return Member(uid=PodUid(f"{name}~{next(self._numbers)}"), name=name, role=ROLE, state=MemberState.WAITING)

    def _again(self, member: Member) -> Member:
        """The owner makes a pod that is gone again."""
        return self._member(member.name) if member.state is MemberState.LEAVING else member

    def _change(self, live: _Live, now: float, change: Callable[[Member], Member]) -> None:
        """Members change: work so far is counted, and the end is expected anew."""
        live.advance(now)
        worked = live.works
        members = tuple(change(member) for member in live.gang.members)
        live.gang = msgspec.structs.replace(live.gang, members=members)
        life = live.life
        if worked and not live.works:
            life.restarts += 1
            life.lost_work += live.done - live.checkpoint()
            live.done = live.checkpoint()
            self._timed(live, started=0.0)
        elif live.works and not worked:
            life.started = now if life.started is None else life.started
            live.stood = now
            live.resumes = now + (self.rules.restart_cost if life.restarts else 0.0)
            self._timed(live, started=now)
        end = live.end()
        live.turn = self._push(end, "end", live.gang.key) if end < inf else 0

    def _timed(self, live: _Live, *, started: float, checkpoint: float = 0.0) -> None:
        timing = msgspec.structs.replace(live.gang.timing, started=started, last_checkpoint=checkpoint)
        live.gang = msgspec.structs.replace(live.gang, timing=timing)

    def _come_to_rest(self, now: float) -> None:
        """Decide at this moment until nothing more follows."""
        for _ in range(MOST_TURNS):
            if not self._turn(now):
                break
        else:
            raise RuntimeError(f"after {MOST_TURNS} decisions at second {now:g} something still changes")
        waits = any(not live.works for live in self._live.values())
        if waits and self._ticked <= now and self.rules.tick < inf:
            self._ticked = now + self.rules.tick
            self._push(self._ticked, "tick", GangKey(""))

    def _turn(self, now: float) -> bool:
        self._checkpointed(now)
        snapshot = self.snapshot()
        decision = self._decide(snapshot, self.memory, now, self.policy)
        self.decisions += 1
        self.memory = decision.memory
        places = [one for one in decision.instructions if isinstance(one, Place)]
        self.reasons = {one.gang: one for one in decision.instructions if isinstance(one, Pending)}
        for place in places:
            self._stand(place, now)
        if places:
            return True
        if not self.reasons:
            return False
        proposal = self._propose(snapshot, self.memory, now, self.policy)
        if proposal.plan is None:
            return False
        self.plans += 1
        entry = plan_entry(proposal, snapshot, self.memory, now, self.policy)
        self.memory = evicted(nominated(self.memory, proposal.nominations), entry, now)
        self._leave(proposal.plan, now)
        return True

    def _checkpointed(self, now: float) -> None:
        """The cores are told of each working job's last checkpoint, as its progress messages would."""
        for live in self._live.values():
            if live.works and live.life.job.checkpoint_interval:
                live.advance(now)
                behind = (live.done - live.checkpoint()) * live.life.job.pods / live.standing
                started = live.gang.timing.started
                self._timed(live, started=started, checkpoint=max(started, now - behind))

    def _stand(self, place: Place, now: float) -> None:
        where: dict[PodUid, Slot] = {slot.uid: slot for slot in place.slots}

        def bound(member: Member) -> Member:
            slot = where.get(member.uid)
            if slot is None:
                return member
            return msgspec.structs.replace(member, state=MemberState.BOUND, node=slot.node, cards=slot.cards)

        self._change(self._live[place.gang], now, bound)

    def _leave(self, plan: Evict, now: float) -> None:
        by_gang: dict[GangKey, set[PodUid]] = {}
        for key, uid in plan.victims:
            by_gang.setdefault(key, set()).add(uid)
        for key, uids in by_gang.items():
            live = self._live[key]
            live.life.evicted_pods += len(uids)
            live.life.evicted_held += len(uids) * (now - live.stood)

            def leaves(member: Member, uids: set[PodUid] = uids) -> Member:
                if member.uid not in uids:
                    return member
                leaving = msgspec.structs.replace(member, state=MemberState.LEAVING)
                return leaving if self.rules.leaving else self._again(leaving)

            self._change(live, now, leaves)
            if self.rules.leaving:
                self._gone[self._push(now + self.rules.leaving, "gone", key)] = uids


def _key(job: Job) -> GangKey:
    return GangKey(f"{NAMESPACE}/{job.name}")
