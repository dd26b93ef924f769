"""The placement engine against the best greedy of three orders, on synthetic clusters.

    python -m loadtest placement [--quick] [--seeds N] [--only KIND] [--write docs/benchmarks.md] [--json FILE]

Both answers come from one run of `decide`: what the three greedy orders (first come, large first, small first; higher priority
first, and the gangs that fairness fixes before the others) gave at best, and what the engine made of it. The score is the
scheduler's own: admitted size by priority, then nodes opened. Times are of the whole decision from a snapshot to
instructions, validation and reasons included, with the fleet kept from the decision before. See `loadtest.clusters` for the
instances.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from loadtest.clusters import Cluster, Kind, generate
from loadtest.tables import machine, peak_mebibytes, quantile, table, write_between
from muster.decide.fleet import Fleet
from muster.decide.memory import CoreMemory
from muster.decide.placement.engine.master import Master, Region
from muster.decide.placement.engine.plan import Batch, Plan
from muster.decide.placement.solver import Solve, no_solver, parameters_of, solve_here
from muster.decide.scheduling import batches, decide, repair
from muster.decide.scheduling.state import Saved
from muster.model.instructions import Place
from muster.model.policy import Policy, Solver

PROBLEM = repair.Problem
IMPROVE = batches.improve


class Case(NamedTuple):
    """One row of the tables."""

    kind: Kind
    nodes: int
    load: float
    pods: int | None
    seeds: int


class Seen(NamedTuple):
    """What one decision gave."""

    seed: int
    pending_gangs: int
    pending_pods: int
    free_cards: int
    greedy_gangs: int
    engine_gangs: int
    greedy_cards: int
    engine_cards: int
    worse: bool
    better: bool
    seconds: float
    cpu_seconds: float
    """Of this process: what the decision would take on a core of its own."""
    greedy_seconds: float
    engine_seconds: float
    placed_pods: int
    solves: int
    bound_percent: float | None
    """How much more admitted value the solver's bound still allows, None when it was not asked for."""


class Recorder:
    """Watches one decision from outside: scores before and after the solver, and the problem it solved."""

    def __init__(self) -> None:
        self.scores: list[tuple[Any, Any]] = []
        self.gangs: tuple[int, int] | None = None
        self.cards: tuple[int, int] | None = None
        self.seconds = 0.0
        self.solves = 0
        self.batch: tuple[Batch, Plan] | None = None

    def __enter__(self) -> Self:
        recorder = self

        class Watched(PROBLEM):
            def exact(self, best: Saved, policy: Solver, solve: Solve) -> Saved:
                def counted(model: Any, parameters: Any) -> Any:
                    recorder.solves += 1
                    return solve(model, parameters)

                start = time.perf_counter()
                found = super().exact(best, policy, counted)
                recorder.seconds += time.perf_counter() - start
                recorder.scores.append((self.score(best), self.score(found)))
                recorder.gangs = len(best.landed), len(found.landed)
                recorder.cards = _cards(best), _cards(found)
                return found

        def improve(batch: Batch, plan: Plan, *more: Any) -> Plan:
            found = IMPROVE(batch, plan, *more)
            recorder.batch = batch, found
            return found

        repair.Problem = Watched
        batches.improve = improve
        return self

    def __exit__(self, *_: object) -> None:
        repair.Problem = PROBLEM
        batches.improve = IMPROVE

    def bound(self, seconds: float) -> float | None:
        """Percent of admitted value above the answer that the whole model's bound leaves after so many seconds."""
        if self.batch is None:
            return None
        batch, plan = self.batch
        everything = np.ones(batch.pools.total, dtype=np.bool_)
        waiting = [number for number in range(len(batch.demands.entries)) if number not in plan.placed]
        master = Master(batch, plan, Region(everything, waiting, range(len(batch.demands.bags))))
        parameters = parameters_of(Solver(deterministic_seconds=1000, wall_seconds=seconds))
        _, response = master.solve(parameters, solve_here)
        if response is None:
            return None
        fixed = sum(batch.demands.entries[number].item.value for number in plan.placed if _is_fixed(batch, number))
        now = -master.cost_of_hint() / master.weight
        most = -float(response.best_objective_bound) / master.weight
        return max(0.0, 100 * (most - now) / max(1.0, now + fixed))


def _is_fixed(batch: Batch, number: int) -> bool:
    return batch.demands.entries[number].item.fixed


def _cards(saved: Saved) -> int:
    return sum(
        saved.asks[key].roles[one.role].shape.request.cards for key, landed in saved.landed.items() for one in landed
    )


