"""Claims that wait for a pod to be placed first (WaitForFirstConsumer): where volumes for them are, or can be made.

    class with a provisioner ──► every node that its allowedTopologies admit
    volumes made by people   ──► unbound volumes that suit the claim:
         each on one node, one pod mounts the claim ──► counted: the node offers so many of them, as it offers any resource
         else ──► one volume is kept for the claim, the smallest that suits; the pod goes where that is reached
    a placed pod mounts it too ──► the node of that pod, until it is bound

Claims of placed pods have their volumes before all others (`assign`). Claims are counted together where the same volumes suit
them: a claim that fewer volumes suit is counted with those that it could take from others, so that what fits by the numbers can
be given out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from muster.decide.selecting import requirement_holds, selects
from muster.model.nodes import Node
from muster.model.pods import NodeTerm, Pod, Requirement
from muster.model.quantity import format_bytes
from muster.model.volumes import SINGLE_POD, Claim, StorageClass, Volume

COUNTED = "volume/"
"""Begins the names of counted volumes, as resources of nodes."""
HOSTNAME = "kubernetes.io/hostname"
Pin = tuple[str, str]
"""The one label (or, for ``''``, the name) by which a volume names its only node."""


class Holder(NamedTuple):
    """The pod that has a claim for itself."""

    uid: str
    key: str
    uses: bool
    """It is on a node, or promised one; else it waits, as the first."""


class Supply(NamedTuple):
    """What serves claims that are not bound; claims by ``namespace/name``."""

    nodes: Mapping[str, tuple[NodeTerm, ...]] = {}
    """Of each claim that can be served: the terms of which one must hold; () for every node."""
    asks: Mapping[str, tuple[str, ...]] = {}
    """Which counted volumes a claim takes one of."""
    offers: Mapping[Pin, tuple[tuple[str, int], ...]] = {}
    """The counted volumes of nodes."""
    holders: Mapping[str, Holder] = {}
    """Of claims that one pod alone may use."""


NO_SUPPLY = Supply()


def supply_of(
    claims: Mapping[str, Claim],
    volumes: Mapping[str, Volume],
    classes: Mapping[str, StorageClass],
    *,
    waiting: Iterable[Pod],
    promised: Iterable[tuple[Pod, Node | None]],
    using: Mapping[str, Iterable[Pod]],
) -> Supply:
    """What serves the claims of pods that wait.

    Args:
        claims: by ``namespace/name``.
        volumes: by name.
        classes: by name.
        waiting: pods to be placed that mount claims, in any order.
        promised: pods that mount claims and were promised a node, but are not bound.
        using: pods that stand, by the keys of the claims they mount.
    """
    placed = list(promised)
    mounted: dict[str, list[Pod]] = defaultdict(list)
    for pod in sorted(waiting, key=lambda one: (one.created, one.key, one.uid)):
        for key in claim_keys(pod):
            mounted[key].append(pod)
    unbound = {key: claims[key] for key in sorted(mounted) if key in claims and waits(claims[key], classes)}
    holders = _holders(mounted, claims, placed, using)
    nodes: dict[str, tuple[NodeTerm, ...]] = {}
    by_hand: dict[str, Claim] = {}
    beside = {key: node for pod, node in placed if node is not None for key in claim_keys(pod)}
    for key, claim in unbound.items():
        kind = classes[claim.storage_class]
        if key in beside:
            nodes[key] = only_on(beside[key].name)
        elif kind.makes_volumes:
            nodes[key] = kind.topologies
        elif (kept := kept_volume(claim, volumes.values())) is not None:
            nodes[key] = kept.nodes
        else:
            by_hand[key] = claim
    if not by_hand:
        return Supply(nodes=nodes, holders=holders)
    taken = set(assign(unbound_of_promised(placed, claims, classes), volumes.values()).values())
    free = _by_class(one for one in volumes.values() if one.name not in taken)
    counted: dict[str, Claim] = {}
    for key, claim in by_hand.items():
        suiting = [one for one in free.get(claim.storage_class, ()) if suits(one, claim)]
        if len(mounted[key]) == 1 and suiting and all(pin(one) is not None for one in suiting):
            counted[key] = claim
        elif suiting:
            chosen = min(suiting, key=lambda one: (pin(one) is not None, one.size, one.name))
            nodes[key] = chosen.nodes
            free[claim.storage_class] = [one for one in free[claim.storage_class] if one is not chosen]
    asks, offers = _counted(counted, free)
    nodes.update(dict.fromkeys(asks, ()))
    return Supply(nodes=nodes, asks=asks, offers=offers, holders=holders)


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """The keys of the claims that a pod mounts."""
    return tuple(f"{pod.namespace}/{name}" for name in pod.shape.claims)


def waits(claim: Claim, classes: Mapping[str, StorageClass]) -> bool:
    """Whether the claim is bound when a pod that mounts it has been placed, and by nothing else."""
    kind = classes.get(claim.storage_class)
    gone = claim.terminating or claim.lost
    return kind is not None and kind.waits_for_pod and not (claim.bound or claim.volume or claim.selected_node or gone)


def kept_volume(claim: Claim, volumes: Iterable[Volume]) -> Volume | None:
    """The volume that is kept for the claim already: it is bound to it without us."""
    return next((one for one in volumes if one.claim == claim.key and one.claim_uid in {"", claim.uid}), None)


def suits(volume: Volume, claim: Claim) -> bool:
    """Whether an unbound volume can be bound to the claim, wherever it is."""
    return (
        volume.free
        and volume.storage_class == claim.storage_class
        and volume.size >= claim.size
        and volume.volume_mode == claim.volume_mode
        and set(claim.access_modes) <= set(volume.access_modes)
        and selects(claim.selector, volume.labels)
    )


def reaches(node: Node, terms: Sequence[NodeTerm]) -> bool:
    """Whether one of the terms holds on the node, or there are none."""
    return not terms or any(
        (term.labels or term.fields)
        and all(requirement_holds(one, node.labels.get(one.key)) for one in term.labels)
        and all(requirement_holds(one, node.name) for one in term.fields)
        for term in terms
    )


def only_on(name: str) -> tuple[NodeTerm, ...]:
    """The term that holds on the node of this name alone."""
    return (NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=(name,)),)),)


def pin(volume: Volume) -> Pin | None:
    """What names the one node of a volume; None where several may reach it."""
    if len(volume.nodes) != 1:
        return None
    (term,) = volume.nodes
    for found, key in ((term.labels, HOSTNAME), (term.fields, "metadata.name")):
        others = term.fields if found is term.labels else term.labels
        if len(found) == 1 and not others and found[0].key == key and found[0].operator == "In":
            values = found[0].values
            return ("" if key != HOSTNAME else HOSTNAME, values[0]) if len(values) == 1 else None
    return None


def with_offers(node: Node, supply: Supply) -> Node:
    """The node with the counted volumes that are on it, among its resources."""
    if not supply.offers:
        return node
    found: dict[str, int] = defaultdict(int)
    for place in ((HOSTNAME, node.labels.get(HOSTNAME, "")), ("", str(node.name))):
        for name, number in supply.offers.get(place, ()):
            found[name] += number
    if not found:
        return node
    return msgspec.structs.replace(node, extended=tuple(sorted((*node.extended, *found.items()))))


def unbound_of_promised(
    promised: Iterable[tuple[Pod, Node | None]], claims: Mapping[str, Claim], classes: Mapping[str, StorageClass]
) -> list[tuple[Claim, Node]]:
    """The claims of placed pods that still need a volume made by people, each once, with the node."""
    found: dict[str, tuple[Claim, Node]] = {}
    for pod, node in promised:
        for key in claim_keys(pod):
            claim = claims.get(key)
            if node is None or claim is None or key in found or not waits(claim, classes):
                continue
            if not classes[claim.storage_class].makes_volumes:
                found[key] = (claim, node)
    return list(found.values())


def assign(
    placed: Iterable[tuple[Claim, Node]], volumes: Iterable[Volume], *, fixed: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The volume of each claim of a placed pod, for as many as can have one: names of volumes by keys of claims.

    ``fixed`` are choices that stay. Earlier claims come first, each with the smallest volume that suits; one moves to another
    volume where that lets a later claim have one.
    """
    chosen = dict(fixed or {})
    there = list(volumes)
    kept = {one.claim for one in there if one.claim}
    free = _by_class(one for one in there if one.name not in set(chosen.values()))
    options: dict[str, list[str]] = {}
    for claim, node in placed:
        if claim.key in chosen or claim.key in kept:
            continue
        fitting = [one for one in free.get(claim.storage_class, ()) if suits(one, claim) and reaches(node, one.nodes)]
        options[claim.key] = [one.name for one in sorted(fitting, key=lambda one: (one.size, one.name))]
    taken: dict[str, str] = {}

    def place(key: str, tried: set[str]) -> bool:
        for name in options[key]:
            if name not in tried:
                tried.add(name)
                if name not in taken or place(taken[name], tried):
                    taken[name] = key
                    return True
        return False

    for key in options:
        place(key, set())
    return {**chosen, **{key: name for name, key in taken.items()}}


