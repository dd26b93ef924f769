"""The live view: cards by node and rack, coloured by gang; the gangs with their state and reason; one line of numbers."""

import re
import time
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from muster.bus.queries import GangRow, NodeRow, NodesReply
from muster.cli.words import cards
from muster.model.units import ONE_CARD

LEAVING = "Leaving"
LONG_NAME = re.compile(r"[a-z0-9-]+/[a-z0-9-]+-(?:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{10})\b")
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta", "bright_green")
STATES = {
    "Running": "green", "Bound": "green", "Placed": "cyan", "Waiting": "yellow", "Broken": "red", LEAVING: "bright_red",
}  # fmt: skip


class Palette:
    """One colour a gang, in the order in which they are seen."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def colour(self, gang: str) -> str:
        """The gang's colour."""
        if gang not in self._known:
            self._known[gang] = COLOURS[len(self._known) % len(COLOURS)]
        return self._known[gang]


def short(gang: str) -> str:
    """A gang's name without its namespace and without what was added to make it unique."""
    name = gang.rpartition("/")[2]
    parts = name.split("-")
    # A vcjob's PodGroup is <job>-<uid>, five groups; a submission's job is <name>-<hash>.
    if len(parts) > 5 and [len(part) for part in parts[-5:]] == [8, 4, 4, 4, 12]:
        parts = parts[:-5]
    if len(parts) > 1 and len(parts[-1]) == 10:
        parts = parts[:-1]
    return "-".join(parts)


def shortened(text: str) -> str:
    """A sentence with the names of gangs as `short` has them."""
    return LONG_NAME.sub(lambda found: short(found[0]), text)


def node_cells(row: NodeRow, palette: Palette) -> Text:
    """One sign a card in the colour of its gang."""
    text = Text()
    for cell in row.cards:
        if not cell.gangs:
            text.append("· ", style="dim")
            continue
        sign = "░" if cell.held else "█" if cell.whole else "▄"
        text.append(f"{sign} ", style=palette.colour(cell.gangs[0]))
    return text


def grid(reply: NodesReply, palette: Palette) -> Table:
    """Nodes by rack, two racks beside each other."""
    racks: dict[str, list[NodeRow]] = {}
    for row in reply.nodes:
        rack = next((value for level, value in row.domains.items() if "rack" in level), "")
        racks.setdefault(rack, []).append(row)
    table = Table.grid(padding=(0, 3))
    columns = []
    for rack, rows in sorted(racks.items(), key=lambda item: (item[0] == "", item[0])):
        column = Table.grid(padding=(0, 1))
        column.add_row(Text(rack or "elsewhere", style="bold"), "")
        for row in rows:
            name = Text(f"{row.name} (idle, cordoned)", style="dim") if row.cordoned else Text(row.name)
            column.add_row(name, node_cells(row, palette))
        columns.append(column)
    table.add_row(*columns)
    return table


def gang_table(rows: tuple[GangRow, ...], palette: Palette, leaving: Mapping[str, str]) -> Table:
    """The gangs, those that wait with their reason; `leaving`: what is said to jobs that are asked to leave."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("GANG", "QUEUE", "PODS", "CARDS", "STATE", "WHY"):
        table.add_column(name, no_wrap=name != "WHY")
    for row in rows:
        asked = next((text for job, text in leaving.items() if row.gang.startswith(f"{job}-")), "") if row.bound else ""
        state = LEAVING if asked else row.state
        table.add_row(
            Text(short(row.gang), style=palette.colour(row.gang)),
            row.queue,
            f"{row.bound}/{row.members}",
            cards(row.cards),
            Text(state, style=STATES.get(state, "")),
            asked or row.message,
        )
    return table


def allocation(reply: NodesReply) -> float:
    """Used part of all cards, 0 to 1."""
    return reply.used_cards / reply.total_cards if reply.total_cards else 0.0


def render(
    *,
    nodes: NodesReply,
    gangs: tuple[GangRow, ...],
    palette: Palette,
    news: list[str],
    began: float,
    leaving: Mapping[str, str] | None = None,
) -> RenderableType:
    """The whole view."""
    waiting = sum(row.state == "Waiting" for row in gangs)
    used = allocation(nodes)
    bar = "█" * round(used * 40) + "─" * (40 - round(used * 40))
    line = Text(f"{bar}  {used:4.0%} of {nodes.total_cards // ONE_CARD} cards   {waiting} waiting   ")
    line.append(f"{time.monotonic() - began:3.0f} s", style="dim")
    return Group(
        Text("Muster, live", style="bold"),
        Text("█ whole card   ▄ shared   ░ promised   · free", style="dim"),
        grid(nodes, palette),
        line,
        Text(),
        gang_table(gangs, palette, leaving or {}),
        Text(),
        Text("\n".join(news[-6:]), style="dim"),
    )
