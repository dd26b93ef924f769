"""The validator's own count of what stands: by node, and by queue; plain Python, from the snapshot alone.

A recount may be kept from one decision to the next: what is the same object in the next snapshot is not counted again. Nothing
else is believed.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from muster.model.gangs import Gang, MemberState
from muster.model.nodes import Node
from muster.model.pods import CardUse, Request
from muster.model.snapshot import Occupant, Snapshot
from muster.model.units import NodeName, QueueName

Amount = int | Fraction

HOLDS = (MemberState.BOUND, MemberState.ASSUMED, MemberState.LEAVING)


class Stand(NamedTuple):
    """What one pod uses of a node."""

    request: Request
    cards: Sequence[CardUse]
    ports: Sequence[tuple[str, int, str]]


class _Counted(NamedTuple):
    """What was counted of one gang or occupant, and where."""

    of: Gang | Occupant
    nodes: frozenset[NodeName]
    queue: QueueName
    charged: dict[str, Amount]


class Recount:
    """What stands in a snapshot."""

    def __init__(self) -> None:
        self._nodes: dict[NodeName, Node] = {}
        self._of: tuple[Node, ...] = ()
        self._counted: dict[int, _Counted] = {}
        """By identity."""
        self._on: dict[NodeName, dict[int, list[Stand]]] = {}
        self._usage: dict[QueueName, dict[str, Amount]] = {}
        self._holds: Snapshot | None = None
        self._before: Snapshot | None = None
        """The snapshot whose gangs and occupants are what is counted; None before the first, and when a count was broken off."""

    def follow(self, snapshot: Snapshot) -> None:
        """Count what is not the same object as before."""
        before, self._before = self._before, None
        if not self._same_cards(snapshot.nodes) or before is None:
            self._counted, self._on, self._usage = {}, {}, {}
            before = None
        self._replace(before.gangs if before else (), snapshot.gangs)
        self._replace(before.occupants if before else (), snapshot.occupants)
        self._holds = self._before = snapshot

    def _replace(self, old: Sequence[Gang | Occupant], new: Sequence[Gang | Occupant]) -> None:
        if old is new:
            return
        # What was counted is kept alive by the snapshot before, so that no other object can have its identity.
        gone, present = set(map(id, old)), dict(zip(map(id, new), new, strict=True))
        for number in gone - present.keys():
            self._forget(number)
        for number in present.keys() - gone:
            self._count(number, present[number])

    def node_of(self, snapshot: Snapshot) -> dict[NodeName, Node]:
        """The nodes of the snapshot that is followed, by name."""
        if snapshot.nodes is not self._of:
            raise ValueError("the recount follows another snapshot: follow this one first")
        return self._nodes

    def on(self, node: NodeName) -> Iterable[Stand]:
        """Everything that stands on a node, and what is held there."""
        for stands in self._on.get(node, {}).values():
            yield from stands
        for hold in self._holds.holds if self._holds is not None else ():
            if hold.node == node:
                yield Stand(hold.request, hold.cards, ())

    def usage(self, queues: set[QueueName]) -> dict[QueueName, dict[str, Amount]]:
        """What these queues use themselves, without those below them."""
        usage = {name: dict(self._usage.get(name, {})) for name in queues}
        holds = self._holds.holds if self._holds is not None and queues else ()
        owner = {gang.key: gang.queue for gang in self._holds.gangs} if self._holds is not None and holds else {}
        for hold in holds:
            queue = owner.get(hold.gang)
            if queue in usage:
                charge(usage[queue], hold.request, hold.cards, self._nodes.get(hold.node))
        return usage

    def _same_cards(self, nodes: tuple[Node, ...]) -> bool:
        """Follow the nodes; False when shares, which are charged by the memory of cards, may be another amount now."""
        if nodes is self._of:
            return True
        before, self._of = self._nodes, nodes
        self._nodes = {node.name: node for node in nodes}
        changed = (node for node in nodes if before.get(node.name) is not node)
        return len(before) == len(nodes) and not any(
            node.name not in before or _cards_differ(before[node.name], node) for node in changed
        )

    def _count(self, number: int, one: Gang | Occupant) -> None:
        charged: dict[str, Amount] = {}
        where: set[NodeName] = set()
        if isinstance(one, Occupant):
            self._stand(number, one.node, Stand(one.request, one.cards, one.host_ports))
            self._counted[number] = _Counted(one, frozenset((one.node,)), QueueName(""), charged)
            return
        shapes = {role.name: role.shape for role in one.roles}
        for member in one.members:
            if member.node is None or member.state not in HOLDS or member.role not in shapes:
                continue
            shape = shapes[member.role]
            self._stand(number, member.node, Stand(shape.request, member.cards, shape.host_ports))
            where.add(member.node)
            charge(charged, shape.request, member.cards, self._nodes.get(member.node))
        _add(self._usage.setdefault(one.queue, {}), charged, 1)
        self._counted[number] = _Counted(one, frozenset(where), one.queue, charged)

    def _stand(self, number: int, node: NodeName, stand: Stand) -> None:
        self._on.setdefault(node, {}).setdefault(number, []).append(stand)

    def _forget(self, number: int) -> None:
        known = self._counted.pop(number)
        for node in known.nodes:
            self._on[node].pop(number, None)
        if known.charged:
            _add(self._usage[known.queue], known.charged, -1)


def _cards_differ(before: Node, after: Node) -> bool:
    return before.cards != after.cards


def _add(amounts: dict[str, Amount], more: dict[str, Amount], times: int) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + times * amount


def charge(usage: dict[str, Amount], request: Request, cards: Sequence[CardUse], node: Node | None) -> None:
    """Count what a pod is charged on a node, exactly."""
    more: dict[str, Amount] = {"cpu": request.cpu, "memory": request.memory}
    for name, amount in request.extended:
        more[name] = more.get(name, 0) + amount
    if request.cards:
        more["gpu"] = request.cards * 1_000_000
        more[request.card_resource] = request.cards * 1_000_000
    elif request.share is not None:
        sizes = {card.index: card.memory_mib for card in node.cards} if node is not None else {}
        size = next((sizes[use.index] for use in cards if use.index in sizes), min(sizes.values(), default=0))
        memory = Fraction(request.share.memory_mib * 1_000_000, size) if size else Fraction(0)
        more["gpu"] = request.share.count * max(memory, Fraction(request.share.core_percent * 10_000))
    _add(usage, more, 1)
