"""The commit protocol (PROTOCOL rules A to F and H) as steps over a World. Each rule can be left out by name.

    acquire ─► append the leader entry ─► touch what open entries name ─► lead: append decisions, execute open entries
                                                                           └─► stop at a newer leader entry or incarnation

Everything that the rules do not order may happen in any order.
"""

from collections.abc import Iterator

from tests.model.deciding import Decider, Gang
from tests.model.environment import surroundings
from tests.model.executing import Executor
from tests.model.explore import Step
from tests.model.ledger import BIND, CLOSE, LEADER, UNBOUND, UNNAMED, Commitment, Entry, Memory, fold
from tests.model.rules import COMMIT_RULES
from tests.model.world import (
    Leader,
    Phase,
    Reader,
    Request,
    Role,
    Room,
    World,
    append,
    land,
    pod_name,
    process_name,
    send,
    with_leader,
)

FAIR_ORDER = (
    *("land", "kubelet", "recreate", "sync", "read", "acquire", "enter", "touch", "lead"),
    *("close", "name", "execute", "undo", "withdraw", "bind"),
)
"""A continuation without faults: what is in flight arrives, then leaders do the first thing that they can."""


class CommitProtocol:
    """The model of one scenario: `without` names rules that are left out."""

    def __init__(self, gangs: tuple[Gang, ...], start: World, *, without: frozenset[str] = frozenset()) -> None:
        self.on = frozenset(COMMIT_RULES.keys() - without)
        self.gangs = gangs
        self.start = start
        self.names = len(start.pods)
        self.decider = Decider(gangs, self.on)
        self.executor = Executor(gangs, self.on)

    def initial(self) -> World:
        """The scenario's first world."""
        return self.start

    # ---- what must hold ------------------------------------------------------------------------------------------

    def violation(self, world: World) -> str:
        """The invariant that this world breaks, or nothing."""
        if world.broken:
            return world.broken
        for node, room in enumerate(world.nodes):
            pods = [p for p in world.pods if p is not None and p.node == node and p.phase != Phase.TERMINAL]
            if len(pods) > 1 and room != Room.VANISHED:
                called = " and ".join(pod_name(pod.uid, self.names) for pod in pods)
                return f"a card given twice: {called} are both bound to n{node}"
        return ""

    def unsettled(self, world: World) -> str:
        """Continue without faults to the end: every gang must be whole or free, and no entry may stay open."""
        labels: list[str] = []
        for _ in range(400):
            steps = {step.kind: step for step in reversed(list(self.steps(world, fair=True)))}
            kind = next((kind for kind in FAIR_ORDER if kind in steps), None)
            if kind is None:
                return self._left_open(world)
            world = steps[kind].state
            labels.append(steps[kind].label)
            if self.violation(world):
                return f"{self.violation(world)} (in a fair continuation: {'; '.join(labels[-4:])})"
        return f"a fair continuation never ends; it goes on with: {'; '.join(labels[-4:])}"

    def _left_open(self, world: World) -> str:
        for commitment in fold(world.ledger, world.base).commitments.values():
            return (
                f"no progress: the {commitment.kind} entry {commitment.sequence} of gang {commitment.gang} stays open"
            )
        used = {p.node for p in world.pods if p is not None and p.node != UNBOUND}
        for number, gang in enumerate(self.gangs):
            forged = any(p is not None and p.forged for p in (world.pods[name] for name in gang.members))
            bound = sum(p is not None and p.node != UNBOUND for p in (world.pods[name] for name in gang.members))
            if bound not in {0, len(gang.members)} and not forged:
                return f"no progress: gang {number} stays half bound"
            free = any(all(world.nodes[n] == Room.OURS and n not in used for n in p) for p in gang.placements)
            if not bound and free and not forged:
                return f"no progress: gang {number} stays unbound beside free room"
        return ""

    def canonical(self, world: World) -> World:
        """Renumber revisions by rank: only their order matters."""
        held = {world.revision, *(entry.fresh for entry in world.ledger)}
        for leader in world.leaders:
            held.update((leader.fresh, leader.need))
            if leader.waiting is not None:
                return world  # an entry in flight holds revisions too; rare, so left as they are
        held.discard(0)
        if len(held) == world.revision or any(request.kind == "append" for request in world.net):
            return world
        rank = {revision: number for number, revision in enumerate(sorted(held), start=1)}
        rank[0] = 0
        leaders = tuple(leader._replace(fresh=rank[leader.fresh], need=rank[leader.need]) for leader in world.leaders)
        ledger = tuple(entry._replace(fresh=rank[entry.fresh]) for entry in world.ledger)
        return world._replace(revision=rank[world.revision], leaders=leaders, ledger=ledger)

    # ---- what may happen -----------------------------------------------------------------------------------------

    def steps(self, world: World, *, fair: bool = False) -> Iterator[Step]:
        """Everything that may happen next. `fair`: no faults, budgets ignored, only what cannot complete is undone."""
        for request in world.net:
            after = land(world, request)
            if request.kind == "bind" and "B-close-only-on-state" not in self.on:
                after = _acknowledge(after, request)
            if fair or after.pods is not world.pods or after.ledger is not world.ledger:
                yield Step("land", self._landing(request), after)
        yield from surroundings(world, fair=fair, above="H-incarnation-above" in self.on)
        for process, leader in enumerate(world.leaders):
            yield from self._process(world, process, leader, fair=fair)
        if any(gang.victims for gang in self.gangs):
            yield from self._preemptor(world)

    def _preemptor(self, world: World) -> Iterator[Step]:
        """It reads LEDGER whenever it likes, and executes the open plans of what it has read."""
        reader = world.preemptor
        upto = Reader(world.base, world.incarnation, len(world.ledger))
        if reader != upto:
            yield Step("read", "the preemptor reads LEDGER up to now", world._replace(preemptor=upto))
        entries = world.ledger if reader.incarnation == world.incarnation else world.lost
        yield from self.executor.preempt(world, fold(entries[: reader.applied], reader.base))

    def _landing(self, request: Request) -> str:
        if request.kind == "append":
            return f"{process_name(request.process)}'s lingering append lands: {self._entry(request.entry)}"
        target = f" to n{request.node}" if request.kind == "bind" else ""
        what = {"bind": "Binding", "evict": "eviction", "touch": "touch"}[request.kind]
        called = pod_name(request.uid, self.names)
        return f"{process_name(request.process)}'s {what} of {called}{target} (token {request.token}) is carried out"

    def _entry(self, entry: Entry) -> str:
        slots = ", ".join(
            f"{pod_name(s.uid, self.names) if s.uid != UNNAMED else f'{chr(97 + s.name)}?'}→n{s.node}"
            for s in entry.slots
        )
        victims = ", ".join(pod_name(uid, self.names) for uid in entry.victims)
        refers = f" of entry {entry.refers}" if entry.refers > 0 else ""
        gang = f" gang {entry.gang}" if entry.gang >= 0 else ""
        return f"{entry.kind}{refers}{gang}{f' [{slots}]' if slots else ''}{f' evicting {victims}' if victims else ''}"

    def _process(self, world: World, process: int, leader: Leader, *, fair: bool) -> Iterator[Step]:
        me = f"p{process}"
        idle = leader.role in {Role.STANDBY, Role.STOPPED}
        wakes = world.budget.acquire or fair
        if leader.role != Role.STOPPED and leader.fresh != world.revision and (wakes or not idle):
            seen = leader._replace(view=world.pods, nodes=world.nodes, fresh=world.revision)
            yield Step("sync", f"{me} reads STATE up to now", with_leader(world, process, seen))
        leading = any(other.role in {Role.ENTERING, Role.TOUCHING, Role.DECIDING} for other in world.leaders)
        if wakes and not (fair and leading):
            start = leader if leader.view else leader._replace(view=world.pods, nodes=world.nodes, fresh=world.revision)
            new = Leader(Role.ENTERING, start.view, start.nodes, start.fresh)
            spent = world if fair else world._replace(budget=world.budget.spend("acquire"))
            yield Step("acquire", f"{me} acquires the lease", with_leader(spent, process, new))
        if idle:
            return
        if leader.role == Role.ENTERING:
            yield self._enter(world, process, leader)
            return
        yield from self._read_ledger(world, process, leader)
        entries = world.ledger if leader.incarnation == world.incarnation else world.lost
        memory = fold(entries[: leader.applied], leader.base)
        if leader.role == Role.TOUCHING:
            yield from self._take_over(world, process, leader, memory)
        elif leader.waiting is not None:
            yield from self._presume(world, process, leader)
        else:
            for kind, entry in self.decider.decisions(leader, memory, fair=fair):
                yield from self._append(world, process, leader, kind, entry, fair=fair)
            for commitment in memory.commitments.values():
                yield from self.executor.execute(world, process, leader, commitment)
            if "D-release-new-undoing" not in self.on:
                yield from self.executor.evict_unasked(world, process, leader, memory)

    # ---- leadership ----------------------------------------------------------------------------------------------

    def _enter(self, world: World, process: int, leader: Leader) -> Step:
        term = world.epoch + 1
        sequence = world.base + len(world.ledger) + 1
        entered = Leader(
            *(Role.TOUCHING, leader.view, leader.nodes, leader.fresh, term, sequence),
            base=world.base,
            incarnation=world.incarnation,
            applied=len(world.ledger) + 1,
            need=world.revision,
        )
        after = append(world._replace(epoch=term), Entry(LEADER, term))
        label = f"p{process} appends its leader entry (sequence {sequence})"
        return Step("enter", label, with_leader(after, process, entered))

    def _read_ledger(self, world: World, process: int, leader: Leader) -> Iterator[Step]:
        """Read to the end: a newer leader entry, or a new incarnation, stops this process for good."""
        if leader.incarnation != world.incarnation:
            stopped = with_leader(world, process, _stopped(world, leader))
            yield Step("read", f"p{process} sees the new incarnation and stops", stopped)
            return
        if leader.applied == len(world.ledger) and leader.waiting is None:
            return
        newer = any(entry.kind == LEADER for entry in world.ledger[leader.applied :])
        if newer and "A-epoch-stop" in self.on:
            stopped = with_leader(world, process, _stopped(world, leader))
            yield Step("read", f"p{process} reads a newer leader entry and stops", stopped)
        else:
            after = leader._replace(applied=len(world.ledger), waiting=None)
            yield Step("read", f"p{process} reads LEDGER up to now", with_leader(world, process, after))

    def _take_over(self, world: World, process: int, leader: Leader, memory: Memory) -> Iterator[Step]:
        """Touch what open entries name (and, in a new incarnation, every pod of ours), then lead."""
        anew = not memory.bound_before
        if anew and leader.fresh < leader.need and "H-view-past-the-loss" in self.on:
            return
        touching, ready = self._to_touch(leader, memory), True
        for uid in sorted(touching):
            pod = world.pods[uid % self.names]
            if pod is None or pod.uid != uid or pod.fence == leader.entry or (pod.forged and pod.fence > leader.entry):
                continue  # what was sent on an older version of it is refused, whoever has moved it
            touch = Request("touch", process, leader.epoch, uid, -1, leader.entry)
            ready = ready and "C-touch-answer" not in self.on and touch in world.net
            if pod.fence < leader.entry:
                yield from self.executor.touch(world, process, touch)
        if anew and "H-view-past-the-touches" in self.on:
            seen = [pod for pod in leader.view if pod is not None and pod.uid in touching]
            ready = ready and all(pod.fence >= leader.entry for pod in seen)
        if ready:
            floor = max(world.floor, leader.epoch)
            led = with_leader(world._replace(floor=floor), process, leader._replace(role=Role.DECIDING, need=0))
            yield Step("lead", f"p{process} has finished its take-over", led)

    def _to_touch(self, leader: Leader, memory: Memory) -> set[int]:
        seen = {pod.uid: pod for pod in leader.view if pod is not None}
        touching: set[int] = set()
        for commitment in memory.commitments.values() if "C-touch-on-takeover" in self.on else ():
            touching.update(commitment.uids())
            if "E-takeover-touches-victims" not in self.on:
                touching.difference_update(commitment.victims)
        if "C-touch-all-named" not in self.on:
            touching.intersection_update(seen)
        first = memory.leader == leader.base + 1 or "H-touch-until-first-bind" in self.on
        if not memory.bound_before and first:
            if "H-touch-all-unbound" in self.on:
                touching.update(uid for uid, pod in seen.items() if pod.node == UNBOUND)
            if "H-touch-bound-too" in self.on:
                touching.update(uid for uid, pod in seen.items() if pod.node != UNBOUND)
        return touching

    # ---- appending -----------------------------------------------------------------------------------------------

    def _presume(self, world: World, process: int, leader: Leader) -> Iterator[Step]:
        """After an unknown result: nothing but reading LEDGER; without the rule, act as if it had been appended."""
        entry = leader.waiting
        if "A-read-after-unknown" not in self.on and entry is not None and entry.kind == BIND:
            presumed = Commitment(leader.base + leader.applied + 1, BIND, entry.gang, entry.slots)
            yield from self.executor.execute(world, process, leader, presumed)

    def _append(
        self, world: World, process: int, leader: Leader, kind: str, entry: Entry, *, fair: bool
    ) -> Iterator[Step]:
        if leader.incarnation != world.incarnation:
            return  # refused; reading tells it why
        if not fair and kind in {"bind", "undo", "plan", "withdraw"}:
            spent = world.budget.spend(kind)
            if spent is None:
                return
            world = world._replace(budget=spent)
        if entry.kind == CLOSE:
            world = world._replace(broken=world.broken or _closed_wrongly(world, leader, entry))
        end = len(world.ledger)
        expected = leader.applied if "A-expected-sequence-of-view" in self.on else end
        said = self._entry(entry)
        if expected == end:
            after = leader._replace(applied=end + 1 if leader.applied == end else leader.applied)
            label = f"p{process} appends {said} (sequence {world.base + end + 1})"
            yield Step(kind, label, with_leader(append(world, entry), process, after))
        spent = None if fair else world.budget.spend("slow_append")
        if spent is None:
            return
        world = world._replace(budget=spent)
        request = Request("append", process, leader.epoch, expected=expected, base=leader.base, entry=entry)
        if "A-one-append-in-flight" in self.on:
            slow = with_leader(send(world, request), process, leader._replace(waiting=entry))
            yield Step("slow", f"p{process} sends an append that lingers: {said}", slow)
        else:
            slow = send(world, request._replace(expected=expected + 1))
            yield Step("slow", f"p{process} pipelines an append behind one that is lost: {said}", slow)


def _acknowledge(world: World, request: Request) -> World:
    leader = world.leaders[request.process]
    if leader.epoch != request.epoch:
        return world
    return with_leader(world, request.process, leader._replace(acked=leader.acked | {request.uid}))


def _stopped(world: World, leader: Leader) -> Leader:
    """Deposed: it may come back as a new process, whose view is no older than what this one had read."""
    if world.budget.acquire:
        return Leader(Role.STOPPED, leader.view, leader.nodes, leader.fresh)
    return Leader(Role.STOPPED, (), ())


def _closed_wrongly(world: World, leader: Leader, entry: Entry) -> str:
    commitment = fold(world.ledger, world.base).commitments.get(entry.refers)
    if commitment is None or commitment.undoing or commitment.kind != BIND:
        return ""
    for slot in commitment.slots:
        pod = leader.view[slot.name]
        if pod is None or pod[:2] != slot[1:] or leader.nodes[slot.node] == Room.VANISHED:
            member = chr(97 + slot.name)
            return f"entry {entry.refers} closes although STATE does not show {member} bound to a live n{slot.node}"
    return ""
