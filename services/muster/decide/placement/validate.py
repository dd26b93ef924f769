"""The validator: separate code that trusts nothing.

It recounts everything from the snapshot in plain Python (no array, no helper of the placement code) and returns what a plan
breaks: unknown or doubly placed pods, predicates, amounts, cards, minimums, required domains, capabilities. An empty list
means that the plan may leave the core.
"""

from collections import defaultdict
from collections.abc import Sequence

from muster.decide.placement.recount import Amount, Recount, charge
from muster.decide.placement.validate_neighbours import wrong_neighbours
from muster.decide.placement.validate_topology import Domains, wrong_domains
from muster.model.gangs import Gang, MemberState
from muster.model.instructions import Place, Slot
from muster.model.nodes import CardMode, Node, Taint
from muster.model.pods import CardUse, NodeTerm, Request, Requirement, Shape, Toleration
from muster.model.snapshot import Snapshot
from muster.model.units import CardIndex, NodeName, PodUid, QueueName
from muster.model.workloads import Queue

VGPU_RESOURCE = "volcano.sh/vgpu-number"


class _Use:
    """What is used of one node, recounted."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.amounts: dict[str, int] = defaultdict(int)
        self.memory: dict[CardIndex, int] = defaultdict(int)
        self.core: dict[CardIndex, int] = defaultdict(int)
        self.whole: dict[CardIndex, int] = defaultdict(int)
        self.users: dict[CardIndex, int] = defaultdict(int)
        self.nameless = 0
        self.ports: list[tuple[str, int, str]] = []
        self.offers = {"cpu": node.cpu, "memory": node.memory, "pods": node.max_pods, **dict(node.extended)}
        self.cards = {card.index: card for card in node.cards}

    def add(self, request: Request, cards: Sequence[CardUse], ports: Sequence[tuple[str, int, str]] = ()) -> None:
        self.amounts["cpu"] += request.cpu
        self.amounts["memory"] += request.memory
        self.amounts["pods"] += 1
        for name, amount in request.extended:
            self.amounts[name] += amount
        for use in cards:
            self.users[use.index] += 1
            self.memory[use.index] += use.memory_mib
            self.core[use.index] += use.core_percent
            self.whole[use.index] += use.whole
        if not cards:
            self.nameless += request.cards or (request.share.count if request.share else 0)
        self.ports += ports


def validate(
    snapshot: Snapshot,
    places: Sequence[Place],
    *,
    levels: Sequence[str],
    recount: Recount | None = None,
    domains: Domains | None = None,
) -> list[str]:
    """Everything that is wrong with these placements, taken together; nothing for a sound plan.

    ``recount`` and ``domains`` may be kept by the caller: the one follows every snapshot, the other is of nodes of the same
    names and labels, levels and HyperNodes.
    """
    problems: list[str] = []
    if not places:
        return problems
    standing = recount or Recount()
    standing.follow(snapshot)
    nodes = standing.node_of(snapshot)
    asked = {place.gang for place in places}
    gangs = {gang.key: gang for gang in snapshot.gangs if gang.key in asked}
    named = {slot.node for place in places for slot in place.slots}
    used = {name: _Use(nodes[name]) for name in named if name in nodes}
    domains = domains or Domains(nodes, levels, snapshot.hypernodes)
    for use in used.values():
        for stand in standing.on(use.node.name):
            use.add(*stand)
    limited = _limited(snapshot, {gangs[p.gang].queue for p in places if p.gang in gangs})
    queue_use: dict[QueueName, dict[str, Amount]] = defaultdict(dict, standing.usage(limited))
    added: dict[QueueName, dict[str, Amount]] = defaultdict(dict)
    seen: set[PodUid] = set()
    touched: set[tuple[NodeName, CardIndex]] = set()
    for place in places:
        gang = gangs.get(place.gang)
        if gang is None:
            problems.append(f"{place.gang} is not in the snapshot")
            continue
        members = {member.uid: member for member in gang.members}
        shapes = {role.name: role.shape for role in gang.roles}
        for slot in place.slots:
            member, node = members.get(slot.uid), nodes.get(slot.node)
            if member is None or member.state is not MemberState.WAITING or slot.uid in seen:
                problems.append(f"{place.gang}/{slot.pod} does not wait to be placed")
                continue
            if node is None:
                problems.append(f"{slot.pod}: node {slot.node} does not exist")
                continue
            seen.add(slot.uid)
            shape = shapes[member.role]
            use = used[node.name]
            wrong = [
                *_refuses(node, shape),
                *_cards_wrong(use, shape.request, slot.cards),
                *_too_much(use, shape, slot),
            ]
            problems += [f"{slot.pod} on {node.name}: {text}" for text in wrong]
            use.add(shape.request, slot.cards, shape.host_ports)
            touched.update((node.name, one.index) for one in slot.cards)
            charge(queue_use[gang.queue], shape.request, slot.cards, node)
            charge(added[gang.queue], shape.request, slot.cards, node)
        problems += _minimums(gang, place)
        problems += wrong_domains(gang, place, domains)
    problems += wrong_neighbours(snapshot, places, nodes)
    problems += [text for name, index in sorted(touched) for text in _card_over(used[name], index)]
    problems += _capabilities(snapshot, queue_use, added)
    return problems


def _limited(snapshot: Snapshot, changed: set[QueueName]) -> set[QueueName]:
    """Every queue whose usage counts toward a capability that the plan could break; empty when none has one."""
    queues = {queue.name: queue for queue in snapshot.queues}
    limits = {name for queue in changed for name in _lineage(queue, queues) if queues[name].capability}
    return {name for name in queues if limits & set(_lineage(name, queues))} if limits else set()


def _refuses(node: Node, shape: Shape) -> list[str]:
    problems = []
    if not node.ready or node.terminating:
        problems.append("the node is not ready")
    if node.withheld:
        problems.append(f"the node {node.withheld}")
    if shape.node_selector and any(node.labels.get(key) != value for key, value in shape.node_selector):
        problems.append("nodeSelector does not match")
    if shape.required_nodes and not _one_holds(node, shape.required_nodes):
        problems.append("required node affinity does not match")
    if not all(_one_holds(node, terms) for terms in shape.volume_nodes):
        problems.append("a volume of it cannot be reached from here")
    if not node.taints and not node.unschedulable:
        return problems
    taints = list(node.taints)
    if node.unschedulable:
        taints.append(Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"))
    problems += [
        f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated"
        for taint in taints
        if taint.effect in {"NoSchedule", "NoExecute"} and not any(_tolerates(one, taint) for one in shape.tolerations)
    ]
    return problems


def _one_holds(node: Node, terms: Sequence[NodeTerm]) -> bool:
    return any(
        (term.labels or term.fields)
        and all(_matches(one, node.labels.get(one.key)) for one in term.labels)
        and all(_matches(one, node.name) for one in term.fields)
        for term in terms
    )


def _matches(requirement: Requirement, value: str | None) -> bool:
    operator, values = requirement.operator, requirement.values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator == "In":
        return value in values if value is not None else False
    if operator == "NotIn":
        return value not in values if value is not None else True
    if operator in {"Gt", "Lt"} and value is not None:
        try:
            difference = int(value) - int(values[0])
        except ValueError:
            return False
        return difference > 0 if operator == "Gt" else difference < 0
    return False


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in {"", taint.effect}:
        return False
    if toleration.operator == "Exists":
        return toleration.key in {"", taint.key}
    return toleration.key == taint.key and toleration.value == taint.value


def _cards_wrong(on: _Use, request: Request, cards: Sequence[CardUse]) -> list[str]:
    node, known = on.node, on.cards
    if request.share is not None:
        if node.card_mode not in {CardMode.VOLCANO, CardMode.RESERVED}:
            return ["a share on a node that gives out whole cards only"]
        if (request.card_resource == VGPU_RESOURCE) != (node.card_resource == VGPU_RESOURCE):
            return [f"a share in words that the node's plugin does not know ({node.card_resource})"]
        share = request.share
        if len({use.index for use in cards}) != share.count or len(cards) != share.count:
            return [f"asks shares of {share.count} cards, the plan gives {len(cards)}"]
        if any(
            (use.memory_mib, use.core_percent, use.whole) != (share.memory_mib, share.core_percent, False)
            for use in cards
        ):
            return ["the share given is not the share asked for"]
        lost = [use.index for use in cards if use.index not in known or not known[use.index].healthy]
        return [f"card {index} cannot be used" for index in lost]
    if request.cards and node.card_mode is CardMode.RESERVED:
        return ["whole cards on a node whose cards are given out in shares only"]
    problems = []
    if len(cards) != request.cards or len({use.index for use in cards}) != len(cards):
        problems.append(f"asks {request.cards} cards, the plan gives {len(cards)}")
    if request.cards and node.card_resource != request.card_resource:
        problems.append(f"asks {request.card_resource}, the node has {node.card_resource}")
    problems += [f"card {use.index} is not given whole" for use in cards if not use.whole]
    problems += [
        f"card {use.index} is not healthy" for use in cards if use.index in known and not known[use.index].healthy
    ]
    return problems


def _too_much(use: _Use, shape: Shape, slot: Slot) -> list[str]:
    request, offers = shape.request, use.offers
    asked = {"cpu": request.cpu, "memory": request.memory, "pods": 1, **dict(request.extended)}
    problems = [
        f"{name}: {amount} asked, {offers.get(name, 0) - use.amounts[name]} free"
        for name, amount in asked.items()
        if amount > 0 and use.amounts[name] + amount > offers.get(name, 0)
    ]
    touched = use.users.keys() | {one.index for one in slot.cards}
    if slot.cards and len(touched) + use.nameless > use.node.allocatable_cards:
        problems.append(f"{len(touched) + use.nameless} cards in use, {use.node.allocatable_cards} offered")
    if not shape.host_ports:
        return problems
    anywhere = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    problems += [
        f"host port {port[1]} is taken"
        for port in shape.host_ports
        for other in use.ports
        if port[:2] == other[:2] and (port[2] == other[2] or port[2] in anywhere or other[2] in anywhere)
    ]
    return problems


def _card_over(use: _Use, index: CardIndex) -> list[str]:
    """What is wrong with a card that the plan uses; a card it leaves alone is not the plan's doing."""
    problems = []
    name = use.node.name
    size = use.cards[index].memory_mib if index in use.cards else None
    if use.whole[index] and use.users[index] > 1:
        problems.append(f"{name}: card {index} is held whole and shared")
    if use.core[index] > 100:
        problems.append(f"{name}: card {index} at {use.core[index]} percent of its core")
    if size is not None and use.memory[index] > size:
        problems.append(f"{name}: card {index} at {use.memory[index]} of {size} MiB")
    return problems


