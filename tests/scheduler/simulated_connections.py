"""A process of a simulation on its faulty connections to the truth: STATE, LEDGER and API server as it reaches them.

A paused process does nothing from its next request or delivery on; what it had sent goes on its way. A crashed one is
cancelled at whatever it waits for.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from muster.bus.errors import LedgerMovedError, NotConnectedError, UnknownOutcomeError
from muster.bus.state import Change
from muster.fenced.executor import Executor, Present, Seen
from muster.kube.errors import NotFound, TooManyRequests, Unavailable
from muster.kube.writer import Fenced
from muster.model.ledger import Commit
from muster.model.units import NodeName, PodUid, QueueName, Sequence
from muster.model.workloads import PodGroup, Queue
from muster.scheduler.book import Book
from muster.view.wake import Wake
from muster.view.world import World
from tests.scheduler.simulated_truth import NAMESPACE, Truth, Violation

T = TypeVar("T")

CLIENT_TIMEOUT = 5.0


def wall() -> float:
    """Unix seconds."""
    return 1_000_000 + asyncio.get_running_loop().time()


class Faults:
    """How bad the world is at present; the fair continuation switches everything off."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.on = True

    def chance(self, probability: float) -> bool:
        """Whether something bad happens now."""
        return self.on and self.rng.random() < probability

    def latency(self) -> float:
        """Seconds that a message needs: nearly always little, now and then longer than anybody waits."""
        draw = self.rng.random()
        if not self.on or draw < 0.85:
            return 0.005 + 0.05 * self.rng.random()
        return 4 * self.rng.random() if draw < 0.95 else 40 * self.rng.random()


class Connected:
    """See the module."""

    def __init__(self, name: str, truth: Truth, faults: Faults, groups: dict[str, PodGroup], fail: Callable) -> None:
        self.name = name
        self.truth = truth
        self.faults = faults
        self.rng = faults.rng
        self.fail = fail
        self.gate = asyncio.Event()
        self.gate.set()
        self.groups = groups
        self.lag = 0.0
        self.ledger = SimulatedLedger(self)
        self.book = Book(identity=name, stream=self.ledger)
        self.world = World()
        self.wake = Wake()
        self.state = SimulatedState(self)
        self.executor = Executor(SimulatedPods(self))
        self.leading: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.run(self.state.follow())
        self.run(self.ledger.follow())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Work of this process, until it crashes."""
        self._tasks.append(asyncio.create_task(self._guarded(work)))

    @property
    def epoch(self) -> int:
        """The leader under whose entry this process writes."""
        return self.book.token

    def broken(self, error: BaseException) -> None:
        """An error that ends the simulation."""
        self.fail(error)

    async def _guarded(self, work: Any) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001
            self.broken(error)

    def pause(self) -> None:
        """Nothing goes on for a while."""
        if self.gate.is_set():
            self.truth.note(f"{self.name} pauses")
            self.gate.clear()
            asyncio.get_running_loop().call_later(30 * self.rng.random(), self.gate.set)

    async def crash(self) -> None:
        """Everything ends where it is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def request(self, effect: Callable[[], T], *, unknown: Exception, timeout: float = CLIENT_TIMEOUT) -> T:
        """Send something whose effect comes when it arrives, perhaps long after anybody waits for the answer."""
        await self.gate.wait()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        there, back = self.faults.latency(), self.faults.latency()
        lost = self.faults.chance(0.04)

        async def travel() -> None:
            await asyncio.sleep(there)
            error: Exception | None = None
            result: Any = None
            try:
                result = effect()
            except Violation as violation:
                self.fail(violation)
                return
            except Exception as problem:  # noqa: BLE001
                error = problem
            await asyncio.sleep(back)
            if lost or answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        asyncio.create_task(travel())  # noqa: RUF006  (the loop's own collection keeps what sleeps)
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            raise unknown from None
        finally:
            await self.gate.wait()


