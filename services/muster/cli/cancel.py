"""`muster cancel`: end a submission, or keep one from starting that has not arrived yet."""

import argparse
import json
from typing import Any

import msgspec

from muster.cli.connection import add_connection, connected
from muster.cli.errors import BAD_INPUT, CommandError
from muster.cli.get import submission_of

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
    parser.add_argument("id", help="submission id, or the name of a job that was submitted")
    parser.add_argument("--reason", default="", help="told to whoever follows it")
    add_connection(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Hand in the cancellation."""
    async with connected(arguments) as muster:
        known = await submission_of(muster, arguments.id)
        submission = known or arguments.id
        try:
            await muster.cancel(submission, arguments.reason)
        except msgspec.ValidationError as error:
            raise CommandError(
                f"{arguments.id}: no such job is known, and it is no submission id", code=BAD_INPUT
            ) from error
    if arguments.json:
        print(json.dumps({"id": submission, "cancel": "handed in", "known": known is not None}))
    elif known is not None:
        print(f"cancellation of {submission} handed in")
    else:
        print(f"no job of the id {submission} waits or runs; should it still arrive, it will not be started")
    return 0
