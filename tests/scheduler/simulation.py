"""A deterministic simulation of the scheduler's shell in a bad world.

    python -m tests.scheduler.simulation --seeds 5000          more seeds than in CI
    python -m tests.scheduler.simulation --seed 42             one seed, with its whole history

Two real leaders (Book, World, Leadership, Executor) share a LEDGER, lag behind in STATE, and reach one API server over a
network that delays and loses. They are paused, woken, crashed and deposed; pods are deleted, recreated, bound by hand,
refused by kubelets; nodes vanish and return; STATE is emptied and the LEDGER lost. A preemptor proposes plans, sound and
unsound, and evicts what the leaders commit; it is as late, and paused and crashed as they are. After that comes a fair time, in which
everything must come to rest: every gang whole, no entry open.

What may never happen is checked by `simulated_truth` at every write. Time is virtual, and all chance comes from the seed.
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable

import msgspec

from muster.model.nodes import CardMode
from muster.model.pods import Phase
from muster.model.units import NodeName
from tests.scheduler.simulated_connections import Connected, Faults, group
from tests.scheduler.simulated_preemptor import Preemptor
from tests.scheduler.simulated_process import Process
from tests.scheduler.simulated_truth import Truth, Violation
from tests.scheduler.virtual_time import run_virtually

BAD_SECONDS = 90.0
FAIR_SECONDS = 400.0
GANGS = {"a": 3, "b": 2, "c": 1}
CROWD = {"d": 2, "e": 1}
"""Gangs of the bad times only: with them there is never room for all."""
NODES = {NodeName("n1"): CardMode.STOCK, NodeName("n2"): CardMode.VOLCANO, NodeName("n3"): CardMode.STOCK}
CARDS = 2
HISTORY = 60


class World(msgspec.Struct, frozen=True, kw_only=True):
    """How often what happens, relative to each other, and by how many seconds a process may lag behind in STATE."""

    weights: dict[str, float]
    lags: tuple[float, ...]


BAD = World(
    weights={
        "delete": 4,
        "fail over": 3,
        "pause": 2,
        "wake": 3,
        "crash": 1,
        "node": 2,
        "hand": 1,
        "reset": 1,
        "lose": 0.5,
        "lag": 1,
        "calm": 6,
    },
    lags=(0.0, 0.0, 0.5, 3.0, 8.0),
)
LATE = World(weights={"delete": 5, "fail over": 5, "lose": 0.5, "lag": 2, "calm": 2}, lags=(0.0, 10.0, 20.0))
"""Views that are far behind when their process begins to lead."""
CALM = World(
    weights={
        "delete": 2,
        "fail over": 2,
        "pause": 3,
        "wake": 2,
        "crash": 2,
        "node": 0.5,
        "lose": 0.3,
        "lag": 1,
        "calm": 14,
    },
    lags=(0.0, 0.0, 0.5, 3.0),
)
"""Calm enough for plans to be carried out."""


HANDOVER = World(
    weights={"delete": 6, "fail over": 6, "pause": 3, "wake": 3, "calm": 2},
    lags=(0.0, 0.0, 0.5),
)
"""Leaders that change in the middle of their work."""
WORLDS = {"bad": BAD, "late": LATE, "calm": CALM, "handover": HANDOVER}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a seed gave."""

    seed: int
    error: str
    history: tuple[str, ...]
    written: Counter[str]


