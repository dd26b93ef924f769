"""Users write Muster's own annotations on their pods: nobody gains anything by it, and the right person is told."""

import asyncio
import re
import time

import msgspec
import pytest

from muster.client import Muster
from muster.decide.warnings import EVICT_AT, EVICT_FOR, EVICT_PLAN
from muster.kube.writer import FENCE_ANNOTATION
from muster.model.durations import parse_moment
from muster.model.policy import Policy, Preemption
from tests.line import Line
from tests.nats_fixtures import eventually
from tests.preemptor.seen import watched
from tests.preemptor.test_evicting import NAMES, START, Stage
from tests.preemptor.test_jobs import job
from tests.preemptor.test_service import ask_for_room, facts, full_cluster, marked, running

HUGE = 10**17
SOON = 8
"""One above the plan's sequence: the LEDGER will give it."""


async def run(stage: Stage, seconds: range) -> None:
    for second in seconds:
        stage.pods.now = START + second
        await stage.look()


@pytest.mark.parametrize("fence", [HUGE, SOON], ids=["that no LEDGER gives", "that the LEDGER will give"])
async def test_a_fence_of_ones_own_keeps_nobody_from_warning_and_eviction(fence):
    stage = Stage(grace=10.0)
    stage.pods.change("p", fence=fence)
    stage.show()
    await run(stage, range(9))
    assert sorted(set(stage.told.warnings)) == ["p", "q"]
    assert stage.pods.pods["p"].annotations[EVICT_PLAN] == "7"
    assert set(stage.told.forgeries) == {("p", fence)}
    await run(stage, range(9, 20))
    assert sorted(stage.pods.evicted) == [("p", START + 10), ("q", START + 10)]
    assert stage.pods.pods["p"].fence == fence  # what stands there is never lowered


async def test_a_fence_written_after_the_warning_delays_nothing():
    stage = Stage(grace=10.0)
    await run(stage, range(5))
    stage.pods.change("p", fence=HUGE)
    stage.show()
    await run(stage, range(5, 13))
    assert {name for name, _ in stage.pods.evicted} == {"p", "q"}


async def test_a_fence_is_no_lie_when_the_ledger_read_to_its_end_shows_a_newer_leader():
    stage = Stage(grace=0.0)
    stage.pods.change("p", fence=20)
    stage.show()
    stage.unread = msgspec.structs.replace(stage.ledger.view, sequence=20, leader=20)
    await stage.look()
    assert (stage.told.forgeries, stage.pods.evicted) == ([], [])
    await run(stage, range(2, 6))
    assert stage.told.forgeries == []
    assert {name for name, _ in stage.pods.evicted} == {"p", "q"}


async def test_a_fence_is_no_lie_when_the_plan_has_been_withdrawn_meanwhile():
    stage = Stage(grace=0.0)
    stage.pods.change("p", fence=9)
    stage.show()
    stage.unread = msgspec.structs.replace(stage.ledger.view, sequence=9, open={})
    await run(stage, range(5))
    assert (stage.told.forgeries, stage.pods.evicted) == ([], [])


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param({EVICT_AT: "2200-01-01T00:00:00Z", EVICT_PLAN: "7"}, id="a later moment"),
        pytest.param({EVICT_AT: "never", EVICT_PLAN: "7"}, id="no moment at all"),
        pytest.param({}, id="the warning taken off"),
        pytest.param({EVICT_PLAN: "99999999999999999999999999", EVICT_FOR: "x" * 4000}, id="another plan"),
    ],
)
async def test_changing_the_warning_on_ones_pod_wins_no_time(lie):
    stage = Stage(grace=10.0)
    await run(stage, range(3))
    for second in range(3, 13):
        for name in NAMES:
            if not stage.pods.pods[name].terminating:
                stage.pods.change(name, annotations=lie)
        stage.show()
        await run(stage, range(second, second + 1))
    assert sorted(stage.pods.evicted) == [("p", START + 10), ("q", START + 10)]


