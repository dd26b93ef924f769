"""One run of one policy over one order, and what is measured of it.

allocation at x %   mean, over the arrivals at which the demand that arrived rounds to x % of the cards, of the demand placed
                    in percent of the cards (rounded to 0.01): as published. At 100 % the demand equals the capacity.
                        Where none rounds to it, on a small cluster: after the last arrival before
failed              pods, and their demand in cards, that were tried and fitted nowhere, up to 100 % and up to the end (130 %)
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from loadtest.openb.bound import most_allocated
from loadtest.openb.muster_runs import Muster
from loadtest.openb.rivals import FGD, BestFit, Random
from loadtest.openb.trace import CARD, Order, Trace
from loadtest.openb.windows import Windows


class Setting(NamedTuple):
    """Of the windowed policy."""

    window: int
    moves: int


class Run(NamedTuple):
    """What one run gave. Allocations are percent of the cards; demand is in cards."""

    pods: str
    policy: str
    seed: int
    at_100: float
    at_130: float
    failed_100: int
    failed_130: int
    missed_100: float
    missed_130: float
    moves: int


class Placer(Protocol):
    """A policy that decides one arrival at a time."""

    def place(self, number: int) -> bool:
        """Place the next arrival; False when it fits nowhere."""


class _Count:
    def __init__(self, trace: Trace, order: Order) -> None:
        self.trace, self.order = trace, order
        self.arrived = self.used = self.failed = self.missed = 0
        self.sums = {100: [0.0, 0], 130: [0.0, 0]}
        self.before = dict.fromkeys(self.sums, 0.0)
        self.at_100: tuple[int, int] | None = None

    def add(self, number: int, *, placed: bool) -> None:
        """One arrival that was decided."""
        demand = self.trace.kinds[number].demand
        self.arrived += demand
        if placed:
            self.used += demand
        else:
            self.failed += 1
            self.missed += demand
        share = round(100 * self.arrived / self.trace.capacity)
        allocated = round(100 * self.used / self.trace.capacity, 2)
        for at in self.sums:
            if share == at:
                self.sums[at][0] += allocated
                self.sums[at][1] += 1
            elif share < at:
                self.before[at] = allocated
        if self.at_100 is None and self.arrived >= self.trace.capacity:
            self.at_100 = self.failed, self.missed

    def run(self, pods: str, policy: str, moves: int) -> Run:
        """The figures."""
        failed, missed = self.at_100 or (self.failed, self.missed)
        means = {at: total / count if count else self.before[at] for at, (total, count) in self.sums.items()}
        return Run(
            pods=pods,
            policy=policy,
            seed=self.order.seed,
            at_100=means[100],
            at_130=means[130],
            failed_100=failed,
            failed_130=self.failed,
            missed_100=missed / CARD,
            missed_130=self.missed / CARD,
            moves=moves,
        )


ONE_BY_ONE: dict[str, Callable[[Trace, Order], Placer]] = {
    "Random": Random,
    "BestFit": BestFit,
    "FGD": FGD,
    "Muster": Muster,
    "Muster, mix of the list known": lambda trace, order: Muster(trace, order, known=True),
}


def one_run(trace: Trace, order: Order, pods: str, policy: str, setting: Setting) -> Run:
    """Let every pod of the order arrive."""
    count = _Count(trace, order)
    if policy in ONE_BY_ONE:
        placer = ONE_BY_ONE[policy](trace, order)
        for number in order.arrivals:
            count.add(number, placed=placer.place(number))
        return count.run(pods, policy, 0)
    windows = Windows(trace, order, moves=setting.moves)
    for start in range(0, len(order.arrivals), setting.window):
        part = order.arrivals[start : start + setting.window]
        for number, placed in zip(part, windows.place(part), strict=True):
            count.add(number, placed=placed)
    return count.run(pods, policy, windows.moved)


def bounds(trace: Trace, order: Order) -> tuple[float, float]:
    """The most percent of the cards that any scheduler can have allocated when 100 % and 130 % have arrived."""
    arrived, last = 0, {100: 0, 130: 0}
    for place, number in enumerate(order.arrivals):
        arrived += trace.kinds[number].demand
        share = round(100 * arrived / trace.capacity)
        last = {at: place + 1 if share <= at else end for at, end in last.items()}
    most = [most_allocated(trace, order.arrivals[:end]) if end else 0.0 for end in last.values()]
    return most[0], most[1]
