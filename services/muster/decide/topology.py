"""Topology domains: which nodes are near each other, level by level.

A level is a number: 0 is the widest of the hierarchy, ``len(fleet.levels)`` the node, more is a dimension beside the hierarchy
(see `muster.decide.levels`). A node without a label at a level is outside every required domain of that level and its own
domain where the level is only preferred.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.fleet import Fleet, Ints
from muster.decide.levels import Level
from muster.model.pods import TopologyWish
from muster.model.topology import NODE_NAMES


class Wish(NamedTuple):
    """A topology wish as level numbers; None: not asked for."""

    required: int | None = None
    preferred: int | None = None
    unknown: str = ""
    """A required level that does not exist here."""


def node_level(fleet: Fleet) -> int:
    """The number of the level where every node is its own domain."""
    return len(fleet.levels)


def resolve(fleet: Fleet, wish: TopologyWish) -> Wish:
    """Level numbers of a wish; a tier above the widest constrains nothing."""
    key = ("wish", wish)
    found = fleet.memo.get(key)
    if found is None:
        found = fleet.memo[key] = _resolve(fleet, wish)
    assert isinstance(found, Wish)
    return found


def _resolve(fleet: Fleet, wish: TopologyWish) -> Wish:
    if wish == TopologyWish():
        return Wish()
    levels = fleet.topology
    required, beyond = _tier(levels.hierarchy, wish.required_tier)
    preferred, _ = _tier(levels.hierarchy, wish.preferred_tier)
    unknown = f"tier {wish.required_tier}" if beyond else ""
    if wish.required_level:
        required = levels.number(wish.required_level)
        unknown = wish.required_level if required is None else ""
    if wish.preferred_level:
        preferred = levels.number(wish.preferred_level)
    return Wish(required, preferred, unknown)


def _tier(hierarchy: Sequence[Level], tier: int) -> tuple[int | None, bool]:
    """The level that a highest allowed tier means, and whether it is below every tier there is.

    Tiers of HyperNodes are their own numbers, and the highest of them that is allowed is meant; of labels tier 1 is the
    narrowest level above the node.
    """
    if tier <= 0:
        return None, False
    if hierarchy and hierarchy[0].tier:
        if tier > hierarchy[0].tier:
            return None, False
        allowed = next((number for number, level in enumerate(hierarchy) if level.tier <= tier), None)
        return allowed, allowed is None
    above_node = [number for number, level in enumerate(hierarchy) if level.asked_as.isdisjoint(NODE_NAMES)]
    return (above_node[-tier] if tier <= len(above_node) else None), False


def domains(fleet: Fleet, level: int) -> Ints:
    """The domain code of every row at a level; -1: outside. Codes are given in row order."""
    if level == node_level(fleet):
        return np.arange(fleet.size, dtype=np.int64)
    found = fleet.topology.at(level)
    assert found is not None
    return found.codes


def preferred_domains(fleet: Fleet, level: int) -> Ints:
    """Like `domains`, but a node without the label is a domain of its own."""
    codes = domains(fleet, level)
    outside = codes < 0
    if not outside.any():
        return codes
    result = codes.copy()
    result[outside] = codes.max(initial=-1) + 1 + np.arange(int(outside.sum()))
    return result


def steps(fleet: Fleet, wish: Wish) -> list[Ints]:
    """Domains to try for a wish, the narrowest kind first, all inside the domains of the required level.

    From the preferred level (or the narrowest of all) up to the required one; a dimension beside the hierarchy is no step
    between others, and its domains are cut by those of the required level.
    """
    node = node_level(fleet)
    required, preferred = wish.required, wish.preferred
    if required is not None and required > node:
        narrow = [] if preferred is None or preferred == required else [within(fleet, preferred, required)]
        return [*narrow, domains(fleet, required)]
    if preferred is not None and preferred > node:
        return [within(fleet, preferred, required)] + ([] if required is None else [domains(fleet, required)])
    widest = 0 if required is None else required
    narrowest = max(widest, node - 1 if preferred is None else preferred)
    return [
        domains(fleet, level) if level == required else preferred_domains(fleet, level)
        for level in range(narrowest, widest - 1, -1)
    ]


def narrow_domains(fleet: Fleet, wish: Wish) -> Ints:
    """The domains of which as few as possible are used when one alone does not hold everything."""
    node = node_level(fleet)
    if wish.preferred is not None:
        return preferred_domains(fleet, wish.preferred)
    required = wish.required if wish.required is not None and wish.required <= node else 0
    return preferred_domains(fleet, min(node, max(required, node - 1)))


def within(fleet: Fleet, level: int, outer: int | None) -> Ints:
    """Domains of a preferred level, each cut by the domains of another; outside those: -1."""
    inner = preferred_domains(fleet, level)
    if outer is None:
        return inner
    codes = domains(fleet, outer)
    pairs = np.where(codes < 0, -1, codes * (int(inner.max(initial=0)) + 1) + inner)
    values, coded = np.unique(pairs, return_inverse=True)
    return np.asarray(coded - (1 if values.size and values[0] < 0 else 0), dtype=np.int64)


def domain_name(fleet: Fleet, level: int, row: int) -> str:
    """What people call the domain of a row: its label value, its HyperNode, or the node's name."""
    found = fleet.topology.at(level)
    return (found.domain_of[row] if found is not None else None) or fleet.names[row]


def level_name(fleet: Fleet, level: int) -> str:
    """The level's name without the label's prefix."""
    found = fleet.topology.at(level)
    return "node" if found is None else found.name
