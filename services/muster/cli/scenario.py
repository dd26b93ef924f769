"""`muster scenario`: what would Muster do? Runs scenario files through the real core and compares with what they expect."""

import argparse
from pathlib import Path
from typing import Any

from muster.cli.connection import add_json

EPILOG = """examples:
  muster scenario question.yaml                     what happens to each job (docs/scenarios.md tells the format)
  muster scenario tests/scenarios/files -v
  muster scenario tests/scenarios/files --json
"""


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "scenario",
        help="run scenario files through the core",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|DIR", help="scenario files, or folders of them")
    parser.add_argument("--verbose", "-v", action="store_true", help="what happens to each job, also for many files")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run them; 0 only when all pass."""
    from muster.scenarios.report import main

    options = [f"--{name}" for name in ("json", "verbose") if getattr(arguments, name)]
    return main([*options, *(str(path) for path in arguments.paths)])
