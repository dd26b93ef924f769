"""Real processes killed with SIGKILL in the middle of a preemption."""

import signal

import pytest

from muster import client
from muster.cli.stack import Stack
from muster.decide.warnings import EVICT_AT
from muster.kube.config import connect as connect_kube
from muster.kube.writer import Writer
from muster.model.durations import parse_moment
from tests.nats_fixtures import eventually
from tests.preemptor.test_jobs import job

LEASE = {"MUSTER_LEASE_DURATION": "6", "MUSTER_LEASE_RENEW": "2", "MUSTER_LEASE_WRITE_TIMEOUT": "2"}


@pytest.mark.chaos
async def test_kill_nine_of_preemptor_and_scheduler_between_warning_and_eviction_costs_nobody_anything(tmp_path):
    async with (
        Stack(tmp_path, cluster="2x8", environ=LEASE) as stack,
        client.connect(stack.nats.url) as muster,
        await connect_kube(kubeconfig=stack.kubeconfig, user_agent="test") as kube,
    ):
        writer = Writer(kube)
        for name, value in (("urgent", 1000), ("low", 1)):
            await writer.create("priorityclasses.scheduling.k8s.io", None, {"metadata": {"name": name}, "value": value})
        document = job("low", replicas=2, priority="low")
        document["metadata"]["annotations"] = {"muster.dev/preemption-grace": "5s"}
        low = await muster.submit(id="low", manifest=document)
        async for event in low.follow():
            if event.state == "Running":
                break
        await muster.submit(id="urgent", manifest=job("urgent", replicas=1, priority="urgent", run_seconds=3))
        warned = await eventually(lambda: warnings(writer))
        stack.service("preemptor").signal(signal.SIGKILL)
        stack.service("scheduler").signal(signal.SIGKILL)
        states = []
        async for event in low.follow():
            states.append(event)
            if event.state in {"Resumed", "Succeeded", "Failed"}:
                break
        assert [event.state for event in states][-1] == "Resumed"
        left = next(event for event in states if event.state == "Preempted")
        assert left.at >= max(warned)


async def warnings(writer):
    """When the pods of `low` are to leave, once all of them say so."""
    pods = await writer.list("pods", "default")
    told = [parse_moment(pod.metadata.annotations[EVICT_AT]) for pod in pods if EVICT_AT in pod.metadata.annotations]
    return told if len(told) == 2 else None
