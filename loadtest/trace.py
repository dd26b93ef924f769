"""A public trace of training jobs through the real cores in virtual time, against simpler ways of waiting and evicting.

    python -m loadtest trace TRACE.csv [--cards 160] [--days 14] [--seed 1] [--write docs/benchmarks.md] [--json FILE]

TRACE.csv has the columns job_id, submission_time, duration (seconds) and num_gpu (the ElasticFlow traces). It names neither
queues nor priorities nor a cluster, so these are drawn here, by job id and seed alone, alike for every policy: three queues
and three priorities. Jobs of 8 cards or fewer are one pod; larger ones are pods of 8 cards in one rack where they fit one.

    muster      the cores as they are; at most 1.5 cards move for each that is gained, and max-wait is an hour
    greedy      greedy order, no reservation; eviction as the cores do it
    naive       the same, and who leaves is whoever has the lowest priority, latest first, until the gang fits

`--curve` runs the first of them with other limits too: how many cards may move for each that is gained, and after how long
a gang goes before the others. What large gangs wait less, others lose.
"""

import argparse
import csv
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec

from loadtest.naive import propose_naive
from loadtest.tables import machine, quantile, table, write_between
from muster.decide.preemption import propose
from muster.model.nodes import Card, CardMode, Node
from muster.model.pods import Request, Shape, TopologyWish
from muster.model.policy import Actions, Fairness, Policy, Preemption, Waiting
from muster.model.units import Bytes, CardCount, CardIndex, MiB, MilliCpu, NodeName, QueueName
from muster.model.workloads import Limits, Queue
from muster.scenarios.stream import Job, Life, Propose, Rules, Stream

CARDS_PER_NODE = 8
NODES_PER_RACK = 8
GIB = 2**30
CARD = 1_000_000
LARGE = 16
MAX_WAIT, MOVED = 3600.0, 1.5
CURVE = ((1.25, 3600.0), (1.5, 900.0), (1.5, 21_600.0), (2.0, 3600.0), (3.0, 3600.0), (3.0, 21_600.0), (4.0, 21_600.0))
"""Cards that may move per card gained, and max-wait in seconds."""
CHECKPOINT = 900.0
RESTART = 120.0
QUEUES = (("production", 3, 0.5), ("research", 2, 0.3), ("shared", 1, 0.2))
"""Name, weight, part of the jobs."""
PRIORITIES = ((100, 0.15), (50, 0.55), (0, 0.30))


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """One way of deciding."""

    name: str
    policy: Policy
    propose: Propose


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What one run came to. Hours; waiting is the sum of a job's times without its minimum, its run not begun or interrupted."""

    name: str
    jobs: int
    unfinished: int
    large: int
    large_p50: float
    large_p95: float
    large_longest: float
    all_p50: float
    all_p95: float
    evicted_card_hours: float
    """What evicted pods had held since their job last reached its minimum."""
    lost_card_hours: float
    restarts: int
    restarts_per_job: float
    makespan: float
    utilisation: float
    seconds: float
    decisions: int


def draw(text: str, parts: Sequence[float]) -> int:
    """Which of the parts (they sum to 1) a text falls into; the same on every machine."""
    at = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) / 2**64
    for number, part in enumerate(parts):
        at -= part
        if at < 0:
            return number
    return len(parts) - 1