class Simulation:
    """One seed."""

    def __init__(self, seed: int, world: World = BAD) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.world = world
        self.history: list[str] = []
        self.errors: list[BaseException] = []
        self.truth = Truth(self.note)
        self.faults = Faults(self.rng)
        self.groups = {name: group(name, size) for name, size in (GANGS | CROWD).items()}
        self.processes: list[Process] = []
        self.preemptor: Preemptor | None = None
        self.generation = 0
        self.stuck: dict[str, bool] = {}

    def note(self, text: str) -> None:
        """One line of the history."""
        self.history.append(f"{asyncio.get_running_loop().time():8.3f}  {text}")

    def fail(self, error: BaseException) -> None:
        """The first error counts."""
        if not self.errors:
            self.note(f"!!! {type(error).__name__}: {error}")
        self.errors.append(error)

    async def run(self) -> Outcome:
        """Bad times, then fair ones."""
        try:
            await self._run()
        except Violation as violation:
            self.fail(violation)
        error = f"{type(self.errors[0]).__name__}: {self.errors[0]}" if self.errors else ""
        return Outcome(seed=self.seed, error=error, history=tuple(self.history), written=self.truth.written)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for name, mode in NODES.items():
            self.truth.create_node(name, cards=CARDS, mode=mode)
        for name, size in (GANGS | CROWD).items():
            for number in range(size):
                self.truth.create_pod(f"{name}{number}", name)
        self.processes = [self._start(), self._start()]
        self.preemptor = self._start_preemptor()
        kubelets = asyncio.create_task(self._kubelets())
        while loop.time() < BAD_SECONDS and not self.errors:
            await asyncio.sleep(1.5 * self.rng.random())
            await self._something_bad()
            self._somebody_leads()
        await self._be_fair()
        end = loop.time() + FAIR_SECONDS
        while loop.time() < end and not self.errors and (self._unsettled() or loop.time() < BAD_SECONDS + 45):
            await asyncio.sleep(2.0)
            self._somebody_leads()
        if not self.errors and (left := self._unsettled()):
            raise Violation(f"no rest after fair {FAIR_SECONDS:g} s: {left}")
        kubelets.cancel()
        if kubelets.done() and not kubelets.cancelled() and (error := kubelets.exception()) is not None:
            self.fail(error)
        for process in self._all():
            await process.crash()

    def _all(self) -> list[Connected]:
        return [*self.processes, self.preemptor] if self.preemptor is not None else [*self.processes]

    def _start_preemptor(self) -> Preemptor:
        self.generation += 1
        preemptor = Preemptor(
            f"e{self.generation}", self.truth, self.faults, self.groups, self.fail, schedulers=lambda: self.processes
        )
        preemptor.lag = self.rng.choice(self.world.lags)
        return preemptor

    def _start(self) -> Process:
        self.generation += 1
        process = Process(f"p{self.generation}", self.truth, self.faults, self.groups, self.fail)
        process.lag = self.rng.choice(self.world.lags)
        return process

    # --- the bad world -----------------------------------------------------------------------------------------------

    async def _something_bad(self) -> None:
        rng, truth = self.rng, self.truth
        match rng.choices(list(self.world.weights), list(self.world.weights.values()))[0]:
            case "delete" if truth.pods:
                name = rng.choice(sorted(truth.pods))
                self.note(f"user deletes {truth.pods[name].uid}")
                truth.delete_pod(name)
            case "fail over":
                self._fail_over()
            case "pause":
                rng.choice(self._all()).pause()
            case "wake":
                for process in self._all():
                    process.gate.set()
            case "crash":
                if rng.random() < 0.3:
                    self.note(f"{self.preemptor.name} crashes")
                    await self.preemptor.crash()
                    self.preemptor = self._start_preemptor()
                    return
                number = rng.randrange(2)
                self.note(f"{self.processes[number].name} crashes")
                await self.processes[number].crash()
                self.processes[number] = self._start()
            case "node":
                self._node_comes_or_goes()
            case "hand":
                waiting = [pod.name for pod in truth.pods.values() if pod.node is None and not pod.terminating]
                if waiting and rng.random() < 0.5:
                    name = rng.choice(waiting)
                    self.note(f"somebody binds {truth.pods[name].uid} by hand")
                    truth.bind_by_hand(name)
            case "reset":
                self.note("STATE is emptied")
                for process in self._all():
                    process.state.reset_wanted = True
            case "lose" if truth.exists:
                truth.lose_ledger()
            case "lag":
                rng.choice(self._all()).lag = rng.choice(self.world.lags)

    def _fail_over(self) -> None:
        leaders = [process for process in self.processes if process.granted.is_set()]
        others = [process for process in self.processes if not process.granted.is_set()]
        if not others:
            return
        new = self.rng.choice(others)
        self.note(f"{new.name} gets the lease")
        new.granted.set()
        for old in leaders:
            # Some notice at once, some late, some only from the LEDGER.
            asyncio.get_running_loop().call_later(self.rng.choice((0.0, 5.0, 20.0, 1000.0)), old.lose_lease)

    def _node_comes_or_goes(self) -> None:
        name = self.rng.choice(sorted(NODES))
        if name in self.truth.nodes:
            self.note(f"node {name} vanishes")
            self.truth.remove_node(name)
            if self.rng.random() < 0.5:
                self._return(name)
        else:
            self._return(name)

    def _return(self, name: NodeName) -> None:
        self.note(f"node {name} is there anew")
        self.truth.create_node(name, cards=CARDS, mode=NODES[name])

    def _somebody_leads(self) -> None:
        if not any(process.granted.is_set() for process in self.processes):
            process = self.rng.choice(self.processes)
            self.note(f"{process.name} gets the lease")
            process.granted.set()

    async def _kubelets(self) -> None:
        """Kubelets, the pod garbage collector, and the owners of the pods."""
        while True:
            await asyncio.sleep(0.3 + self.rng.random())
            truth = self.truth
            for name, pod in sorted(truth.pods.items()):
                if self.rng.random() < 0.5:
                    continue
                if pod.terminating or pod.phase is Phase.FAILED:
                    truth.remove_pod(name)
                elif pod.node is None or pod.phase is not Phase.PENDING:
                    if pod.node in NODES and pod.node not in truth.nodes:
                        truth.remove_pod(name)
                elif pod.node in NODES and pod.node not in truth.nodes:
                    if self.rng.random() < 0.2:
                        truth.remove_pod(name)
                elif self.faults.chance(0.05):
                    self.note(f"kubelet refuses {pod.uid}")
                    truth.write_pod(msgspec.structs.replace(pod, phase=Phase.FAILED, reason="UnexpectedAdmissionError"))
                elif not (self.faults.on and self._is_stuck(pod.uid)):
                    assigned = {**pod.annotations, "volcano.sh/gpu-assigned": "true"}
                    truth.write_pod(msgspec.structs.replace(pod, phase=Phase.RUNNING, annotations=assigned))
            for gang, size in (GANGS | CROWD if self.faults.on else GANGS).items():
                for number in range(size):
                    name = f"{gang}{number}"
                    if name not in truth.pods and self.rng.random() < 0.5:
                        truth.create_pod(name, gang)

    def _is_stuck(self, uid: str) -> bool:
        """Some pods do not start for as long as times are bad."""
        return self.stuck.setdefault(uid, self.rng.random() < 0.15)

    # --- the fair world ----------------------------------------------------------------------------------------------

    async def _be_fair(self) -> None:
        self.note("--- from here on everything works ---")
        self.faults.on = False
        for name in [name for name, pod in self.truth.pods.items() if pod.gang in {f"ns/{gang}" for gang in CROWD}]:
            self.truth.delete_pod(name)
        for name in NODES:
            if name not in self.truth.nodes:
                self._return(name)
        for process in self._all():
            process.gate.set()
        # Who thinks that it leads although another does finds out.
        for process in self.processes[1:]:
            process.lose_lease()

    def _unsettled(self) -> str:
        truth = self.truth
        if truth.open:
            return f"open entries {sorted(truth.open)}"
        for gang, size in GANGS.items():
            bound = [pod for pod in truth.pods.values() if pod.gang == f"ns/{gang}" and pod.holds_room]
            if len(bound) != size or any(pod.terminating for pod in bound):
                return f"gang {gang} has {len(bound)} of {size} pods bound"
        return ""


