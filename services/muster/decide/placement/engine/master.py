"""One problem over some pools: the slot-profile model.

    y[entry, domain]       the entry runs in this domain (without a required level: y[entry])
    x[entry, part, pool]   its pods
    near[entry, domain]    a domain of the preferred level is used
    b[bag]                 how many gangs of the bag run
    w[kind, pool]          pods without a wish; pools that no entry may use here are merged for them
    e[pool]                nodes opened in an untouched pool

    Σ over k' ≥ k of (k' ÷ k)·pods ≤ slots_k of the pool, ≤ e·⌊width ÷ k⌋ in an untouched one
    limits of queues; what the plan has outside the region, or does not move, is a constant

The hint is the plan itself, complete and feasible; the answer is taken when its objective is lower.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from muster.decide.fleet import Ints, Mask
from muster.decide.placement.engine.candidates import Choice, choice_of, free_slots
from muster.decide.placement.engine.demands import Entry, Kind
from muster.decide.placement.engine.plan import Batch, Plan
from muster.decide.placement.exact import Model
from muster.decide.placement.solver import linear_model


class Region(NamedTuple):
    """What may change in one problem."""

    pools: Mask
    entries: Sequence[int]
    """Entries that are not admitted and may be; those that stand inside whole are always in it."""
    bags: Sequence[int]
    """Bags that may gain; those with pods inside may always lose."""
    most_domains: int = 0
    """Domains that each entry looks at; 0: all."""
    turn: int = 0
    most_variables: int = 0
    """With more pod variables than this (0: no matter) the problem will not be built: it need not be thought through."""


class Heap(NamedTuple):
    """A pool, or several merged ones."""

    pools: tuple[int, ...]
    slots: dict[int, int]
    untouched: bool
    width: int
    nodes: int


class Master:
    """Builds one problem and reads its answer back."""

    def __init__(self, batch: Batch, plan: Plan, region: Region) -> None:
        self.batch = batch
        self.plan = plan
        self.region = region
        self.model = Model()
        self._moving = self._scope()
        self._constant = self._constants()
        self._choices = self._choose()
        self._number_of: Ints = np.zeros(0, dtype=np.int64)
        """By pool: its heap; one too many outside."""
        self._heaps = self._merge()
        self._heap_of = {pool: number for number, heap in enumerate(self._heaps) for pool in heap.pools}
        self._loads: list[dict[int, list[tuple[int, int]]]] = [defaultdict(list) for _ in self._heaps]
        self._entries: dict[int, list[int]] = {}
        self._pods: dict[int, list[tuple[int, int, int]]] = {}
        self._bags: dict[int, int] = {}
        self._flows: dict[Kind, list[tuple[int, int]]] = {}
        self._minor: list[int] = []
        self.weight = 1
        """What one unit of admitted value weighs in the objective, above all nodes and domains together."""
        self.trivial = False
        """Nothing to choose: it was not given to the solver."""

    def _scope(self) -> list[int]:
        inside = self.region.pools
        moving = [number for number, counts in self.plan.placed.items() if all(inside[pool] for _, pool in counts)]
        return [*moving, *(number for number in self.region.entries if number not in self.plan.placed)]

    def _constants(self) -> dict[int, Ints]:
        """Pods by size and pool of entries that stay where they are."""
        pools = self.batch.pools
        constant = {size: np.zeros(pools.total, dtype=np.int64) for size in pools.sizes}
        moving = set(self._moving)
        for number, counts in self.plan.placed.items():
            if number in moving:
                continue
            parts = self.batch.demands.entries[number].parts
            for (part, pool), count in counts.items():
                constant[parts[part].size][pool] += count
        return constant

    def _choose(self) -> dict[int, Choice]:
        left = free_slots(self.batch, self._constant)
        choices = {}
        named = 0
        for number in self._moving:
            entry = self.batch.demands.entries[number]
            now = {pool for _, pool in self.plan.placed.get(number, {})}
            choice = choice_of(
                self.batch,
                entry,
                region=self.region.pools,
                left=left,
                now=now,
                most=self.region.most_domains,
                turn=self.region.turn + number,
            )
            if choice is not None:
                choices[number] = choice
                named += len(choice.pools) * len(entry.parts)
            if 0 < self.region.most_variables < named:
                break
        return choices

    def _merge(self) -> list[Heap]:
        pools, inside = self.batch.pools, self.region.pools
        alone = np.zeros(pools.total, dtype=np.bool_)
        alone[[pool for choice in self._choices.values() for pool in choice.pools]] = True
        for constant in self._constant.values():
            # Pods that stay belong to their own pool: merged, they would count as if they could move.
            alone |= constant > 0
        groups: dict[int, list[int]] = {}
        for pool in np.flatnonzero(inside).tolist():
            groups.setdefault(-pool - 1 if alone[pool] else int(pools.alike[pool]), []).append(pool)
        numbers = np.full(pools.total, len(groups), dtype=np.int64)
        for number, group in enumerate(groups.values()):
            numbers[group] = number
        slots = {size: self._by_heap(slots, numbers, len(groups)).tolist() for size, slots in pools.slots.items()}
        nodes = self._by_heap(pools.nodes, numbers, len(groups)).tolist()
        self._number_of = numbers
        return [
            Heap(
                tuple(group),
                {size: each[number] for size, each in slots.items()},
                bool(pools.untouched[group[0]]),
                int(pools.width[group[0]]),
                nodes[number],
            )
            for number, group in enumerate(groups.values())
        ]

    @staticmethod
    def _by_heap(amounts: Ints, numbers: Ints, count: int) -> Ints:
        """Amounts by pool as sums by heap."""
        return np.bincount(numbers, weights=amounts, minlength=count + 1)[:count].astype(np.int64)

    @property
    def variables(self) -> int:
        """How many pod variables the problem has (known before it is built)."""
        entries = self.batch.demands.entries
        named = sum(len(choice.pools) * len(entries[number].parts) for number, choice in self._choices.items())
        return named + len(self._heaps) * len(self.plan.flows)

    @property
    def hopeful(self) -> bool:
        """Whether anything that waits could be admitted in it."""
        plan, bags = self.plan, self.batch.demands.bags
        return any(number not in plan.placed for number in self._choices) or any(
            plan.admitted[number] < len(bags[number].items) for number in self.region.bags
        )

    def solve(self, parameters: Any, solve: Any) -> tuple[Plan | None, Any]:
        """A better plan, or None, and the solver's response (None when there was no answer)."""
        self._build()
        model = self.model
        if not model.cost:
            self.trivial = True
            return None, None
        built = linear_model(model.bounds, model.rows, model.cost, model.hints)
        response = None if built is None else solve(built, parameters)
        if response is None:
            return None, None
        values = [int(value) for value in response.solution]
        if len(values) != len(model.bounds) or self._cost(values) >= self._cost(model.hints):
            return None, response
        return self._read(values), response

    def proto(self) -> Any:
        """The model as the solver gets it (used by tests)."""
        self._build()
        return linear_model(self.model.bounds, self.model.rows, self.model.cost, self.model.hints)

    def cost_of_hint(self) -> int:
        """The objective of the plan itself."""
        return self._cost(self.model.hints)

    def _cost(self, values: Sequence[int]) -> int:
        return sum(factor * values[variable] for variable, factor in self.model.cost.items())

    def _build(self) -> None:
        for number, choice in self._choices.items():
            self._entry(number, self.batch.demands.entries[number], choice)
        self._free_pods()
        constants = {
            size: self._by_heap(pods, self._number_of, len(self._heaps)).tolist()
            for size, pods in self._constant.items()
        }
        for number, heap in enumerate(self._heaps):
            self._capacity(number, heap, {size: pods[number] for size, pods in constants.items()})
        self._limits()
        model = self.model
        weight = self.weight = 1 + sum(model.bounds[variable][1] for variable in self._minor)
        model.cost = dict.fromkeys(self._minor, 1)
        demands = self.batch.demands
        for number, chosen in self._entries.items():
            item = demands.entries[number].item
            if not item.fixed:
                model.cost |= dict.fromkeys(chosen, -item.value * weight)
        for number, variable in self._bags.items():
            model.cost[variable] = -demands.bags[number].value * weight

    def _entry(self, number: int, entry: Entry, choice: Choice) -> None:
        model, counts = self.model, self.plan.placed.get(number, {})
        chosen, pods = [], []
        for _, pools in choice.groups:
            here = int(any(pool in pools for _, pool in counts))
            runs = model.variable(1, hint=here)
            chosen.append(runs)
            everyone: list[tuple[int, int]] = []
            for at, part in enumerate(entry.parts):
                mine = []
                for pool in pools:
                    slots = int(self.batch.pools.slots[part.size][pool])
                    if not slots or not self.batch.allows(part, pool):
                        continue
                    variable = model.variable(min(part.most, slots), hint=counts.get((at, pool), 0))
                    mine.append((variable, 1))
                    pods.append((at, pool, variable))
                    self._loads[self._heap_of[pool]][part.size].append((variable, 1))
                if part.least == part.most:
                    model.row([*mine, (runs, -part.least)], least=0, most=0)
                else:
                    model.row([*mine, (runs, -part.least)], least=0)
                    model.row([*mine, (runs, -part.most)], most=0)
                everyone += mine
            if any(part.least != part.most for part in entry.parts):
                model.row([*everyone, (runs, -entry.minimum)], least=0, most=0)
        fixed = int(entry.item.fixed)
        model.row([(one, 1) for one in chosen], least=fixed, most=1)
        self._entries[number], self._pods[number] = chosen, pods
        if entry.preferred is not None:
            codes = self.batch.pools.preferred[entry.preferred]
            self._minor += self._used_domains([(pool, var) for _, pool, var in pods], codes, entry.minimum)
        for at, part in enumerate(entry.parts):
            mine_at = [(pool, var) for one, pool, var in pods if one == at]
            if part.required is not None:
                ones = self._used_domains(mine_at, self.batch.pools.required[part.required], part.most)
                model.row([(one, 1) for one in ones], most=1)
            if part.preferred is not None:
                self._minor += self._used_domains(mine_at, self.batch.pools.preferred[part.preferred], part.most)

    def _used_domains(self, pods: Sequence[tuple[int, int]], codes: Ints, most: int) -> list[int]:
        model = self.model
        by_code: dict[int, list[int]] = defaultdict(list)
        for pool, variable in pods:
            by_code[int(codes[pool])].append(variable)
        used = []
        for code, inside in by_code.items():
            one = model.variable(int(code >= 0), hint=int(any(model.hints[variable] for variable in inside)))
            model.row([*((variable, 1) for variable in inside), (one, -most)], most=0)
            used.append(one)
        return used

    def _free_pods(self) -> None:
        batch, plan, model = self.batch, self.plan, self.model
        gaining = set(self.region.bags)
        needs: dict[Kind, list[tuple[int, int]]] = defaultdict(list)
        settled: dict[Kind, int] = defaultdict(int)
        inside = {kind: int(flow[self.region.pools].sum()) for kind, flow in plan.flows.items()}
        for number, bag in enumerate(batch.demands.bags):
            kinds = batch.kinds[number]
            now = plan.admitted[number]
            most = len(bag.items) if number in gaining else now
            least = now - min(now - bag.fixed, *(inside[kind] // count for kind, count in kinds))
            if most > least:
                variable = self._bags[number] = model.variable(most, least=least, hint=now)
                for kind, count in kinds:
                    needs[kind].append((variable, count))
            else:
                for kind, count in kinds:
                    settled[kind] += count * now
        first = np.array([heap.pools[0] for heap in self._heaps], dtype=np.int64)
        for kind, flow in plan.flows.items():
            if not inside[kind] and kind not in needs:
                continue
            terms = []
            hints = self._by_heap(flow, self._number_of, len(self._heaps)).tolist()
            for number in np.flatnonzero(batch.pools.masks[kind.mask][first]).tolist():
                slots = self._heaps[number].slots[kind.size]
                if slots:
                    variable = model.variable(slots, hint=hints[number])
                    terms.append((variable, 1))
                    self._loads[number][kind.size].append((variable, 1))
                    self._flows.setdefault(kind, []).append((number, variable))
            outside = int(flow.sum()) - inside[kind]
            need = settled[kind] - outside
            model.row([*terms, *((var, -count) for var, count in needs[kind])], least=need, most=need)

    def _capacity(self, number: int, heap: Heap, constant: dict[int, int]) -> None:
        model, loads = self.model, self._loads[number]
        sizes = self.batch.pools.sizes
        if not any(loads.values()):
            return
        opened = -1
        if heap.untouched:
            hints = {size: sum(model.hints[var] for var, _ in loads[size]) + constant[size] for size in sizes}
            needed = max(
                -(-sum(k // size * hints[k] for k in sizes if k >= size) // max(1, heap.width // size))
                for size in sizes
            )
            opened = model.variable(heap.nodes, hint=needed)
            self._minor.append(opened)
        for size in sizes:
            terms = [(var, k // size) for k in sizes if k >= size for var, _ in loads[k]]
            if not terms or (not loads[size] and size != min(sizes)):
                # Sizes that nobody here takes: the rows of the next larger one say it already.
                continue
            fixed = sum(k // size * constant[k] for k in sizes if k >= size)
            if opened >= 0:
                model.row([*terms, (opened, -(heap.width // size))], most=-fixed)
            else:
                model.row(terms, most=heap.slots[size] - fixed)

    def _limits(self) -> None:
        for rate in self.batch.rates:
            terms: list[tuple[int, int]] = []
            now = 0
            for number, (followers, pods) in rate.entries.items():
                if number not in self._entries:
                    continue
                terms += [(one, followers) for one in self._entries[number] if followers]
                terms += [(variable, pods[at]) for at, _, variable in self._pods[number] if pods[at]]
            terms += [(self._bags[number], each) for number, each in rate.bags.items() if number in self._bags]
            now = sum(factor * self.model.hints[variable] for variable, factor in terms)
            self.model.row(terms, most=max(rate.amount, 0) - self.batch.usage(self.plan, rate) + now)

    def _read(self, values: Sequence[int]) -> Plan:
        plan = self.plan
        placed = {number: counts for number, counts in plan.placed.items() if number not in self._entries}
        for number, chosen in self._entries.items():
            if any(values[one] for one in chosen):
                placed[number] = {(at, pool): values[var] for at, pool, var in self._pods[number] if values[var]}
        admitted = list(plan.admitted)
        for number, variable in self._bags.items():
            admitted[number] = values[variable]
        inside = self.region.pools
        flows = {kind: np.where(inside, 0, flow) for kind, flow in plan.flows.items()}
        for kind, variables in self._flows.items():
            for number, variable in variables:
                heap = self._heaps[number]
                if len(heap.pools) == 1:
                    flows[kind][heap.pools[0]] = values[variable]
        self._spread(values, flows)
        return Plan(dict(sorted(placed.items())), tuple(admitted), flows)

    def _spread(self, values: Sequence[int], flows: dict[Kind, Ints]) -> None:
        """Deal the counts of merged pools out to them, largest slots first: what is left of each size adds up exactly."""
        for number, heap in enumerate(self._heaps):
            if len(heap.pools) == 1:
                continue
            left = {
                size: {pool: int(self.batch.pools.slots[size][pool]) for pool in heap.pools}
                for size in self.batch.pools.sizes
            }
            mine = [
                (kind, values[variable])
                for kind, variables in self._flows.items()
                for at, variable in variables
                if at == number and values[variable]
            ]
            for kind, total in sorted(mine, key=lambda one: (-one[0].size, one[0].mask)):
                count = total
                for pool in heap.pools:
                    take = min(count, left[kind.size][pool])
                    if take <= 0:
                        continue
                    flows[kind][pool] += take
                    count -= take
                    for size in self.batch.pools.sizes:
                        if size <= kind.size:
                            left[size][pool] -= kind.size // size * take
                assert not count, f"{count} pods of {kind} found no slot in merged pools"
