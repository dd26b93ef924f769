"""Topology domains: which nodes are near each other, level by level.

Levels are node label keys, widest first. A node's domain at a level is its full path of values down to it, so equal names in
different zones are different domains. A node without a label at a level is outside every required domain of that level and its
own domain where the level is only preferred; a missing upper level is inherited when all siblings agree. The level `NODE`
is always there: every node is its own domain.
"""

from typing import NamedTuple

import numpy as np

from muster.decide.fleet import Fleet, Ints
from muster.model.pods import TopologyWish

NODE_NAMES = frozenset({"kubernetes.io/hostname", "hostname", "host", "node"})


class Wish(NamedTuple):
    """A topology wish as level numbers: 0 is the widest level, ``len(levels)`` is the node; None: not asked for."""

    required: int | None = None
    preferred: int | None = None
    unknown: str = ""
    """A required level that does not exist here."""


def node_level(fleet: Fleet) -> int:
    """The number of the level where every node is its own domain."""
    return len(fleet.levels)


def level_number(levels: tuple[str, ...], name: str) -> int | None:
    """A level by its label key, or by the key's last part (``rack`` for ``topology.example.com/rack``)."""
    if name in levels:
        return levels.index(name)
    for number, key in enumerate(levels):
        if key.rpartition("/")[2] == name:
            return number
    return len(levels) if name in NODE_NAMES else None


def resolve(fleet: Fleet, wish: TopologyWish) -> Wish:
    """Level numbers of a wish. Tier 1 is the narrowest level above the node; a tier above the widest constrains nothing."""
    key = ("wish", wish)
    found = fleet.memo.get(key)
    if found is None:
        found = fleet.memo[key] = _resolve(fleet, wish)
    assert isinstance(found, Wish)
    return found


def _resolve(fleet: Fleet, wish: TopologyWish) -> Wish:
    levels = fleet.levels
    above_node = [number for number, key in enumerate(levels) if key.rpartition("/")[2] not in NODE_NAMES]
    required = _tier(above_node, wish.required_tier)
    preferred = _tier(above_node, wish.preferred_tier)
    unknown = ""
    if wish.required_level:
        required = level_number(levels, wish.required_level)
        unknown = wish.required_level if required is None else ""
    if wish.preferred_level:
        preferred = level_number(levels, wish.preferred_level)
    return Wish(required, preferred, unknown)


def _tier(above_node: list[int], tier: int) -> int | None:
    return above_node[-tier] if 0 < tier <= len(above_node) else None


def domains(fleet: Fleet, level: int) -> Ints:
    """The domain code of every row at a level; -1: outside. Codes are given in row order."""
    key = ("domains", level)
    found = fleet.memo.get(key)
    if found is None:
        found = fleet.memo[key] = _domains(fleet, level)
    assert isinstance(found, np.ndarray)
    return found


def _domains(fleet: Fleet, level: int) -> Ints:
    if level >= len(fleet.levels):
        return np.arange(fleet.size, dtype=np.int64)
    keys = fleet.levels[: level + 1]
    paths = [[node.labels.get(key) for key in keys] for node in fleet.nodes]
    for upper in range(level - 1, -1, -1):
        _inherit(paths, upper)
    codes: dict[tuple[str | None, ...], int] = {}
    result = np.full(fleet.size, -1, dtype=np.int64)
    for row, path in enumerate(paths):
        if path[level] is not None:
            result[row] = codes.setdefault(tuple(path), len(codes))
    return result


def _inherit(paths: list[list[str | None]], upper: int) -> None:
    """Fill a missing value of a level when all nodes with the same next narrower value agree on it."""
    seen: dict[str, set[str]] = {}
    for path in paths:
        below, value = path[upper + 1], path[upper]
        if below is not None and value is not None:
            seen.setdefault(below, set()).add(value)
    for path in paths:
        below = path[upper + 1]
        if path[upper] is None and below is not None and len(seen.get(below, ())) == 1:
            path[upper] = next(iter(seen[below]))


def preferred_domains(fleet: Fleet, level: int) -> Ints:
    """Like `domains`, but a node without the label is a domain of its own."""
    codes = domains(fleet, level)
    outside = codes < 0
    if not outside.any():
        return codes
    result = codes.copy()
    result[outside] = codes.max(initial=-1) + 1 + np.arange(int(outside.sum()))
    return result


def domain_name(fleet: Fleet, level: int, row: int) -> str:
    """What people call the domain of a row: its label value, or the node's name."""
    if level >= len(fleet.levels):
        return fleet.names[row]
    return fleet.nodes[row].labels.get(fleet.levels[level], fleet.names[row])


def level_name(fleet: Fleet, level: int) -> str:
    """The level's name without the label's prefix."""
    return "node" if level >= len(fleet.levels) else fleet.levels[level].rpartition("/")[2]
