"""Terms between pods: affinity, anti-affinity, topology spread, as Kubernetes means them, over the pods that stand in a room.

    kind     namespace, labels, required anti-affinity of standing pods     counts[kind][row]
    domain   nodes with one value of a term's topology key; a node without the key is in none

A required affinity that nobody meets yet, and that the pod itself meets, is met by any node with the key: somebody must be first.
Anti-affinity counts both ways. Spread: the domain may be at most ``maxSkew`` above the emptiest domain that the pod may use.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from muster.decide.fleet import Fleet, Ints, Mask
from muster.decide.selecting import selects
from muster.model.pods import Kind, Pod, PodTerm, Requirement, Shape, SpreadConstraint, keeps_away

HOSTNAME = "kubernetes.io/hostname"
EVERYWHERE = ("*",)


def matches(term: PodTerm, own_namespace: str, namespace: str, labels: Mapping[str, str]) -> bool:
    """Whether a term of a pod in ``own_namespace`` is about a pod with this namespace and these labels."""
    spaces = term.namespaces or (own_namespace,)
    return (spaces == EVERYWHERE or namespace in spaces) and selects(term.labels, labels)


def company(terms: Iterable[PodTerm]) -> list[PodTerm]:
    """The required affinity among these terms."""
    return [term for term in terms if not term.anti and not term.weight]


class Refused(NamedTuple):
    """Rows that each sort of term leaves."""

    affinity: Mask
    anti: Mask
    spread: Mask

    @property
    def rows(self) -> Mask:
        """Rows that all leave."""
        return np.asarray(self.affinity & self.anti & self.spread, dtype=np.bool_)


class Neighbours:
    """Who stands where, as far as terms look. ``whole`` is false in a room that was emptied to see what could ever fit."""

    def __init__(self, fleet: Fleet, *, whole: bool = True) -> None:
        self.fleet = fleet
        self.whole = whole
        self.counts: dict[Kind, Ints] = {}

    def copy(self) -> "Neighbours":
        """The same, to be changed by itself."""
        other = Neighbours(self.fleet, whole=self.whole)
        other.counts = {kind: counts.copy() for kind, counts in self.counts.items()}
        return other

    def add(self, kind: Kind, row: int, number: int = 1) -> None:
        """``number`` more (or fewer) pods of a kind on a row."""
        counts = self.counts.get(kind)
        if counts is None:
            counts = self.counts[kind] = np.zeros(self.fleet.size, dtype=np.int64)
        counts[row] += number

    def codes(self, key: str) -> Ints:
        """The domain of every row by a topology key; -1: none."""
        return np.arange(self.fleet.size, dtype=np.int64) if key == HOSTNAME else self.fleet.column(key).codes

    def _there(self, told: Callable[[Kind], bool]) -> Ints:
        total = np.zeros(self.fleet.size, dtype=np.int64)
        for kind, counts in self.counts.items():
            if told(kind):
                total += counts
        return total

    def _by_domain(self, codes: Ints, counts: Ints) -> Ints:
        inside = codes >= 0
        sums = np.bincount(codes[inside], weights=counts[inside], minlength=int(codes.max(initial=-1)) + 1)
        return sums.astype(np.int64)

    def _in_domain(self, codes: Ints, counts: Ints) -> Ints:
        """For every row, how many stand in its domain; 0 where it has none."""
        sums = self._by_domain(codes, counts)
        return np.where(codes >= 0, sums[codes], 0) if sums.size else np.zeros_like(codes)

    def companions(self, shape: Shape) -> Ints:
        """The pods on each row that meet every required affinity term of the shape: only those count, as in Kubernetes."""
        wanted = company(shape.pod_terms)
        return self._there(
            lambda kind: all(matches(term, shape.namespace, kind.namespace, dict(kind.labels)) for term in wanted)
        )

    def near(self, shape: Shape, term: PodTerm) -> Ints:
        """For every row, the pods in its domain that the shape's term is about."""
        counts = self._there(lambda kind: matches(term, shape.namespace, kind.namespace, dict(kind.labels)))
        return self._in_domain(self.codes(term.topology_key), counts)

    def fixed(self, shape: Shape) -> Refused:
        """The rows that terms leave whatever more pods of this shape are placed: everything but spread."""
        size = self.fleet.size
        affinity, anti = np.ones(size, dtype=np.bool_), np.ones(size, dtype=np.bool_)
        labels = dict(shape.labels)
        for term in keeps_away(shape.pod_terms):
            anti &= self.near(shape, term) == 0
        wanted = company(shape.pod_terms)
        there = [self._in_domain(self.codes(term.topology_key), self.companions(shape)) for term in wanted]
        alone = not any(counts.any() for counts in there)
        first = alone and all(matches(term, shape.namespace, shape.namespace, labels) for term in wanted)
        for term, counts in zip(wanted, there, strict=True):
            affinity &= self.codes(term.topology_key) >= 0
            if not first and (self.whole or not alone):
                affinity &= counts > 0
        for kind, counts in self.counts.items():
            for term in kind.terms:
                if matches(term, kind.namespace, shape.namespace, labels) and counts.any():
                    anti &= self._in_domain(self.codes(term.topology_key), counts) == 0
        return Refused(affinity, anti, np.ones(size, dtype=np.bool_))

    def allowed(self, shape: Shape, eligible: Mask) -> Refused:
        """The rows that terms leave to the next pod of the shape. ``eligible``: rows that its selector and affinity leave."""
        found = self.fixed(shape)
        spread = found.spread
        for constraint in shape.spread:
            if constraint.required:
                spread = spread & self._even(shape, constraint, eligible)
        return found._replace(spread=spread)

    def _spread_counts(self, shape: Shape, constraint: SpreadConstraint) -> Ints:
        return self._there(
            lambda kind: (
                kind.namespace == shape.namespace and not kind.leaving and selects(constraint.labels, dict(kind.labels))
            )
        )

    def _even(self, shape: Shape, constraint: SpreadConstraint, eligible: Mask) -> Mask:
        keys = [one.topology_key for one in shape.spread if one.required]
        counted = eligible & np.logical_and.reduce([self.codes(key) >= 0 for key in keys])
        codes = np.where(counted, self.codes(constraint.topology_key), -1)
        sums = self._by_domain(codes, self._spread_counts(shape, constraint))
        used = np.unique(codes[counted])
        least = int(sums[used].min()) if used.size >= max(constraint.min_domains, 1) else 0
        own = int(selects(constraint.labels, dict(shape.labels)))
        if not used.size:
            return np.zeros(self.fleet.size, dtype=np.bool_)
        return np.asarray((codes >= 0) & (sums[codes] + own - least <= constraint.max_skew), dtype=np.bool_)

    def liking(self, shape: Shape) -> Ints:
        """How much preferred terms like each row: weights of pods near, less those to keep from; evenness costs a pod each."""
        score = np.zeros(self.fleet.size, dtype=np.int64)
        for term in shape.pod_terms:
            if term.weight:
                score += (-term.weight if term.anti else term.weight) * np.minimum(self.near(shape, term), 1000)
        for constraint in shape.spread:
            codes = self.codes(constraint.topology_key)
            there = self._in_domain(codes, self._spread_counts(shape, constraint))
            score -= there if constraint.required else 100 * there + np.where(codes < 0, 100, 0)
        return score


