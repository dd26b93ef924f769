"""The batch Job controller: as a table of decisions, and running against the store on a virtual clock."""

import itertools

import pytest

from muster.simulator.clock import DEFAULT_START, timestamp
from muster.simulator.controllers.job_counting import JobMemory
from muster.simulator.controllers.job_decision import decide_job, index_ranges
from tests.simulator.bench import Bench

N1 = "gpu-node-01"
NOW = DEFAULT_START
RUN_5 = {"simulator.muster.dev/run-seconds": "5", "simulator.muster.dev/start-seconds": "1"}


def job(bench, name="j", *, annotations=None, policy="Never", limits=None, **spec):
    """Create a Job whose pods are bound to the first node as soon as they exist."""
    template = {
        "metadata": {"annotations": annotations or {}},
        "spec": {
            "restartPolicy": policy,
            "containers": [{"name": "c", "image": "x", "resources": {"limits": limits or {}}}],
        },
    }
    return bench.store.create("jobs.batch", {"metadata": {"name": name}, "spec": {"template": template, **spec}})


async def bench_that_binds(cluster="1x8:stock", **options):
    bench = await Bench.ready(cluster, **options)

    def bind(event, pod, _old):
        if event == "ADDED":
            bench.store.bind("default", pod["metadata"]["name"], {"target": {"name": N1}})

    bench.store.subscribe("pods", bind)
    return bench


def status(bench, name="j"):
    return bench.store.get("jobs.batch", "default", name)["status"]


def conditions(bench, name="j"):
    return {c["type"]: c["reason"] for c in status(bench, name).get("conditions", ()) if c["status"] == "True"}


