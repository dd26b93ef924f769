"""The assembled cluster: in process, and as a process of its own."""

import asyncio
import json
import os
import signal
import sys

import aiohttp
import pytest
import yaml

from muster.simulator.__main__ import main
from muster.simulator.cluster import ClusterError
from muster.simulator.pod_plan import Plan
from muster.simulator.run import SimulatedCluster
from tests.simulator.bench import assigned

N1 = "gpu-node-01"


async def fetch(url, path=""):
    async with aiohttp.ClientSession() as session, session.get(url + path) as answer:
        assert answer.status == 200
        return await answer.text()


async def test_a_cluster_is_entered_with_ready_nodes_and_serves_them():
    async with SimulatedCluster("2x8", clock="virtual") as sim:
        nodes = json.loads(await fetch(sim.url, "/api/v1/nodes"))["items"]
        assert [node["metadata"]["name"] for node in nodes] == [N1, "gpu-node-02"]
        assert not any(node["spec"].get("taints") for node in nodes)
        kubeconfig = yaml.safe_load(sim.kubeconfig_path.read_text())
        assert kubeconfig["clusters"][0]["cluster"]["server"] == sim.url
        path = sim.kubeconfig_path
    assert not path.exists()
    with pytest.raises(aiohttp.ClientConnectionError):
        await fetch(sim.url, "/healthz")


async def test_pods_live_by_the_plan_on_the_virtual_clock():
    async with SimulatedCluster("1x8", clock="virtual", plan=Plan([("p*", {"run_seconds": 3600})]), serve=False) as sim:
        pod = {
            "metadata": {"name": "p1"},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
        }
        sim.store.create("pods", pod)
        sim.store.bind("default", "p1", {"target": {"name": N1}})
        await sim.advance(10)
        assert sim.store.get("pods", "default", "p1")["status"]["phase"] == "Running"
        await sim.advance(3600)
        assert sim.store.get("pods", "default", "p1")["status"]["phase"] == "Succeeded"


async def test_a_faster_real_clock_lives_an_hour_in_a_moment():
    async with SimulatedCluster("1x8", speed=2000, serve=False) as sim:
        pod = {
            "metadata": {"name": "p", "annotations": {"simulator.muster.dev/run-seconds": "600"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
        }
        sim.store.create("pods", pod)
        sim.store.bind("default", "p", {"target": {"name": N1}})
        async with asyncio.timeout(10):
            while sim.store.get("pods", "default", "p")["status"]["phase"] != "Succeeded":
                await asyncio.sleep(0.02)
        with pytest.raises(TypeError, match="virtual"):
            await sim.advance(1)


async def test_the_cards_are_shown_as_dcgm_shows_them():
    async with SimulatedCluster("1x2", clock="virtual", metrics_port=0, serve=False) as sim:
        container = {
            "name": "c",
            "image": "x",
            "resources": {"limits": {"volcano.sh/gpu-memory": 40960, "volcano.sh/gpu-core": 50}},
        }
        pod = {
            "metadata": {"name": "p", "annotations": {"simulator.muster.dev/utilisation": "80"}},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        sim.store.create("pods", pod)
        sim.store.bind("default", "p", {"metadata": {"annotations": assigned("1")}, "target": {"name": N1}})
        await sim.advance(5)
        lines = [line for line in (await fetch(sim.metrics_url)).splitlines() if not line.startswith("#")]

        def value(name, gpu):
            (line,) = [line for line in lines if line.startswith(name + "{") and f'gpu="{gpu}"' in line]
            return line.partition("{")[2].rpartition("} ")[::2]

        labels, busy = value("DCGM_FI_DEV_GPU_UTIL", 1)
        assert float(busy) == 40.0
        assert all(part in labels for part in ('namespace="default"', 'pod="p"', f'Hostname="{N1}"', 'UUID="GPU-'))
        assert [float(value("DCGM_FI_DEV_FB_USED", gpu)[1]) for gpu in (0, 1)] == [0.0, 40960.0]
        assert float(value("DCGM_FI_DEV_GPU_UTIL", 0)[1]) == 0.0
        sim.kubelets.lose_card(N1, 0)
        assert 'gpu="0"' not in await fetch(sim.metrics_url)


async def test_a_process_tells_where_it_is_and_stops_cleanly_on_sigterm(tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "muster.simulator",
        "--cluster",
        "2x8",
        "--port",
        "0",
        "--kubeconfig",
        str(tmp_path / "kubeconfig"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ,
    )
    try:
        async with asyncio.timeout(30):
            ready = json.loads(await process.stdout.readline())
            assert ready["kubeconfig"] == str(tmp_path / "kubeconfig")
            assert (
                yaml.safe_load((tmp_path / "kubeconfig").read_text())["clusters"][0]["cluster"]["server"]
                == ready["url"]
            )
            assert len(json.loads(await fetch(ready["url"], "/api/v1/nodes"))["items"]) == 2
            process.send_signal(signal.SIGTERM)
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, output, errors) == (0, b"", b"")


def test_a_wrong_cluster_is_an_error_with_its_reason(capsys):
    assert main(["--cluster", "10y8"]) == 2
    assert "10x8" in capsys.readouterr().err


def test_a_clock_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="sundial"):
        SimulatedCluster("1x1", clock="sundial")
    with pytest.raises(ClusterError):
        SimulatedCluster("no-such-file.yaml")