class Asked(NamedTuple):
    """What terms that matter look at: label keys."""

    keys: frozenset[str]

    def labels(self, pod: Pod) -> tuple[tuple[str, str], ...]:
        """The pod's labels that they look at, sorted."""
        return tuple(sorted((key, value) for key, value in pod.labels.items() if key in self.keys))


def asked_labels(pods: Iterable[Pod], ours: Iterable[Pod]) -> Asked | None:
    """What terms of pods that wait, and anti-affinity of standing pods against them, look at; None: there are no such terms."""
    waiting = [pod for pod in ours if pod.node is None and not pod.finished]
    requirements: list[Requirement] = []
    found = False
    for shape in {pod.shape for pod in waiting if pod.shape.has_terms}:
        found = True
        requirements += [one for term in shape.pod_terms for one in term.labels]
        requirements += [one for constraint in shape.spread for one in constraint.labels]
    against: dict[tuple[str, tuple[PodTerm, ...]], None] = {}
    for pod in pods:
        if pod.shape.pod_terms and pod.holds_room:
            terms = keeps_away(pod.shape.pod_terms)
            if terms:
                against[pod.namespace, terms] = None
    for namespace, terms in against:
        for term in terms:
            if found or any(matches(term, namespace, pod.namespace, pod.labels) for pod in waiting):
                found = True
                requirements += term.labels
    return Asked(frozenset(one.key for one in requirements)) if found else None


class Labelled:
    """Shapes with the labels that terms look at; equal ones are made once."""

    def __init__(self, asked: Asked | None) -> None:
        self.asked = asked
        self._made: dict[tuple[Shape, str, tuple[tuple[str, str], ...]], Shape] = {}

    def shape(self, shape: Shape, pod: Pod) -> Shape:
        """The shape of a pod that may be placed."""
        if self.asked is None:
            return shape
        key = (shape, pod.namespace, self.asked.labels(pod))
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = msgspec.structs.replace(shape, namespace=key[1], labels=key[2])
        return found
