"""`muster explain`: why a job waits, with the numbers that decided, or where it runs."""

import argparse
import json
import textwrap
import time
from typing import Any

import msgspec

from muster.bus.queries import ExplainReply
from muster.cli.connection import add_connection, connected
from muster.cli.words import ordinal, span
from muster.decide.reasons import Reason

EPILOG = """example:
  muster explain team-a/llm-7f3c
"""
NEVER = "can never run as it is"
WIDTH = 100
WAITS: dict[str, str] = {
    Reason.NOT_ENOUGH_ROOM: " for room",
    Reason.TOPOLOGY_UNFIT: " for room",
    Reason.CARD_SHARE_TOO_LARGE: " for room on a card",
    Reason.BEHIND: " behind others",
    Reason.FREEING: " for jobs to leave",
    "RESERVED": " for the room that is reserved for it",
    "HELD_FOR_OTHERS": " for room that is kept for others",
    Reason.LEAVING: " for pods of it to leave",
    Reason.PAUSED: ", paused",
}
"""What a job of each code waits for."""
COVERED = frozenset({Reason.NOT_ENOUGH_ROOM, Reason.TOPOLOGY_UNFIT})
"""Codes whose message says nothing more than the best place does."""


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


def text(reply: ExplainReply, *, now: float | None = None) -> str:
    """The explanation for people, at most `WIDTH` wide."""
    head, message = f"{reply.job} is {reply.state.lower()}", reply.message
    places = any(fact.label == "best fit" for fact in reply.facts)
    if reply.state == "Waiting":
        head = f"{reply.job} waits{WAITS.get(reply.code, '')}"
        if reply.position:
            soon = ""
            if reply.estimated_start is not None:
                soon = f", about {span(reply.estimated_start - (time.time() if now is None else now))}"
            head += f" ({ordinal(reply.position)} in {reply.queue}{soon})"
        if reply.code == Reason.NEVER_FITS or message.startswith(NEVER):
            head, message = f"{reply.job} {NEVER}", message.removeprefix(f"{NEVER}: ")
    if places and reply.code in COVERED:
        message = ""  # the best place says it, and who holds it
    rows = [(fact.label, fact.text) for fact in reply.facts]
    rows += [("fix it", fix) for fix in reply.fixes]
    if reply.history:
        moments = (f"{time.strftime('%H:%M', time.localtime(moment.at))} {moment.text}" for moment in reply.history)
        rows.append(("history", "   ".join(moments)))
    width = max((len(label) for label, _ in rows), default=0)
    lines = _wrapped(f"{head}: {message}" if message else head, "", "  ")
    for label, fact in rows:
        lines += _wrapped(fact, f"  {label:<{width}}  ", " " * (width + 4))
    return "\n".join(lines)


def _wrapped(sentence: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        sentence,
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