class SimulatedState:
    """STATE as a process receives it: late, with superseded messages left out, and now and then from the beginning."""

    def __init__(self, process: Connected) -> None:
        self._process = process
        self._position = 0
        self._synced = False
        self.pod_freshness = ""
        self.reset_wanted = False

    @property
    def ready(self) -> bool:
        return self._synced

    async def follow(self) -> None:
        process, rng = self._process, self._process.rng
        await self._list()
        while True:
            await asyncio.sleep(0.02 + 0.1 * rng.random() + (process.lag if process.faults.on else 0.0))
            await process.gate.wait()
            if self.reset_wanted:
                self.reset_wanted = False
                await self._list()
                continue
            events = process.truth.events
            upto = len(events) if not process.faults.on else rng.randint(self._position, len(events))
            newest = {(event.kind, event.key): event for event in events[self._position : upto]}
            for event in sorted(newest.values(), key=lambda one: one.version):
                self._apply(event.kind, event.key, event.object, event.version)
            self._position = upto
            if not process.faults.chance(0.5):
                self._clock()
            if newest or process.book.view.lingering:
                process.wake()

    def _clock(self) -> None:
        events = self._process.truth.events
        version = events[self._position - 1].version if self._position else 0
        self._synced, self.pod_freshness = True, str(version)
        self._process.book.saw_pods(self.pod_freshness)

    async def _list(self) -> None:
        """The store was emptied: everything is listed anew, in no order; nothing is promised until it is complete."""
        process, truth = self._process, self._process.truth
        self._synced, self.pod_freshness = False, ""
        process.world.clear()
        process.wake()
        self._position = len(truth.events)
        objects: list[tuple[str, str, Any]] = [("pod", pod.key, pod) for pod in truth.pods.values()]
        objects += [("node", name, node) for name, node in truth.nodes.items()]
        objects += [("podgroup", group.key, group) for group in process.groups.values()]
        objects.append(("queue", "default", Queue(name=QueueName("default"))))
        process.rng.shuffle(objects)
        for kind, key, value in objects:
            if process.faults.chance(0.2):
                process.wake()
                await asyncio.sleep(process.rng.random())
                await process.gate.wait()
            version = int(getattr(value, "resource_version", "") or 1)
            self._apply(kind, key, value, version)
        self._clock()
        process.wake()

    def _apply(self, kind: str, key: str, value: Any, version: int) -> None:
        change = Change(kind=kind, key=key, object=value, resource_version=str(version), sequence=Sequence(version))
        self._process.world.apply(change)


class SimulatedLedger:
    """The LEDGER as a process reads it and appends to it."""

    def __init__(self, process: Connected) -> None:
        self._process = process
        self._incarnation = -1
        self._read = Sequence(0)
        self._last_commit: Commit | None = None
        self.ready = False

    async def follow(self) -> None:
        """Deliver, late and in pieces."""
        process, truth = self._process, self._process.truth
        while True:
            await asyncio.sleep(0.01 + 0.1 * process.rng.random() + process.faults.chance(0.1) * 3)
            await process.gate.wait()
            if not truth.exists:
                self.ready = False
                if process.leading is not None and not process.leading.done():
                    await process.book.lose()
                continue
            if self._incarnation != truth.incarnation:
                await process.book.reset()
                self._incarnation, self._read = truth.incarnation, Sequence(0)
            waiting = [item for item in truth.ledger if item[0] > self._read]
            some = waiting[: process.rng.randint(0, len(waiting))] if process.faults.on else waiting
            if some:
                await process.book.apply_all(some)
                self._read = some[-1][0]
            if len(some) == len(waiting):
                self.ready = True
                self._read = max(self._read, truth.last_sequence())
            if self.ready:
                await process.book.passed(self._read)
            if process.book.deposed.is_set():
                process.wake()

    async def append(self, commit: Commit, *, expected_last_sequence: Sequence) -> Sequence:
        if self._process.faults.chance(0.02):
            raise NotConnectedError("not connected")
        self._last_commit = commit
        truth = self._process.truth
        return await self._process.request(
            lambda: truth.append(commit, expected_last_sequence), unknown=UnknownOutcomeError("no answer"), timeout=2.0
        )

    async def find_outcome(self, *, expected_last_sequence: Sequence) -> Sequence | None:
        def look() -> Sequence | None:
            truth = self._process.truth
            if truth.last_sequence() == expected_last_sequence:
                return None
            after = next((item for item in truth.ledger if item[0] > expected_last_sequence), None)
            if after is not None and after[1] is self._last_commit:
                return after[0]
            raise LedgerMovedError("somebody else's")

        return await self._process.request(look, unknown=NotConnectedError("no answer"), timeout=2.0)

    async def last_sequence(self) -> Sequence:
        truth = self._process.truth
        return await self._process.request(truth.last_sequence, unknown=NotConnectedError("no answer"), timeout=2.0)

    async def trim(self, *, before: Sequence) -> None:
        truth = self._process.truth
        truth.ledger[:] = [item for item in truth.ledger if item[0] >= before]


