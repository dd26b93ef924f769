"""Submissions over NATS, from the message to the end of the job: taken once, told without gaps, refused precisely."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from muster.bus.messages import StatusEvent
from muster.bus.server import EmbeddedServer
from muster.bus.streams import StreamName
from muster.bus.subjects import jobs_cancel, jobs_submit
from muster.bus.submissions import Submissions
from muster.cli import build_parser
from tests.line import Line
from tests.nats_fixtures import eventually

HERE = Path(__file__).parent
SCHEMA = HERE.parents[1] / "schemas" / "submit.json"
SCRIPT = HERE / "submit_by_schema.py"
VCJOBS = "jobs.batch.volcano.sh"
BURST = 500


class Rig:
    """The line, its NATS server, and JSON as a program without our client sends it."""

    def __init__(self, line: Line, server: EmbeddedServer) -> None:
        self.line = line
        self.server = server
        self.store = line.sim.store

    async def send(self, document: Any, *, tenant: str = "default") -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        await self.line.bus.publish(jobs_submit(tenant), body)

    async def cancel(self, submission_id: str) -> None:
        await self.line.bus.publish(jobs_cancel("default"), json.dumps({"id": submission_id}).encode())

    async def events(self, submission_id: str, *, until: str) -> list[StatusEvent]:
        """Every event up to the first in this state; numbered from 1 without gaps."""
        events: list[StatusEvent] = []
        async with asyncio.timeout(30):
            async for event in self.line.client.follow(submission_id):
                events.append(event)
                if event.state == until:
                    break
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert events[-1].state == until, [(event.state, event.message) for event in events]
        return events

    def jobs(self, submission_id: str) -> list[dict[str, Any]]:
        return [
            job
            for job in self.store.list(VCJOBS)
            if job["metadata"]["annotations"]["muster.dev/submission"] == submission_id
        ]

    def pods(self, job: str) -> list[dict[str, Any]]:
        return [pod for pod in self.store.list("pods") if pod["metadata"]["name"].startswith(f"{job}-")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rig]:
    async with (
        EmbeddedServer(store_dir=tmp_path_factory.mktemp("submissions") / "nats") as server,
        Line(server.url, cluster="2x8", speed=10.0) as line,
    ):
        yield Rig(line, server)
        assert not line.sim.kubelets.violations


def short(submission_id: str, **fields: Any) -> dict[str, Any]:
    return {"id": submission_id, "short": {"image": "registry.example.com/llm:3", **fields}}


async def test_a_few_lines_with_nats_py_and_the_schema_submit_a_job_and_follow_it_to_its_end(rig: Rig):
    lines = [line for line in SCRIPT.read_text().splitlines() if line.strip()]
    assert len(lines) <= 15
    assert not any("muster" in line for line in lines if "import" in line)
    rig.line.sim.kubelets.plan.add("followed-*", {"run_seconds": 2.0})
    job = {**short("by-schema", gpus=4, replicas=2, command=["python", "train.py"]), "name": "followed"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), rig.server.url, SCHEMA.read_text(), json.dumps(job), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    assert process.returncode == 0
    told = [json.loads(line) for line in out.decode().splitlines()]
    assert [event["number"] for event in told] == list(range(1, len(told) + 1))
    # How long it waits is the machine's matter; whether it is told of with the first step or not, nothing else is left out.
    steps = [event["state"] for event in told if event["state"] != "Queued"]
    assert steps == ["Accepted", "Scheduled", "Running", "Succeeded"]
    assert all(event["job"] == told[0]["job"] for event in told)
    assert [event["at"] for event in told] == sorted(event["at"] for event in told)


async def test_one_id_makes_one_job_however_often_it_is_sent_and_across_a_crash_of_nats(rig: Rig):
    job = {**short("once", gpus=1), "name": "once"}
    await rig.send(job)
    await rig.send(job)
    await rig.events("once", until="Running")
    assert len(rig.jobs("once")) == 1
    await rig.server.kill()
    await rig.server.start()
    await eventually(lambda: rig.line.bus.connected)
    await rig.send(job)
    await rig.send({**short("after-the-crash", gpus=1), "name": "after"})
    await rig.events("after-the-crash", until="Running")
    assert len(rig.jobs("once")) == 1
    events = await rig.events("once", until="Running")
    counted = Counter(event.state for event in events if event.state != "Queued")
    assert counted == {"Accepted": 1, "Scheduled": 1, "Running": 1}
    for name in ("once", "after-the-crash"):
        await rig.cancel(name)
        await rig.events(name, until="Cancelled")


async def test_a_cancellation_that_comes_first_keeps_the_job_from_starting(rig: Rig):
    await rig.cancel("changed-my-mind")
    await rig.send({**short("changed-my-mind", gpus=1), "name": "never"})
    (event,) = await rig.events("changed-my-mind", until="Cancelled")
    assert event.number == 1
    await rig.send({**short("behind-it", gpus=1), "name": "behind"})
    await rig.events("behind-it", until="Running")
    assert not rig.jobs("changed-my-mind")
    assert not rig.pods("never")
    await rig.cancel("behind-it")
    await rig.events("behind-it", until="Cancelled")


async def test_a_cancellation_while_it_runs_and_while_it_waits_removes_the_job(rig: Rig):
    await rig.send({**short("runs", gpus=8, replicas=2), "name": "runs"})
    await rig.events("runs", until="Running")
    await rig.send({**short("waits", gpus=8), "name": "waits"})

    async def reason():
        rows = (await rig.line.client.gangs()).gangs
        return next((row.message for row in rows if row.gang.startswith("default/waits")), "")

    await eventually(reason)
    await rig.cancel("waits")
    waited = await rig.events("waits", until="Cancelled")
    assert [event.state for event in waited if event.state != "Queued"] == ["Accepted", "Cancelled"]
    await eventually(lambda: not rig.jobs("waits") and not rig.pods("waits"))
    assert len(rig.pods("runs")) == 2
    await rig.cancel("runs")
    await rig.events("runs", until="Cancelled")
    await eventually(lambda: not rig.jobs("runs") and not rig.pods("runs"))


BAD = [
    pytest.param({"gpuss": 1}, "short.gpuss", "did you mean gpus?", id="a misspelt field"),
    pytest.param({"image": "two words"}, "short.image", "without spaces", id="an image with a space"),
    pytest.param({"gpus": -1}, "short.gpus", "-1 is below 0", id="less than no card"),
    pytest.param({"gpus": 1, "gpu_memory_mib": 5120}, "short.gpus", "not both", id="whole cards and a share"),
    pytest.param({"gpu_memory_mib": 12}, "short.gpu_memory_mib", "Did you mean 12288", id="GiB where MiB are meant"),
    pytest.param({"gpu_core_percent": 150}, "short.gpu_core_percent", "150 is above 100", id="more than all of a core"),
    pytest.param({"memory": "64 GB"}, "short.memory", "", id="an amount that Kubernetes does not know"),
    pytest.param({"replicas": 2, "min_available": 3}, "short.min_available", "replicas (2)", id="a minimum above all"),
    pytest.param({"queue": "nowhere"}, "short.queue", "there are default", id="a queue that is not there"),
    pytest.param({"priority_class": "urgent"}, "short.priority_class", "there are", id="a class that is not there"),
    pytest.param({"topology": "galaxy"}, "short.topology", "rack", id="a level that is not there"),
    pytest.param({"annotations": {"a.example/b": "c"}}, "short.annotations", "only muster.dev/", id="an annotation of others"),
    pytest.param({"env": {"1 2": "x"}}, "short.env", "no name of an environment variable", id="a variable without a name"),
]  # fmt: skip
WHOLE = [
    pytest.param({"namespace": "nowhere"}, "namespace", "namespace", id="a namespace that is not there"),
    pytest.param({"manifest": {}}, "message", "exactly one of `short` and `manifest`; both", id="both forms"),
    pytest.param(
        {"short": None, "manifest": {"apiVersion": "apps/v1", "kind": "Deployment"}},
        "manifest.kind",
        "only batch.volcano.sh/v1alpha1 Job and batch/v1 Job can be submitted",
        id="a manifest that is no job",
    ),
    pytest.param({"name": "Not_A_Name"}, "name", "", id="a name that Kubernetes refuses"),
]


async def refused(rig: Rig, document: dict[str, Any]) -> list[dict[str, str]]:
    """The field errors of a submission that left nothing behind."""
    before = {kind: len(rig.store.list(kind)) for kind in (VCJOBS, "jobs.batch", "pods")}
    await rig.send(document)
    (event,) = await rig.events(document["id"], until="Rejected")
    found = await Submissions(rig.line.bus).find("default", document["id"])
    assert found is not None
    assert (found.outcome.state, found.outcome.job, found.outcome.uid) == ("rejected", "", "")
    assert {kind: len(rig.store.list(kind)) for kind in before} == before
    return list(event.details["errors"])


@pytest.mark.parametrize(("fields", "field", "told"), BAD)
async def test_a_bad_short_form_is_refused_with_its_field_and_leaves_nothing(rig: Rig, request, fields, field, told):
    document = short("bad-" + request.node.callspec.id.replace(" ", "-"), **fields)
    (error,) = await refused(rig, document)
    assert error["field"] == field
    assert told in error["message"]
    assert error["message"]


@pytest.mark.parametrize(("fields", "field", "told"), WHOLE)
async def test_a_bad_submission_is_refused_with_its_field_and_leaves_nothing(rig: Rig, request, fields, field, told):
    document = {**short("bad-" + request.node.callspec.id.replace(" ", "-")), **fields}
    errors = await refused(rig, {key: value for key, value in document.items() if value is not None})
    assert [error["field"] for error in errors] == [field]
    assert told in errors[0]["message"]
    assert errors[0]["message"]


async def muster(rig: Rig, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the command prints, run in this loop."""
    parsed = build_parser().parse_args([*arguments, "--nats", rig.server.url])
    capsys.readouterr()
    assert await parsed.run(parsed) == 0
    return capsys.readouterr().out


