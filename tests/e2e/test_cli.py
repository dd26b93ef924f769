"""`muster up` as a real process, and every other command against it, each a process of its own."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from tests.nats_fixtures import eventually

HERE = Path(__file__).parent
SCENARIOS = HERE.parent / "scenarios" / "files"
SECONDS = 60
KEY = re.compile(r"\b[a-z]+(_[a-z]+)+\b|\b[A-Z]+(_[A-Z]+)+\b")
"""Names of fields and codes, which nobody but a program should have to read."""


class Done(NamedTuple):
    code: int
    out: str
    error: str

    def json(self) -> Any:
        assert self.code == 0, self.error
        return json.loads(self.out)


class Shell:
    """A directory in which somebody works, whose KUBECONFIG leads to a cluster that must never be touched."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        poison = directory / "poison"
        poison.write_text("{this is no kubeconfig")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("MUSTER_") or name == "MUSTER_NATS_SERVER"
        }
        self.environ = {**kept, "KUBECONFIG": str(poison)}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "muster",
            *arguments,
            cwd=self.directory,
            env=self.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def __call__(self, *arguments: str) -> Done:
        process = await self.start(*arguments)
        async with asyncio.timeout(SECONDS):
            out, error = await process.communicate()
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), error.decode())

    async def job(self, name: str) -> dict[str, Any]:
        (row,) = (await self("get", name, "--json")).json()
        return row

    async def until(self, name: str, state: str) -> dict[str, Any]:
        async def reached():
            row = await self.job(name)
            return row if row["state"] == state else None

        return await eventually(reached, within=30, every=0.2)


