"""The commit protocol (PROTOCOL rules A to F and H) as steps over a World. Each rule can be left out by name.

A leader: acquire → append its leader entry → touch every uid named in open entries → decide. Deciding appends entries from its view and its LEDGER
prefix; executing sends what open entries ask for. Everything that the rules do not order may happen in any order.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.model.explore import Step
from tests.model.ledger import (
    BIND,
    CLOSE,
    LEADER,
    NAME,
    PLAN,
    UNBOUND,
    UNDOING,
    UNNAMED,
    WITHDRAWING,
    Commitment,
    Entry,
    Memory,
    Slot,
    fold,
)
from tests.model.rules import COMMIT_RULES
from tests.model.world import (
    Budget,
    Leader,
    Phase,
    Pod,
    Request,
    Role,
    Room,
    World,
    append,
    land,
    pod_name,
    send,
    write_pod,
)

INCARNATION = 100
FAIR_ORDER = (
    "land",
    "kubelet",
    "recreate",
    "sync",
    "read",
    "acquire",
    "enter",
    "touch",
    "lead",
    "close",
    "name",
    "execute",
    "undo",
    "plan",
    "bind",
)


@dataclass(frozen=True)
class Gang:
    """A gang: its members' pod names, the placements it may be given, and gangs that a plan for it may evict."""

    members: tuple[int, ...]
    placements: tuple[tuple[int, ...], ...]
    victims: tuple[int, ...] = ()


