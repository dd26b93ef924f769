"""When the order of the greedy fails a gang that could start: try again with everything this round placed, all together.

    who may be dropped    a gang of the same queue as one that failed, that comes after it or is of its priority but not the
                          first of its queue there; nobody else
    what is best          a higher priority counts before any lower one; then size, then age (DESIGN 7)
    what may not grow     a queue's usage above the larger of its share and what the order gave it

Two more greedy orders are tried, then the exact model (the slot-profile engine where that would be too large), hinted with
the best so far. The best answer stays.
"""

import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations, groupby

from muster.decide.asks import Ask
from muster.decide.memory import CoreMemory
from muster.decide.ordering import gang_key_order
from muster.decide.placement.exact import Exact, Item, Limit
from muster.decide.placement.feasibility import capacity
from muster.decide.placement.solver import Solve
from muster.decide.placement.untold import untold
from muster.decide.scheduling.batches import solve_batch
from muster.decide.scheduling.mending import mend
from muster.decide.scheduling.state import Round, Saved, alike, least_charge
from muster.decide.shares import Amounts, total_of
from muster.model.pods import Shape
from muster.model.policy import Solver
from muster.model.units import GangKey, QueueName

Score = tuple[int, ...]
MOST_GUARANTEES = 4
"""Of so many queues every choice is a row of the models."""


def repair(work: Round, failed: Sequence[Ask], memory: CoreMemory, *, policy: Solver, solve: Solve) -> CoreMemory:
    """Improve the round in place; the memory remembers an attempt that gained nothing, so that it is not repeated."""
    if not failed or not policy.enabled:
        return memory
    ordered = work.save()
    work.reset()
    hopeful = [ask for ask in failed if _could_gain(work, ask, alone=not ordered.landed)]
    digest = _digest(work, [*ordered.asks.values(), *hopeful]) if hopeful else ""
    if not hopeful or digest == memory.fruitless:
        work.restore(ordered)
        return memory
    problem = Problem(work, ordered, hopeful)
    best = problem.other_orders(ordered)
    best = problem.exact(best, policy, solve)
    work.reset()
    work.restore(best)
    return memory.without_fruit(digest if best is ordered else "")


def _could_gain(work: Round, ask: Ask, *, alone: bool) -> bool:
    """Whether another arrangement might admit the gang: the room before this round would hold each role by itself."""
    parts = [role for role in ask.roles if role.waiting]
    if any(int(capacity(work.room, role.shape).sum()) < role.need for role in parts):
        return False
    if len(parts) > 1:
        return True
    if alone:
        return False  # one role and nobody to move: the greedy is exact there
    mark = work.room.mark()
    fits = work.greedy().minimum(ask) is not None
    work.room.rollback(mark)
    return fits


def _digest(work: Round, asks: Sequence[Ask]) -> str:
    room = work.room
    digest = hashlib.blake2b(digest_size=12)
    for array in (room.free, room.card_memory, room.card_core, room.whole_free):
        digest.update(array.tobytes())
    for ask in asks:
        digest.update(f"{ask.gang.key}|{ask.gang.queue}|{ask.need}|{ask.waiting}|{ask.gang.priority};".encode())
    digest.update(repr(sorted((queue.name, queue.capability.amounts) for queue in work.tree.queues.values())).encode())
    return digest.hexdigest()


