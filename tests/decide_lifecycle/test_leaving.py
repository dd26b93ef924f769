"""Jobs that leave for others: what their owner is told, that it costs them no retry, and what becomes of checkpoints."""

import pytest

from muster.decide.lifecycle.actions import Leaving
from muster.decide.lifecycle.leaving import leaving_of
from muster.decide.lifecycle.progress import last_checkpoint, may_report, note_checkpoint
from muster.decide.lifecycle.status import Observed, advance
from muster.decide.warnings import EVICT_AT, EVICT_FOR, EVICT_PLAN
from muster.model.pods import Phase, Pod
from muster.model.policy import Tenant
from muster.model.workloads import PodGroup, Workload
from tests.decide_lifecycle.test_vcjob import world_with

MARKS = {EVICT_AT: "2026-05-04T10:00:00Z", EVICT_FOR: "default/urgent", EVICT_PLAN: "7"}
AT = 1_777_888_800.0
LEAVING = Leaving(room_for="default/urgent", cause="preempt", message="1 pod leaves", evict_at=AT, warned=2, at=AT - 30)


def lives(*observations):
    last, told = None, []
    for now, observed in enumerate(observations):
        for step in advance(last, observed, now=float(now)):
            told.append(step)
            last = step
    return told


def test_a_running_job_is_told_once_that_it_is_asked_to_leave_then_that_it_left_and_that_it_resumed():
    running, asked = Observed(state="Running"), Observed(state="Running", leaving=LEAVING, checkpoint_at=AT - 60)
    gone = Observed(state="Queued", leaving=LEAVING, checkpoint_at=AT - 5)
    steps = lives(running, asked, asked, gone, gone, Observed(state="Running", checkpoint_at=AT - 5))
    assert [(step.state, step.reason) for step in steps[4:]] == [
        ("Running", "Preempting"),
        ("Preempted", "Preempted"),
        ("Scheduled", ""),
        ("Resumed", ""),
    ]
    warning, left, _, resumed = steps[4:]
    assert warning.message == (
        "2 pods of it may stay until 2026-05-04T10:00:00Z, then default/urgent gets the room (1 pod leaves); write a checkpoint"
    )
    assert warning.details == {"checkpoint_at": AT - 60, "for": "default/urgent", "evict_at": AT}
    assert left.message == "its pods left for default/urgent: 1 pod leaves"
    assert left.details == {"preempted": True, "checkpoint_at": AT - 5, "for": "default/urgent", "evict_at": AT}
    assert resumed.details == {"checkpoint_at": AT - 5}


def test_a_job_that_may_stay_after_all_is_told_so_and_a_later_loss_is_another_matter():
    running = Observed(state="Running")
    steps = lives(
        running, Observed(state="Running", leaving=LEAVING), running, running, Observed(state="Queued", reason="X")
    )
    assert [(step.state, step.reason) for step in steps[4:]] == [
        ("Running", "Preempting"),
        ("Running", ""),
        ("Preempted", "X"),
    ]
    assert steps[-1].details == {"preempted": True}


def pod(**fields) -> Pod:
    return Pod(namespace="default", name="job-worker-0", uid="u", node="n", phase=Phase.RUNNING, **fields)


@pytest.mark.parametrize(
    ("pods", "told", "expected"),
    [
        ([pod()], None, None),
        ([pod(annotations=MARKS)], None, ("default/urgent", AT, 1, "")),
        ([pod(annotations=MARKS)], LEAVING, ("default/urgent", AT, 1, "1 pod leaves")),
        (
            [pod(annotations=MARKS)],
            Leaving(room_for="default/other", message="m", at=AT),
            ("default/urgent", AT, 1, ""),
        ),
        ([], LEAVING, ("default/urgent", AT, 2, "1 pod leaves")),
        ([], Leaving(room_for="default/urgent", at=AT - 4000.0), None),
        ([pod(annotations={**MARKS, EVICT_AT: "soon"})], None, ("default/urgent", 0.0, 1, "")),
    ],
    ids=[
        "nobody leaves",
        "the warning alone",
        "the warning with the reason",
        "a reason for another gang",
        "gone a moment ago",
        "gone long ago",
        "a moment nobody can read",
    ],
)
def test_for_whom_pods_leave(pods, told, expected):
    found = leaving_of(pods, told, now=AT)
    assert (found and (found.room_for, found.evict_at, found.warned, found.message)) == expected


