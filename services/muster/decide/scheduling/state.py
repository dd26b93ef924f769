"""The working state of one decision: the room, the queues' usage, and what has been placed so far in this round."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from muster.decide.asks import Ask
from muster.decide.canonical import canonical_ranks
from muster.decide.fleet import PODS, Mask
from muster.decide.placement.fragmentation import Mix
from muster.decide.placement.greedy import Greedy, Landed
from muster.decide.room import Pod, Room
from muster.decide.shares import Amounts, Tree, add, base_charge, charge_at, smallest_charge
from muster.model.pods import Shape, TopologyWish
from muster.model.policy import Packing
from muster.model.units import GangKey, QueueName

NO_WISH = TopologyWish()
MANY_TRIES = 8
"""From so many gangs on it pays to find out which nodes look alike."""


class Saved(NamedTuple):
    """An arrangement that can be restored."""

    landed: dict[GangKey, list[Landed]]
    asks: dict[GangKey, Ask]
    usage: dict[QueueName, Amounts]


class Round:
    """What one decision has done so far; `admit` adds a gang's minimum, `undo` takes it back."""

    def __init__(
        self,
        room: Room,
        tree: Tree,
        packing: Packing,
        *,
        blocked: dict[Shape, Mask] | None = None,
        mix: Mix | None = None,
    ) -> None:
        self.room = room
        self.tree = tree
        self.packing = packing
        self.blocked = blocked or {}
        self.mix = mix
        self.landed: dict[GangKey, list[Landed]] = {}
        self.asks: dict[GangKey, Ask] = {}
        self.settled: set[GangKey] = set()
        """Gangs of this round that no rearrangement may drop."""
        self._tries = 0
        room.look_away()
        room.ranks = canonical_ranks(room)
        self.base_pods = room.free[:, PODS].copy()
        self._base = room.mark()
        self._usage = _copied(tree.usage)

    def greedy(self, *, largest_cards: bool = False, thrifty: bool = False) -> Greedy:
        """The greedy over this round's room."""
        return Greedy(
            self.room, self.packing, blocked=self.blocked, largest_cards=largest_cards, thrifty=thrifty, mix=self.mix
        )

    def admit(self, ask: Ask) -> bool:
        """Place what the gang's minimums lack, under every capability; False leaves everything as it was."""
        gang = ask.gang
        self._tries += 1
        if self._tries == MANY_TRIES:
            self.room.look_at()
        if self.tree.forbids(gang.queue, least_charge(self.room, ask)):
            return False
        if alike(ask) is not None:
            one = self.greedy().alike(ask.roles[0], 1)
            # It is charged what it was asked above.
            return bool(one) and self.keep(ask, one)
        # What the queue may not pay for may be had for less: shares of larger cards, other roles up to the gang's minimum.
        has_share = any(role.shape.request.share is not None for role in ask.roles)
        open_choice = len(ask.roles) > 1 and ask.need > sum(role.need for role in ask.roles)
        tries = [(False, False)] + [(True, False)] * has_share + [(has_share, True)] * open_choice
        for largest_cards, thrifty in tries:
            mark = self.room.mark()
            landed = self.greedy(largest_cards=largest_cards, thrifty=thrifty).minimum(ask)
            if landed is None:
                return False
            if self.keep(ask, landed):
                return True
            self.room.rollback(mark)
        return False

    def admit_alike(self, asks: Sequence[Ask]) -> None:
        """Place gangs of which `alike` says the same, as if they were admitted one after the other."""
        if len(asks) == 1:
            self.admit(asks[0])
            return
        landed = self.greedy().alike(asks[0].roles[0], len(asks))
        for ask, one in zip(asks, landed, strict=False):
            if not self.keep(ask, [one]):
                shape = ask.roles[0].shape
                self.room.give(one.row, shape.request, one.cards, ports=shape.host_ports, kind=shape.kind)

    def keep(self, ask: Ask, landed: Sequence[Landed]) -> bool:
        """Charge pods that are in the room already; False, with nothing charged, when a capability forbids it."""
        charge = self.charge_of(ask, landed)
        queue = ask.gang.queue
        if self.tree.forbids(queue, charge):
            return False
        self.tree.charge(queue, charge)
        self.asks[ask.gang.key] = ask
        self.landed.setdefault(ask.gang.key, []).extend(landed)
        return True

    def grow(self, ask: Ask, role_number: int) -> bool:
        """Place one pod more of a role, or the whole of a slice."""
        queue, role = ask.gang.queue, ask.roles[role_number]
        charge: Amounts = {}
        add(charge, smallest_charge(self.room.fleet, role.shape.request), len(role.waiting) if role.whole else 1)
        if self.tree.forbids(queue, charge):
            return False
        mark = self.room.mark()
        placed = self.landed.get(ask.gang.key, ())
        if role.whole:
            landed = self.greedy().slice(ask, placed, role_number)
        else:
            one = self.greedy().surplus(ask, placed, role_number)
            landed = None if one is None else [one]
        if landed is None:
            return False
        if self.keep(ask, landed):
            return True
        self.room.rollback(mark)
        return False

    def usage_before(self) -> dict[QueueName, Amounts]:
        """The queues' usage before this round placed anything."""
        return _copied(self._usage)

    def usage_now(self) -> dict[QueueName, Amounts]:
        """The queues' usage at this moment, to go back to."""
        return _copied(self.tree.usage)

    def drop(self, key: GangKey) -> None:
        """Take back what this round placed of a gang."""
        ask, landed = self.asks.pop(key), self.landed.pop(key)
        for one in landed:
            shape = ask.roles[one.role].shape
            self.room.give(one.row, shape.request, one.cards, ports=shape.host_ports, kind=shape.kind)
        self.tree.charge(ask.gang.queue, self.charge_of(ask, landed), -1)

    def save(self) -> Saved:
        """The present arrangement."""
        landed = {key: list(pods) for key, pods in self.landed.items()}
        return Saved(landed, dict(self.asks), _copied(self.tree.usage))

    def reset(self) -> None:
        """Back to before this round placed anything."""
        self.room.rollback(self._base)
        self.tree.usage = _copied(self._usage)
        self.landed.clear()
        self.asks.clear()

    def reset_but(self, saved: Saved, kept: Iterable[GangKey]) -> None:
        """The same, but for these gangs, which stand as in an arrangement."""
        self.reset()
        for key in sorted(kept):
            self.take(saved.asks[key], saved.landed[key])

    def restore(self, saved: Saved) -> None:
        """An arrangement again, from a round that was reset."""
        for key, landed in saved.landed.items():
            self._note(saved.asks[key], landed)
        self.room.take_together(
            [
                Pod(one.row, saved.asks[key].roles[one.role].shape, one.cards)
                for key, landed in saved.landed.items()
                for one in landed
            ]
        )

    def take(self, ask: Ask, landed: Sequence[Landed]) -> None:
        """Take exactly these places, which are known to be free, and charge them."""
        self.room.take_together([Pod(one.row, ask.roles[one.role].shape, one.cards) for one in landed])
        self._note(ask, landed)

    def _note(self, ask: Ask, landed: Sequence[Landed]) -> None:
        self.tree.charge(ask.gang.queue, self.charge_of(ask, landed))
        self.asks[ask.gang.key] = ask
        self.landed[ask.gang.key] = list(landed)

    def charge_of(self, ask: Ask, landed: Iterable[Landed]) -> Amounts:
        """What the queue is charged for these pods."""
        charge: Amounts = {}
        fleet = self.room.fleet
        counts: dict[int, int] = {}
        for one in landed:
            request = ask.roles[one.role].shape.request
            if request.share is None:
                counts[one.role] = counts.get(one.role, 0) + 1
            else:
                add(charge, charge_at(fleet, request, fleet.names[one.row], one.cards))
        for role, count in counts.items():
            add(charge, base_charge(ask.roles[role].shape.request), count)
        return charge