def descendants(pid: int) -> set[int]:
    """Every living process below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def alive(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def up(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Shell, asyncio.subprocess.Process]]:
    shell = Shell(tmp_path_factory.mktemp("cli"))
    process = await shell.start("up", "--simulate", "2x8", "--run-seconds", "0", "--json")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(SECONDS):
            line = await process.stdout.readline()
        assert line, (await process.stderr.read()).decode()  # type: ignore[union-attr]
        assert json.loads(line)["pid"] == process.pid
        yield shell, process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


@pytest.fixture
def muster(up: tuple[Shell, asyncio.subprocess.Process]) -> Shell:
    return up[0]


def image(*words: str) -> tuple[str, ...]:
    return ("--image", "registry.example.com/llm:3", *words)


async def test_a_second_stack_in_the_same_directory_is_refused(muster: Shell):
    done = await muster("up", "--simulate", "2x8")
    assert (done.code, done.out) == (2, "")
    assert done.error == "a Muster runs already with .muster; name another --state-dir\n"


async def test_submit_says_what_was_submitted_and_what_to_do_next(muster: Shell):
    done = await muster(
        "submit",
        *image("--gpus", "8", "--replicas", "2", "--name", "whole", "--id", "first"),
        "--",
        "python",
        "train.py",
    )
    assert done.code == 0, done.error
    assert re.match(r"submitted  default/whole-\w+  2 × 8 cards  \(id first\)\n", done.out)
    assert done.error == "follow it: muster get first --watch      ask why it waits: muster explain first\n"
    row = await muster.until("first", "Running")
    assert (row["members"], row["bound"], row["cards"]) == (2, 2, 16_000_000)


async def test_submit_wait_prints_every_step_and_succeeds_with_the_job(muster: Shell):
    manifest = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "short"},
        "spec": {
            "minAvailable": 1,
            "tasks": [
                {
                    "name": "main",
                    "replicas": 1,
                    "template": {
                        "metadata": {"annotations": {"simulator.muster.dev/run-seconds": "0.5"}},
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [{"name": "c", "image": "registry.example.com/x:1"}],
                        },
                    },
                }
            ],
        },
    }
    (muster.directory / "job.json").write_text(json.dumps(manifest))
    done = await muster("submit", "job.json", "--wait", "--json")
    assert done.code == 0, done.error
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert [event["state"] for event in events if event["state"] != "Queued"] == [
        "Accepted",
        "Scheduled",
        "Running",
        "Succeeded",
    ]


async def test_a_bad_submission_is_refused_field_by_field(muster: Shell):
    done = await muster("submit", *image("--gpu-memory", "12", "--queue", "nowhere"))
    assert (done.code, done.out) == (2, "")
    assert "12 is 12 MiB" in done.error
    assert "Did you mean 12288 (12 GiB)?" in done.error
    assert "nowhere" in done.error
    assert done.error.endswith("nothing was submitted\n")


async def test_explain_names_what_it_asks_what_there_is_and_who_has_the_rest(muster: Shell):
    done = await muster("submit", *image("--gpus", "4", "--replicas", "3", "--name", "late", "--id", "second"))
    assert done.code == 0, done.error
    await eventually(waits(muster, "second"), within=30, every=0.2)
    told = await muster("explain", "second")
    assert told.code == 0
    head, *lines = told.out.splitlines()
    assert re.match(r"default/late-\w+ waits for room \(1st in default\)$", head)
    assert all(len(line) <= 100 for line in lines)
    facts = facts_of(lines)
    assert facts["asks"] == "3 pods × 4 cards, all together"
    assert facts["best fit"].startswith("room for 0 of 3 pods; gpu-node-0")
    assert re.search(r"gpu-node-0\d is held by whole-\w+ of default \(8 cards, same priority\)", facts["best fit"])
    assert facts["queue"].startswith("default uses 16 cards (no cap): it deserves none for certain, so no other queue")
    assert re.search(r"\d\d:\d\d waits: not enough room", facts["history"])
    assert not KEY.search(told.out), told.out
    assert (await muster("explain", "late")).out.splitlines()[0] == head
    assert "default/late-" in (await muster("get", "late")).out
    reply = (await muster("explain", "second", "--json")).json()
    assert (reply["state"], reply["code"], reply["position"]) == ("Waiting", "NOT_ENOUGH_ROOM", 1)
    assert reply["numbers"]["asked"] == 3


async def test_explain_of_what_can_never_run_says_so_and_what_would_cure_it(muster: Shell):
    done = await muster("submit", *image("--gpus", "8", "--replicas", "3", "--name", "huge", "--id", "third"))
    assert done.code == 0, done.error
    await eventually(waits(muster, "third"), within=30, every=0.2)
    told = (await muster("explain", "third")).out
    head, *lines = told.splitlines()
    assert re.match(r"default/huge-\w+ can never run as it is: asks 3 pods × 8 cards together; ", head)
    assert "fix it    let at most 2 pods start together" in "\n".join(lines)
    assert not KEY.search(told), told
    await muster("cancel", "third")
    await muster("get", "third", "--watch")


def facts_of(lines: list[str]) -> dict[str, str]:
    """Facts by label, with lines that go on joined."""
    facts: dict[str, str] = {}
    for line in lines:
        label, text = line[2:10].strip(), line[10:].strip()
        last = label or next(reversed(facts))
        facts[last] = f"{facts.get(last, '')} {text}".strip()
    return facts


def waits(muster: Shell, name: str):
    async def told():
        return (await muster.job(name)).get("code")

    return told


async def test_explain_of_a_running_job_names_its_nodes(muster: Shell):
    told = await muster("explain", "first")
    assert told.code == 0
    assert re.match(r"default/whole-\w+ is running\n", told.out)
    assert "runs on" in told.out
    assert "gpu-node-01, gpu-node-02" in told.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("explain", "nobody"), "no job 'nobody' is known; muster get --all", id="explain"),
        pytest.param(("get", "nobody"), "no job 'nobody'; muster get --all lists every job", id="get"),
        pytest.param(("get", "queue", "nobody"), "no queue 'nobody'", id="get a queue"),
        pytest.param(("get", "node", "nobody"), "no node or domain 'nobody'", id="get a node"),
        pytest.param(("dlq", "show", "7"), "there is no dead letter 7; `muster dlq list` tells", id="a dead letter"),
    ],
)
async def test_what_is_not_there_is_said_in_a_sentence(muster: Shell, arguments, told):
    done = await muster(*arguments)
    assert (done.code, done.out) == (1, "")
    assert done.error.startswith(told)
    assert "Traceback" not in done.error


async def test_get_shows_jobs_nodes_and_queues_for_people_and_for_programs(muster: Shell):
    jobs = await muster("get")
    assert jobs.out.splitlines()[0].split() == ["JOB", "QUEUE", "STATE", "PODS", "CARDS", "NODES", "AGE", "WHY"]
    assert re.search(r"default/whole-\w+ +default +Running +2/2 +16 ", jobs.out)
    assert re.search(r"default/late-\w+ +default +Waiting +0/3 +12 ", jobs.out)
    assert {row["state"] for row in (await muster("get", "--json")).json()} == {"Running", "Waiting"}
    nodes = await muster("get", "nodes")
    assert nodes.out.count("████████") == 2
    assert "16 of 16 cards used" in nodes.out
    reply = (await muster("get", "nodes", "--json")).json()
    assert (reply["total_cards"], reply["used_cards"]) == (16_000_000, 16_000_000)
    queues = await muster("get", "queues")
    assert re.search(r"^default +16 ", queues.out, re.MULTILINE)
    assert re.search(r"^root +16 ", queues.out, re.MULTILINE)
    assert "1 gang, 12 cards" in queues.out
    rows = {row["name"]: row for row in (await muster("get", "queues", "--json")).json()["queues"]}
    assert (rows["default"]["used"], rows["default"]["pending"]) == (16_000_000, 12_000_000)


async def test_cancel_ends_the_job_and_lets_the_next_one_in(muster: Shell):
    watch = await muster.start("get", "first", "--watch", "--json")
    done = await muster("cancel", "first", "--reason", "wrong data set", "--json")
    assert done.json() == {"id": "first", "cancel": "handed in", "known": True}
    async with asyncio.timeout(SECONDS):
        out, _ = await watch.communicate()
    last = json.loads(out.splitlines()[-1])
    assert (last["state"], last["message"]) == ("Cancelled", "wrong data set")
    assert watch.returncode == 1
    await muster.until("second", "Running")
    everything = await muster("get", "--all")
    assert not re.search(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}", everything.out)


async def test_commands_that_need_no_cluster(muster: Shell):
    assert (await muster("dlq", "--json")).json() == []
    good = await muster("lint", str(HERE / "manifests" / "07-vcjob-with-policy.yaml"), "--json")
    assert good.json() == []
    bad = await muster("lint", str(HERE / "manifests" / "11-unit-trap.yaml"), "--json")
    assert bad.code == 1
    assert "Did you mean 12288" in json.loads(bad.out)[0]["message"]
    path = SCENARIOS / "gang" / "two-pods-over-two-single-card-nodes.yaml"
    scenario = await muster("scenario", str(path), "--json")
    assert scenario.code == 0, scenario.out + scenario.error
    assert json.loads(scenario.out)


async def test_a_service_without_a_cluster_says_what_it_needs_and_leaves_kubeconfig_alone(muster: Shell):
    done = await muster("service", "scheduler")
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith("which cluster? Set MUSTER_KUBECONFIG")
    assert "KUBECONFIG is not read" in done.error


async def test_ctrl_c_leaves_no_process_and_no_address_behind(up):
    muster, process = up
    below = descendants(process.pid)
    assert len(below) >= 5, "NATS, the simulated cluster and three services"
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(SECONDS):
        _, error = await process.communicate()
    assert process.returncode == 0
    assert error.decode().splitlines()[-1] == "stopped; nothing is left running"
    assert not [pid for pid in below if alive(pid)]
    assert not (muster.directory / ".muster" / "up.json").exists()
    done = await muster("get")
    assert done.code == 2
    assert done.error.startswith("no Muster found")
