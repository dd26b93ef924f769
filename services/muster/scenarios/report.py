"""`muster scenario`: run scenario files and say, of those that fail, what was expected and what came.

Exit status 0 only if every file passes; 1 if any fails; 2 for a path that holds no scenario.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import msgspec

from muster.scenarios.check import check
from muster.scenarios.format import ScenarioError, load
from muster.scenarios.runner import run


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One file's verdict; one JSON line with ``--json``."""

    id: str
    area: str
    confidence: str
    ok: bool
    seconds: float
    why: tuple[str, ...]
    file: str


def judge(path: Path) -> Result:
    """Run one file."""
    start = perf_counter()
    try:
        scenario = load(path)
    except ScenarioError as error:
        return Result(id=path.stem, area="", confidence="", ok=False, seconds=0.0, why=(str(error),), file=str(path))
    try:
        why = tuple(check(run(scenario)))
    except Exception as error:  # noqa: BLE001 - one broken file must not hide the verdict on the others
        why = (f"the scheduler failed: {type(error).__name__}: {error}",)
    return Result(
        id=scenario.id,
        area=scenario.area,
        confidence=scenario.confidence,
        ok=not why,
        seconds=round(perf_counter() - start, 4),
        why=why,
        file=str(path),
    )


def files_below(paths: Sequence[Path]) -> list[Path]:
    """Every YAML file given or below a folder given."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.rglob("*.yaml")) if path.is_dir() else [path]
    return found


def summary(results: Sequence[Result]) -> list[str]:
    """Pass counts by area and by confidence."""
    lines = []
    for area in sorted({result.area for result in results}):
        mine = [result for result in results if result.area == area]
        passed = sum(result.ok for result in mine)
        certain = [result for result in mine if result.confidence == "certain"]
        lines.append(
            f"{area or 'unreadable':16} {passed:3} of {len(mine):3}   certain {sum(r.ok for r in certain)} of {len(certain)}"
        )
    certain = [result for result in results if result.confidence == "certain"]
    lines.append(
        f"{'all':16} {sum(r.ok for r in results):3} of {len(results):3}   "
        f"certain {sum(r.ok for r in certain)} of {len(certain)}"
    )
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="muster scenario", description="Run scenario files against the core.")
    parser.add_argument("paths", nargs="+", type=Path, help="scenario files, or folders of them")
    parser.add_argument("--json", action="store_true", help="one JSON line per file")
    parser.add_argument("--area", action="append", default=[], help="only this area (may be repeated)")
    arguments = parser.parse_args(argv)
    missing = [path for path in arguments.paths if not path.exists()]
    if missing:
        print(f"{missing[0]}: no such file or folder", file=sys.stderr)
        return 2
    results = [judge(path) for path in files_below(arguments.paths)]
    if arguments.area:
        results = [result for result in results if result.area in arguments.area or not result.area]
    if not results:
        print("no scenario files there", file=sys.stderr)
        return 2
    if arguments.json:
        for result in results:
            print(msgspec.json.encode(result).decode())
    else:
        for result in results:
            if not result.ok:
                print(f"FAILED  {result.id}  ({result.area}, {result.confidence})  {result.file}")
                for line in result.why:
                    print(f"        {line}")
        print("\n".join(summary(results)))
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
