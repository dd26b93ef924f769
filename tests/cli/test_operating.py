"""`muster pause`, `resume`, `get pauses` and `get policy` against running services, and what they say."""

import asyncio
import json

import pytest

from muster.cli import main
from tests.line import Line
from tests.nats_fixtures import eventually


@pytest.fixture
async def muster(nats_server, capsys):
    async with Line(nats_server.url, cluster="1x1", services=("watcher", "scheduler")) as line:
        await line.create_queue("default")

        async def ready():
            return {row.name for row in (await line.client.queues()).queues} >= {"default"}

        await eventually(ready)

        async def run(*words, tenant="default"):
            code = await asyncio.to_thread(main, [*words, "--nats", nats_server.url, "--tenant", tenant])
            told = capsys.readouterr()
            return (
                code,
                "\n".join(line for line in told.out.splitlines() if " [info" not in line and " [warn" not in line),
                told.err,
            )

        yield run


async def test_pausing_and_resuming_tell_what_is_paused_and_how_it_ends(muster):
    code, out, _ = await muster("pause", "bind", "--reason", "a new driver")
    assert code == 0
    assert "starting jobs is paused since " in out
    assert ": a new driver; it goes on after: muster resume bind" in out
    assert (await muster("pause", "evict", "--queue", "default"))[0] == 0
    code, out, _ = await muster("get", "pauses")
    assert code == 0
    assert "muster resume evict --queue default" in out
    assert "everywhere" in out
    code, out, err = await muster("resume")
    assert (code, out) == (0, "resumed: bind")
    assert "still paused: evict in default; that ends with: muster resume evict --queue default" in err
    code, out, err = await muster("resume", "bind")
    assert code == 1
    assert "nothing resumed: there is no pause of bind of the whole cluster" in err
    assert (await muster("resume", "--queue", "default"))[:2] == (0, "resumed: evict in default")
    assert "nothing is paused" in "".join((await muster("get", "pauses"))[1:])


async def test_every_answer_comes_as_json_too(muster):
    for words in (("pause",), ("get", "pauses"), ("resume",), ("get", "policy")):
        code, out, _ = await muster(*words, "--json")
        assert code == 0
        assert json.loads(out)["at"] > 0
    assert json.loads(out)["policy"]["packing"]["gpu"] == 10


async def test_what_cannot_be_paused_is_refused_with_a_sentence(muster):
    code, _, err = await muster("pause", "--queue", "nope")
    assert (code, err) == (1, "no queue nope; queues here: default\n")
    code, _, err = await muster("pause", tenant="team-a")
    assert code == 1
    assert "tenant team-a is no operator" in err
    code, out, _ = await muster("get", "policy")
    assert code == 0
    assert "bind_concurrency: 32" in out