async def test_what_nobody_can_handle_becomes_a_dead_letter_without_its_secrets_on_the_screen(rig: Rig, capsys):
    nameless = {"short": {"image": "registry.example.com/x:1", "env": {"TOKEN": "s3cret"}, "args": ["--key=s3cret"]}}
    await rig.send(nameless)
    await rig.send(short("stranger"), tenant="strangers")
    await rig.send(b"no json at all")

    async def letters():
        info = await rig.line.bus.jetstream.stream_info(StreamName.DLQ)
        return info.state.messages == 3

    await eventually(letters)
    listed = await muster(rig, capsys, "dlq", "list")
    assert len(listed.splitlines()) == 3
    rows = {row["subject"]: row for row in json.loads(await muster(rig, capsys, "dlq", "list", "--json"))}
    assert rows["muster.jobs.submit.strangers"]["reason"] == "refused"
    assert "'strangers' is not known here" in rows["muster.jobs.submit.strangers"]["error"]
    first = min(json.loads(await muster(rig, capsys, "dlq", "list", "--json")), key=lambda row: row["at"])["number"]
    shown = {}
    for row in json.loads(await muster(rig, capsys, "dlq", "list", "--json")):
        text = await muster(rig, capsys, "dlq", "show", str(row["number"]))
        assert "s3cret" not in text
        shown[row["number"]] = json.loads(text)
    payloads = [letter["payload"] for letter in shown.values()]
    assert {"short": {"image": "registry.example.com/x:1", "env": "[hidden]", "args": "[hidden]"}} in payloads
    assert "14 bytes that are no JSON" in payloads
    # Handed in again it fails again: the letter has a new number.
    await muster(rig, capsys, "dlq", "retry", str(first))
    await eventually(letters)
    numbers = [row["number"] for row in json.loads(await muster(rig, capsys, "dlq", "list", "--json"))]
    assert first not in numbers
    for number in numbers:
        await muster(rig, capsys, "dlq", "drop", str(number))
    assert await muster(rig, capsys, "dlq") == "no dead letters\n"


async def test_a_burst_is_accepted_whole_and_each_once(rig: Rig):
    wanted = [f"burst-{number}" for number in range(BURST)]
    for start in range(0, BURST, 50):
        await asyncio.gather(*(rig.send(short(name, gpus=1)) for name in wanted[start : start + 50]))
    await eventually(lambda: rig.jobs(wanted[-1]), within=150, every=0.2)
    made = Counter(job["metadata"]["annotations"]["muster.dev/submission"] for job in rig.store.list(VCJOBS))
    assert {name: made[name] for name in wanted} == dict.fromkeys(wanted, 1)
    accepted = Counter()
    subscription = await rig.line.bus.jetstream.subscribe("muster.status.default.>", ordered_consumer=True)
    async with asyncio.timeout(30):
        while not set(wanted) <= set(accepted):
            event = json.loads((await subscription.next_msg(timeout=10)).data)
            if event["state"] == "Accepted":
                accepted[event["id"]] += 1
    await subscription.unsubscribe()
    assert {name: accepted[name] for name in wanted} == dict.fromkeys(wanted, 1)
