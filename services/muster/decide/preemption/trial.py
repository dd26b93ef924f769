"""A room and usage from which units are taken away, to see whether a gang fits then; everything can be put back."""

from collections.abc import Iterable

import numpy as np

from muster.decide.asks import Ask
from muster.decide.fleet import CPU, MEMORY, PODS, Mask
from muster.decide.held import member_kind
from muster.decide.placement.greedy import Greedy, Landed
from muster.decide.preemption.victims import Unit
from muster.decide.room import Room
from muster.decide.shares import Amounts, Tree, add, charge_at
from muster.model.gangs import Member
from muster.model.pods import Kind, Shape
from muster.model.policy import Packing


class Trial:
    """What would be free, and used, if units left."""

    def __init__(self, room: Room, tree: Tree, packing: Packing, *, blocked: dict[Shape, Mask] | None = None) -> None:
        self.room = room
        self.tree = tree
        self.packing = packing
        self.blocked = dict(blocked or {})
        self.only: Mask | None = None
        """Rows on which room is given back; None: on all. Usage is always that without the units."""

    def block(self, shapes: Iterable[Shape], rows: Mask) -> None:
        """From here on nothing of these shapes is placed on these rows."""
        for shape in shapes:
            known = self.blocked.get(shape)
            self.blocked[shape] = rows if known is None else known | rows

    def _kind(self, unit: Unit, member: Member) -> Kind | None:
        return member_kind(unit.gang, member) if self.room.neighbours is not None else None

    def without(self, units: Iterable[Unit]) -> int:
        """Take units away; the mark that `put_back` needs."""
        mark = self.room.mark()
        for unit in units:
            shapes = {role.name: role.shape for role in unit.gang.roles}
            for member, row in zip(unit.members, unit.at, strict=True):
                if self.only is None or self.only[row]:
                    shape = shapes[member.role]
                    kind = self._kind(unit, member)
                    self.room.give(row, shape.request, member.cards, ports=shape.host_ports, kind=kind)
            self.tree.charge(unit.gang.queue, unit.charge, -1)
        return mark

    def stay(self, unit: Unit) -> None:
        """Give a unit that was taken away its room again; usage is left as it is."""
        shapes = {role.name: role.shape for role in unit.gang.roles}
        for member, row in zip(unit.members, unit.at, strict=True):
            if self.only is None or self.only[row]:
                shape = shapes[member.role]
                kind = self._kind(unit, member)
                self.room.take(row, shape.request, member.cards, ports=shape.host_ports, kind=kind)

    def put_back(self, units: Iterable[Unit], mark: int) -> None:
        """As before `without`."""
        self.room.rollback(mark)
        for unit in units:
            self.tree.charge(unit.gang.queue, unit.charge, 1)

    def place(self, ask: Ask) -> list[Landed] | None:
        """Where the gang's minimums would go, taken in the room; None when it does not fit or a capability forbids it."""
        mark = self.room.mark()
        landed = Greedy(self.room, self.packing, blocked=self.blocked).minimum(ask)
        if landed is not None and not self.tree.forbids(ask.gang.queue, self.charge(ask, landed)):
            return landed
        self.room.rollback(mark)
        return None

    def fits(self, ask: Ask, units: Iterable[Unit]) -> list[Landed] | None:
        """Where the gang would go if these units left; nothing stays changed."""
        leaving = list(units)
        mark = self.without(leaving)
        landed = self.place(ask)
        self.put_back(leaving, mark)
        return landed

    def charge(self, ask: Ask, landed: Iterable[Landed]) -> Amounts:
        """What the gang's queue would be charged."""
        charge: Amounts = {}
        fleet = self.room.fleet
        for one in landed:
            add(charge, charge_at(fleet, ask.roles[one.role].shape.request, fleet.names[one.row], one.cards))
        return charge

    def taken(self, ask: Ask, landed: Iterable[Landed]) -> frozenset[str]:
        """The resources that are missing now where the gang would go: only in these is a share judged.

        When only pod slots are missing, everything the gang asks counts.
        """
        room, fleet = self.room, self.room.fleet
        names = {column: name for name, column in fleet.dimensions.items()}
        needed: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        cards: dict[int, int] = {}
        missing: set[str] = set()
        places = list(landed)
        for one in places:
            request = ask.roles[one.role].shape.request
            vector = fleet.vector(request)
            assert vector is not None
            needed[one.row] = needed.get(one.row, np.zeros_like(vector)) + vector
            if request.share is None:
                cards[one.row] = cards.get(one.row, 0) + request.cards
                continue
            position = fleet.position_of[one.row][one.cards[0].index]
            used = (room.card_memory[one.row, position], room.card_core[one.row, position])
            if used[0] < request.share.memory_mib or used[1] < request.share.core_percent:
                missing.add("gpu")
        for row, vector in needed.items():
            for column in np.flatnonzero(vector > np.maximum(room.free[row], 0)).tolist():
                if column != PODS:
                    missing.add(names[column])
            if cards.get(row, 0) > room.whole_free[row]:
                missing.add("gpu")
        assert {CPU, MEMORY} <= names.keys()
        return frozenset(missing) or frozenset(self.charge(ask, places))
