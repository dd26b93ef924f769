"""The validator's view of topology: domains and slices, recounted from labels and HyperNodes in plain Python."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from muster.model.gangs import Gang, Member, MemberState
from muster.model.instructions import Place
from muster.model.nodes import Node
from muster.model.pods import Requirement, TopologyWish
from muster.model.topology import DIMENSION_KEYS, LEVEL_KEYS, NODE_NAMES, HyperNode, level_keys
from muster.model.units import NodeName, PodUid

STAYS = (MemberState.BOUND, MemberState.ASSUMED)
NO_WISH = TopologyWish()


class Domains:
    """Where every node lies, by what a required wish asks for; each kind is counted once."""

    def __init__(self, nodes: Mapping[NodeName, Node], entries: Sequence[str], hypernodes: Sequence[HyperNode]) -> None:
        self.nodes = nodes
        self.entries = entries
        self.hypernodes = hypernodes
        self._known: dict[tuple[str, int], dict[NodeName, object] | None] = {}

    def of(self, wish: TopologyWish) -> dict[NodeName, object] | None:
        """The domain of each node that has one at the required level; None when nothing is required."""
        key = (wish.required_level, wish.required_tier)
        if key not in self._known:
            self._known[key] = self._find(wish)
        return self._known[key]

    def _find(self, wish: TopologyWish) -> dict[NodeName, object] | None:
        if wish.required_level:
            return self._by_name(wish.required_level)
        if wish.required_tier <= 0:
            return None
        if self._holding():
            return self._by_tier(wish.required_tier)
        above = [entry for entry in self._occurring() if not NODE_NAMES & {entry, entry.split("/")[-1]}]
        return self._by_label(above[-wish.required_tier]) if wish.required_tier <= len(above) else None

    def _by_name(self, name: str) -> dict[NodeName, object]:
        for hyper in sorted(self.hypernodes, key=lambda one: -one.tier):
            if name == self._tier_name(hyper.tier) or name == f"tier-{hyper.tier}":
                return self._by_tier(hyper.tier) or {}
        for entry in self._occurring():
            short = [one for one, keys in LEVEL_KEYS.items() if entry in keys]
            if name in {entry, entry.split("/")[-1], *level_keys(entry), *short}:
                return self._by_label(entry)
        if name in NODE_NAMES:
            return {node: node for node in self.nodes}
        for dimension, keys in DIMENSION_KEYS.items():
            if name in {dimension, *keys}:
                found = {
                    node.name: next((node.labels[k] for k in keys if k in node.labels), None) for node in self._all()
                }
                return {node: value for node, value in found.items() if value is not None}
        return {}

    def _tier_name(self, tier: int) -> str:
        named = [one for one in self.hypernodes if one.tier == tier and one.tier_name]
        return min(named, key=lambda one: one.name).tier_name if named else ""

    def _all(self) -> Iterable[Node]:
        return self.nodes.values()

    def _occurring(self) -> list[str]:
        return [entry for entry in self.entries if any(_value(node, entry) is not None for node in self._all())]

    def _by_label(self, entry: str) -> dict[NodeName, object]:
        entries = self._occurring()
        chain = entries[: entries.index(entry) + 1]
        columns = [_values(self._all(), one) for one in chain]
        paths = {name: list(path) for name, path in zip(self.nodes, zip(*columns, strict=True), strict=True)}
        own = {name: path[-1] for name, path in paths.items()}
        for depth in reversed(range(len(chain) - 1)):
            above: dict[str, set[str]] = defaultdict(set)
            for path in paths.values():
                here, below = path[depth], path[depth + 1]
                if here is not None and below is not None:
                    above[below].add(here)
            for path in paths.values():
                below = path[depth + 1]
                if path[depth] is None and below is not None and len(above[below]) == 1:
                    path[depth] = min(above[below])
        return {name: tuple(path) for name, path in paths.items() if own[name] is not None}

    def _holding(self) -> list[HyperNode]:
        return [hyper for hyper in self.hypernodes if any(self._inside(hyper, node) for node in self._all())]

    def _by_tier(self, tier: int) -> dict[NodeName, object] | None:
        holding = self._holding()
        if tier > max((hyper.tier for hyper in holding), default=0):
            return None
        found: dict[NodeName, object] = {}
        for node in self._all():
            around = [h for h in holding if h.tier <= tier and self._inside(h, node)]
            if around:
                found[node.name] = min(around, key=lambda hyper: (-hyper.tier, hyper.name)).name
        return found

    def _inside(self, hyper: HyperNode, node: Node) -> bool:
        for member in hyper.members:
            if member.hyper:
                inner = (other for other in self.hypernodes if other.tier < hyper.tier)
                if any(_name_is(member.name, member.pattern, one.name) and self._inside(one, node) for one in inner):
                    return True
            elif member.by_labels:
                if all(_holds(one, node.labels.get(one.key)) for one in member.labels):
                    return True
            elif _name_is(member.name, member.pattern, node.name):
                return True
        return False


def _name_is(name: str, pattern: str, actual: str) -> bool:
    if name:
        return name == actual
    try:
        return bool(pattern) and re.search(pattern, actual) is not None
    except re.error:
        return False


def _value(node: Node, entry: str) -> str | None:
    for key in level_keys(entry):
        if key in node.labels:
            return node.labels[key]
    return None


def _values(nodes: Iterable[Node], entry: str) -> list[str | None]:
    """`_value` of every node, in their order."""
    keys = level_keys(entry)
    if len(keys) == 1:
        return [node.labels.get(keys[0]) for node in nodes]
    return [_value(node, entry) for node in nodes]


def _holds(requirement: Requirement, value: str | None) -> bool:
    if requirement.operator in {"In", "NotIn"}:
        return (value in requirement.values) == (requirement.operator == "In")
    return (value is not None) == (requirement.operator == "Exists")


def wrong_domains(gang: Gang, place: Place, domains: Domains) -> list[str]:
    """Required levels, of the gang, its roles and its slices, that the placement does not keep."""
    member_of = {member.uid: member for member in gang.members}
    standing = [m for m in gang.members if m.state in STAYS and m.node is not None and m.node in domains.nodes]
    problems = []
    for name, wish, where in _wished(gang, place, standing, member_of):
        inside = domains.of(wish) if wish != NO_WISH else None
        if inside is None:
            continue
        found = {inside.get(node) for node in where if node in domains.nodes}
        if len(found) > 1 or None in found:
            problems.append(f"{name}: not in one domain of its required level, but in {sorted(map(str, found))}")
    return problems + _broken_slices(gang, place, member_of)


def _wished(
    gang: Gang, place: Place, standing: Sequence[Member], member_of: Mapping[PodUid, Member]
) -> Iterator[tuple[str, TopologyWish, list[NodeName]]]:
    yield gang.key, gang.topology, [*_nodes_of(standing), *(slot.node for slot in place.slots)]
    for role in gang.roles:
        mine = [slot for slot in place.slots if slot.role == role.name]
        if not mine:
            continue
        there = [member for member in standing if member.role == role.name]
        if role.slices is None:
            yield f"{gang.key} role {role.name}", role.topology, [*_nodes_of(there), *(slot.node for slot in mine)]
            continue
        for name in sorted({member_of[slot.uid].slice for slot in mine if slot.uid in member_of}):
            nodes = _nodes_of([member for member in there if member.slice == name])
            nodes += [slot.node for slot in mine if slot.uid in member_of and member_of[slot.uid].slice == name]
            yield f"{gang.key} role {role.name} slice {name}", role.slices.topology, nodes


def _nodes_of(members: Iterable[Member]) -> list[NodeName]:
    return [member.node for member in members if member.node is not None]


def _broken_slices(gang: Gang, place: Place, member_of: Mapping[PodUid, Member]) -> list[str]:
    """Slices that the placement leaves incomplete, and too few of them."""
    problems = []
    placed: dict[tuple[str, str], int] = defaultdict(int)
    for slot in place.slots:
        if slot.uid in member_of:
            placed[slot.role, member_of[slot.uid].slice] += 1
    for role in gang.roles:
        if role.slices is None:
            continue
        counts: dict[str, int] = defaultdict(int)
        for member in gang.members:
            if member.role == role.name:
                counts[member.slice] += member.counts
        for (name, part), number in sorted(placed.items()):
            if name == role.name:
                counts[part] += number
                if counts[part] < role.slices.size:
                    problems.append(
                        f"{gang.key} role {name}: slice {part} has {counts[part]} of {role.slices.size} pods"
                    )
        whole = sum(count >= role.slices.size for count in counts.values())
        if whole < role.slices.minimum:
            problems.append(f"{gang.key} role {role.name}: {whole} whole slices of minimum {role.slices.minimum}")
    return problems
