"""One chaos run with priorities: low jobs hold every card, an urgent one comes, and one blow falls at a stage of its plan.

    proposed ─► committed ─► warned ─► half evicted ─► victims gone ─► consumed

Afterwards nobody may have left without a plan or in vain, no card may have been given twice at any time, no plan is open,
no warning stands on a pod, and every job that had to leave has run again or runs.
"""

import asyncio
import contextlib
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from muster.bus.client import connect as connect_bus
from muster.bus.ledger import Ledger
from muster.cli.stack import Stack
from muster.client import Muster, connect
from muster.decide.commitments import LedgerView
from muster.decide.folding import fold_all
from muster.decide.warnings import EVICT_AT, MARKS
from muster.kube.errors import KubeError
from muster.kube.writer import FENCE_ANNOTATION
from muster.model.durations import parse_moment
from muster.model.ledger import Bind, Close, Entry, Plan, Undoing, Withdrawing
from tests.chaos.run import FINISHED, LEASE, Run, bound

CLUSTER = "6x8"
LOW_JOBS = 3
PODS_EACH = 2
URGENT_PODS = 3
GRACE = "3s"
URGENT_SECONDS = 8
SETTLE_SECONDS = 120.0
STAGE_SECONDS = 45.0
STAGES = ("proposed", "committed", "warned", "half evicted", "victims gone", "consumed")
PLAN_KINDS = (
    "plan-kill-preemptor",
    "plan-kill-scheduler",
    "plan-kill-controller",
    "plan-kill-watcher",
    "plan-kill-nats",
    "plan-wipe-store",
    "plan-pause-preemptor",
    "plan-pause-scheduler",
    "plan-kill-two",
)


class Left(msgspec.Struct, kw_only=True):
    """A pod that was being deleted, as it was first seen so."""

    name: str
    fence: int
    evict_at: float
    seen_at: float


class Log:
    """What was seen of the LEDGER, also across stores that were emptied."""

    def __init__(self) -> None:
        self.view = LedgerView()
        self.entries: list[tuple[int, Entry]] = []

    async def follow(self, url: str) -> None:
        async with await connect_bus(url, name="chaos-ledger") as bus:
            async for batch in Ledger(bus).batches():
                self.view = fold_all(LedgerView() if batch.reset else self.view, batch.commits)
                known = {sequence for sequence, _ in self.entries}
                for sequence, commit in batch.commits:
                    if sequence not in known:
                        self.entries += [(sequence, entry) for entry in commit.entries]

    def plans(self) -> list[tuple[int, Plan]]:
        return [(sequence, entry) for sequence, entry in self.entries if isinstance(entry, Plan)]

    def ends(self, sequence: int, gang: str) -> list[Entry]:
        """What followed for the gang of a plan, in order."""
        kinds = Bind | Withdrawing | Undoing | Close
        return [
            entry for at, entry in self.entries if at > sequence and isinstance(entry, kinds) and entry.gang == gang
        ]


