"""The preemptor's core: plans into full clusters, and the proof that there is none.

    python -m loadtest preemption [--quick] [--seeds N] [--write docs/benchmarks.md]

rack      992 nodes in racks of 16, every card held by about 300 running gangs of whole nodes (scattered over the cluster, or
          each inside a rack) and of single cards; a gang of 8 pods × 8 cards that must stay in one rack comes with a higher
          priority than about three quarters of them
reclaim   500 nodes all held by one queue that deserves half of them; the other queue asks for 2,000 cards at once, as 250 pods
          of whole nodes or as 2,000 pods of one card
proof     500 nodes; 80 cards on 10 whole nodes, of one rack or of any, which no set of jobs that may leave makes room for

A time is that of one call from a snapshot to a proposal: with what the preemptor keeps from the call before (nodes, room, who
stands where), and from nothing. Every plan is judged afterwards as the committer does, and the cheapest that is known for the
rack cases is looked for by exhaustive search over the choices of nodes in every rack.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from loadtest.tables import machine, peak_mebibytes, quantile, table, write_between
from muster.decide.basis import Basis
from muster.decide.join import Changes
from muster.decide.memory import CoreMemory
from muster.decide.preemption import plan_entry, propose, refusal
from muster.decide.scheduling import decide
from muster.model.gangs import Gang, Member, MemberState, Role, Timing
from muster.model.instructions import Pending
from muster.model.nodes import Card, CardMode, Node
from muster.model.pods import CardUse, Request, Shape, TopologyWish
from muster.model.policy import Actions, Fairness, Policy
from muster.model.snapshot import Snapshot
from muster.model.units import (
    Bytes,
    CardCount,
    CardIndex,
    CorePercent,
    MiB,
    MilliCpu,
    NodeName,
    PodUid,
    QueueName,
    RoleName,
    gang_key,
)
from muster.model.workloads import Limits, Queue

GIB = 2**30
NOW = 1_000_000.0
CARDS = 8
PER_RACK = 16
RACK = "topology.muster.dev/rack"
PRIORITIES = (0, 1, 2, 3)
HIGH = 3
"""Of the gang that comes; a gang of the same priority stays."""
ONE = 1_000_000
POLICY = Policy(
    actions=Actions(preempt="act", reclaim="act"), fairness=Fairness(stability=0.0), topology_levels=(RACK,)
)
WORKER = RoleName("worker")


class Case(NamedTuple):
    """One instance."""

    name: str
    snapshot: Snapshot
    expected: bool
    """Whether there is a plan."""
    rack: bool = False


class Seen(NamedTuple):
    """What the calls for one instance took, in seconds, and gave."""

    kept: float
    fresh: float
    victims: int
    cards: int
    lost: int
    """Card-minutes."""
    least: int | None
    """The least that any choice of nodes loses."""
    decision: float
    """The scheduler's own call on the same snapshot."""


def nodes_of(count: int) -> tuple[Node, ...]:
    """Nodes in racks, all of eight cards."""
    cards = tuple(Card(index=CardIndex(index), memory_mib=MiB(81_920)) for index in range(CARDS))
    return tuple(
        Node(
            name=NodeName(f"node-{number:04}"),
            labels={RACK: f"rack-{number // PER_RACK:03}"},
            cpu=MilliCpu(128_000),
            memory=Bytes(2_048 * GIB),
            cards=cards,
            allocatable_cards=CARDS,
            card_mode=CardMode.VOLCANO,
        )
        for number in range(count)
    )


def request_of(cards: int) -> Request:
    """A pod's request, in proportion to its cards."""
    return Request(cpu=MilliCpu(8_000 * cards), memory=Bytes(64 * GIB * cards), cards=CardCount(cards))


def running(name: str, places: list[tuple[str, tuple[int, ...]]], *, draw: random.Random, **more: object) -> Gang:
    """A gang that stands on (node, cards)."""
    started = NOW - draw.uniform(600, 86_400)
    checkpoint = NOW - draw.uniform(0, 3_600) if draw.random() < 0.5 else 0.0
    members = tuple(
        Member(
            uid=PodUid(f"{name}-{number}"),
            name=f"{name}-{number}",
            role=WORKER,
            state=MemberState.BOUND,
            node=NodeName(node),
            cards=tuple(
                CardUse(
                    index=CardIndex(index),
                    memory_mib=MiB(81_920),
                    core_percent=CorePercent(100),
                    whole=True,
                )
                for index in cards
            ),
        )
        for number, (node, cards) in enumerate(places)
    )
    role = Role(name=WORKER, shape=Shape(request=request_of(len(places[0][1]))), replicas=len(places))
    gang = Gang(
        key=gang_key("load", name),
        uid=f"uid-{name}",
        queue=QueueName("train"),
        namespace="load",
        minimum=len(places),
        roles=(role,),
        members=members,
        timing=Timing(started=started, last_checkpoint=checkpoint),
    )
    return msgspec.structs.replace(gang, **more)


