"""The scheduler's view at one moment: what decide() gets.

A `Snapshot` is frozen and complete: nodes, queues, gangs, and the room that pods outside our gangs use. Room that is
promised but not yet visible in STATE (open LEDGER entries) is in it too, as members in state `assumed` and as `Hold`s.
"""

import msgspec

from muster.model.budgets import Budget
from muster.model.gangs import Gang
from muster.model.nodes import Node
from muster.model.pauses import Pause
from muster.model.pods import CardUse, PodTerm, Request
from muster.model.topology import HyperNode
from muster.model.units import GangKey, NodeName, PodUid
from muster.model.workloads import Queue


class Occupant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod outside our gangs that uses, or was promised, room on a node (other schedulers' pods, DaemonSets …)."""

    uid: PodUid
    key: str
    node: NodeName
    request: Request
    cards: tuple[CardUse, ...] = ()
    leaving: bool = False
    promised: bool = False
    """A foreign nomination: no pod there yet."""
    system: bool = False
    """A DaemonSet's or mirror pod: it comes with the node and goes with it."""
    labels: dict[str, str] = {}
    host_ports: tuple[tuple[str, int, str], ...] = ()
    pod_terms: tuple[PodTerm, ...] = ()
    """Its required anti-affinity, where it matters to a pod that waits."""


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Room held by an open LEDGER entry for a uid that STATE does not show bound there."""

    gang: GangKey
    uid: PodUid
    node: NodeName
    request: Request
    cards: tuple[CardUse, ...] = ()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a decision may look at."""

    nodes: tuple[Node, ...]
    queues: tuple[Queue, ...]
    gangs: tuple[Gang, ...]
    occupants: tuple[Occupant, ...] = ()
    holds: tuple[Hold, ...] = ()
    """Room of open entries whose pod is gone or stands elsewhere; members in state `assumed` are not repeated here."""
    topology_levels: tuple[str, ...] = ()
    """The policy's levels, widest first: short names or node label keys (see model.topology)."""
    hypernodes: tuple[HyperNode, ...] = ()
    """They win over labels."""
    budgets: tuple[Budget, ...] = ()
    """PodDisruptionBudgets, with the pods of gangs that they cover."""
    pod_terms: bool = False
    """Whether pods that wait have, or are matched by, pod (anti-)affinity or spread constraints: labels are filled in then."""
    pauses: tuple[Pause, ...] = ()
    """What people have paused."""
