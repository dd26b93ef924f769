"""A submitted job that has to leave for another one: warned, given time for a checkpoint, evicted, resumed; over the whole line."""

import asyncio
import contextlib
import re
import time

from muster.client import Muster
from muster.model.policy import Policy, Preemption
from tests.line import Line
from tests.nats_fixtures import eventually
from tests.preemptor.seen import watched

SERVICES = ("watcher", "controller", "scheduler", "preemptor")
UID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
RUN_SECONDS = "simulator.muster.dev/run-seconds"


def job(name: str, *, replicas: int, priority: str, run_seconds: float | None = None, **spec):
    marks = {RUN_SECONDS: f"{run_seconds:g}"} if run_seconds is not None else {}
    container = {"name": "c", "image": "registry.example.com/x:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    template = {"metadata": {"annotations": marks}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "muster",
            "minAvailable": replicas,
            "queue": "default",
            "priorityClassName": priority,
            "tasks": [{"name": "worker", "replicas": replicas, "template": template}],
            **spec,
        },
    }


async def follow(line, submitted, events):
    async for event in submitted.follow():
        events.append(event)


async def test_a_preempted_job_is_warned_keeps_its_checkpoint_loses_no_retry_and_resumes(nats_server):
    policy = Policy(preemption=Preemption(grace=2.0))
    async with Line(nats_server.url, cluster="2x8", services=SERVICES, policy=policy) as line, watched(line) as seen:
        await line.create_priority("urgent", 1000)
        await line.create_priority("low", 1)
        policies = [{"event": "PodEvicted", "action": "RestartJob"}]
        low = await line.client.submit(
            id="low", manifest=job("low", replicas=2, priority="low", policies=policies, maxRetry=1)
        )
        events = []
        following = asyncio.create_task(follow(line, low, events))
        running = await eventually(lambda: next((one for one in events if one.state == "Running"), None))
        urgent = await line.client.submit(
            id="urgent", manifest=job("urgent", replicas=1, priority="urgent", run_seconds=5)
        )
        warning = await eventually(lambda: next((one for one in events if one.reason == "Preempting"), None))
        evict_at = warning.details["evict_at"]
        written = int(time.time())
        await line.client.progress(running.job, step=7, checkpoint_at=written)
        await eventually(lambda: any(one.state == "Resumed" for one in events))
        assert (await urgent.wait()).state == "Succeeded"
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        names = [(one.state, one.reason) for one in events]
        assert names.index(("Running", "Preempting")) < names.index(("Preempted", "Preempted"))
        left = next(one for one in events if one.state == "Preempted")
        resumed = next(one for one in events if one.state == "Resumed")
        assert "urgent" in left.details["for"]
        assert left.details["evict_at"] == evict_at
        assert left.details["checkpoint_at"] == resumed.details["checkpoint_at"] == written
        assert [one.number for one in events] == list(range(1, len(events) + 1))
        namespace, _, name = running.job.partition("/")
        found = await line.writer.get_document("jobs.batch.volcano.sh", namespace, name)
        assert "retryCount" not in found["status"]
        pods = [moments for name, moments in seen.pods.items() if "low" in name]
        assert all("muster.dev/last-checkpoint" in moments[-1].annotations for moments in pods)
        assert len(seen.ledger.plans) == 1
        assert not line.sim.kubelets.violations


async def test_a_report_about_anothers_job_is_dropped(nats_server):
    async with Line(nats_server.url, cluster="1x8", services=("watcher", "controller")) as line:
        await line.create_priority("low", 1)
        low = await line.client.submit(id="low", manifest=job("low", replicas=1, priority="low"))
        accepted = await anext(low.follow())
        stranger, metrics = Muster(line.bus, tenant="stranger"), line.contexts["controller"].metrics

        async def refused():
            await stranger.progress(accepted.job, step=1, checkpoint_at=1000.0)
            await asyncio.sleep(0.1)
            return metrics.get_sample_value("muster_progress_reports_total", {"result": "refused"})

        await eventually(refused)
        groups = await eventually(lambda: line.writer.list("podgroups.scheduling.volcano.sh", "default"))
        assert all("muster.dev/last-checkpoint" not in group.metadata.annotations for group in groups)


