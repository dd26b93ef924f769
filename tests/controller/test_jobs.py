import pytest

from muster.simulator.pod_plan import Plan
from tests.controller.conftest import BATCH_JOBS, PODGROUPS, PODS, QUEUES, VCJOBS, phase_of, running
from tests.nats_fixtures import eventually


def container(**limits):
    return {"name": "c", "image": "registry.example.com/x:1", "resources": {"limits": limits}}


def vcjob(name, *, replicas=4, namespace="default", annotations=None, limits=None, **spec):
    template = {"spec": {"containers": [container(**(limits or {"nvidia.com/gpu": 1}))]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": replicas,
            "tasks": [{"name": "worker", "replicas": replicas, "template": template}],
            **spec,
        },
    }


def make(rig, document):
    kind = VCJOBS if "volcano" in document["apiVersion"] else BATCH_JOBS
    return rig.store.create(kind, document, namespace=document["metadata"]["namespace"])


def mine(rig, prefix, namespace="default"):
    return [pod for pod in rig.pods(namespace) if pod["metadata"]["name"].startswith(prefix)]


async def test_a_job_becomes_a_podgroup_and_pods_with_volcanos_names_and_follows_its_pods(rig):
    job = make(rig, vcjob("bert", policies=[{"event": "PodFailed", "action": "RestartJob"}]))
    pods = await eventually(lambda: len(mine(rig, "bert")) == 4 and mine(rig, "bert"))
    assert [pod["metadata"]["name"] for pod in pods] == [f"bert-worker-{number}" for number in range(4)]
    name = f"bert-{job['metadata']['uid']}"
    assert rig.get(PODGROUPS, "default", name)["spec"]["minMember"] == 4
    for pod in pods:
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name
        assert pod["metadata"]["labels"]["volcano.sh/job-name"] == "bert"
        assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert pod["spec"]["schedulerName"] == "volcano"
    await eventually(lambda: rig.phase("bert") == "Pending")
    await eventually(lambda: (rig.get(PODGROUPS, "default", name).get("status") or {}).get("phase") == "Inqueue")
    assert rig.bind_all("default", "bert") == 4
    await eventually(lambda: rig.phase("bert") == "Running")
    await eventually(lambda: rig.get(PODGROUPS, "default", name)["status"]["phase"] == "Running")
    await eventually(lambda: any(reason == "Scheduled" for reason, _ in rig.events("default", "bert-worker-0")))
    status = rig.get(VCJOBS, "default", "bert")["status"]
    assert (status["running"], status["minAvailable"]) == (4, 4)
    assert status["taskStatusCount"] == {"worker": {"phase": {"Running": 4}}}


async def test_the_queues_status_counts_podgroups_and_what_their_pods_hold(rig):
    rig.store.create(
        QUEUES,
        {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "counted"}, "spec": {}},
    )
    make(rig, vcjob("counting", replicas=2, queue="counted"))
    await eventually(lambda: len(mine(rig, "counting")) == 2)
    rig.bind_all("default", "counting")

    def status():
        return rig.get(QUEUES, None, "counted").get("status") or {}

    await eventually(lambda: status().get("running") == 1)
    await eventually(lambda: status().get("allocated", {}).get("nvidia.com/gpu") == "2")
    assert status()["state"] == "Open"


async def test_a_namespaces_annotation_chooses_the_queue_unless_the_job_does(rig):
    rig.store.create(
        "namespaces",
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "ai-lab", "annotations": {"volcano.sh/queue": "counted-ns"}},
        },
    )
    make(rig, vcjob("silent", namespace="ai-lab", replicas=1))
    make(rig, vcjob("annotated", namespace="ai-lab", replicas=1, annotations={"volcano.sh/job-queue": "other"}))

    def queue_of(name):
        groups = [g for g in rig.store.list(PODGROUPS, "ai-lab") if g["metadata"]["name"].startswith(name)]
        return groups and groups[0]["spec"]["queue"]

    await eventually(lambda: queue_of("silent") and queue_of("annotated"))
    assert (queue_of("silent"), queue_of("annotated")) == ("counted-ns", "other")


