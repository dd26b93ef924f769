"""What `muster get queues` answers: what each queue uses, may claim, has as its share and may never exceed, and who waits there."""

from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction

from muster.bus.queries import QueueRow
from muster.decide.held import HOLDING
from muster.decide.lifecycle.queues import ROOT
from muster.decide.shares import GPU, Tree
from muster.model.gangs import Gang
from muster.model.instructions import Pending
from muster.model.pods import CardUse, Request
from muster.model.snapshot import Snapshot
from muster.model.units import ONE_CARD, CardIndex, GangKey, NodeName, QueueName
from muster.model.workloads import Limits, Queue


def queue_rows(
    snapshot: Snapshot, pending: Mapping[GangKey, Pending], shares: Mapping[QueueName, Fraction]
) -> tuple[QueueRow, ...]:
    """All queues, parents first; ``shares``: of cards, in millionths, as they were decided on this snapshot."""
    cards: dict[NodeName, dict[CardIndex, int]] = {
        node.name: {card.index: card.memory_mib for card in node.cards} for node in snapshot.nodes
    }
    used: dict[str, int] = defaultdict(int)
    for gang in snapshot.gangs:
        for member in gang.members:
            if member.node is not None and member.state in HOLDING:
                used[gang.queue] += sum(_millionths(use, cards.get(member.node, {})) for use in member.cards)
    parents = {str(queue.name): _parent(queue) for queue in snapshot.queues}
    for name, amount in list(used.items()):
        above = parents.get(name)
        passed = {name}
        while above is not None and above not in passed:
            used[above] += amount
            passed.add(above)
            above = parents.get(above)
    tree = Tree(snapshot.queues)
    lends = any(queue.deserved or queue.guarantee for queue in snapshot.queues)
    waiting: dict[QueueName, list[Gang]] = defaultdict(list)
    for gang in snapshot.gangs:
        if gang.key in pending:
            waiting[gang.queue].append(gang)
    rows = []
    for queue in sorted(snapshot.queues, key=lambda queue: (queue.parent is not None, queue.name)):
        here = waiting[queue.name]
        reasons: dict[str, int] = defaultdict(int)
        for gang in here:
            reasons[pending[gang.key].code] += 1
        uses, claim = used[queue.name], tree.claim(queue.name, GPU)
        share = shares.get(queue.name, Fraction(0))
        may_lose = all(tree.queues[level].reclaimable for level in tree.path(queue.name))
        rows.append(
            QueueRow(
                name=queue.name,
                parent=queue.parent,
                state=queue.state.value,
                weight=queue.weight,
                priority=queue.priority,
                used=uses,
                guarantee=cards_named(queue.guarantee) or 0,
                deserved=cards_named(queue.deserved),
                share=float(share),
                capability=cards_named(queue.capability),
                borrowed=max(0, uses - claim) if lends and queue.name != ROOT else 0,
                reclaimable=max(0, uses - max(claim, int(share))) if lends and may_lose else 0,
                pending_gangs=len(here),
                pending=sum(_asked_by(gang) for gang in here),
                oldest_since=min((gang.submitted for gang in here), default=None),
                reasons=dict(reasons),
            )
        )
    return tuple(rows)


def cards_named(limits: Limits) -> int | None:
    """The tightest amount of cards that is named, under ``gpu`` or a card resource's own name; None when none is."""
    named = [amount for name, amount in limits.amounts.items() if name.lower() == "gpu" or name.endswith("/gpu")]
    return min(named, default=None)


def amount_asked(request: Request) -> int:
    """Cards that one pod asks, in millionths; a share by its part of the core."""
    if request.share is not None:
        return request.share.core_percent * ONE_CARD // 100
    return request.cards * ONE_CARD


def _asked_by(gang: Gang) -> int:
    shapes = {role.name: role.shape.request for role in gang.roles}
    return sum(amount_asked(shapes.get(member.role, Request())) for member in gang.members)


def _millionths(use: CardUse, memory_of: dict[CardIndex, int]) -> int:
    """What a use charges: the larger of its memory part and its core part."""
    if use.whole:
        return ONE_CARD
    memory = memory_of.get(use.index, 0)
    by_memory = -(-use.memory_mib * ONE_CARD // memory) if memory else 0
    return max(by_memory, use.core_percent * ONE_CARD // 100)


def _parent(queue: Queue) -> str | None:
    """A queue that names no parent stands below the root, as Volcano has it."""
    return queue.parent or (ROOT if queue.name != ROOT else None)