def run_once(cluster: Cluster, seed: int, fleet: Fleet, *, bound: float) -> Seen:
    """One decision with the engine, and one without for its time."""
    policy = Policy(solver=Solver(wall_seconds=30))
    start = time.perf_counter()
    decide(cluster.snapshot, CoreMemory(), 0.0, policy, solve=no_solver, fleet=fleet)
    greedy_seconds = time.perf_counter() - start
    with Recorder() as recorder:
        start, cpu = time.perf_counter(), time.process_time()
        decision = decide(cluster.snapshot, CoreMemory(), 0.0, policy, solve=solve_here, fleet=fleet)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    places = [one for one in decision.instructions if isinstance(one, Place)]
    gangs = recorder.gangs or (len(places), len(places))
    cards = recorder.cards or (0, 0)
    return Seen(
        seed,
        cluster.gangs,
        cluster.pods,
        cluster.free_cards,
        *gangs,
        *cards,
        any(after < before for before, after in recorder.scores),
        any(after > before for before, after in recorder.scores),
        seconds,
        cpu_seconds,
        greedy_seconds,
        recorder.seconds,
        sum(len(place.slots) for place in places),
        recorder.solves,
        recorder.bound(bound) if bound else None,
    )


def run_case(case: Case, *, bound: float) -> list[Seen]:
    """Every seed of a case, with progress on stderr."""
    seen = []
    for seed in range(1, case.seeds + 1):
        cluster = generate(case.kind, case.nodes, case.load, seed, pods=case.pods)
        fleet = Fleet(cluster.snapshot.nodes, cluster.snapshot.topology_levels)
        one = run_once(cluster, seed, fleet, bound=bound if case.kind == "contended" and case.nodes <= 1000 else 0.0)
        seen.append(one)
        print(
            f"{case.kind} {case.nodes} nodes {case.load:.0%} seed {seed}: gangs {one.greedy_gangs} → {one.engine_gangs} "
            f"of {one.pending_gangs}, {one.seconds:.2f} s ({one.engine_seconds:.2f} s engine, {one.solves} solves)",
            file=sys.stderr,
            flush=True,
        )
    return seen


def run_single(nodes: int, times: int) -> tuple[list[float], list[float]]:
    """Wall and cpu seconds of decisions about one gang each, in a cluster at 80 % load; the fleet is kept."""
    cluster = generate("contended", nodes, 0.8, 1)
    fleet = Fleet(cluster.snapshot.nodes, cluster.snapshot.topology_levels)
    seconds, cpu = [], []
    for number in range(times + 2):
        gang = cluster.snapshot.gangs[number % cluster.gangs]
        snapshot = msgspec.structs.replace(cluster.snapshot, gangs=(gang,))
        start, start_cpu = time.perf_counter(), time.process_time()
        decide(snapshot, CoreMemory(), 0.0, Policy(), solve=solve_here, fleet=fleet)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    print(f"one gang, {nodes} nodes: {quantile(seconds[2:], 0.5) * 1e3:.1f} ms", file=sys.stderr, flush=True)
    return seconds[2:], cpu[2:]


def cases(*, quick: bool, seeds: int | None, only: str | None) -> Iterator[Case]:
    """The rows: contended gangs first, then mixed batches, small batches and shares."""
    few, some = (2, 3) if quick else (5, 10)
    sizes = (100, 1000) if quick else (100, 1000, 5000)
    found: list[Case] = []
    for nodes in sizes:
        loads = (0.8,) if quick else (0.6, 0.8)
        found += [Case("contended", nodes, load, None, some if nodes < 5000 else 3) for load in loads]
    for nodes in sizes:
        loads = (0.8,) if quick else (0.6, 0.8, 0.95)
        found += [Case("mixed", nodes, load, nodes, few if nodes < 5000 else 3) for load in loads]
    found.append(Case("mixed", 1000, 0.8, 200, some))
    found += [Case("fractional", nodes, 0.8, nodes, few) for nodes in sizes[:2]]
    for case in found:
        if only in {None, case.kind}:
            yield case._replace(seeds=seeds or case.seeds)


def percent(after: float, before: float) -> float:
    """The difference in percent; 0 when there was nothing."""
    return 100 * (after / before - 1) if before else 0.0


def summary(case: Case, seen: list[Seen]) -> list[object]:
    """One row of the table of batches."""
    gains = [percent(one.engine_gangs, one.greedy_gangs) for one in seen]
    cards = [percent(one.engine_cards, one.greedy_cards) for one in seen]
    times = [one.seconds for one in seen]
    bounds = [one.bound_percent for one in seen if one.bound_percent is not None]
    greedy, engine = (sum(getattr(one, name) for one in seen) for name in ("greedy_gangs", "engine_gangs"))
    return [
        case.kind,
        f"{case.nodes:,} / {round(statistics.median(one.pending_pods for one in seen)):,}",
        f"{case.load:.0%}",
        len(seen),
        f"{greedy} → {engine} of {sum(one.pending_gangs for one in seen)}",
        f"{statistics.mean(gains):+.1f} % ({min(gains):+.1f} … {max(gains):+.1f})",
        f"{statistics.mean(cards):+.1f} % ({min(cards):+.1f} … {max(cards):+.1f})",
        f"{sum(one.better for one in seen)} / {sum(one.worse for one in seen)}",
        f"≤ {statistics.median(bounds):.1f} %" if bounds else "–",
        f"{quantile(times, 0.5):.2f} / {max(times):.2f}",
        f"{statistics.median(one.cpu_seconds for one in seen):.2f}",
        f"{statistics.median(one.greedy_seconds for one in seen):.2f}",
        f"{statistics.median(one.engine_seconds for one in seen):.2f}",
        f"{round(statistics.median(one.placed_pods / one.seconds for one in seen)):,}",
    ]