class SimulatedPods:
    """The API server as a process reaches it."""

    def __init__(self, process: Connected) -> None:
        self._process = process

    async def _ask(self, effect: Callable[[], T]) -> T:
        if self._process.faults.chance(0.02):
            raise TooManyRequests("slow down", retry_after=1.0)
        unknown = Unavailable("no answer", cause="timeout", unknown_outcome=True)
        return await self._process.request(effect, unknown=unknown)

    async def get(self, namespace: str, name: str) -> Seen:
        truth = self._process.truth

        def look() -> Seen:
            pod = truth.pods.get(name)
            if pod is None:
                raise NotFound(name)
            return seen(pod)

        return await self._ask(look)

    async def present(self, scheduler_names: frozenset[str]) -> tuple[Present, ...]:
        truth = self._process.truth
        return await self._ask(
            lambda: tuple(Present(namespace=NAMESPACE, name=pod.name, seen=seen(pod)) for pod in truth.pods.values())
        )

    async def touch(
        self, namespace: str, name: str, *, uid: PodUid, token: Sequence, known: Seen | None = None, annotations=None
    ) -> Seen:
        current = known if known is not None else await self.get(namespace, name)
        if current.uid != uid:
            raise NotFound(f"uid {uid}")
        if current.fence > token:
            raise Fenced("newer", found=Sequence(current.fence))
        if current.fence == token:
            return current
        truth = self._process.truth
        patched = await self._ask(lambda: truth.patch_fence(name, uid, current.resource_version, token))
        return seen(patched)

    async def bind(
        self,
        namespace: str,
        name: str,
        *,
        uid: PodUid,
        resource_version: str,
        node: NodeName,
        annotations: dict[str, str],
    ) -> None:
        truth, epoch = self._process.truth, self._process.epoch
        if self._process.faults.chance(0.05):
            self._process.pause()  # between what it rests on and its sending
        await self._ask(
            lambda: truth.bind(name, uid, resource_version, node=node, annotations=annotations, epoch=epoch)
        )

    async def evict(self, namespace: str, name: str, *, uid: PodUid, resource_version: str) -> None:
        if self._process.faults.chance(0.1):
            raise TooManyRequests("budget", retry_after=2.0, disruption_budget=True)
        truth, epoch = self._process.truth, self._process.epoch
        await self._ask(lambda: truth.evict(name, uid, resource_version, epoch))


def seen(pod: Any) -> Seen:
    """A pod as a read shows it."""
    return Seen(
        uid=pod.uid,
        resource_version=pod.resource_version,
        node=pod.node,
        fence=pod.fence,
        finished=pod.finished,
        terminating=pod.terminating,
    )


def group(name: str, minimum: int) -> PodGroup:
    """A PodGroup."""
    return PodGroup(namespace=NAMESPACE, name=name, uid=name, min_member=minimum, queue=QueueName("default"))
