"""Fifteen lines with nats-py and the committed JSON Schema, and nothing of Muster, submit a job and follow it to its end."""

import asyncio
import json
import sys
from pathlib import Path

from tests.line import Line

HERE = Path(__file__).parent
SCHEMA = (HERE.parents[1] / "schemas" / "submit.json").read_text()


async def run_script(url: str, job: dict) -> list[dict]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(HERE / "submit_by_schema.py"), url, SCHEMA, json.dumps(job), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode == 0
    return [json.loads(line) for line in out.splitlines()]


async def test_a_script_without_our_client_sees_every_step_in_order(nats_server):
    async with Line(nats_server.url, cluster="2x8") as line:
        short = {"image": "registry.example.com/x:1", "gpus": 1, "replicas": 2}
        running = asyncio.create_task(run_script(nats_server.url, {"id": "first", "short": short}))
        async with asyncio.timeout(60):
            while not (pods := [pod for pod in await line.pods() if pod.status.phase == "Running"]) or len(pods) < 2:
                await asyncio.sleep(0.05)
        for pod in pods:
            line.sim.kubelets.end_pod("default", pod.metadata.name, exit_code=0)
        steps = await running
    assert [step["number"] for step in steps] == list(range(1, len(steps) + 1))
    assert [step["state"] for step in steps if step["state"] != "Queued"] == [
        "Accepted", "Scheduled", "Running", "Succeeded",
    ]  # fmt: skip
