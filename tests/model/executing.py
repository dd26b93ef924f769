"""What leaders and the preemptor send to the API server: the executing half of the rules.

The preemptor evicts the victims of the plans in the prefix that it has read; everything else is the leaders'. Each attempt reads the pod, checks its fence against the token, and puts one request in flight that rests on what was read.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.model.deciding import Gang
from tests.model.explore import Step
from tests.model.ledger import PLAN, UNBOUND, UNNAMED, Commitment, Memory
from tests.model.world import (
    PREEMPTOR,
    Leader,
    Phase,
    Pod,
    Request,
    World,
    pod_name,
    process_name,
    send,
    with_leader,
    write_pod,
)


@dataclass(frozen=True)
class Executor:
    """The requests of any leader under the rules that are `on`."""

    gangs: tuple[Gang, ...]
    on: frozenset[str]

    def execute(self, world: World, process: int, leader: Leader, commitment: Commitment) -> Iterator[Step]:
        """Every request that an open entry asks for now."""
        asked = commitment.undoing or commitment.sequence
        token = max(asked, leader.entry) if "C-token-of-both" in self.on else asked
        if commitment.kind == PLAN:
            for uid in commitment.victims if commitment.undoing and "E-withdraw-touch" in self.on else ():
                pod = world.pods[uid % len(world.pods)]
                if pod is not None and pod.uid == uid and pod.fence < token:
                    yield from self.touch(world, process, Request("touch", process, leader.epoch, uid, -1, token))
            return
        for slot in commitment.slots:
            pod = world.pods[slot.name]
            named = pod is not None and (pod.uid == slot.uid or (slot.uid == UNNAMED and "F-uid-named" not in self.on))
            if pod is None or not named:
                continue
            if not commitment.undoing:
                yield from self._bind(world, process, leader, (pod, slot.node), token)
            elif pod.fence < token and "D-undo-touch" in self.on:
                yield from self.touch(world, process, Request("touch", process, leader.epoch, pod.uid, -1, token))
            else:
                yield from self._evict(world, process, leader.epoch, pod, token)
                at_end = leader.applied == len(world.ledger) and leader.incarnation == world.incarnation
                if at_end or "C-forged-proven" not in self.on:
                    yield from self._evict_forged(world, process, leader.epoch, pod, token)

    def preempt(self, world: World, memory: Memory) -> Iterator[Step]:
        """Every request that the open plans ask of the preemptor, which has read up to `memory`: it warns by a touch, then evicts."""
        for plan in memory.commitments.values():
            if plan.kind != PLAN or plan.undoing:
                continue
            token = max(plan.sequence, memory.leader) if "C-token-of-both" in self.on else plan.sequence
            for uid in plan.victims:
                pod = world.pods[uid % len(world.pods)]
                if pod is None or pod.uid != uid:
                    continue
                if pod.fence < token:
                    warning = Request("touch", PREEMPTOR, memory.leader_epoch, uid, -1, token)
                    yield from self.touch(world, PREEMPTOR, warning)
                yield from self._evict(world, PREEMPTOR, memory.leader_epoch, pod, token)
                reader = world.preemptor
                at_end = reader.applied == len(world.ledger) and reader.incarnation == world.incarnation
                if at_end or "C-forged-proven" not in self.on:
                    yield from self._evict_forged(world, PREEMPTOR, memory.leader_epoch, pod, token)

    def touch(self, world: World, process: int, touch: Request) -> Iterator[Step]:
        """Raise the fence: read, patch, answer in one step; or a patch that lingers."""
        name = touch.uid % len(world.pods)
        pod = world.pods[name]
        called = pod_name(touch.uid, len(world.pods))
        raised = write_pod(world, name, pod._replace(fence=touch.token, forged=False))
        me = process_name(process)
        yield Step("touch", f"{me} touches {called}: fence {touch.token}", raised)
        spent = world.budget.spend("slow_touch")
        if spent:
            slow = send(world._replace(budget=spent), touch._replace(guarded="C-fence-monotone" in self.on))
            yield Step("slow", f"{me} sends a touch of {called} that lingers (fence {touch.token})", slow)

    def evict_unasked(self, world: World, process: int, leader: Leader, memory: Memory) -> Iterator[Step]:
        """Without rule D-release-new-undoing: evict what is left of a broken gang whose entry was closed."""
        for number, gang in enumerate(self.gangs):
            left = [p for p in (leader.view[name] for name in gang.members) if p is not None and p.node != UNBOUND]
            if memory.of(number) is None and 0 < len(left) < len(gang.members):
                for pod in left:
                    yield from self._send(world, Request("evict", process, leader.epoch, pod.uid, -1, leader.entry))

    def _bind(self, world: World, process: int, leader: Leader, slot: tuple[Pod, int], token: int) -> Iterator[Step]:
        pod, node = slot
        blind = "C-first-attempt-fenced" not in self.on and pod.uid not in leader.sent
        if pod.node != UNBOUND or pod.phase != Phase.ALIVE or (pod.fence > token and not blind):
            return
        guarded = "C-rv-precondition" in self.on and not blind
        if blind:
            world = with_leader(world, process, leader._replace(sent=leader.sent | {pod.uid}))
        yield from self._send(world, Request("bind", process, leader.epoch, pod.uid, node, token, guarded))

    def _evict(self, world: World, process: int, epoch: int, pod: Pod, token: int) -> Iterator[Step]:
        if pod.fence <= token and pod.node != UNBOUND and pod.phase == Phase.ALIVE:
            guarded = "C-rv-precondition" in self.on
            yield from self._send(world, Request("evict", process, epoch, pod.uid, -1, token, guarded))

    def _evict_forged(self, world: World, process: int, epoch: int, pod: Pod, token: int) -> Iterator[Step]:
        """LEDGER was read to its end after the pod, its entry is open and no newer leader stands: nobody gave this fence."""
        if "C-forged-is-evicted" in self.on and pod.fence > token and pod.node != UNBOUND and pod.phase == Phase.ALIVE:
            yield from self._send(world, Request("evict", process, epoch, pod.uid, -1, token))

    def _send(self, world: World, request: Request) -> Iterator[Step]:
        if request in world.net:
            return
        what = "a Binding" if request.kind == "bind" else "an eviction"
        target = f" to n{request.node}" if request.kind == "bind" else ""
        called = pod_name(request.uid, len(world.pods))
        label = f"{process_name(request.process)} sends {what} of {called}{target} (token {request.token})"
        yield Step("execute", label, send(world, request))