def _minimums(gang: Gang, place: Place) -> list[str]:
    placed: dict[str, int] = defaultdict(int)
    for slot in place.slots:
        placed[slot.role] += 1
    counted: dict[str, int] = defaultdict(int)
    for member in gang.members:
        counted[member.role] += member.counts
    problems = []
    if sum(placed.values()) + sum(counted.values()) < gang.minimum:
        problems.append(f"{gang.key}: {sum(placed.values()) + sum(counted.values())} pods of minimum {gang.minimum}")
    problems += [
        f"{gang.key}: role {role.name} has {placed[role.name] + counted[role.name]} pods of minimum {role.minimum}"
        for role in gang.roles
        if placed[role.name] + counted[role.name] < role.minimum
    ]
    return problems


def _capabilities(
    snapshot: Snapshot,
    queue_use: dict[QueueName, dict[str, Amount]],
    added: dict[QueueName, dict[str, Amount]],
) -> list[str]:
    """Limits that the plan's own additions break; what was above a limit before is not the plan's doing."""
    queues = {queue.name: queue for queue in snapshot.queues}
    total = _summed(queue_use, queues)
    more = _summed(added, queues)
    problems = [f"queue {name} does not exist" for name in sorted(added) if name not in queues]
    for name in sorted(more):
        problems += [
            f"queue {name}: {float(total[name][resource]):g} of {resource} used, capability {limit}"
            for resource, limit in queues[name].capability.amounts.items()
            if more[name][resource] > 0 and total[name][resource] > limit
        ]
    return problems


def _summed(
    usage: dict[QueueName, dict[str, Amount]], queues: dict[QueueName, Queue]
) -> dict[QueueName, dict[str, Amount]]:
    total: dict[QueueName, dict[str, Amount]] = defaultdict(lambda: defaultdict(int))
    for name, amounts in usage.items():
        for queue in _lineage(name, queues):
            for resource, amount in amounts.items():
                total[queue][resource] += amount
    return total


def _lineage(name: QueueName, queues: dict[QueueName, Queue]) -> list[QueueName]:
    """The queue and its parents."""
    path: list[QueueName] = []
    current: QueueName | None = name
    while current is not None and current in queues and current not in path:
        path.append(current)
        current = queues[current].parent
    return path
