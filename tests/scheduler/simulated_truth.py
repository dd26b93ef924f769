"""The truth of a simulation: the API server's pods and nodes, the LEDGER as stored, and what may never happen to them.

Every write that takes effect passes through here, so every promise is checked at the moment it would be broken. The LEDGER
is folded here a second time, by a few lines that share nothing with the code under test.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from muster.bus.errors import LedgerMovedError, NoStreamError, StreamConflictError
from muster.decide.assignment import cards_from_annotations
from muster.kube.errors import Conflict, NotFound
from muster.model.instructions import Slot
from muster.model.ledger import Bind, Close, Commit, Leader, Nominated, Plan, Undoing, Withdrawing
from muster.model.nodes import Card, CardMode, Node
from muster.model.pods import Owner, Phase, Pod, Request, Shape
from muster.model.units import CardCount, CardIndex, GangKey, MiB, NodeName, PodUid, RoleName, Sequence

NAMESPACE = "ns"
OTHER = NodeName("other")
"""A node without cards, to which only people bind."""


class Violation(AssertionError):  # noqa: N818  (what is looked for)
    """A promise was broken."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One object is now so; None: it is gone."""

    version: int
    kind: str
    key: str
    object: Pod | Node | None


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """An open entry; of a plan, `slots` is empty."""

    sequence: int
    undoing: bool = False
    slots: tuple[Slot, ...] = ()
    plan: int = 0
    """Sequence of the plan, also while it is withdrawn; 0: it is none."""
    victims: frozenset[PodUid] = frozenset()
    nominated: tuple[Nominated, ...] = ()

    @property
    def withdrawing(self) -> bool:
        """A plan that is taken back."""
        return bool(self.plan) and self.sequence != self.plan


