"""Which nodes may take a pod of a shape at all (predicates), and how many of it fit there now (capacity).

Predicates follow Kubernetes: nodeSelector, required node affinity (terms are alternatives, requirements of a term all hold),
taints against tolerations, unschedulable (tolerated by the toleration of its taint), readiness, and the kind of cards.
They depend on nodes alone and are kept with the fleet; capacity looks at the room.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.cards import VGPU_NUMBER
from muster.decide.cordons import UNSCHEDULABLE_TAINT
from muster.decide.fleet import PODS, Fleet, Ints, Mask
from muster.decide.looks import Numbers
from muster.decide.neighbours import Refused, matches
from muster.decide.room import Room
from muster.decide.selecting import requirement_holds
from muster.model.nodes import CardMode, Taint
from muster.model.pods import NodeTerm, Request, Requirement, Shape, Toleration, keeps_away

UNSCHEDULABLE = Taint(key=UNSCHEDULABLE_TAINT, effect="NoSchedule")
UNBOUNDED = np.int64(1 << 40)
EVERY_ROW = slice(None)


class Admission(NamedTuple):
    """Rows that pass every predicate, and for each predicate the rows that pass that one."""

    rows: Mask
    passes: dict[str, Mask]

    def refusals(self) -> dict[str, int]:
        """How many nodes each predicate refuses; predicates that refuse none are left out."""
        counts = {name: int((~mask).sum()) for name, mask in self.passes.items()}
        return {name: count for name, count in counts.items() if count}


def admission(fleet: Fleet, shape: Shape) -> Admission:
    """The predicates of a shape over all rows."""
    request = shape.request
    card_kind = (
        bool(request.cards),
        request.share is not None,
        request.card_resource if request.cards or request.share is not None else "",
        shape.takes_visible_devices,
        shape.gpu_models,
        shape.refused_gpu_models,
    )
    key = ("admission", shape.node_selector, shape.required_nodes, shape.tolerations, card_kind, shape.volume_nodes)
    found = fleet.memo.get(key)
    if found is None:
        passes = {
            "selector": _selected(fleet, shape.node_selector),
            "affinity": _affine(fleet, shape.required_nodes),
            "volumes": _reached(fleet, shape.volume_nodes),
            "taints": _tolerated(fleet, shape.tolerations),
            "unschedulable": _schedulable(fleet, shape.tolerations),
            "not ready": fleet.ready,
            "withheld": ~fleet.withheld,
            "card kind": _card_kind(fleet, shape),
        }
        rows = np.logical_and.reduce(list(passes.values())) if fleet.size else np.zeros(0, dtype=np.bool_)
        found = fleet.memo[key] = Admission(rows, passes)
    assert isinstance(found, Admission)
    return found


def _selected(fleet: Fleet, selector: tuple[tuple[str, str], ...]) -> Mask:
    rows = np.ones(fleet.size, dtype=np.bool_)
    for key, value in selector:
        column = fleet.column(key)
        code = column.values.get(value)
        rows &= (column.codes == code) if code is not None else False
    return rows


def _affine(fleet: Fleet, terms: tuple[NodeTerm, ...]) -> Mask:
    if not terms:
        return np.ones(fleet.size, dtype=np.bool_)
    rows = np.zeros(fleet.size, dtype=np.bool_)
    for term in terms:
        rows |= term_rows(fleet, term)
    return rows


def _reached(fleet: Fleet, volumes: tuple[tuple[NodeTerm, ...], ...]) -> Mask:
    """Rows from which every volume can be reached."""
    rows = np.ones(fleet.size, dtype=np.bool_)
    for terms in volumes:
        rows &= _affine(fleet, terms)
    return rows


def term_rows(fleet: Fleet, term: NodeTerm) -> Mask:
    """Rows on which every requirement of a term holds; a term without requirements matches nothing, as in Kubernetes."""
    if not term.labels and not term.fields:
        return np.zeros(fleet.size, dtype=np.bool_)
    rows = np.ones(fleet.size, dtype=np.bool_)
    for requirement in term.labels:
        rows &= _label_rows(fleet, requirement)
    for requirement in term.fields:
        rows &= np.array([requirement_holds(requirement, str(name)) for name in fleet.names], dtype=np.bool_)
    return rows


def _label_rows(fleet: Fleet, requirement: Requirement) -> Mask:
    column = fleet.column(requirement.key)
    verdict = np.zeros(len(column.values) + 1, dtype=np.bool_)
    for value, code in column.values.items():
        verdict[code] = requirement_holds(requirement, value)
    verdict[-1] = requirement_holds(requirement, None)  # the code of an absent label is -1
    return verdict[column.codes]


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    """Whether any toleration matches the taint, by the rules of Kubernetes."""
    for toleration in tolerations:
        if toleration.effect and toleration.effect != taint.effect:
            continue
        if not toleration.key:
            if toleration.operator == "Exists":
                return True
            continue
        if toleration.key != taint.key:
            continue
        if toleration.operator == "Exists" or toleration.value == taint.value:
            return True
    return False


def _tolerated(fleet: Fleet, tolerations: tuple[Toleration, ...]) -> Mask:
    verdict = np.array(
        [
            # The taint that says "unschedulable" is judged as its own predicate, so that people see which it was.
            all(
                taint.effect == "PreferNoSchedule" or taint == UNSCHEDULABLE or tolerates(tolerations, taint)
                for taint in taints
            )
            for taints in fleet.taint_sets
        ],
        dtype=np.bool_,
    )
    return verdict[fleet.taint_codes] if fleet.size else np.zeros(0, dtype=np.bool_)


def _schedulable(fleet: Fleet, tolerations: tuple[Toleration, ...]) -> Mask:
    if tolerates(tolerations, UNSCHEDULABLE):
        return np.ones(fleet.size, dtype=np.bool_)
    tainted = np.array([UNSCHEDULABLE in taints for taints in fleet.taint_sets], dtype=np.bool_)
    # Our own cordons are judged as a predicate of their own.
    return fleet.withheld | (~fleet.unschedulable & (~tainted[fleet.taint_codes] if fleet.size else True))


def _card_kind(fleet: Fleet, shape: Shape) -> Mask:
    """Rows whose cards are given out as the shape asks for them, and are of a model that it takes."""
    request = shape.request
    if not request.cards and request.share is None:
        return np.ones(fleet.size, dtype=np.bool_)
    modes = np.array([node.card_mode for node in fleet.nodes], dtype=object)
    vgpu = request.card_resource == VGPU_NUMBER
    if request.share is not None:
        # A share is known by name to one plugin only; without a plugin the containers have to be told what they may see.
        rows = fleet.shares_cards & ((fleet.card_resources == VGPU_NUMBER) == vgpu)
        if not shape.takes_visible_devices:
            rows &= modes != CardMode.RESERVED
    else:
        rows = (fleet.card_resources == request.card_resource) & (modes != CardMode.RESERVED)
    for wanted, names in ((True, shape.gpu_models), (False, shape.refused_gpu_models)):
        if names:
            rows &= [any(name in node.gpu_model.upper() for name in names) is wanted for node in fleet.nodes]
    return np.asarray(rows, dtype=np.bool_)


def avoided(fleet: Fleet, shape: Shape) -> Ints:
    """How many PreferNoSchedule taints of each row the shape does not tolerate."""
    key = ("avoided", shape.tolerations)
    found = fleet.memo.get(key)
    if found is None:
        counts = np.array(
            [
                sum(taint.effect == "PreferNoSchedule" and not tolerates(shape.tolerations, taint) for taint in taints)
                for taints in fleet.taint_sets
            ],
            dtype=np.int64,
        )
        found = fleet.memo[key] = counts[fleet.taint_codes] if fleet.size else np.zeros(0, dtype=np.int64)
    assert isinstance(found, np.ndarray)
    return found


def preference(fleet: Fleet, shape: Shape) -> Ints:
    """The summed weight of preferred node affinity terms that hold on each row."""
    key = ("preference", shape.preferred_nodes)
    found = fleet.memo.get(key)
    if found is None:
        weights = np.zeros(fleet.size, dtype=np.int64)
        for term in shape.preferred_nodes:
            weights += term.weight * term_rows(fleet, term)
        found = fleet.memo[key] = weights
    assert isinstance(found, np.ndarray)
    return found


def share_fits(room: Room, request: Request, rows: Ints | slice = EVERY_ROW) -> Ints:
    """How many shares of the request each card [row, position] takes by its free memory and core; fresh cards included."""
    share = request.share
    assert share is not None
    usable, core = room.fleet.card_usable[rows], room.card_core[rows]
    if share.memory_mib <= 0 and share.core_percent <= 0:
        # A share without any limit is one user of a card that nobody holds whole.
        return np.where(usable & (core > 0), UNBOUNDED, 0)
    fits = np.where(usable, UNBOUNDED, 0)
    if share.memory_mib > 0:
        fits = np.minimum(fits, room.card_memory[rows] // share.memory_mib)
    if share.core_percent > 0:
        fits = np.minimum(fits, core // share.core_percent)
    return np.maximum(fits, 0)


def capacity(room: Room, shape: Shape, rows: Mask | None = None) -> Ints:
    """How many pods of the shape fit on each row now; 0 where a predicate (or ``rows``) refuses it.

    Kept with the room and renewed only for rows that changed since the last time it was asked for.
    """
    fleet = room.fleet
    if not fleet.size or fleet.vector(shape.request) is None:
        return np.zeros(fleet.size, dtype=np.int64)
    fits = None if shape.request.share is not None or shape.host_ports else _fits_by_look(room, shape)
    if fits is None:
        known = room.derived.get(shape)
        if known is None:
            fits = _fits(room, shape, EVERY_ROW)
        else:
            since, fits = known
            renewed = np.array(sorted(set(room.changed[since:])), dtype=np.int64)
            if renewed.size:
                fits = fits.copy()
                fits[renewed] = _fits(room, shape, renewed)
        room.derived[shape] = (len(room.changed), fits)
    if shape.namespace:
        fits = np.where(room.around().fixed(shape).rows, np.minimum(fits, _alone(room, shape)), 0)
    return fits if rows is None else np.where(rows, fits, 0)


def _alone(room: Room, shape: Shape) -> Ints | int:
    """How many of the shape its own required anti-affinity allows on one node."""
    labels = dict(shape.labels)
    keeps = [one for one in keeps_away(shape.pod_terms) if matches(one, shape.namespace, shape.namespace, labels)]
    if not keeps:
        return int(UNBOUNDED)
    with_key = np.logical_or.reduce([room.around().codes(one.topology_key) >= 0 for one in keeps])
    return np.where(with_key, 1, UNBOUNDED)


def allowed(room: Room, shape: Shape) -> Refused:
    """The rows that terms between pods leave to the next pod of the shape."""
    passes = admission(room.fleet, shape).passes
    return room.around().allowed(shape, passes["selector"] & passes["affinity"])


def watched(room: Room, shape: Shape) -> bool:
    """Whether where the shape goes depends on other pods, or other pods on it: counts of nodes do not tell enough then."""
    if not shape.namespace:
        return False
    if any(not term.weight for term in shape.pod_terms) or any(one.required for one in shape.spread):
        return True
    labels = dict(shape.labels)
    return room.neighbours is not None and any(
        matches(term, kind.namespace, shape.namespace, labels) for kind in room.neighbours.counts for term in kind.terms
    )


def _fits_by_look(room: Room, shape: Shape) -> Ints | None:
    """The same for pods that only numbers limit, where nodes that look alike are judged once; None where they are not."""
    vector = room.fleet.vector(shape.request)
    assert vector is not None
    cards, rows = shape.request.cards, admission(room.fleet, shape).rows
    return room.by_look(("fits", shape), lambda numbers: pods_in(numbers, vector, cards), rows)


def pods_in(numbers: Numbers, vector: Ints, cards: int) -> Ints:
    """How many pods of these amounts and so many whole cards fit."""
    fits = numbers.free[:, PODS]
    for dimension in np.flatnonzero(vector).tolist():
        if dimension != PODS:
            fits = np.minimum(fits, numbers.free[:, dimension] // vector[dimension])
    if cards:
        fits = np.minimum(fits, numbers.whole_free // cards)
    return np.asarray(np.maximum(fits, 0), dtype=np.int64)


def _fits(room: Room, shape: Shape, rows: Ints | slice) -> Ints:
    fleet, request = room.fleet, shape.request
    vector = fleet.vector(request)
    assert vector is not None
    numbers = Numbers(room.free[rows], fleet.total[rows], room.whole_free[rows], fleet.allocatable_cards[rows])
    whole = request.cards if request.share is None else 0
    fits = np.where(admission(fleet, shape).rows[rows], pods_in(numbers, vector, whole), 0)
    if request.share is not None:
        fits = np.minimum(fits, _share_capacity(room, request, rows))
    if shape.host_ports:
        fits = np.minimum(fits, 1)
        numbered = np.arange(fleet.size)[rows].tolist()
        for place, row in enumerate(numbered):
            if row in room.ports and ports_clash(shape.host_ports, room.ports[row]):
                fits[place] = 0
    return np.asarray(np.maximum(fits, 0), dtype=np.int64)


def ports_clash(wanted: tuple[tuple[str, int, str], ...], used: frozenset[tuple[str, int, str]]) -> bool:
    """Whether a host port is taken already: same protocol and port, and the same or any host address."""
    anywhere = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    for protocol, port, address in wanted:
        for other_protocol, other_port, other_address in used:
            if (protocol, port) == (other_protocol, other_port) and (
                address == other_address or address in anywhere or other_address in anywhere
            ):
                return True
    return False


def _share_capacity(room: Room, request: Request, rows: Ints | slice) -> Ints:
    fits = share_fits(room, request, rows)
    fresh = room.untouched()[rows]
    # Fresh cards count only as far as the kubelet still offers untouched ones; which of them does not matter when equal.
    ordered = -np.sort(-np.where(fresh, fits, 0), axis=1)
    offered = np.arange(room.fleet.width)[None, :] < room.whole_free[rows][:, None]
    opened = np.where(offered, ordered, 0)
    used = np.where(fresh, 0, fits)
    share = request.share
    if share is not None and share.count > 1:
        most = np.minimum(room.free[rows, PODS], UNBOUNDED)
        return np.array(
            [
                pods_on([*one, *more], share.count, int(limit))
                for one, more, limit in zip(used.tolist(), opened.tolist(), most.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
    return np.asarray(used.sum(axis=1) + opened.sum(axis=1), dtype=np.int64)


def pods_on(fits: Sequence[int], count: int, most: int) -> int:
    """How many pods with a share on each of ``count`` different cards fit; ``most`` at the most.

    n pods fit exactly when the cards, each counted n times at the most, take n × count shares.
    """
    low, high = 0, max(most, 0)
    while low < high:
        pods = (low + high + 1) // 2
        if sum(min(fit, pods) for fit in fits) >= pods * count:
            low = pods
        else:
            high = pods - 1
    return low