def batch_job(name: str, *, pods: int) -> dict:
    """A batch Job whose pods start together, and whose evictions are no failures."""
    container = {"name": "c", "image": "registry.example.com/x:1", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    spec = {"schedulerName": "muster", "priorityClassName": "low", "restartPolicy": "Never", "containers": [container]}
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": {"scheduling.volcano.sh/group-min-member": str(pods)}},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [disrupted]},
            "template": {"spec": spec},
        },
    }


async def told_that_it_left(line) -> str | None:
    reply = await line.client.explain("low")
    return next((fact.text for fact in reply.facts if fact.label == "left"), None)


async def test_a_batch_job_that_had_to_leave_comes_back_whole(nats_server):
    policy = Policy(preemption=Preemption(grace=1.0))
    async with Line(nats_server.url, cluster="2x8", services=SERVICES, policy=policy) as line, watched(line) as seen:
        await line.create_priority("urgent", 1000)
        await line.create_priority("low", 1)
        low = await line.client.submit(id="low", manifest=batch_job("low", pods=2))
        events = []
        following = asyncio.create_task(follow(line, low, events))
        await eventually(lambda: any(one.state == "Running" for one in events))
        await line.client.submit(id="urgent", manifest=job("urgent", replicas=1, priority="urgent", run_seconds=5))
        left = await eventually(lambda: told_that_it_left(line))
        assert re.match(r"2 pods of it left for urgent-\w+, asked at \d\d:\d\d:\d\d \(\d+ s ago\); no checkpoint", left)
        assert left.endswith("it starts again by itself when there is room")
        (row,) = [one for one in (await line.client.gangs()).gangs if "/low" in one.job]
        assert re.search(r"; left for urgent-\w+ at ", row.message)
        await eventually(lambda: any(one.state in {"Resumed", "Failed"} for one in events))
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        states = [one.state for one in events]
        assert states.index("Preempted") < states.index("Resumed")
        assert "Failed" not in states
        gangs = [one.entry for one in seen.ledger.binds(seen.ledger.plans[0].entry.victims[0].gang)]
        assert [len(entry.slots) for entry in gangs] == [2, 2]
        for reason, names in (("Preempting", {"urgent"}), ("RoomComing", set())):
            said = [one["message"] for one in seen.events() if one["reason"] == reason]
            assert said
            assert not [text for text in said if UID.search(text)]
            assert all(name in text for text in said for name in names)


async def test_a_pod_that_succeeded_and_is_gone_is_not_run_again_and_the_rest_goes_on(nats_server):
    async with Line(nats_server.url, cluster="2x8", services=("watcher", "controller", "scheduler")) as line:
        await line.create_priority("low", 1)
        document = job("parts", replicas=1, priority="low", run_seconds=0.5, minAvailable=2)
        (task,) = document["spec"]["tasks"]
        template = {**task["template"], "metadata": {"annotations": {}}}
        document["spec"]["tasks"].append({"name": "long", "replicas": 1, "template": template})
        await line.writer.create("jobs.batch.volcano.sh", "default", document)

        async def phases():
            return {pod.metadata.name: pod.status.phase for pod in await line.pods()}

        both = {"parts-worker-0": "Succeeded", "parts-long-0": "Running"}
        await eventually(lambda: same(phases, both))
        group = await eventually(lambda: remembered(line))
        await line.writer.delete("pods", "default", "parts-worker-0")
        await eventually(lambda: same(phases, {"parts-long-0": "Running"}))
        await eventually(lambda: needs(line, group, 1))
        await line.create_gang("other", pods=1, cards=8)  # a decision later all is as it was
        await eventually(lambda: same(phases, {"parts-long-0": "Running", "other-0": "Running"}))


async def same(phases, wanted) -> bool:
    return await phases() == wanted


async def remembered(line) -> str | None:
    groups = await line.writer.list("podgroups.scheduling.volcano.sh", "default")
    return next((one.metadata.name for one in groups if "muster.dev/succeeded" in one.metadata.annotations), None)


async def needs(line, group: str, pods: int) -> bool:
    found = await line.writer.get_document("podgroups.scheduling.volcano.sh", "default", group)
    return found["spec"]["minMember"] == pods
