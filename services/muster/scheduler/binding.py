"""Which Bindings may go out now, and what they carry.

On nodes of card mode `volcano` the kubelet's Allocate call does not name the pod, so at most one pod with cards may be
between its Binding and its allocation there at a time (the plugin marks an allocated pod; see decide.assignment).
"""

from collections.abc import Iterable

from muster.decide.assignment import assignment_annotations, is_allocating
from muster.decide.commitments import LedgerView, OpenEntry
from muster.decide.settling import Steps
from muster.model.instructions import Slot
from muster.model.nodes import CardMode, Node
from muster.model.pods import Pod
from muster.model.units import CardIndex, NodeName
from muster.view.world import World


def annotations_of(slot: Slot, node: Node, now: float, *, reserved_uuid: str = "") -> dict[str, str]:
    """The annotations that ride on the Binding: the card assignment as the node's plugin reads it."""
    return assignment_annotations(slot, node, now, reserved_uuid=reserved_uuid)


def reserved_places(view: LedgerView, world: World) -> Iterable[tuple[NodeName, CardIndex]]:
    """Card groups of reserved nodes on which open and lingering entries promise shares."""
    promised = [slot for entry in view.open.values() for slot in entry.slots]
    promised += [slot for item in view.lingering for slot in item.slots]
    for slot in promised:
        node = world.nodes.get(slot.node)
        if node is not None and node.card_mode is CardMode.RESERVED:
            yield from ((slot.node, use.index) for use in slot.cards)


def may_bind_now(world: World, steps: Steps, view: LedgerView | None = None) -> list[tuple[OpenEntry, Slot]]:
    """The Bindings that may go out now: everything, but one allocating pod at a time on nodes whose plugin needs it.

    A pod may have been bound already, although STATE does not show it yet, when it is being taken back, when its entry cannot
    be completed and is about to be taken back, or when a leader that saw more has closed its entry: it counts.

    Args:
        world: STATE.
        steps: what the view calls for.
        view: the LEDGER up to now; None: nothing but these steps is promised.
    """
    serial = {slot.node for _, slot in steps.binds if slot.cards and _obeys(world.nodes.get(slot.node))}
    if not serial:
        return list(steps.binds)
    taken: set[NodeName] = {pod.node for pod in world.starting.values() if pod.node in serial and _allocating(pod)}
    taken |= {slot.node for slot in _elsewise(steps, view) if slot.cards and _not_bound(world.by_uid.get(slot.uid))}
    allowed: list[tuple[OpenEntry, Slot]] = []
    for entry, slot in steps.binds:
        if slot.node in serial and slot.cards:
            if slot.node in taken:
                continue
            taken.add(slot.node)
        allowed.append((entry, slot))
    return allowed


def _elsewise(steps: Steps, view: LedgerView | None) -> Iterable[Slot]:
    """Slots that were promised and are not to be bound now."""
    yield from (slot for _, slot in steps.undos)
    if view is None:
        return
    now = {(entry.sequence, slot.uid) for entry, slot in steps.binds}
    for entry in view.open.values():
        yield from (slot for slot in entry.slots if (entry.sequence, slot.uid) not in now)
    for item in view.lingering:
        yield from item.slots


def _not_bound(pod: Pod | None) -> bool:
    return pod is None or pod.node is None


def _obeys(node: Node | None) -> bool:
    return node is not None and node.card_mode is CardMode.VOLCANO


def _allocating(pod: Pod) -> bool:
    return bool(pod.cards) and not pod.terminating and is_allocating(pod)
