"""The world of the commit protocol: API server, NATS LEDGER, leaders, requests in flight.

    leaders ──append(expected sequence)──► LEDGER          (one order; an append may linger, its answer may be lost)
       │  └──Binding, eviction, touch──► pods              (a request may linger: it lands later, or never)
       └──◄── STATE: the pods as they were at some revision (a leader reads whenever it likes, so every delay is covered)

Three reductions keep it small and lose nothing:
- A read and the request that rests on it are one step, since the request may linger as long as a pause between the two could.
- A request that carries a resourceVersion is dropped as soon as its pod is written: it could only be answered 409. So versions need no numbers.
- A paused leader is one that takes no step; a crashed one is a paused one whose next step is to acquire the lease anew.
"""

from enum import IntEnum
from typing import NamedTuple

from tests.model.ledger import Entry, fold

PREEMPTOR = -1
"""Stands for the preemptor where a request names the process that sent it."""


class Phase(IntEnum):
    """A pod's: alive, deletionTimestamp set (it still holds its room), or Succeeded/Failed."""

    ALIVE = 0
    TERMINATING = 1
    TERMINAL = 2


class Room(IntEnum):
    """A node's only slot: ours to give, vanished with its node, or taken by another scheduler's pod."""

    OURS = 0
    VANISHED = 1
    TAKEN = 2


class Role(IntEnum):
    """A process: standing by, holding the lease without a leader entry, touching, deciding, or deposed for good."""

    STANDBY = 0
    ENTERING = 1
    TOUCHING = 2
    DECIDING = 3
    STOPPED = 4


class Budget(NamedTuple):
    """How often each thing may still happen: bounds the exploration, nothing else."""

    acquire: int = 0
    bind: int = 0
    undo: int = 0
    slow_append: int = 0
    slow_touch: int = 0
    recreate: int = 0
    delete: int = 0
    vanish: int = 0
    foreign: int = 0
    lose_store: int = 0
    plan: int = 0
    withdraw: int = 0
    forge: int = 0

    def spend(self, what: str) -> "Budget | None":
        """One less, or None when none is left."""
        left = getattr(self, what)
        return self._replace(**{what: left - 1}) if left else None


class Pod(NamedTuple):
    """A pod: its uid (name + number of names * generation), node or UNBOUND, fence annotation, phase; whether its user wrote the fence."""

    uid: int
    node: int
    fence: int = 0
    phase: Phase = Phase.ALIVE
    forged: bool = False


class Request(NamedTuple):
    """A write in flight; `guarded` says that it carries the resourceVersion of the pod as it now is."""

    kind: str
    process: int
    epoch: int
    uid: int = -1
    node: int = -1
    token: int = 0
    guarded: bool = True
    expected: int = 0
    base: int = 0
    entry: tuple = ()


class Leader(NamedTuple):
    """One scheduler process: its role, its leader entry, the LEDGER prefix it applied, its view of STATE."""

    role: Role
    view: tuple[Pod | None, ...]
    nodes: tuple[Room, ...]
    fresh: int = 0
    epoch: int = 0
    entry: int = 0
    base: int = 0
    incarnation: int = 0
    applied: int = 0
    need: int = 0
    waiting: Entry | None = None
    sent: frozenset = frozenset()
    acked: frozenset = frozenset()


class Reader(NamedTuple):
    """The preemptor, as far as the LEDGER is concerned: the prefix that it has read."""

    base: int = 0
    incarnation: int = 0
    applied: int = 0


class World(NamedTuple):
    """Everything. `floor` (epoch of the last finished take-over), `lost` and `broken` are for the invariants only."""

    pods: tuple[Pod | None, ...]
    nodes: tuple[Room, ...]
    leaders: tuple[Leader, ...]
    budget: Budget
    ledger: tuple[Entry, ...] = ()
    base: int = 0
    incarnation: int = 0
    lost: tuple[Entry, ...] = ()
    net: tuple[Request, ...] = ()
    revision: int = 1
    generations: tuple[int, ...] = ()
    epoch: int = 0
    floor: int = 0
    broken: str = ""
    preemptor: Reader = Reader()


