"""The preemptor's real main() with a real scheduler, a real NATS server and the simulated cluster."""

import contextlib
import re
import time

from muster.bus import subjects
from muster.bus.envelope import decode
from muster.bus.ledger import Ledger
from muster.bus.messages import Decision
from muster.decide.pauses import CORE as PAUSES
from muster.decide.pauses import value_of
from muster.decide.warnings import EVICT_AT, EVICT_FOR, EVICT_PLAN, MARKS
from muster.model.durations import parse_moment
from muster.model.ledger import Commit, Memory
from muster.model.pauses import Pause
from muster.model.policy import Actions, Fairness, Policy, Preemption, Timeouts
from tests.line import Line
from tests.nats_fixtures import eventually
from tests.preemptor.seen import watched

SERVICES = ("watcher", "scheduler", "preemptor")
BUDGETS = "poddisruptionbudgets.policy"


@contextlib.asynccontextmanager
async def full_cluster(nats_server, *, grace: float = 1.0, policy: Policy | None = None, cluster: str = "2x8", **low):
    """A queue, two priorities, and `low`: two pods that hold all cards."""
    policy = policy or Policy(preemption=Preemption(grace=grace))
    async with Line(nats_server.url, cluster=cluster, services=SERVICES, policy=policy) as line, watched(line) as seen:
        await line.create_queue("default")
        await line.create_priority("urgent", 1000)
        await line.create_priority("low", 1)
        await line.create_gang("low", **{"pods": 2, "minimum": 1, "cards": 8, "priority": "low", **low})
        await eventually(lambda: running(line, "low", 2))
        yield line, seen


async def facts(line, job: str) -> dict[str, str]:
    """The lines of `muster explain` by their labels."""
    return {fact.label: fact.text for fact in (await line.client.explain(job)).facts}


async def ask_for_room(line, *, pods: int = 1) -> None:
    """The gang that somebody has to leave for."""
    await line.create_gang("urgent", pods=pods, cards=8, priority="urgent")


def warned(seen) -> set[str]:
    """Pods that carried a warning at some time."""
    return {name for name, moments in seen.pods.items() if any(EVICT_AT in one.annotations for one in moments)}


def marked(seen, name: str) -> bool:
    """Whether the pod carries a warning now."""
    return not seen.pods[name][-1].annotations.keys().isdisjoint(MARKS)


async def running(line, gang: str, pods: int) -> bool:
    found = [pod for pod in await line.pods() if pod.metadata.name.startswith(f"{gang}-")]
    return sum(pod.status.phase == "Running" for pod in found) == pods


async def test_a_gang_of_higher_priority_gets_the_room_of_a_lower_one_after_a_warning_and_its_grace(nats_server):
    async with full_cluster(nats_server, grace=2.0) as (line, seen):
        began = time.time()
        await line.create_gang("urgent", pods=1, cards=8, priority="urgent")
        await eventually(lambda: running(line, "urgent", 1))
        evicted = [name for name in ("low-0", "low-1") if name not in {pod.metadata.name for pod in await line.pods()}]
        assert len(evicted) == 1
        warned = seen.pods[evicted[0]]
        marks = next(one.annotations for one in warned if EVICT_AT in one.annotations)
        assert marks[EVICT_FOR] == "default/urgent"
        assert parse_moment(marks[EVICT_AT]) >= began + 2.0
        leaving = next(one for one in warned if one.terminating)
        assert leaving.seen_at >= parse_moment(marks[EVICT_AT])
        plan = seen.ledger.plans[0]
        assert marks[EVICT_PLAN] == str(plan.sequence)
        assert leaving.fence >= plan.sequence
        events = {
            (event["involvedObject"]["kind"], event["involvedObject"]["name"], event["reason"])
            for event in seen.events()
        }
        assert {("Pod", evicted[0], "Preempting"), ("PodGroup", "low", "Preempting")} <= events
        assert ("PodGroup", "urgent", "RoomComing") in events


async def test_both_sides_of_a_plan_are_told_what_happens_and_when(nats_server):
    policy = Policy(preemption=Preemption(grace=4.0))
    async with full_cluster(nats_server, policy=policy) as (line, seen):
        await ask_for_room(line, pods=2)
        await eventually(lambda: marked(seen, "low-0") and marked(seen, "low-1"))
        asked = await eventually(lambda: asked_to_leave(line))
        assert re.fullmatch(
            r"asked to leave until \d\d:\d\d:\d\d \(in \d s\) for urgent: all of it; no checkpoint of it is known .*",
            asked,
        )
        gets = (await facts(line, "urgent"))["queue"]
        assert re.search(r"so 2 pods of low are asked to leave until \d\d:\d\d:\d\d \(in \d s\)$", gets)
        row = {row.job: row for row in (await line.client.gangs()).gangs}["default/low"]
        assert row.leaves_for == "urgent"
        assert 0 < row.leaves_at - time.time() <= 5
        assert row.message.startswith("asked to leave until ")
        await eventually(lambda: running(line, "urgent", 2))


