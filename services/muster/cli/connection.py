"""Finding and reaching the Muster that a command talks to.

--nats URL  >  MUSTER_NATS_URL  >  the stack of `muster up` in this directory
"""

import argparse
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from muster import client
from muster.bus.errors import BusError, NoAnswerError, NotConnectedError, QueueFullError, RequestRefusedError
from muster.bus.submit_errors import field_errors, sentence
from muster.cli.errors import BAD_INPUT, CommandError
from muster.cli.stack import Address, find_address

STATE_DIR = Path(os.environ.get("MUSTER_STATE_DIR") or ".muster")


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Options of every command that talks to a running Muster."""
    parser.add_argument(
        "--nats", metavar="URL", help="NATS server (default: MUSTER_NATS_URL, else a local `muster up`)"
    )
    parser.add_argument("--tenant", default="default", help="tenant to act as (default: %(default)s)")
    parser.add_argument("--state-dir", type=Path, default=STATE_DIR, help=argparse.SUPPRESS)
    add_json(parser)


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that every command has."""
    parser.add_argument("--json", action="store_true", help="machine-readable output, times in Unix seconds")


def local_address(arguments: argparse.Namespace) -> Address | None:
    """The stack of `muster up` (or of the demo) that runs in this directory."""
    return find_address(arguments.state_dir) or find_address(arguments.state_dir / "demo")


def nats_url(arguments: argparse.Namespace) -> str:
    """Where NATS is.

    Raises:
        CommandError: nobody said so.
    """
    named: str | None = arguments.nats or os.environ.get("MUSTER_NATS_URL")
    if named:
        return named
    address = local_address(arguments)
    if address is None:
        raise CommandError(
            "no Muster found: name its NATS server with --nats nats://HOST:4222 or MUSTER_NATS_URL,\n"
            "or start one here with: muster up --simulate 10x8",
            code=BAD_INPUT,
        )
    return address.nats_url


@asynccontextmanager
async def connected(arguments: argparse.Namespace) -> AsyncIterator[client.Muster]:
    """A client of the Muster that the options name; its errors become sentences.

    Raises:
        CommandError: what went wrong and what to do.
    """
    url = nats_url(arguments)
    try:
        async with client.connect(url, tenant=arguments.tenant) as muster:
            yield muster
    except NotConnectedError as error:
        raise CommandError(f"cannot reach NATS at {url}: {error}") from error
    except NoAnswerError as error:
        raise CommandError(f"no scheduler answers: {error}") from error
    except QueueFullError as error:
        raise CommandError(f"not submitted: {error}") from error
    except RequestRefusedError as error:
        raise CommandError(str(error)) from error
    except msgspec.ValidationError as error:
        lines = [sentence(one) for one in field_errors(error)]
        raise CommandError("\n".join([*lines, "nothing was submitted"]), code=BAD_INPUT) from error
    except BusError as error:
        raise CommandError(str(error)) from error
