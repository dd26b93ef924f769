import asyncio

import pytest

from muster.bus.dlq import DeadLetters
from muster.bus.messages import ShortJob
from muster.bus.subjects import jobs_submit
from muster.controller import service as controller
from muster.simulator.pod_plan import Plan
from tests.controller.conftest import QUEUES, VCJOBS, running
from tests.nats_fixtures import eventually

IMAGE = "registry.example.com/llm:3"


def short(**values):
    return ShortJob(**{"image": IMAGE, "command": ("python", "train.py"), "gpus": 1, **values})


async def settled(rig, tenant, submission_id):
    async def outcome():
        found = await rig.outcome(tenant, submission_id)
        return found if found is not None and (found.uid or found.state != "accepted") else None

    return await eventually(outcome)


async def reaches(rig, tenant, submission_id, state):
    async def reached():
        return state in await rig.states(tenant, submission_id)

    await eventually(reached)


async def test_a_short_submission_becomes_a_job_of_its_tenant_and_is_accepted_once(rig):
    for _ in range(3):
        await rig.submit("team-a", id="first", name="llm", short=short(replicas=2))
    outcome = await settled(rig, "team-a", "first")
    assert (outcome.state, outcome.namespace, outcome.kind) == ("accepted", "team-a", "vcjob")
    assert outcome.job.startswith("llm-")
    job = rig.get(VCJOBS, "team-a", outcome.job)
    assert job["metadata"]["annotations"]["muster.dev/submission"] == "first"
    await eventually(lambda: len(rig.pods("team-a")) >= 2)
    await rig.submit("team-a", id="first", name="llm", short=short(replicas=2))
    await reaches(rig, "team-a", "first", "Queued")
    assert (await rig.states("team-a", "first"))[:2] == ["Accepted", "Queued"]
    assert len([j for j in rig.store.list(VCJOBS, "team-a") if j["metadata"]["name"].startswith("llm-")]) == 1


BAD = {
    "a queue that does not exist": ({"short": short(queue="nowhere")}, "short.queue", "no such queue"),
    "a queue of another team": ({"short": short(queue="train-prod")}, "short.queue", "this tenant may use"),
    "a closed queue": ({"short": short(queue="closed")}, "short.queue", "takes no new jobs"),
    "a namespace of another team": ({"namespace": "default", "short": short()}, "namespace", "this tenant may use"),
    "a priority class that does not exist": ({"short": short(priority_class="vip")}, "short.priority_class", "no such PriorityClass"),
    "gigabytes given as MiB": ({"short": short(gpus=None, gpu_memory_mib=12)}, "short.", "Did you mean 12288"),
    "cards beside a share": ({"short": short(gpu_memory_mib=4096)}, "short.gpus", "not both"),
    "a minimum above the replicas": ({"short": short(replicas=2, min_available=3)}, "short.min_available", "between 1 and replicas"),
    "a topology level that does not exist": ({"short": short(topology="galaxy")}, "short.topology", "there are region, zone"),
    "an image with a space": ({"short": short(image="a b")}, "short.image", "without spaces"),
    "a variable without a legal name": ({"short": short(env={"1A": "x"})}, "short.env", "no name"),
    "a foreign annotation": ({"short": short(annotations={"example.com/a": "b"})}, "short.annotations", "only muster.dev/"),
    "another kind of object": (
        {"manifest": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}}, "manifest.kind", "only batch.volcano.sh",
    ),
    "a privileged container": (
        {"manifest": {
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "p"},
            "spec": {"template": {"spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [
                {"name": "c", "image": IMAGE, "securityContext": {"privileged": True}}]}}}}},
        "manifest.spec.template.spec.containers[0].securityContext.privileged", "not allowed",
    ),
    "a host path": (
        {"manifest": {
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "p"},
            "spec": {"template": {"spec": {"schedulerName": "muster", "restartPolicy": "Never",
                "volumes": [{"name": "v", "hostPath": {"path": "/"}}], "containers": [{"name": "c", "image": IMAGE}]}}}}},
        "manifest.spec.template.spec.volumes[0].hostPath", "not allowed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_submission_is_refused_with_field_value_and_what_would_be_right(rig, name):
    values, field, message = BAD[name]
    if rig.get(QUEUES, None, "closed") is None:
        queue = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": "closed"},
            "spec": {},
        }
        rig.store.create(QUEUES, queue)
        rig.store.patch(QUEUES, None, "closed", {"status": {"state": "Closed"}}, subresource="status")
        await asyncio.sleep(0.5)
    submission_id = f"bad-{list(BAD).index(name)}"
    await rig.submit("team-a", id=submission_id, **values)
    outcome = await settled(rig, "team-a", submission_id)
    assert outcome.state == "rejected"
    assert any(error.field.startswith(field) and message in error.message for error in outcome.errors), outcome.errors
    await reaches(rig, "team-a", submission_id, "Rejected")
    (event,) = await rig.statuses("team-a", submission_id)
    assert event.details["errors"][0]["field"]


async def test_what_cannot_be_read_becomes_a_dead_letter_with_the_reason(rig):
    await rig.bus.publish(jobs_submit("team-a"), b"{not json")
    letters = DeadLetters(rig.bus)

    async def filed():
        return [letter.letter for letter in await letters.list() if letter.letter.payload == b"{not json"]

    (letter,) = await eventually(filed)
    assert letter.reason == "undecodable"


