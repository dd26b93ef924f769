"""A policy file is changed under running services: what it says holds at once, a wrong one changes nothing."""

import asyncio

import pytest

from tests.line import Line
from tests.nats_fixtures import eventually

CLOSED = "queues:\n  train: {namespaces: [team-a]}\n"
OPEN = "queues:\n  train: {namespaces: [team-a, default]}\ntenants:\n  default: {operator: true}\n  team-b: {}\n"
WRONG = "queues:\n  train: {namespace: [team-a]}\n"


@pytest.fixture
async def line(nats_server, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(CLOSED)
    async with Line(nats_server.url, cluster="1x8", policy_path=path) as running:
        running.policy_path = path
        await running.create_queue("train")
        yield running


def valid(line, service):
    return line.contexts[service].metrics.get_sample_value("muster_policy_valid")


async def test_rules_hold_for_kubectl_too_and_end_when_the_file_says_so_while_a_wrong_file_changes_nothing(line):
    await line.create_gang("g", pods=2, cards=1, queue="train")

    async def held():
        rows = {row.gang: row for row in (await line.client.gangs()).gangs}
        return rows.get("default/g") if rows.get("default/g") and rows["default/g"].code else None

    row = await eventually(held)
    assert row.code == "NAMESPACE_NOT_ALLOWED"
    assert "queue train takes jobs of namespace team-a only, not of default" in row.message

    line.policy_path.write_text(WRONG)
    await eventually(lambda: valid(line, "scheduler") == valid(line, "controller") == 0)
    assert line.contexts["scheduler"].ready.ready
    reply = await line.client.policy()
    assert (
        "policy.yaml:2: queues.train.namespace: no key namespace is known here; did you mean namespaces?"
        in reply.problem
    )
    assert reply.policy["queues"]["train"]["namespaces"] == ["team-a"]
    assert not [pod for pod in await line.pods() if pod.spec.node_name]

    line.policy_path.write_text(OPEN)

    async def both_bound():
        return len([pod for pod in await line.pods() if pod.spec.node_name]) == 2

    await eventually(both_bound)
    assert valid(line, "scheduler") == 1
    assert (await line.client.policy()).problem == ""


async def test_what_a_tenant_may_submit_follows_the_file(line):
    line.policy_path.write_text("tenants:\n  default: {operator: true, queues: [other]}\n")
    await eventually(lambda: line.contexts["controller"].policy.tenants["default"].queues == ("other",))
    async with asyncio.timeout(30):
        refused = await line.client.submit(image="registry.example.com/x:1", gpus=1, queue="train")
        assert (await refused.wait(("Accepted", "Rejected"))).state == "Rejected"
    line.policy_path.write_text(OPEN)
    await eventually(lambda: not line.contexts["controller"].policy.tenants["default"].queues)
    async with asyncio.timeout(30):
        accepted = await line.client.submit(image="registry.example.com/x:1", gpus=1, queue="train")
        assert (await accepted.wait(("Accepted", "Rejected"))).state == "Accepted"


async def test_a_wish_that_the_queue_does_not_grant_is_said(line):
    line.policy_path.write_text(OPEN.replace("default]}", "default], non_preemptible: false}"))
    await eventually(lambda: not line.contexts["scheduler"].policy.rules("train").non_preemptible)
    await line.create_gang("g", pods=1, cards=1, queue="train", annotations={"volcano.sh/preemptable": "false"})

    async def explained():
        rows = {row.gang: row for row in (await line.client.gangs()).gangs}
        if "default/g" not in rows or not rows["default/g"].bound:
            return None
        reply = await line.client.explain("g", namespace="default")
        return [fact.text for fact in reply.facts if fact.label == "not granted"]

    told = await eventually(explained)
    assert told == ["it asks not to be preempted, but queue train does not grant that: it counts as preemptible"]
    (row,) = [row for row in (await line.client.gangs()).gangs if row.gang == "default/g"]
    assert row.preemptible
