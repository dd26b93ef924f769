"""The levels that a fleet has: which domains of which level every node is in.

    hierarchy    levels that occur on nodes, widest first: tiers of HyperNodes where there are any, else node labels
    node         the level after the last of the hierarchy: every node is its own domain
    dimensions   numbered after the node: the NVLink clique, and with HyperNodes the levels of the labels

A node's domain of a label level is its full path of values down to it. A missing upper value is inherited when all nodes with
the same next narrower value agree. A node's domain of a tier is the widest HyperNode up to that tier that holds it.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from muster.decide.selecting import requirement_holds
from muster.model.nodes import Node
from muster.model.topology import (
    CLIQUE,
    DIMENSION_KEYS,
    LEVEL_KEYS,
    NODE_NAMES,
    HyperMember,
    HyperNode,
    level_keys,
    level_name,
)

Ints = npt.NDArray[np.int64]


class Level(NamedTuple):
    """One level: what it is called, by which names it may be asked for, and the domain of every row (None: outside)."""

    name: str
    asked_as: frozenset[str]
    domain_of: tuple[str | None, ...]
    """What people call the domain of each row."""
    codes: Ints
    tier: int = 0
    """Of HyperNodes; 0 for a level of labels."""


class Levels(NamedTuple):
    """All levels of a fleet."""

    hierarchy: tuple[Level, ...]
    dimensions: tuple[Level, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hierarchy, widest first."""
        return tuple(level.name for level in self.hierarchy)

    @property
    def known(self) -> tuple[str, ...]:
        """Everything that may be asked for, the node included."""
        return (*self.names, "node", *(level.name for level in self.dimensions))

    def at(self, number: int) -> Level | None:
        """A level by its number; None for the node."""
        count = len(self.hierarchy)
        if number < count:
            return self.hierarchy[number]
        return self.dimensions[number - count - 1] if number > count else None

    def number(self, name: str) -> int | None:
        """The number of the level that is asked for by this name; an exact label key or tier name goes first."""
        every = [*enumerate(self.hierarchy), *enumerate(self.dimensions, start=len(self.hierarchy) + 1)]
        for number, level in every:
            if name == level.name or name in level.asked_as:
                return number
        return len(self.hierarchy) if name in NODE_NAMES else None


def levels_of(nodes: Sequence[Node], entries: Iterable[str], hypernodes: Sequence[HyperNode] = ()) -> Levels:
    """The levels of these nodes (rows in this order). ``entries``: the policy's levels, widest first."""
    present = {key for node in nodes for key in node.labels}
    labels = _label_levels(nodes, [entry for entry in entries if not present.isdisjoint(level_keys(entry))], present)
    cliques = [
        _level(name, {name, *keys}, [next((n.labels[key] for key in keys if key in n.labels), None) for n in nodes])
        for name, keys in DIMENSION_KEYS.items()
        if not present.isdisjoint(keys)
    ]
    tiers = _tiers(nodes, hypernodes)
    return Levels(tuple(tiers), (*labels, *cliques)) if tiers else Levels(tuple(labels), tuple(cliques))


def _level(name: str, asked_as: set[str], domain_of: Sequence[str | None], tier: int = 0) -> Level:
    return _coded(name, asked_as, domain_of, domain_of, tier)


def _coded(
    name: str,
    asked_as: set[str],
    domain_of: Sequence[str | None],
    identity: Sequence[object],
    tier: int = 0,
) -> Level:
    numbers: dict[object, int] = {}
    codes = np.full(len(domain_of), -1, dtype=np.int64)
    for row, domain in enumerate(domain_of):
        if domain is not None:
            codes[row] = numbers.setdefault(identity[row], len(numbers))
    return Level(name, frozenset(asked_as), tuple(domain_of), codes, tier)


