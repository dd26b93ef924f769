"""`muster dlq`: messages that could not be handled, as they came, with the reason."""

import argparse
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from muster.bus.client import connect
from muster.bus.dlq import DeadLetters, Letter
from muster.bus.errors import BusError
from muster.cli.connection import add_connection, nats_url
from muster.cli.errors import CommandError
from muster.model.units import Sequence

EPILOG = """examples:
  muster dlq list
  muster dlq show 3            what came, and why it could not be handled (env, args and annotations are hidden)
  muster dlq retry 3           hand it in again where it came from
  muster dlq drop 3
"""
HIDDEN = frozenset({"env", "args", "annotations", "command"})


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "dlq",
        help="messages that could not be handled",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", nargs="?", default="list", choices=("list", "show", "retry", "drop"))
    parser.add_argument("number", nargs="?", type=int, help="number of the letter")
    parser.add_argument("--limit", type=int, default=100, help="how many to list (default: %(default)s)")
    add_connection(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Do what was asked."""
    async with _letters(arguments) as letters:
        if arguments.verb == "list":
            return _print_list(await letters.list(limit=arguments.limit), as_json=arguments.json)
        if arguments.number is None:
            raise CommandError(f"muster dlq {arguments.verb} NUMBER: which one? muster dlq list tells", code=2)
        sequence = Sequence(arguments.number)
        if arguments.verb == "show":
            return _print_one(await letters.show(sequence), as_json=arguments.json)
        if arguments.verb == "retry":
            await letters.retry(sequence)
            told = f"{sequence} was handed in again"
        else:
            await letters.drop(sequence)
            told = f"{sequence} is gone"
    print(json.dumps({"number": sequence, arguments.verb: True}) if arguments.json else told)
    return 0


@asynccontextmanager
async def _letters(arguments: argparse.Namespace) -> AsyncIterator[DeadLetters]:
    try:
        async with await connect(nats_url(arguments), name="muster-dlq") as bus:
            yield DeadLetters(bus)
    except BusError as error:
        raise CommandError(str(error)) from error


def _print_list(letters: tuple[Letter, ...], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps([_row(item) for item in letters]))
        return 0
    if not letters:
        print("no dead letters")
    for item in letters:
        letter = item.letter
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(letter.at))
        print(f"{item.sequence:>6}  {at}  {letter.origin_subject}  {letter.reason}: {letter.error}")
    return 0


def _print_one(item: Letter, *, as_json: bool) -> int:
    row = _row(item) | {"headers": item.letter.headers, "payload": redacted(item.letter.payload)}
    print(json.dumps(row, indent=None if as_json else 2))
    return 0


def _row(item: Letter) -> dict[str, Any]:
    letter = item.letter
    return {
        "number": item.sequence,
        "at": letter.at,
        "subject": letter.origin_subject,
        "reason": letter.reason,
        "error": letter.error,
        "service": letter.service,
        "deliveries": letter.deliveries,
    }


def redacted(payload: bytes) -> Any:
    """The payload for eyes: JSON without environment, arguments and annotations; other bytes by their length."""
    try:
        return _hide(msgspec.json.decode(payload))
    except (msgspec.DecodeError, RecursionError):
        return f"{len(payload)} bytes that are no JSON"


def _hide(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "[hidden]" if key in HIDDEN and item else _hide(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_hide(item) for item in value]
    return value
