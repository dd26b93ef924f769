"""Shares: what queues use, are entitled to and may never exceed.

    usage(queue)    bound + assumed + leaving + held, summed up the parents; cards in millionths, so 0.2 of a card is exact
    entitled        deserved (at least guarantee) …
    share           … plus what is left of the cluster, by weight, among siblings that still ask (exact fractions)
    capability      a limit on every level: `gpu` of cards of any kind and of shares of them, the name of a kind (`nvidia.com/gpu`)
                    of whole cards asked by that name; the tighter wins

If a queue names any deserved, an unnamed `gpu` is 0 and unnamed cpu and memory are not governed; if it names none, it is
entitled to nothing. Shares order queues; they never stop a placement, capability does.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction

from muster.decide.fleet import Fleet
from muster.decide.held import HOLDING
from muster.decide.room import Room
from muster.model.gangs import Gang
from muster.model.pods import CardUse, Request
from muster.model.snapshot import Snapshot
from muster.model.units import ONE_CARD, NodeName, QueueName, RoleName
from muster.model.workloads import Queue, QueueState

Amounts = dict[str, int]
GPU = "gpu"


def add(amounts: Amounts, more: Mapping[str, int], times: int = 1) -> None:
    """Add in place."""
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + times * amount


def share_part(request: Request, card_memory_mib: int) -> int:
    """The millionths of a card that a share (or several) is charged: the larger of its memory and core part, rounded up."""
    share = request.share
    if share is None:
        return 0
    memory = -(-share.memory_mib * ONE_CARD // card_memory_mib) if card_memory_mib else 0
    return share.count * max(memory, share.core_percent * ONE_CARD // 100)


def base_charge(request: Request) -> Amounts:
    """What a pod is charged apart from a share of a card."""
    charge: Amounts = {}
    if request.cpu:
        charge["cpu"] = request.cpu
    if request.memory:
        charge["memory"] = request.memory
    if request.cards:
        charge[GPU] = request.cards * ONE_CARD
        charge[request.card_resource] = request.cards * ONE_CARD
    for name, amount in request.extended:
        if amount:
            charge[name] = charge.get(name, 0) + amount
    return charge


def charge_on(request: Request, card_memory_mib: int) -> Amounts:
    """What a pod is charged when its share lies on a card of this memory."""
    charge = base_charge(request)
    part = share_part(request, card_memory_mib)
    if part:
        charge[GPU] = charge.get(GPU, 0) + part
    return charge


def card_memory(fleet: Fleet, row: int, cards: Iterable[CardUse]) -> int:
    """Memory of the card that a share is on; the node's smallest when nobody told which."""
    for use in cards:
        position = fleet.position_of[row].get(use.index)
        if position is not None:
            return int(fleet.card_memory[row, position])
    sizes = fleet.card_memory[row][fleet.card_usable[row]]
    return int(sizes.min()) if sizes.size else 0


def charge_at(fleet: Fleet, request: Request, node: NodeName, cards: Iterable[CardUse]) -> Amounts:
    """What a pod is charged on the node where it stands."""
    if request.share is None:
        return base_charge(request)
    row = fleet.row_of.get(node)
    return charge_on(request, 0 if row is None else card_memory(fleet, row, cards))


def smallest_charge(fleet: Fleet, request: Request) -> Amounts:
    """What an unplaced pod will be charged at least: on the largest card, for a share."""
    if request.share is None:
        return base_charge(request)
    return charge_on(request, int(fleet.card_memory.max(initial=0)))


def demand_charge(fleet: Fleet, request: Request) -> Amounts:
    """What an unplaced pod is taken to ask: a share by the smallest card that could take it."""
    share = request.share
    if share is None:
        return base_charge(request)
    sizes = fleet.card_memory[fleet.card_usable & (fleet.card_memory >= max(share.memory_mib, 1))]
    return charge_on(request, int(sizes.min()) if sizes.size else 0)


