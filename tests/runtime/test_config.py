"""Configuration from the environment, policy files, logs, and a service's start and stop."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest

from muster.model.policy import Policy
from muster.runtime import Readiness, ServiceConfig, run_service
from muster.runtime.config import ConfigError
from muster.runtime.logs import redact
from muster.runtime.policy_file import PolicyError, load_policy, parse_policy


def test_nothing_set_gives_the_defaults_and_kubeconfig_is_not_read():
    config = ServiceConfig.from_environment({"KUBECONFIG": "/somewhere"})
    assert (config.nats_url, config.kubeconfig, config.in_cluster) == ("nats://127.0.0.1:4222", None, False)


def test_variables_are_read_with_their_types():
    config = ServiceConfig.from_environment(
        {
            "MUSTER_KUBECONFIG": "/k",
            "MUSTER_METRICS_PORT": "9100",
            "MUSTER_IN_CLUSTER": "true",
            "MUSTER_LEASE_DURATION": "6",
        }
    )
    assert (config.kubeconfig, config.metrics_port, config.in_cluster) == (Path("/k"), 9100, True)
    assert (config.lease.duration, config.lease.renew) == (6.0, 5.0)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("MUSTER_METRICS_PORT", "many"),
        ("MUSTER_IN_CLUSTER", "perhaps"),
        ("MUSTER_LOG_FORMAT", "xml"),
        ("MUSTER_LEASE_RENEW", "x"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value(variable, value):
    with pytest.raises(ConfigError, match=f"{variable}='{value}'"):
        ServiceConfig.from_environment({variable: value})


def test_two_processes_never_share_an_identity():
    assert ServiceConfig().identity != ServiceConfig().identity


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("actions: [", "policy.yaml:1: not YAML", id="no YAML: the line"),
        pytest.param("schedulerName: x", "schedulerName", id="an unknown key"),
        pytest.param("actions: {bind: maybe}", "actions.bind", id="a value that is none of the choices"),
        pytest.param("bind_concurrency: many", "bind_concurrency", id="a wrong type"),
        pytest.param("[]", "policy.yaml", id="no mapping"),
    ],
)
def test_a_wrong_policy_is_refused_with_place_and_reason(text, told):
    with pytest.raises(PolicyError) as caught:
        parse_policy(text or "x", source="policy.yaml")
    assert told in str(caught.value)


def test_a_policy_file_changes_only_what_it_names(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("aliases: []\ntimeouts: {start: 10}\n")
    policy = load_policy(path)
    assert (policy.aliases, policy.timeouts.start, policy.timeouts.bind) == ((), 10.0, Policy().timeouts.bind)
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(tmp_path / "none.yaml")


def test_what_sounds_like_a_secret_never_reaches_a_log():
    event = redact(None, "info", {"event": "x", "bearer_token": "abc", "Password": "p", "gang": "g"})
    assert event == {"event": "x", "bearer_token": "[redacted]", "Password": "[redacted]", "gang": "g"}


def test_ready_means_that_every_named_condition_holds():
    readiness = Readiness()
    assert not readiness.ready
    readiness.set("state", True)
    readiness.set("nats", False)
    assert (readiness.ready, readiness.missing()) == (False, ["nats"])
    readiness.set("nats", True)
    assert readiness.ready


async def served(tmp_path, main):
    """Run a service as a task; returns the task and its base URL."""
    task = asyncio.create_task(run_service("test", main, ServiceConfig(ports_directory=tmp_path)))
    while not (found := list(tmp_path.glob("test-*.port"))):
        assert not task.done()
        await asyncio.sleep(0.01)
    import msgspec

    return task, f"http://127.0.0.1:{msgspec.json.decode(found[0].read_bytes())['port']}"


async def test_a_service_serves_health_and_metrics_and_ends_at_sigterm(tmp_path):
    async def main(context):
        context.ready.set("work", False)
        await asyncio.sleep(0.05)
        context.ready.set("work", True)
        await context.stopping.wait()

    task, url = await served(tmp_path, main)
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        while True:
            async with session.get(f"{url}/readyz") as answer:
                if answer.status == 200:
                    break
                assert "work" in await answer.text() or "start" in await answer.text()
        async with session.get(f"{url}/metrics") as answer:
            assert "muster_build_info" in await answer.text()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await task == 0
    assert not list(tmp_path.glob("*.port"))


async def test_a_service_that_fails_ends_with_1(tmp_path):
    async def main(context):
        raise RuntimeError("broken")

    assert await run_service("test", main, ServiceConfig()) == 1
