"""Runs the demo: starts a stack, plays the story over NATS, shows it live, and sums up what happened."""

import argparse
import asyncio
import contextlib
import io
import json
import re
import statistics
import textwrap
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import yaml
from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from muster import client
from muster.bus.errors import BusError, UnsuitableServerError
from muster.bus.messages import StatusEvent
from muster.bus.queries import NodesReply
from muster.cli.connection import add_json
from muster.cli.demo.story import SCENES, Scene
from muster.cli.demo.view import Palette, allocation, render, short, shortened
from muster.cli.demo.workload import Workloads
from muster.cli.errors import BAD_INPUT, CommandError
from muster.cli.stack import Stack, StackError, find_address
from muster.cli.up import interrupted
from muster.decide.lifecycle.status import PREEMPTING
from muster.kube.config import connect as connect_kube
from muster.kube.decoding import KINDS
from muster.kube.errors import AlreadyExists
from muster.kube.writer import Writer

EPILOG = """examples:
  muster demo                 about a minute, then everything is gone
  muster demo --serve         keeps it up afterwards, to try commands on
  muster demo --json          one line of results, no live view
"""
STATE_DIR = Path(".muster/demo")
LIMIT_SECONDS = 120.0
REFRESH_SECONDS = 0.25

WIDTH = 120
"""Columns in a pipe or a log, which has no width of its own."""
SAID = 78
"""Columns for what is said of an event, in a line of its own."""


class Seen(msgspec.Struct):
    """What the demo saw of one submission."""

    scene: Scene
    events: list[StatusEvent] = []
    submitted: float = 0.0


class Cordons:
    """Which nodes were seen cordoned, and which of them were seen open again."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.returned: set[str] = set()

    def look(self, nodes: NodesReply) -> None:
        """What the nodes are now."""
        for row in nodes.nodes:
            if row.cordoned:
                self.seen.add(row.name)
            elif row.name in self.seen:
                self.returned.add(row.name)


def add(subparsers: Any) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "demo",
        help="a live demonstration on this machine",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--serve", action="store_true", help="keep everything up afterwards, until Ctrl-C")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help="save the view at its fullest as a picture")
    parser.add_argument("--state-dir", type=Path, default=STATE_DIR, help=argparse.SUPPRESS)
    add_json(parser)
    parser.set_defaults(run=run)


async def run(arguments: argparse.Namespace) -> int:
    """Run the demo."""
    console = Console(stderr=arguments.json, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=arguments.json, highlight=False, width=WIDTH)
    if find_address(arguments.state_dir) is not None:
        raise CommandError("a demo runs already in this directory", code=BAD_INPUT)
    cluster = files("muster.cli.demo") / "cluster.yaml"
    began = time.monotonic()
    try:
        policy = str(files("muster.cli.demo") / "policy.yaml")
        stack = Stack(arguments.state_dir, cluster=str(cluster), environ={"MUSTER_POLICY": policy})
        with console.status("starting NATS, a simulated cluster of 85 cards, and the services"):
            await stack.start()
    except (StackError, UnsuitableServerError) as error:
        await stack.stop()
        raise CommandError(str(error)) from error
    console.print(f"started in {time.monotonic() - began:.0f} s: NATS at {stack.nats.url}, API at {stack.api_url}")
    task = asyncio.create_task(_play_and_report(stack, console, as_json=arguments.json, picture=arguments.picture))
    stop = asyncio.create_task(interrupted())
    try:
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            return 130
        code = task.result()
        if arguments.serve and code == 0:
            console.print("\nit stays up until Ctrl-C; in another terminal:  ./dev run muster get")
            await stop
        return code
    finally:
        for item in (task, stop):
            item.cancel()
        await asyncio.gather(task, stop, return_exceptions=True)
        with console.status("stopping"):
            await stack.stop()
        console.print("stopped; nothing is left running")


async def _play_and_report(stack: Stack, console: Console, *, as_json: bool, picture: Path | None) -> int:
    assert stack.kubeconfig is not None
    await apply_objects(stack.kubeconfig)
    seen = [Seen(scene=scene) for scene in SCENES]
    samples: list[float] = []
    cordons = Cordons()
    async with (
        client.connect(stack.nats.url) as muster,
        await connect_kube(kubeconfig=stack.kubeconfig, user_agent="muster-demo") as kube,
    ):
        training = asyncio.create_task(Workloads(writer=Writer(kube), muster=muster).run())
        followers = [asyncio.create_task(_play(muster, item)) for item in seen]
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                fullest = await _watch(
                    muster, followers, seen, samples, cordons, console=console, live=not as_json and console.is_terminal
                )
                if picture is not None and fullest is not None:
                    save_picture(fullest, picture)
        except TimeoutError:
            console.print(f"[red]not finished after {LIMIT_SECONDS:g} s; logs are in {stack.state_dir / 'logs'}[/red]")
        finally:
            for follower in (*followers, training):
                follower.cancel()
            await asyncio.gather(*followers, training, return_exceptions=True)
    return _report(seen, samples, cordons, console=console, as_json=as_json)


async def apply_objects(kubeconfig: Path) -> None:
    """Create the demo's queues and priority classes through the API, as kubectl would."""
    text = (files("muster.cli.demo") / "objects.yaml").read_text(encoding="utf-8")
    kinds = {(info.api_version, info.kind): info for info in KINDS.values()}
    async with await connect_kube(kubeconfig=kubeconfig, user_agent="muster-demo") as kube:
        writer = Writer(kube)
        for document in yaml.safe_load_all(text):
            with contextlib.suppress(AlreadyExists):
                await writer.create(kinds[document["apiVersion"], document["kind"]], None, document)


