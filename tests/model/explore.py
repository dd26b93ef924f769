"""Breadth-first exploration of a protocol: every reachable state once, so a history that breaks an invariant is a shortest one.

A protocol has `initial()`, `steps(state)` giving Step(kind, label, state) for everything that may happen next, `violation(state)` (a sentence, or
nothing), `canonical(state)` which maps states that no rule can tell apart to one, and `unsettled(state)`: what is still wrong after a fair
continuation without faults (checked on a sample of the states: that is the bounded form of "every gang ends complete or free").
"""

import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Step(NamedTuple):
    """Something that may happen: a kind (for the fair schedule), a sentence for histories, the state after it."""

    kind: str
    label: str
    state: Hashable


class Explorable(Protocol):
    """What the explorer needs of a model."""

    def initial(self) -> Hashable: ...
    def steps(self, state: Hashable) -> Iterator[Step]: ...
    def violation(self, state: Hashable) -> str: ...
    def canonical(self, state: Hashable) -> Hashable: ...
    def unsettled(self, state: Hashable) -> str: ...


@dataclass(frozen=True)
class Outcome:
    """The result of an exploration: `broken` is empty when every state that was seen is good."""

    states: int
    depth: int
    exhausted: bool
    settled: int
    broken: str
    history: tuple[str, ...]

    def report(self) -> str:
        """The history as numbered lines, the broken invariant last."""
        lines = [f"  {number:2}. {label}" for number, label in enumerate(self.history, start=1)]
        return "\n".join([*lines, f"   => {self.broken}"])


def explore(
    model: Explorable,
    *,
    limit: int,
    settle_every: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Visit up to `limit` states breadth first; every `settle_every`-th one is also settled fairly (0: none)."""
    start = model.canonical(model.initial())
    parents: dict[Hashable, tuple[Hashable, str] | None] = {start: None}
    layer, depth, settled = [start], 0, 0

    def outcome(state: Hashable, broken: str, *, exhausted: bool = False) -> Outcome:
        return Outcome(len(parents), depth, exhausted, settled, broken, _history(parents, state))

    count = 0
    while layer:
        following: list[Hashable] = []
        for state in layer:
            broken = model.violation(state)
            if broken:
                return outcome(state, broken)
            if settle_every and count % settle_every == 0:
                settled += 1
                broken = model.unsettled(state)
                if broken:
                    return outcome(state, broken)
            count += 1
            if len(parents) >= limit:
                continue
            for step in model.steps(state):
                after = model.canonical(step.state)
                if after not in parents:
                    parents[after] = (state, step.label)
                    following.append(after)
        if progress:
            progress(depth, len(parents))
        if following:
            depth += 1
        layer = following
    return outcome(start, "", exhausted=len(parents) < limit)


def walk(model: Explorable, *, seed: int, walks: int, length: int) -> Outcome:
    """Random walks of bounded length: they reach deep where breadth first cannot; each walk's end is settled."""
    chance = random.Random(seed)
    seen = 0
    for _ in range(walks):
        state, history = model.initial(), []
        for _ in range(length):
            options = list(model.steps(state))
            if not options:
                break
            step = chance.choice(options)
            state = step.state
            history.append(step.label)
            seen += 1
            broken = model.violation(state)
            if broken:
                return Outcome(seen, len(history), False, 0, broken, tuple(history))
        broken = model.unsettled(state)
        if broken:
            return Outcome(seen, len(history), False, 0, broken, tuple(history))
    return Outcome(seen, length, False, walks, "", ())


def _history(parents: dict[Hashable, tuple[Hashable, str] | None], state: Hashable) -> tuple[str, ...]:
    labels: list[str] = []
    while (came := parents[state]) is not None:
        state, label = came
        labels.append(label)
    return tuple(reversed(labels))
