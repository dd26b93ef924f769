"""`muster explain`: why a job waits, with the numbers that decided, or where it runs."""

import argparse
import json
import time
from typing import Any

import msgspec

from muster.bus.queries import ExplainReply
from muster.cli.connection import add_connection, connected
from muster.cli.words import ordinal
from muster.decide.reasons import Reason

EPILOG = """example:
  muster explain team-a/llm-7f3c
"""
NEVER = "can never run as it is"


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "explain",
        help="why a job waits, or where it runs",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("job", help="name, namespace/name or submission id")
    parser.add_argument("--namespace", "-n", default="", help="namespace of the name")
    add_connection(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    async with connected(arguments) as muster:
        reply = await muster.explain(arguments.job, namespace=arguments.namespace)
    print(json.dumps(msgspec.to_builtins(reply)) if arguments.json else text(reply))
    return 0


def text(reply: ExplainReply) -> str:
    """The explanation for people."""
    head = f"{reply.job} is {reply.state.lower()}"
    message = reply.message
    if reply.state == "Waiting":
        head = f"{reply.job} waits"
        if reply.position:
            head += f" ({ordinal(reply.position)} in {reply.queue})"
        if reply.code == Reason.NEVER_FITS:
            head, message = f"{reply.job} {NEVER}", message.removeprefix(f"{NEVER}: ")
    rows = [(fact.label, fact.text) for fact in reply.facts]
    rows += [("fix it", fix) for fix in reply.fixes]
    if reply.history:
        moments = (f"{time.strftime('%H:%M', time.localtime(moment.at))} {moment.text}" for moment in reply.history)
        rows.append(("history", "   ".join(moments)))
    width = max((len(label) for label, _ in rows), default=0)
    return "\n".join(
        [f"{head}: {message}" if message else head, *(f"  {label:<{width}}  {text}" for label, text in rows)]
    )
