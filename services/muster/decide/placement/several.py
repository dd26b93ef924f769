"""Pods that take shares of several cards of one node: which cards each gets.

Used cards first, the fullest of them; untouched ones are opened last, as far as the kubelet still offers them. Where that would
leave too little for the pods that follow, the cards that take most shares. How many such pods a node takes is counted in
`muster.decide.placement.feasibility`.
"""

import numpy as np

from muster.decide.fleet import Ints
from muster.decide.placement.feasibility import pods_on, share_fits
from muster.decide.room import Room
from muster.model.pods import CardUse, Request
from muster.model.units import CardIndex, CorePercent, MiB


def cards_for(room: Room, row: int, request: Request, *, more: int = 0) -> tuple[CardUse, ...]:
    """Different cards of one row for one pod, () when there are too few; ``more`` such pods are to fit there after it."""
    share, fleet = request.share, room.fleet
    assert share is not None
    rows: Ints = np.array([row])
    fits = share_fits(room, request, rows)[0]
    users = room.card_users[row]
    used = sorted(
        np.flatnonzero((fits > 0) & (users > 0)).tolist(),
        key=lambda position: (int(room.card_memory[row, position]), int(room.card_core[row, position]), position),
    )
    fresh = np.flatnonzero((fits > 0) & (users == 0)).tolist()[: max(0, int(room.whole_free[row]))]
    usable = [*used, *fresh]
    chosen = usable[: share.count]
    if len(chosen) < share.count:
        return ()
    left = [int(fits[position]) - (position in chosen) for position in usable]
    if more and pods_on(left, share.count, more) < more:
        chosen = sorted(usable, key=lambda position: -int(fits[position]))[: share.count]
    return tuple(
        CardUse(
            index=CardIndex(int(fleet.card_index[row, position])),
            memory_mib=MiB(share.memory_mib),
            core_percent=CorePercent(share.core_percent),
        )
        for position in sorted(chosen)
    )
