"""What a decision starts from, derived from the snapshot: the fleet, the free room, the queues' usage, what gangs ask.

    start_of(snapshot)        all of it, from nothing
    Basis.start(snapshot)     the same, from what was kept since the last snapshot and what changed since then

A decision changes the room it was given and the usage; `Basis.give_back` undoes that, so that the next one starts from what stands.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from muster.decide.asks import Ask, asks_of
from muster.decide.fleet import Fleet, alike
from muster.decide.held import Held, held_by, held_by_gang, held_by_hold, held_by_occupant
from muster.decide.join import Changes, Place
from muster.decide.ordered import Ordered
from muster.decide.ordering import gang_key_order
from muster.decide.placement.recount import Recount
from muster.decide.room import Room
from muster.decide.shares import Amounts, Tree, add, charge_at, charge_holds, gang_charge, total_of, tree_of
from muster.model.gangs import Gang, Member
from muster.model.nodes import Node
from muster.model.snapshot import Occupant, Snapshot
from muster.model.units import GangKey, NodeName, PodUid, QueueName

MOST_CHANGES = 200_000
MOST_DERIVED = 400
"""Beyond these, what was derived from a kept room is forgotten."""

Source = tuple[int, Place]
"""Who holds room: 0, a gang; 1, an occupant; 2, a hold of an open entry."""


class Start(NamedTuple):
    """What `decide` works on."""

    fleet: Fleet
    room: Room
    empty: Room
    """The emptied cluster, in which what could ever fit is tried."""
    tree: Tree
    asks: dict[GangKey, Ask]
    recount: Recount
    """The validator's own; it is derived from nothing of the above."""


def start_of(snapshot: Snapshot, fleet: Fleet | None = None) -> Start:
    """Everything from nothing. ``fleet`` may be given by a caller that kept it: of the same nodes and levels."""
    fleet = fleet or Fleet(snapshot.nodes, snapshot.topology_levels, snapshot.hypernodes)
    room = Room(fleet, held_by(snapshot))
    return Start(fleet, room, Room(fleet), tree_of(snapshot, room), asks_of(snapshot.gangs), Recount())


def _nothing() -> Changes:
    return Changes({}, {}, {}, everything=False)


