"""`muster pause`: stop starting jobs, evicting pods or cordoning nodes, everywhere or in one queue, until it is resumed.

It stands in the LEDGER: it outlives every restart. What was committed before is completed, so that no gang stands half.
"""

import argparse
import getpass
import json
from typing import Any

import msgspec

from muster.cli.connection import add_connection, connected
from muster.decide.pauses import resuming, sentence
from muster.model.pauses import ACTS, Pause

EPILOG = """examples:
  muster pause                                        start, evict and cordon nothing
  muster pause bind --reason "new driver on rack-b"   start nothing
  muster pause evict --queue train-prod               let nobody be evicted from or for one queue
  muster get pauses
  muster resume
"""


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "pause",
        help="stop starting jobs, evicting or cordoning for now",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_scope(parser)
    parser.add_argument("--reason", default="", help="why; whoever waits reads it")
    add_connection(parser)
    parser.set_defaults(run=run)


def add_scope(parser: argparse.ArgumentParser) -> None:
    """What is paused or resumed, and where."""
    parser.add_argument("acts", nargs="*", metavar="bind|evict|cordon", choices=[*ACTS, []], help="default: all three")
    parser.add_argument("--queue", "-q", default="", help="only this queue and the queues below it")


def who() -> str:
    """The name of whoever runs the command, as far as it is known."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


async def run(arguments: argparse.Namespace) -> int:
    """Pause and tell what is paused."""
    async with connected(arguments) as muster:
        reply = await muster.pause(*arguments.acts, queue=arguments.queue, reason=arguments.reason, by=who())
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(reply)))
        return 0
    for one in reply.changed:
        print(sentence(one))
    return 0


def told(pauses: tuple[Pause, ...]) -> str:
    """``bind, evict in train-dev``."""
    return ", ".join(f"{one.act}{f' in {one.queue}' if one.queue else ''}" for one in pauses)


def still(pauses: tuple[Pause, ...]) -> str:
    """What is still paused, and how to end it; '' when nothing is."""
    if not pauses:
        return ""
    return f"still paused: {told(pauses)}; that ends with: {'; '.join(resuming(one) for one in pauses)}"
