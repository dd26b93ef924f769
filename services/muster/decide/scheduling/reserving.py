"""Reservations in one decision: made when a gang's turn comes and it does not fit, kept from those whose turn comes later.

    a gang fails at its turn   within its share and capability, few reservations so far ─► one for it, where it fits first
    its room                   what is free there now is held for it, never more than the policy lets stand idle
    gangs after it             may use what is held when they end before it starts, or may be asked to leave: then they run
                               backfilled for it; the others wait
    at the end                 reservations of gangs that still wait are remembered, with who runs backfilled for them

Gangs that come before it in the order of the line are not bound by it. Whoever waited too long goes before the others of its
queue (`promotion`), and takes the place of a reservation of one that has not.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from muster.decide.asks import Ask
from muster.decide.explaining.words import Why
from muster.decide.memory import Backfilled, CoreMemory, Reservation
from muster.decide.placement.feasibility import admission, capacity
from muster.decide.placement.greedy import Greedy, Landed
from muster.decide.room import Pod, Room
from muster.decide.scheduling.holds import Held
from muster.decide.scheduling.state import Round, least_charge
from muster.decide.shares import GPU, charge_at
from muster.decide.waiting.durations import expected_duration
from muster.decide.waiting.estimates import (
    Estimate,
    Outlook,
    Stay,
    allowed_from,
    lacking_of,
    preemptible,
    stay_of,
    stays,
)
from muster.decide.waiting.eviction import evicted_enough
from muster.decide.waiting.sentences import kept_out, waits_for_its_own
from muster.model.gangs import Gang
from muster.model.instructions import Slot
from muster.model.pods import Shape
from muster.model.policy import Packing, Policy
from muster.model.snapshot import Snapshot
from muster.model.units import ONE_CARD, Bytes, CardCount, GangKey, MilliCpu, NodeName

LOOK_AGAIN = 30.0
"""Seconds after which a place is looked for again, where there was none."""
MOST_LOOKED = 256


class Keeping:
    """See the module. Without reservations in the policy it does nothing."""

    def __init__(
        self,
        work: Round,
        empty: Room,
        snapshot: Snapshot,
        *,
        memory: CoreMemory,
        now: float,
        policy: Policy,
        asks: Collection[Ask],
        promoted: Mapping[GangKey, float],
        nominated: Collection[GangKey] = frozenset(),
    ) -> None:
        """``asks``: gangs that may be placed; ``nominated``: those for which room is freed by a plan already."""
        self.work, self.empty, self.snapshot = work, empty, snapshot
        self.memory, self.now, self.policy = memory, now, policy
        self.promoted = promoted
        waiting = {ask.gang.key: ask.gang.uid for ask in asks if ask.minimum}
        gone = {one.gang for one in memory.reservations if waiting.get(one.gang) != one.gang_uid}
        self.known = {one.gang: one for one in memory.reservations if one.gang not in gone or one.gang in nominated}
        self.nominated = nominated
        self.looked = {key: until for key, until in memory.looked.items() if until > now and key in waiting}
        self.asks: dict[GangKey, Ask] = {}
        self.places: dict[GangKey, tuple[tuple[int, int, int], ...]] = {}
        """Where each of them will stand, see `Estimate`."""
        self.held: dict[GangKey, list[Pod]] = {}
        """Room that is held now, of reservations whose gang had its turn."""
        self.backfilled: dict[tuple[GangKey, GangKey], set[NodeName]] = {}
        """(gang, for whom): nodes of pods that came one by one; nothing: the whole gang."""
        self.out: dict[GangKey, Held] = {}
        self._lost: dict[object, Held | None] = {}
        self._bound: set[GangKey] = set()
        """Gangs that may not use all that is held."""
        self._before: dict[GangKey, tuple[int, ...]] = {}
        self._stood: set[GangKey] = set()
        self._standing: list[Stay] | None = None

    @property
    def acts(self) -> bool:
        """Whether there may be reservations at all."""
        return self.policy.waiting.reservations > 0

    # --- turns -------------------------------------------------------------------------------------------------------

    def failed(self, ask: Ask) -> None:
        """The gang's turn came and it did not fit: reserve for it, and hold what is free of that."""
        if not self.acts or ask.gang.key in self.out:
            return
        key = ask.gang.key
        reservation = self._renewed(ask) or self._made(ask) or self._insisted(ask)
        if reservation is None:
            self.known.pop(key, None)
            return
        self.known[key] = reservation
        self.asks[key] = ask
        self._hold(key)

    def let_in(self, ask: Ask, attempt: Callable[[], bool], *, whole: bool) -> bool:
        """Try again with room that is held for others, as far as the gang may use it. ``whole``: the gang comes as a whole."""
        held = [key for key, pods in self.held.items() if pods and key != ask.gang.key]
        if not held:
            return False
        may = [key for key in held if self._may_use(ask, key)]
        sign = _signature(ask, whole=whole)
        if sign in self._lost:
            if len(may) < len(held):
                self._bound.add(ask.gang.key)
            if (why := self._lost[sign]) is not None:
                self.out[ask.gang.key] = why
            return False
        if may and self._try(ask, attempt, may, whole=whole):
            return True
        rest = [key for key in held if key not in may]
        if rest:
            self._bound.add(ask.gang.key)
        if whole and rest and ask.minimum:
            self._blame(ask, rest[0], held)
        self._lost[sign] = self.out.get(ask.gang.key)
        return False

    def _try(self, ask: Ask, attempt: Callable[[], bool], may: Sequence[GangKey], *, whole: bool) -> bool:
        room = self.work.room
        mark = room.mark()
        before = {key: self.held[key] for key in may}
        for key in may:
            self._lift(key)
        if not attempt():
            room.rollback(mark)
            self.held.update(before)
            return False
        mine = {room.fleet.names[one.row] for one in self.work.landed.get(ask.gang.key, ())}
        for key in may:
            self._hold(key)
            if _total(self.held[key]) < _total(before[key]) and not self._ends_before(ask.gang, key):
                nodes = self.backfilled.setdefault((ask.gang.key, key), set())
                if not whole:
                    nodes |= mine & set(self.known[key].nodes)
        return True

    def _blame(self, ask: Ask, key: GangKey, held: Sequence[GangKey]) -> None:
        """Say that the gang is kept out, if it is only that."""
        room = self.work.room
        mark = room.mark()
        before = dict(self.held)
        for one in held:
            self._lift(one)
        charge = least_charge(room, ask)
        fits = not self.work.tree.forbids(ask.gang.queue, charge) and self.work.greedy().minimum(ask) is not None
        room.rollback(mark)
        self.held.update(before)
        if fits:
            duration = expected_duration(self.memory, ask.gang)
            self.out[ask.gang.key] = Held(*kept_out(self.known[key], duration=duration))

    def _may_use(self, ask: Ask, key: GangKey) -> bool:
        if self._ends_before(ask.gang, key):
            return True
        evicts = self.policy.actions.preempt == "act" and not self.asks[key].gang.never_preempts
        # Who lost room too often within the hour is not asked to leave again: it would keep the gang waiting.
        spared = evicted_enough(self.memory, ask.gang.key, self.now, self.policy)
        return evicts and not spared and preemptible(ask.gang, self.policy)

    def _ends_before(self, gang: Gang, key: GangKey) -> bool:
        start = self.known[key].start
        duration = expected_duration(self.memory, gang)
        return bool(start) and duration is not None and self.now + duration <= (start or 0.0)

    # --- reservations ------------------------------------------------------------------------------------------------

    def _renewed(self, ask: Ask) -> Reservation | None:
        """The gang's reservation with its start as it is expected now; None when it has none, or it is of no use any more."""
        known = self.known.get(ask.gang.key)
        if known is None:
            return None
        found = self._found(ask, only=known.nodes)
        if found is None:
            return None
        self.places[ask.gang.key] = found.places
        return known if found.start == known.start else msgspec.structs.replace(known, start=found.start)

    def _made(self, ask: Ask) -> Reservation | None:
        key = ask.gang.key
        if key in self.looked or not ask.minimum or not self._free_place(key):
            return None
        mark = self.empty.mark()
        possible = Greedy(self.empty, Packing()).minimum(ask) is not None
        self.empty.rollback(mark)
        found = self._found(ask) if possible else None
        if found is None or not found.nodes:
            if len(self.looked) < MOST_LOOKED:
                self.looked[key] = self.now + LOOK_AGAIN
            return None
        self.places[key] = found.places
        return Reservation(
            gang=key,
            gang_uid=ask.gang.uid,
            nodes=found.nodes,
            made_at=self.now,
            start=found.start,
            domain=found.domain,
        )

    def _insisted(self, ask: Ask) -> Reservation | None:
        """For a gang that waited too long: also where nobody knows when its room will be free, or it would wait for ever.

        On the nodes that it has already, if those would hold it; else on any that would.
        """
        key, tree = ask.gang.key, self.work.tree
        charge = least_charge(self.work.room, ask)
        allowed = lacking_of(tree, ask, charge) is not None and tree.over_guarantees(ask.gang.queue, charge) is None
        if key not in self.promoted or not ask.minimum or not allowed or not self._free_place(key):
            return None
        fleet, known = self.work.room.fleet, self.known.get(key)
        shapes = {role.shape for role in ask.roles}
        elsewhere = np.ones(fleet.size, dtype=np.bool_)
        if known is not None:
            elsewhere[[fleet.row_of[name] for name in known.nodes if name in fleet.row_of]] = False
        mark = self.empty.mark()
        landed = None
        for blocked in (*([dict.fromkeys(shapes, elsewhere)] if known is not None else ()), {}):
            landed = Greedy(self.empty, Packing(), blocked=blocked).minimum(ask)
            self.empty.rollback(mark)
            if landed is not None:
                break
        if landed is None:
            return None
        counts = Counter((one.row, one.role) for one in landed)
        self.places[key] = tuple((row, role, number) for (row, role), number in counts.items())
        nodes = tuple(sorted({fleet.names[one.row] for one in landed}))
        made_at = self.now if known is None else known.made_at
        return Reservation(gang=key, gang_uid=ask.gang.uid, nodes=nodes, made_at=made_at)

    def _free_place(self, key: GangKey) -> bool:
        """Whether one more reservation is allowed; a promoted gang takes the latest place of one that is not."""
        others = [one for one in self.known.values() if one.gang != key]
        if len(others) < self.policy.waiting.reservations:
            return True
        behind = [one for one in others if one.gang not in self.promoted and one.gang not in self.nominated]
        if key not in self.promoted or not behind:
            return False
        latest = max(behind, key=lambda one: (one.made_at, one.gang))
        if latest.gang in self.held:
            self._lift(latest.gang)
            del self.held[latest.gang]
        del self.known[latest.gang]
        return True

    def _found(self, ask: Ask, *, only: Collection[NodeName] | None = None) -> Estimate | None:
        """Where and when the gang will fit, within its share and capability; None when it will not."""
        work, key = self.work, ask.gang.key
        charge = least_charge(work.room, ask)
        if work.tree.over_guarantees(ask.gang.queue, charge) is not None:
            return None
        memory, now, policy = self.memory, self.now, self.policy
        if self._standing is None:
            self._standing = stays(self.snapshot.gangs, work.room, memory, now, policy)
        standing = [one for one in self._standing if one.key != key]
        for other, landed in work.landed.items():
            placed, places = work.asks[other], [(one.role, one.row, len(one.cards)) for one in landed]
            paid = work.charge_of(placed, landed)
            if (stay := stay_of(placed, places, paid, memory=memory, now=now, policy=policy)) is not None:
                standing.append(stay)
        at_once: set[GangKey] = set()
        if policy.actions.preempt == "act" and not ask.gang.never_preempts:
            at_once = {one.gang for one in memory.backfilled if one.reserved_for == key and not one.pods}
        allowed = allowed_from(work.tree, ask, charge, standing, work.room.fleet, at_once=at_once)
        if allowed is None:
            return None
        outlook = Outlook(
            ask, work.room, self.empty, standing, blocked=work.blocked, at_once=at_once, only=only
        )  # fmt: skip
        return outlook.best(not_before=allowed)

    # --- room --------------------------------------------------------------------------------------------------------

    def _hold(self, key: GangKey) -> None:
        """Take what is free now of the room that the gang will need, nodes' rests too, within the limit."""
        self.held[key] = []
        spare = self._most_idle() - self.idle_cards()
        for row, number, count in self.places[key]:
            shape = self.asks[key].roles[number].shape
            parts = (
                self._shares(key, row, number, count) if shape.request.share else self._rest(row, shape, count, spare)
            )
            for part in parts:
                paid = self._paid(part)
                if paid > spare:
                    break
                self.work.room.take(part.row, part.shape.request, part.cards)
                self.held[key].append(part)
                spare -= paid

    def _shares(self, key: GangKey, row: int, number: int, count: int) -> list[Pod]:
        """Shares of cards are held as far as they fit as they are."""
        room, role = self.work.room, self.asks[key].roles[number]
        fits = capacity(room, role.shape)
        fits = np.where(np.arange(fits.size) == row, fits, 0)
        mark = room.mark()
        landed: list[Landed] = []
        self.work.greedy().pods(number, role, min(count, int(fits[row])), fits, landed)
        room.rollback(mark)
        return [Pod(one.row, Shape(request=role.shape.request), one.cards) for one in landed]

    def _rest(self, row: int, shape: Shape, count: int, spare: int) -> list[Pod]:
        """What is free on a node of what so many pods will need there; other amounts in proportion to the cards."""
        room, request = self.work.room, shape.request
        if not admission(room.fleet, shape).rows[row]:
            return []
        cards, pods = 0, count
        if request.cards:
            cards = max(0, min(count * request.cards, int(room.whole_free[row]), spare // ONE_CARD))
            pods = -(-cards // request.cards)
        if not pods:
            return []
        vector, free = room.fleet.vector(request), room.free[row]
        assert vector is not None
        take = np.clip(np.minimum(pods * vector, free), 0, None)
        extended = tuple((name, int(take[room.fleet.dimensions[name]])) for name, _ in request.extended)
        part = msgspec.structs.replace(
            request, cpu=MilliCpu(int(take[0])), memory=Bytes(int(take[1])), cards=CardCount(cards), extended=extended
        )
        return [Pod(row, Shape(request=part), room.whole_cards(row, cards))]

    def _paid(self, part: Pod) -> int:
        fleet = self.work.room.fleet
        return charge_at(fleet, part.shape.request, fleet.names[part.row], part.cards).get(GPU, 0)

    def _most_idle(self) -> int:
        """Millionths of cards that reservations may hold idle together."""
        total = self.work.room.fleet.allocatable_cards
        percent = int(total.sum()) * ONE_CARD * self.policy.waiting.percent // 100
        largest = max((least_charge(self.work.room, ask).get(GPU, 0) for ask in self.asks.values()), default=0)
        return max(percent, largest)

    def _lift(self, key: GangKey) -> None:
        for part in self.held[key]:
            self.work.room.give(part.row, part.shape.request, part.cards)
        self.held[key] = []

    def lend(self, failed: Iterable[Ask]) -> list[Ask]:
        """Nothing is held while what was placed is rearranged, and those that may not use held room take no part in it.

        Returns the gangs that take part.
        """
        self._before = {key: _total(parts) for key, parts in self.held.items()}
        self._stood = set(self.work.landed)
        self.release()
        return [ask for ask in failed if ask.gang.key not in self._bound]

    def resume(self) -> None:
        """What is free again of reservations is held again; who came in meanwhile and stands there runs backfilled."""
        names = self.work.room.fleet.names
        for key in self.held:
            if key in self.work.landed:
                continue
            self._hold(key)
            if not _total(self.held[key]) < self._before.get(key, ()):
                continue
            nodes = set(self.known[key].nodes)
            for gang, landed in self.work.landed.items():
                inside = any(names[one.row] in nodes for one in landed)
                if gang not in self._stood and inside and not self._ends_before(self.work.asks[gang].gang, key):
                    self.backfilled.setdefault((gang, key), set())

    def idle_cards(self) -> int:
        """Millionths of cards that are held idle now."""
        return sum(self._paid(part) for held in self.held.values() for part in held)

    def release(self) -> None:
        """The round is over: nothing is held, so that reasons tell what is free."""
        for key in self.held:
            self._lift(key)

    # --- the end -----------------------------------------------------------------------------------------------------

    def reasons(self, why: Callable[[Ask], Why]) -> dict[GangKey, Held]:
        """Why gangs with a reservation wait, and those that others' keep out; ``why``: what a gang lacks now."""
        found = {key: held for key, held in self.out.items() if key not in self.work.landed}
        for key, ask in self.asks.items():
            if key in self.known and key not in self.work.landed:
                lacks = why(ask)
                found[key] = Held(*waits_for_its_own(self.known[key], lacks.code, lacks.message, dict(lacks.numbers)))
        return found

    def remembered(self, memory: CoreMemory, slots: Mapping[GangKey, Sequence[Slot]]) -> CoreMemory:
        """Reservations of gangs that still wait, and who runs backfilled for them. ``slots``: what is placed now."""
        if not self.acts:
            if memory.reservations or memory.backfilled or memory.looked:
                return msgspec.structs.replace(memory, reservations=(), backfilled=(), looked={})
            return memory
        kept = tuple(
            one for key, one in self.known.items() if key not in slots and (key in self.asks or key in self.nominated)
        )
        backfilled = self._backfilled(memory, {one.gang: one for one in kept}, slots)
        if (kept, backfilled, self.looked) == (memory.reservations, memory.backfilled, memory.looked):
            return memory
        return msgspec.structs.replace(memory, reservations=kept, backfilled=backfilled, looked=self.looked)

    def _backfilled(
        self, memory: CoreMemory, kept: Mapping[GangKey, Reservation], slots: Mapping[GangKey, Sequence[Slot]]
    ) -> tuple[Backfilled, ...]:
        old = [one for one in memory.backfilled if one.reserved_for in kept]
        if old:
            there = {one.gang for one in old}
            uids = {
                gang.key: {member.uid for member in gang.members if member.node is not None}
                for gang in self.snapshot.gangs
                if gang.key in there
            }
            # A gang that starts again now is judged by where it starts.
            old = [
                one
                for one in old
                if (uids.get(one.gang) if not one.pods else uids.get(one.gang, set()) & set(one.pods))
                and not (one.gang in slots and not one.pods)
            ]
        new = []
        for (gang, reserved_for), nodes in self.backfilled.items():
            reservation = kept.get(reserved_for)
            if reservation is None or gang not in slots:
                continue
            where = nodes or set(reservation.nodes)
            pods = tuple(slot.uid for slot in slots[gang] if slot.node in where)
            if pods:
                new.append(Backfilled(gang=gang, reserved_for=reserved_for, pods=pods if nodes else ()))
        return (*old, *new)


def _total(parts: Sequence[Pod]) -> tuple[int, int, int]:
    """What is held in all: cards, CPU, memory; the first that is less is what somebody took."""
    requests = [part.shape.request for part in parts]
    cards = sum(len(part.cards) for part in parts)
    return cards, sum(one.cpu for one in requests), sum(one.memory for one in requests)


def _signature(ask: Ask, *, whole: bool) -> object:
    """What gangs that fail for the same reason have in common, within one decision: the room only shrinks."""
    gang = ask.gang
    parts = tuple((role.shape, len(role.waiting), role.need, role.topology, role.standing) for role in ask.roles)
    return gang.queue, ask.need, gang.topology, parts, whole, gang.preemptible, gang.timing, gang.owner
