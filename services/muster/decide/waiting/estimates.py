"""Where and when a gang will fit, by the ends of what runs.

    everything that stands, with its end:  known or learned · nobody knows (preemptible) · never looked for (the others)
    by time, from the earliest end on:     gone is what ended by then ─► pods of each role that would fit, by node
    first time that some domain suffices ─► the domain, its nodes with most room now, and the time

Where no known ends suffice, what is preemptible is taken to end at some time too: then the domain where most ends, and no
time. Pods that nobody may evict and of which no end is known hold their room for good. An estimate by amounts: cards and
resources are added up, the placement itself is proven when its time has come.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from math import inf
from typing import NamedTuple

import numpy as np

from muster.decide.asks import Ask, RoleAsk
from muster.decide.fleet import PODS, Fleet, Floats, Ints, Mask
from muster.decide.held import HOLDING
from muster.decide.memory import CoreMemory
from muster.decide.placement.feasibility import admission, capacity
from muster.decide.room import Room
from muster.decide.shares import Amounts, Tree, gang_charge
from muster.decide.topology import domain_name, domains, resolve
from muster.decide.waiting.durations import expected_duration, expected_end, late
from muster.model.gangs import Gang, MemberState
from muster.model.pods import Request, Shape
from muster.model.policy import Policy
from muster.model.units import GangKey, NodeName, QueueName

SOME_TIME = inf
"""The end of what nobody knows the end of."""
NOW = 0.0
"""The end of what leaves already, or may be asked to."""


class Estimate(NamedTuple):
    """The best place for a gang."""

    nodes: tuple[NodeName, ...]
    domain: str
    start: float | None
    """None: nobody knows when; 0: as soon as those that may be asked to have left."""
    places: tuple[tuple[int, int, int], ...] = ()
    """(row, role by number in the ask, pods), those with most room now first."""


class Stay(NamedTuple):
    """Pods of one gang that stand, on rows."""

    key: GangKey
    end: float
    rows: Sequence[int]
    requests: Sequence[Request]
    cards: Sequence[int]
    gang: Gang
    charge: Amounts | None = None
    """None: what the gang is charged as it stands."""


def preemptible(gang: Gang, policy: Policy) -> bool:
    """Whether it may be asked to leave at all; where its queue's rules do not let it refuse, it cannot."""
    return gang.preemptible or not policy.rules(gang.queue).non_preemptible


def stays(gangs: Iterable[Gang], room: Room, memory: CoreMemory, now: float, policy: Policy) -> list[Stay]:
    """Everything of our gangs that stands and will end at some time."""
    row_of = room.fleet.row_of
    found = []
    for gang in gangs:
        rows: list[int] = []
        requests: list[Request] = []
        cards: list[int] = []
        leaving = True
        by_role: dict[str, Request] = {}
        for member in gang.members:
            if member.node is None or member.state not in HOLDING:
                continue
            row = row_of.get(member.node)
            if row is None:
                continue
            by_role = by_role or {role.name: role.shape.request for role in gang.roles}
            request = by_role.get(member.role)
            if request is None:
                continue
            rows.append(row)
            requests.append(request)
            cards.append(len(member.cards) or request.cards)
            leaving = leaving and member.state is MemberState.LEAVING
        if rows:
            end = NOW if leaving else _end(gang, memory, now, policy)
            if end is not None:
                found.append(Stay(gang.key, end, rows, requests, cards, gang))
    return found


def _end(gang: Gang, memory: CoreMemory, now: float, policy: Policy) -> float | None:
    end = expected_end(memory, gang, now, policy)
    if end is not None:
        return end
    if not preemptible(gang, policy):
        return None
    return NOW if late(gang, now, policy) and policy.actions.preempt == "act" else SOME_TIME


