"""What a queue is entitled to, on the Queue itself: the scheduler's word, written by the controller."""

from muster.controller import service
from tests.line import Line
from tests.nats_fixtures import eventually

QUEUES = "queues.scheduling.volcano.sh"


async def test_the_share_of_a_queue_stands_in_its_status_and_follows_what_is_asked(nats_server, monkeypatch):
    monkeypatch.setattr(service, "SHARES_SECONDS", 0.2)
    async with Line(nats_server.url, cluster="2x8", services=("watcher", "controller", "scheduler")) as line:
        await line.create_queue("research")
        await line.create_gang("four", pods=4, cards=1, queue="research")

        async def share():
            queue = await line.writer.get_document(QUEUES, None, "research")
            return queue.get("status", {}).get("share", {}).get("gpu")

        async def is_four():
            return await share() == "4"

        await eventually(is_four)
        await eventually(lambda: settled(line))
        version = (await line.writer.get_document(QUEUES, None, "research"))["metadata"]["resourceVersion"]
        await line.create_gang("two", pods=2, cards=1, queue="research")

        async def is_six():
            return await share() == "6"

        await eventually(is_six)
        assert (await line.writer.get_document(QUEUES, None, "research"))["metadata"]["resourceVersion"] != version


async def settled(line):
    queue = await line.writer.get_document(QUEUES, None, "research")
    return queue["status"].get("running") == 1
