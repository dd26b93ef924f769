"""Pods of one shape on the rows that are left to them: fullest rows first, then their cards.

Where more is to be decided (which domain, which role first, other pods near by) the rows were chosen before; see
`muster.decide.placement.greedy`.
"""

from typing import NamedTuple

import numpy as np

from muster.decide.asks import RoleAsk
from muster.decide.fleet import Ints, Mask
from muster.decide.placement.feasibility import capacity
from muster.decide.placement.fragmentation import Mix
from muster.decide.placement.packing import best_row, next_row, order_cards, order_rows
from muster.decide.placement.several import cards_for
from muster.decide.room import Pod, Room
from muster.model.pods import CardUse, Shape
from muster.model.policy import Packing
from muster.model.units import CardIndex, CorePercent, MiB


class Landed(NamedTuple):
    """One pod of a role (by number in the ask) on a row, with its cards."""

    role: int
    row: int
    cards: tuple[CardUse, ...]


class Landing:
    """Puts pods of one shape on rows, best first, and takes their room."""

    def __init__(
        self,
        room: Room,
        packing: Packing,
        *,
        blocked: dict[Shape, Mask] | None = None,
        largest_cards: bool = False,
        mix: Mix | None = None,
    ) -> None:
        """``largest_cards``: shares go to the cards of which they are the smallest part."""
        self.room = room
        self.packing = packing
        self.blocked = blocked or {}
        self.largest_cards = largest_cards
        self.mix = mix

    def capacity(self, shape: Shape, rows: Mask | None) -> Ints:
        """How many pods of the shape fit on each of these rows; rows that refused it lately take none."""
        blocked = self.blocked.get(shape)
        if blocked is not None:
            rows = ~blocked if rows is None else rows & ~blocked
        return capacity(self.room, shape, rows)

    def alike(self, role: RoleAsk, count: int) -> list[Landed]:
        """Pods of equal gangs of one pod each, as many as there is room for, as if they came one after the other."""
        landed: list[Landed] = []
        shape = role.shape
        if count == 1 and self.mix is None and shape not in self.blocked:
            row = next_row(self.room, shape, self.packing)
            if row is not None:
                if row < 0:
                    return landed
                cards = self.room.whole_cards(row, shape.request.cards)
                self.room.take(row, shape.request, cards, kind=shape.kind)
                return [Landed(0, row, cards)]
        self.pods(0, role, count, self.capacity(shape, None), landed)
        return landed

    def pods(self, number: int, role: RoleAsk, count: int, fits: Ints, landed: list[Landed]) -> None:
        """Put up to ``count`` pods where they fit, best rows first."""
        shape = role.shape
        if shape.request.share is not None:
            self._shares(number, role, count, fits, landed)
            return
        if count == 1:
            rows = [best_row(self.room, shape, self.packing, fits, mix=self.mix)] if fits.any() else []
        else:
            rows = order_rows(self.room, shape, self.packing, np.flatnonzero(fits), most=count, mix=self.mix).tolist()
        taken = []
        for row in rows:
            here = min(count, int(fits[row]))
            taken += [
                Landed(number, row, cards) for cards in self.room.whole_cards_each(row, shape.request.cards, here)
            ]
            count -= here
            if not count:
                break
        self.room.take_together([Pod(one.row, shape, one.cards) for one in taken])
        landed += taken

    def _shares(self, number: int, role: RoleAsk, count: int, fits: Ints, landed: list[Landed]) -> None:
        shape, fleet = role.shape, self.room.fleet
        share = shape.request.share
        assert share is not None
        if share.count > 1:
            self._several(number, role, count, fits, landed)
            return
        slots = order_cards(
            self.room,
            shape,
            self.packing,
            np.flatnonzero(fits),
            largest_first=self.largest_cards,
            most=count,
            mix=self.mix,
        )
        left = fits.copy()
        for row, position, takes, fresh in zip(
            slots.rows.tolist(), slots.positions.tolist(), slots.fits.tolist(), slots.fresh.tolist(), strict=True
        ):
            if fresh and self.room.whole_free[row] <= 0:
                continue
            use = CardUse(
                index=CardIndex(int(fleet.card_index[row, position])),
                memory_mib=MiB(share.memory_mib),
                core_percent=CorePercent(share.core_percent),
            )
            for _ in range(min(count, takes, int(left[row]))):
                self.room.take(row, shape.request, (use,), ports=shape.host_ports, kind=shape.kind)
                landed.append(Landed(number, row, (use,)))
                left[row] -= 1
                count -= 1
            if not count:
                return

    def _several(self, number: int, role: RoleAsk, count: int, fits: Ints, landed: list[Landed]) -> None:
        """Pods that take shares of several cards each."""
        request = role.shape.request
        for row in order_rows(self.room, role.shape, self.packing, np.flatnonzero(fits)).tolist():
            here = min(count, int(fits[row]))
            for number_here in range(here):
                cards = cards_for(self.room, row, request, more=here - number_here - 1)
                if not cards:
                    break
                self.room.take(row, request, cards, ports=role.shape.host_ports)
                landed.append(Landed(number, row, cards))
                count -= 1
            if not count:
                return