def simulate(seed: int, world: World = BAD) -> Outcome:
    """Run one seed."""

    async def main() -> Outcome:
        return await Simulation(seed, world).run()

    return run_virtually(main())


def first_failure(seeds: Iterable[int], world: World = BAD) -> Outcome | None:
    """The first seed that breaks a promise."""
    return next((outcome for seed in seeds if (outcome := simulate(seed, world)).error), None)


def describe(outcome: Outcome, *, lines: int = HISTORY) -> str:
    """A seed's end, for people."""
    return "\n".join([f"seed {outcome.seed}: {outcome.error or 'kept every promise'}", *outcome.history[-lines:]])


def main(arguments: list[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.scheduler.simulation")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--world", choices=sorted(WORLDS), default="bad")
    options = parser.parse_args(arguments)
    world = WORLDS[options.world]
    if options.seed is not None:
        print(describe(outcome := simulate(options.seed, world), lines=1_000_000))
        return 1 if outcome.error else 0
    began, failures, written = time.perf_counter(), 0, Counter[str]()
    for seed in range(options.first, options.first + options.seeds):
        outcome = simulate(seed, world)
        written += outcome.written
        if outcome.error:
            failures += 1
            if failures <= 3:
                print(describe(outcome))
    seconds = time.perf_counter() - began
    print(f"{options.seeds} seeds, {failures} failures, {seconds:.1f} s; {dict(written)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