def stay_of(
    ask: Ask, landed: Iterable[tuple[int, int, int]], charge: Amounts, *, memory: CoreMemory, now: float, policy: Policy
) -> Stay | None:
    """The same for a gang that was placed just now, as (role number, row, cards), and is charged this."""
    duration = expected_duration(memory, ask.gang)
    if duration is None and not preemptible(ask.gang, policy):
        return None
    places = list(landed)
    return Stay(
        ask.gang.key,
        SOME_TIME if duration is None else now + duration,
        [row for _, row, _ in places],
        [ask.roles[role].shape.request for role, _, _ in places],
        [cards for _, _, cards in places],
        ask.gang,
        charge,
    )


def lacking_of(tree: Tree, ask: Ask, charge: Amounts) -> dict[tuple[QueueName, str], Fraction] | None:
    """How far the gang would be over its queue's share or a capability now; None: it would be if the queue used nothing."""
    lacking: dict[tuple[QueueName, str], Fraction] = {}
    for level in tree.path(ask.gang.queue):
        for resource, asked in charge.items():
            limits: list[int | Fraction | None] = [tree.queues[level].capability.get(resource)]
            if tree.governed(level, resource):
                limits.append(tree.shares.get(level, {}).get(resource))
            used = tree.usage[level].get(resource, 0)
            over = max((Fraction(used + asked) - one for one in limits if one is not None), default=Fraction(0))
            if asked and over > used:
                return None
            if asked and over > 0:
                lacking[level, resource] = over
    return lacking


def allowed_from(
    tree: Tree,
    ask: Ask,
    charge: Amounts,
    standing: Iterable[Stay],
    fleet: Fleet,
    *,
    at_once: Collection[GangKey] = frozenset(),
) -> float | None:
    """When the gang will be within its queue's share and every capability, by what ends in the queue; None: never.

    0 is now, `SOME_TIME` when nobody knows.
    """
    lacking = lacking_of(tree, ask, charge)
    if lacking is None:
        return None
    if not lacking:
        return NOW
    ends = sorted(
        (
            (NOW if one.key in at_once else one.end, one)
            for one in standing
            if not lacking.keys().isdisjoint(_paid(tree, one, charge))
        ),
        key=lambda pair: pair[0],
    )
    for end, one in ends:
        freed = gang_charge(one.gang, fleet) if one.charge is None else one.charge
        for key in _paid(tree, one, charge):
            if key in lacking:
                lacking[key] -= freed.get(key[1], 0)
        if all(over <= 0 for over in lacking.values()):
            return end
    return None


def _paid(tree: Tree, one: Stay, resources: Iterable[str]) -> set[tuple[QueueName, str]]:
    return {(level, resource) for level in tree.path(one.gang.queue) for resource in resources}


