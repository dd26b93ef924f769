"""Pods that counts of nodes do not tell enough about: the models leave their gangs where the greedy put them.

    terms     pods that ask something of their neighbours, those that such a term is about, and those that standing pods keep away
    several   pods that take shares of several cards: a variable of the models is of one card each

All others may move around them without breaking what they ask.
"""

from collections.abc import Collection

from muster.decide.neighbours import matches
from muster.decide.placement.feasibility import watched
from muster.decide.room import Room
from muster.decide.selecting import selects
from muster.model.pods import Shape


def untold(room: Room, shapes: Collection[Shape]) -> set[Shape]:
    """Which of these shapes, all of a round, the models do not tell; the room is with all that stands."""
    several = {one for one in shapes if one.request.share is not None and one.request.share.count > 1}
    asking = [one for one in shapes if one.namespace and one.has_terms]
    found = {one for one in shapes if watched(room, one) or any(_is_meant(one, by) for by in asking)}
    return several | found


def _is_meant(shape: Shape, by: Shape) -> bool:
    """Whether a required term of ``by`` is about pods of the shape."""
    if not shape.namespace:
        return False
    labels = dict(shape.labels)
    return any(
        not term.weight and matches(term, by.namespace, shape.namespace, labels) for term in by.pod_terms
    ) or any(one.required and by.namespace == shape.namespace and selects(one.labels, labels) for one in by.spread)