async def asked_to_leave(line) -> str | None:
    return (await facts(line, "low")).get("must leave")


async def test_who_ends_by_itself_meanwhile_saves_those_who_were_asked_to_leave(nats_server):
    async with full_cluster(nats_server, grace=6.0) as (line, seen):
        await ask_for_room(line)
        (asked,) = await eventually(lambda: warned(seen))
        other = ({"low-0", "low-1"} - {asked}).pop()
        await line.writer.delete("pods", "default", other, grace_period=0)
        await eventually(lambda: running(line, "urgent", 1))
        assert [one.entry.reason for one in seen.ledger.withdrawn] == ["UNSOUND"]
        assert "fits now without" in seen.ledger.withdrawn[0].entry.message
        await eventually(lambda: not marked(seen, asked))
        assert seen.evicted() == {other}
        assert await running(line, "low", 1)
        reasons = {event["reason"] for event in seen.events() if event["involvedObject"]["name"] == asked}
        assert "PreemptionWithdrawn" in reasons


async def test_a_plan_whose_gang_is_gone_is_taken_back_and_nobody_leaves(nats_server):
    async with full_cluster(nats_server, grace=6.0) as (line, seen):
        await ask_for_room(line)
        (asked,) = await eventually(lambda: warned(seen))
        await line.writer.delete("podgroups.scheduling.volcano.sh", "default", "urgent")
        await line.writer.delete("pods", "default", "urgent-0", grace_period=0)
        await eventually(lambda: not marked(seen, asked))
        await eventually(lambda: not seen.ledger.view.open)
        assert not seen.evicted() - {"urgent-0"}
        assert await running(line, "low", 2)


async def test_processes_that_are_killed_in_the_middle_of_a_plan_go_on_where_it_stands(nats_server):
    async with full_cluster(nats_server, grace=3.0) as (line, seen):
        await ask_for_room(line, pods=2)
        await eventually(lambda: len(warned(seen)) == 2)
        await line.stop("preemptor")
        await line.stop("scheduler")
        await line.start("scheduler", identity="second")
        await eventually(lambda: seen.ledger.view.leader_identity == "second")
        assert not seen.evicted()
        await line.start("preemptor", identity="second")
        await eventually(lambda: running(line, "urgent", 2))
        assert (len(seen.ledger.plans), seen.ledger.withdrawn) == (1, [])
        assert seen.evicted() == {"low-0", "low-1"}
        due = max(parse_moment(seen.pods[name][-1].annotations[EVICT_AT]) for name in ("low-0", "low-1"))
        assert all(one.seen_at >= due for name in ("low-0", "low-1") for one in seen.pods[name] if one.terminating)
        # What the second leader touched is out of reach of the first plan's own sequence: its token was used.
        assert all(one.fence >= seen.ledger.view.leader for one in (seen.pods["low-0"][-1], seen.pods["low-1"][-1]))
        assert not line.sim.kubelets.violations


async def forbid_evictions(line, *, least: int) -> None:
    """A PodDisruptionBudget over all pods of `low`, as the API server counts it."""
    body = {
        "metadata": {"name": "keep"},
        "spec": {"selector": {"matchLabels": {"app": "low"}}, "minAvailable": least},
    }
    await line.writer.create(BUDGETS, "default", body)


async def test_a_budget_that_forbids_an_eviction_is_waited_for_and_told(nats_server):
    async with full_cluster(nats_server, grace=1.0, labels={"app": "low"}) as (line, seen):
        await ask_for_room(line)
        (asked,) = await eventually(lambda: warned(seen))
        await forbid_evictions(line, least=2)
        blocked = await eventually(
            lambda: next((one for one in seen.events() if one["reason"] == "EvictionBlocked"), None)
        )
        assert (blocked["involvedObject"]["name"], "disruption budget" in blocked["message"]) == (asked, True)
        assert not seen.evicted()
        await line.writer.merge_patch(BUDGETS, "default", "keep", {"spec": {"minAvailable": 1}})
        await eventually(lambda: running(line, "urgent", 1))
        assert seen.evicted() == {asked}
        assert not seen.ledger.withdrawn


async def test_a_plan_that_budgets_forbid_for_too_long_is_given_back_and_not_tried_again_meanwhile(nats_server):
    policy = Policy(preemption=Preemption(grace=1.0), timeouts=Timeouts(bind=1.0))
    async with full_cluster(nats_server, policy=policy, labels={"app": "low"}) as (line, seen):
        await ask_for_room(line)
        (asked,) = await eventually(lambda: warned(seen))
        await forbid_evictions(line, least=2)
        await eventually(lambda: [one.entry.reason for one in seen.ledger.withdrawn] == ["DISRUPTION_BUDGET"])
        await eventually(lambda: not marked(seen, asked))
        assert seen.ledger.closes("default/urgent") == ["withdrawn"]
        assert not seen.evicted()
        await line.writer.merge_patch(BUDGETS, "default", "keep", {"spec": {"minAvailable": 1}})
        await eventually(lambda: running(line, "urgent", 1))
        assert len(seen.ledger.plans) == 2