HEAD = (
    "batch",
    "nodes / pods",
    "load",
    "seeds",
    "gangs, greedy → engine of pending",
    "gangs, mean (range)",
    "cards of minimums, mean (range)",
    "score better / worse",
    "value the bound still allows, median",
    "decision p50 / max, s",
    "cpu p50, s",
    "without solver p50, s",
    "engine p50, s",
    "pods/s",
)


def main() -> int:
    """Measure, print, and write where asked; the exit status is 1 when any score is below the greedy's."""
    parser = argparse.ArgumentParser(description="Measure the placement engine against the greedy.")
    parser.add_argument("--quick", action="store_true", help="few seeds, up to 1,000 nodes (about a minute)")
    parser.add_argument("--seeds", type=int, help="seeds of every case")
    parser.add_argument("--only", choices=("contended", "mixed", "fractional"))
    parser.add_argument(
        "--bound",
        type=float,
        default=None,
        help="seconds for the solver's bound of contended cases of up to 1,000 nodes (0: none)",
    )
    parser.add_argument("--write", type=Path, help="write the tables into this Markdown file")
    parser.add_argument("--json", type=Path, help="write every single result to this file")
    arguments = parser.parse_args()
    bound = arguments.bound if arguments.bound is not None else (0.0 if arguments.quick else 5.0)
    run_once(generate("mixed", 100, 0.8, 99, pods=50), 99, _fleet(99), bound=0.0)
    rows, everything, loops = [], [], [fixed_loop()]
    for case in cases(quick=arguments.quick, seeds=arguments.seeds, only=arguments.only):
        seen = run_case(case, bound=bound)
        loops.append(fixed_loop())
        rows.append(summary(case, seen))
        everything.append({"case": case._asdict(), "seen": [one._asdict() for one in seen]})
    single = {nodes: run_single(nodes, 20 if arguments.quick else 100) for nodes in (100, 1000, 5000)}
    singles = [
        [f"{nodes:,}", len(pair[0]), *(f"{quantile(one, part) * 1e3:.1f}" for one in pair for part in (0.5, 0.99))]
        for nodes, pair in single.items()
    ]
    text = "\n\n".join(
        (
            "## Placement: the engine against the best greedy of three orders",
            "`python -m loadtest placement" + (" --quick" if arguments.quick else "") + "`, one run. " + _EXPLAINED,
            table(HEAD, rows),
            "One gang in a cluster at 80 % load, the whole decision, fleet kept, in ms:",
            table(("nodes", "decisions", "p50", "p99", "cpu p50", "cpu p99"), singles),
            f"Peak memory of the process: {peak_mebibytes()} MiB. {machine()}. {_noise(loops)}",
        )
    )
    print(text)
    if arguments.write is not None:
        write_between(arguments.write, "loadtest placement", text)
    if arguments.json is not None:
        result = {"machine": machine(), "batches": everything, "single": single, "peak_mebibytes": peak_mebibytes()}
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return int(any(one["worse"] for entry in everything for one in entry["seen"]))


_EXPLAINED = (
    "Greedy and engine are compared inside the same decision, on the scheduler's own score (admitted size by priority, then "
    "nodes opened); the gangs that fairness fixes are admitted in both. The engine's budget is the default policy's: "
    "deterministic, 0.1 solver seconds (about 0.4 s of wall time here when the machine is quiet) from 400 pods on, less below. "
    "Contended: every gang asks for one rack and for about what one rack has free, one priority, eight queues. Mixed: gangs, "
    "gangs of two roles, single pods, demand up to 1.6 × the free cards, two priorities. Fractional: mixed with shares of "
    "cards. Synthetic loads; the bound is of the slot-profile model without the gangs that stand aside."
)


def fixed_loop() -> float:
    """Seconds of a fixed piece of work: how much the machine was shared while this ran."""
    start = time.perf_counter()
    total = 0
    for number in range(1_000_000):
        total += number & 7
    assert total
    return time.perf_counter() - start


def _noise(loops: list[float]) -> str:
    ratio = statistics.median(loops) / min(loops)
    return (
        f"A fixed loop between the cases took {min(loops) * 1e3:.0f} ms at best, {statistics.median(loops) * 1e3:.0f} ms in the "
        f"median and {max(loops) * 1e3:.0f} ms at worst: the machine was shared, and times are to be read with a factor of "
        f"about {ratio:.1f}."
    )


def _fleet(seed: int) -> Fleet:
    cluster = generate("mixed", 100, 0.8, seed, pods=50)
    return Fleet(cluster.snapshot.nodes, cluster.snapshot.topology_levels)


if __name__ == "__main__":
    sys.exit(main())