def _by_class(volumes: Iterable[Volume]) -> dict[str, list[Volume]]:
    found: dict[str, list[Volume]] = defaultdict(list)
    for one in volumes:
        if one.free:
            found[one.storage_class].append(one)
    return found


def _holders(
    mounted: Mapping[str, Sequence[Pod]],
    claims: Mapping[str, Claim],
    placed: Iterable[tuple[Pod, Node | None]],
    using: Mapping[str, Iterable[Pod]],
) -> dict[str, Holder]:
    promised: dict[str, list[Pod]] = defaultdict(list)
    for pod, _ in placed:
        for key in claim_keys(pod):
            promised[key].append(pod)
    holders = {}
    for key, pods in mounted.items():
        claim = claims.get(key)
        if claim is None or SINGLE_POD not in claim.access_modes:
            continue
        users = [*using.get(key, ()), *promised[key]]
        first = min(users, key=lambda one: (one.created, one.key, one.uid), default=None)
        if first is not None:
            holders[key] = Holder(first.uid, first.key, uses=True)
            continue
        first = next((one for one in pods if not one.gated and not one.terminating), None)
        if first is not None:
            holders[key] = Holder(first.uid, first.key, uses=False)
    return holders


def _counted(
    claims: Mapping[str, Claim], free: Mapping[str, Sequence[Volume]]
) -> tuple[dict[str, tuple[str, ...]], dict[Pin, tuple[tuple[str, int], ...]]]:
    """Counted volumes: which of them each claim takes one of, and how many of each a node has."""
    suiting: dict[str, frozenset[str]] = {}
    where: dict[str, Pin] = {}
    names: dict[frozenset[str], str] = {}
    for key, claim in sorted(claims.items(), key=lambda item: (item[1].storage_class, item[1].size, item[0])):
        found = {
            one.name: place for one in free.get(claim.storage_class, ()) if suits(one, claim) and (place := pin(one))
        }
        if not found:
            continue
        where.update(found)
        same = suiting[key] = frozenset(found)
        if same not in names:
            said = f"{COUNTED}{claim.storage_class}/{format_bytes(claim.size)}"
            names[same] = said if said not in names.values() else f"{said}/{len(names)}"
    nested = all(one <= other or other <= one or not one & other for one in names for other in names)
    takes = {
        same: tuple(sorted(name for other, name in names.items() if (same <= other if nested else same & other)))
        for same in names
    }
    counts: dict[Pin, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for same, name in names.items():
        for volume in same:
            counts[where[volume]][name] += 1
    return (
        {key: takes[same] for key, same in suiting.items()},
        {place: tuple(sorted(found.items())) for place, found in counts.items()},
    )
