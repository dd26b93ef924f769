"""One chaos run: a fresh stack, a 200-pod gang and small jobs over NATS, one blow at a random moment, then the checks.

Every run is of one kind of blow and has one seed, which decides the moment; the report names both, so that a run can be
repeated: ``python -m tests.chaos --only kill-scheduler --seed 7``.
"""

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from muster.bus.errors import BusError
from muster.cli.stack import Stack
from muster.client import Muster, connect
from muster.kube.config import connect as connect_kube
from muster.kube.writer import Writer

PODS = 200
CLUSTER = "27x8"
SMALL_JOBS = 10
SETTLE_SECONDS = 90.0
LEASE = {"MUSTER_LEASE_DURATION": "6", "MUSTER_LEASE_RENEW": "2", "MUSTER_LEASE_WRITE_TIMEOUT": "2"}
FINISHED = frozenset({"Succeeded", "Failed"})


class Result(msgspec.Struct, kw_only=True):
    """What one run showed."""

    kind: str
    seed: int
    moment: str = ""
    problems: list[str] = []
    seconds: float = 0.0
    bound_at_blow: int = 0
    outcome: str = ""
    recovered: float | None = None
    """Seconds from the end of the blow until a new submission was accepted, where that is measured."""

    @property
    def ok(self) -> bool:
        return not self.problems