async def test_a_submission_that_runs_and_ends_tells_every_step_in_order(tmp_path):
    plan = Plan([("*", {"start_seconds": 0.5, "run_seconds": 1.0})])
    async with running(tmp_path, plan=plan) as rig:
        await rig.submit("team-a", id="whole", short=short(replicas=2))
        await settled(rig, "team-a", "whole")
        await reaches(rig, "team-a", "whole", "Queued")
        await eventually(lambda: rig.bind_all("team-a", "job-") == 2)
        await reaches(rig, "team-a", "whole", "Succeeded")
        assert await rig.states("team-a", "whole") == ["Accepted", "Queued", "Scheduled", "Running", "Succeeded"]


async def test_a_cancellation_before_the_submission_leaves_a_tombstone(rig):
    await rig.cancel("team-a", "early")
    await settled(rig, "team-a", "early")
    await rig.submit("team-a", id="early", name="early", short=short())
    await rig.submit("team-a", id="marker", name="marker", short=short())
    await settled(rig, "team-a", "marker")
    assert (await rig.outcome("team-a", "early")).state == "cancelled"
    assert not [job for job in rig.store.list(VCJOBS, "team-a") if job["metadata"]["name"].startswith("early")]
    assert await rig.states("team-a", "early") == ["Cancelled"]


async def test_a_cancellation_deletes_the_job_and_is_told_once(rig):
    await rig.submit("team-a", id="late", name="late", short=short())
    outcome = await settled(rig, "team-a", "late")
    await reaches(rig, "team-a", "late", "Queued")
    await rig.cancel("team-a", "late")
    await eventually(lambda: rig.get(VCJOBS, "team-a", outcome.job) is None)
    await reaches(rig, "team-a", "late", "Cancelled")
    await rig.cancel("team-a", "late")
    await rig.submit("team-a", id="late", name="late", short=short())
    await rig.submit("team-a", id="marker-2", short=short())
    await settled(rig, "team-a", "marker-2")
    assert (await rig.states("team-a", "late"))[-1] == "Cancelled"
    assert (await rig.states("team-a", "late")).count("Cancelled") == 1
    assert rig.get(VCJOBS, "team-a", outcome.job) is None


async def test_a_job_deleted_by_hand_ends_its_submission(rig):
    await rig.submit("team-a", id="by-hand", name="by-hand", short=short())
    outcome = await settled(rig, "team-a", "by-hand")
    await reaches(rig, "team-a", "by-hand", "Queued")
    rig.store.delete(VCJOBS, "team-a", outcome.job)
    await reaches(rig, "team-a", "by-hand", "Cancelled")
    assert (await rig.statuses("team-a", "by-hand"))[-1].reason == "Deleted"


async def test_nothing_is_lost_or_done_twice_when_nats_and_the_controller_are_killed(own_rig):
    rig = own_rig
    await rig.submit("team-a", id="before", name="before", short=short())
    await settled(rig, "team-a", "before")
    await rig.stop("controller")
    for number in range(5):
        await rig.submit("team-a", id=f"while-{number}", name="while", short=short())
    await rig.server.kill()
    await rig.server.restart()
    await eventually(lambda: rig.bus.connected)
    for number in range(5):
        await rig.submit("team-a", id=f"while-{number}", name="while", short=short())
    await rig.submit("team-a", id="before", name="before", short=short())
    rig.start("controller", controller.main)
    for number in range(5):
        await settled(rig, "team-a", f"while-{number}")
        await reaches(rig, "team-a", f"while-{number}", "Queued")
    names = [job["metadata"]["name"].rpartition("-")[0] for job in rig.store.list(VCJOBS, "team-a")]
    assert sorted(names) == ["before"] + ["while"] * 5
    assert (await rig.states("team-a", "before")).count("Accepted") == 1


async def test_a_gang_that_loses_its_room_is_preempted_and_resumed(tmp_path):
    async with running(tmp_path, plan=Plan([("*", {"start_seconds": 0.1, "stop_seconds": 0.1})])) as rig:
        await rig.submit("team-a", id="moved", short=short(replicas=2))
        await eventually(lambda: rig.bind_all("team-a", "job-") == 2)
        await reaches(rig, "team-a", "moved", "Running")
        uids = {pod["metadata"]["uid"] for pod in rig.pods("team-a")}
        for pod in rig.pods("team-a"):
            rig.store.evict("team-a", pod["metadata"]["name"], {"metadata": {"name": pod["metadata"]["name"]}})
        await reaches(rig, "team-a", "moved", "Preempted")
        await eventually(
            lambda: {p["metadata"]["uid"] for p in rig.pods("team-a")} & uids == set() and len(rig.pods("team-a")) == 2,
        )
        await eventually(lambda: rig.bind_all("team-a", "job-") == 2)
        await reaches(rig, "team-a", "moved", "Resumed")
        states = await rig.states("team-a", "moved")
        assert [state for state in states if state != "Queued"] == [
            "Accepted",
            "Scheduled",
            "Running",
            "Preempted",
            "Scheduled",
            "Resumed",
        ]
