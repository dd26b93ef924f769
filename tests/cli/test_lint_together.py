"""`muster lint` of policies, of Volcano's configuration, of files together and of a running cluster."""

import asyncio
import json

import pytest

from muster.cli import main
from muster.cli.lint_cluster import seen_in
from muster.decide.linting_queues import lint_queues
from tests.line import Line
from tests.nats_fixtures import eventually

QUEUES = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: dept}
spec: {deserved: {gpu: 10}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: train}
spec: {parent: dept, deserved: {gpu: 12}}
"""


@pytest.fixture
def lint(tmp_path, capsys):
    def run(**files):
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        code = main(["lint", str(tmp_path), "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def test_a_wrong_policy_is_told_with_every_line(lint):
    code, rows = lint(policy__yaml="packing:\n  cpu: -1\nwieght: 2\n")
    assert code == 1
    assert [(row["line"], row["field"], row["kind"]) for row in rows] == [
        (2, "packing.cpu", "problem"),
        (3, "wieght", "problem"),
    ]


def test_rules_for_an_unknown_queue_are_a_note_with_the_line_of_the_policy(lint):
    code, rows = lint(
        policy__yaml="bind_concurrency: 8\nqueues:\n  trian: {}\n", queues__yaml=QUEUES.replace("gpu: 12", "gpu: 2")
    )
    assert code == 0
    assert [(row["line"], row["kind"], row["field"]) for row in rows] == [(3, "note", "queues.trian")]
    assert "did you mean train?" in rows[0]["message"]


def test_queues_of_several_files_are_judged_together(lint):
    code, rows = lint(a__yaml=QUEUES.partition("---\n")[0], b__yaml=QUEUES.partition("---\n")[2])
    assert code == 1
    assert [(row["file"], row["field"]) for row in rows] == [("Queue dept", "spec.deserved.gpu")]


def test_a_limit_out_of_order_is_told_once(lint):
    code, rows = lint(q__yaml="apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {deserved: {gpu: 5}, capability: {gpu: 4}}\n")  # fmt: skip
    assert code == 1
    assert [row["message"] for row in rows] == ["capability 4 is below deserved 5: it could never be used"]


def test_a_misspelt_key_of_a_queue_is_told(lint):
    code, rows = lint(q__yaml="apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {deservd: {gpu: 5}}\n")  # fmt: skip
    assert code == 1
    assert "deserved" in rows[0]["message"]


def test_what_becomes_of_volcanos_configuration_is_told_line_by_line(lint):
    conf = 'actions: "allocate, preempt"\ntiers:\n- plugins:\n  - name: binpack\n    arguments: {binpack.cpu: 3}\n  - name: nope\n'
    code, rows = lint(**{"volcano-scheduler__conf": conf, "nginx__conf": "server { tiers }"})
    assert code == 0
    told = {(row["line"], row["message"].partition(":")[0]) for row in rows}
    assert {(1, "actions.preempt"), (5, "packing.cpu"), (6, "not understood")} <= told


def test_nothing_named_is_said(capsys):
    assert main(["lint"]) == 2
    assert "name files or folders, or --cluster" in capsys.readouterr().err


async def test_a_running_cluster_is_judged_by_the_policy_in_force(nats_server, capsys):
    async with Line(nats_server.url, cluster="2x8", services=("watcher", "scheduler")) as line:
        await line.create_queue("default")
        await line.create_queue("greedy", deserved={"gpu": 20}, capability={"gpu": 18})

        async def both():
            return {row.name for row in (await line.client.queues()).queues} >= {"default", "greedy"}

        await eventually(both)
        seen = await seen_in(nats_server.url, tenant="default", policy=None)
        told = {(about, finding.message) for about, finding in lint_queues(seen.surroundings)}
        assert ("Queue greedy", "capability 18 is below deserved 20: it could never be used") in told
        assert any("all nodes have 16 cards" in message for _, message in told)
        code = await asyncio.to_thread(main, ["lint", "--cluster", "--nats", nats_server.url])
        assert code == 1
        assert "Queue greedy: spec.capability.gpu: capability 18 is below deserved 20" in capsys.readouterr().out
