"""The stock kubectl, where it is installed, works against the server."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.contract.api import Api

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


class Kubectl:
    """Runs kubectl in the suite's namespace."""

    def __init__(self, api: Api, kubeconfig: str, cache: Path) -> None:
        self.api = api
        self._arguments = [f"--kubeconfig={kubeconfig}", f"--namespace={api.namespace}", f"--cache-dir={cache}"]

    async def __call__(self, *arguments: str, stdin: Any = None, fails: bool = False) -> str:
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            *self._arguments,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(json.dumps(stdin).encode() if stdin is not None else b"")
        text = out.decode()
        assert (process.returncode != 0) is fails, f"kubectl {' '.join(arguments)}: {text}{err.decode()}"
        return err.decode() if fails else text


@pytest.fixture
def kubectl(api: Api, kubeconfig: str, tmp_path: Path) -> Kubectl:
    return Kubectl(api, kubeconfig, tmp_path)


async def test_apply_creates_then_changes_then_leaves_alone(api: Api, kubectl: Kubectl):
    name = api.name("applied")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": api.metadata(name), "data": {"a": "1", "b": "1"}}
    assert "created" in await kubectl("apply", "-f", "-", stdin=body)
    body["data"] = {"a": "2"}
    assert "configured" in await kubectl("apply", "-f", "-", stdin=body)
    assert (await api.get(api.core("configmaps", name))).ok().body["data"] == {"a": "2"}
    assert "unchanged" in await kubectl("apply", "-f", "-", stdin=body)


async def test_apply_refuses_a_misspelt_field(api: Api, kubectl: Kubectl):
    body = api.pod_body(api.name("misspelt"), containerz=[])
    assert 'unknown field "spec.containerz"' in await kubectl("apply", "-f", "-", stdin=body, fails=True)


async def test_get_prints_a_table_a_name_and_json(api: Api, kubectl: Kubectl):
    pod = await api.create_pod("shown")
    name = pod["metadata"]["name"]
    header, row = (await kubectl("get", "pods", name)).splitlines()
    assert header.split()[:3] == ["NAME", "READY", "STATUS"]
    assert row.split()[:3] == [name, "0/1", "Pending"]
    assert (await kubectl("get", "po", name, "-o", "name")).strip() == f"pod/{name}"
    assert json.loads(await kubectl("get", "pod", name, "-o", "json"))["metadata"]["uid"] == pod["metadata"]["uid"]
    assert "NotFound" in await kubectl("get", "pod", "none", fails=True)


async def test_wait_returns_when_the_condition_holds_and_when_the_object_is_gone(api: Api, kubectl: Kubectl):
    pod = await api.create_pod("waited")
    name = pod["metadata"]["name"]
    waiting = asyncio.create_task(kubectl("wait", f"pod/{name}", "--for=condition=PodScheduled", "--timeout=30s"))
    await asyncio.sleep(0)
    assert (await api.bind(name, "muster-contract-none")).status == 201
    assert "condition met" in await waiting
    waiting = asyncio.create_task(kubectl("wait", f"pod/{name}", "--for=delete", "--timeout=30s"))
    (await api.delete(api.pod(name), {"gracePeriodSeconds": 0})).ok()
    await waiting


async def test_patch_label_annotate_and_cordon(api: Api, kubectl: Kubectl):
    node = (await api.create_node("kubectl", unschedulable=False))["metadata"]["name"]
    await kubectl("cordon", node)
    await kubectl("label", "node", node, "zone=a")
    await kubectl("annotate", "node", node, "muster.dev/note=b")
    await kubectl("patch", "node", node, "--type=merge", "-p", '{"metadata":{"annotations":{"muster.dev/other":"c"}}}')
    await kubectl("taint", "node", node, "contract.muster.dev/extra=d:NoSchedule")
    seen = (await api.get(api.node(node))).ok().body
    assert seen["spec"]["unschedulable"] is True
    assert seen["metadata"]["labels"]["zone"] == "a"
    assert (
        seen["metadata"]["annotations"]["muster.dev/note"],
        seen["metadata"]["annotations"]["muster.dev/other"],
    ) == ("b", "c")
    assert "contract.muster.dev/extra" in {taint["key"] for taint in seen["spec"]["taints"]}
    assert "SchedulingDisabled" in await kubectl("get", "node", node)
    await kubectl("uncordon", node)
    assert not (await api.get(api.node(node))).ok().body["spec"].get("unschedulable")


async def test_create_describe_events_and_delete(api: Api, kubectl: Kubectl):
    body = api.pod_body(api.name("described"))
    name = body["metadata"]["name"]
    assert "created" in await kubectl("create", "-f", "-", stdin=body)
    assert "AlreadyExists" in await kubectl("create", "-f", "-", stdin=body, fails=True)
    assert name in await kubectl("describe", "pod", name)
    await kubectl("delete", "pod", name, "--wait=true", "--timeout=30s")
    (await api.get(api.pod(name))).refused(404, "NotFound")


async def test_api_resources_and_explain_know_the_kinds(kubectl: Kubectl):
    listed = await kubectl("api-resources")
    assert "poddisruptionbudgets" in listed
    assert "priorityclasses" in listed
