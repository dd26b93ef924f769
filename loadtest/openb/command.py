"""The command: which runs are made, on how many processes, and where the results go."""

import argparse
import json
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from loadtest.openb.report import Bound, text
from loadtest.openb.runs import ONE_BY_ONE, Run, Setting, bounds, one_run
from loadtest.openb.trace import FIRST_SEED, order, read
from loadtest.tables import write_between

WINDOWS = "Muster, windows"
BOUND = "bound"
COST = {"Random": 1, "BestFit": 2, "FGD": 6, WINDOWS: 40, BOUND: 2}
"""Roughly how long a run takes, for the estimate and to start the long ones first."""


class Job:
    """One run to make, as plain data for another process."""

    def __init__(self, nodes: Path, pods: Path, seed: int, policy: str, setting: Setting) -> None:
        self.nodes, self.pods, self.seed, self.policy, self.setting = nodes, pods, seed, policy, setting

    @property
    def cost(self) -> int:
        """Relative length."""
        return COST.get(self.policy, 10)


def carry_out(job: Job) -> Run | Bound:
    """Make one run, or the bound of one order."""
    trace = read(job.nodes, job.pods)
    name = name_of(job.pods)
    arrivals = order(trace, job.seed)
    if job.policy == BOUND:
        return Bound(name, job.seed, *bounds(trace, arrivals))
    return one_run(trace, arrivals, name, job.policy, job.setting)


def name_of(pods: Path) -> str:
    """``default`` of openb_pod_list_default.csv."""
    return pods.stem.removeprefix("openb_pod_list_")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 2 when an argument is wrong."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m loadtest openb", description=__doc__)
    parser.add_argument("nodes", type=Path, help="nodes: sn, cpu_milli, memory_mib, gpu, model")
    parser.add_argument(
        "pods", type=Path, nargs="+", help="pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec"
    )
    parser.add_argument(
        "--orders", type=int, default=10, metavar="N", help="orders of arrival, seeds 42 … (default 10)"
    )
    parser.add_argument("--window", type=int, default=0, metavar="K", help="also decide over windows of K arrivals")
    parser.add_argument(
        "--moves", type=int, nargs="?", const=20, default=0, metavar="M", help="moves per window (20 when no M)"
    )
    parser.add_argument("--windows-on", default="", metavar="LIST", help="windows on this list only, such as default")
    parser.add_argument("--processes", type=int, default=2, metavar="P")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the tables between markers into this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every run as JSON")
    options = parser.parse_args(given)
    if options.orders < 1 or options.window < 0 or options.moves < 0 or options.processes < 1:
        parser.error("--orders and --processes must be at least 1, --window and --moves at least 0")
    setting = Setting(options.window, options.moves)
    jobs = []
    for pods in options.pods:
        windowed = setting.window and options.windows_on in {"", name_of(pods)}
        names = [*ONE_BY_ONE, *([WINDOWS] if windowed else []), BOUND]
        for seed in range(FIRST_SEED, FIRST_SEED + options.orders):
            jobs += [Job(options.nodes, pods, seed, name, setting) for name in names]
    try:
        for pods in options.pods:
            read(options.nodes, pods)
    except (OSError, ValueError) as problem:
        print(f"loadtest openb: {problem}", file=sys.stderr)
        return 2
    results = _all(jobs, options.processes)
    runs = sorted(
        (one for one in results if isinstance(one, Run)), key=lambda run: (_place(jobs, run.pods, run.policy), run.seed)
    )
    limits = [one for one in results if isinstance(one, Bound)]
    shown = "python -m loadtest openb " + shlex.join(_short(given))
    report = text(runs, limits, setting=setting if setting.window else None, command=shown)
    print(report)
    if options.write:
        write_between(options.write, "openb", report)
    if options.json:
        options.json.write_text(
            json.dumps({"runs": [run._asdict() for run in runs], "bounds": [one._asdict() for one in limits]}, indent=1)
        )
    return 0


def _place(jobs: Sequence[Job], pods: str, policy: str) -> int:
    return next(number for number, job in enumerate(jobs) if (name_of(job.pods), job.policy) == (pods, policy))


def _short(given: Sequence[str]) -> list[str]:
    """The arguments without folders, which say nothing elsewhere."""
    return [Path(one).name if one.endswith(".csv") or Path(one).is_absolute() else one for one in given]


def _all(jobs: Sequence[Job], processes: int) -> list[Run | Bound]:
    """Every run, the long ones first, with progress and an estimate on standard error."""
    ordered = sorted(jobs, key=lambda job: -job.cost)
    total, done, started = sum(job.cost for job in jobs), 0, time.monotonic()
    results: list[Run | Bound] = []
    # The processes are the parallelism: threads of the linear algebra below them would only get in each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    pool = multiprocessing.get_context("spawn").Pool(min(processes, len(ordered))) if processes > 1 else None
    stream: Iterator[Run | Bound] = pool.imap(carry_out, ordered) if pool is not None else map(carry_out, ordered)
    for job, result in zip(ordered, stream, strict=True):
        results.append(result)
        done += job.cost
        left = (time.monotonic() - started) * (total - done) / done
        line = f"{len(results)}/{len(ordered)} runs, about {left / 60:.1f} min left: {name_of(job.pods)} {job.seed} {job.policy}"
        print(line, file=sys.stderr, flush=True)
    if pool is not None:
        pool.close()
        pool.join()
    return results