def read(path: Path, *, seed: int, days: float, largest: int) -> list[Job]:
    """The jobs of a trace from its first day with jobs on, and what is drawn for each.

    Raises:
        ValueError: a row is not as the trace says; the message names line and column.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    jobs = []
    first = min((float(row["submission_time"]) for row in rows), default=0.0)
    for line, row in enumerate(rows, start=2):
        try:
            at, duration, cards = float(row["submission_time"]) - first, float(row["duration"]), int(row["num_gpu"])
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path}:{line}: {error}; wanted are job_id,submission_time,duration,num_gpu") from error
        if at > days * 86_400 or cards > largest or duration <= 0:
            continue
        each = min(cards, CARDS_PER_NODE)
        queue, _, _ = QUEUES[draw(f"{seed} queue {row['job_id']}", [part for _, _, part in QUEUES])]
        priority, _ = PRIORITIES[draw(f"{seed} priority {row['job_id']}", [part for _, part in PRIORITIES])]
        request = Request(cpu=MilliCpu(8000 * each), memory=Bytes(96 * GIB * each), cards=CardCount(each))
        jobs.append(
            Job(
                name=row["job_id"],
                at=at,
                pods=cards // each,
                shape=Shape(request=request),
                work=duration,
                queue=queue,
                priority=priority,
                checkpoint_interval=CHECKPOINT,
                topology=TopologyWish(preferred_level="rack") if cards > each else TopologyWish(),
                owner=f"{queue}/{cards}",
            )
        )
    return jobs


def cluster(cards: int) -> tuple[list[Node], list[Queue]]:
    """Nodes of 8 cards in racks of 8 nodes, and three queues that deserve 90 % of them by weight."""
    nodes = [
        Node(
            name=NodeName(f"gpu-{number:03}"),
            labels={"rack": f"rack-{number // NODES_PER_RACK}"},
            cpu=MilliCpu(96_000),
            memory=Bytes(1024 * GIB),
            max_pods=110,
            cards=tuple(Card(index=CardIndex(card), memory_mib=MiB(81_920)) for card in range(CARDS_PER_NODE)),
            allocatable_cards=CARDS_PER_NODE,
            card_mode=CardMode.VOLCANO,
        )
        for number in range(-(-cards // CARDS_PER_NODE))
    ]
    weights = sum(weight for _, weight, _ in QUEUES)
    queues = [
        Queue(
            name=QueueName(name),
            weight=weight,
            deserved=Limits(amounts={"gpu": len(nodes) * CARDS_PER_NODE * 9 // 10 * weight // weights * CARD}),
        )
        for name, weight, _ in QUEUES
    ]
    return nodes, queues


def variants() -> list[Variant]:
    """Ours, and the two that it is compared with."""
    acts = Actions(bind="act", preempt="act", reclaim="act", consolidate="observe")
    ours = Policy(
        actions=acts,
        fairness=Fairness(stability=0.0),
        waiting=Waiting(max_wait=MAX_WAIT),
        preemption=Preemption(moved_per_gained=MOVED),
    )
    plain = msgspec.structs.replace(
        ours,
        waiting=Waiting(reservations=0, max_wait=0.0),
        solver=msgspec.structs.replace(ours.solver, enabled=False),
    )
    return [
        Variant(name="muster", policy=ours, propose=propose),
        Variant(name="greedy", policy=plain, propose=propose),
        Variant(name="naive", policy=plain, propose=propose_naive),
    ]


def curve() -> list[Variant]:
    """Ours with other limits."""
    ours = variants()[0].policy
    return [
        Variant(
            name=f"moved {moved:g}, max-wait {wait / 3600:g} h",
            policy=msgspec.structs.replace(
                ours,
                preemption=msgspec.structs.replace(ours.preemption, moved_per_gained=moved),
                waiting=msgspec.structs.replace(ours.waiting, max_wait=wait),
            ),
            propose=propose,
        )
        for moved, wait in CURVE
    ]


def run(
    variant: Variant, jobs: Sequence[Job], cards: int, *, rules: Rules, progress: Callable[[int], None] | None = None
) -> Summary:
    """One run of one variant."""
    nodes, queues = cluster(cards)
    stream = Stream(
        jobs,
        nodes=nodes,
        queues=queues,
        policy=variant.policy,
        rules=rules,
        propose_with=variant.propose,
        levels=("rack",),
    )
    began = time.process_time()
    lives: list[Life] = []
    for life in stream.run():
        lives.append(life)
        if progress is not None:
            progress(len(lives))
    return summary(variant.name, lives, cards, seconds=time.process_time() - began, decisions=stream.decisions)


def summary(name: str, lives: Iterable[Life], cards: int, *, seconds: float, decisions: int) -> Summary:
    """The numbers of a run."""
    all_ = list(lives)
    each = {life.job.name: life.job.shape.request.cards for life in all_}
    large = [life for life in all_ if life.job.pods * each[life.job.name] >= LARGE]
    waits = [life.waited / 3600 for life in all_]
    large_waits = [life.waited / 3600 for life in large]
    end = max((life.ended or 0.0 for life in all_), default=0.0)
    useful = sum(life.job.work * life.job.pods * each[life.job.name] for life in all_ if life.ended is not None)
    restarts = sum(life.restarts for life in all_)
    return Summary(
        name=name,
        jobs=len(all_),
        unfinished=sum(life.ended is None for life in all_),
        large=len(large),
        large_p50=quantile(large_waits, 0.5) if large else 0.0,
        large_p95=quantile(large_waits, 0.95) if large else 0.0,
        large_longest=max(large_waits, default=0.0),
        all_p50=quantile(waits, 0.5) if waits else 0.0,
        all_p95=quantile(waits, 0.95) if waits else 0.0,
        evicted_card_hours=sum(life.evicted_held * each[life.job.name] for life in all_) / 3600,
        lost_card_hours=sum(life.lost_work * life.job.pods * each[life.job.name] for life in all_) / 3600,
        restarts=restarts,
        restarts_per_job=restarts / len(all_) if all_ else 0.0,
        makespan=end / 3600,
        utilisation=useful / (end * cards) if end else 0.0,
        seconds=seconds,
        decisions=decisions,
    )


def main() -> int:
    """Run the comparison; 2 when the trace cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m loadtest trace",
        description=(__doc__ or "").partition("\n")[0],
        epilog="example: python -m loadtest trace cluster03.csv --cards 160 --days 14",
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--cards", type=int, default=160, help="of the cluster (default 160)")
    parser.add_argument("--days", type=float, default=60.0, help="of arrivals (default: all)")
    parser.add_argument("--seed", type=int, default=1, help="for queues and priorities")
    parser.add_argument("--tick", type=float, default=600.0, help="seconds between decisions while somebody waits")
    parser.add_argument("--curve", action="store_true", help="also with other limits on moves and waiting")
    parser.add_argument("--only", choices=[variant.name for variant in variants()], help="run one policy")
    parser.add_argument("--write", type=Path, help="Markdown file to write the table into")
    parser.add_argument("--json", type=Path, help="write the numbers as JSON")
    given = parser.parse_args()
    try:
        jobs = read(given.trace, seed=given.seed, days=given.days, largest=given.cards)
    except (OSError, ValueError) as error:
        print(f"{error}", file=sys.stderr)
        return 2
    rules = Rules(restart_cost=RESTART, tick=given.tick)
    found = []
    for variant in variants():
        if given.only in {None, variant.name}:
            found.append(run(variant, jobs, given.cards, rules=rules, progress=_progress(variant.name, len(jobs))))
            print(file=sys.stderr)
    text = report(found, jobs, given)
    if given.curve:
        text = f"{text}\n\n{_curve(jobs, given, rules)}"
    print(text)
    if given.write:
        write_between(given.write, f"trace {given.trace.stem}", text)
    if given.json:
        given.json.write_text(json.dumps([msgspec.to_builtins(one) for one in found], indent=2) + "\n")
    return 0