async def test_a_card_beside_a_share_is_taken_out_of_the_pod_and_told(rig):
    limits = {"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 5120, "volcano.sh/gpu-core": 30}
    make(rig, vcjob("beside", replicas=1, limits=limits))
    pod = (await eventually(lambda: mine(rig, "beside")))[0]
    asked = pod["spec"]["containers"][0]["resources"]["limits"]
    assert asked == {"volcano.sh/gpu-memory": "5120", "volcano.sh/gpu-core": "30"}
    await eventually(lambda: any(reason == "CardsRewritten" for reason, _ in rig.events("default", "beside")))


async def test_a_unit_trap_holds_the_job_with_the_likely_meaning_and_makes_no_pods(rig):
    make(rig, vcjob("trapped", replicas=1, limits={"nvidia.com/gpu": 0, "volcano.sh/gpu-memory": 12}))
    await eventually(lambda: rig.phase("trapped") == "Pending")
    state = rig.get(VCJOBS, "default", "trapped")["status"]["state"]
    assert state["reason"] == "UNIT_TRAP"
    assert "12 is 12 MiB; a card here has 81920. Did you mean 12288 (12 GiB)?" in state["message"]
    await eventually(lambda: any("Did you mean 12288" in message for _, message in rig.events("default", "trapped")))
    assert mine(rig, "trapped") == []


async def test_a_batch_job_with_annotations_becomes_one_gang_with_that_minimum(rig):
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "annotated-job",
            "namespace": "default",
            "annotations": {"volcano.sh/job-min-available": "4", "volcano.sh/job-queue": "train-prod"},
        },
        "spec": {
            "parallelism": 8,
            "completions": 8,
            "template": {
                "spec": {
                    "schedulerName": "volcano",
                    "restartPolicy": "Never",
                    "containers": [container(**{"nvidia.com/gpu": 1})],
                }
            },
        },
    }
    job = make(rig, document)
    name = f"podgroup-{job['metadata']['uid']}"
    group = await eventually(lambda: rig.get(PODGROUPS, "default", name))
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (4, "train-prod")

    def joined():
        pods = mine(rig, "annotated-job")
        groups = {(pod["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name") for pod in pods}
        return len(pods) == 8 and groups == {name}

    await eventually(joined)


async def test_a_bare_pod_gets_a_gang_of_its_own_and_a_foreign_pod_is_never_touched(rig):
    for name, scheduler in (("bare", "muster"), ("foreign", "default-scheduler")):
        rig.store.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"schedulerName": scheduler, "containers": [container()]},
            },
            namespace="default",
        )
    foreign = rig.get(PODS, "default", "foreign")
    bare = rig.get(PODS, "default", "bare")
    name = f"podgroup-{bare['metadata']['uid']}"
    await eventually(
        lambda: (
            (rig.get(PODS, "default", "bare")["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name")
            == name
        )
    )
    assert rig.get(PODGROUPS, "default", name)["spec"]["minMember"] == 1
    assert rig.get(PODS, "default", "foreign") == foreign


async def test_pending_reasons_reach_the_podgroup_the_pods_and_the_job(rig):
    job = make(rig, vcjob("waits", replicas=2))
    name = f"waits-{job['metadata']['uid']}"
    await eventually(lambda: len(mine(rig, "waits")) == 2)
    await rig.decide(f"default/{name}", code="NOT_ENOUGH_ROOM", message="asks 2 cards, 1 is free", position=1)

    def condition(pod):
        found = [c for c in pod.get("status", {}).get("conditions") or [] if c["type"] == "PodScheduled"]
        return found and (found[0]["status"], found[0]["reason"], found[0]["message"])

    wanted = ("False", "Unschedulable", "asks 2 cards, 1 is free")
    await eventually(lambda: [condition(pod) for pod in mine(rig, "waits")] == [wanted, wanted])
    await eventually(lambda: any(reason == "FailedScheduling" for reason, _ in rig.events("default", "waits-worker-0")))
    group = rig.get(PODGROUPS, "default", name)
    (told,) = group["status"]["conditions"]
    assert (told["type"], told["reason"], told["message"]) == ("Unschedulable", "NOT_ENOUGH_ROOM", wanted[2])
    await eventually(lambda: rig.get(VCJOBS, "default", "waits")["status"]["state"].get("reason") == "NOT_ENOUGH_ROOM")
    await rig.decide(f"default/{name}", code="QUEUE_CAPABILITY", message="queue default is full")
    await eventually(lambda: condition(mine(rig, "waits")[0]) == ("False", "QuotaBlocked", "queue default is full"))
    rig.bind_all("default", "waits")
    await rig.decide(f"default/{name}", verb="bind")
    await eventually(lambda: rig.get(PODGROUPS, "default", name)["status"]["conditions"][0]["type"] == "Scheduled")
    await eventually(lambda: "reason" not in rig.get(VCJOBS, "default", "waits")["status"]["state"])


async def test_a_failed_pod_restarts_the_whole_job_until_its_attempts_are_used_up(tmp_path):
    plan = Plan([("fails-worker-1", {"start_seconds": 0.1, "fail_after": 0.2}), ("*", {"start_seconds": 0.1})])
    async with running(tmp_path, plan=plan) as rig:
        first = make(
            rig, vcjob("fails", replicas=2, policies=[{"event": "PodFailed", "action": "RestartJob"}], maxRetry=3)
        )
        versions = set()

        def failed():
            rig.bind_all("default", "fails")
            versions.update(pod["metadata"]["annotations"]["volcano.sh/job-version"] for pod in mine(rig, "fails"))
            return rig.phase("fails") == "Failed"

        await eventually(failed, within=40)
        status = rig.get(VCJOBS, "default", "fails")["status"]
        assert (status["retryCount"], status["version"]) == (3, 3)
        assert versions == {"0", "1", "2"}
        seen = [condition["status"] for condition in status["conditions"]]
        assert [phase for phase in seen if phase == "Restarting"] == ["Restarting"] * 3
        await eventually(lambda: rig.get(PODGROUPS, "default", f"fails-{first['metadata']['uid']}") is None)


async def test_a_job_whose_pods_succeed_is_completed_and_goes_after_its_time(tmp_path):
    plan = Plan([("*", {"start_seconds": 0.1, "run_seconds": 0.3})])
    async with running(tmp_path, plan=plan) as rig:
        phases: list[str] = []
        rig.store.subscribe(VCJOBS, lambda _type, job, _old: phases.append(phase_of(job)))
        make(
            rig,
            vcjob(
                "short",
                replicas=2,
                policies=[{"event": "TaskCompleted", "action": "CompleteJob"}],
                ttlSecondsAfterFinished=1,
            ),
        )
        await eventually(lambda: rig.bind_all("default", "short") == 2 or "Completed" in phases)
        await eventually(lambda: "Completed" in phases)
        await eventually(lambda: rig.get(VCJOBS, "default", "short") is None)
        await eventually(lambda: mine(rig, "short") == [])


@pytest.mark.parametrize("name", ["controller", "watcher"], ids=lambda name: f"the {name} starts anew")
async def test_a_restart_changes_nothing_that_is_settled(own_rig, name):
    from muster.controller import service as controller
    from muster.watcher import service as watcher

    rig = own_rig
    make(rig, vcjob("steady", replicas=2))
    await eventually(lambda: len(mine(rig, "steady")) == 2)
    rig.bind_all("default", "steady")
    await eventually(lambda: rig.phase("steady") == "Running")
    await eventually(lambda: (rig.get(QUEUES, None, "default").get("status") or {}).get("running") == 1)

    def settled():
        return [
            (obj["metadata"]["name"], obj["metadata"]["resourceVersion"])
            for kind in (VCJOBS, PODGROUPS, PODS, QUEUES)
            for obj in rig.store.list(kind)
        ]

    await eventually(lambda: any(reason == "Scheduled" for reason, _ in rig.events("default", "steady-worker-1")))
    before = settled()
    await rig.stop(name)
    context = rig.start(name, {"controller": controller.main, "watcher": watcher.main}[name])
    await eventually(lambda: context.ready.ready)
    make(rig, vcjob("after", replicas=1))
    await eventually(lambda: mine(rig, "after"))
    await eventually(lambda: rig.phase("after") == "Pending")
    after = dict(settled())
    assert {key: after[key] for key, _ in before if key != "default"} == {
        key: v for key, v in before if key != "default"
    }