RESTARTS = ["RestartJob", "RestartTask", "RestartPod"]


@pytest.mark.parametrize("action", RESTARTS)
@pytest.mark.parametrize("seen", [True, False], ids=["seen to leave", "gone before anyone looked"])
def test_a_pod_that_leaves_for_another_job_costs_no_retry_and_comes_back(action, seen):
    world = world_with(policies=[{"event": "PodEvicted", "action": action}], maxRetry=2)
    world.settle()
    for _ in range(3):
        for number in range(3):
            world.set_pod(f"job-worker-{number}", "Running")
        world.settle()
        if seen:
            found = world.objects["pods", "default", "job-worker-1"]
            metadata = found["metadata"]
            marked = {
                **metadata,
                "annotations": {**metadata["annotations"], **MARKS},
                "deletionTimestamp": "2026-05-04T10:00:00Z",
            }
            world.put("pods", {**found, "metadata": marked})
            for act in world.actions():
                world.apply(act)
        world.remove_pod("job-worker-1")
        for _ in range(10):
            for act in world.actions(leaving=None if seen else LEAVING):
                world.apply(act)
    assert len(world.pods()) == 3
    assert "retryCount" not in world.job("job").status
    assert world.phase() in {"Pending", "Running"}


def test_pods_that_are_made_anew_are_told_the_last_checkpoint():
    world = world_with()
    world.settle()
    group = next(name for kind, _, name in world.objects if kind.startswith("podgroups"))
    found = world.objects["podgroups.scheduling.volcano.sh", "default", group]
    marks = {**found["metadata"].get("annotations", {}), "muster.dev/last-checkpoint": "2026-05-04T09:59:00Z"}
    world.put("podgroups.scheduling.volcano.sh", {**found, "metadata": {**found["metadata"], "annotations": marks}})
    world.remove_pod("job-worker-1")
    world.settle()
    made = world.objects["pods", "default", "job-worker-1"]["metadata"]["annotations"]
    kept = world.objects["pods", "default", "job-worker-0"]["metadata"]["annotations"]
    assert made["muster.dev/last-checkpoint"] == "2026-05-04T09:59:00Z"
    assert "muster.dev/last-checkpoint" not in kept


@pytest.mark.parametrize(
    ("there", "reported", "noted"),
    [
        ("", AT, AT),
        ("2026-05-04T09:00:00Z", AT, AT),
        ("2026-05-04T10:00:00Z", AT - 10.0, None),
        ("", AT + 30.0, AT),
        ("", AT + 3600.0, None),
        ("", 0.0, None),
        ("nonsense", AT - 1.0, AT - 1.0),
    ],
    ids=[
        "the first",
        "a later one",
        "an older one",
        "a clock a little ahead",
        "the future",
        "never",
        "what was there cannot be read",
    ],
)
def test_a_checkpoint_only_ever_goes_forward(there, reported, noted):
    marks = {"muster.dev/last-checkpoint": there} if there else {}
    group = PodGroup(namespace="default", name="job", uid="g", annotations=marks)
    patch = note_checkpoint(group, reported, now=AT)
    assert (patch and last_checkpoint(patch.body["metadata"]["annotations"])) == noted


@pytest.mark.parametrize(
    ("tenant", "rights", "annotations", "allowed"),
    [
        ("a", Tenant(), {"tenant": "a"}, True),
        ("a", Tenant(), {"tenant": "b"}, False),
        ("a", Tenant(), {}, False),
        ("a", Tenant(namespaces=("default",)), {}, True),
        ("a", Tenant(namespaces=("default",)), {"tenant": "b"}, False),
        ("a", None, {"tenant": "a"}, False),
    ],
    ids=[
        "its own",
        "another's",
        "nobody's",
        "nobody's in its namespace",
        "another's in its namespace",
        "an unknown tenant",
    ],
)
def test_who_may_speak_of_a_job(tenant, rights, annotations, allowed):
    job = Workload(kind="vcjob", namespace="default", name="job", uid="w", annotations=annotations)
    assert may_report(tenant, rights, job, key="tenant") is allowed
