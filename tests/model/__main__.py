"""`python -m tests.model [RULE ...]`: explores every scenario, then shows the shortest history without each rule."""

import sys
import time

from tests.model.explore import Outcome, explore, walk
from tests.model.rules import LIVENESS_RULES, RULES
from tests.model.scenarios import BREAKS, SCENARIOS, WALKED, Scenario


def main(rules: list[str]) -> int:
    """Print counts and histories; returns 1 when a scenario breaks with every rule on, or nothing breaks without one."""
    unknown = [rule for rule in rules if rule not in RULES]
    if unknown:
        print(f"unknown rules {unknown}; known are: {', '.join(RULES)}", file=sys.stderr)
        return 2
    bad = 0
    if not rules:
        total = 0
        for name, scenario in SCENARIOS.items():
            outcome = _explored(scenario, frozenset(), scenario.settle_every, name)
            total += outcome.states
            bad += bool(outcome.broken)
        print(f"{total:,} states, {'no violation' if not bad else f'{bad} scenarios broken'}")
        for name, scenario in WALKED.items():
            outcome = walk(scenario.build(frozenset()), seed=1, walks=300, length=60)
            bad += bool(outcome.broken)
            print(f"{name:16} {outcome.states:>8,} steps of random walks  {outcome.broken or 'no violation'}")
            if outcome.broken:
                print(outcome.report())
    for rule in rules or RULES:
        print(f"\nwithout {rule} ({RULES[rule]})")
        outcome = _explored(SCENARIOS[BREAKS[rule]], frozenset({rule}), int(rule in LIVENESS_RULES), BREAKS[rule])
        bad += not outcome.broken
    return int(bad > 0)


def _explored(scenario: Scenario, without: frozenset[str], settle_every: int, name: str) -> Outcome:
    began = time.monotonic()

    def progress(depth: int, states: int) -> None:
        if sys.stderr.isatty():
            print(f"\r{name:16} depth {depth:>3} {states:>8,} states", end="", file=sys.stderr, flush=True)

    outcome = explore(scenario.build(without), limit=scenario.limit, settle_every=settle_every, progress=progress)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    end = "broken" if outcome.broken else "all explored" if outcome.exhausted else "up to the bound"
    spent = time.monotonic() - began
    print(
        f"{name:16} {outcome.states:>8,} states  depth {outcome.depth:>3}  {outcome.settled:>6,} settled  {spent:5.1f} s  {end}",
        flush=True,
    )
    if outcome.broken:
        print(outcome.report(), flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
