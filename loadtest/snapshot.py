"""From STATE to a snapshot and on to a decision: cold, by changes, one gang at a time, and a gang of ten thousand pods.

    python -m loadtest snapshot [--quick] [--rounds N] [--write docs/benchmarks.md]

    changes of STATE (decoded) ──► World ──► Keeping.snapshot ──► decide (in its thread) ──► instructions

Each size of cluster is a process of its own, so that resident memory is that of one scheduler's memory of it. Eight pods a
node: one of another scheduler, the rest bound in gangs of 4 to 64 but for those that wait; queues have limits. Times are wall
times of a machine that may be shared; beside them the processor time of the process.
"""

import argparse
import asyncio
import gc
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from loadtest.tables import machine, peak_mebibytes, quantile, table, write_between
from muster.bus.state import Change
from muster.decide.commitments import LedgerView
from muster.decide.folding import fold_all
from muster.decide.memory import CoreMemory
from muster.decide.settling import settle
from muster.model.instructions import Pending, Place, Slot
from muster.model.ledger import Bind, Commit, Leader
from muster.model.nodes import Card, CardMode, Node
from muster.model.pods import CardUse, Owner, Phase, Pod, Request, Shape, TopologyWish
from muster.model.policy import Policy
from muster.model.units import (
    Bytes,
    CardCount,
    CardIndex,
    CorePercent,
    GangKey,
    MiB,
    MilliCpu,
    NodeName,
    PodUid,
    QueueName,
    RoleName,
    Sequence,
)
from muster.model.workloads import Limits, PodGroup, Queue
from muster.scheduler.binding import may_bind_now
from muster.scheduler.solving import Decider
from muster.view.keeping import Keeping
from muster.view.world import World

GIB = 2**30
CARDS, CARD_MIB = 8, 81_920
PODS_PER_NODE = 8
BOUND_PART = 0.86
"""Of our pods; the others wait for a queue that does not exist, so that they are looked at and never placed."""
SIZES = (4, 8, 8, 16, 16, 32, 64)
QUEUES = tuple(QueueName(f"team-{letter}") for letter in "abcdefgh")
RACK = "topology.muster.dev/rack"
BATCH = 100
LARGE_GANG = 10_000


class Timer(NamedTuple):
    """Milliseconds of one stretch."""

    wall: float
    cpu: float


