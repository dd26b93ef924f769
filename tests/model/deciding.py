"""What a leader may append, from its view of STATE and the LEDGER prefix it applied: the deciding half of the rules.

bind     room by view and LEDGER, for members that exist or are declared; the one that consumes a plan, whose victims are
         gone, may count the plan's own room as free
name     the uid of a declared member's pod that has appeared
undo     an open bind that shall not complete; or, for a broken gang whose entry was closed, a new release
plan     room that victims still use; withdraw ends it
close    by what the view shows
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.model.ledger import (
    BIND,
    CLOSE,
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
)
from tests.model.world import Leader, Phase, Pod, Room

Decision = tuple[str, Entry]


@dataclass(frozen=True)
class Gang:
    """A gang: its members' pod names, the placements it may be given, and the gangs that a plan for it may evict."""

    members: tuple[int, ...]
    placements: tuple[tuple[int, ...], ...]
    victims: tuple[int, ...] = ()


@dataclass(frozen=True)
class Decider:
    """The decisions of any leader under the rules that are `on`."""

    gangs: tuple[Gang, ...]
    on: frozenset[str]

    def decisions(self, leader: Leader, memory: Memory, *, fair: bool) -> Iterator[Decision]:
        """Every entry that the leader may append now; `fair`: it undoes only what cannot complete."""
        for commitment in memory.commitments.values():
            if self._may_close(leader, memory, commitment):
                yield "close", Entry(CLOSE, leader.epoch, refers=commitment.sequence, fresh=leader.fresh)
            if commitment.undoing:
                continue
            if commitment.kind == PLAN:
                yield from self._consume(leader, memory, commitment)
            else:
                yield from self._name(leader, commitment)
            if not fair or self._hopeless(leader, commitment):
                yield self._end(leader, commitment)
        for number, gang in enumerate(self.gangs):
            current = memory.of(number)
            if current is not None and (current.undoing or self._excludes(current)):
                continue
            if leader.fresh < memory.placed.get(number, (0, ()))[0] and "B-freshness-hold" in self.on:
                continue
            yield from self._place(leader, memory, number, gang)

    def _excludes(self, current: Commitment) -> bool:
        return ("E-bind-consumes" if current.kind == PLAN else "A-one-open-entry") in self.on

    def _end(self, leader: Leader, commitment: Commitment) -> Decision:
        slots = tuple(slot for slot in commitment.slots if slot.uid != UNNAMED)
        kind, verb = (WITHDRAWING, "withdraw") if commitment.kind == PLAN else (UNDOING, "undo")
        return verb, Entry(kind, leader.epoch, commitment.gang, slots, commitment.sequence, leader.fresh)

    def _hopeless(self, leader: Leader, commitment: Commitment) -> bool:
        """A member's pod is gone, replaced or refused, or its node is not ours any more: the entry cannot complete."""
        for slot in commitment.slots:
            if leader.nodes[slot.node] == Room.VANISHED:
                return True
            pod = leader.view[slot.name]
            if commitment.kind == PLAN:
                if leader.nodes[slot.node] != Room.OURS:
                    return True
            elif (
                (pod is not None and pod.forged and pod.fence > max(commitment.sequence, leader.entry))
                or (slot.uid != UNNAMED and (pod is None or pod.uid != slot.uid or pod.phase != Phase.ALIVE))
                or (slot.uid != UNNAMED and pod is not None and pod.node not in {UNBOUND, slot.node})
            ):
                return True
        return False

    # ---- closing -------------------------------------------------------------------------------------------------

    def _may_close(self, leader: Leader, memory: Memory, commitment: Commitment) -> bool:
        fence = commitment.undoing
        if commitment.kind == PLAN:
            return bool(fence) and all(self._withdrawn(leader, memory, uid, fence) for uid in commitment.victims)
        if fence:
            uids = [slot.uid for slot in commitment.slots if slot.uid != UNNAMED]
            return all(self._released(leader, memory, uid, fence) for uid in uids)
        if "B-close-only-on-state" not in self.on:
            return all(slot.uid in leader.acked for slot in commitment.slots)
        return all(self._bound(leader, slot) for slot in commitment.slots)

    def _bound(self, leader: Leader, slot: Slot) -> bool:
        pod = leader.view[slot.name]
        there = leader.nodes[slot.node] != Room.VANISHED or "F-vanished-node" not in self.on
        return pod is not None and pod[:2] == slot[1:] and pod.phase == Phase.ALIVE and there

    def _gone(self, leader: Leader, memory: Memory, uid: int) -> bool:
        """Terminal, or absent from a view that has reached the freshness at which the uid was named."""
        pod = leader.view[uid % len(leader.view)]
        if pod is not None and pod.uid == uid:
            return pod.phase == Phase.TERMINAL
        return leader.fresh >= memory.named_at[uid] or "D-gone-is-fresh" not in self.on

    def _released(self, leader: Leader, memory: Memory, uid: int, fence: int) -> bool:
        pod = leader.view[uid % len(leader.view)]
        if pod is None or pod.uid != uid or pod.phase == Phase.TERMINAL:
            return self._gone(leader, memory, uid)
        if pod.phase == Phase.TERMINATING and "D-terminating-holds" not in self.on:
            return True
        return pod.node == UNBOUND and (pod.fence >= fence or not {"D-undo-touch", "D-close-on-fence"} <= self.on)

    def _withdrawn(self, leader: Leader, memory: Memory, uid: int, fence: int) -> bool:
        pod = leader.view[uid % len(leader.view)]
        fenced = pod is not None and pod.uid == uid and pod.fence >= fence
        return fenced or self._gone(leader, memory, uid) or "E-withdraw-touch" not in self.on

    # ---- opening -------------------------------------------------------------------------------------------------

    def _name(self, leader: Leader, commitment: Commitment) -> Iterator[Decision]:
        found = [(slot, leader.view[slot.name]) for slot in commitment.slots if slot.uid == UNNAMED]
        slots = tuple(Slot(slot.name, pod.uid, slot.node) for slot, pod in found if pod is not None and _free(pod))
        if slots and "F-uid-named" in self.on:
            yield "name", Entry(NAME, leader.epoch, commitment.gang, slots, commitment.sequence, leader.fresh)

    def _place(self, leader: Leader, memory: Memory, number: int, gang: Gang) -> Iterator[Decision]:
        pods = [leader.view[name] for name in gang.members]
        existing = [pod for pod in pods if pod is not None]
        bound = [pod for pod in existing if pod.node != UNBOUND and pod.phase != Phase.TERMINAL]
        well = [pod for pod in bound if pod.phase == Phase.ALIVE and leader.nodes[pod.node] != Room.VANISHED]
        if "F-new-uid-no-slot" not in self.on:
            yield from self._inherit(leader, memory, number)
        planned = {pod.uid for pod in existing} & memory.victims() and "E-victim-one-entry" in self.on
        if bound and len(well) < len(pods) and "D-release-new-undoing" in self.on and not planned:
            slots = tuple(Slot(pod.uid % len(leader.view), pod.uid, pod.node) for pod in existing)
            yield "undo", Entry(UNDOING, leader.epoch, number, slots, 0, leader.fresh)
        if not all(_free(pod) for pod in existing) or any(self._beyond(leader, pod) for pod in existing):
            return
        for nodes in gang.placements:
            members = zip(gang.members, pods, nodes, strict=True)
            slots = tuple(Slot(name, pod.uid if pod is not None else UNNAMED, node) for name, pod, node in members)
            if all(leader.nodes[n] == Room.OURS and not self._claims(leader, memory, n) for n in nodes):
                yield "bind", Entry(BIND, leader.epoch, number, slots, 0, leader.fresh)
            else:
                yield from self._plan(leader, memory, number, slots)

    def _beyond(self, leader: Leader, pod: Pod) -> bool:
        """It carries a fence that the LEDGER has not reached."""
        return "C-forged-waits" in self.on and pod.fence > leader.base + leader.applied

    def _inherit(self, leader: Leader, memory: Memory, number: int) -> Iterator[Decision]:
        """Without rule F-new-uid-no-slot: a new uid takes up the slot that its name had in a closed entry."""
        for slot in memory.placed.get(number, (0, ()))[1]:
            pod = leader.view[slot.name]
            if pod is not None and pod.uid != slot.uid and _free(pod):
                again = (Slot(slot.name, pod.uid, slot.node),)
                yield "name", Entry(NAME, leader.epoch, number, again, -1 - slot.uid, leader.fresh)

    def _plan(self, leader: Leader, memory: Memory, number: int, slots: tuple[Slot, ...]) -> Iterator[Decision]:
        for victim in self.gangs[number].victims:
            pods = [leader.view[name] for name in self.gangs[victim].members]
            uids = {pod.uid for pod in pods if pod is not None and pod.node != UNBOUND and pod.phase == Phase.ALIVE}
            if len(uids) < len(pods) or ("E-victim-one-plan" in self.on and uids & memory.victims()):
                continue
            if "E-victim-one-entry" in self.on and any(
                uids.intersection(c.uids()) for c in memory.commitments.values() if c.kind != PLAN
            ):
                continue
            if all(leader.nodes[s.node] == Room.OURS and self._claims(leader, memory, s.node) <= uids for s in slots):
                victims = tuple(sorted(uids))
                yield "plan", Entry(PLAN, leader.epoch, number, slots, 0, leader.fresh, victims)

    def _consume(self, leader: Leader, memory: Memory, plan: Commitment) -> Iterator[Decision]:
        if "E-victims-gone-first" in self.on and not all(self._gone(leader, memory, uid) for uid in plan.victims):
            return
        pods = [leader.view[slot.name] for slot in plan.slots]
        if not all(pod is None or _free(pod) for pod in pods):
            return
        nominated = tuple(slot.node for slot in plan.slots)
        for nodes in dict.fromkeys((nominated, *self.gangs[plan.gang].placements)):
            unchecked = nodes == nominated or "E-consume-free-room" not in self.on
            if all(
                leader.nodes[n] == Room.OURS and (unchecked or not self._claims(leader, memory, n, but=plan.sequence))
                for n in nodes
            ):
                slots = tuple(
                    Slot(slot.name, pod.uid if pod is not None else UNNAMED, node)
                    for slot, pod, node in zip(plan.slots, pods, nodes, strict=True)
                )
                yield "bind", Entry(BIND, leader.epoch, plan.gang, slots, plan.sequence, leader.fresh)

    def _claims(self, leader: Leader, memory: Memory, node: int, *, but: int = 0) -> set[int]:
        """Who holds room on the node: bound pods in the view, open entries `but` one, closed ones that the view has not reached."""
        claims = {p.uid for p in leader.view if p is not None and p.node == node and p.phase != Phase.TERMINAL}
        for commitment in memory.commitments.values():
            if commitment.sequence == but:
                continue
            rule = "E-plan-holds-room" if commitment.kind == PLAN else "D-room-held-until-close"
            if rule in self.on or (commitment.kind != PLAN and not commitment.undoing):
                claims.update(s.uid if s.uid != UNNAMED else -1 - s.name for s in commitment.slots if s.node == node)
        if "B-freshness-hold" in self.on:
            for fresh, slots in memory.placed.values():
                if leader.fresh < fresh:
                    claims.update(slot.uid for slot in slots if slot.node == node)
        return claims


def _free(pod: Pod) -> bool:
    return pod.node == UNBOUND and pod.phase == Phase.ALIVE
