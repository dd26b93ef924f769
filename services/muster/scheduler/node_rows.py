"""What `muster get nodes` answers: every node with what each of its cards carries, and the largest free blocks."""

from collections import defaultdict
from collections.abc import Iterable

from muster.bus.queries import CardCell, FreeBlock, NodeRow, NodesReply, NodesRequest
from muster.decide.held import HOLDING
from muster.model.gangs import MemberState
from muster.model.nodes import Node
from muster.model.pods import CardUse, Request
from muster.model.snapshot import Snapshot
from muster.model.topology import value_at
from muster.model.units import ONE_CARD, NodeName


def nodes_reply(snapshot: Snapshot, request: NodesRequest, *, at: float) -> NodesReply:
    """All nodes, or those of one domain or name. ``at``: Unix seconds."""
    used: dict[NodeName, list[tuple[str, Request, tuple[CardUse, ...], bool]]] = defaultdict(list)
    for gang in snapshot.gangs:
        shapes = {role.name: role.shape.request for role in gang.roles}
        for member in gang.members:
            if member.node is not None and member.state in HOLDING:
                promised = member.state is MemberState.ASSUMED
                used[member.node].append((gang.key, shapes.get(member.role, Request()), member.cards, promised))
    for occupant in snapshot.occupants:
        used[occupant.node].append((occupant.key, occupant.request, occupant.cards, occupant.promised))
    for hold in snapshot.holds:
        used[hold.node].append((hold.gang, hold.request, hold.cards, True))
    rows = [
        _node_row(node, used.get(node.name, []), snapshot.topology_levels)
        for node in sorted(snapshot.nodes, key=lambda node: node.name)
    ]
    if request.domain:
        rows = [row for row in rows if request.domain in row.domains.values() or row.name == request.domain]
    cells = [cell for row in rows for cell in row.cards]
    return NodesReply(
        at=at,
        nodes=tuple(rows),
        total_cards=len(cells) * ONE_CARD,
        used_cards=sum(_used(cell) for cell in cells if not cell.held),
        held_cards=sum(_used(cell) for cell in cells if cell.held),
        free_cards=sum(row.free_cards for row in rows),
        largest_free=tuple(_largest_blocks(rows, snapshot.topology_levels)),
    )


def _used(cell: CardCell) -> int:
    if cell.whole:
        return ONE_CARD
    by_memory = -(-cell.used_memory_mib * ONE_CARD // cell.memory_mib) if cell.memory_mib else 0
    return min(ONE_CARD, max(by_memory, cell.used_core_percent * ONE_CARD // 100))


def _node_row(
    node: Node, users: list[tuple[str, Request, tuple[CardUse, ...], bool]], levels: tuple[str, ...]
) -> NodeRow:
    cells = []
    for card in node.cards:
        uses = [(who, use, promised) for who, _, cards, promised in users for use in cards if use.index == card.index]
        cells.append(
            CardCell(
                index=card.index,
                memory_mib=card.memory_mib,
                used_memory_mib=sum(card.memory_mib if use.whole else use.memory_mib for _, use, _ in uses),
                used_core_percent=sum(100 if use.whole else use.core_percent for _, use, _ in uses),
                whole=any(use.whole for _, use, _ in uses),
                healthy=card.healthy,
                held=bool(uses) and all(promised for _, _, promised in uses),
                gangs=tuple(sorted({who for who, _, _ in uses})),
            )
        )
    return NodeRow(
        name=node.name,
        ready=node.ready,
        cordoned=node.unschedulable,
        card_mode=node.card_mode.value if node.card_mode is not None else "",
        gpu_model=node.gpu_model,
        domains={level: value for level in levels if (value := value_at(node.labels, level)) is not None},
        cards=tuple(cells),
        free_cards=sum(ONE_CARD - _used(cell) for cell in cells if cell.healthy),
        cpu=node.cpu,
        used_cpu=sum(request.cpu for _, request, _, _ in users),
        memory=node.memory,
        used_memory=sum(request.memory for _, request, _, _ in users),
        pods=len(users),
        idle_since=node.cordoned.since if node.cordoned is not None else None,
        removable=node.removable,
        returning=bool(node.withheld) and not node.unschedulable,
    )


def _largest_blocks(rows: Iterable[NodeRow], levels: tuple[str, ...]) -> Iterable[FreeBlock]:
    untouched = {row.name: sum(cell.healthy and not cell.gangs for cell in row.cards) for row in rows}
    for level in levels:
        blocks: dict[str, int] = defaultdict(int)
        for row in rows:
            if level in row.domains and row.ready and not row.cordoned:
                blocks[row.domains[level]] += untouched[row.name]
        if blocks:
            domain = max(sorted(blocks), key=blocks.__getitem__)
            yield FreeBlock(level=level, domain=domain, cards=blocks[domain])
    if untouched:
        name = max(sorted(untouched), key=untouched.__getitem__)
        yield FreeBlock(level="node", domain=name, cards=untouched[name])
