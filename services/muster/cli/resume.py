"""`muster resume`: go on with what `muster pause` stopped, in exactly the same place."""

import argparse
import json
import sys
from typing import Any

import msgspec

from muster.cli.connection import add_connection, connected
from muster.cli.pause import add_scope, still, told, who

EPILOG = """examples:
  muster resume                              everything that is paused everywhere
  muster resume bind --queue train-dev       start jobs of one queue again
"""


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "resume",
        help="go on with what was paused",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_scope(parser)
    add_connection(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Resume and tell what is paused still; 1 when there was nothing to resume."""
    async with connected(arguments) as muster:
        reply = await muster.resume(*arguments.acts, queue=arguments.queue, by=who())
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(reply)))
    elif reply.changed:
        print(f"resumed: {told(reply.changed)}")
    rest = still(reply.pauses)
    if not reply.changed:
        place = f"of queue {arguments.queue}" if arguments.queue else "of the whole cluster"
        acts = f" of {', '.join(arguments.acts)}" if arguments.acts else ""
        print(f"nothing resumed: there is no pause{acts} {place}", file=sys.stderr)
    if rest and not arguments.json:
        print(rest, file=sys.stderr)
    return 0 if reply.changed else 1