def _label_levels(nodes: Sequence[Node], entries: Sequence[str], present: set[str]) -> list[Level]:
    values = [_values(nodes, [key for key in level_keys(entry) if key in present]) for entry in entries]
    levels = []
    for depth, entry in enumerate(entries):
        chain = [list(column) for column in values[: depth + 1]]
        for upper in range(depth - 1, -1, -1):
            _inherit(chain, upper)
        paths = list(zip(*chain, strict=True))
        name = level_name(entry)
        short = {short for short, keys in LEVEL_KEYS.items() if entry in keys}
        levels.append(_coded(name, {*level_keys(entry), *short}, values[depth], paths))
    return levels


def _values(nodes: Sequence[Node], keys: Sequence[str]) -> list[str | None]:
    """The value of every node: that of the first of these keys that it carries."""
    values = [node.labels.get(keys[0]) for node in nodes]
    for key in keys[1:]:
        values = [node.labels.get(key) if value is None else value for node, value in zip(nodes, values, strict=True)]
    return values


def _inherit(chain: list[list[str | None]], upper: int) -> None:
    """Fill a missing value of a level when all nodes with the same next narrower value agree on it."""
    if None not in chain[upper]:
        return
    seen: dict[str, set[str]] = {}
    for value, below in zip(chain[upper], chain[upper + 1], strict=True):
        if below is not None and value is not None:
            seen.setdefault(below, set()).add(value)
    for row, below in enumerate(chain[upper + 1]):
        if chain[upper][row] is None and below is not None and len(seen.get(below, ())) == 1:
            chain[upper][row] = next(iter(seen[below]))


def _tiers(nodes: Sequence[Node], hypernodes: Sequence[HyperNode]) -> list[Level]:
    """Levels of HyperNodes, the highest tier first."""
    if not hypernodes:
        return []
    ordered = sorted(hypernodes, key=lambda one: (one.tier, one.name))
    holds = members_of(nodes, ordered)
    home: list[str | None] = [None] * len(nodes)
    levels: list[Level] = []
    for tier in sorted({one.tier for one in ordered}):
        inside: set[int] = set()
        for one in ordered:
            if one.tier == tier:
                for row in sorted(holds[one.name] - inside):
                    home[row] = one.name
                inside |= holds[one.name]
        name = next((one.tier_name for one in ordered if one.tier == tier and one.tier_name), f"tier-{tier}")
        if any(one is not None for one in home):
            levels.append(_level(name, {f"tier-{tier}"}, list(home), tier))
    return levels[::-1]


def members_of(nodes: Sequence[Node], hypernodes: Sequence[HyperNode]) -> dict[str, set[int]]:
    """The rows that each HyperNode holds, itself or by HyperNodes of a lower tier inside it."""
    row_of = {str(node.name): row for row, node in enumerate(nodes)}
    holds: dict[str, set[int]] = {}
    tier_of = {one.name: one.tier for one in hypernodes}
    for one in sorted(hypernodes, key=lambda hyper: (hyper.tier, hyper.name)):
        rows: set[int] = set()
        for member in one.members:
            if member.hyper:
                # Only lower tiers: they are known already, and no circle of members can arise.
                inner = [name for name in holds if tier_of[name] < one.tier and _named(member, name)]
                rows = rows.union(*(holds[name] for name in inner))
            elif member.name:
                rows |= {row_of[member.name]} if member.name in row_of else set()
            else:
                rows |= {row for row, node in enumerate(nodes) if _chosen(member, node)}
        holds[one.name] = rows
    return holds


def _named(member: HyperMember, name: str) -> bool:
    if member.name:
        return name == member.name
    return bool(member.pattern) and matches_pattern(member.pattern, name)


def _chosen(member: HyperMember, node: Node) -> bool:
    if member.by_labels:
        return all(requirement_holds(one, node.labels.get(one.key)) for one in member.labels)
    return bool(member.pattern) and matches_pattern(member.pattern, node.name)


def matches_pattern(pattern: str, name: str) -> bool:
    """Whether a regexMatch holds: found anywhere in the name, as Volcano does. A pattern that is none matches nothing."""
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return False


__all__ = ["CLIQUE", "Level", "Levels", "levels_of", "matches_pattern", "members_of"]
