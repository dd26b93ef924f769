"""The exact model for small problems: CP-SAT over (role × node) counts, with every dimension.

    s[gang]                admitted or not
    x[gang, role, row]     pods on a node; for shares x[gang, role, row, card]
    open[row, card]        an untouched card is opened for shares
    in[gang, domain]       the one domain of a required level; used domains of a preferred one
    used[row]              a node that was empty is opened

Rows: gang and role minimums (tied to s), every amount of every node, whole cards and opened cards against what is offered,
memory and core of every shared card, required domains, limits of queues. The objective is the admitted value, then few
nodes opened and few preferred domains. The greedy's answer is the hint, complete and feasible; the model starts from it
and never ends below it. Variables and rows are plain lists here and become protos at the end, by index.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from muster.decide.asks import Ask
from muster.decide.fleet import PODS, Mask
from muster.decide.placement.feasibility import capacity, share_fits
from muster.decide.placement.greedy import Landed
from muster.decide.placement.solver import Solve, linear_model, parameters_of
from muster.decide.room import Room
from muster.decide.shares import base_charge, charge_on
from muster.decide.topology import domains, preferred_domains, resolve
from muster.model.pods import CardUse, Shape, TopologyWish
from muster.model.policy import Solver
from muster.model.units import CardIndex, CorePercent, GangKey, MiB


class Item(NamedTuple):
    """One gang of the problem."""

    ask: Ask
    fixed: bool
    """It must be admitted."""
    value: int
    """What admitting it is worth, above 0."""


class Limit(NamedTuple):
    """The gangs of one queue (and below it) may take no more than this of a resource."""

    gangs: frozenset[GangKey]
    resource: str
    amount: int


class Spot(NamedTuple):
    """What one placement variable stands for."""

    variable: int
    item: int
    role: int
    row: int
    position: int
    """The card, for a share; -1 otherwise."""
    most: int


class Model:
    """Variables, rows and objective as plain lists."""

    def __init__(self) -> None:
        self.bounds: list[tuple[int, int]] = []
        self.hints: list[int] = []
        self.rows: list[tuple[list[int], list[int], int, int]] = []
        self.cost: dict[int, int] = {}

    def variable(self, most: int, *, least: int = 0, hint: int = 0) -> int:
        """A new integer variable."""
        self.bounds.append((least, most))
        self.hints.append(hint)
        return len(self.bounds) - 1

    def row(self, terms: Iterable[tuple[int, int]], *, least: int = -(1 << 50), most: int = 1 << 50) -> None:
        """``least ≤ Σ coefficient × variable ≤ most``."""
        pairs = list(terms)
        if pairs:
            self.rows.append(([one for one, _ in pairs], [factor for _, factor in pairs], least, most))


class Exact:
    """Builds, solves and reads back one problem over a room."""

    def __init__(
        self,
        room: Room,
        items: Sequence[Item],
        *,
        limits: Sequence[Limit],
        hint: Mapping[GangKey, Sequence[Landed]],
        blocked: Mapping[Shape, Mask],
    ) -> None:
        self.room = room
        self.fleet = room.fleet
        self.items = items
        self.limits = limits
        self.blocked = blocked
        self.hint = hint
        self.model = Model()
        self.spots: list[Spot] = []
        self.admitted: list[int] = []
        self._fits: dict[Shape, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        self._hinted = self._count_hint()

    def _count_hint(self) -> dict[tuple[int, int, int, int], int]:
        counts: dict[tuple[int, int, int, int], int] = defaultdict(int)
        for number, item in enumerate(self.items):
            for landed in self.hint.get(item.ask.gang.key, ()):
                position = -1
                if item.ask.roles[landed.role].shape.request.share is not None:
                    position = self.fleet.position_of[landed.row][landed.cards[0].index]
                counts[number, landed.role, landed.row, position] += 1
        return counts

    def variables(self) -> int:
        """How many placement variables the model would have."""
        total = 0
        for item in self.items:
            for role in item.ask.roles:
                if role.waiting:
                    total += int((self._capacity(role.shape) > 0).sum())
        return total

    def _capacity(self, shape: Shape) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        if shape not in self._fits:
            blocked = self.blocked.get(shape)
            self._fits[shape] = capacity(self.room, shape, None if blocked is None else ~blocked)
        return self._fits[shape]

    def solve(self, policy: Solver, solve: Solve) -> dict[GangKey, list[Landed]] | None:
        """The best admission found, by gang; None when the solver gave no answer."""
        self._build()
        model = self.model
        built = linear_model(model.bounds, model.rows, model.cost, model.hints)
        if built is None:
            return None
        response = solve(built, parameters_of(policy))
        if response is None:
            return None
        values = [int(value) for value in response.solution]
        return self._read(values) if len(values) == len(model.bounds) else None

    def check_hint(self) -> list[str]:
        """Rows that the hint breaks; a sound hint breaks none (used by tests)."""
        if not self.admitted:
            self._build()
        broken = [
            f"variable {number}: {hint} outside {bounds}"
            for number, (hint, bounds) in enumerate(zip(self.model.hints, self.model.bounds, strict=True))
            if not bounds[0] <= hint <= bounds[1]
        ]
        for variables, factors, least, most in self.model.rows:
            total = sum(factor * self.model.hints[one] for one, factor in zip(variables, factors, strict=True))
            if not least <= total <= most:
                broken.append(f"{total} outside {least} … {most} in {list(zip(variables, factors, strict=True))}")
        return broken

    def _build(self) -> None:
        for number, item in enumerate(self.items):
            self._gang(number, item)
        by_row: dict[int, list[Spot]] = defaultdict(list)
        for spot in self.spots:
            by_row[spot.row].append(spot)
        for row, spots in by_row.items():
            self._node(row, spots)
        for limit in self.limits:
            self._limit(limit)
        # Few nodes opened comes after everything that is admitted.
        weight = 1 + sum(self.model.cost.values())
        for number, item in enumerate(self.items):
            if not item.fixed:
                self.model.cost[self.admitted[number]] = -item.value * weight

    def _gang(self, number: int, item: Item) -> None:
        ask, model = item.ask, self.model
        admitted = model.variable(1, least=int(item.fixed), hint=int(ask.gang.key in self.hint))
        self.admitted.append(admitted)
        minimum = ask.minimum
        flexible = ask.need > sum(role.need for role in ask.roles)
        wish = resolve(self.fleet, ask.gang.topology)
        allowed = self._allowed(ask.gang.topology, [self.fleet.row_of.get(name, -1) for name in ask.standing])
        everyone: list[Spot] = []
        for role_number, role in enumerate(ask.roles):
            most = len(role.waiting) if flexible and not role.whole else role.need
            if not most:
                continue
            standing = [self.fleet.row_of.get(name, -1) for name in role.standing]
            inside = allowed & self._allowed(role.topology, standing)
            spots = self._spots(number, role_number, role.shape, most, inside)
            model.row([*((spot.variable, 1) for spot in spots), (admitted, -role.need)], least=0)
            model.row([*((spot.variable, 1) for spot in spots), (admitted, -most)], most=0)
            role_wish = resolve(self.fleet, role.topology)
            self._domain(spots, role_wish.required, role_wish.preferred, most)
            everyone += spots
        model.row([*((spot.variable, 1) for spot in everyone), (admitted, -minimum)], least=0, most=0)
        self._domain(everyone, wish.required, wish.preferred, minimum)
        self.spots += everyone

    def _allowed(self, topology: TopologyWish, standing: Sequence[int]) -> Mask:
        wish = resolve(self.fleet, topology)
        if wish.unknown:
            return np.zeros(self.fleet.size, dtype=np.bool_)
        if wish.required is None:
            return np.ones(self.fleet.size, dtype=np.bool_)
        codes = domains(self.fleet, wish.required)
        here = {int(codes[row]) for row in standing if row >= 0}
        if not here:
            return np.asarray(codes >= 0, dtype=np.bool_)
        if len(here) > 1:
            return np.zeros(self.fleet.size, dtype=np.bool_)
        return np.asarray((codes == here.pop()) & (codes >= 0), dtype=np.bool_)

    def _spots(self, item: int, role: int, shape: Shape, most: int, inside: Mask) -> list[Spot]:
        fits = np.where(inside, self._capacity(shape), 0)
        spots = []
        shared = share_fits(self.room, shape.request) if shape.request.share is not None else None
        # In an order that names have no part in: what the solver answers may depend on it.
        usable = np.flatnonzero(fits)
        for row in usable[np.argsort(self.room.ranks[usable])].tolist():
            bound = min(most, int(fits[row]))
            if shared is None:
                hint = self._hinted.get((item, role, row, -1), 0)
                spots.append(Spot(self.model.variable(bound, hint=hint), item, role, row, -1, bound))
                continue
            fresh_left = min(most, int(self.room.whole_free[row]))
            for position in np.flatnonzero(shared[row]).tolist():
                hint = self._hinted.get((item, role, row, position), 0)
                if not self.room.card_users[row, position]:
                    # Untouched cards of a node are alike as long as nothing was hinted there: a few are enough.
                    fresh_left -= 1
                    if fresh_left < 0 and not self._hinted_on(row, position):
                        continue
                bound_here = min(bound, int(shared[row, position]))
                spots.append(Spot(self.model.variable(bound_here, hint=hint), item, role, row, position, bound_here))
        return spots

    def _hinted_on(self, row: int, position: int) -> bool:
        return any(key[2:] == (row, position) for key in self._hinted)

    def _domain(self, spots: Sequence[Spot], required: int | None, preferred: int | None, most: int) -> None:
        if required is not None:
            chosen = self._in_domains(spots, domains(self.fleet, required).tolist(), most)
            self.model.row([(one, 1) for one in chosen], most=1)
        if preferred is not None:
            for one in self._in_domains(spots, preferred_domains(self.fleet, preferred).tolist(), most):
                self.model.cost[one] = 1

    def _in_domains(self, spots: Sequence[Spot], codes: Sequence[int], most: int) -> list[int]:
        by_code: dict[int, list[Spot]] = defaultdict(list)
        for spot in spots:
            by_code[codes[spot.row]].append(spot)
        chosen = []
        for inside in by_code.values():
            hint = int(any(self.model.hints[spot.variable] for spot in inside))
            one = self.model.variable(1, hint=hint)
            self.model.row([*((spot.variable, 1) for spot in inside), (one, -most)], most=0)
            chosen.append(one)
        return chosen

    def _shape(self, spot: Spot) -> Shape:
        return self.items[spot.item].ask.roles[spot.role].shape

    def _node(self, row: int, spots: Sequence[Spot]) -> None:
        model, room = self.model, self.room
        amounts: dict[int, list[tuple[int, int]]] = defaultdict(list)
        whole: list[tuple[int, int]] = []
        by_card: dict[int, list[Spot]] = defaultdict(list)
        by_port: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for spot in spots:
            shape = self._shape(spot)
            vector = self.fleet.vector(shape.request)
            assert vector is not None
            for dimension in np.flatnonzero(vector).tolist():
                amounts[dimension].append((spot.variable, int(vector[dimension])))
            if shape.request.cards and shape.request.share is None:
                whole.append((spot.variable, shape.request.cards))
            if spot.position >= 0:
                by_card[spot.position].append(spot)
            for protocol, port, _ in shape.host_ports:
                by_port[protocol, port].append((spot.variable, 1))
        for dimension, terms in amounts.items():
            model.row(terms, most=int(room.free[row, dimension]))
        for terms in by_port.values():
            model.row(terms, most=1)
        for position, inside in by_card.items():
            opened = self._card(row, position, inside)
            if opened is not None:
                whole.append((opened, 1))
        model.row(whole, most=max(0, int(room.whole_free[row])))
        if int(room.free[row, PODS]) == int(self.fleet.total[row, PODS]):
            most = sum(spot.most for spot in spots)
            used = model.variable(1, hint=int(any(model.hints[spot.variable] for spot in spots)))
            model.row([*((spot.variable, 1) for spot in spots), (used, -most)], most=0)
            model.cost[used] = 1

    def _card(self, row: int, position: int, inside: Sequence[Spot]) -> int | None:
        model, room = self.model, self.room
        memory, core = [], []
        for spot in inside:
            share = self._shape(spot).request.share
            assert share is not None
            memory.append((spot.variable, int(share.memory_mib)))
            core.append((spot.variable, int(share.core_percent)))
        model.row(memory, most=int(room.card_memory[row, position]))
        model.row(core, most=int(room.card_core[row, position]))
        if room.card_users[row, position]:
            return None
        opened = model.variable(1, hint=int(any(model.hints[spot.variable] for spot in inside)))
        most = sum(spot.most for spot in inside)
        model.row([*((spot.variable, 1) for spot in inside), (opened, -most)], most=0)
        return opened

    def _limit(self, limit: Limit) -> None:
        terms = []
        for spot in self.spots:
            if self.items[spot.item].ask.gang.key not in limit.gangs:
                continue
            request = self._shape(spot).request
            if spot.position >= 0:
                charge = charge_on(request, int(self.fleet.card_memory[spot.row, spot.position]))
            else:
                charge = base_charge(request)
            amount = charge.get(limit.resource, 0)
            if amount:
                terms.append((spot.variable, amount))
        self.model.row(terms, most=limit.amount)

    def _read(self, values: Sequence[int]) -> dict[GangKey, list[Landed]]:
        """Take the answer into the room, gang by gang, with cards chosen; whole cards last, so that shares keep theirs."""
        result: dict[GangKey, list[Landed]] = {}
        for number, item in enumerate(self.items):
            if values[self.admitted[number]]:
                result[item.ask.gang.key] = []
        for spot in sorted(self.spots, key=lambda one: (one.position < 0, one.item, one.role, one.row, one.position)):
            item = self.items[spot.item]
            shape = self._shape(spot)
            for _ in range(values[spot.variable]):
                cards: tuple[CardUse, ...] = ()
                if shape.request.share is not None:
                    cards = (
                        CardUse(
                            index=CardIndex(int(self.fleet.card_index[spot.row, spot.position])),
                            memory_mib=MiB(shape.request.share.memory_mib),
                            core_percent=CorePercent(shape.request.share.core_percent),
                        ),
                    )
                elif shape.request.cards:
                    cards = self.room.whole_cards(spot.row, shape.request.cards)
                self.room.take(spot.row, shape.request, cards, ports=shape.host_ports, kind=shape.kind)
                result[item.ask.gang.key].append(Landed(spot.role, spot.row, cards))
        return result
