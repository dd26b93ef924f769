"""What no scheduler can exceed, whatever it knows and however often it moves pods.

Only the cards are looked at: no node, CPU, memory or model; a pod of several cards may lie anywhere. What is left is cutting
stock: fill cards of 1,000 with the shares and whole cards that arrived so that most is filled. Its linear relaxation, solved by
column generation, bounds the allocation from above.
"""

import math
from collections import Counter
from collections.abc import Sequence

from loadtest.openb.trace import CARD, Trace

CLOSE = 1e-6


def most_allocated(trace: Trace, arrived: Sequence[int]) -> float:
    """Percent of the cards."""
    from ortools.linear_solver import pywraplp

    wanted: Counter[int] = Counter()
    for number in arrived:
        kind = trace.kinds[number]
        if kind.demand:
            wanted[kind.milli] += kind.cards
    sizes = sorted(wanted)
    if not sizes:
        return 0.0
    step = math.gcd(CARD, *sizes)
    solver = pywraplp.Solver.CreateSolver("GLOP")
    rows = [solver.Constraint(0, wanted[size]) for size in sizes]
    cards = solver.Constraint(0, trace.capacity // CARD)
    objective = solver.Objective()
    objective.SetMaximization()

    def add(pattern: dict[int, int]) -> None:
        column = solver.NumVar(0, solver.infinity(), "")
        cards.SetCoefficient(column, 1)
        for place, times in pattern.items():
            rows[place].SetCoefficient(column, times)
        objective.SetCoefficient(column, sum(sizes[place] * times for place, times in pattern.items()))

    for place, size in enumerate(sizes):
        add({place: CARD // size})
    while True:
        solver.Solve()
        gains = [size - row.dual_value() for size, row in zip(sizes, rows, strict=True)]
        value, pattern = _best_pattern([size // step for size in sizes], gains, CARD // step)
        if value <= cards.dual_value() + CLOSE:
            return float(100 * objective.Value() / trace.capacity)
        add(pattern)


def _best_pattern(sizes: Sequence[int], gains: Sequence[float], room: int) -> tuple[float, dict[int, int]]:
    """The knapsack: what fills a card with most gain."""
    best = [0.0] * (room + 1)
    chosen = [-1] * (room + 1)
    for filled in range(1, room + 1):
        best[filled] = best[filled - 1]
        for place, size in enumerate(sizes):
            if size <= filled and best[filled - size] + gains[place] > best[filled] + CLOSE / 10:
                best[filled], chosen[filled] = best[filled - size] + gains[place], place
    pattern: dict[int, int] = {}
    filled = room
    while filled > 0:
        place = chosen[filled]
        if place < 0:
            filled -= 1
            continue
        pattern[place] = pattern.get(place, 0) + 1
        filled -= sizes[place]
    return best[room], pattern