def pod_name(uid: int, names: int) -> str:
    """a1 is the second pod (uid) under the name a."""
    return f"{chr(97 + uid % names)}{uid // names}"


def process_name(process: int) -> str:
    """p0, p1, or the preemptor."""
    return f"p{process}" if process != PREEMPTOR else "the preemptor"


def write_pod(world: World, name: int, pod: Pod | None) -> World:
    """The API server stores a pod (or removes it); guarded requests for it would from now on be answered 409."""
    pods = (*world.pods[:name], pod, *world.pods[name + 1 :])
    uid = pod.uid if pod else -1
    size = len(pods)
    net = tuple(r for r in world.net if r.kind == "append" or r.uid % size != name or (r.uid == uid and not r.guarded))
    return world._replace(pods=pods, net=net, revision=world.revision + 1)


def append(world: World, entry: Entry) -> World:
    """The LEDGER takes an entry; appends that expected an earlier sequence would from now on be refused."""
    memory = fold(world.ledger, world.base)
    broken = world.broken
    if entry.kind != "leader" and entry.author < memory.leader_epoch:
        broken = f"an effect by a deposed leader: its {entry.kind} entry follows a newer leader entry"
    opens = entry.kind in {"bind", "plan"} or (entry.kind == "undoing" and entry.refers == 0)
    if opens and any(c.gang == entry.gang for s, c in memory.commitments.items() if s != entry.refers):
        broken = broken or f"gang {entry.gang} has two open entries"
    twice = memory.victims().intersection(entry.victims)
    if twice:
        broken = broken or "a victim is named in two open plans"
    ledger = (*world.ledger, entry)
    net = tuple(r for r in world.net if r.kind != "append" or r.expected >= len(ledger))
    return world._replace(ledger=ledger, net=net, broken=broken)


def send(world: World, request: Request) -> World:
    """Put a write in flight."""
    return world._replace(net=tuple(sorted({*world.net, request})))


def land(world: World, request: Request) -> World:
    """The request reaches its server and is carried out, or refused without effect."""
    rest = world._replace(net=tuple(r for r in world.net if r is not request))
    if request.kind == "append":
        fits = request.expected == len(world.ledger) and request.base == world.base
        return append(rest, request.entry) if fits else rest
    name = request.uid % len(world.pods)
    pod = world.pods[name]
    if pod is None or pod.uid != request.uid:
        return rest
    if request.kind == "touch":
        return write_pod(rest, name, pod._replace(fence=request.token, forged=False))
    if request.kind == "bind":
        if pod.node != -1 or pod.phase != Phase.ALIVE:
            return rest
        after = pod._replace(node=request.node)
    else:
        if pod.node == -1 or pod.phase != Phase.ALIVE:
            return rest
        after = pod._replace(phase=Phase.TERMINATING)
    return write_pod(rest, name, after)._replace(broken=rest.broken or _carried_out(world, request, pod))


def _carried_out(world: World, request: Request, pod: Pod) -> str:
    """Why this Binding or eviction should not have been carried out; empty when all is well."""
    what = f"{'a Binding' if request.kind == 'bind' else 'an eviction'} of {pod_name(request.uid, len(world.pods))}"
    if pod.forged and request.kind == "evict":
        return ""  # whoever writes a fence on a pod of his may lose that pod, whatever became of the plan
    if request.token < pod.fence:
        return f"an effect by a deposed leader: {what} with token {request.token} below the fence {pod.fence}"
    if request.epoch < world.floor:
        return f"an effect by a deposed leader: {what} after a newer leader finished its take-over"
    for entries, base in ((world.ledger, world.base), (world.lost, 0)):
        naming = [c for c in fold(entries, base).commitments.values() if request.uid in c.uids()]
        if request.kind == "bind":
            if any(
                s.uid == request.uid and s.node == request.node
                for c in naming[-1:]
                for s in c.slots
                if c.kind == "bind"
            ):
                return ""
        elif any(c.undoing or request.uid in c.victims for c in naming):
            return ""
    return f"{what} that no open entry asks for"


def with_leader(world: World, process: int, leader: Leader) -> World:
    """The world with one leader replaced."""
    return world._replace(leaders=(*world.leaders[:process], leader, *world.leaders[process + 1 :]))
