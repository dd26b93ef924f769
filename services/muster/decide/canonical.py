"""An order of nodes by what they are, not by what they are called: it decides wherever nothing else does.

    labels and domains   without labels that say the node's own name
    kind                 taints, card model, mode and resource, ready or not
    numbers              what is offered and free, card by card
    name                 last: between nodes that are alike in all of this

With the same pods waiting, clusters that differ in node names alone get plans that differ in names alone. Not looked at: host
ports, and which pods stand on a node as far as only terms between pods tell.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from muster.decide.fleet import Fleet, Ints
from muster.decide.room import Room

ODD = 0x5851F42D4C957F2D
STEP = 0x14057B7EF767814F
"""Odd numbers without a pattern in their bits (multipliers of linear congruential generators)."""


def canonical_ranks(room: Room) -> Ints:
    """The place of every row in that order, as the room is now."""
    fleet = room.fleet
    now = [room.free, room.whole_free[:, None], room.card_memory, room.card_core, room.card_users]
    states = _offered(fleet) + _state(now, first=0)
    order = np.lexsort((states, _kinds(fleet), _labels(fleet)))
    ranks = np.empty(fleet.size, dtype=np.int64)
    ranks[order] = np.arange(fleet.size)
    return ranks


def _state(numbers: Sequence[npt.NDArray[np.generic]], *, first: int) -> Ints:
    """One number for each row of these (wrapping sums of odd multiples): by chance shared, then the name decides."""
    state = np.zeros(len(numbers[0]), dtype=np.int64)
    for number, columns in enumerate(numbers):
        places = np.arange(columns.shape[1], dtype=np.int64) + 1000 * (first + number)
        state += columns.astype(np.int64) @ (places * STEP * ODD | 1)
    return state


def _offered(fleet: Fleet) -> Ints:
    found = fleet.memo.get("canonical offers")
    if found is None:
        cards = [fleet.card_usable, fleet.card_memory, fleet.card_index, fleet.link_group]
        offers = _state([fleet.total, fleet.allocatable_cards[:, None], *cards], first=100)
        found = fleet.memo["canonical offers"] = offers
    assert isinstance(found, np.ndarray)
    return found


def _kinds(fleet: Fleet) -> Ints:
    found = fleet.memo.get("canonical kinds")
    if found is None:
        found = fleet.memo["canonical kinds"] = _ranked(
            [
                repr(
                    (
                        *(node.taints, node.gpu_model, node.card_mode, node.card_resource),
                        *(node.ready, node.unschedulable, bool(node.withheld)),
                    )
                )
                for node in fleet.nodes
            ]
        )
    assert isinstance(found, np.ndarray)
    return found


def _labels(fleet: Fleet) -> Ints:
    found = fleet.label_memo.get("canonical labels")
    if found is None:
        levels = (*fleet.topology.hierarchy, *fleet.topology.dimensions)
        found = fleet.label_memo["canonical labels"] = _ranked(
            [
                repr(
                    (
                        [level.domain_of[row] or "" for level in levels],
                        sorted(pair for pair in node.labels.items() if pair[1] != node.name),
                    )
                )
                for row, node in enumerate(fleet.nodes)
            ]
        )
    assert isinstance(found, np.ndarray)
    return found


def _ranked(keys: list[str]) -> Ints:
    """The place of each key among the different ones."""
    places = {key: place for place, key in enumerate(sorted(set(keys)))}
    return np.array([places[key] for key in keys], dtype=np.int64)
