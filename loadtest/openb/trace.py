"""Alibaba's public lists of nodes and pods (cluster-trace-gpu-v2023), and the order in which the published runs let pods arrive.

Protocol, from the code of the paper's simulator (hkust-adsl/kubernetes-scheduler-simulator at 8f3d641):

    pods sorted by name ─► shuffled ─► more drawn with replacement, or pods deleted, until 130 % of the cards are asked for
    nodes sorted by name ─► each renamed with a random number in front: the order in which ties are broken

Nothing ever leaves; every pod is tried once, when it arrives. All with Go's generator and the seeds 42 … 51.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from loadtest.openb.goorder import GoRandom

FIRST_SEED = 42
INFLATION = 1.3
CARD = 1000


class Machine(NamedTuple):
    """One node: CPU in thousandths, memory in MiB, cards and their model."""

    name: str
    cpu: int
    memory: int
    cards: int
    model: str


class Kind(NamedTuple):
    """What a pod asks; milli is per card, below 1,000 only for a single card. Pods of one kind are alike."""

    cpu: int
    memory: int
    cards: int
    milli: int
    models: tuple[str, ...]

    @property
    def demand(self) -> int:
        """Thousandths of cards."""
        return self.cards * self.milli

    @property
    def shared(self) -> bool:
        """It asks a part of one card."""
        return self.cards == 1 and self.milli < CARD


class Trace(NamedTuple):
    """Nodes sorted by name, the kinds of pods, and the kind of every pod of the list, sorted by name."""

    machines: tuple[Machine, ...]
    kinds: tuple[Kind, ...]
    pods: tuple[int, ...]

    @property
    def capacity(self) -> int:
        """Thousandths of cards."""
        return CARD * sum(machine.cards for machine in self.machines)


class Order(NamedTuple):
    """One run: the nodes in the order that breaks ties, and the kinds of the pods as they arrive."""

    seed: int
    machines: tuple[int, ...]
    arrivals: tuple[int, ...]


def read(nodes: Path, pods: Path) -> Trace:
    """The trace of two CSV files. Raises ValueError naming file, line and field for what is not a number or missing."""
    machines = [
        Machine(
            name=row["sn"],
            cpu=_number(nodes, row, "cpu_milli"),
            memory=_number(nodes, row, "memory_mib"),
            cards=_number(nodes, row, "gpu"),
            model=row.get("model", ""),
        )
        for row in _rows(nodes, ("sn", "cpu_milli", "memory_mib", "gpu"))
    ]
    numbers: dict[Kind, int] = {}
    listed: list[tuple[str, int]] = []
    for row in _rows(pods, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        cards = _number(pods, row, "num_gpu")
        milli = min(_number(pods, row, "gpu_milli"), CARD) if cards else 0
        models = tuple(sorted(filter(None, (row.get("gpu_spec") or "").split("|")))) if cards else ()
        kind = Kind(_number(pods, row, "cpu_milli"), _number(pods, row, "memory_mib"), cards, milli, models)
        listed.append((row["name"], numbers.setdefault(kind, len(numbers))))
    return Trace(
        tuple(sorted(machine for machine in machines if machine.cards)),
        tuple(numbers),
        tuple(number for _, number in sorted(listed)),
    )


def _rows(path: Path, fields: Sequence[str]) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [field for field in fields if field not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{path}: no column {missing[0]}; a list of this format has {', '.join(fields)}")
        return list(reader)


def _number(path: Path, row: dict[str, str], field: str) -> int:
    try:
        return int(row[field])
    except (TypeError, ValueError):
        raise ValueError(
            f"{path}: {field} of {next(iter(row.values()))} is {row[field]!r}, not a whole number"
        ) from None


def order(trace: Trace, seed: int) -> Order:
    """The arrivals and the order of nodes of the published run with this seed."""
    random = GoRandom(seed)
    random.word()  # the simulator prints one number before it shuffles
    arrivals = random.shuffled(trace.pods)
    total = sum(trace.kinds[number].demand for number in arrivals)
    target = INFLATION * trace.capacity
    while total > target:
        total -= trace.kinds[arrivals.pop(random.below(len(arrivals)))].demand
    if sum(trace.kinds[number].demand for number in trace.pods) < target:
        while True:
            number = trace.pods[random.below(len(trace.pods))]
            # As published: the test adds the demand of one card, the sum that of all.
            if total + trace.kinds[number].milli > target:
                break
            total += trace.kinds[number].demand
            arrivals.append(number)
    prefixes = random.permutation(len(trace.machines))
    machines = sorted(range(len(trace.machines)), key=lambda place: prefixes[place])
    return Order(seed, tuple(machines), tuple(arrivals))
