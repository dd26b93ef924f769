"""An order of nodes by what they are, not by what they are called: it decides wherever nothing else does.

    labels and domains   without labels that say the node's own name
    kind                 taints, card model, mode and resource, ready or not
    numbers              what is offered and free, card by card
    name                 last: between nodes that are alike in all of this

With the same pods waiting, clusters that differ in node names alone get plans that differ in names alone. Not looked at: host
ports, and which pods stand on a node as far as only terms between pods tell.
"""

import numpy as np

from muster.decide.fleet import Fleet, Ints
from muster.decide.room import Room


def canonical_ranks(room: Room) -> Ints:
    """The place of every row in that order, as the room is now."""
    fleet = room.fleet
    cards = [
        fleet.card_usable,
        fleet.card_memory,
        fleet.card_index,
        fleet.link_group,
        room.card_memory,
        room.card_core,
        room.card_users,
    ]
    numbers = np.concatenate(
        [fleet.total, room.free, fleet.allocatable_cards[:, None], room.whole_free[:, None], *cards], axis=1
    ).astype(np.int64)
    # One number for each state (wrapping multiplication by powers of an odd number): by chance shared, then the name decides.
    states = numbers @ np.cumprod(np.full(numbers.shape[1], 0x5851F42D4C957F2D, dtype=np.int64))
    order = np.lexsort((states, _kinds(fleet), _labels(fleet)))
    ranks = np.empty(fleet.size, dtype=np.int64)
    ranks[order] = np.arange(fleet.size)
    return ranks


def _kinds(fleet: Fleet) -> Ints:
    found = fleet.memo.get("canonical kinds")
    if found is None:
        found = fleet.memo["canonical kinds"] = _ranked(
            [
                repr((node.taints, node.gpu_model, node.card_mode, node.card_resource, node.ready, node.unschedulable))
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