async def test_paused_evictions_wait_and_go_on_when_they_are_resumed(nats_server):
    async with full_cluster(nats_server, grace=2.0) as (line, seen):
        await ask_for_room(line)
        (asked,) = await eventually(lambda: warned(seen))
        await remember(line, seen, value_of([Pause(act="evict", by="alice")]))
        paused = line.contexts["preemptor"].metrics
        await eventually(lambda: paused.get_sample_value("muster_evictions_paused") == 1)
        due = parse_moment(seen.pods[asked][-1].annotations[EVICT_AT])
        await eventually(lambda: time.time() > due + 1.0)
        assert not seen.evicted()
        await remember(line, seen, value_of([]))
        await eventually(lambda: running(line, "urgent", 1))
        assert seen.evicted() == {asked}


async def remember(line, seen, value) -> None:
    """Write the pauses as the leader does."""

    async def append() -> bool:
        view = seen.ledger.view
        commit = Commit(
            epoch=view.leader,
            identity=view.leader_identity,
            entries=(Memory(core=PAUSES, value=value),),
            at=time.time(),
        )
        with contextlib.suppress(Exception):
            return bool(await Ledger(line.bus).append(commit, expected_last_sequence=view.sequence))
        return False

    await eventually(append)


async def test_an_actor_that_only_observes_says_what_it_would_do_once_and_does_nothing(nats_server):
    policy = Policy(fairness=Fairness(stability=0.0))
    async with Line(nats_server.url, cluster="2x8", services=SERVICES, policy=policy) as line, watched(line) as seen:
        for name in ("borrows", "owns"):
            await line.create_queue(name, deserved={"nvidia.com/gpu": 8})
        await line.create_gang("low", pods=2, minimum=1, cards=8, queue="borrows")
        await eventually(lambda: running(line, "low", 2))
        await line.create_gang("urgent", pods=1, cards=8, queue="owns")
        said = await eventually(lambda: told(line, "preempt", "default/urgent"))
        assert said.code == "WOULD_RECLAIM"
        assert "low" in said.message
        switch = "the policy only observes (actions.reclaim: observe; act lets it)"
        observed = (await facts(line, "urgent"))["observed"]
        assert observed.startswith("1 pod of low (8 cards) would be asked to leave, with 30 s")
        assert observed.endswith(switch)
        assert (await facts(line, "low"))["observed"] == f"would be asked to leave for urgent; {switch}"
        rows = {row.job: row for row in (await line.client.gangs()).gangs}
        assert rows["default/low"].message == f"would be asked to leave for urgent; {switch}"
        assert observed in rows["default/urgent"].message
        assert not seen.ledger.plans
        assert not warned(seen)
        assert await running(line, "low", 2)


async def test_a_file_that_lets_an_actor_act_is_followed_by_its_plan_within_seconds(nats_server, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("actions: {reclaim: observe}\nfairness: {stability: 0}\npreemption: {grace: 1}\n")
    async with Line(nats_server.url, cluster="2x8", services=SERVICES, policy_path=path) as line, watched(line) as seen:
        for name in ("borrows", "owns"):
            await line.create_queue(name, deserved={"nvidia.com/gpu": 8})
        await line.create_gang("low", pods=2, minimum=1, cards=8, queue="borrows")
        await eventually(lambda: running(line, "low", 2))
        await line.create_gang("urgent", pods=1, cards=8, queue="owns")
        await eventually(lambda: told(line, "preempt", "default/urgent"))
        path.write_text(path.read_text().replace("observe", "act"))
        await eventually(lambda: bool(seen.ledger.plans), within=8)


async def told(line, verb, gang):
    with contextlib.suppress(Exception):
        message = await line.bus.jetstream.get_last_msg("DECISIONS", subjects.decision_subject(verb, gang))
        return decode(Decision, message.data, message.headers or {})
    return None


async def test_a_queue_takes_back_its_own_when_its_share_has_stood_for_a_while(nats_server):
    policy = Policy(actions=Actions(reclaim="act"), fairness=Fairness(stability=2.0), preemption=Preemption(grace=1.0))
    async with Line(nats_server.url, cluster="2x8", services=SERVICES, policy=policy) as line, watched(line) as seen:
        for name in ("borrows", "owns"):
            await line.create_queue(name, deserved={"nvidia.com/gpu": 8})
        await line.create_gang("low", pods=2, minimum=1, cards=8, queue="borrows")
        await eventually(lambda: running(line, "low", 2))
        await line.create_gang("urgent", pods=1, cards=8, queue="owns")
        await eventually(lambda: running(line, "urgent", 1))
        assert [one.entry.cause for one in seen.ledger.plans] == ["reclaim"]
        assert await running(line, "low", 1)
