"""The shared manifests, where present: what the controller makes of each (placing is the scheduler's)."""

import os
from pathlib import Path

import pytest
import yaml

from tests.controller.conftest import BATCH_JOBS, PODGROUPS, QUEUES, VCJOBS
from tests.nats_fixtures import eventually

SHARED = Path(os.environ.get("MUSTER_SHARED_MANIFESTS", Path(__file__).parents[3] / "shared" / "manifests"))
RESOURCES = {
    "Queue": (QUEUES, False),
    "PriorityClass": ("priorityclasses.scheduling.k8s.io", False),
    "Namespace": ("namespaces", False),
    "PodGroup": (PODGROUPS, True),
}
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared manifests are not here")


def apply(rig, number):
    made = []
    for document in yaml.safe_load_all(next(SHARED.glob(f"{number}-*.yaml")).read_text()):
        jobs = BATCH_JOBS if document["apiVersion"] == "batch/v1" else VCJOBS
        resource, namespaced = RESOURCES.get(document["kind"], (jobs, True))
        namespace = document["metadata"].setdefault("namespace", "default") if namespaced else None
        made.append(rig.store.create(resource, document, namespace=namespace))
    return made


def mine(rig, prefix):
    return [pod for pod in rig.pods("default") if pod["metadata"]["name"].startswith(prefix)]


def limits(pod):
    return pod["spec"]["containers"][0]["resources"]["limits"]


async def test_01_and_02_queues_are_open_and_known(rig):
    apply(rig, "01")
    apply(rig, "02")
    for name in ("train-prod", "train-dev"):
        await eventually(lambda name=name: (rig.get(QUEUES, None, name).get("status") or {}).get("state") == "Open")


async def test_04_the_job_gets_its_own_podgroup_and_the_other_stays_pending_and_empty(rig):
    _, job = apply(rig, "04")
    (pod,) = await eventually(lambda: mine(rig, "train-job-gpu-task"))
    assert limits(pod) == {"volcano.sh/gpu-memory": "5120", "volcano.sh/gpu-core": "30"}
    assert rig.get(PODGROUPS, "default", f"train-job-{job['metadata']['uid']}")
    await eventually(
        lambda: (rig.get(PODGROUPS, "default", "train-job-pg").get("status") or {}).get("phase") == "Pending"
    )
    await eventually(lambda: any(reason == "CardsRewritten" for reason, _ in rig.events("default", "train-job")))


async def test_05_a_zero_card_beside_a_share_is_a_share(rig):
    apply(rig, "05")
    pods = await eventually(lambda: len(mine(rig, "share-")) == 2 and mine(rig, "share-"))
    assert [limits(pod) for pod in pods] == [{"volcano.sh/gpu-memory": "12288"}, {"volcano.sh/gpu-memory": "8192"}]


async def test_06_a_batch_job_with_annotations_is_one_gang(rig):
    (job,) = apply(rig, "06")
    group = await eventually(lambda: rig.get(PODGROUPS, "default", f"podgroup-{job['metadata']['uid']}"))
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (4, "train-prod")
    await eventually(lambda: len(mine(rig, "bert-train-job")) == 8)


async def test_07_a_vcjob_with_a_policy_has_four_pods_whose_end_matters(rig):
    apply(rig, "07")
    pods = await eventually(lambda: len(mine(rig, "bert-train-vcjob")) == 4 and mine(rig, "bert-train-vcjob"))
    assert {pod["spec"]["restartPolicy"] for pod in pods} == {"Never"}
    assert {pod["metadata"]["annotations"]["volcano.sh/queue-name"] for pod in pods} == {"train-prod"}


async def test_08_the_namespaces_queue_is_taken(rig):
    apply(rig, "08")
    spec = {
        "schedulerName": "volcano",
        "tasks": [{"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}}}],
    }
    document = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "quiet", "namespace": "ai-training"},
        "spec": spec,
    }
    rig.store.create(VCJOBS, document, namespace="ai-training")
    (group,) = await eventually(lambda: rig.store.list(PODGROUPS, "ai-training"))
    assert group["spec"]["queue"] == "train-prod"


async def test_11_the_unit_trap_is_held_with_a_proposal(rig):
    apply(rig, "11")
    await eventually(lambda: rig.phase("unit-trap") == "Pending")
    state = rig.get(VCJOBS, "default", "unit-trap")["status"]["state"]
    assert "Did you mean 12288 (12 GiB)?" in state["message"]
    assert mine(rig, "unit-trap") == []