class Basis:
    """What is kept from one decision to the next; for one sequence of snapshots, one decision at a time."""

    def __init__(self) -> None:
        self.memo: dict[object, object] = {}
        """What others keep beside it from one snapshot to the next; the key says who and what, and they see to its being right."""
        self._noted = _nothing()
        self._recount = Recount()
        self._room: Room | None = None
        self._empty: Room | None = None
        self._gangs: dict[Place, Gang] = {}
        self._occupants: dict[Place, Occupant] = {}
        self._held: dict[Source, dict[PodUid, Held]] = {}
        self._on: list[dict[tuple[Source, PodUid], Held]] = []
        """Everything that is held on a row."""
        self._charged: dict[Place, tuple[QueueName, Amounts]] = {}
        self._usage: dict[QueueName, Amounts] = {}
        self._sharing: set[Place] = set()
        """Gangs that are charged for shares: by the memory of the cards they are on."""
        self._occupied: Amounts = {}
        """What occupants take out of the cluster, together and one by one."""
        self._occupied_by: dict[Place, Amounts] = {}
        self._asks: Ordered[tuple[int, float, int, str], Ask] = Ordered()
        self._ask_at: dict[Place, tuple[int, float, int, str]] = {}

    @property
    def lost(self) -> bool:
        """Whether only changes that tell everything can be followed now."""
        return self._room is None and not self._noted.everything

    def note(self, changes: Changes) -> None:
        """What the next snapshot differs in from the last one; adds up until it is looked at."""
        if changes.everything:
            self._noted = changes
            return
        self._noted.gangs.update(changes.gangs)
        self._noted.occupants.update(changes.occupants)
        self._noted.holds.update(changes.holds)

    def start(self, snapshot: Snapshot) -> Start:
        """What a decision on this snapshot starts from; to be given back before the next.

        Raises:
            ValueError: it is lost; see `lost`.
        """
        if self.lost:
            raise ValueError("nothing is kept, and not everything was noted")
        changes, self._noted = self._noted, _nothing()
        room, empty = self._room, self._empty
        self._room = None  # until all has gone well
        fleet = None if changes.everything or room is None else self._renewed(room.fleet, snapshot)
        if fleet is None or room is None or empty is None:
            fleet = Fleet(snapshot.nodes, snapshot.topology_levels, snapshot.hypernodes)
            room, empty = self._anew(snapshot, changes, fleet)
        else:
            self._follow(snapshot, changes, fleet, room, empty)
        self._room, self._empty = room, empty
        _bound(room)
        _bound(empty)
        asks = {ask.gang.key: ask for ask in self._asks}
        return Start(fleet, room, empty, self._tree(snapshot, fleet), asks, self._recount)

    def give_back(self) -> None:
        """The decision is over."""
        for room in (self._room, self._empty):
            if room is not None:
                room.rollback(0)

    # --- nodes -------------------------------------------------------------------------------------------------------

    @staticmethod
    def _renewed(fleet: Fleet, snapshot: Snapshot) -> Fleet | None:
        """The fleet of the snapshot, if it can be had from the last one row by row."""
        if fleet.nodes is snapshot.nodes:
            return fleet
        if len(fleet.nodes) != len(snapshot.nodes) or fleet.hypernodes != snapshot.hypernodes:
            return None
        changed: dict[NodeName, Node] = {}
        for before, after in zip(fleet.nodes, snapshot.nodes, strict=True):
            if before is after:
                continue
            if before.name != after.name:
                return None
            if not alike(before, after):
                changed[after.name] = after
        return fleet.renewed(changed) if changed else fleet

    def _anew(self, snapshot: Snapshot, changes: Changes, fleet: Fleet) -> tuple[Room, Room]:
        """Everything from nothing; without changes that tell everything, of what is known with them."""
        gangs = {**self._gangs, **changes.gangs} if not changes.everything else changes.gangs
        occupants = {**self._occupants, **changes.occupants} if not changes.everything else changes.occupants
        self._held, self._on = {}, [{} for _ in fleet.names]
        self._gangs, self._occupants, self._asks, self._ask_at = {}, {}, Ordered(), {}
        self._charged, self._usage, self._sharing = {}, {}, set()
        self._occupied, self._occupied_by = {}, {}
        for place, gang in gangs.items():
            self._change_gang(place, gang, fleet, terms=snapshot.pod_terms)
        for place, occupant in occupants.items():
            self._change_occupant(place, occupant, fleet, terms=snapshot.pod_terms)
        for hold in snapshot.holds:
            self._hold((2, (0, 0.0, "", hold.uid)), {hold.uid: held_by_hold(hold)}, fleet)
        return Room(fleet, held_by(snapshot)), Room(fleet)

    # --- changes -----------------------------------------------------------------------------------------------------

    def _follow(self, snapshot: Snapshot, changes: Changes, fleet: Fleet, room: Room, empty: Room) -> None:
        rows: set[int] = set()
        renewed = set()
        if fleet is not room.fleet:
            pairs = zip(room.fleet.nodes, fleet.nodes, strict=True)
            renewed = {row for row, (before, after) in enumerate(pairs) if before is not after}
            empty.reload(fleet, sorted(renewed), ())
            cards = sorted(renewed)
            same = np.array_equal(room.fleet.card_memory[cards], fleet.card_memory[cards])
            if not same or not np.array_equal(room.fleet.card_usable[cards], fleet.card_usable[cards]):
                for place in tuple(self._sharing):
                    self._charge(place, self._gangs[place], fleet)
                for spot, occupant in self._occupants.items():
                    if occupant.request.share is not None:
                        self._charge_occupant(spot, occupant, fleet)
        for place, gang in changes.gangs.items():
            rows |= self._change_gang(place, gang, fleet, terms=snapshot.pod_terms)
        for spot, changed in changes.occupants.items():
            rows |= self._change_occupant(spot, changed, fleet, terms=snapshot.pod_terms)
        for uid, hold in changes.holds.items():
            rows |= self._hold((2, (0, 0.0, "", uid)), {uid: held_by_hold(hold)} if hold is not None else {}, fleet)
        rows |= renewed
        if rows:
            room.reload(fleet, sorted(rows), (held for row in sorted(rows) for held in self._held_on(row)))

    def _change_gang(self, place: Place, gang: Gang | None, fleet: Fleet, *, terms: bool) -> set[int]:
        where = self._ask_at.pop(place, None)
        if where is not None:
            self._asks.drop(where)
        old = self._gangs.pop(place, None)
        if gang is None:
            self._charge(place, gang, fleet)
            return self._hold((0, place), {}, fleet)
        self._gangs[place] = gang
        ask = asks_of((gang,)).get(gang.key)
        if ask is not None:
            where = self._ask_at[place] = gang_key_order(gang)
            self._asks.put(where, ask)
        touched = None if old is None or place in self._sharing else _touched(old, gang)
        if old is None or touched is None:
            self._charge(place, gang, fleet)
            return self._hold((0, place), dict(held_by_gang(gang, terms=terms)), fleet)
        # The members that are the same objects hold what they held.
        before = msgspec.structs.replace(old, members=tuple(pair[0] for pair in touched))
        after = msgspec.structs.replace(gang, members=tuple(pair[1] for pair in touched))
        self._recharge(place, gang.queue, gang_charge(before, fleet), gang_charge(after, fleet))
        gone, come = dict(held_by_gang(before, terms=terms)), dict(held_by_gang(after, terms=terms))
        return self._hold((0, place), come, fleet, gone=gone)

    def _change_occupant(self, place: Place, occupant: Occupant | None, fleet: Fleet, *, terms: bool) -> set[int]:
        self._charge_occupant(place, occupant, fleet)
        if occupant is None:
            self._occupants.pop(place, None)
            return self._hold((1, place), {}, fleet)
        self._occupants[place] = occupant
        return self._hold((1, place), {occupant.uid: held_by_occupant(occupant, terms=terms)}, fleet)

    def _hold(
        self, source: Source, new: dict[PodUid, Held], fleet: Fleet, *, gone: dict[PodUid, Held] | None = None
    ) -> set[int]:
        """What a source holds is now so, or differs so from what it held (``gone``); the rows on which that is a change."""
        held_before = self._held.get(source, {})
        old = held_before if gone is None else gone
        rows: set[int] = set()
        for uid, held in old.items():
            if new.get(uid) != held and (row := fleet.row_of.get(held.node)) is not None:
                self._on[row].pop((source, uid), None)
                rows.add(row)
        for uid, held in new.items():
            if old.get(uid) != held and (row := fleet.row_of.get(held.node)) is not None:
                self._on[row][source, uid] = held
                rows.add(row)
        if gone is not None:
            for uid in gone:
                held_before.pop(uid, None)
            held_before.update(new)
            new = held_before
        if new:
            self._held[source] = new
        else:
            self._held.pop(source, None)
        return rows

    def _held_on(self, row: int) -> Iterable[Held]:
        """What is held on a row; in the snapshot's order where cards have to be guessed, since that decides which."""
        on = self._on[row]
        if all(held.cards or not (held.request.cards or held.request.share) for held in on.values()):
            return on.values()
        ordered: list[Held] = []
        for source in sorted({source for source, _ in on}):
            gang = self._gangs[source[1]] if source[0] == 0 else None
            uids = self._held[source] if gang is None else (member.uid for member in gang.members)
            ordered.extend(on[source, uid] for uid in uids if (source, uid) in on)
        return ordered

    # --- shares ------------------------------------------------------------------------------------------------------

    def _charge(self, place: Place, gang: Gang | None, fleet: Fleet) -> None:
        before = self._charged.pop(place, None)
        if before is not None:
            self._use(before[0], before[1], -1)
        self._sharing.discard(place)
        if gang is None:
            return
        amounts = gang_charge(gang, fleet)
        if amounts:
            self._charged[place] = gang.queue, amounts
            self._use(gang.queue, amounts)
        if any(role.shape.request.share is not None for role in gang.roles):
            self._sharing.add(place)

    def _recharge(self, place: Place, queue: QueueName, less: Amounts, more: Amounts) -> None:
        """A gang of the same queue is charged so much less, and more."""
        amounts = self._charged.setdefault(place, (queue, {}))[1]
        for charge, sign in ((less, -1), (more, 1)):
            add(amounts, charge, sign)
            self._use(queue, charge, sign)

    def _use(self, queue: QueueName, amounts: Amounts, times: int = 1) -> None:
        usage = self._usage.setdefault(queue, {})
        add(usage, amounts, times)
        for resource in [resource for resource in amounts if not usage[resource]]:
            del usage[resource]

    def _charge_occupant(self, place: Place, occupant: Occupant | None, fleet: Fleet) -> None:
        gone = self._occupied_by.pop(place, {})
        add(self._occupied, gone, -1)
        for resource in [resource for resource in gone if not self._occupied[resource]]:
            del self._occupied[resource]
        if occupant is not None:
            charge = charge_at(fleet, occupant.request, occupant.node, occupant.cards)
            self._occupied_by[place] = charge
            add(self._occupied, charge)

    def _tree(self, snapshot: Snapshot, fleet: Fleet) -> Tree:
        tree = Tree(snapshot.queues)
        for queue, amounts in self._usage.items():
            tree.charge(queue, amounts)
        if snapshot.holds:
            charge_holds(tree, snapshot, fleet)
        if any(queue.guarantee for queue in snapshot.queues):
            total = total_of(fleet)
            add(total, self._occupied, -1)
            tree.reserve(total)
        return tree


def _bound(room: Room) -> None:
    if len(room.changed) > MOST_CHANGES or len(room.derived) + len(room.scores) > MOST_DERIVED:
        room.forget()


def _touched(old: Gang, new: Gang) -> list[tuple[Member, Member]] | None:
    """Members that are not the same objects, before and after; None when the gangs differ in more than members' states."""
    if len(old.members) != len(new.members) or old.queue != new.queue or old.roles != new.roles:
        return None
    pairs = [(before, after) for before, after in zip(old.members, new.members, strict=True) if before is not after]
    return pairs if all(before.uid == after.uid for before, after in pairs) else None