async def test_a_victim_with_a_fence_of_its_own_leaves_and_its_owner_hears_of_it(nats_server):
    policy = Policy(preemption=Preemption(grace=2.0))
    async with full_cluster(nats_server, policy=policy) as (line, seen):
        forged = {"metadata": {"annotations": {FENCE_ANNOTATION: str(HUGE)}}}
        await line.writer.merge_patch("pods", "default", "low-0", forged)
        await line.writer.merge_patch("pods", "default", "low-1", forged)
        await ask_for_room(line, pods=2)
        await eventually(lambda: marked(seen, "low-0") and marked(seen, "low-1"))
        await eventually(lambda: running(line, "urgent", 2))
        assert len(seen.ledger.plans) == 1
        said = [one["message"] for one in seen.events() if one["reason"] == "ForgedFence"]
        assert said
        assert all(f"says {HUGE}, which Muster never wrote" in text for text in said)


async def test_a_pod_that_waits_under_a_fence_of_its_own_holds_up_nobody_and_is_told_how_to_start(nats_server):
    services = ("watcher", "controller", "scheduler")
    async with Line(nats_server.url, cluster="1x8", services=services) as line, watched(line) as seen:
        await line.create_gang("liar", pods=2, cards=4, annotations={FENCE_ANNOTATION: str(HUGE)})
        told = await eventually(lambda: reason_of(line, "default/liar"))
        assert told.code == "FENCE_FORGED"
        assert re.search(
            rf"pod liar-\d carries the annotation muster.dev/fence: {HUGE}, which Muster never wrote", told.message
        )
        await line.create_gang("honest", pods=2, cards=4)
        await eventually(lambda: running(line, "honest", 2))
        assert (await facts(line, "liar"))["asks"]
        reply = await line.client.explain("liar")
        assert "take the annotation muster.dev/fence out of the template" in reply.fixes[0]
        await eventually(
            lambda: any(
                "FENCE_FORGED" in one["message"] for one in seen.events() if one["reason"] == "FailedScheduling"
            )
        )
        assert not seen.ledger.binds("default/liar")


NONSENSE = [-1.0, 0.0, 1e300, 4_102_444_800.0]
"""Before there were clusters, and long after today."""


async def test_what_strangers_and_liars_report_of_a_job_leaves_its_owners_word_standing(nats_server):
    async with Line(nats_server.url, cluster="1x8", services=("watcher", "controller")) as line:
        await line.create_priority("low", 1)
        low = await line.client.submit(id="low", manifest=job("low", replicas=1, priority="low"))
        accepted = await anext(low.follow())
        strangers = [Muster(line.bus, tenant=name) for name in ("stranger", "nobody")]
        group = await eventually(lambda: group_of(line, "low-"))
        told = int(time.time()) - 30
        stop = asyncio.Event()

        async def flood() -> None:
            while not stop.is_set():
                for stranger in strangers:
                    await stranger.progress(accepted.job, step=1, checkpoint_at=time.time())
                    await stranger.progress("default/no-such-job", step=1, checkpoint_at=time.time())
                for moment in NONSENSE:
                    await line.client.progress(f"{accepted.job}-too", step=2**62, checkpoint_at=moment)
                await asyncio.sleep(0.002)

        flooding = asyncio.create_task(flood())
        try:
            for moment in (*NONSENSE, told):
                await line.client.progress(accepted.job, step=1, checkpoint_at=moment)
                await asyncio.sleep(0.3)
            noted = await eventually(lambda: checkpoint_of(line, group), within=10)
        finally:
            stop.set()
            await flooding
        assert parse_moment(noted) == told
        metrics = line.contexts["controller"].metrics
        assert metrics.get_sample_value("muster_progress_reports_total", {"result": "refused"}) < 20
        assert line.contexts["controller"].ready.ready


async def group_of(line, prefix: str) -> str | None:
    groups = await line.writer.list("podgroups.scheduling.volcano.sh", "default")
    return next((one.metadata.name for one in groups if one.metadata.name.startswith(prefix)), None)


async def checkpoint_of(line, group: str) -> str | None:
    found = await line.writer.get_document("podgroups.scheduling.volcano.sh", "default", group)
    return found["metadata"]["annotations"].get("muster.dev/last-checkpoint")


async def reason_of(line, gang: str):
    rows = {row.gang: row for row in (await line.client.gangs()).gangs}
    row = rows.get(gang)
    return row if row is not None and row.code not in {"", "TOO_FEW_PODS"} else None