def _copied(usage: dict[QueueName, Amounts]) -> dict[QueueName, Amounts]:
    return {queue: dict(amounts) for queue, amounts in usage.items()}


def alike(ask: Ask) -> Shape | None:
    """What makes gangs of one pod the same to the greedy, or None: one by one they go where all of them together go."""
    gang, shape = ask.gang, ask.roles[0].shape
    whole = shape.request.cards and shape.request.share is None
    if len(ask.roles) > 1 or ask.minimum != 1 or not whole or shape.host_ports or shape.has_terms or shape.claims:
        return None
    if gang.topology != NO_WISH or ask.roles[0].topology != NO_WISH or ask.standing or ask.roles[0].whole:
        return None
    return shape


def least_charge(room: Room, ask: Ask) -> Amounts:
    """The least that a gang's minimum phase can be charged: role minimums, and the cheapest pods up to the gang's."""
    charge: Amounts = {}
    fleet = room.fleet
    rest = ask.need
    for role in ask.roles:
        if role.need:
            add(charge, smallest_charge(fleet, role.shape.request), role.need)
            rest -= role.need
    if rest <= 0:
        return charge
    spare = [
        (smallest_charge(fleet, role.shape.request), len(role.waiting) - role.need)
        for role in ask.roles
        if len(role.waiting) > role.need
    ]
    if len(spare) == 1:
        add(charge, spare[0][0], min(rest, spare[0][1]))
        return charge
    if spare:
        for resource in sorted({name for one, _ in spare for name in one}):
            cheapest = sorted((one.get(resource, 0), pods) for one, pods in spare)
            charge[resource] = charge.get(resource, 0) + _sum_of_first(cheapest, rest)
    return charge


def _sum_of_first(amounts: Sequence[tuple[int, int]], number: int) -> int:
    """The sum of the first `number` of (amount, how often) pairs; of all when there are fewer."""
    total = 0
    for amount, often in amounts:
        taken = min(often, number)
        total += amount * taken
        number -= taken
    return total
