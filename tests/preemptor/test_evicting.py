"""The evictor on pods in memory, with time that the test moves: every look may be another process's first."""

import asyncio

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry

from muster.bus.state import Change
from muster.decide.commitments import Kind, LedgerView, OpenEntry
from muster.fenced.executor import Executor, Seen
from muster.kube.errors import Forbidden, NotFound, TooManyRequests, Unavailable
from muster.kube.writer import FENCE_ANNOTATION, Fenced
from muster.model.ledger import Victim
from muster.model.pods import Phase, Pod
from muster.model.policy import Policy, Timeouts
from muster.preemptor.evicting import Evictor
from muster.preemptor.metrics import PreemptorMetrics
from muster.view.ledger import LedgerCopy
from muster.view.world import World

START = 1_000_000.0
NAMES = ("p", "q")


class Told:
    """Remembers what would be told."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.blocks: list[str] = []
        self.forgeries: list[tuple[str, int]] = []

    def keep_only(self, sequences) -> None:
        pass

    def warned(self, entry, victim, evict_at) -> None:
        self.warnings.append(victim.pod)

    def planned(self, entry, due) -> None:
        pass

    def forged(self, victim, fence) -> None:
        self.forgeries.append((victim.pod, fence))

    def blocked(self, entry, victim, why) -> None:
        self.blocks.append(victim.pod)


class Pods:
    """Pods as the API server holds them; `errors` come first, by verb."""

    def __init__(self) -> None:
        self.version = 10
        self.pods = {
            name: Pod(
                namespace="a",
                name=name,
                uid=f"u-{name}",
                node="n1",
                phase=Phase.RUNNING,
                gang="a/low",
                resource_version="9",
            )
            for name in NAMES
        }
        self.errors: dict[str, list[Exception]] = {"touch": [], "evict": []}
        self.evicted: list[tuple[str, float]] = []
        self.now = START

    def _fail(self, verb: str) -> None:
        if self.errors[verb]:
            raise self.errors[verb].pop(0)

    def _seen(self, name: str) -> Seen:
        pod = self.pods[name]
        return Seen(
            uid=pod.uid,
            resource_version=pod.resource_version,
            node=pod.node,
            fence=pod.fence,
            terminating=pod.terminating,
        )

    def change(self, name: str, **fields) -> None:
        self.version += 1
        self.pods[name] = msgspec.structs.replace(self.pods[name], resource_version=str(self.version), **fields)

    async def get(self, namespace, name):
        return self._seen(name)

    async def touch(self, namespace, name, *, uid, token, known=None, annotations=None):
        await asyncio.sleep(0)
        self._fail("touch")
        if name not in self.pods:
            raise NotFound(name)
        pod = self.pods[name]
        if pod.fence > token:
            raise Fenced("newer", found=pod.fence)
        marks = {**pod.annotations, **(annotations or {}), FENCE_ANNOTATION: str(token)}
        self.change(name, fence=token, annotations=marks)
        return self._seen(name)

    async def annotate(self, namespace, name, *, uid, resource_version, annotations):
        await asyncio.sleep(0)
        assert resource_version == self.pods[name].resource_version
        self.change(name, annotations={**self.pods[name].annotations, **annotations})

    async def evict(self, namespace, name, *, uid, resource_version):
        await asyncio.sleep(0)
        self._fail("evict")
        assert resource_version == self.pods[name].resource_version
        self.evicted.append((name, self.now))
        self.change(name, terminating=True)


class Stage:
    def __init__(self, *, grace: float = 30.0, policy: Policy | None = None) -> None:
        self.pods = Pods()
        self.told = Told()
        self.policy = policy or Policy()
        self.world = World()
        self.ledger = LedgerCopy()
        self.metrics = PreemptorMetrics(CollectorRegistry())
        self.plan = OpenEntry(
            sequence=7,
            kind=Kind.PLAN,
            gang="a/urgent",
            gang_uid="g",
            slots=(),
            at=START,
            cause="preempt",
            victims=tuple(
                Victim(gang="a/low", uid=f"u-{name}", pod=name, node="n1", evict_after=START + grace) for name in NAMES
            ),
        )
        self.ledger.view = LedgerView(sequence=7, leader=1, open={"a/urgent": self.plan})
        self.reads = 0
        self.unread: LedgerView | None = None
        """What the LEDGER says at its end, if that is more than was read."""
        self.readable = True
        self.evictor = self.anew()
        self.show()

    def anew(self) -> Evictor:
        """Another process, which knows nothing but the LEDGER and STATE."""
        return Evictor(
            world=self.world,
            ledger=self.ledger,
            executor=Executor(self.pods),
            telling=self.told,
            metrics=self.metrics,
            policy=self.policy,
            caught_up=self.caught_up,
            wake=lambda: None,
            clock=lambda: self.pods.now,
            wall=lambda: self.pods.now,
            log=structlog.get_logger(),
        )

    async def caught_up(self) -> bool:
        self.reads += 1
        if self.unread is not None:
            self.ledger.view = self.unread
        return self.readable

    def show(self) -> None:
        """STATE shows the pods as they are."""
        for name in NAMES:
            pod = self.pods.pods.get(name)
            version = pod.resource_version if pod is not None else str(self.pods.version)
            self.world.apply(Change(kind="pod", key=f"a/{name}", object=pod, resource_version=version, sequence=1))

    async def look(self) -> None:
        """One look of the evictor, and STATE after it."""
        self.evictor.warn("")
        for entry in self.evictor.due(""):
            self.evictor.evict(entry, "")
        for _ in range(20):
            await asyncio.sleep(0)
        self.show()


@pytest.mark.parametrize("killed", [False, True], ids=["one process", "killed before every look"])
async def test_everybody_is_warned_once_and_evicted_when_all_have_had_their_time(killed):
    stage = Stage()
    for second in range(60):
        stage.pods.now = START + second
        if killed:
            await stage.evictor.stop()
            stage.evictor = stage.anew()
        await stage.look()
    assert sorted(stage.told.warnings) == ["p", "q"]
    assert sorted(stage.pods.evicted) == [("p", START + 30), ("q", START + 30)]
    assert stage.metrics.evictions.labels("preempt")._value.get() == 2


async def test_nobody_is_evicted_while_one_could_not_be_warned():
    stage = Stage(grace=0.0)
    stage.pods.errors["touch"] = [Unavailable("away", cause="timeout", unknown_outcome=True) for _ in range(3)]
    await stage.look()
    assert not stage.pods.evicted
    for second in range(1, 4):
        stage.pods.now = START + second
        await stage.look()
    assert {name for name, _ in stage.pods.evicted} == {"p", "q"}


async def test_a_newer_leaders_touch_is_out_of_reach_until_its_entry_is_read():
    stage = Stage(grace=0.0)
    stage.readable = False
    for name in NAMES:
        stage.pods.change(name, fence=20)
    stage.show()
    for second in range(5):
        stage.pods.now = START + second
        await stage.look()
    assert (stage.pods.evicted, stage.told.warnings) == ([], [])
    stage.ledger.view = msgspec.structs.replace(stage.ledger.view, sequence=20, leader=20)
    for second in range(5, 10):
        stage.pods.now = START + second
        await stage.look()
    assert {name for name, _ in stage.pods.evicted} == {"p", "q"}
    assert {pod.fence for pod in stage.pods.pods.values()} == {20}


async def test_a_budget_is_waited_for_as_long_as_the_server_says_and_hurried_when_it_changes():
    stage = Stage(grace=0.0, policy=Policy(timeouts=Timeouts(bind=60.0)))
    await stage.look()
    stage.pods.errors["evict"] = [TooManyRequests("no", disruption_budget=True, retry_after=10.0) for _ in range(4)]
    for second in range(1, 16):
        stage.pods.now = START + second
        await stage.look()
    assert (stage.told.blocks, stage.pods.evicted) == (["p", "q"] * 2, [])
    assert not list(stage.evictor.hopeless())
    stage.world.budgets["a/keep"] = msgspec.defstruct("Allowed", [("allowed", int)])(1)
    await stage.look()
    assert {name for name, _ in stage.pods.evicted} == {"p", "q"}


async def test_a_budget_that_forbids_for_too_long_makes_the_plan_hopeless():
    stage = Stage(grace=0.0, policy=Policy(timeouts=Timeouts(bind=20.0)))
    await stage.look()
    stage.pods.errors["evict"] = [TooManyRequests("no", disruption_budget=True) for _ in range(40)]
    for second in range(1, 23):
        stage.pods.now = START + second
        await stage.look()
    (found,) = stage.evictor.hopeless()
    assert (found.plan, found.reason) == (stage.plan, "DISRUPTION_BUDGET")


async def test_what_the_api_server_will_never_do_makes_the_plan_hopeless_at_once():
    stage = Stage(grace=0.0)
    await stage.look()
    stage.pods.errors["evict"] = [Forbidden("pods/eviction is forbidden")]
    stage.pods.now = START + 1
    await stage.look()
    (found,) = stage.evictor.hopeless()
    assert found.reason == "REFUSED"
    assert "forbidden" in found.message


async def test_a_plan_that_is_not_open_any_more_is_left_alone():
    stage = Stage(grace=0.0)
    await stage.look()
    entry = stage.plan
    stage.ledger.view = msgspec.structs.replace(stage.ledger.view, open={})
    stage.pods.now = START + 5
    stage.evictor.evict(entry, "")
    await stage.look()
    assert not stage.pods.evicted
