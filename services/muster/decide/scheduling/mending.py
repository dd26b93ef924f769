"""What slots cannot tell, mended at node level: a gang that waits only because smaller ones of this round stand in its way.

The engine counts effective cards: it knows nothing of roles that need much more CPU per card than others, nor of the cards of a
node that is short of CPU, which a pod that needs little of it could still use. For a few of the gangs that wait:

    places    the rows where it would fit if this round had placed nothing, those first that lack least
    movers    gangs of this round that stand there, with few pods
    refuges   rows that would take the movers as they are, by true capacity
    solved    by the exact model, on these rows alone: every mover stays admitted, the gang comes in

Never a worse arrangement: nothing is dropped.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from muster.decide.asks import Ask
from muster.decide.fleet import Ints, Mask
from muster.decide.placement.engine.demands import can_be_told
from muster.decide.placement.engine.profile import effective, ordinary, tellable
from muster.decide.placement.exact import Exact, Item, Limit
from muster.decide.placement.feasibility import capacity
from muster.decide.placement.solver import Solve
from muster.decide.scheduling.state import Round, Saved
from muster.decide.topology import domains, resolve
from muster.model.pods import Shape
from muster.model.policy import Solver
from muster.model.units import GangKey

MOST_LOOKED_AT = 32
MOST_TRIES = 3
MOST_PLACES = 8
MOST_REFUGES = 8
MOST_VARIABLES = 600
DETERMINISTIC_SECONDS = 0.005


def mend(
    work: Round, items: Sequence[Item], *, limits: Sequence[Limit], best: Saved, policy: Solver, solve: Solve
) -> Saved | None:
    """An arrangement with more gangs than ``best`` and all of its own, or None."""
    work.reset()
    waiting = [item for item in items if item.ask.gang.key not in best.landed and item.ask.minimum]
    shapes = {role.shape: None for item in items for role in item.ask.roles if tellable(role.shape)}
    usual, amounts = ordinary(work.room, shapes)
    hidden = bool((effective(work.room, amounts) < np.clip(work.room.whole_free, 0, None)).any())
    chosen = [
        item
        for item in sorted(waiting, key=lambda one: -one.value)
        if hidden or not can_be_told(work.room, item.ask, usual)
    ][:MOST_LOOKED_AT]
    once: dict[Shape, Ints] = {}
    for item in chosen:
        for role in item.ask.roles:
            if role.shape not in once:
                once[role.shape] = _fits(work, role.shape)
    work.restore(best)
    left = Left(work, limits)
    brief = msgspec.structs.replace(policy, deterministic_seconds=DETERMINISTIC_SECONDS)
    tries = mended = 0
    by_key = {item.ask.gang.key: item for item in items}
    for item in chosen:
        places = _places(work, item.ask, once)
        if places is None:
            continue
        movers, region = _around(work, places, by_key)
        if not _enough(work, item.ask, region):
            continue
        mended += _bring_in(work, item, movers, region, by_key, left=left, policy=brief, solve=solve)
        tries += 1
        if tries == MOST_TRIES:
            break
    return work.save() if mended else None


def _fits(work: Round, shape: Shape) -> Ints:
    blocked = work.blocked.get(shape)
    return capacity(work.room, shape, None if blocked is None else ~blocked)


def _places(work: Round, ask: Ask, once: Mapping[Shape, Ints]) -> Mask | None:
    """Rows where the gang would fit but for this round, as many as it needs and some more; None when there are too few."""
    fleet, roles = work.room.fleet, [role for role in ask.roles if role.waiting]
    wish = resolve(fleet, ask.gang.topology)
    if wish.unknown or ask.standing:
        return None
    inside = np.ones(fleet.size, dtype=np.bool_)
    if wish.required is not None:
        # The one domain that has most of the room now, of those that had enough.
        codes = domains(fleet, wish.required)
        known = codes >= 0
        size = int(codes.max(initial=-1)) + 1
        had = [np.bincount(codes[known], weights=once[role.shape][known], minlength=size) for role in roles]
        has = [np.bincount(codes[known], weights=_fits(work, role.shape)[known], minlength=size) for role in roles]
        enough = np.all([one >= role.need for one, role in zip(had, roles, strict=True)], axis=0) & bool(size)
        enough &= np.sum(had, axis=0) >= ask.minimum
        if not enough.any():
            return None
        lacking = ask.minimum - np.minimum(np.sum(has, axis=0), ask.minimum)
        inside = codes == int(np.argmin(np.where(enough, lacking, np.inf)))
    chosen = np.zeros(fleet.size, dtype=np.bool_)
    for role in roles:
        could, can = np.where(inside, once[role.shape], 0), np.where(inside, _fits(work, role.shape), 0)
        rows = np.flatnonzero(could)
        rows = rows[np.lexsort((work.room.ranks[rows], -could[rows], -can[rows]))]
        needed = max(role.need, min(ask.need, len(role.waiting)))
        if int(could.sum()) < role.need:
            return None
        reached = int(np.searchsorted(np.cumsum(could[rows]), needed)) + 1
        chosen[rows[: reached + MOST_PLACES]] = True
    return chosen if chosen.any() else None


def _around(work: Round, places: Mask, by_key: Mapping[GangKey, Item]) -> tuple[list[GangKey], Mask]:
    """What may move to make these places free, and all rows that it may use."""
    room = work.room
    movers = _movers(work, places, by_key)
    region = places.copy()
    for key in movers:
        region[[one.row for one in work.landed[key]]] = True
    for shape in {role.shape for key in movers for role in work.asks[key].roles}:
        fits = _fits(work, shape)
        rows = np.flatnonzero(fits)
        region[rows[np.lexsort((room.ranks[rows], -fits[rows]))][:MOST_REFUGES]] = True
    return movers, region


def _enough(work: Round, ask: Ask, region: Mask) -> bool:
    """Whether all that is free on these rows together would be enough for the gang."""
    room, fleet = work.room, work.room.fleet
    cards = sum(role.need * role.shape.request.cards for role in ask.roles if role.shape.request.share is None)
    if cards > int(np.clip(room.whole_free[region], 0, None).sum()):
        return False
    asked = np.zeros(len(fleet.dimensions), dtype=np.int64)
    for role in ask.roles:
        vector = fleet.vector(role.shape.request)
        if vector is None:
            return False
        asked += role.need * vector
    return bool((asked <= np.clip(room.free[region], 0, None).sum(axis=0)).all())


def _bring_in(
    work: Round,
    item: Item,
    movers: Sequence[GangKey],
    region: Mask,
    by_key: Mapping[GangKey, Item],
    *,
    left: "Left",
    policy: Solver,
    solve: Solve,
) -> bool:
    """Place the gang by moving others within the region; False leaves everything as it was."""
    room = work.room
    inside = [item._replace(fixed=False), *(by_key[key]._replace(fixed=True) for key in movers)]
    blocked = {role.shape: ~region | work.blocked.get(role.shape, ~region) for one in inside for role in one.ask.roles}
    mark, usage, landed, asks = room.mark(), work.usage_now(), dict(work.landed), dict(work.asks)
    hint = {key: work.landed[key] for key in movers}
    limits = left.without(movers)
    for key in movers:
        work.drop(key)
    exact = Exact(room, inside, limits=limits, hint=hint, blocked=blocked)
    if exact.variables() <= MOST_VARIABLES:
        found = exact.solve(policy, solve)
        if found is not None and item.ask.gang.key in found:
            asked = {one.ask.gang.key: one.ask for one in inside}
            if all(work.keep(asked[key], pods) for key, pods in found.items()):
                left.change(movers, found)
                return True
    room.rollback(mark)
    work.tree.usage = usage
    work.landed, work.asks = landed, asks
    return False


def _movers(work: Round, places: Mask, by_key: Mapping[GangKey, Item]) -> list[GangKey]:
    """Gangs of this round with pods on these rows, the smallest first."""
    here = [
        key
        for key, pods in work.landed.items()
        if key in by_key and not work.asks[key].standing and any(places[one.row] for one in pods)
    ]
    here.sort(key=lambda key: len(work.landed[key]))
    return here[: 2 * MOST_PLACES]


class Left:
    """What the limits still leave, with what this round's gangs take of them."""

    def __init__(self, work: Round, limits: Sequence[Limit]) -> None:
        """As the round stands now."""
        self._work = work
        self._limits = limits
        self._of_gang: dict[GangKey, list[int]] = {}
        for number, limit in enumerate(limits):
            for key in limit.gangs:
                self._of_gang.setdefault(key, []).append(number)
        self._amounts = [limit.amount for limit in limits]
        self._charges = {key: work.charge_of(work.asks[key], pods) for key, pods in work.landed.items()}
        for key in self._charges:
            self._add(self._amounts, key, -1)

    def _add(self, amounts: list[int], key: GangKey, sign: int) -> None:
        for number in self._of_gang.get(key, ()):
            amounts[number] += sign * self._charges[key].get(self._limits[number].resource, 0)

    def without(self, movers: Iterable[GangKey]) -> list[Limit]:
        """What may be taken when these give theirs back."""
        amounts = list(self._amounts)
        for key in movers:
            self._add(amounts, key, 1)
        return [limit._replace(amount=max(0, amount)) for limit, amount in zip(self._limits, amounts, strict=True)]

    def change(self, movers: Iterable[GangKey], found: Iterable[GangKey]) -> None:
        """The movers stand elsewhere, and who was found besides them came in."""
        for key in movers:
            self._add(self._amounts, key, 1)
        for key in found:
            self._charges[key] = self._work.charge_of(self._work.asks[key], self._work.landed[key])
            self._add(self._amounts, key, -1)
