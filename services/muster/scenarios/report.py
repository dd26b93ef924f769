"""`muster scenario`: what Muster would do with scenario files, and, where they say what they expect, whether that comes true.

    one file, or a few named ones ─► what happens to each job, and what differs from `expect`
    many files, or folders        ─► those that fail, and counts by area; with -v what happens in each

Exit status 0 only if every file passes; 1 if any fails; 2 when nothing could be read.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import msgspec

from muster.scenarios.answer import Answer, answer, lines
from muster.scenarios.check import check
from muster.scenarios.format import Expect, ScenarioError, load
from muster.scenarios.runner import Outcome, run

MOST_NAMED = 5
"""So many files may be named one by one to be told in detail."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One file's verdict; one JSON line with ``--json``."""

    id: str
    area: str
    confidence: str
    ok: bool
    seconds: float
    why: tuple[str, ...]
    file: str
    outcome: Answer | None = None
    """None when the file could not be read, or the scheduler failed."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, and what led to it."""

    result: Result
    outcome: Outcome | None = None
    readable: bool = True


def judge(path: Path) -> Result:
    """Run one file."""
    return examine(path).result


def examine(path: Path) -> Judged:
    """Run one file and keep where everything stood."""
    start = perf_counter()
    try:
        scenario = load(path)
    except ScenarioError as error:
        why = tuple(str(error).splitlines())
        unread = Result(id=path.stem, area="", confidence="", ok=False, seconds=0.0, why=why, file=str(path))
        return Judged(result=unread, readable=False)
    outcome = None
    try:
        outcome = run(scenario)
        why = tuple(check(outcome))
    except Exception as error:  # noqa: BLE001 - one broken file must not hide the verdict on the others
        why = (f"the scheduler failed: {type(error).__name__}: {error}",)
    result = Result(
        id=scenario.id,
        area=scenario.area,
        confidence=scenario.confidence,
        ok=not why,
        seconds=round(perf_counter() - start, 4),
        why=why,
        file=str(path),
        outcome=answer(outcome) if outcome is not None else None,
    )
    return Judged(result=result, outcome=outcome)


def files_below(paths: Sequence[Path]) -> list[Path]:
    """Every YAML file given or below a folder given."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
    return found


def summary(results: Sequence[Result]) -> list[str]:
    """Pass counts by area and by confidence."""
    rows = []
    for area in sorted({result.area for result in results}):
        mine = [result for result in results if result.area == area]
        passed = sum(result.ok for result in mine)
        certain = [result for result in mine if result.confidence == "certain"]
        rows.append(
            f"{area or 'unreadable':16} {passed:3} of {len(mine):3}   certain {sum(r.ok for r in certain)} of {len(certain)}"
        )
    certain = [result for result in results if result.confidence == "certain"]
    rows.append(
        f"{'all':16} {sum(r.ok for r in results):3} of {len(results):3}   "
        f"certain {sum(r.ok for r in certain)} of {len(certain)}"
    )
    return rows


def details(judged: Judged) -> list[str]:
    """What happens in one file, and the verdict on it."""
    result, outcome = judged.result, judged.outcome
    if outcome is None:
        return list(result.why)
    about = f": {outcome.scenario.about}" if outcome.scenario.about else ""
    told = [f"{result.file}{about}", *lines(outcome)]
    if result.why:
        known = f" (known: {outcome.scenario.gap})" if outcome.scenario.gap else ""
        return [*told, f"not as expected{known}:", *(f"  {line}" for line in result.why)]
    return [*told, "as expected"] if outcome.scenario.expect != Expect() else told


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="muster scenario", description="Run scenario files against the core.")
    parser.add_argument("paths", nargs="+", type=Path, help="scenario files, or folders of them")
    parser.add_argument("--json", action="store_true", help="one JSON line per file")
    parser.add_argument("--verbose", "-v", action="store_true", help="what happens to each job, also for many files")
    parser.add_argument("--area", action="append", default=[], help="only this area (may be repeated)")
    arguments = parser.parse_args(argv)
    missing = [path for path in arguments.paths if not path.exists()]
    if missing:
        print(f"{missing[0]}: no such file or folder", file=sys.stderr)
        return 2
    paths = files_below(arguments.paths)
    judged = [examine(path) for path in paths]
    if arguments.area:
        judged = [one for one in judged if one.result.area in arguments.area or not one.readable]
    if not judged:
        print("no scenario files there", file=sys.stderr)
        return 2
    results = [one.result for one in judged]
    named = len(paths) == 1 or (len(paths) <= MOST_NAMED and not any(path.is_dir() for path in arguments.paths))
    if arguments.json:
        for result in results:
            print(msgspec.json.encode(result).decode())
    elif named or arguments.verbose:
        for number, one in enumerate(judged):
            text = "\n".join(details(one))
            print(f"\n{text}" if number else text, file=sys.stdout if one.readable else sys.stderr)
    else:
        for result in results:
            if not result.ok:
                print(
                    f"FAILED  {result.id}  ({result.area or 'unreadable'}, {result.confidence or '–'})  {result.file}"
                )
                for line in result.why:
                    print(f"        {line}")
    if not arguments.json and not named:
        print("\n".join(summary(results)))
    if not any(one.readable for one in judged):
        return 2
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
