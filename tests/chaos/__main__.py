"""Runs chaos and writes the report."""

import argparse
import asyncio
import json
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import Progress

from tests.chaos.plans import PLAN_KINDS, PlanRun
from tests.chaos.run import Result, Run

GANG_KINDS = ("kill-scheduler", "kill-controller", "kill-watcher", "pause-scheduler", "kill-nats", "wipe-store")
KINDS = (*GANG_KINDS, *PLAN_KINDS)
EPILOG = """examples:
  python -m tests.chaos --runs 20 --report docs/chaos.md
  python -m tests.chaos --only kill-nats --runs 1 --seed 7
  python -m tests.chaos --plans --runs 10
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=len(KINDS), help="how many (default: one of each kind)")
    parser.add_argument("--seed", type=int, default=1, help="first seed (default: %(default)s)")
    parser.add_argument("--only", choices=KINDS, help="one kind of blow")
    parser.add_argument("--plans", action="store_true", help="only blows that fall while a plan of preemption is open")
    parser.add_argument("--report", type=Path, help="Markdown file to write")
    parser.add_argument("--json", action="store_true", help="one line a run")
    parser.add_argument("--keep", type=Path, help="keep state and logs of failed runs here")
    arguments = parser.parse_args()
    kinds = (arguments.only,) if arguments.only else PLAN_KINDS if arguments.plans else KINDS
    plan = [(kinds[number % len(kinds)], arguments.seed + number) for number in range(arguments.runs)]
    results: list[Result] = []
    console = Console(stderr=True)
    with Progress(console=console) as progress:
        task = progress.add_task("chaos", total=len(plan))
        for kind, seed in plan:
            progress.update(task, description=f"{kind} {seed}")
            results.append(one(kind, seed, keep=arguments.keep))
            progress.advance(task)
            if arguments.json:
                print(json.dumps(msgspec.to_builtins(results[-1])), flush=True)
            elif not results[-1].ok:
                console.print(f"{kind} {seed}: {'; '.join(results[-1].problems)}")
    text = report(results)
    if arguments.report:
        arguments.report.write_text(text, encoding="utf-8")
    if not arguments.json:
        print(text)
    return 0 if all(result.ok for result in results) else 1


def one(kind: str, seed: int, *, keep: Path | None = None, recovery_limit: float = 5.0) -> Result:
    """One run in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="muster-chaos-") as directory:
        path = Path(directory) if keep is None else keep / f"{kind}-{seed}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        run = (PlanRun if kind in PLAN_KINDS else Run)(kind, seed, path, recovery_limit=recovery_limit)
        try:
            return asyncio.run(run.go())
        except Exception as error:  # noqa: BLE001  (a run that breaks is a failed run, not the end of the series)
            run.result.problems.append(f"{type(error).__name__}: {error}")
            return run.result


def report(results: list[Result]) -> str:
    """The report as Markdown."""
    when = time.strftime("%Y-%m-%d")
    lines = [
        "# Chaos report",
        "",
        "A gang of 200 single-card pods and ten small jobs are submitted over NATS to a fresh stack of real processes on a",
        "simulated cluster of 27 × 8 cards; one blow falls at a random moment (by seed). Afterwards the gang must be complete,",
        "no card given twice, no submission lost, every status event in order. Blows named plan-… fall instead at a stage of the",
        "plan by which an urgent job gets the room of low ones that hold every card of 6 × 8: nobody may leave without a plan,",
        "before what was told, or in vain, and in the end no plan is open and every job has run again. Written by",
        f"`python -m tests.chaos --runs {len(results)} --report docs/chaos.md`, {when}, Python {platform.python_version()}.",
        "",
        f"**{sum(result.ok for result in results)} of {len(results)} runs without a problem.**",
        "",
        "| blow | seed | moment | bound then | outcome | accepting again after | seconds | problems |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        back = f"{result.recovered:.1f} s" if result.recovered is not None else "–"
        lines.append(
            f"| {result.kind} | {result.seed} | {result.moment} | {result.bound_at_blow} | {result.outcome} | {back} "
            f"| {result.seconds:.0f} | {'; '.join(result.problems) or '–'} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