def _curve(jobs: Sequence[Job], given: argparse.Namespace, rules: Rules) -> str:
    """The runs with other limits, two at a time, as a table."""
    with ProcessPoolExecutor(max_workers=2) as pool:
        runs = [(one, pool.submit(run, one, jobs, given.cards, rules=rules)) for one in curve()]
        found = []
        for number, (one, running) in enumerate(runs, start=1):
            found.append(running.result())
            print(f"{one.name}: {number} of {len(runs)} done", file=sys.stderr, flush=True)
    return "\n".join(
        (
            "The same with other limits: cards that may move for each that is gained (`preemption.moved_per_gained`), and",
            f"the max-wait after which a gang goes first. The 95th percentile of {found[0].large} gangs hangs on the two or three longest.",
            "",
            table(HEAD, [_row(one) for one in found]),
        )
    )


def _progress(name: str, jobs: int) -> Callable[[int], None]:
    began = time.monotonic()

    def tell(done: int) -> None:
        if done % 20 and done < jobs:
            return
        left = (time.monotonic() - began) * (jobs - done) / done
        print(f"\r{name}: {done} of {jobs} jobs, about {left:.0f} s left   ", end="", file=sys.stderr, flush=True)

    return tell


HEAD = [
    "policy",
    f"waiting of gangs ≥ {LARGE} cards p50 / p95 / longest, h",
    "waiting of all p50 / p95, h",
    "evicted card-hours",
    "lost card-hours",
    "restarts (per job)",
    "makespan, h",
    "useful use of cards until then",
    "CPU s",
]


def _row(one: Summary) -> list[str]:
    return [
        one.name,
        f"{one.large_p50:.1f} / {one.large_p95:.2f} / {one.large_longest:.1f}",
        f"{one.all_p50:.2f} / {one.all_p95:.1f}",
        f"{one.evicted_card_hours:.0f}",
        f"{one.lost_card_hours:.0f}",
        f"{one.restarts} ({one.restarts_per_job:.2f})",
        f"{one.makespan:.0f}",
        f"{100 * one.utilisation:.1f} %",
        f"{one.seconds:.0f}",
    ]


def report(found: Sequence[Summary], jobs: Sequence[Job], given: argparse.Namespace) -> str:
    """The table with how it was made."""
    load = sum(job.work * job.pods * job.shape.request.cards for job in jobs)
    span = max((job.at for job in jobs), default=0.0)
    lines = [
        f"`python -m loadtest trace {given.trace.name} --cards {given.cards} --days {given.days:g} --seed {given.seed} --tick {given.tick:g}`"
        + (" with `--curve`" if given.curve else ""),
        "",
        (
            f"{len(jobs)} jobs, {sum(one.large for one in found[:1])} gangs of {LARGE} cards or more, on {given.cards} cards; offered load "
            f"{load / (span * given.cards) if span else 0:.2f} over {span / 86_400:.0f} days of arrivals. A job checkpoints each {CHECKPOINT:g} s "
            f"of work and pays {RESTART:g} s for a restart."
        ),
        "",
        table(HEAD, [_row(one) for one in found]),
        "",
        machine(),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