async def _play(muster: client.Muster, item: Seen) -> None:
    scene = item.scene
    await asyncio.sleep(scene.at)
    item.submitted = time.time()
    job = await muster.submit(id=scene.id, manifest=scene.manifest)
    cancel = asyncio.create_task(_cancel_later(job, scene))
    try:
        async for event in job.follow():
            item.events.append(event)
    finally:
        cancel.cancel()


async def _cancel_later(job: client.Job, scene: Scene) -> None:
    if scene.cancel_at is not None:
        await asyncio.sleep(scene.cancel_at - scene.at)
        await job.cancel("the demo changed its mind")


async def _watch(
    muster: client.Muster,
    followers: "list[asyncio.Task[None]]",
    seen: list[Seen],
    samples: list[float],
    cordons: Cordons,
    *,
    console: Console,
    live: bool,
) -> RenderableType | None:
    """Show the story until every submission has ended; returns the view when most cards were in use and a gang waited, best with another leaving."""
    palette = Palette()
    fullest: tuple[tuple[bool, float], RenderableType] | None = None
    began = time.monotonic()
    told = 0
    with Live(console=console, auto_refresh=False, transient=False) if live else contextlib.nullcontext() as screen:
        while not all(follower.done() for follower in followers):
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                nodes, gangs = await muster.nodes(), (await muster.gangs()).gangs
            except BusError:
                continue
            samples.append(allocation(nodes))
            cordons.look(nodes)
            news = _news(seen)
            leaving = _asked_to_leave(seen)
            view = render(nodes=nodes, gangs=gangs, palette=palette, news=news, began=began, leaving=leaving)
            waits = any(row.state == "Waiting" and row.message for row in gangs)
            fullness = (bool(leaving), allocation(nodes))
            if waits and (fullest is None or fullness > fullest[0]):
                fullest = (fullness, view)
            if screen is not None:
                screen.update(view, refresh=True)
            else:
                for line in news[told:]:
                    console.print(line)
                told = len(news)
    return fullest[1] if fullest is not None else None


def save_picture(view: RenderableType, path: Path) -> None:
    """The view as an SVG."""
    recorder = Console(record=True, width=118, file=io.StringIO(), force_terminal=True)
    recorder.print(view)
    recorder.save_svg(str(path), title="./dev demo")


def _asked_to_leave(seen: list[Seen]) -> dict[str, str]:
    """What is said to jobs that are asked to leave now, by job."""
    last = [item.events[-1] for item in seen if item.events]
    return {event.job: _clock(event.message) for event in last if event.reason == PREEMPTING}


def _clock(text: str) -> str:
    """A sentence without what stands in brackets, without dates, and with short names: the view is about now."""
    return shortened(re.sub(r"\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)Z", r"\1", re.sub(r" \(.*\)", "", text)))


def _news(seen: list[Seen]) -> list[str]:
    events = sorted(
        ((event.at, item.scene, event) for item in seen for event in item.events), key=lambda entry: entry[0]
    )
    lines = []
    for at, scene, event in events:
        clock = time.strftime("%H:%M:%S", time.localtime(at))
        said = _clock(event.message) or event.reason or (scene.text if event.state == "Accepted" else "")
        told = textwrap.shorten(said.rpartition("resources.")[2], SAID, placeholder=" …")
        lines.append(f"{clock}  {scene.id:<10} {event.state:<10} {told}")
    return lines