class Problem:
    """The gangs that this round placed and those that failed, with what each is worth."""

    def __init__(self, work: Round, ordered: Saved, failed: Sequence[Ask]) -> None:
        self.work = work
        self.asks = sorted([*ordered.asks.values(), *failed], key=lambda ask: gang_key_order(ask.gang))
        self.failed = {ask.gang.key for ask in failed}
        self.tier = {ask.gang.key: self._tier(ask) for ask in self.asks}
        self.value = self._values()
        self.size = {key: value // (len(self.asks) + 1) for key, value in self.value.items()}
        self.fixed = self._fixed(failed)
        self.caps = self._caps(ordered)
        self.in_slots = False
        """Whether a pass was too large for the exact model."""

    def _tier(self, ask: Ask) -> tuple[int, int]:
        """Broken gangs stand above every priority."""
        return int(ask.gang.broken), ask.gang.priority

    def _values(self) -> dict[GangKey, int]:
        total = total_of(self.work.room.fleet)
        count = len(self.asks)
        values = {}
        for age, ask in enumerate(self.asks):
            charge = least_charge(self.work.room, ask)
            size = max((10_000 * amount // max(total.get(name, 0), 1) for name, amount in charge.items()), default=0)
            values[ask.gang.key] = max(1, size) * (count + 1) + (count - age)
        return values

    def _fixed(self, failed: Sequence[Ask]) -> set[GangKey]:
        fixed: set[GangKey] = set()
        rivals_of: dict[QueueName, list[tuple[int, int]]] = {}
        for one in failed:
            rivals_of.setdefault(one.gang.queue, []).append(self.tier[one.gang.key])
        first: set[tuple[QueueName, tuple[int, int]]] = set()
        for ask in self.asks:
            key, queue, tier = ask.gang.key, ask.gang.queue, self.tier[ask.gang.key]
            if key in self.failed:
                continue
            is_first = (queue, tier) not in first
            first.add((queue, tier))
            rivals = rivals_of.get(queue, [])
            lower = any(rival > tier for rival in rivals)
            if ask.gang.broken or key in self.work.settled or not (lower or (not is_first and tier in rivals)):
                fixed.add(key)
        return fixed

    def _caps(self, ordered: Saved) -> list[Limit]:
        """Capabilities, and shares, as what may still be taken by the gangs of each queue."""
        tree = self.work.tree
        below: dict[QueueName, set[GangKey]] = {}
        for ask in self.asks:
            for queue in tree.path(ask.gang.queue):
                below.setdefault(queue, set()).add(ask.gang.key)
        limits = []
        for queue, gangs in below.items():
            usage, later = tree.usage[queue], ordered.usage[queue]
            for resource, capability in tree.queues[queue].capability.amounts.items():
                limits.append(Limit(frozenset(gangs), resource, capability - usage.get(resource, 0)))
            for resource, share in tree.shares.get(queue, {}).items():
                if tree.governed(queue, resource):
                    most = max(int(share), later.get(resource, 0))
                    limits.append(Limit(frozenset(gangs), resource, most - usage.get(resource, 0)))
        return limits + self._beside_guarantees(ordered, below)

    def _beside_guarantees(self, ordered: Saved, below: Mapping[QueueName, set[GangKey]]) -> list[Limit]:
        """What is guaranteed to some queues is left by all others together, for every choice of a few such queues.

        Of the highest level alone; what lies deeper is judged by the tree when a plan is there.
        """
        tree = self.work.tree
        tops = tree.children.get(None, [])
        limits = []
        for resource in sorted({name for top in tops for name in tree.guaranteed.get(top, {})}):
            kept = {top: int(amount) for top in tops if (amount := tree.guaranteed[top].get(resource, Fraction(0))) > 0}
            chosen = sorted(kept)[:MOST_GUARANTEES]
            for number in range(1, len(chosen) + 1):
                for idle in combinations(chosen, number):
                    others = [top for top in tops if top not in idle]
                    gangs = frozenset(key for top in others for key in below.get(top, ()))
                    usage = sum(tree.usage[top].get(resource, 0) for top in others)
                    later = sum(ordered.usage[top].get(resource, 0) for top in others)
                    most = tree.total.get(resource, 0) - sum(kept[top] for top in idle)
                    if gangs:
                        limits.append(Limit(gangs, resource, max(most, later) - usage))
        return limits

    def score(self, saved: Saved) -> Score:
        """What an arrangement is worth: by tier from the highest, then few nodes opened."""
        tiers = sorted(set(self.tier.values()), reverse=True)
        worth = [sum(self.value[key] for key in saved.landed if self.tier[key] == tier) for tier in tiers]
        fleet = self.work.room.fleet
        empty = {row for row in range(fleet.size) if self.work.base_pods[row] == fleet.total[row, 2]}
        opened = {landed.row for pods in saved.landed.values() for landed in pods} & empty
        return (*worth, -len(opened))

    def _keeps_rules(self, saved: Saved) -> bool:
        if not self.fixed <= saved.landed.keys():
            return False
        charges: dict[GangKey, Amounts] = {
            key: self.work.charge_of(saved.asks[key], landed) for key, landed in saved.landed.items()
        }
        # What others are guaranteed is judged in the order in which gangs come, from nothing placed.
        now, self.work.tree.usage = self.work.tree.usage, self.work.usage_before()
        try:
            for key, charge in charges.items():
                queue = saved.asks[key].gang.queue
                if self.work.tree.over_guarantees(queue, charge) is not None:
                    return False
                self.work.tree.charge(queue, charge)
        finally:
            self.work.tree.usage = now
        return all(
            sum(charge.get(limit.resource, 0) for key, charge in charges.items() if key in limit.gangs)
            <= max(limit.amount, 0)
            for limit in self.caps
        )

    def other_orders(self, best: Saved) -> Saved:
        """The same gangs by the greedy, large first and small first; gangs that must stay before the others."""
        score = self.score(best)
        kinds = {ask.gang.key: alike(ask) for ask in self.asks}
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds.values()))}
        for sign in (-1, 1):
            # Equal gangs of equal size follow each other, so that they are placed together.
            turns = [
                (
                    (
                        ask.gang.key not in self.fixed,
                        tuple(-part for part in self.tier[ask.gang.key]),
                        sign * self.size[ask.gang.key],
                        numbers[kinds[ask.gang.key]],
                    ),
                    age,
                )
                for age, ask in enumerate(self.asks)
            ]
            tried = self._in_turn(sorted(turns), kinds, score)
            if tried is not None and self._keeps_rules(tried) and self.score(tried) > score:
                best, score = tried, self.score(tried)
        return best

    def _in_turn(
        self, turns: Sequence[tuple[object, int]], kinds: Mapping[GangKey, Shape | None], score: Score
    ) -> Saved | None:
        """What the greedy places in this order; None as soon as it can end neither above the score nor within the rules."""
        self.work.reset()
        tiers = sorted(set(self.tier.values()), reverse=True)
        possible = dict.fromkeys(tiers, 0)
        for key, value in self.value.items():
            possible[self.tier[key]] += value
        for _, run in groupby(turns, key=lambda one: one[0]):
            asks = [self.asks[age] for _, age in run]
            if kinds[asks[0].gang.key] is not None:
                self.work.admit_alike(asks)
            else:
                for ask in asks:
                    self.work.admit(ask)
            lost = [ask.gang.key for ask in asks if ask.gang.key not in self.work.landed]
            if not self.fixed.isdisjoint(lost):
                return None
            for key in lost:
                possible[self.tier[key]] -= self.value[key]
            if lost and tuple(possible[tier] for tier in tiers) < score[:-1]:
                return None
        return self.work.save()

    def exact(self, best: Saved, policy: Solver, solve: Solve) -> Saved:
        """The exact model, tier by tier from the highest that has a failed gang; what a pass admitted stays."""
        apart = self._apart(best)
        settled: set[GangKey] = set(self.fixed)
        for tier in sorted({self.tier[key] for key in self.failed}, reverse=True):
            missing = {ask.gang.key for ask in self.asks if self.tier[ask.gang.key] >= tier} - best.landed.keys()
            if not missing - apart:
                continue
            found = self._pass(best, tier, settled, apart=apart, policy=policy, solve=solve)
            if found is not None and self._keeps_rules(found) and self.score(found) > self.score(best):
                best = found
            settled |= {key for key in best.landed if self.tier[key] >= tier}
        return self._mended(best, apart, policy, solve) if self.in_slots else best

    def _apart(self, best: Saved) -> set[GangKey]:
        """Gangs that the models cannot tell (`untold`): they stay where the greedy put them, and others move around them."""
        self.work.reset()
        self.work.restore(best)
        shapes = untold(self.work.room, dict.fromkeys(role.shape for ask in self.asks for role in ask.roles))
        return (
            {ask.gang.key for ask in self.asks if any(role.shape in shapes for role in ask.roles)} if shapes else set()
        )

    def _pass(
        self,
        best: Saved,
        tier: tuple[int, int],
        settled: set[GangKey],
        *,
        apart: set[GangKey],
        policy: Solver,
        solve: Solve,
    ) -> Saved | None:
        lower = sum(self.value[ask.gang.key] for ask in self.asks if self.tier[ask.gang.key] < tier)
        items = [
            Item(
                ask,
                ask.gang.key in settled,
                self.value[ask.gang.key] * (lower + 1 if self.tier[ask.gang.key] >= tier else 1),
            )
            for ask in self.asks
            if ask.gang.key not in apart
        ]
        kept = apart & best.landed.keys()
        hint = {key: landed for key, landed in best.landed.items() if key not in kept}
        limits = self._beside(best, kept)
        self.work.reset_but(best, kept)
        exact = Exact(self.work.room, items, limits=limits, hint=hint, blocked=self.work.blocked)
        if exact.variables() > policy.exact_max_variables:
            upper = {ask.gang.key for ask in self.asks if self.tier[ask.gang.key] >= tier}
            self.in_slots = True
            beside = [ask for ask in self.asks if ask.gang.key in apart - kept]
            return solve_batch(
                self.work,
                items,
                upper=upper - apart,
                limits=limits,
                best=best,
                kept=kept,
                beside=beside,
                policy=policy,
                solve=solve,
            )
        mark = self.work.room.mark()
        found = exact.solve(policy, solve)
        self.work.room.rollback(mark)
        if found is None:
            return None
        asks = {ask.gang.key: ask for ask in self.asks}
        for key, landed in found.items():
            self.work.take(asks[key], landed)
        # What the exact answer left out may still fit into what is left.
        for ask in self.asks:
            if ask.gang.key not in found and ask.gang.key not in kept:
                self.work.admit(ask)
        return self.work.save()

    def _beside(self, best: Saved, kept: set[GangKey]) -> list[Limit]:
        """What the limits leave beside gangs that stay."""
        if not kept:
            return self.caps
        charges = {key: self.work.charge_of(best.asks[key], best.landed[key]) for key in kept}
        return [
            limit._replace(amount=limit.amount - sum(charges[key].get(limit.resource, 0) for key in kept & limit.gangs))
            for limit in self.caps
        ]

    def _mended(self, best: Saved, apart: set[GangKey], policy: Solver, solve: Solve) -> Saved:
        """What the engine could not tell, put right at node level: all that was admitted stays."""
        first = sorted(self.asks, key=lambda ask: (self.tier[ask.gang.key], self.value[ask.gang.key]))
        items = [Item(ask, ask.gang.key in best.landed, worth) for worth, ask in enumerate(first, start=1)]
        items = [item for item in items if item.ask.gang.key not in apart]
        found = mend(self.work, items, limits=self.caps, best=best, policy=policy, solve=solve)
        if found is not None and self._keeps_rules(found) and self.score(found) > self.score(best):
            return found
        return best
