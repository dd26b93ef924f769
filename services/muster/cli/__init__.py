"""The command `muster`. One module a command; each adds itself to the parser.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 refused or failed, 2 bad input, 130 interrupted.
"""

import argparse
import asyncio
import inspect
import sys
from collections.abc import Sequence

from muster import __version__
from muster.cli.errors import CommandError

COMMANDS = (
    "up", "submit", "get", "explain", "cancel", "pause", "resume", "policy", "lint", "scenario", "dlq", "demo", "service",
)  # fmt: skip
"""Modules of this package, in the order of the help."""

EPILOG = """examples:
  muster up --simulate 10x8 --api-port 6443        a whole Muster on this machine, on a simulated cluster
  muster submit --gpus 8 --replicas 4 --image registry.example.com/llm:3 -- python train.py
  muster get                                       what runs and what waits
  muster explain JOB                               why it waits
"""


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser with these commands."""
    from importlib import import_module

    parser = argparse.ArgumentParser(
        prog="muster",
        description="GPU batch scheduling on Kubernetes: whole gangs, on the right racks and cards, shared fairly.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"muster {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in commands:
        import_module(f"muster.cli.{name}").add(subparsers)
    return parser


def split_words(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The arguments before the first ``--``, and the words after it."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # The other commands are not even imported: a service starts faster so.
    named = tuple(name for name in COMMANDS if arguments[:1] == [name])
    # What stands after -- is the command of a container, whatever it looks like: argparse would take its words for ours.
    own, words = split_words(arguments)
    parsed = build_parser(named or COMMANDS).parse_args(own, argparse.Namespace(words=words))
    try:
        result = parsed.run(parsed)
        return int(asyncio.run(result) if inspect.iscoroutine(result) else result)
    except CommandError as error:
        print(error, file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; that is no error of ours.
        sys.stderr.close()
        return 0