def summary(seen: list[Seen], samples: list[float], cordons: Cordons) -> dict[str, Any]:
    """What happened, in numbers; times in seconds."""
    waits = {}
    for item in seen:
        running = next((event.at for event in item.events if event.state == "Running"), None)
        if running is not None:
            waits[item.scene.id] = round(running - item.submitted, 2)
    states = {item.scene.id: item.events[-1].state if item.events else "" for item in seen}
    queued = {
        item.scene.id: event.message
        for item in seen
        for event in item.events
        if event.state == "Queued" and event.message
    }
    preempted = {item.scene.id: left for item in seen if (left := _left(item)) is not None}
    return {
        "submitted": sum(bool(item.submitted) for item in seen),
        "states": states,
        "started_after": waits,
        "waited_with_reason": queued,
        "preempted": preempted,
        "cordoned": sorted(cordons.seen),
        "given_back": sorted(cordons.returned),
        "allocation_mean": round(statistics.fmean(samples), 3) if samples else 0.0,
        "allocation_peak": round(max(samples, default=0.0), 3),
    }


def _left(item: Seen) -> dict[str, Any] | None:
    """How a job that had to leave fared: for whom, how long it was warned before, and when it resumed; times in seconds."""
    left = next((event for event in item.events if event.state == "Preempted"), None)
    if left is None:
        return None
    warned = next((event for event in item.events if event.reason == PREEMPTING), None)
    resumed = next((event for event in item.events if event.state == "Resumed"), None)
    checkpoint = left.details.get("checkpoint_at")
    return {
        "for": short(str(left.details.get("for", ""))),
        "warned_before": round(left.at - warned.at, 2) if warned is not None else None,
        "checkpoint_before": round(left.at - checkpoint, 2) if checkpoint else None,
        "resumed_after": round(resumed.at - left.at, 2) if resumed is not None else None,
    }


def _what_happened(result: dict[str, Any], name: str) -> str:
    """Why a job waited, or how it had to leave."""
    left = result["preempted"].get(name)
    if left is None:
        return str(result["waited_with_reason"].get(name, ""))
    kept = (
        f"checkpoint {left['checkpoint_before']:.0f} s old"
        if left["checkpoint_before"] is not None
        else "no checkpoint"
    )
    warned = f"warned {left['warned_before']:.0f} s before, " if left["warned_before"] is not None else ""
    resumed = f"; resumed after {left['resumed_after']:.0f} s" if left["resumed_after"] is not None else ""
    return f"left for {left['for']} ({warned}{kept}){resumed}"


def _report(seen: list[Seen], samples: list[float], cordons: Cordons, *, console: Console, as_json: bool) -> int:
    result = summary(seen, samples, cordons)
    wanted = {item.scene.id: _expected(item.scene) for item in seen}
    leavers = {item.scene.id for item in seen if item.scene.leaves}
    woken = sorted(item.scene.wakes for item in seen if item.scene.wakes)
    good = result["states"] == wanted and _as_told(result["preempted"], leavers)
    good = good and result["cordoned"] == result["given_back"] == woken
    if as_json:
        print(json.dumps({**result, "as_expected": good}))
        return 0 if good else 1
    table = Table(title="what happened", box=None, pad_edge=False, title_justify="left", header_style="bold")
    for name in ("JOB", "WHAT", "STARTED AFTER", "END", "WHY IT WAITED, OR LEFT"):
        table.add_column(name)
    for item in seen:
        after = result["started_after"].get(item.scene.id)
        table.add_row(
            item.scene.id,
            item.scene.text,
            f"{after:.1f} s" if after is not None else "–",
            result["states"][item.scene.id],
            _what_happened(result, item.scene.id),
        )
    console.print()
    console.print(table)
    console.print(
        f"\ncards in use: {result['allocation_mean']:.0%} on average, {result['allocation_peak']:.0%} at the peak"
    )
    console.print(
        f"idle nodes cordoned: {', '.join(result['cordoned']) or 'none'}; given back for a job that needed them: "
        f"{', '.join(result['given_back']) or 'none'}"
    )
    if not good:
        differing = sorted(set(woken) ^ set(result["given_back"]))
        differing += [name for name, state in result["states"].items() if state != wanted[name]]
        differing += sorted(leavers ^ {name for name, left in result["preempted"].items() if left["resumed_after"]})
        console.print(f"[red]not as expected: {', '.join(differing)}[/red]")
        return 1
    console.print("\nnext:  ./dev demo --serve           keep it up and try the commands below in another terminal")
    console.print("       ./dev run muster up --simulate 10x8 --api-port 6443")
    console.print("       ./dev run muster submit --gpus 8 --replicas 2 --image registry.example.com/x:1 -- train")
    console.print("       ./dev run muster explain JOB")
    return 0


def _as_told(preempted: dict[str, Any], leavers: set[str]) -> bool:
    """Exactly those left who had to, each warned, with a checkpoint, and resumed."""
    return preempted.keys() == leavers and all(
        left["warned_before"] and left["checkpoint_before"] is not None and left["resumed_after"]
        for left in preempted.values()
    )


def _expected(scene: Scene) -> str:
    if scene.cancel_at is not None:
        return "Cancelled"
    return "Rejected" if scene.id == "mistake" else "Succeeded"