class Truth:
    """See the module."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note
        self.version = 100
        self.events: list[Event] = []
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[NodeName, Node] = {}
        self.ever_bound: set[tuple[PodUid, NodeName]] = set()
        self.bound_version: dict[PodUid, int] = {}
        self.born: Counter[str] = Counter()
        self.ledger: list[tuple[Sequence, Commit]] = []
        self.exists = False
        self.incarnation = 0
        self.last = 0
        self.leader = 0
        self.open: dict[GangKey, Opened] = {}
        self.lost: set[tuple[PodUid, NodeName]] = set()
        """What entries of lost LEDGERs asked for: it may be under way until the next take-over is finished."""
        self.lost_undoing: set[PodUid] = set()
        self.taken_over = 0
        """The newest leader entry whose take-over is finished."""
        self.written: Counter[str] = Counter()

    # --- objects -----------------------------------------------------------------------------------------------------

    def _event(self, kind: str, key: str, obj: Pod | Node | None) -> None:
        self.events.append(Event(version=self.version, kind=kind, key=key, object=obj))

    def write_pod(self, pod: Pod) -> Pod:
        """Store a pod with a new version."""
        self.version += 1
        stored = msgspec.structs.replace(pod, resource_version=str(self.version))
        self.pods[stored.name] = stored
        self._event("pod", stored.key, stored)
        return stored

    def remove_pod(self, name: str) -> None:
        """The pod is gone."""
        self.version += 1
        pod = self.pods.pop(name)
        self._event("pod", pod.key, None)

    def create_pod(self, name: str, gang: str) -> None:
        """A pod of the name, with a uid that no other ever had."""
        self.born[name] += 1
        self.write_pod(
            Pod(
                namespace=NAMESPACE,
                name=name,
                uid=PodUid(f"{name}.{self.born[name]}"),
                scheduler_name="muster",
                gang=GangKey(f"{NAMESPACE}/{gang}"),
                role=RoleName("w"),
                shape=Shape(request=Request(cards=CardCount(1))),
                owner=Owner(api_version="v1", kind="Job", name=gang, uid=gang),
            )
        )

    def delete_pod(self, name: str) -> None:
        """As the API server does: an unbound pod goes at once, a bound one when its kubelet is done."""
        pod = self.pods[name]
        if pod.node is None or pod.finished:
            self.remove_pod(name)
        elif not pod.terminating:
            self.write_pod(msgspec.structs.replace(pod, terminating=True))

    def create_node(self, name: NodeName, *, cards: int, mode: CardMode = CardMode.STOCK) -> None:
        """A node, with a uid that no other ever had."""
        self.version += 1
        self.born[name] += 1
        node = Node(
            name=name,
            uid=f"{name}.{self.born[name]}",
            resource_version=str(self.version),
            cards=tuple(Card(index=CardIndex(index), memory_mib=MiB(1000)) for index in range(cards)),
            allocatable_cards=cards,
            card_mode=mode,
        )
        self.nodes[name] = node
        self._event("node", name, node)

    def remove_node(self, name: NodeName) -> None:
        """The node vanishes; its pods stay for a while."""
        self.version += 1
        del self.nodes[name]
        self._event("node", name, None)

    # --- fenced writes -----------------------------------------------------------------------------------------------

    def _current(self, name: str, uid: PodUid, version: str) -> Pod:
        pod = self.pods.get(name)
        if pod is None:
            raise NotFound(name)
        if pod.uid != uid or pod.resource_version != version:
            raise Conflict(f"{name}: precondition", precondition=True)
        return pod

    def patch_fence(self, name: str, uid: PodUid, version: str, fence: int) -> Pod:
        """The patch of a touch."""
        pod = self._current(name, uid, version)
        if fence <= pod.fence:
            raise Violation(f"the fence of {uid} goes from {pod.fence} down to {fence}")
        self.note(f"fence {uid} := {fence}")
        return self.write_pod(msgspec.structs.replace(pod, fence=fence))

    def bind(
        self, name: str, uid: PodUid, version: str, *, node: NodeName, annotations: Mapping[str, str], epoch: int
    ) -> None:
        """A Binding arrives."""
        pod = self._current(name, uid, version)
        if pod.node is not None:
            raise Conflict(f"already assigned to {pod.node}", assigned_node=pod.node)
        self.note(f"BIND {uid} to {node} (epoch {epoch})")
        self.written["bind"] += 1
        if not self._asked_for(pod, node):
            raise Violation(f"a Binding of {uid} to {node} that no open entry asks for: {self._newest_naming(uid)}")
        self._by_the_leader(f"a Binding of {uid}", epoch)
        cards = cards_from_annotations(annotations)
        for other in self.pods.values():
            if other.node == node and other.holds_room and {c.index for c in other.cards} & {c.index for c in cards}:
                raise Violation(f"a card given twice: {uid} and {other.uid} on {node}")
        if (there := self.nodes.get(node)) is not None and there.card_mode is CardMode.VOLCANO:
            allocating = [o.uid for o in self.pods.values() if o.node == node and self.is_allocating(o)]
            if allocating:
                raise Violation(f"{uid} is bound to {node} while {allocating} are being allocated there")
        merged = {**pod.annotations, **annotations}
        bound = self.write_pod(msgspec.structs.replace(pod, node=node, cards=cards, annotations=merged))
        self._remember_bound(bound)

    def _asked_for(self, pod: Pod, node: NodeName) -> bool:
        """By an open entry, by one that is being undone but has not touched the pod yet, or by one that was lost."""
        asked = self._newest_naming(pod.uid)
        if asked is None:
            return (pod.uid, node) in self.lost and self._is_lost()
        if asked.undoing and pod.fence >= asked.sequence:
            return False
        return any(slot.uid == pod.uid and slot.node == node for slot in asked.slots)

    def _is_lost(self) -> bool:
        """No leader has taken over since the LEDGER was lost."""
        return not self.exists or self.taken_over < (self.incarnation << 40)

    def bind_by_hand(self, name: str) -> None:
        """Somebody else binds a pod of ours."""
        self._remember_bound(self.write_pod(msgspec.structs.replace(self.pods[name], node=OTHER)))

    def _remember_bound(self, pod: Pod) -> None:
        assert pod.node is not None
        self.ever_bound.add((pod.uid, pod.node))
        self.bound_version[pod.uid] = int(pod.resource_version)

    @staticmethod
    def is_allocating(pod: Pod) -> bool:
        """Between its Binding and its allocation."""
        return (
            bool(pod.cards)
            and pod.phase is Phase.PENDING
            and not pod.terminating
            and pod.annotations.get("volcano.sh/gpu-assigned") != "true"
        )

    def evict(self, name: str, uid: PodUid, version: str, epoch: int) -> None:
        """An Eviction arrives."""
        self._current(name, uid, version)
        self.note(f"EVICT {uid} (epoch {epoch})")
        self.written["evict"] += 1
        lost = uid in self.lost_undoing and self._is_lost()
        if not self._eviction_asked_for(self.pods[name]) and not lost:
            raise Violation(f"an eviction of {uid} without an open undoing or plan: {self._newest_naming(uid)}")
        self._by_the_leader(f"an eviction of {uid}", epoch)
        self.delete_pod(name)

    def _eviction_asked_for(self, pod: Pod) -> bool:
        """By an undoing, by a plan, or by one that is withdrawn but has not touched the pod yet."""
        asked = self._newest_naming(pod.uid)
        planned = [entry for entry in self.open.values() if pod.uid in entry.victims]
        return (asked is not None and asked.undoing) or any(
            not entry.withdrawing or pod.fence < entry.sequence for entry in planned
        )

    def _newest_naming(self, uid: PodUid) -> Opened | None:
        naming = [entry for entry in self.open.values() if any(slot.uid == uid for slot in entry.slots)]
        return max(naming, key=lambda entry: entry.sequence, default=None)

    def _by_the_leader(self, what: str, epoch: int) -> None:
        if epoch < self.taken_over:
            raise Violation(f"{what} by leader {epoch} after leader {self.taken_over} finished its take-over")

    # --- LEDGER ------------------------------------------------------------------------------------------------------

    def make_ledger(self, incarnation: int) -> None:
        """Create the stream."""
        if not self.exists:
            self.exists, self.incarnation = True, incarnation
            self.last = (incarnation << 40) - 1
            self.note(f"LEDGER made, incarnation {incarnation}")

    def lose_ledger(self) -> None:
        """The stream is deleted."""
        self.exists = False
        self.lost |= {(slot.uid, slot.node) for entry in self.open.values() for slot in entry.slots}
        self.lost_undoing |= {s.uid for entry in self.open.values() if entry.undoing for s in entry.slots}
        self.lost_undoing |= {uid for entry in self.open.values() for uid in entry.victims}
        self.ledger.clear()
        self.open.clear()
        self.leader = 0
        self.note("LEDGER LOST")

    def last_sequence(self) -> Sequence:
        """As the server tells it."""
        if not self.exists:
            raise StreamConflictError("there is no stream LEDGER")
        return Sequence(self.last)

    def append(self, commit: Commit, expected: int) -> Sequence:
        """An append arrives."""
        if not self.exists:
            raise NoStreamError("no stream")
        if expected != self.last:
            raise LedgerMovedError(f"expected {expected}, is at {self.last}")
        # Chunks of a large commit come before its record.
        self.last += 2 if len(commit.entries) > 2 else 1
        sequence = Sequence(self.last)
        self.ledger.append((sequence, commit))
        short = sequence & 0xFFFF
        for entry in commit.entries:
            self._check(sequence, commit, entry)
        self.note(f"LEDGER {short} by {commit.identity}: {', '.join(_words(entry) for entry in commit.entries)}")
        return sequence

    def _check(self, sequence: int, commit: Commit, entry: object) -> None:
        if isinstance(entry, Leader):
            self.leader = sequence
            return
        if commit.epoch != self.leader:
            raise Violation(f"an entry of leader {commit.epoch} after the leader entry {self.leader}: {entry}")
        match entry:
            case Bind():
                self._check_bind(entry)
                self.written["consumed"] += entry.gang in self.open
                self.open[entry.gang] = Opened(sequence=sequence, undoing=False, slots=entry.slots)
                self._forget_nominations(entry.gang)
            case Plan():
                self._check_plan(entry)
                self.written["plan"] += 1
                victims = frozenset(victim.uid for victim in entry.victims)
                self.open[entry.gang] = Opened(
                    sequence=sequence, plan=sequence, victims=victims, nominated=entry.nominated
                )
            case Withdrawing():
                plan = self.open.get(entry.gang)
                if plan is None or not plan.plan or plan.sequence != entry.plan:
                    raise Violation(f"a withdrawing of what is not open: {entry}")
                self.written["withdrawn"] += 1
                self.open[entry.gang] = msgspec.structs.replace(plan, sequence=sequence)
            case Undoing():
                replaced = self.open.get(entry.gang)
                if replaced is not None and (replaced.undoing or replaced.plan):
                    raise Violation(f"an undoing of what is no bind: {entry}")
                for slot in entry.slots:
                    if any(slot.uid in other.victims for other in self.open.values()):
                        raise Violation(f"{slot.uid} is released while a plan evicts it")
                for slot in replaced.slots if replaced is not None else ():
                    kept = all(slot.uid != one.uid for one in entry.slots)
                    if kept and self._unbound(slot.uid):
                        raise Violation(f"{slot.uid} is left out of an undoing although it is not bound")
                self.open[entry.gang] = Opened(sequence=sequence, undoing=True, slots=entry.slots)
            case Close():
                self._check_close(entry)
                del self.open[entry.gang]

    def _check_bind(self, entry: Bind) -> None:
        plan = self.open.get(entry.gang)
        if plan is not None and (not plan.plan or plan.withdrawing):
            raise Violation(f"{entry.gang} has two open entries")
        if plan is not None and (left := [uid for uid in sorted(plan.victims) if self._stands(uid)]):
            raise Violation(f"{entry.gang} consumes its plan although {left} stand")
        for slot in entry.slots:
            cards = {card.index for card in slot.cards}
            if any(slot.uid in other.victims for other in self.open.values()):
                raise Violation(f"{slot.uid} is bound although a plan evicts it")
            self._check_nominated(entry.gang, slot)
            for gang, other in self.open.items():
                for one in other.slots:
                    if (pod := self._pod(one.uid)) is None or pod.finished:
                        continue  # what has ended uses nothing any more, and no view shows an end that was not
                    if one.node == slot.node and cards & {card.index for card in one.cards}:
                        raise Violation(f"room promised twice: {slot.uid} and {one.uid} of {gang} on {slot.node}")
            for pod in self.pods.values():
                same = pod.node == slot.node and pod.holds_room
                if same and pod.uid != slot.uid and cards & {card.index for card in pod.cards}:
                    raise Violation(f"room promised to {slot.uid} on {slot.node} is {pod.uid}'s")

    def _check_nominated(self, gang: GangKey, slot: Slot) -> None:
        """No other gang's nominated room is given away."""
        cards = {card.index for card in slot.cards}
        for other in self.open.values():
            for one in other.nominated if not other.withdrawing else ():
                for held in one.slots if one.gang != gang else ():
                    if held.node == slot.node and cards & {card.index for card in held.cards}:
                        raise Violation(f"room of {slot.uid} on {slot.node} is nominated to {one.gang}")

    def _check_plan(self, entry: Plan) -> None:
        if entry.gang in self.open:
            raise Violation(f"{entry.gang} has two open entries")
        victims = {victim.uid for victim in entry.victims}
        for victim in entry.victims:
            if any(victim.uid in other.victims for other in self.open.values()):
                raise Violation(f"{victim.uid} is a victim of two plans")
            if any(victim.uid == slot.uid for other in self.open.values() for slot in other.slots):
                raise Violation(f"{victim.uid} is a victim and named by another entry")
            if (victim.uid, victim.node) not in self.ever_bound:
                raise Violation(f"{victim.uid} is to leave {victim.node}, where it never was")
        for one in entry.nominated:
            for slot in one.slots:
                self._check_nominated(one.gang, slot)
                cards = {card.index for card in slot.cards}
                for pod in self.pods.values():
                    same = pod.node == slot.node and pod.holds_room and pod.uid not in victims
                    if same and cards & {card.index for card in pod.cards}:
                        raise Violation(f"room nominated to {one.gang} on {slot.node} is {pod.uid}'s")

    def _forget_nominations(self, gang: GangKey) -> None:
        """What other plans nominate for a gang that is bound now."""
        for key, other in self.open.items():
            if key != gang:
                left = tuple(one for one in other.nominated if one.gang != gang)
                self.open[key] = msgspec.structs.replace(other, nominated=left)

    def _stands(self, uid: PodUid) -> bool:
        pod = self._pod(uid)
        return pod is not None and not pod.finished

    def _check_close(self, entry: Close) -> None:
        closed = self.open.get(entry.gang)
        if closed is None or closed.sequence != entry.entry:
            raise Violation(f"a close of what is not open: {entry}")
        if closed.plan and (entry.outcome != "withdrawn" or not closed.withdrawing):
            raise Violation(f"a close of a plan that is not withdrawn: {entry}")
        for uid in sorted(closed.victims):
            if self._stands(uid) and self._pod(uid).fence < closed.sequence:
                raise Violation(f"{entry.gang} closes as withdrawn although {uid} is not touched")
        for slot in closed.slots:
            if entry.outcome == "bound":
                if not any(uid == slot.uid for uid, _ in self.ever_bound):
                    raise Violation(f"{entry.gang} closes as bound although {slot.uid} is not")
                if int(entry.freshness) < self.bound_version[slot.uid]:
                    raise Violation(f"{entry.gang} closes at {entry.freshness}, before {slot.uid} was bound")
            elif (pod := self._pod(slot.uid)) is not None and pod.node == slot.node and pod.holds_room:
                raise Violation(f"{entry.gang} closes as undone although {slot.uid} stands on {slot.node}")
            elif pod is not None and pod.node is None and pod.fence < closed.sequence:
                raise Violation(f"{entry.gang} closes as undone although {slot.uid} has only the fence {pod.fence}")

    def _pod(self, uid: PodUid) -> Pod | None:
        return next((pod for pod in self.pods.values() if pod.uid == uid), None)

    def _unbound(self, uid: PodUid) -> bool:
        pod = self._pod(uid)
        return pod is not None and pod.node is None


def _words(entry: object) -> str:
    match entry:
        case Leader():
            return f"leader {entry.identity}"
        case Bind():
            return f"bind {', '.join(f'{slot.uid}>{slot.node}' for slot in entry.slots)}"
        case Undoing():
            return f"undoing {', '.join(slot.uid for slot in entry.slots)} ({entry.reason})"
        case Plan():
            places = "; ".join(
                f"{one.gang} {', '.join(f'{slot.uid}>{slot.node}' for slot in one.slots)}" for one in entry.nominated
            )
            return f"plan {places} evicting {', '.join(victim.uid for victim in entry.victims)}"
        case Withdrawing():
            return f"withdrawing {entry.gang} ({entry.reason})"
        case Close():
            return f"close {entry.gang} {entry.outcome} at {entry.freshness}"
    return type(entry).__name__.lower()
