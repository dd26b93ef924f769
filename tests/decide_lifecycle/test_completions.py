"""Pods of a Volcano Job that have succeeded are not run again when they vanish."""

import pytest

from muster.decide.lifecycle.actions import VCJOBS
from muster.decide.lifecycle.completions import SUCCEEDED, Completions, completions_of
from muster.decide.lifecycle.jobspec import read_spec
from muster.model.workloads import PodGroup, Workload
from tests.decide_lifecycle.world import World, job_document

JOB = Workload(kind="vcjob", namespace="default", name="job", uid="u")


def spec(replicas=6, **task):
    return read_spec({"tasks": [{"name": "w", "replicas": replicas, **task}, {"name": "ps", "replicas": 1}]})


def known(text, *, version=3, **more):
    group = PodGroup(namespace="default", name="g", uid="g", annotations={SUCCEEDED: text})
    return completions_of(JOB, spec(**more), (), version=version, group=group, leaving=())


@pytest.mark.parametrize(
    ("text", "indexes"),
    [
        pytest.param("3 w:0-2,5", {0, 1, 2, 5}, id="ranges and single ones"),
        pytest.param("2 w:0-2", set(), id="of an earlier start of the job"),
        pytest.param("3 w:4-99999999999999999999", set(), id="no number that anybody means"),
        pytest.param("3 w:4-999999999", {4, 5}, id="no further than there are replicas"),
        pytest.param("3 w:x,-1,2 nonsense :: other:1", {2}, id="what cannot be read is nothing"),
        pytest.param("w:1", set(), id="without a version"),
        pytest.param("", set(), id="nothing"),
    ],
)
def test_what_is_remembered_is_read_with_care(text, indexes):
    assert set(known(text).vanished.get("w", ())) == indexes


def test_what_is_written_is_read_again():
    done = Completions({"w": frozenset({0, 1, 3, 5}), "ps": frozenset({0})})
    assert done.text(3) == "3 ps:0 w:0-1,3,5"
    assert known(done.text(3)).done == done.done
    assert Completions().text(3) == ""


def test_partitions_are_not_remembered_pod_by_pod():
    assert known("3 w:0-2", partitionPolicy={"totalPartitions": 3, "partitionSize": 2}).done == {}


def started(**spec_of_job):
    world = World()
    world.put(VCJOBS, job_document(**spec_of_job))
    world.settle()
    for number in range(3):
        world.set_pod(f"job-worker-{number}", "Running")
    world.settle()
    return world


def test_the_gang_needs_one_pod_less_and_the_job_completes_by_the_rest():
    world = started()
    world.set_pod("job-worker-0", "Succeeded")
    world.settle()
    world.remove_pod("job-worker-0")
    world.settle()
    group = world.group()
    assert group.min_member == 2
    assert group.annotations[SUCCEEDED] == "0 worker:0"
    for number in (1, 2):
        world.set_pod(f"job-worker-{number}", "Succeeded")
    world.settle()
    assert world.phase() == "Completed"


def test_a_pod_that_failed_or_ran_is_made_anew_when_it_vanishes():
    world = started()
    world.remove_pod("job-worker-1")
    world.settle()
    assert {pod.name for pod in world.pods()} == {f"job-worker-{number}" for number in range(3)}


def test_a_restart_of_the_job_runs_everything_again():
    world = started(policies=[{"event": "PodFailed", "action": "RestartJob"}])
    world.set_pod("job-worker-0", "Succeeded")
    world.settle()
    world.remove_pod("job-worker-0")
    world.settle()
    world.set_pod("job-worker-1", "Failed")
    world.settle()
    assert {pod.name for pod in world.pods()} == {f"job-worker-{number}" for number in range(3)}
    group = world.group()
    assert group.min_member == 3


@pytest.mark.parametrize("gone", [False, True], ids=["still there", "gone"])
def test_a_restart_of_its_task_runs_a_succeeded_pod_again(gone):
    world = started(policies=[{"event": "PodFailed", "action": "RestartTask"}], maxRetry=5)
    world.set_pod("job-worker-0", "Succeeded")
    world.settle()
    if gone:
        world.remove_pod("job-worker-0")
        world.settle()
    world.set_pod("job-worker-1", "Failed")
    world.settle()
    assert {pod.name: pod.phase.value for pod in world.pods()} == {
        f"job-worker-{number}": "Pending" for number in range(3)
    }


def test_a_restart_of_another_pod_leaves_what_succeeded_as_it_is():
    world = started(policies=[{"event": "PodFailed", "action": "RestartPod"}], maxRetry=5)
    world.set_pod("job-worker-0", "Succeeded")
    world.settle()
    world.remove_pod("job-worker-0")
    world.settle()
    world.set_pod("job-worker-1", "Failed")
    world.settle()
    assert {pod.name for pod in world.pods()} == {"job-worker-1", "job-worker-2"}
