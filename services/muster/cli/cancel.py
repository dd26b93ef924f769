"""`muster cancel`: end a submission, or keep one from starting that has not arrived yet."""

import argparse
import json
from typing import Any

from muster.cli.connection import add_connection, connected

EPILOG = """example:
  muster cancel 20260102-150000-1f2e --reason "wrong data set"
"""


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "cancel",
        help="end a submission",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("id", help="submission id")
    parser.add_argument("--reason", default="", help="told to whoever follows it")
    add_connection(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Hand in the cancellation."""
    async with connected(arguments) as muster:
        await muster.cancel(arguments.id, arguments.reason)
    if arguments.json:
        print(json.dumps({"id": arguments.id, "cancel": "handed in"}))
    else:
        print(f"cancellation of {arguments.id} handed in")
    return 0