def stopwatch() -> Callable[[], Timer]:
    """Start now; call the result to stop."""
    wall, cpu = time.perf_counter(), time.process_time()
    return lambda: Timer((time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3)


class Cluster:
    """What STATE carries, made one object at a time; nothing of it is kept here but what later changes need."""

    def __init__(self, nodes: int, seed: int = 1) -> None:
        self.draw = random.Random(seed)
        self.nodes = nodes
        self.free: dict[NodeName, list[int]] = {}
        self.version = 1_000_000
        self.gangs = 0

    def objects(self, *, waiting: bool) -> Iterator[tuple[str, str, Any]]:
        """Kind, key and object of everything."""
        for name in QUEUES:
            total = self.nodes * CARDS * 1_000_000
            yield "queue", name, Queue(name=name, uid=name, capability=Limits(amounts={"gpu": total}))
        for number in range(self.nodes):
            node = self._node(number)
            self.free[node.name] = list(range(CARDS))
            yield "node", node.name, node
            agent = self._pod("kube-system", f"agent-{number}", "", gang=None, cards=0)
            yield "pod", agent.key, self._bound(agent, node.name, ())
        left = self.nodes * (PODS_PER_NODE - 1)
        bound = int(left * BOUND_PART)
        while left > 0:
            size = min(self.draw.choice(SIZES), left)
            if bound > 0:
                yield from self.gang(size, 1, bound=True)
            elif waiting:
                yield from self.gang(size, 1, queue="nowhere")
            left -= size
            bound -= size

    def gang(
        self, size: int, cards: int, *, bound: bool = False, queue: str = "", rack: bool = False
    ) -> Iterator[tuple[str, str, Any]]:
        """A PodGroup and its pods."""
        self.gangs += 1
        name = f"job-{self.gangs:06}"
        key = GangKey(f"team/{name}")
        wish = TopologyWish(required_level="rack") if rack else TopologyWish()
        yield (
            "podgroup",
            key,
            PodGroup(
                namespace="team",
                name=name,
                uid=f"uid-{name}",
                min_member=size,
                queue=QueueName(queue or self.draw.choice(QUEUES)),
                topology=wish,
                created=float(self.gangs),
            ),
        )
        names = [*self.free]
        for number in range(size):
            pod = self._pod("team", f"{name}-worker-{number}", name, gang=key, cards=cards)
            if bound:
                node = NodeName("")
                while not self.free.get(node):
                    node = self.draw.choice(names)
                index = self.free[node].pop()
                pod = self._bound(pod, node, (index,))
            yield "pod", pod.key, pod

    def _node(self, number: int) -> Node:
        name = NodeName(f"node-{number:05}")
        return Node(
            name=name,
            uid=f"uid-{name}",
            resource_version=str(number),
            labels={
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "gpu-8",
                "topology.kubernetes.io/zone": f"zone-{number // 1024}",
                "topology.muster.dev/block": f"block-{number // 128}",
                RACK: f"rack-{number // 16}",
            },
            cpu=MilliCpu(128_000),
            memory=Bytes(2_048 * GIB),
            cards=tuple(
                Card(index=CardIndex(index), memory_mib=MiB(CARD_MIB), uuid=f"GPU-{number:05}-{index}")
                for index in range(CARDS)
            ),
            allocatable_cards=CARDS,
            card_mode=CardMode.VOLCANO,
            gpu_model="large",
        )

    def _pod(self, namespace: str, name: str, owner: str, *, gang: GangKey | None, cards: int) -> Pod:
        labels = {"app.kubernetes.io/name": owner, "volcano.sh/job-name": owner, "volcano.sh/task-index": name[-1]}
        annotations = {"volcano.sh/task-spec": "worker", "scheduling.k8s.io/group-name": owner} if owner else {}
        return Pod(
            namespace=namespace,
            name=name,
            uid=PodUid(f"6f1ed002-ab5a-4a7b-9d2e-{name}"),
            resource_version=str(self._next()),
            scheduler_name="muster" if owner else "default-scheduler",
            gang=gang,
            role=RoleName("worker"),
            shape=Shape(
                request=Request(
                    cpu=MilliCpu(max(cards, 1) * 2_000), memory=Bytes(max(cards, 1) * 16 * GIB), cards=CardCount(cards)
                )
            ),
            labels=labels,
            annotations=annotations,
            owner=Owner(api_version="batch.volcano.sh/v1alpha1", kind="Job", name=owner, uid=f"uid-{owner}"),
            created=float(self.gangs),
        )

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _bound(self, pod: Pod, node: NodeName, cards: tuple[int, ...]) -> Pod:
        uses = tuple(
            CardUse(index=CardIndex(index), memory_mib=MiB(CARD_MIB), core_percent=CorePercent(100), whole=True)
            for index in cards
        )
        text = json.dumps(
            [{"index": index, "memory_mib": CARD_MIB, "core_percent": 100, "whole": True} for index in cards]
        )
        return msgspec.structs.replace(
            pod,
            node=node,
            cards=uses,
            annotations={**pod.annotations, "muster.dev/cards": text},
            phase=Phase.RUNNING,
            ready=True,
            started=float(self.gangs),
            fence=1,
            resource_version=str(self._next()),
        )

    def stands(self, pod: Pod, slot: Slot) -> Pod:
        """The pod as STATE shows it once it is bound to its slot and runs."""
        return self._bound(pod, slot.node, tuple(use.index for use in slot.cards))

    def touched(self, pod: Pod) -> Pod:
        """The pod after an update of its status."""
        return msgspec.structs.replace(pod, resource_version=str(self._next()), ready=not pod.ready)


DECODERS = {
    kind: msgspec.json.Decoder(of)
    for kind, of in (("node", Node), ("pod", Pod), ("podgroup", PodGroup), ("queue", Queue))
}


class Process:
    """One scheduler's memory of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = World()
        self.policy = Policy()
        self.keeping = Keeping(world=self.world, policy=self.policy)
        self.view = LedgerView()
        self.memory = CoreMemory()
        self.decider = Decider()
        self.sequence = 0

    def apply(self, kind: str, key: str, value: Any) -> None:
        """One change of STATE."""
        self.sequence += 1
        version = getattr(value, "resource_version", "") or "1"
        self.world.apply(
            Change(kind=kind, key=key, object=value, resource_version=version, sequence=Sequence(self.sequence))  # type: ignore[arg-type]
        )

    def load(self, *, waiting: bool) -> tuple[float, float, float]:
        """Everything from messages: seconds of decoding and applying, of the snapshot, of what a decision starts from."""
        applying = 0.0
        batch: list[tuple[str, str, bytes]] = []

        def flush() -> float:
            began = time.perf_counter()
            for kind, key, data in batch:
                self.apply(kind, key, DECODERS[kind].decode(data))
            batch.clear()
            return time.perf_counter() - began

        for kind, key, value in self.cluster.objects(waiting=waiting):
            batch.append((kind, key, msgspec.json.encode(value)))
            if len(batch) == 500:
                applying += flush()
        applying += flush()
        began = time.perf_counter()
        snapshot = self.keeping.snapshot(self.view)
        middle = time.perf_counter()
        self.keeping.basis.start(snapshot)
        self.keeping.basis.give_back()
        return applying, middle - began, time.perf_counter() - middle

    async def decide(self) -> tuple[tuple[Any, ...], Timer]:
        """A round as the shell makes it: the snapshot brought up to date, and a decision in its thread."""
        stop = stopwatch()
        snapshot = self.keeping.snapshot(self.view)
        decision = await self.decider(snapshot, self.memory, 1e9, self.policy, basis=self.keeping.basis)
        took = stop()
        self.memory = decision.memory
        return decision.instructions, took

    def place(self, instructions: tuple[Any, ...]) -> int:
        """What was placed runs; how many pods."""
        placed = 0
        for one in instructions:
            if isinstance(one, Place):
                for slot in one.slots:
                    pod = self.cluster.stands(self.world.by_uid[slot.uid], slot)
                    self.apply("pod", pod.key, pod)
                    placed += 1
        return placed

    def finish(self, key: GangKey) -> None:
        """A gang has run: its pods and its PodGroup are gone."""
        for name in [name for name, pod in self.world.pods.items() if pod.gang == key]:
            self.apply("pod", name, None)
        self.apply("podgroup", key, None)


def changes(process: Process, rounds: int) -> dict[str, Any]:
    """A hundred changes a round: half are pods that end, in as many gangs, half updates that change no room; then a node that flips."""
    cluster, world, draw = process.cluster, process.world, random.Random(7)
    keys, names = [*world.pods], [*world.nodes]
    snapshots, starts, flips = [], [], []
    for number in range(rounds):
        batch: list[tuple[str, str, Any]] = []
        for place in range(BATCH - 3):
            key = draw.choice(keys)
            before = world.pods[key]
            if place % 2 and before.node is not None:
                # One pod of a gang after another ends; the next time it is met it stands again.
                after = msgspec.structs.replace(before, phase=Phase.RUNNING if before.finished else Phase.SUCCEEDED)
                batch.append(("pod", key, cluster.touched(after)))
            else:
                batch.append(("pod", key, cluster.touched(before)))
        group = draw.choice([*world.podgroups])
        batch.append(
            ("podgroup", group, msgspec.structs.replace(world.podgroups[GangKey(group)], status={"n": number}))
        )
        for _ in range(2):
            name = draw.choice(names)
            batch.append(("node", name, msgspec.structs.replace(world.nodes[name], resource_version=str(number))))
        if number % 4 == 3:
            name = draw.choice(names)
            batch.append(("node", name, msgspec.structs.replace(world.nodes[name], ready=not world.nodes[name].ready)))
        stop = stopwatch()
        for one in batch:
            process.apply(*one)
        snapshot = process.keeping.snapshot(process.view)
        first = stop()
        process.keeping.basis.start(snapshot)
        process.keeping.basis.give_back()
        both = stop()
        snapshots.append(first)
        (flips if number % 4 == 3 else starts).append(both)
    return {"snapshot": snapshots, "start": starts, "flip": flips}


async def single(process: Process, rounds: int) -> list[Timer]:
    """One waiting gang after another; as many pods leave as come. The first decision of a leadership counts as cold."""
    draw, took = random.Random(3), []
    await process.decide()
    running = list(process.world.podgroups)
    for _ in range(rounds):
        size, cards, rack = draw.choice(((4, 1, False), (8, 1, True), (16, 1, True), (2, 2, False), (8, 1, False)))
        key = GangKey("")
        for kind, name, value in process.cluster.gang(size, cards, rack=rack):
            key = GangKey(name) if kind == "podgroup" else key
            process.apply(kind, name, value)
        instructions, timer = await process.decide()
        took.append(timer)
        if process.place(instructions):
            running.append(key)
        else:
            process.finish(key)
        process.finish(running.pop(draw.randrange(len(running))))
        process.keeping.basis.start(process.keeping.snapshot(process.view))
        process.keeping.basis.give_back()
    return took


async def large(process: Process) -> dict[str, float]:
    """A gang of ten thousand pods, from its decision until STATE shows it bound; milliseconds, and the commit's MiB."""
    result: dict[str, float] = {}
    await process.decide()
    for kind, name, value in process.cluster.gang(LARGE_GANG, 0):
        process.apply(kind, name, value)
    instructions, timer = await process.decide()
    result["decide"] = timer.wall
    places = [one for one in instructions if isinstance(one, Place)]
    if not places:
        raise SystemExit(next(one.message for one in instructions if isinstance(one, Pending)))
    world, place = process.world, places[0]
    stop = stopwatch()
    slots = tuple(
        msgspec.structs.replace(slot, request=world.by_uid[slot.uid].shape.request, node_uid=world.nodes[slot.node].uid)
        for slot in place.slots
    )
    bind = Bind(gang=place.gang, gang_uid=place.gang_uid, slots=slots, freshness=world.pod_version)
    commit = Commit(epoch=Sequence(1), identity="a", entries=(bind,), at=1.0)
    body = msgspec.json.encode(commit)
    result["commit"] = stop().wall
    result["commit MiB"] = len(body) / 2**20
    leader = Commit(epoch=Sequence(0), identity="a", entries=(Leader(identity="a", lease_transitions=1),))
    process.view = fold_all(process.view, ((Sequence(1), leader), (Sequence(2), commit)))
    per: dict[str, list[float]] = {"settle": [], "may bind": [], "snapshot and decision": []}
    left = list(slots)
    while left:
        stop = stopwatch()
        steps = settle(process.view, world.by_uid, world.nodes, freshness=world.pod_version)
        per["settle"].append(stop().wall)
        stop = stopwatch()
        allowed = may_bind_now(world, steps)
        per["may bind"].append(stop().wall)
        if len(allowed) != len(left):
            raise SystemExit(f"{len(allowed)} of {len(left)} may be bound")
        _, timer = await process.decide()
        per["snapshot and decision"].append(timer.wall)
        for slot in left[:500]:
            pod = process.cluster.stands(world.by_uid[slot.uid], slot)
            process.apply("pod", pod.key, pod)
        left = left[500:]
    closed = settle(process.view, world.by_uid, world.nodes, freshness=world.pod_version)
    if [type(entry).__name__ for entry in closed.entries] != ["Close"]:
        raise SystemExit(f"not closed: {closed.entries}")
    for name, values in per.items():
        result[f"{name}, most"] = max(values)
        result[f"{name}, last"] = values[-1]
    return result


def measure(nodes: int, rounds: int, what: str) -> dict[str, Any]:
    """One size of cluster, in this process."""
    process = Process(Cluster(nodes))
    applying, snapshot, start = process.load(waiting=what != "single")
    if what == "changes":
        gc.collect()  # as the scheduler does after its first decision
        gc.freeze()
    result: dict[str, Any] = {
        "nodes": nodes,
        "pods": len(process.world.pods),
        "apply": applying,
        "snapshot": snapshot,
        "start": start,
    }
    if what == "single":
        result["single"] = asyncio.run(single(process, rounds))
    elif what == "changes":
        result["changes"] = changes(process, rounds)
    else:
        result["large"] = asyncio.run(large(process))
    result["memory"] = peak_mebibytes()
    return result


def _in_process(nodes: int, rounds: int, what: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "loadtest",
        "snapshot",
        "--one",
        what,
        "--nodes",
        str(nodes),
        "--rounds",
        str(rounds),
    ]
    answer: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
    return answer


def _row(name: str, target: str, values: list[list[float]]) -> list[str]:
    wall, cpu = [one[0] for one in values], [one[1] for one in values]
    cells = [f"{quantile(wall, 0.5):.1f}", f"{quantile(wall, 0.99):.1f}", f"{quantile(cpu, 0.99):.1f}"]
    return [name, *cells, target, str(len(values))]


def report(rounds: int, sizes: list[int]) -> str:
    """The tables."""
    largest = sizes[-1]
    told = _in_process(largest, rounds, "changes")
    rows = [
        _row("100 changes to a snapshot", "5", told["changes"]["snapshot"]),
        _row("the same, and what a decision starts from", "", told["changes"]["start"]),
        _row("the same, one of them a node that became ready or not", "", told["changes"]["flip"]),
    ]
    for nodes, target in zip(sizes, ("15", "20", "30"), strict=False):
        one = _in_process(nodes, rounds, "single")
        name = f"one waiting gang, {nodes:,} nodes, {one['pods']:,} pods: changes to instructions"
        rows.append(_row(name, target, one["single"]))
    gang = _in_process(largest, rounds, "large")
    cold = told["apply"] + told["snapshot"] + told["start"]
    once = [
        ["decode and apply everything", f"{told['apply']:.2f} s", ""],
        ["snapshot", f"{told['snapshot']:.2f} s", ""],
        ["what a decision starts from", f"{told['start']:.2f} s", ""],
        ["cold, together", f"{cold:.2f} s", "10 s"],
        ["resident memory at most", f"{max(told['memory'], gang['memory'])} MiB", "1,024 MiB"],
    ]
    big = [[name, f"{value:.1f}"] for name, value in gang["large"].items()]
    head = f"### From STATE to a decision: {largest:,} nodes, {told['pods']:,} pods\n\n`python -m loadtest snapshot`"
    return "\n\n".join(
        (
            head,
            machine(),
            table(("once", "measured", "target"), once),
            table(("milliseconds", "p50", "p99", "p99 of cpu time", "target p99", "times"), rows),
            f"A gang of {LARGE_GANG:,} pods there, 500 bound a round; milliseconds a round unless named otherwise:",
            table(("part", "measured"), big),
        )
    )


def main() -> int:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(prog="loadtest snapshot", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300, help="how often each round is measured (default 300)")
    parser.add_argument("--quick", action="store_true", help="small clusters and few rounds")
    parser.add_argument("--write", type=Path, help="file whose table is replaced")
    parser.add_argument("--one", choices=("changes", "single", "large"), help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=5_000, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.nodes, asked.rounds, asked.one)))
        return 0
    text = report(40 if asked.quick else asked.rounds, [50, 100, 500] if asked.quick else [100, 1_000, 5_000])
    print(text)
    if asked.write:
        write_between(asked.write, "snapshot", text)
    return 0
