"""The scheduler on the simulated cluster and a real NATS server, fed by the real watcher."""

from collections import Counter

import msgspec
import pytest

from muster.model.policy import Policy, Timeouts
from tests.line import Line
from tests.nats_fixtures import eventually

SERVICES = ("watcher", "scheduler")


@pytest.fixture
async def line(nats_server):
    async with Line(nats_server.url, cluster="2x8", services=SERVICES) as running:
        await running.create_queue("default")
        yield running


def bound(pods):
    return [pod for pod in pods if pod.spec.node_name]


async def all_running(line, count):
    pods = await line.pods()
    return len([pod for pod in pods if pod.status.phase == "Running"]) == count


async def test_a_gang_that_fits_is_bound_whole_with_every_card_given_once(line):
    await line.create_gang("g", pods=4, cards=4)
    await eventually(lambda: all_running(line, 4))
    used = Counter(
        (pod.spec.node_name, card)
        for pod in await line.pods()
        for card in pod.metadata.annotations["volcano.sh/gpu-index"].split(",")
    )
    assert set(used.values()) == {1}
    assert len(used) == 16
    assert not line.sim.kubelets.violations


async def test_a_gang_that_does_not_fit_stays_whole_outside_until_there_is_room_and_says_why(line):
    await line.create_gang("first", pods=3, cards=4)
    await eventually(lambda: all_running(line, 3))
    await line.create_gang("second", pods=2, cards=4)

    async def explained():
        return next((row for row in (await line.client.gangs()).gangs if row.code), None)

    row = await eventually(explained)
    assert (row.gang, row.bound) == ("default/second", 0)
    assert "4" in row.message
    await line.writer.delete("pods", "default", "first-0", grace_period=0)
    await eventually(lambda: all_running(line, 4))


async def test_every_entry_closes_and_its_room_is_counted_once(line):
    await line.create_gang("g", pods=2, cards=8)
    await eventually(lambda: all_running(line, 2))

    async def settled():
        reply = await line.client.nodes()
        return reply.held_cards == 0 and reply.used_cards == reply.total_cards

    await eventually(settled)


async def test_a_new_scheduler_carries_on_what_the_one_before_had_begun(line):
    slow = line.sim.faults.add("delay", verb="create", resource="pods/binding", seconds=0.3, count=None)
    await line.create_gang("g", pods=16, cards=1)
    await eventually(lambda: any_bound(line))
    await line.stop("scheduler")
    await line.start("scheduler", identity="another")
    await eventually(lambda: all_running(line, 16))
    assert slow.hits >= 16
    assert not line.sim.kubelets.violations


async def test_answers_that_are_lost_change_nothing(line):
    lost = line.sim.faults.add("lose_answer", verb="create", resource="pods/binding", count=5)
    throttled = line.sim.faults.add(
        "error", verb="create", resource="pods/binding", code=429, retry_after=1, skip=8, count=3
    )
    await line.create_gang("g", pods=16, cards=1)
    await eventually(lambda: all_running(line, 16))
    assert lost.hits >= 5
    assert throttled.hits >= 8
    assert not line.sim.kubelets.violations


async def test_watches_that_expire_are_read_anew_without_a_second_bind(line):
    await line.create_gang("g", pods=8, cards=1)
    await eventually(lambda: all_running(line, 8))
    line.sim.faults.expire_watches()
    await line.create_gang("h", pods=8, cards=1)
    await eventually(lambda: all_running(line, 16))
    assert not line.sim.kubelets.violations


async def any_bound(line):
    return bool(bound(await line.pods()))


async def test_a_node_that_refuses_a_pod_is_left_alone_and_the_pod_s_successor_goes_elsewhere(nats_server):
    policy = msgspec.structs.replace(Policy(), timeouts=Timeouts(start=30, bind=10))
    async with Line(nats_server.url, cluster="2x1", services=SERVICES, policy=policy) as line:
        await line.create_queue("default")
        await line.create_gang("g", pods=1, annotations={"simulator.muster.dev/refuse": "UnexpectedAdmissionError"})

        async def refused():
            pods = await line.pods()
            return next((pod.spec.node_name for pod in pods if pod.status.phase == "Failed"), None)

        first = await eventually(refused)
        await line.writer.delete("pods", "default", "g-0", grace_period=0)
        await line.create_gang("h", pods=1)
        await eventually(lambda: all_running(line, 1))
        (pod,) = await line.pods()
        assert pod.spec.node_name != first


async def test_a_gang_whose_pods_are_all_leaving_is_said_to_leave_and_holds_its_room_until_they_are_gone(line):
    await line.create_gang("g", pods=2, cards=8)
    await eventually(lambda: all_running(line, 2))
    line.sim.kubelets.stop_node("gpu-node-01")
    line.sim.kubelets.stop_node("gpu-node-02")
    for pod in await line.pods():
        await line.writer.delete("pods", "default", pod.metadata.name)

    async def states():
        return [row.state for row in (await line.client.gangs()).gangs] == ["Leaving"]

    await eventually(states)
    assert (await line.client.nodes()).free_cards == 0