def waiting(pods: int, cards: int, *, rack: bool, queue: str = "train", priority: int = HIGH) -> Gang:
    """The gang that comes."""
    members = tuple(
        Member(uid=PodUid(f"want-{number}"), name=f"want-{number}", role=WORKER, state=MemberState.WAITING)
        for number in range(pods)
    )
    return Gang(
        key=gang_key("load", "want"),
        uid="uid-want",
        queue=QueueName(queue),
        namespace="load",
        priority=priority,
        minimum=pods,
        roles=(Role(name=WORKER, shape=Shape(request=request_of(cards)), replicas=pods),),
        members=members,
        topology=TopologyWish(required_level="rack") if rack else TopologyWish(),
    )


def fill(nodes: tuple[Node, ...], draw: random.Random, *, aligned: bool, priorities: tuple[int, ...]) -> list[Gang]:
    """Gangs on every card: most of whole nodes, one node in eight in jobs of single cards."""
    names = [str(node.name) for node in nodes]
    small = set(draw.sample(names, len(names) // 8))
    whole = [name for name in names if name not in small]
    if not aligned:
        draw.shuffle(whole)
    gangs = []
    while whole:
        size = min(len(whole), draw.choice((1, 2, 2, 4, 4, 8)))
        if aligned:
            start = names.index(whole[0]) // PER_RACK
            size = min(size, sum(names.index(one) // PER_RACK == start for one in whole[:size]))
        places = [(whole.pop(0), tuple(range(CARDS))) for _ in range(size)]
        gangs.append(running(f"gang-{len(gangs)}", places, draw=draw, priority=draw.choice(priorities)))
    for name in sorted(small):
        index = 0
        while index < CARDS:
            size = min(CARDS - index, draw.choice((1, 2, 4)))
            places = [(name, (card,)) for card in range(index, index + size)]
            gangs.append(running(f"gang-{len(gangs)}", places, draw=draw, priority=draw.choice(priorities)))
            index += size
    return gangs


def rack_case(nodes: int, seed: int, *, aligned: bool) -> Case:
    """64 cards in one rack of a full cluster."""
    draw = random.Random(f"rack/{nodes}/{seed}/{aligned}")
    made = nodes_of(nodes)
    gangs = fill(made, draw, aligned=aligned, priorities=PRIORITIES)
    queue = Queue(name=QueueName("train"))
    snapshot = Snapshot(
        nodes=made, queues=(queue,), gangs=(*gangs, waiting(8, CARDS, rack=True)), topology_levels=(RACK,)
    )
    return Case("aligned" if aligned else "scattered", snapshot, expected=True, rack=True)


def reclaim_case(nodes: int, seed: int, *, single: bool) -> Case:
    """Half of a cluster back for the queue that deserves it."""
    draw = random.Random(f"reclaim/{nodes}/{seed}")
    made = nodes_of(nodes)
    gangs = fill(made, draw, aligned=False, priorities=PRIORITIES)
    half = nodes * CARDS // 2
    queues = tuple(
        Queue(name=QueueName(name), deserved=Limits(amounts={"gpu": half * ONE})) for name in ("prod", "train")
    )
    want = (
        waiting(half, 1, rack=False, queue="prod")
        if single
        else waiting(half // CARDS, CARDS, rack=False, queue="prod")
    )
    snapshot = Snapshot(nodes=made, queues=queues, gangs=(*gangs, want), topology_levels=(RACK,))
    return Case(f"{half} pods of 1" if single else f"{half // CARDS} pods of {CARDS}", snapshot, expected=True)


def proof_case(nodes: int, seed: int, *, rack: bool) -> Case:
    """80 cards that cannot be had: in every rack (or anywhere but on 9 nodes) a job that stays is on the node."""
    draw = random.Random(f"proof/{nodes}/{seed}/{rack}")
    made = nodes_of(nodes)
    gangs: list[Gang] = []
    open_nodes = {
        f"node-{number:04}" for number in (range(9) if not rack else (n for n in range(nodes) if n % PER_RACK < 9))
    }
    for node in made:
        stays = str(node.name) not in open_nodes
        for part in (range(4), range(4, 7)) if stays else (range(4), range(4, 8)):
            priority = HIGH if stays and part[0] == 0 else draw.choice((0, 1, 2))
            places = [(str(node.name), (card,)) for card in part]
            gangs.append(running(f"gang-{len(gangs)}", places, draw=draw, priority=priority))
    queue = Queue(name=QueueName("train"))
    snapshot = Snapshot(
        nodes=made, queues=(queue,), gangs=(*gangs, waiting(10, CARDS, rack=rack)), topology_levels=(RACK,)
    )
    return Case("in one rack" if rack else "anywhere", snapshot, expected=False)


def kept_basis(snapshot: Snapshot) -> Basis:
    """A basis as the preemptor keeps it: it has seen the snapshot before."""
    basis = Basis()
    changes = Changes({(1, 0.0, gang.key, ""): gang for gang in snapshot.gangs}, {}, {}, everything=True)
    basis.note(changes)
    basis.start(snapshot)
    basis.give_back()
    return basis


def timed(call: Callable[[], object]) -> float:
    """Seconds of processor time."""
    before = time.process_time()
    call()
    return time.process_time() - before


def look(case: Case) -> Seen:
    """Measure one instance and judge what it gave."""
    memory = CoreMemory()
    basis = kept_basis(case.snapshot)
    proposal = propose(case.snapshot, memory, NOW, POLICY, basis=basis)
    kept = timed(lambda: propose(case.snapshot, memory, NOW, POLICY, basis=basis))
    fresh = timed(lambda: propose(case.snapshot, memory, NOW, POLICY))
    decision = timed(lambda: decide(case.snapshot, memory, NOW, POLICY, basis=basis))
    if (proposal.plan is not None) != case.expected:
        raise SystemExit(f"{case.name}: {'no plan' if case.expected else 'a plan'} was found")
    if proposal.plan is None:
        told = decide(case.snapshot, memory, NOW, POLICY).instructions
        if not any(isinstance(one, Pending) and one.gang == "load/want" for one in told):
            raise SystemExit(f"{case.name}: nobody says why the gang waits")
        return Seen(kept, fresh, 0, 0, 0, None, decision)
    entry = plan_entry(proposal, case.snapshot, memory, NOW, POLICY)
    if why := refusal(case.snapshot, memory, NOW, POLICY, entry):
        raise SystemExit(f"{case.name}: the committer would refuse it: {why}")
    left = {victim.gang for victim in entry.victims}
    gangs = [gang for gang in case.snapshot.gangs if gang.key in left]
    lost = sum(lost_by(gang) for gang in gangs if gang.priority == max(one.priority for one in gangs))
    cards = sum(victim.cards for victim in entry.victims) // ONE
    least = least_lost(case.snapshot) if case.rack else None
    return Seen(kept, fresh, len(entry.victims), cards, lost, least, decision)


def lost_by(gang: Gang) -> int:
    """Card-minutes since its last checkpoint or start."""
    since = NOW - max(gang.timing.started, gang.timing.last_checkpoint)
    return int(since / 60 * sum(len(member.cards) for member in gang.members))


def least_lost(snapshot: Snapshot) -> int:
    """The least work of the highest priority hit that any 8 nodes of a rack lose, at the lowest such priority.

    Choices that move more cards than the policy allows do not count.
    """
    gangs = [gang for gang in snapshot.gangs if gang.key != "load/want"]
    number = {str(node.name): at for at, node in enumerate(snapshot.nodes)}
    choices = np.array(list(combinations(range(PER_RACK), 8)))
    picked = np.zeros((len(choices), PER_RACK), dtype=np.float32)
    picked[np.arange(len(choices))[:, None], choices] = 1
    best: tuple[int, int] | None = None
    for rack in range(len(snapshot.nodes) // PER_RACK):
        here = [
            (
                gang,
                sorted(
                    {number[str(m.node)] % PER_RACK for m in gang.members if number[str(m.node)] // PER_RACK == rack}
                ),
            )
            for gang in gangs
        ]
        here = [(gang, rows) for gang, rows in here if rows]
        on = np.zeros((PER_RACK, len(here)), dtype=np.float32)
        for at, (_, rows) in enumerate(here):
            on[rows, at] = 1
        hit = picked @ on > 0
        priority = np.where(hit, np.array([gang.priority for gang, _ in here]), -1)
        highest = priority.max(axis=1)
        lost = (np.where(priority == highest[:, None], np.array([lost_by(gang) for gang, _ in here]), 0)).sum(axis=1)
        moved = (hit * np.array([sum(len(m.cards) for m in gang.members) for gang, _ in here])).sum(axis=1)
        highest = np.where(moved <= POLICY.preemption.moved_per_gained * 8 * CARDS, highest, HIGH)
        order = np.lexsort((lost, highest))
        found = (int(highest[order[0]]), int(lost[order[0]]))
        if found[0] < HIGH and (best is None or found < best):
            best = found
    return best[1] if best is not None else -1


def cases(*, quick: bool, seeds: int) -> Iterator[tuple[str, str, Iterator[Case]]]:
    """What is measured: table row, target, instances."""
    nodes = 992 if not quick else 192
    half = 500 if not quick else 100
    for aligned in (False, True):
        name = f"64 cards in one rack, {nodes} full nodes, gangs {'each in a rack' if aligned else 'scattered'}"
        yield name, "p50 20 ms, p99 400 ms", (rack_case(nodes, seed, aligned=aligned) for seed in range(seeds))
    few = max(2, seeds // 5)
    for single in (False, True):
        name = f"reclaim of {half * CARDS // 2} cards, {half} nodes, {'pods of one card' if single else 'pods of whole nodes'}"
        yield name, "2 s", (reclaim_case(half, seed, single=single) for seed in range(few))
    for rack in (True, False):
        name = f"proof that 80 cards cannot fit {'in one rack' if rack else 'anywhere'}, {half} nodes"
        yield name, "1 s", (proof_case(half, seed, rack=rack) for seed in range(few))


def main() -> int:
    """Measure, print, and write the table when asked to."""
    parser = argparse.ArgumentParser(prog="loadtest preemption", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small clusters, few seeds")
    parser.add_argument("--seeds", type=int, default=0, help="instances of the rack cases (20)")
    parser.add_argument("--write", type=Path, help="put the table into this page")
    parsed = parser.parse_args()
    seeds = parsed.seeds or (4 if parsed.quick else 20)
    rows = []
    for name, target, instances in cases(quick=parsed.quick, seeds=seeds):
        seen = [look(case) for case in instances]
        kept, fresh = [1000 * one.kept for one in seen], [1000 * one.fresh for one in seen]
        gaps = [(one.lost, one.least) for one in seen if one.least is not None]
        equal = sum(lost == least for lost, least in gaps)
        rows.append(
            (
                name,
                len(seen),
                f"{statistics.median(kept):.0f} / {quantile(kept, 0.99):.0f}",
                f"{statistics.median(fresh):.0f} / {quantile(fresh, 0.99):.0f}",
                target,
                f"{statistics.median(1000 * one.decision for one in seen):.0f}",
                f"{statistics.mean(one.victims for one in seen):.0f}",
                f"{statistics.mean(one.cards for one in seen):.0f}",
                f"{equal} of {len(gaps)}" if gaps else "–",
            )
        )
        print(table(HEAD, rows[-1:]).splitlines()[-1], flush=True)
    text = "\n\n".join(
        (
            "`python -m loadtest preemption --write docs/benchmarks.md`",
            SAID,
            table(HEAD, rows),
            f"{machine()}; {peak_mebibytes()} MiB at the most",
        )
    )
    print(f"\n{text}")
    if parsed.write is not None:
        write_between(parsed.write, "preemption", text)
    return 0


SAID = """Processor time of one proposal in ms (p50 / p99 over the instances), from a snapshot to a plan or to the certainty that
there is none. Kept: with nodes, room and units as they were kept from the call before; fresh: from nothing. Every plan passed
the committer's check. Cheapest: how often no choice of nodes in any rack loses less work of the highest priority that is hit."""
HEAD = (
    "what",
    "instances",
    "kept p50 / p99",
    "fresh p50 / p99",
    "target",
    "decision p50",
    "victims",
    "their cards",
    "cheapest",
)

if __name__ == "__main__":
    sys.exit(main())