async def test_a_job_runs_its_completions_in_parallel_and_is_complete():
    bench = await bench_that_binds()
    created = job(bench, annotations=RUN_5, parallelism=2, completions=5)
    await bench.advance(1)
    pods = bench.store.list("pods", "default")
    assert len(pods) == 2
    assert status(bench)["active"] == 2
    (owner,) = pods[0]["metadata"]["ownerReferences"]
    assert owner == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "uid": created["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert pods[0]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert pods[0]["metadata"]["generateName"] == "j-"
    await bench.advance(3)
    assert status(bench)["ready"] == 2
    await bench.advance(30)
    final = status(bench)
    assert (final["succeeded"], final["failed"], final["active"]) == (5, 0, 0)
    assert final["completionTime"] > final["startTime"]
    assert conditions(bench) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert len(bench.store.list("pods", "default")) == 5


async def test_a_job_fails_when_more_pods_fail_than_its_limit():
    bench = await bench_that_binds()
    job(bench, annotations={"simulator.muster.dev/fail-after": "1"}, backoffLimit=2)
    await bench.advance(200)
    assert status(bench)["failed"] == 3
    assert conditions(bench) == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert "completionTime" not in status(bench)


async def test_failed_pods_are_replaced_after_a_growing_back_off():
    bench = await bench_that_binds()
    job(
        bench,
        annotations={"simulator.muster.dev/fail-after": "1", "simulator.muster.dev/start-seconds": "0"},
        backoffLimit=6,
    )
    born = []
    bench.store.subscribe(
        "pods", lambda event, _pod, _old: born.append(bench.clock.now()) if event == "ADDED" else None
    )
    await bench.advance(100)
    waits = [round(later - sooner) for sooner, later in itertools.pairwise(born)]
    assert waits == [11, 21, 41]


async def test_restarts_in_place_count_against_the_limit():
    bench = await bench_that_binds()
    job(bench, annotations={"simulator.muster.dev/fail-after": "1"}, backoffLimit=2, policy="OnFailure")
    await bench.advance(100)
    assert conditions(bench)["Failed"] == "BackoffLimitExceeded"
    assert bench.store.list("pods", "default") == []


async def test_an_indexed_job_gives_every_pod_an_index_and_replaces_the_failed_one():
    bench = await bench_that_binds()
    job(bench, annotations=RUN_5, parallelism=3, completions=3, completionMode="Indexed")
    await bench.advance(1)
    pods = sorted(bench.store.list("pods", "default"), key=lambda p: p["metadata"]["name"])
    key = "batch.kubernetes.io/job-completion-index"
    assert [p["metadata"]["annotations"][key] for p in pods] == ["0", "1", "2"]
    assert [p["metadata"]["labels"][key] for p in pods] == ["0", "1", "2"]
    assert pods[1]["metadata"]["name"].startswith("j-1-")
    assert pods[1]["spec"]["hostname"] == "j-1"
    assert pods[1]["spec"]["containers"][0]["env"][0]["name"] == "JOB_COMPLETION_INDEX"
    await bench.advance(2)
    bench.kubelets.end_pod("default", pods[1]["metadata"]["name"], exit_code=1)
    await bench.advance(7)
    assert status(bench)["completedIndexes"] == "0,2"
    await bench.advance(30)
    assert status(bench)["completedIndexes"] == "0-2"
    assert conditions(bench)["Complete"] == "CompletionsReached"


async def test_suspend_deletes_the_pods_without_a_failure_and_resume_makes_new_ones():
    bench = await bench_that_binds()
    job(bench, parallelism=2, completions=2)
    await bench.advance(5)
    bench.store.patch("jobs.batch", "default", "j", {"spec": {"suspend": True}})
    await bench.advance(5)
    assert bench.store.list("pods", "default") == []
    suspended = status(bench)
    assert (suspended["active"], suspended["failed"], conditions(bench)) == (0, 0, {"Suspended": "JobSuspended"})
    assert "startTime" not in suspended
    bench.store.patch("jobs.batch", "default", "j", {"spec": {"suspend": False}})
    await bench.advance(5)
    assert (status(bench)["active"], conditions(bench)) == (2, {})
    assert status(bench)["startTime"]


async def test_a_job_created_suspended_makes_no_pods():
    bench = await bench_that_binds()
    job(bench, suspend=True)
    await bench.advance(100)
    assert bench.store.list("pods", "default") == []
    assert conditions(bench) == {"Suspended": "JobSuspended"}


async def test_lower_parallelism_takes_pods_away_without_a_failure():
    bench = await bench_that_binds()
    job(bench, parallelism=4, completions=8)
    await bench.advance(5)
    bench.store.patch("jobs.batch", "default", "j", {"spec": {"parallelism": 1}})
    await bench.advance(5)
    assert len(bench.store.list("pods", "default")) == 1
    assert (status(bench)["active"], status(bench)["failed"]) == (1, 0)


async def test_the_deadline_ends_a_job_and_its_pods():
    bench = await bench_that_binds()
    job(bench, activeDeadlineSeconds=20)
    await bench.advance(15)
    assert status(bench)["active"] == 1
    await bench.advance(10)
    assert conditions(bench) == {"FailureTarget": "DeadlineExceeded", "Failed": "DeadlineExceeded"}
    assert bench.store.list("pods", "default") == []


async def test_a_finished_job_is_deleted_with_its_pods_after_its_time_to_live():
    bench = await bench_that_binds()
    job(bench, annotations=RUN_5, ttlSecondsAfterFinished=30)
    await bench.advance(20)
    assert "Complete" in conditions(bench)
    await bench.advance(40)
    assert bench.get("j", "jobs.batch") is None
    assert bench.store.list("pods", "default") == []


async def test_an_evicted_pod_counts_as_failed_unless_a_policy_ignores_it():
    bench = await bench_that_binds()
    ignore = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    job(bench, "plain")
    job(bench, "patient", podFailurePolicy=ignore)
    await bench.advance(5)
    for pod in bench.store.list("pods", "default"):
        bench.store.evict("default", pod["metadata"]["name"])
    await bench.advance(20)
    assert (status(bench, "plain")["failed"], status(bench, "patient")["failed"]) == (1, 0)
    assert (status(bench, "plain")["active"], status(bench, "patient")["active"]) == (1, 1)


async def test_a_pod_failure_policy_can_fail_the_job_at_once():
    bench = await bench_that_binds()
    fail = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}
    job(
        bench,
        annotations={"simulator.muster.dev/run-seconds": "1", "simulator.muster.dev/exit-code": "42"},
        podFailurePolicy=fail,
    )
    await bench.advance(20)
    assert conditions(bench)["Failed"] == "PodFailurePolicy"
    assert status(bench)["failed"] == 1


async def test_a_pod_the_node_refuses_is_a_failure_of_the_job():
    bench = await bench_that_binds()
    job(bench, limits={"nvidia.com/gpu": 9}, backoffLimit=0)
    await bench.advance(20)
    assert conditions(bench)["Failed"] == "BackoffLimitExceeded"


