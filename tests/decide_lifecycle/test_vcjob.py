import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.lifecycle.actions import (
    PODGROUPS,
    PODS,
    SERVICES,
    VCJOBS,
    Create,
    Patch,
    Remove,
    Tell,
    Waiting,
    Wake,
)
from muster.model.workloads import Namespace
from tests.decide_lifecycle.world import World, job_document

RESTART = {"event": "PodFailed", "action": "RestartJob"}


def world_with(**values):
    world = World()
    world.put(VCJOBS, job_document(**values))
    return world


def test_a_new_job_asks_for_its_podgroup_first_then_its_pods_then_its_status():
    actions = world_with(replicas=2, minAvailable=2).actions()
    kinds = [(type(action).__name__, getattr(action, "kind", "")) for action in actions]
    assert kinds == [("Create", PODGROUPS), ("Create", PODS), ("Create", PODS), ("Patch", VCJOBS)]
    assert actions[0].name == "job-uid-job"
    assert actions[0].document["spec"] == {"minMember": 2, "queue": "default"}


FOREIGN = {
    "another scheduler's": {"schedulerName": "default-scheduler"},
    "a custom scheduler's": {"schedulerName": "mine"},
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_job_of_another_scheduler_is_left_alone(name):
    assert world_with(**FOREIGN[name]).actions() == ()


def test_a_job_that_is_being_deleted_is_left_alone():
    world = World()
    document = job_document()
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.put(VCJOBS, document)
    assert world.actions() == ()


def test_task_minimums_become_min_task_member_and_the_jobs_minimum_is_their_sum():
    tasks = [{"name": "ps", "replicas": 2, "minAvailable": 1}, {"name": "worker", "replicas": 4, "minAvailable": 3}]
    (group, *_) = world_with(tasks=tasks, networkTopology={"mode": "hard", "highestTierAllowed": 1}).actions()
    assert group.document["spec"] == {
        "minMember": 4,
        "minTaskMember": {"ps": 1, "worker": 3},
        "queue": "default",
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }


def test_the_plugins_env_and_svc_give_indexes_hosts_and_a_service():
    actions = world_with(replicas=2, plugins={"env": [], "svc": []}).actions()
    assert [action.kind for action in actions if isinstance(action, Create)] == [PODGROUPS, SERVICES, PODS, PODS]
    pod = [action for action in actions if isinstance(action, Create) and action.kind == PODS][1].document
    env = {item["name"]: item["value"] for item in pod["spec"]["containers"][0]["env"]}
    assert env == {
        "VC_TASK_INDEX": "1",
        "VK_TASK_INDEX": "1",
        "VC_WORKER_HOSTS": "job-worker-0.job,job-worker-1.job",
        "VC_WORKER_NUM": "2",
    }
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("job-worker-1", "job")


HELD = {
    "a plugin that would be missing": {"plugins": {"pytorch": []}},
    "a minimum above all pods": {"minAvailable": 9},
    "a policy with a delay": {"policies": [{"event": "PodFailed", "action": "RestartJob", "timeout": "10s"}]},
    "a spec of another form": {"minAvailable": "three"},
    "two tasks of one name": {"tasks": [{"name": "a", "replicas": 1}, {"name": "a", "replicas": 1}]},
    "a task that waits for none": {"tasks": [{"name": "a", "replicas": 1, "dependsOn": {"name": ["b"]}}]},
}


@pytest.mark.parametrize("name", HELD)
def test_a_job_that_cannot_be_made_into_pods_is_held_with_the_reason(name):
    world = world_with(**HELD[name])
    told, patch = world.actions()
    assert isinstance(told, Tell)
    assert told.warning
    assert patch.body["status"]["state"]["phase"] == "Pending"
    assert patch.body["status"]["state"]["message"] == told.message
    world.apply(patch)
    assert world.actions() == ()


def test_dependent_tasks_get_pods_when_the_task_before_them_is_up():
    tasks = [{"name": "first", "replicas": 1}, {"name": "second", "replicas": 1, "dependsOn": {"name": ["first"]}}]
    world = world_with(tasks=tasks, minAvailable=1)
    world.settle()
    assert [pod.name for pod in world.pods()] == ["job-first-0"]
    world.set_pod("job-first-0", "Running")
    world.settle()
    assert sorted(pod.name for pod in world.pods()) == ["job-first-0", "job-second-0"]


def test_a_pending_job_shows_why_it_waits():
    world = world_with()
    world.settle()
    (patch,) = world.actions(waiting=Waiting(code="NOT_ENOUGH_ROOM", message="asks 3, 1 is free"))
    assert patch.body == {"status": {"state": {"reason": "NOT_ENOUGH_ROOM", "message": "asks 3, 1 is free"}}}


def test_a_pod_that_the_kubelet_refuses_is_replaced_and_costs_no_retry():
    world = world_with(policies=[RESTART])
    world.settle()
    before = next(pod.uid for pod in world.pods() if pod.name == "job-worker-1")
    world.set_pod("job-worker-1", "Failed", reason="UnexpectedAdmissionError")
    world.settle()
    after = next(pod for pod in world.pods() if pod.name == "job-worker-1")
    assert after.uid != before
    assert "retryCount" not in world.job("job").status


ANSWERS = {
    "RestartJob makes every pod anew": ([RESTART], "Pending", {"version": 1, "retryCount": 1}, 3),
    "AbortJob ends it": ([{"event": "PodFailed", "action": "AbortJob"}], "Aborted", {}, 0),
    "TerminateJob ends it": ([{"event": "PodFailed", "action": "TerminateJob"}], "Terminated", {}, 0),
    "CompleteJob completes it": ([{"event": "PodFailed", "action": "CompleteJob"}], "Completed", {}, 0),
    "any event matches a star": ([{"event": "*", "action": "AbortJob"}], "Aborted", {}, 0),
    "its exit code matches": ([{"exitCode": 7, "action": "AbortJob"}], "Aborted", {}, 0),
    "another exit code does not": ([{"exitCode": 8, "action": "AbortJob"}], "Running", {}, 2),
    "SyncJob does nothing": ([{"event": "PodFailed", "action": "SyncJob"}, RESTART], "Running", {}, 2),
    "RestartPod makes that pod anew": (
        [{"event": "PodFailed", "action": "RestartPod"}],
        "Running",
        {"retryCount": 1},
        3,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_failed_pod_is_answered_by_the_jobs_policy(name):
    policies, phase, status, live = ANSWERS[name]
    world = world_with(policies=policies)
    world.settle()
    for number in range(3):
        world.set_pod(f"job-worker-{number}", "Running")
    world.settle()
    terminated = {"name": "c", "state": {"terminated": {"exitCode": 7}}}
    world.set_pod("job-worker-1", "Failed", containerStatuses=[terminated])
    world.settle()
    assert world.phase() == phase
    assert {key: world.job("job").status.get(key) for key in status} == status
    assert len([pod for pod in world.pods() if not pod.finished]) == live


def test_restart_task_makes_its_own_task_anew_and_no_other():
    tasks = [
        {"name": "ps", "replicas": 1},
        {"name": "worker", "replicas": 2, "policies": [{"event": "PodFailed", "action": "RestartTask"}]},
    ]
    world = world_with(tasks=tasks)
    world.settle()
    for pod in world.pods():
        world.set_pod(pod.name, "Running")
    world.settle()
    before = {pod.name: pod.uid for pod in world.pods()}
    world.set_pod("job-worker-0", "Failed")
    world.settle()
    after = {pod.name: pod.uid for pod in world.pods()}
    assert {name for name in after if after[name] != before[name]} == {"job-worker-0", "job-worker-1"}
    assert world.job("job").status["retryCount"] == 1


def test_a_job_fails_at_its_last_attempt():
    world = world_with(replicas=1, policies=[RESTART], maxRetry=2)
    world.settle()
    for _ in range(2):
        world.set_pod("job-worker-0", "Failed", reason="Error")
        world.settle()
    assert (world.phase(), world.job("job").status["retryCount"]) == ("Failed", 2)
    assert world.group() is None


def test_an_evicted_pod_is_made_again_and_costs_nothing_without_a_policy():
    world = world_with(policies=[RESTART])
    world.settle()
    for number in range(3):
        world.set_pod(f"job-worker-{number}", "Running")
    world.settle()
    world.remove_pod("job-worker-2")
    world.settle()
    assert len(world.pods()) == 3
    assert "retryCount" not in world.job("job").status


def test_a_pod_that_vanished_unseen_counts_as_evicted():
    world = world_with(policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    world.settle()
    for number in range(3):
        world.set_pod(f"job-worker-{number}", "Running")
    world.settle()
    world.remove_pod("job-worker-2")
    world.settle()
    assert world.job("job").status["retryCount"] == 1


ENDS = {
    "all succeeded": ({}, {"Succeeded": 3}, "Completed"),
    "fewer than the minimum succeeded": ({}, {"Succeeded": 2, "Failed": 1}, "Failed"),
    "the minimum succeeded": ({"minAvailable": 2}, {"Succeeded": 2, "Failed": 1}, "Completed"),
    "enough successes end it early": ({"minSuccess": 1}, {"Succeeded": 1, "Running": 2}, "Completed"),
    "some still run": ({}, {"Succeeded": 2, "Running": 1}, "Running"),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_job_ends(name):
    spec, phases, expected = ENDS[name]
    world = world_with(**spec)
    world.settle()
    for number in range(3):
        world.set_pod(f"job-worker-{number}", "Running")
    world.settle()
    ends = [phase for phase, count in phases.items() for _ in range(count)]
    for number, phase in enumerate(ends):
        world.set_pod(f"job-worker-{number}", phase)
    world.settle()
    assert world.phase() == expected


def test_a_finished_job_goes_after_its_time_and_not_before():
    world = world_with(replicas=1, ttlSecondsAfterFinished=60)
    world.settle()
    world.set_pod("job-worker-0", "Succeeded")
    world.settle()
    (wake,) = world.actions()
    assert wake == Wake(at=world.now + 60)
    world.now += 60
    assert [type(action) for action in world.actions()] == [Remove]


def test_replicas_and_the_minimum_may_change():
    world = world_with(replicas=3)
    world.settle()
    changed = job_document(replicas=1)
    world.put(VCJOBS, {**world.objects[VCJOBS, "default", "job"], "spec": changed["spec"]})
    world.settle()
    assert [pod.name for pod in world.pods()] == ["job-worker-0"]
    assert world.group().min_member == 1


@pytest.mark.parametrize(
    ("written", "annotations", "expected"),
    [
        ("team", {}, "team"),
        ("", {"volcano.sh/job-queue": "mine"}, "mine"),
        ("default", {}, "of-namespace"),
        ("", {}, "of-namespace"),
    ],
    ids=["its spec wins", "then its annotation", "default says nothing", "then the namespace"],
)
def test_which_queue_a_job_belongs_to(written, annotations, expected):
    document = job_document(queue=written)
    document["metadata"]["annotations"] = annotations
    world = World()
    world.put(VCJOBS, document)
    namespace = Namespace(name="default", annotations={"volcano.sh/queue": "of-namespace"})
    (group, *_) = world.actions(namespace=namespace)
    assert group.document["spec"]["queue"] == expected


def test_more_replicas_of_a_running_job_are_made_and_are_no_eviction():
    world = world_with(replicas=2, minAvailable=2, policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    world.settle()
    for number in range(2):
        world.set_pod(f"job-worker-{number}", "Running")
    world.settle()
    changed = job_document(replicas=3, minAvailable=2, policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    world.put(VCJOBS, {**world.objects[VCJOBS, "default", "job"], "spec": changed["spec"]})
    world.settle()
    assert len(world.pods()) == 3
    assert "retryCount" not in world.job("job").status


def test_a_status_is_written_over_the_version_that_was_judged_only():
    world = world_with()
    patches = [action for action in world.actions() if isinstance(action, Patch)]
    assert [patch.resource_version for patch in patches] == [world.job("job").resource_version]


STEPS = st.lists(st.tuples(st.sampled_from(["Running", "Succeeded", "Failed", "gone"]), st.integers(0, 2)), max_size=8)
POLICIES = st.sampled_from(
    [
        [],
        [RESTART],
        [{"event": "PodEvicted", "action": "RestartJob"}],
        [{"event": "*", "action": "RestartTask"}],
        [{"event": "PodFailed", "action": "RestartPod"}],
    ]
)


@settings(max_examples=80, deadline=None)
@given(steps=STEPS, policies=POLICIES, seed=st.integers(0, 1000))
def test_stale_repeated_and_reordered_actions_lead_to_the_same_place(steps, policies, seed):
    """One world gets each action once; the other gets them shuffled, twice, and again from before: both end alike."""
    tidy, messy = world_with(policies=policies), world_with(policies=policies)
    choose = random.Random(seed)
    tidy.settle()
    messy.settle()
    for step, number in steps:
        for world in (tidy, messy):
            name = f"job-worker-{number}"
            if step == "gone":
                world.remove_pod(name)
            else:
                world.set_pod(name, step)
        tidy.settle()
        old = messy.actions()
        for _ in range(4):
            actions = list(messy.actions())
            firsts = [action for action in actions if not isinstance(action, Remove)]
            choose.shuffle(firsts)
            for action in [*firsts, *firsts, *(a for a in actions if isinstance(a, Remove)), *old]:
                messy.apply(action)
        messy.settle()
        assert tidy.picture() == messy.picture()
        assert not [action for action in tidy.actions() if isinstance(action, Create | Patch | Remove)]