class Run:
    """See the module."""

    def __init__(self, kind: str, seed: int, directory: Path, *, recovery_limit: float = 5.0) -> None:
        self.recovery_limit = recovery_limit
        self.result = Result(kind=kind, seed=seed, problems=[])
        self.random = random.Random(f"{kind}-{seed}")
        self.stack = Stack(directory, cluster=CLUSTER, environ=LEASE, replicas=2 if kind == "pause-scheduler" else 1)
        self.blows: dict[str, Callable[[], Awaitable[None]]] = {
            "kill-scheduler": lambda: self._kill("scheduler"),
            "kill-controller": lambda: self._kill("controller"),
            "kill-watcher": lambda: self._kill("watcher"),
            "pause-scheduler": self._pause_leader,
            "kill-nats": self._kill_nats,
            "wipe-store": self._wipe_store,
        }

    async def go(self) -> Result:
        began = time.monotonic()
        async with self.stack:
            assert self.stack.kubeconfig is not None
            kube = await connect_kube(kubeconfig=self.stack.kubeconfig, user_agent="chaos")
            try:
                self.writer = Writer(kube)
                await self._story()
            finally:
                await kube.close()
        self.result.seconds = time.monotonic() - began
        return self.result

    async def _story(self) -> None:
        async with connect(self.stack.nats.url) as muster:
            await self._submit_all(muster)
            await self._wait_for_moment()
            self.result.bound_at_blow = len(bound(await self._pods()))
            await self.blows[self.result.kind]()
            await self._settle()
            self._check(await self._pods())
            if self.result.kind != "wipe-store":
                await self._check_submissions(muster)

    async def _submit_all(self, muster: Muster) -> None:
        self.ids = ["gang", *(f"small-{number}" for number in range(SMALL_JOBS))]
        await muster.submit(id="gang", name="gang", image="registry.example.com/x:1", gpus=1, replicas=PODS)
        for name in self.ids[1:]:
            await muster.submit(id=name, name=name, image="registry.example.com/x:1", gpus=1)

    async def _wait_for_moment(self) -> None:
        """A random moment: while pods are made, or when a random number of them is bound."""
        wanted = self.random.choice([0, self.random.randint(1, PODS - 1), self.random.randint(1, PODS - 1)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            pods = await self._pods()
            if pods if wanted == 0 else len(bound(pods)) >= wanted:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.random.random() * 0.2)
        self.result.moment = f"{wanted} bound" if wanted else "pods are being made"

    async def _pods(self) -> list[Any]:
        return list(await self.writer.list("pods", "default"))

    # --- blows -------------------------------------------------------------------------------------------------------

    async def _kill(self, name: str) -> None:
        self.stack.service(name).signal(signal.SIGKILL)

    async def _pause_leader(self) -> None:
        """SIGSTOP for longer than the lease; the other replica takes over; then the old leader wakes up."""
        lease = await self.writer.get("leases", "muster-system", "muster-scheduler")
        leader = lease.spec.holder_identity
        for service in self.stack.services:
            if service.name == "scheduler" and f"-{service.pid}-" in leader:
                service.signal(signal.SIGSTOP)
                await self._until_leader_is_not(leader)
                service.signal(signal.SIGCONT)
                return
        self.result.problems.append(f"no process of the leader {leader} was found")

    async def _until_leader_is_not(self, leader: str) -> None:
        for _ in range(300):
            lease = await self.writer.get("leases", "muster-system", "muster-scheduler")
            if lease.spec.holder_identity not in {leader, ""}:
                await asyncio.sleep(1.0)
                return
            await asyncio.sleep(0.1)
        self.result.problems.append("nobody took over from the paused leader")

    async def _kill_nats(self) -> None:
        await self.stack.nats.kill()
        await asyncio.sleep(self.random.random() * 2)
        await self.stack.nats.start()
        began = time.monotonic()
        await self._accepted_again()
        self.result.recovered = time.monotonic() - began
        if self.result.recovered > self.recovery_limit:
            self.result.problems.append(f"services needed {self.result.recovered:.1f} s after NATS was back")

    async def _accepted_again(self) -> None:
        async with connect(self.stack.nats.url) as muster:
            self.ids.append("after")
            job = await muster.submit(id="after", name="after", image="registry.example.com/x:1", gpus=1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(30):
                    await job.accepted()

    async def _wipe_store(self) -> None:
        await self.stack.nats.kill()
        self.stack.nats.empty_store()
        await self.stack.nats.start()
        began = time.monotonic()
        await self.stack.ready(seconds=60)
        self.result.recovered = time.monotonic() - began

    # --- checks ------------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Until every gang is complete, or fully free, for a while."""
        deadline = time.monotonic() + SETTLE_SECONDS
        calm = 0
        while time.monotonic() < deadline and calm < 8:
            pods = await self._pods()
            done = all(pod.status.phase == "Running" for pod in pods) and len(pods) >= PODS
            calm = calm + 1 if done else 0
            await asyncio.sleep(0.25)

    def _check(self, pods: list[Any]) -> None:
        problems = self.result.problems
        cards: dict[tuple[str, str], list[str]] = defaultdict(list)
        for pod in pods:
            if not pod.spec.node_name or pod.status.phase in FINISHED:
                continue
            index = pod.metadata.annotations.get("volcano.sh/gpu-index", "")
            if not index:
                problems.append(f"{pod.metadata.name} is bound without a card")
            for card in index.split(","):
                cards[pod.spec.node_name, card].append(pod.metadata.name)
        problems += [
            f"card {card} of {node} was given to {', '.join(names)}"
            for (node, card), names in cards.items()
            if len(names) > 1
        ]
        gang = [pod for pod in pods if "gang" in pod.metadata.name]
        running = sum(pod.status.phase == "Running" for pod in gang)
        self.result.outcome = f"{running} of {len(gang)} running, {len(bound(gang))} bound"
        if self.result.kind == "wipe-store" and not gang:
            return  # the submission was lost with the store, before anything came of it
        if len(bound(gang)) not in {0, PODS} or len(gang) != PODS:
            problems.append(f"the gang is incomplete: {self.result.outcome}")
        if running != PODS:
            problems.append(f"the gang did not come to run: {self.result.outcome}")
        refused = Counter(pod.status.reason for pod in pods if pod.status.phase == "Failed")
        if refused:
            problems.append(f"kubelets refused pods: {dict(refused)}")

    async def _check_submissions(self, muster: Muster) -> None:
        for name in self.ids:
            numbers, states = [], []
            try:
                async with asyncio.timeout(20):
                    async for event in muster.job(name).follow():
                        numbers.append(event.number)
                        states.append(event.state)
                        if event.state in {"Running", "Succeeded", "Failed"}:
                            break
            except (TimeoutError, BusError):
                self.result.problems.append(f"submission {name} was lost: {states}")
                continue
            if numbers != list(range(1, len(numbers) + 1)):
                self.result.problems.append(f"status of {name} has gaps: {numbers}")


def bound(pods: list[Any]) -> list[Any]:
    """Those that have a node."""
    return [pod for pod in pods if pod.spec.node_name]