class Outlook:
    """The room as it will be, for one gang."""

    def __init__(
        self,
        ask: Ask,
        room: Room,
        empty: Room,
        standing: Iterable[Stay],
        *,
        blocked: Mapping[Shape, Mask] | None = None,
        at_once: Collection[GangKey] = frozenset(),
        only: Collection[NodeName] | None = None,
    ) -> None:
        """``at_once``: gangs that run backfilled for it. ``only``: the nodes of its reservation."""
        self.ask = ask
        self.room = room
        self.empty = empty
        self.blocked = blocked or {}
        fleet = room.fleet
        self._numbers = [number for number, role in enumerate(ask.roles) if role.waiting]
        self.roles = [ask.roles[number] for number in self._numbers]
        self.level = resolve(fleet, ask.gang.topology).required
        self.codes: Ints = np.zeros(fleet.size, dtype=np.int64) if self.level is None else domains(fleet, self.level)
        if self.level is not None and ask.standing:
            stands = {int(self.codes[fleet.row_of[name]]) for name in ask.standing if name in fleet.row_of}
            self.codes = (
                np.where(np.isin(self.codes, list(stands)), self.codes, -1)
                if len(stands) == 1
                else np.full(fleet.size, -1)
            )
        self.inside: Mask | None = None
        if only is not None:
            self.inside = np.zeros(fleet.size, dtype=np.bool_)
            self.inside[[fleet.row_of[name] for name in only if name in fleet.row_of]] = True
        ends: list[float] = []
        rows: list[int] = []
        vectors: list[int] = []
        cards: list[int] = []
        self._table: list[Ints] = []
        known: dict[Request, int] = {}
        for stay in standing:
            if self.inside is not None and not self.inside[list(stay.rows)].any():
                continue
            end = NOW if stay.key in at_once else stay.end
            ends += [end] * len(stay.rows)
            rows += stay.rows
            cards += stay.cards
            for request in stay.requests:
                number = known.get(request)
                if number is None:
                    number = known[request] = len(self._table)
                    self._table.append(self._vector(request))
                vectors.append(number)
        order = np.argsort(np.asarray(ends, dtype=np.float64), kind="stable")
        self._ends: Floats = np.asarray(ends, dtype=np.float64)[order]
        self._rows: Ints = np.asarray(rows, dtype=np.int64)[order]
        self._vectors: Ints = np.asarray(vectors, dtype=np.int64)[order]
        self._cards: Ints = np.asarray(cards, dtype=np.int64)[order]
        self._now = [self._masked(capacity(room, role.shape), role) for role in self.roles]
        self._most = [capacity(empty, role.shape) for role in self.roles]

    def _vector(self, request: Request) -> Ints:
        vector = self.room.fleet.vector(request)
        if vector is None:
            vector = np.zeros(self.room.free.shape[1], dtype=np.int64)
            vector[:3] = request.cpu, request.memory, 1
        return vector

    def _masked(self, fits: Ints, role: RoleAsk) -> Ints:
        blocked = self.blocked.get(role.shape)
        if blocked is not None:
            fits = np.where(blocked, 0, fits)
        return fits if self.inside is None else np.where(self.inside, fits, 0)

    def best(self, *, not_before: float = NOW) -> Estimate | None:
        """Where it will fit first; None when it will not by all that ends. ``not_before``: see `allowed_from`."""
        if not self.roles:
            return None
        times = np.unique([NOW, *self._ends[self._ends < SOME_TIME].tolist()]).tolist()
        if not_before < SOME_TIME and self._suffice(self._after(SOME_TIME, known=True)).any():
            low, high = 0, len(times) - 1
            while low < high:
                middle = (low + high) // 2
                if self._suffice(self._after(times[middle])).any():
                    high = middle
                else:
                    low = middle + 1
            start = max(float(times[low]), not_before)
            fits = self._after(start)
            return self._chosen(fits, np.where(self._suffice(fits), self._sums(self._now), -1), start)
        fits = self._after(SOME_TIME)
        enough = self._suffice(fits)
        if not enough.any():
            return None
        # Where most is free by what is known to end; of those where most is free now.
        soon = self._sums(self._after(SOME_TIME, known=True)) * (self._scale() + 1) + self._sums(self._now)
        return self._chosen(fits, np.where(enough, soon, -1), None)

    def _scale(self) -> int:
        return sum(len(role.waiting) for role in self.roles)

    def _after(self, time: float, *, known: bool = False) -> list[Ints]:
        """Pods of each role that fit on each row once everything has gone that ends by then (``known``: at a known time)."""
        gone = int(np.searchsorted(self._ends, time, side="left" if known else "right"))
        free, whole = self.room.free, self.room.whole_free
        if not gone:
            return self._now
        free, whole = free.copy(), whole.copy()
        rows = self._rows[:gone]
        np.add.at(free, rows, np.asarray(self._table)[self._vectors[:gone]])
        whole += np.bincount(rows, weights=self._cards[:gone], minlength=whole.size).astype(np.int64)
        np.minimum(whole, self.room.fleet.allocatable_cards, out=whole)
        changed = np.zeros(whole.size, dtype=np.bool_)
        changed[rows] = True
        return [
            np.where(changed, self._masked(self._fits(role, free, whole, most), role), now)
            for role, most, now in zip(self.roles, self._most, self._now, strict=True)
        ]

    def _fits(self, role: RoleAsk, free: Ints, whole: Ints, most: Ints) -> Ints:
        fleet, request = self.room.fleet, role.shape.request
        vector = fleet.vector(request)
        if vector is None:
            return np.zeros(fleet.size, dtype=np.int64)
        fits = np.where(admission(fleet, role.shape).rows, np.minimum(free[:, PODS], most), 0)
        for column in np.flatnonzero(vector):
            if column != PODS:
                fits = np.minimum(fits, free[:, column] // vector[column])
        if request.cards and request.share is None:
            fits = np.minimum(fits, whole // request.cards)
        return np.maximum(fits, 0)

    def _sums(self, fits: Sequence[Ints]) -> Ints:
        """Pods of the gang that each domain would take."""
        total: Ints = np.zeros(int(self.codes.max(initial=-1)) + 1, dtype=np.int64)
        for sums, role in zip(self._by_domain(fits), self.roles, strict=True):
            total += np.minimum(sums, len(role.waiting))
        return total

    def _by_domain(self, fits: Sequence[Ints]) -> list[Ints]:
        inside = self.codes >= 0
        size = int(self.codes.max(initial=-1)) + 1
        return [np.bincount(self.codes[inside], weights=one[inside], minlength=size).astype(np.int64) for one in fits]

    def _suffice(self, fits: Sequence[Ints]) -> Mask:
        """Domains that take every role's minimum and the gang's; roles that ask whole cards also together."""
        enough: Mask = self._sums(fits) >= self.ask.minimum
        for sums, role in zip(self._by_domain(fits), self.roles, strict=True):
            enough &= sums >= role.need
        with_cards = [
            n for n, role in enumerate(self.roles) if role.shape.request.cards and not role.shape.request.share
        ]
        if len(with_cards) > 1:
            # Together they cannot get more cards than the best of them could.
            cards = np.max([fits[n] * self.roles[n].shape.request.cards for n in with_cards], axis=0)
            asked = sum(self.roles[n].need * self.roles[n].shape.request.cards for n in with_cards)
            enough &= self._by_domain([cards])[0] >= asked
        return enough

    def _chosen(self, fits: Sequence[Ints], worth: Ints, start: float | None) -> Estimate:
        """The domain of the highest worth, and of its nodes as many as the gang needs, those with most room now first."""
        fleet = self.room.fleet
        best = np.flatnonzero(worth == worth.max())
        if best.size > 1:
            first = np.full(worth.size, fleet.size, dtype=np.int64)
            np.minimum.at(first, self.codes[self.codes >= 0], self.room.ranks[self.codes >= 0])
            best = best[np.argsort(first[best], kind="stable")]
        code = int(best[0])
        rows = np.flatnonzero(self.codes == code)
        ranks = self.room.ranks
        places: list[tuple[int, int, int]] = []
        used: Ints = np.zeros(fleet.size, dtype=np.int64)
        cards: Ints = np.zeros(fleet.size, dtype=np.int64)
        for number, role in enumerate(self.roles):
            each = role.shape.request.cards
            if each:
                cards = np.maximum(cards, fits[number] * each)
        missing = self.ask.minimum - sum(role.need for role in self.roles)
        for number in sorted(range(len(self.roles)), key=lambda one: -self.roles[one].shape.request.cards):
            role, each = self.roles[number], self.roles[number].shape.request.cards
            spare = min(max(0, missing), len(role.waiting) - role.need)
            missing -= spare
            wanted = role.need + spare
            for row in sorted(rows.tolist(), key=lambda one: (-self._now[number][one], -fits[number][one], ranks[one])):
                if wanted <= 0:
                    break
                here = int(fits[number][row])
                here = min(here, (int(cards[row]) - int(used[row])) // each) if each else here
                here = min(here, wanted)
                if here > 0:
                    places.append((row, self._numbers[number], here))
                    used[row] += here * each
                    wanted -= here
        names = tuple(fleet.names[row] for row in sorted({row for row, _, _ in places}))
        domain = "" if self.level is None else domain_name(fleet, self.level, int(rows[0]))
        return Estimate(names, domain, start, tuple(places))