class Tree:
    """The queues, their parents, and what each uses; a queue that names an unknown parent, or itself, stands at the top."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues: dict[QueueName, Queue] = {queue.name: queue for queue in sorted(queues, key=lambda q: q.name)}
        self.paths: dict[QueueName, tuple[QueueName, ...]] = {name: self._path(name) for name in self.queues}
        self.children: dict[QueueName | None, list[QueueName]] = defaultdict(list)
        for name, path in self.paths.items():
            self.children[path[1] if len(path) > 1 else None].append(name)
        self.usage: dict[QueueName, Amounts] = {name: {} for name in self.queues}
        self.shares: dict[QueueName, dict[str, Fraction]] = {}
        self.total: Amounts = {}
        self.guaranteed: dict[QueueName, dict[str, Fraction]] = {}
        """Guarantees that are kept free for their queues, scaled down together where they do not fit; see `reserve`."""

    def _path(self, name: QueueName) -> tuple[QueueName, ...]:
        path = [name]
        parent = self.queues[name].parent
        while parent is not None and parent in self.queues and parent not in path:
            path.append(parent)
            parent = self.queues[parent].parent
        return tuple(path)

    def path(self, name: QueueName) -> tuple[QueueName, ...]:
        """The queue and its parents, itself first; empty when it is unknown."""
        return self.paths.get(name, ())

    def charge(self, name: QueueName, amounts: Mapping[str, int], times: int = 1) -> None:
        """Count usage of a queue, on every level."""
        for queue in self.path(name):
            add(self.usage[queue], amounts, times)

    def open(self, name: QueueName) -> bool:
        """Whether the queue and all its parents take jobs."""
        return all(self.takes_jobs(queue) for queue in self.path(name))

    def takes_jobs(self, name: QueueName) -> bool:
        """Whether the queue itself is not closed or closing; a state that nobody wrote yet counts as open."""
        return self.queues[name].state in {QueueState.OPEN, QueueState.UNKNOWN}

    def over_capability(self, name: QueueName, amounts: Mapping[str, int]) -> tuple[QueueName, str, int, int] | None:
        """The first level whose capability these amounts would exceed: queue, resource, usage, capability."""
        for queue in self.path(name):
            limits = self.queues[queue].capability
            for resource, limit in limits.amounts.items():
                asked = amounts.get(resource, 0)
                used = self.usage[queue].get(resource, 0)
                if asked > 0 and used + asked > limit:
                    return queue, resource, used, limit
        return None

    def reserve(self, total: Mapping[str, int]) -> None:
        """Keep guarantees free out of this total: what children are guaranteed together never exceeds their parent's."""
        self.total = dict(total)
        if any(queue.guarantee for queue in self.queues.values()):
            self._reserve(None, {name: Fraction(amount) for name, amount in total.items()})

    def _reserve(self, parent: QueueName | None, limits: Mapping[str, Fraction]) -> None:
        children = self.children.get(parent, [])
        asked = {name: {r: Fraction(self._guarantee(name, r)) for r in limits} for name in children}
        for name in children:
            capability = self.queues[name].capability
            scaled = {}
            for resource, limit in limits.items():
                together = sum((asked[one][resource] for one in children), Fraction(0))
                part = asked[name][resource] * min(Fraction(1), limit / together) if together else Fraction(0)
                most = capability.get(resource)
                scaled[resource] = part if most is None else min(part, Fraction(most))
            self.guaranteed[name] = scaled
            self._reserve(name, scaled)

    def _guarantee(self, name: QueueName, resource: str) -> int:
        """Its own guarantee, at least what its children are guaranteed together."""
        below = sum(self._guarantee(child, resource) for child in self.children.get(name, []))
        return max(self.queues[name].guarantee.get(resource) or 0, below)

    def over_guarantees(self, name: QueueName, amounts: Mapping[str, int]) -> tuple[str, int, int] | None:
        """A resource whose free rest is guaranteed to other queues: resource, free, kept for others; None when all is well.

        A queue is never kept from its own guarantee.
        """
        if not self.guaranteed:
            return None
        path = self.path(name)
        for resource, asked in amounts.items():
            if asked <= 0 or resource not in self.total:
                continue
            if all(self.usage[level].get(resource, 0) + asked <= self.guaranteed[level][resource] for level in path):
                continue
            kept = Fraction(0)
            for number, level in enumerate(path):
                parent = path[number + 1] if number + 1 < len(path) else None
                for sibling in self.children[parent]:
                    if sibling != level:
                        used = self.usage[sibling].get(resource, 0)
                        kept += max(Fraction(0), self.guaranteed[sibling][resource] - used)
            free = self.total[resource] - sum(self.usage[top].get(resource, 0) for top in self.children[None])
            if kept and free - asked < kept:
                return resource, free, int(kept)
        return None

    def forbids(self, name: QueueName, amounts: Mapping[str, int]) -> bool:
        """Whether a capability, or what others are guaranteed, forbids the queue these amounts."""
        return self.over_capability(name, amounts) is not None or self.over_guarantees(name, amounts) is not None

    def room_below_capability(self, name: QueueName, amounts: Mapping[str, int]) -> int:
        """How many times these amounts still fit under every capability; a large number when nothing limits them."""
        times = 1 << 40
        for queue in self.path(name):
            for resource, limit in self.queues[queue].capability.amounts.items():
                asked = amounts.get(resource, 0)
                if asked > 0:
                    times = min(times, max(0, limit - self.usage[queue].get(resource, 0)) // asked)
        return times

    def governed(self, name: QueueName, resource: str) -> bool:
        """Whether a share of this resource is spoken of for this queue."""
        deserved = self.queues[name].deserved
        return not deserved or resource == GPU or deserved.get(resource) is not None

    def entitled(self, name: QueueName, resource: str) -> int:
        """Deserved, at least the guarantee; meaningful for governed resources."""
        queue = self.queues[name]
        return max(queue.deserved.get(resource) or 0, queue.guarantee.get(resource) or 0)

    def claim(self, name: QueueName, resource: str) -> int:
        """What the queue may reclaim up to: its entitlement; a parent that names nothing claims what its children do."""
        queue = self.queues[name]
        if queue.deserved or not self.children.get(name):
            return self.entitled(name, resource)
        return max(
            sum(self.claim(child, resource) for child in self.children[name]), queue.guarantee.get(resource) or 0
        )


def tree_of(snapshot: Snapshot, room: Room) -> Tree:
    """The queues with their usage: every member that holds room, and every hold of an open entry."""
    tree = Tree(snapshot.queues)
    for gang in snapshot.gangs:
        tree.charge(gang.queue, gang_charge(gang, room.fleet))
    charge_holds(tree, snapshot, room.fleet)
    if any(queue.guarantee for queue in snapshot.queues):
        total = total_of(room.fleet)
        for occupant in snapshot.occupants:
            add(total, charge_at(room.fleet, occupant.request, occupant.node, occupant.cards), -1)
        tree.reserve(total)
    return tree


def charge_holds(tree: Tree, snapshot: Snapshot, fleet: Fleet) -> None:
    """Charge what open entries hold apart from members; what is held for a gang that is gone is nobody's usage."""
    queue_of = {gang.key: gang.queue for gang in snapshot.gangs} if snapshot.holds else {}
    for hold in snapshot.holds:
        queue = queue_of.get(hold.gang)
        if queue is not None:
            tree.charge(queue, charge_at(fleet, hold.request, hold.node, hold.cards))


def gang_charge(gang: Gang, fleet: Fleet) -> Amounts:
    """What a gang is charged for all its members that hold room."""
    charge: Amounts = {}
    requests = {role.name: role.shape.request for role in gang.roles}
    plain: dict[RoleName, int] = defaultdict(int)
    for member in gang.members:
        if member.node is None or member.state not in HOLDING:
            continue
        request = requests.get(member.role)
        if request is None:
            continue
        if request.share is None:
            plain[member.role] += 1
        else:
            add(charge, charge_at(fleet, request, member.node, member.cards))
    for role, count in plain.items():
        add(charge, base_charge(requests[role]), count)
    return charge


def total_of(fleet: Fleet) -> Amounts:
    """What the whole cluster offers, by resource."""
    known = fleet.memo.get("total")
    if known is None:
        known = fleet.memo["total"] = _total_of(fleet)
    assert isinstance(known, dict)
    return dict(known)


def _total_of(fleet: Fleet) -> Amounts:
    ready = fleet.ready
    total: Amounts = {name: int(fleet.total[ready, column].sum()) for name, column in fleet.dimensions.items()}
    del total["pods"]
    total[GPU] = int(fleet.allocatable_cards[ready].sum()) * ONE_CARD
    for resource in card_kinds(fleet):
        total[resource] = int(fleet.allocatable_cards[ready & (fleet.card_resources == resource)].sum()) * ONE_CARD
    return total


def card_kinds(fleet: Fleet) -> tuple[str, ...]:
    """The resource names by which the cluster's whole cards are asked for."""
    return tuple(sorted({str(name) for name in fleet.card_resources.tolist() if name}))
