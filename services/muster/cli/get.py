"""`muster get`: jobs, nodes, queues, pauses or the policy, as the scheduler sees them."""

import argparse
import json
import sys
import time
from collections.abc import Iterable
from typing import Any

import msgspec
import yaml
from rich.console import Console
from rich.table import Table

from muster import client
from muster.bus.queries import GangRow, NodeRow, QueueRow
from muster.cli.connection import add_connection, connected
from muster.cli.errors import CommandError
from muster.cli.follow import print_events
from muster.cli.words import cards, plural, span
from muster.decide.lifecycle.submission import given_name
from muster.decide.pauses import resuming
from muster.model.units import ONE_CARD

EPILOG = """examples:
  muster get                          every job that waits or runs
  muster get team-a/llm-7f3c          one job
  muster get 20260102-1500-1f --watch follow a submission until it ends
  muster get nodes                    nodes and their cards
  muster get queues --json
  muster get pauses                   what is paused, by whom and since when
  muster get policy                   the policy in force, and what is wrong with its file
"""
NODES = frozenset({"nodes", "node", "no"})
QUEUES = frozenset({"queues", "queue", "q"})
PAUSES = frozenset({"pauses", "pause"})
POLICY = frozenset({"policy"})
JOBS = frozenset({"jobs", "job", "gangs", "gang"})


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "get",
        help="jobs, nodes, queues, pauses, policy",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "what", nargs="?", default="jobs", help="jobs (default), nodes, queues, pauses, policy, or a job's name"
    )
    parser.add_argument("name", nargs="?", default="", help="one node, domain, queue or job")
    parser.add_argument("--namespace", "-n", default="", help="only this namespace")
    parser.add_argument("--all", "-a", action="store_true", help="finished jobs too")
    parser.add_argument("--watch", "-w", action="store_true", help="follow the submission with this id")
    add_connection(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Ask and print."""
    what = arguments.what.lower()
    async with connected(arguments) as muster:
        if arguments.watch:
            wanted = arguments.name or arguments.what
            submission = await submission_of(muster, wanted)
            return await print_events(muster.job(submission or wanted), as_json=arguments.json)
        if what in NODES:
            return await _nodes(muster, arguments)
        if what in QUEUES:
            return await _queues(muster, arguments)
        if what in PAUSES:
            return await _pauses(muster, arguments)
        if what in POLICY:
            return await _policy(muster, arguments)
        wanted = arguments.name if what in JOBS else arguments.what
        return await _jobs(muster, arguments, wanted)


async def _jobs(muster: client.Muster, arguments: argparse.Namespace, wanted: str) -> int:
    reply = await muster.gangs(namespace=arguments.namespace, finished=arguments.all or bool(wanted))
    rows = _chosen(reply.gangs, wanted) if wanted else list(reply.gangs)
    if wanted and not rows:
        raise CommandError(f"no job {wanted!r}; muster get --all lists every job that is known")
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(rows)))
        return 0
    table = _table("JOB", "QUEUE", "STATE", "PODS", "CARDS", "NODES", "AGE", "WHY")
    for row in rows:
        where = ", ".join(row.nodes) if len(row.nodes) <= 2 else plural(len(row.nodes), "node")
        position = f"{row.position}. " if row.position else ""
        age = span(time.time() - row.submitted) if row.submitted else "–"
        table.add_row(
            row.job or row.gang, row.queue, row.state, f"{row.bound}/{row.members}", cards(row.cards), where, age,
            f"{position}{row.message}",
        )  # fmt: skip
    _show(table, "no job waits or runs")
    return 0


async def _nodes(muster: client.Muster, arguments: argparse.Namespace) -> int:
    reply = await muster.nodes(domain=arguments.name)
    if arguments.name and not reply.nodes:
        raise CommandError(f"no node or domain {arguments.name!r}; muster get nodes lists them")
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(reply)))
        return 0
    table = _table("NODE", "WHERE", "CARDS", "FREE", "MODEL", "MODE", "PODS", "STATE")
    for row in reply.nodes:
        table.add_row(
            row.name, " ".join(row.domains.values()), card_bar(row), cards(row.free_cards), row.gpu_model,
            row.card_mode, str(row.pods), _node_state(row),
        )  # fmt: skip
    _show(table, "no nodes")
    if reply.nodes and not arguments.name:
        blocks = ", ".join(
            f"{block.cards} in {block.level.rpartition('/')[2]} {block.domain}"
            for block in reply.largest_free
            if block.cards
        )
        free = f"largest free blocks: {blocks}" if blocks else "no whole card is free"
        print(f"{cards(reply.used_cards)} of {cards(reply.total_cards)} cards used; {free}")
    return 0


async def _pauses(muster: client.Muster, arguments: argparse.Namespace) -> int:
    reply = await muster.pauses()
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(reply)))
        return 0
    table = _table("PAUSED", "WHERE", "BY", "SINCE", "REASON", "ENDS WITH")
    for one in reply.pauses:
        since = span(time.time() - one.since) if one.since else "–"
        table.add_row(one.act, one.queue or "everywhere", one.by, since, one.reason, resuming(one))
    _show(table, "nothing is paused")
    return 0


async def _policy(muster: client.Muster, arguments: argparse.Namespace) -> int:
    reply = await muster.policy()
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(reply)))
        return 0
    print(yaml.safe_dump(reply.policy, sort_keys=False, allow_unicode=True), end="")
    source = reply.source or "the defaults"
    print(f"in force since {span(time.time() - reply.loaded_at)}, from {source}", file=sys.stderr)
    if reply.problem:
        print(f"the file as it is now is refused:\n{reply.problem}", file=sys.stderr)
        return 1
    return 0


async def _queues(muster: client.Muster, arguments: argparse.Namespace) -> int:
    reply = await muster.queues(queue=arguments.name)
    if arguments.name and not reply.queues:
        raise CommandError(f"no queue {arguments.name!r}")
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(reply)))
        return 0
    table = _table("QUEUE", "USED", "DESERVED", "SHARE", "CAP", "PENDING", "OLDEST", "BORROWED", "STATE")
    for row in reply.queues:
        table.add_row(
            row.name, cards(row.used), cards(row.deserved), f"{row.share / ONE_CARD:.1f}", cards(row.capability),
            _pending(row), span(time.time() - row.oldest_since) if row.oldest_since else "–",
            cards(row.borrowed or None), _queue_state(row),
        )  # fmt: skip
    _show(table, "no queues")
    return 0


def card_bar(row: NodeRow) -> str:
    """One sign a card: ``█`` whole, ``▄`` shared, ``░`` promised, ``·`` free, ``x`` not healthy."""
    signs = []
    for cell in row.cards:
        if not cell.healthy:
            signs.append("x")
        elif cell.held:
            signs.append("░")
        elif cell.whole:
            signs.append("█")
        else:
            signs.append("▄" if cell.gangs else "·")
    return "".join(signs)


def _chosen(rows: Iterable[GangRow], wanted: str) -> list[GangRow]:
    """The rows of this name or submission id; else all that were submitted under the name."""
    known = list(rows)
    exact = [row for row in known if wanted in {row.submission, *_names(row.gang), *_names(row.job)}]
    return exact or [row for row in known if wanted in _given(row)]


def _names(key: str) -> set[str]:
    return {key, key.rpartition("/")[2]}


def _given(row: GangRow) -> set[str]:
    namespace, _, name = row.job.rpartition("/")
    given = given_name(name, submission=row.submission)
    return {given, f"{namespace}/{given}"}


async def submission_of(muster: client.Muster, wanted: str) -> str | None:
    """The submission id behind a job's name or id; None when no such job is known to the scheduler.

    Raises:
        CommandError: the job is known, but did not come over NATS, or several are called so.
    """
    rows = _chosen((await muster.gangs(finished=True)).gangs, wanted)
    rows = [row for row in rows if row.state not in {"Succeeded", "Failed"}] or rows
    if not rows:
        return None
    if len({row.submission for row in rows}) > 1:
        jobs = ", ".join(sorted(row.job for row in rows))
        raise CommandError(f"{len(rows)} jobs are called {wanted!r}: {jobs}; name one of them")
    if not rows[0].submission:
        raise CommandError(
            f"{rows[0].job} was not submitted over NATS, so it has no status stream and no submission to cancel;\n"
            f"use kubectl for it"
        )
    return rows[0].submission


def _node_state(row: NodeRow) -> str:
    if not row.ready:
        return "NotReady"
    if row.idle_since is not None:
        return f"idle for {span(time.time() - row.idle_since)}, {'removable' if row.removable else 'cordoned'}"
    if row.returning:
        return "coming back"
    return "cordoned" if row.cordoned else "Ready"


def _pending(row: QueueRow) -> str:
    if not row.pending_gangs:
        return "–"
    asked = cards(row.pending)
    return f"{plural(row.pending_gangs, 'gang')}, {asked} {'card' if asked == '1' else 'cards'}"


def _queue_state(row: QueueRow) -> str:
    if not row.reclaimable:
        return row.state
    lent = cards(row.reclaimable)
    return f"{row.state}, over share: {lent} {'card' if lent == '1' else 'cards'} can be reclaimed"


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number < len(columns) - 1, overflow="fold")
    return table


def _show(table: Table, empty: str) -> None:
    console = Console(highlight=False)
    if not table.row_count:
        console.print(empty)
        return
    # In a pipe nothing is cut: the width of a terminal is a matter of the terminal.
    console.print(table) if console.is_terminal else Console(highlight=False, width=240).print(table)