async def test_pods_that_the_server_refuses_are_said_and_tried_again():
    bench = await bench_that_binds()
    template = {
        "spec": {"restartPolicy": "Never", "priorityClassName": "later", "containers": [{"name": "c", "image": "x"}]}
    }
    bench.store.create("jobs.batch", {"metadata": {"name": "j"}, "spec": {"template": template}})
    await bench.advance(5)
    assert [e["reason"] for e in bench.store.list("events", "default")] == ["FailedCreate"]
    assert status(bench)["active"] == 0
    bench.store.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "later"}, "value": 7})
    await bench.advance(12)
    assert status(bench)["active"] == 1


async def test_a_job_managed_by_another_controller_is_left_alone():
    bench = await bench_that_binds()
    job(bench, managedBy="example.com/other")
    await bench.advance(20)
    assert bench.store.list("pods", "default") == []


async def test_what_is_not_simulated_is_said():
    bench = await bench_that_binds()
    job(bench, completionMode="Indexed", completions=2, backoffLimitPerIndex=1)
    assert "backoffLimitPerIndex" in bench.store.list("events", "default")[0]["message"]


# -- the decision alone ------------------------------------------------------------------------------------------------


def pod(name, phase="Running", *, deleted=False, index=None):
    metadata = {"name": name, "namespace": "d", "uid": name, "creationTimestamp": timestamp(NOW), "annotations": {}}
    if deleted:
        metadata["deletionTimestamp"] = timestamp(NOW)
    if index is not None:
        metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = str(index)
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase}}


def decide(pods, memory=None, now=NOW, status=None, **spec):
    spec = {"parallelism": 3, "completions": 3, "backoffLimit": 6, "template": {"spec": {}}, **spec}
    return decide_job({"spec": spec, "status": status or {}}, pods, memory or JobMemory(), now=now)


@pytest.mark.parametrize(
    ("pods", "spec", "creates", "deletes"),
    [
        pytest.param([], {}, 3, 0, id="nothing runs: all are made"),
        pytest.param([pod("a"), pod("b")], {}, 1, 0, id="what is missing is made"),
        pytest.param([pod("a", "Succeeded"), pod("b", "Succeeded")], {}, 1, 0, id="successes are not made again"),
        pytest.param([pod("a"), pod("b"), pod("c"), pod("e")], {}, 0, 1, id="what is too much is deleted"),
        pytest.param([pod("a"), pod("b"), pod("c")], {"parallelism": 0}, 0, 3, id="parallelism zero stops all"),
        pytest.param(
            [pod("a", "Succeeded"), pod("b")],
            {"completions": None},
            0,
            0,
            id="without completions the first success stops new pods",
        ),
        pytest.param(
            [pod("a", deleted=True), pod("b"), pod("c")],
            {"podReplacementPolicy": "Failed"},
            0,
            0,
            id="with policy Failed a terminating pod is not replaced yet",
        ),
    ],
)
def test_how_many_pods_are_made_and_deleted(pods, spec, creates, deletes):
    decision, _ = decide(pods, **spec)
    assert (len(decision.create), len(decision.delete)) == (creates, deletes)


def test_an_indexed_job_fills_the_lowest_free_indexes():
    decision, _ = decide([pod("a", index=1), pod("b", "Succeeded", index=0)], completionMode="Indexed", completions=5)
    assert decision.create == (2, 3)


def test_a_success_counts_once_even_when_its_pod_is_gone():
    _, memory = decide([pod("a", "Succeeded")])
    decision, memory = decide([], memory)
    assert (decision.status["succeeded"], len(decision.create)) == (1, 2)
    decision, _ = decide([pod("a", "Succeeded")], memory)
    assert decision.status["succeeded"] == 1


def test_a_job_ends_only_when_its_pods_are_gone():
    three = [pod(name, "Succeeded") for name in "abc"]
    decision, memory = decide([*three, pod("e")], parallelism=4)
    assert [c["type"] for c in decision.status["conditions"]] == ["SuccessCriteriaMet"]
    assert decision.delete == ("e",)
    decision, _ = decide(three, memory, status=decision.status, parallelism=4)
    assert [c["type"] for c in decision.status["conditions"]] == ["SuccessCriteriaMet", "Complete"]


def test_deciding_twice_about_the_same_changes_nothing():
    pods = [pod("a"), pod("b", "Succeeded"), pod("c", "Failed")]
    first, memory = decide(pods)
    second, again = decide(pods, memory, status=first.status)
    assert memory == again
    assert first.status == second.status


@pytest.mark.parametrize(("indexes", "text"), [([], ""), ([3], "3"), ([2, 0, 1, 5], "0-2,5"), ([7, 5, 6, 6], "5-7")])
def test_completed_indexes_are_shown_as_ranges(indexes, text):
    assert index_ranges(indexes) == text