class CommitProtocol:
    """The model of one scenario: `without` names rules that are left out."""

    def __init__(self, gangs: tuple[Gang, ...], start: World, *, without: frozenset[str] = frozenset()) -> None:
        unknown = without - COMMIT_RULES.keys()
        if unknown:
            raise ValueError(
                f"without={sorted(unknown)}: not rules of the commit protocol; known are {sorted(COMMIT_RULES)}"
            )
        self.gangs = gangs
        self.start = start
        self.on = COMMIT_RULES.keys() - without
        self.names = len(start.pods)

    def initial(self) -> World:
        """The scenario's first world."""
        return self.start

    # ---- what must hold ------------------------------------------------------------------------------------------

    def violation(self, world: World) -> str:
        """The invariant that this world breaks, or nothing."""
        if world.broken:
            return world.broken
        for node, room in enumerate(world.nodes):
            pods = [p for p in world.pods if p and p.node == node and p.phase != Phase.TERMINAL]
            if len(pods) > 1 and room != Room.VANISHED:
                return f"a card given twice: {' and '.join(pod_name(p.uid, self.names) for p in pods)} are both bound to n{node}"
        return ""

    def unsettled(self, world: World) -> str:
        """Run without faults to the end: every gang must be whole or free, and no entry may stay open."""
        labels: list[str] = []
        for _ in range(400):
            steps = {step.kind: step for step in reversed(list(self.steps(world, fair=True)))}
            kind = next((kind for kind in FAIR_ORDER if kind in steps), None)
            if kind is None:
                return self._left_open(world)
            world = steps[kind].state
            labels.append(steps[kind].label)
            if self.violation(world):
                return f"{self.violation(world)} (while settling fairly)"
        return f"a fair continuation never ends; it goes on with: {'; '.join(labels[-4:])}"

    def _left_open(self, world: World) -> str:
        memory = fold(world.ledger, world.base)
        for commitment in memory.commitments.values():
            return f"no progress: the {commitment.kind} entry {commitment.sequence} of gang {commitment.gang} stays open for ever"
        for number, gang in enumerate(self.gangs):
            pods = [world.pods[name] for name in gang.members]
            bound = [
                p
                for p in pods
                if p and p.node != UNBOUND and p.phase == Phase.ALIVE and world.nodes[p.node] != Room.VANISHED
            ]
            if len(bound) not in {0, len(pods)}:
                return f"no progress: gang {number} stays half bound"
            used = {p.node for p in world.pods if p and p.node != UNBOUND}
            if not bound and any(
                all(world.nodes[n] == Room.OURS and n not in used for n in nodes) for nodes in gang.placements
            ):
                return f"no progress: gang {number} stays unbound beside free room"
        return ""

    def canonical(self, world: World) -> World:
        """Renumber revisions by rank: only their order matters."""
        used = {world.revision}
        for leader in world.leaders:
            used.update((leader.fresh, leader.need))
        for entry in world.ledger:
            used.add(entry.fresh)
        used.discard(0)
        rank = {revision: number for number, revision in enumerate(sorted(used), start=1)}
        if rank[world.revision] == world.revision:
            return world
        rank[0] = 0
        leaders = tuple(
            leader._replace(fresh=rank[leader.fresh], need=rank[leader.need]) if leader.fresh or leader.need else leader
            for leader in world.leaders
        )
        ledger = tuple(e._replace(fresh=rank[e.fresh]) if e.fresh else e for e in world.ledger)
        if any(r.kind == "append" for r in world.net) or any(leader.waiting for leader in world.leaders):
            return world  # an entry in flight holds a revision too; rare, so left as it is
        return world._replace(revision=rank[world.revision], leaders=leaders, ledger=ledger)

    # ---- what may happen -----------------------------------------------------------------------------------------

    def steps(self, world: World, *, fair: bool = False) -> Iterator[Step]:
        """Everything that may happen next. `fair`: no faults, budgets ignored, undoing only what cannot complete."""
        for request in world.net:
            after = land(world, request)
            if request.kind == "bind" and "B-close-only-on-state" not in self.on:
                after = self._acknowledge(after, request)
            if after.pods is not world.pods or after.ledger is not world.ledger or fair:
                yield Step("land", self._landing(request), after)
        yield from self._environment(world, fair=fair)
        for process, leader in enumerate(world.leaders):
            yield from self._process(world, process, leader, fair=fair)

    def _landing(self, request: Request) -> str:
        if request.kind == "append":
            return f"p{request.process}'s lingering append lands: {self._entry(request.entry)}"
        target = f" to n{request.node}" if request.kind == "bind" else ""
        what = {"bind": "Binding", "evict": "eviction", "touch": "touch"}[request.kind]
        return f"p{request.process}'s {what} of {pod_name(request.uid, self.names)}{target} (token {request.token}) is carried out"

    def _entry(self, entry: Entry) -> str:
        slots = ", ".join(
            (pod_name(s.uid, self.names) if s.uid != UNNAMED else f"{chr(97 + s.name)}?")
            + (f"→n{s.node}" if s.node != UNBOUND else "")
            for s in entry.slots
        )
        victims = f" evicting {', '.join(pod_name(uid, self.names) for uid in entry.victims)}" if entry.victims else ""
        refers = f" of entry {entry.refers}" if entry.refers else ""
        return (
            f"{entry.kind}{refers}"
            + (f" gang {entry.gang}" if entry.gang >= 0 else "")
            + (f" [{slots}]" if slots else "")
            + victims
        )

    def _acknowledge(self, world: World, request: Request) -> World:
        leader = world.leaders[request.process]
        if leader.epoch != request.epoch:
            return world
        return _with(world, request.process, leader._replace(acked=leader.acked | {request.uid}))

    def _environment(self, world: World, *, fair: bool) -> Iterator[Step]:
        budget = world.budget
        for name, pod in enumerate(world.pods):
            if pod is None:
                spent = budget if fair else budget.spend("recreate")
                if spent:
                    generation = world.generations[name] + 1
                    generations = (*world.generations[:name], generation, *world.generations[name + 1 :])
                    new = Pod(name + self.names * generation, UNBOUND)
                    after = write_pod(world._replace(budget=spent, generations=generations), name, new)
                    yield Step("recreate", f"pod {pod_name(new.uid, self.names)} is created", after)
                continue
            called = pod_name(pod.uid, self.names)
            if pod.node != UNBOUND and world.nodes[pod.node] == Room.VANISHED:
                yield Step("kubelet", f"{called} is collected with its vanished node", write_pod(world, name, None))
            elif pod.phase == Phase.TERMINATING or (fair and pod.phase == Phase.TERMINAL):
                yield Step("kubelet", f"{called} is gone", write_pod(world, name, None))
            elif pod.node != UNBOUND and world.nodes[pod.node] == Room.TAKEN and pod.phase == Phase.ALIVE:
                yield Step(
                    "kubelet",
                    f"the kubelet refuses {called}: OutOfgpu",
                    write_pod(world, name, pod._replace(phase=Phase.TERMINAL)),
                )
            elif pod.phase == Phase.ALIVE and not fair and (spent := budget.spend("delete")):
                gone = pod._replace(phase=Phase.TERMINATING) if pod.node != UNBOUND else None
                yield Step(
                    "delete", f"{called} is deleted by its user", write_pod(world._replace(budget=spent), name, gone)
                )
        if fair:
            return
        for node, room in enumerate(world.nodes):
            if room != Room.OURS:
                continue
            for what, then in (("vanish", Room.VANISHED), ("foreign", Room.TAKEN)):
                used = any(p and p.node == node for p in world.pods)
                spent = budget.spend(what)
                if spent and not (used and what == "foreign"):
                    nodes = (*world.nodes[:node], then, *world.nodes[node + 1 :])
                    label = f"node n{node} vanishes" if what == "vanish" else f"another scheduler takes n{node}"
                    yield Step(what, label, world._replace(nodes=nodes, budget=spent, revision=world.revision + 1))
        spent = budget.spend("lose_store")
        if spent:
            base = world.base + INCARNATION if "H-incarnation-above" in self.on else 0
            net = tuple(r for r in world.net if r.kind != "append")
            after = world._replace(
                ledger=(), base=base, incarnation=world.incarnation + 1, lost=world.ledger, net=net, budget=spent
            )
            yield Step("lose", f"the LEDGER is emptied and re-created; its next sequence is {base + 1}", after)

    def _process(self, world: World, process: int, leader: Leader, *, fair: bool) -> Iterator[Step]:
        me = f"p{process}"
        if (
            leader.role != Role.STOPPED
            and leader.fresh != world.revision
            and (world.budget.acquire or leader.role != Role.STANDBY or fair)
        ):
            seen = leader._replace(view=world.pods, nodes=world.nodes, fresh=world.revision)
            yield Step("sync", f"{me} reads STATE up to now", _with(world, process, seen))
        if leader.role in {Role.STANDBY, Role.STOPPED} or not fair:
            spent = world.budget if fair else world.budget.spend("acquire")
            leading = any(other.role in {Role.ENTERING, Role.TOUCHING, Role.DECIDING} for other in world.leaders)
            if spent and not (fair and leading):
                view, nodes, fresh = (
                    (leader.view, leader.nodes, leader.fresh)
                    if leader.view
                    else (world.pods, world.nodes, world.revision)
                )
                after = _with(world._replace(budget=spent), process, Leader(Role.ENTERING, view, nodes, fresh))
                yield Step("acquire", f"{me} acquires the lease", after)
        if leader.role in {Role.STANDBY, Role.STOPPED}:
            return
        if leader.role == Role.ENTERING:
            term = world.epoch + 1
            entry = Entry(LEADER, term)
            sequence = world.base + len(world.ledger) + 1
            entered = leader._replace(
                role=Role.TOUCHING,
                epoch=term,
                entry=sequence,
                base=world.base,
                incarnation=world.incarnation,
                applied=len(world.ledger) + 1,
                need=world.revision,
            )
            yield Step(
                "enter",
                f"{me} appends its leader entry (sequence {sequence})",
                _with(append(world._replace(epoch=term), entry), process, entered),
            )
            return
        yield from self._read_ledger(world, process, leader)
        entries = world.ledger if leader.incarnation == world.incarnation else world.lost
        memory = fold(entries[: leader.applied], leader.base)
        if leader.role == Role.TOUCHING:
            yield from self._take_over(world, process, leader, memory)
            return
        if leader.waiting is not None:
            yield from self._presume(world, process, leader)
            return
        for kind, entry in self._decisions(world, leader, memory, fair=fair):
            yield from self._append(world, process, leader, kind, entry, fair=fair)
        for commitment in memory.commitments.values():
            yield from self._execute(world, process, leader, commitment)
        if "D-release-new-undoing" not in self.on:
            yield from self._evict_unasked(world, process, leader, memory)

    def _read_ledger(self, world: World, process: int, leader: Leader) -> Iterator[Step]:
        """Read to the end: a newer leader entry, or a new incarnation, stops this process for good."""
        if leader.incarnation != world.incarnation:
            yield Step(
                "read", f"p{process} sees the new incarnation and stops", _with(world, process, _stopped(world, leader))
            )
            return
        if leader.applied == len(world.ledger) and leader.waiting is None:
            return
        newer = any(e.kind == LEADER and e.author > leader.epoch for e in world.ledger[leader.applied :])
        if newer and "A-epoch-stop" in self.on:
            yield Step(
                "read",
                f"p{process} reads a newer leader entry and stops",
                _with(world, process, _stopped(world, leader)),
            )
        else:
            after = leader._replace(applied=len(world.ledger), waiting=None)
            yield Step("read", f"p{process} reads LEDGER up to now", _with(world, process, after))

    def _take_over(self, world: World, process: int, leader: Leader, memory: Memory) -> Iterator[Step]:
        """Touch what open entries name (and, in a new incarnation, every pod of ours), then lead."""
        touching, ready = self._to_touch(leader, memory), True
        if not memory.bound_before and "H-view-past-the-loss" in self.on:
            ready = leader.fresh >= leader.need
        for uid in touching if ready else ():
            pod = world.pods[uid % self.names]
            if pod is not None and pod.uid == uid and pod.fence < leader.entry:
                touch = Request("touch", process, leader.epoch, uid, -1, leader.entry)
                sent = "C-touch-answer" not in self.on and touch in world.net
                ready = ready and sent
                yield from self._touch(world, process, uid, touch)
            elif pod is not None and pod.uid == uid and pod.fence > leader.entry:
                ready = False
        if not memory.bound_before and "H-view-past-the-touches" in self.on:
            ready = ready and all(p is None or p.fence >= leader.entry or p.uid not in touching for p in leader.view)
        if ready:
            led = _with(
                world._replace(floor=max(world.floor, leader.epoch)),
                process,
                leader._replace(role=Role.DECIDING, need=0),
            )
            yield Step("lead", f"p{process} has finished its take-over", led)

    def _to_touch(self, leader: Leader, memory: Memory) -> list[int]:
        named = (
            {uid for c in memory.commitments.values() for uid in c.uids()}
            if "C-touch-on-takeover" in self.on
            else set()
        )
        seen = {p.uid: p for p in leader.view if p is not None}
        if "C-touch-all-named" not in self.on:
            named = {uid for uid in named if uid in seen}
        if not memory.bound_before or "H-touch-until-first-bind" not in self.on:
            lost_now = not memory.bound_before and (
                "H-touch-until-first-bind" in self.on or memory.leader == leader.base + 1
            )
            for uid, pod in seen.items():
                rule = "H-touch-all-unbound" if pod.node == UNBOUND else "H-touch-bound-too"
                if lost_now and rule in self.on:
                    named.add(uid)
        return sorted(named)

    def _touch(self, world: World, process: int, uid: int, touch: Request) -> Iterator[Step]:
        name = uid % self.names
        pod = world.pods[name]
        called = pod_name(uid, self.names)
        yield Step(
            "touch",
            f"p{process} touches {called}: fence {touch.token}",
            write_pod(world, name, pod._replace(fence=touch.token)),
        )
        guarded = "C-fence-monotone" in self.on
        spent = world.budget.spend("slow_touch")
        if spent:
            slow = send(world._replace(budget=spent), touch._replace(guarded=guarded))
            yield Step("slow", f"p{process} sends a touch of {called} that lingers (fence {touch.token})", slow)

    def _presume(self, world: World, process: int, leader: Leader) -> Iterator[Step]:
        """After an unknown result: nothing but reading LEDGER; without the rule, act as if it had been appended."""
        if "A-read-after-unknown" not in self.on and leader.waiting and leader.waiting.kind == BIND:
            sequence = leader.base + leader.applied + 1
            yield from self._execute(
                world, process, leader, Commitment(sequence, BIND, leader.waiting.gang, leader.waiting.slots)
            )

    def _append(
        self, world: World, process: int, leader: Leader, kind: str, entry: Entry, *, fair: bool
    ) -> Iterator[Step]:
        what = {"bind": "bind", "undo": "undo", "plan": "plan", "withdraw": "withdraw"}.get(kind)
        spent = world.budget if fair or not what else world.budget.spend(what)
        if spent is None:
            return
        world = world._replace(budget=spent)
        if entry.kind == CLOSE:
            world = world._replace(broken=world.broken or self._closed_wrongly(world, leader, entry))
        expected = leader.applied if "A-expected-sequence-of-view" in self.on else len(world.ledger)
        sequence = leader.base + len(world.ledger) + 1
        if leader.incarnation != world.incarnation:
            return  # refused; reading tells it why
        if expected == len(world.ledger):
            after = leader._replace(applied=expected + 1 if leader.applied == expected else leader.applied)
            label = f"p{process} appends {self._entry(entry)} (sequence {sequence})"
            yield Step(kind, label, _with(append(world, entry), process, after))
        spent = None if fair else world.budget.spend("slow_append")
        if spent:
            request = Request("append", process, leader.epoch, expected=expected, base=leader.base, entry=entry)
            if "A-one-append-in-flight" in self.on:
                after = leader._replace(waiting=entry)
                slow = _with(send(world._replace(budget=spent), request), process, after)
                yield Step("slow", f"p{process} sends an append that lingers: {self._entry(entry)}", slow)
            else:
                request = request._replace(expected=expected + 1)
                slow = send(world._replace(budget=spent), request)
                yield Step("slow", f"p{process} pipelines behind an append that is lost: {self._entry(entry)}", slow)

    def _closed_wrongly(self, world: World, leader: Leader, entry: Entry) -> str:
        commitment = fold(world.ledger, world.base).commitments.get(entry.refers)
        if commitment is None or commitment.undoing or commitment.kind != BIND:
            return ""
        for slot in commitment.slots:
            pod = leader.view[slot.name]
            if pod is None or pod.uid != slot.uid or pod.node != slot.node or leader.nodes[slot.node] == Room.VANISHED:
                return f"entry {entry.refers} closes although STATE does not show {chr(97 + slot.name)} bound to a live n{slot.node}"
        return ""

    # ---- deciding ------------------------------------------------------------------------------------------------

    def _decisions(self, world: World, leader: Leader, memory: Memory, *, fair: bool) -> Iterator[tuple[str, Entry]]:
        for commitment in memory.commitments.values():
            yield from self._closing(leader, memory, commitment)
            if commitment.kind == BIND and not commitment.undoing:
                yield from self._naming(leader, memory, commitment)
                if not fair or self._hopeless(leader, commitment):
                    slots = tuple(s for s in commitment.slots if s.uid != UNNAMED)
                    yield (
                        "undo",
                        Entry(UNDOING, leader.epoch, commitment.gang, slots, commitment.sequence, leader.fresh),
                    )
        for number, gang in enumerate(self.gangs):
            current = memory.of(number)
            if current is not None and ("A-one-open-entry" in self.on or current.undoing):
                continue
            if leader.fresh < memory.placed.get(number, (0, ()))[0] and "B-freshness-hold" in self.on:
                continue
            yield from self._placing(leader, memory, number, gang)

    def _hopeless(self, leader: Leader, commitment: Commitment) -> bool:
        """A member's pod is gone, replaced or refused, or its node has vanished: the entry cannot complete."""
        for slot in commitment.slots:
            if leader.nodes[slot.node] == Room.VANISHED:
                return True
            pod = leader.view[slot.name]
            if slot.uid == UNNAMED:
                continue
            if pod is None or pod.uid != slot.uid or pod.phase != Phase.ALIVE or pod.node not in {UNBOUND, slot.node}:
                return True
        return False

    def _closing(self, leader: Leader, memory: Memory, commitment: Commitment) -> Iterator[tuple[str, Entry]]:
        if commitment.undoing:
            done = all(
                self._released(leader, memory, s.uid, commitment.undoing) for s in commitment.slots if s.uid != UNNAMED
            )
        elif "B-close-only-on-state" not in self.on:
            done = all(slot.uid in leader.acked for slot in commitment.slots)
        else:
            done = all(self._bound(leader, slot) for slot in commitment.slots)
        if done and commitment.kind in {BIND, UNDOING}:
            yield "close", Entry(CLOSE, leader.epoch, refers=commitment.sequence, fresh=leader.fresh)

    def _bound(self, leader: Leader, slot: Slot) -> bool:
        pod = leader.view[slot.name]
        alive = leader.nodes[slot.node] != Room.VANISHED or "F-vanished-node" not in self.on
        return pod is not None and pod.uid == slot.uid and pod.node == slot.node and pod.phase == Phase.ALIVE and alive

    def _released(self, leader: Leader, memory: Memory, uid: int, fence: int) -> bool:
        """STATE shows the uid unbound with the fence, terminal, or gone (at a freshness at which it had existed)."""
        pod = leader.view[uid % self.names]
        if pod is None or pod.uid != uid:
            return leader.fresh >= memory.named_at[uid] or "D-gone-is-fresh" not in self.on
        if pod.phase == Phase.TERMINAL:
            return True
        if pod.phase == Phase.TERMINATING and "D-terminating-holds" not in self.on:
            return True
        fenced = pod.fence >= fence or not {"D-undo-touch", "D-close-on-fence"} <= self.on
        return pod.node == UNBOUND and fenced

    def _naming(self, leader: Leader, memory: Memory, commitment: Commitment) -> Iterator[tuple[str, Entry]]:
        if "F-uid-named" not in self.on:
            return
        found = [(slot, leader.view[slot.name]) for slot in commitment.slots if slot.uid == UNNAMED]
        slots = tuple(
            Slot(slot.name, pod.uid, slot.node)
            for slot, pod in found
            if pod and pod.phase == Phase.ALIVE and pod.node == UNBOUND
        )
        if slots:
            yield "name", Entry(NAME, leader.epoch, commitment.gang, slots, commitment.sequence, leader.fresh)

    def _placing(self, leader: Leader, memory: Memory, number: int, gang: Gang) -> Iterator[tuple[str, Entry]]:
        pods = [leader.view[name] for name in gang.members]
        alive = [p for p in pods if p is not None and p.phase == Phase.ALIVE]
        bound = [p for p in pods if p is not None and p.node != UNBOUND and p.phase != Phase.TERMINAL]
        healthy = [p for p in bound if p.phase == Phase.ALIVE and leader.nodes[p.node] != Room.VANISHED]
        if "F-new-uid-no-slot" not in self.on and number in memory.placed:
            for slot in memory.placed[number][1]:
                pod = leader.view[slot.name]
                if pod and pod.uid != slot.uid and pod.node == UNBOUND and pod.phase == Phase.ALIVE:
                    again = (Slot(slot.name, pod.uid, slot.node),)
                    yield "name", Entry(NAME, leader.epoch, number, again, -1 - slot.uid, leader.fresh)
        if bound and len(healthy) < len(pods):
            slots = tuple(Slot(p.uid % self.names, p.uid, p.node) for p in pods if p is not None)
            if "D-release-new-undoing" in self.on:
                yield "undo", Entry(UNDOING, leader.epoch, number, slots, 0, leader.fresh)
        if bound or len(alive) != sum(p is not None for p in pods):
            return
        for nodes in gang.placements:
            if all(leader.nodes[node] == Room.OURS and not self._claims(leader, memory, node) for node in nodes):
                slots = tuple(
                    Slot(name, pod.uid if pod else UNNAMED, node)
                    for name, pod, node in zip(gang.members, pods, nodes, strict=True)
                )
                yield "bind", Entry(BIND, leader.epoch, number, slots, 0, leader.fresh)

    def _claims(self, leader: Leader, memory: Memory, node: int) -> set[int]:
        """Who holds room on the node: bound pods in the view, open entries, closed ones that the view has not reached."""
        claims = {p.uid for p in leader.view if p is not None and p.node == node and p.phase != Phase.TERMINAL}
        for commitment in memory.commitments.values():
            if not commitment.undoing or "D-room-held-until-close" in self.on:
                claims.update(s.uid if s.uid != UNNAMED else -1 - s.name for s in commitment.slots if s.node == node)
        if "B-freshness-hold" in self.on:
            for fresh, slots in memory.placed.values():
                if leader.fresh < fresh:
                    claims.update(s.uid for s in slots if s.node == node)
        return claims

    # ---- executing -----------------------------------------------------------------------------------------------

    def _execute(self, world: World, process: int, leader: Leader, commitment: Commitment) -> Iterator[Step]:
        """Read a member, then send what the entry asks for if its fence allows."""
        asked = commitment.undoing or commitment.sequence
        token = max(asked, leader.entry) if "C-token-of-both" in self.on else asked
        for slot in commitment.slots:
            pod = world.pods[slot.name]
            if pod is None or (pod.uid != slot.uid and (slot.uid != UNNAMED or "F-uid-named" in self.on)):
                continue
            if commitment.undoing:
                yield from self._release(world, process, leader, pod, token)
            elif pod.node == UNBOUND and pod.phase == Phase.ALIVE:
                first = pod.uid not in leader.sent and "C-first-attempt-fenced" not in self.on
                if pod.fence <= token or first:
                    guarded = "C-rv-precondition" in self.on and not first
                    sent = leader.sent if "C-first-attempt-fenced" in self.on else leader.sent | {pod.uid}
                    request = Request("bind", process, leader.epoch, pod.uid, slot.node, token, guarded)
                    yield from self._send(
                        _with(world, process, leader._replace(sent=sent)), request, sent != leader.sent
                    )

    def _release(self, world: World, process: int, leader: Leader, pod: Pod, token: int) -> Iterator[Step]:
        if pod.fence < token and "D-undo-touch" in self.on:
            yield from self._touch(world, process, pod.uid, Request("touch", process, leader.epoch, pod.uid, -1, token))
        elif pod.fence <= token and pod.node != UNBOUND and pod.phase == Phase.ALIVE:
            request = Request("evict", process, leader.epoch, pod.uid, -1, token, "C-rv-precondition" in self.on)
            yield from self._send(world, request, False)

    def _evict_unasked(self, world: World, process: int, leader: Leader, memory: Memory) -> Iterator[Step]:
        """Without rule D-release-new-undoing: evict what is left of a broken gang whose entry was closed."""
        for number, gang in enumerate(self.gangs):
            left = [p for p in (leader.view[name] for name in gang.members) if p is not None and p.node != UNBOUND]
            if memory.of(number) is None and 0 < len(left) < len(gang.members):
                for pod in left:
                    yield from self._send(
                        world, Request("evict", process, leader.epoch, pod.uid, -1, leader.entry), False
                    )

    def _send(self, world: World, request: Request, changed: bool) -> Iterator[Step]:
        if request in world.net and not changed:
            return
        what = "Binding" if request.kind == "bind" else "eviction"
        target = f" to n{request.node}" if request.kind == "bind" else ""
        label = (
            f"p{request.process} sends a {what} of {pod_name(request.uid, self.names)}{target} (token {request.token})"
        )
        yield Step("execute", label, send(world, request))


def _with(world: World, process: int, leader: Leader) -> World:
    return world._replace(leaders=(*world.leaders[:process], leader, *world.leaders[process + 1 :]))


def _stopped(world: World, leader: Leader) -> Leader:
    """Deposed: it may come back as a new process, whose view is no older than what this one had read."""
    return (
        Leader(Role.STOPPED, leader.view, leader.nodes, leader.fresh)
        if world.budget.acquire
        else Leader(Role.STOPPED, (), ())
    )