class PlanRun(Run):
    """See the module."""

    def __init__(self, kind: str, seed: int, directory: Path, *, recovery_limit: float = 5.0) -> None:
        super().__init__(kind, seed, directory, recovery_limit=recovery_limit)
        two = kind.startswith("plan-pause-")
        self.stack = Stack(directory, cluster=CLUSTER, environ=LEASE, replicas=2 if two else 1)
        self.log = Log()
        self.left: dict[str, Left] = {}
        """By uid."""
        self.ran: set[str] = set()
        """Names of pods that were seen running after they had left once."""
        self.twice: set[str] = set()
        self.latest: list[Any] = []
        self.blows: dict[str, Callable[[], Awaitable[None]]] = {
            "plan-kill-preemptor": lambda: self._kill("preemptor"),
            "plan-kill-scheduler": lambda: self._kill("scheduler"),
            "plan-kill-controller": lambda: self._kill("controller"),
            "plan-kill-watcher": lambda: self._kill("watcher"),
            "plan-kill-nats": self._kill_nats_for_a_while,
            "plan-wipe-store": self._wipe_store,
            "plan-pause-preemptor": lambda: self._pause_holder("preemptor"),
            "plan-pause-scheduler": lambda: self._pause_holder("scheduler"),
            "plan-kill-two": self._kill_two,
        }

    async def _story(self) -> None:
        for name, value in (("urgent", 1000), ("low", 1)):
            await self.writer.create(
                "priorityclasses.scheduling.k8s.io", None, {"metadata": {"name": name}, "value": value}
            )
        watchers = [asyncio.create_task(self.log.follow(self.stack.nats.url)), asyncio.create_task(self._watch())]
        try:
            async with connect(self.stack.nats.url) as muster:
                await self._fill(muster)
                await self._urgent(muster)
                stage = self.random.choice(STAGES)
                await self._stage(stage)
                self.result.moment = stage
                self.result.bound_at_blow = len(bound(self.latest))
                await self.blows[self.result.kind]()
            await self._settled()
            self._judge()
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)

    # --- the story ---------------------------------------------------------------------------------------------------

    async def _fill(self, muster: Muster) -> None:
        for number in range(LOW_JOBS):
            await muster.submit(id=f"low-{number}", manifest=job(f"low-{number}", replicas=PODS_EACH, priority="low"))
        await self._until(lambda: self._running("low") == LOW_JOBS * PODS_EACH, 60, "the low jobs did not start")

    async def _urgent(self, muster: Muster) -> None:
        manifest = job("urgent", replicas=URGENT_PODS, priority="urgent", run_seconds=URGENT_SECONDS)
        await muster.submit(id="urgent", manifest=manifest)

    async def _stage(self, stage: str) -> None:
        if stage == "proposed":
            await asyncio.sleep(self.random.random() * 2)
            return
        reached: dict[str, Callable[[], bool]] = {
            "committed": lambda: bool(self.log.plans()),
            "warned": lambda: any(EVICT_AT in pod.metadata.annotations for pod in self.latest),
            "half evicted": lambda: bool(self.left),
            "victims gone": lambda: bool(self.left) and self._running("low") <= LOW_JOBS * PODS_EACH - URGENT_PODS,
            "consumed": lambda: any(
                isinstance(entry, Bind) and "urgent" in entry.gang for _, entry in self.log.entries
            ),
        }
        await self._until(reached[stage], STAGE_SECONDS, f"the stage {stage} was not reached")
        await asyncio.sleep(self.random.random() * (2.0 if stage == "warned" else 0.1))

    def _running(self, name: str) -> int:
        return sum(name in pod.metadata.name and pod.status.phase == "Running" for pod in self.latest)

    async def _until(self, holds: Callable[[], bool], seconds: float, problem: str) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if holds():
                return True
            await asyncio.sleep(0.02)
        self.result.problems.append(problem)
        return False

    # --- blows -------------------------------------------------------------------------------------------------------

    async def _kill_two(self) -> None:
        for name in self.random.sample(["preemptor", "scheduler", "controller", "watcher"], 2):
            self.stack.service(name).signal(signal.SIGKILL)

    async def _kill_nats_for_a_while(self) -> None:
        await self.stack.nats.kill()
        await asyncio.sleep(self.random.random() * 5)
        await self.stack.nats.start()

    async def _pause_holder(self, name: str) -> None:
        """SIGSTOP of the one that holds the Lease until another has taken it, and longer; then it goes on where it was."""
        lease = f"muster-{name}"
        holder = (await self.writer.get("leases", "muster-system", lease)).spec.holder_identity
        for service in self.stack.services:
            if service.name == name and f"-{service.pid}-" in holder:
                service.signal(signal.SIGSTOP)
                for _ in range(300):
                    now = (await self.writer.get("leases", "muster-system", lease)).spec.holder_identity
                    if now not in {holder, ""}:
                        break
                    await asyncio.sleep(0.1)
                else:
                    self.result.problems.append(f"nobody took over from the paused {name}")
                await asyncio.sleep(self.random.random() * 8)
                service.signal(signal.SIGCONT)
                return
        self.result.problems.append(f"no process of the holder {holder} was found")

    # --- watching ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            with contextlib.suppress(KubeError):
                self._note(await self._pods())
            await asyncio.sleep(0.05)

    def _note(self, pods: list[Any]) -> None:
        self.latest = pods
        cards: dict[tuple[str, str], list[str]] = defaultdict(list)
        for pod in pods:
            marks = pod.metadata.annotations
            if pod.metadata.deletion_timestamp is not None and pod.status.phase not in FINISHED and pod.spec.node_name:
                self.left.setdefault(
                    pod.metadata.uid,
                    Left(
                        name=pod.metadata.name,
                        fence=int(marks.get(FENCE_ANNOTATION, 0)),
                        evict_at=parse_moment(marks.get(EVICT_AT, "0")),
                        seen_at=time.time(),
                    ),
                )
            if pod.spec.node_name and pod.status.phase not in FINISHED:
                for card in marks.get("volcano.sh/gpu-index", "").split(","):
                    cards[pod.spec.node_name, card].append(pod.metadata.name)
            if pod.status.phase == "Running":
                self.ran.add(pod.metadata.uid)
        self.twice |= {
            f"card {card} of {node} was given to {', '.join(sorted(names))}"
            for (node, card), names in cards.items()
            if len(names) > 1
        }

    # --- checks ------------------------------------------------------------------------------------------------------

    async def _settled(self) -> None:
        """Until the urgent job has ended and every other one runs whole again, for a while."""

        def over() -> bool:
            urgent = [pod for pod in self.latest if "urgent" in pod.metadata.name]
            ended = all(pod.status.phase == "Succeeded" for pod in urgent)
            return ended and self._running("low") == LOW_JOBS * PODS_EACH and not self.log.view.open

        if await self._until(over, SETTLE_SECONDS, "not every job ran again"):
            await asyncio.sleep(3.0)

    def _judge(self) -> None:
        problems = self.result.problems
        problems += sorted(self.twice)
        plans = self.log.plans()
        named = {victim.uid: sequence for sequence, plan in plans for victim in plan.victims}
        for uid, left in self.left.items():
            if "low" not in left.name:
                problems.append(f"{left.name} had to leave")
            elif uid not in named:
                problems.append(f"{left.name} left without a plan that names it")
            elif left.fence < named[uid]:
                problems.append(f"{left.name} left with fence {left.fence} under plan {named[uid]}")
            elif left.seen_at < left.evict_at:
                problems.append(f"{left.name} left {left.evict_at - left.seen_at:.1f} s before what it was told")
        for sequence, plan in plans:
            ends = self.log.ends(sequence, plan.gang)
            gone = sum(victim.uid in self.left for victim in plan.victims)
            if gone and (not ends or not isinstance(ends[0], Bind)) and self.result.kind != "plan-wipe-store":
                problems.append(f"{gone} pods left in vain for plan {sequence}: {[type(end).__name__ for end in ends]}")
        if len(self.left) > URGENT_PODS + 1:
            problems.append(f"{len(self.left)} pods left, {URGENT_PODS} would have been enough")
        problems += [f"{entry.kind.value} of {gang} is open" for gang, entry in self.log.view.open.items()]
        problems += [
            f"{pod.metadata.name} still carries a warning"
            for pod in self.latest
            if not MARKS_SET.isdisjoint(pod.metadata.annotations)
        ]
        if self.log.view.refused:
            problems.append(f"{self.log.view.refused} commits of deposed leaders are in the LEDGER")
        self.result.outcome = f"{len(plans)} plans, {len(self.left)} pods left, {self._running('low')} of {LOW_JOBS * PODS_EACH} low running"


MARKS_SET = frozenset(MARKS)


def job(name: str, *, replicas: int, priority: str, run_seconds: float = 10_000) -> dict[str, Any]:
    """A gang of whole nodes that asks for a short grace."""
    container = {"name": "c", "image": "registry.example.com/x:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    marks = {"simulator.muster.dev/run-seconds": f"{run_seconds:g}"}
    template = {"metadata": {"annotations": marks}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {"muster.dev/preemption-grace": GRACE}},
        "spec": {
            "schedulerName": "muster",
            "minAvailable": replicas,
            "priorityClassName": priority,
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "tasks": [{"name": "worker", "replicas": replicas, "template": template}],
        },
    }
