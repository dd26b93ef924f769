"""Pauses on the whole line: they stop at once, outlive the scheduler, and end when they are resumed."""

import asyncio

import pytest
from nats.js.errors import NotFoundError

from muster.bus.errors import NoAnswerError, RequestRefusedError
from muster.model.policy import Policy, Tenant
from tests.line import Line
from tests.nats_fixtures import eventually

SERVICES = ("watcher", "scheduler")


@pytest.fixture
async def line(nats_server):
    async with Line(nats_server.url, cluster="2x8", services=SERVICES) as running:
        await running.create_queue("default")
        await running.create_queue("other")
        await eventually(lambda: has_queues(running))
        yield running


async def has_queues(line):
    return {row.name for row in (await line.client.queues()).queues} >= {"default", "other"}


async def bound(line):
    return {pod.metadata.name for pod in await line.pods() if pod.spec.node_name}


def waits_as_paused(line, gang):
    async def row():
        rows = {one.gang: one for one in (await line.client.gangs()).gangs}
        found = rows.get(f"default/{gang}")
        return found if found is not None and found.code == "PAUSED" else None

    return eventually(row)


async def test_a_pause_stops_at_once_outlives_the_scheduler_and_ends_when_it_is_resumed(line):
    reply = await line.client.pause("bind", reason="a new driver", by="alice")
    assert [(one.act, one.queue, one.by) for one in reply.pauses] == [("bind", "", "alice")]
    await line.create_gang("g", pods=2, cards=2)
    row = await waits_as_paused(line, "g")
    assert "by alice: a new driver" in row.message
    assert "muster resume bind" in row.message
    await line.stop("scheduler")
    await line.start("scheduler", identity="another")
    await eventually(lambda: line.contexts["scheduler"].ready.ready)
    await waits_as_paused(line, "g")
    assert not await bound(line)
    again = await line.client.pauses()
    assert again.pauses == reply.pauses
    lifted = await line.client.resume()
    assert (lifted.pauses, lifted.changed) == ((), reply.pauses)
    await eventually(lambda: both_bound(line, {"g-0", "g-1"}))
    assert (await line.client.resume()).changed == ()


async def both_bound(line, names):
    return await bound(line) == names


async def test_a_paused_queue_waits_while_another_goes_on(line):
    await line.client.pause("bind", queue="default")
    await asyncio.gather(
        line.create_gang("held", pods=1, cards=1), line.create_gang("free", pods=1, cards=1, queue="other")
    )
    await waits_as_paused(line, "held")
    await eventually(lambda: both_bound(line, {"free-0"}))
    with pytest.raises(RequestRefusedError, match="no queue othr; did you mean other"):
        await line.client.pause("bind", queue="othr")


async def test_a_pause_outlives_the_ledger_that_kept_it_while_a_scheduler_lives(line):
    reply = await line.client.pause("bind", by="alice")
    await line.bus.jetstream.delete_stream("LEDGER")

    async def stands_again():
        try:
            await line.bus.jetstream.stream_info("LEDGER")
            return (await line.client.pauses()).pauses == reply.pauses and line.contexts["scheduler"].ready.ready
        except (NoAnswerError, NotFoundError):
            return False

    await eventually(stands_again)
    await line.create_gang("g", pods=1, cards=1)
    await waits_as_paused(line, "g")
    assert not await bound(line)


async def test_who_is_no_operator_may_look_but_not_pause(nats_server):
    policy = Policy(tenants={"default": Tenant()})
    async with Line(nats_server.url, cluster="1x1", services=SERVICES, policy=policy) as line:
        await eventually(lambda: leads(line))
        for ask in (line.client.pause, line.client.resume, line.client.policy):
            with pytest.raises(RequestRefusedError, match=r"operator: true under tenants\.default"):
                await ask()
        assert (await line.client.pauses()).pauses == ()


async def leads(line):
    try:
        return bool((await line.client.pauses()).at)
    except Exception as error:  # noqa: BLE001  (nobody answers yet)
        return not error
