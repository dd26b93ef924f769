import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from muster.bus.client import Bus, connect
from muster.bus.errors import DeposedError, MessageTooLargeError, StateMovedError, WrongLastSequenceError
from muster.bus.messages import Clock, Epoch, StateMessage
from muster.bus.ordered import Delivery
from muster.bus.state import StateFilter, StateReader
from muster.bus.state_publishing import Publication, StatePublisher
from muster.bus.streams import StreamName, ensure_streams, last_sequence, stream_info
from muster.bus.subjects import WATCHER_KEY, state_subject
from muster.model.nodes import Node
from muster.model.units import NodeName, Sequence, first_sequence, incarnation_of
from tests.nats_fixtures import empty, eventually


class View:
    """What a consumer of STATE would hold."""

    def __init__(self, bus: Bus, **options: Any) -> None:
        self.reader = StateReader(bus, **options)
        self.objects: dict[tuple[str, str], Any] = {}
        self.resets: list[str] = []
        self.readiness: list[bool] = []
        self.pause: Callable[[], Any] = lambda: asyncio.sleep(0)

    async def follow(self) -> None:
        async for batch in self.reader.batches():
            if batch.reset:
                self.objects.clear()
                self.resets.append(batch.reset)
            for change in batch.changes:
                if change.object is None:
                    self.objects.pop((change.kind, change.key), None)
                else:
                    self.objects[change.kind, change.key] = change.object
            if self.readiness[-1:] != [self.reader.ready]:
                self.readiness.append(self.reader.ready)
            await self.pause()

    def nodes(self) -> dict[str, str]:
        return {key: found.resource_version for (kind, key), found in self.objects.items() if kind == "node"}


@contextlib.asynccontextmanager
async def following(bus: Bus, **options: Any) -> AsyncIterator[View]:
    view = View(bus, **options)
    task = asyncio.create_task(view.follow())
    try:
        yield view
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def node(name: str, version: int) -> Publication:
    found = Node(name=NodeName(name), resource_version=str(version))
    return Publication(kind="node", key=name, object=found, resource_version=str(version))


def gone(name: str, version: int) -> Publication:
    return Publication(kind="node", key=name, object=None, resource_version=str(version))


async def synced_publisher(bus: Bus, identity: str = "w1", **options: Any) -> StatePublisher:
    publisher = StatePublisher(bus, identity=identity, **options)
    await publisher.take_over()
    await publisher.tell_clock(synced=True, freshness={"node": "1"})
    return publisher


def message(
    *,
    epoch: int,
    sequence: int,
    kind: Any = "node",
    key: str = "a",
    version: str = "1",
    subject: str = "",
    found: Any = None,
) -> Delivery:
    body = StateMessage(
        epoch=epoch, kind=kind, key=key, resource_version=version, object=msgspec.Raw(msgspec.json.encode(found or {}))
    )
    return Delivery(
        subject=subject or state_subject(kind, key),
        sequence=Sequence(sequence),
        body=msgspec.json.encode(body),
        headers={},
    )


# Rule I, pure -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deliveries", "admitted", "cause"),
    [
        pytest.param(
            [message(epoch=5, sequence=6), message(epoch=4, sequence=7, version="9")], [True, False], "epoch",
            id="a message of a deposed epoch is dropped, however new its object is",
        ),
        pytest.param(
            [message(epoch=4, sequence=6), message(epoch=5, sequence=7, key="b")], [True, True], None,
            id="what an older watcher wrote before the newer epoch counts",
        ),
        pytest.param(
            [message(epoch=4, sequence=6, version="10"), message(epoch=4, sequence=7, version="9")], [True, False], "older",
            id="a message older than what is known of its key is dropped",
        ),
        pytest.param(
            [message(epoch=4, sequence=6, version="9"), message(epoch=4, sequence=7, version="10")], [True, True], None,
            id="versions are compared as numbers, not as text",
        ),
        pytest.param(
            [message(epoch=4, sequence=6, version="10"), message(epoch=4, sequence=7, version="9", key="b")], [True, True],
            None, id="versions are compared by key",
        ),
        pytest.param(
            [message(epoch=4, sequence=6, version="7"), message(epoch=4, sequence=7, version="7")], [True, True], None,
            id="the same version again counts",
        ),
        pytest.param(
            [message(epoch=4, sequence=6, subject="muster.state.node.other")], [False], "mismatch",
            id="subject and content disagree on the key",
        ),
        pytest.param(
            [message(epoch=4, sequence=6, subject="muster.state.pod.a")], [False], "mismatch",
            id="subject and content disagree on the kind",
        ),
        pytest.param(
            [message(epoch=99, sequence=6)], [False], "mismatch", id="an epoch that no stream position can have yet is no epoch",
        ),
        pytest.param(
            [message(epoch=5, sequence=6, kind="epoch", key="5", version="")], [False], "mismatch",
            id="an epoch message is its own sequence",
        ),
        pytest.param(
            [message(epoch=6, sequence=6, kind="epoch", key="7", version="")], [False], "mismatch",
            id="an epoch message stands under its own number",
        ),
        pytest.param(
            [Delivery(subject="muster.state.node.a", sequence=Sequence(6), body=b"{", headers={})], [False], "undecodable",
            id="what is no message is dropped",
        ),
    ],
)  # fmt: skip
def test_what_counts_in_state(deliveries: list[Delivery], admitted: list[bool], cause: str | None) -> None:
    judge = StateFilter()
    assert [judge.admit(delivery) is not None for delivery in deliveries] == admitted
    assert dict(judge.dropped) == ({} if cause is None else {cause: 1})


def test_a_tombstone_remembers_its_version_so_that_a_stray_cannot_bring_the_object_back() -> None:
    judge = StateFilter()
    tombstone = StateMessage(epoch=1, kind="node", key="a", resource_version="8")
    delivery = Delivery(
        subject="muster.state.node.a", sequence=Sequence(3), body=msgspec.json.encode(tombstone), headers={}
    )
    assert judge.admit(message(epoch=1, sequence=2, version="7")) is not None
    assert judge.admit(delivery) is not None
    assert judge.admit(message(epoch=1, sequence=4, version="7")) is None
    assert judge.admit(message(epoch=1, sequence=5, version="9")) is not None


# Rule 1: readiness --------------------------------------------------------------------------------------------------


async def test_a_reader_is_ready_only_when_the_watcher_has_listed_everything(streams_bus) -> None:
    async with following(streams_bus) as view:
        await eventually(lambda: view.reader.sequence == first_sequence(1) - 1)
        assert not view.reader.ready, "an empty STATE tells nothing"
        publisher = StatePublisher(streams_bus, identity="w1")
        await publisher.take_over()
        await publisher.publish([node("a", 5)])
        await publisher.tell_clock(synced=False, freshness={})
        await eventually(lambda: view.nodes() == {"a": "5"})
        assert not view.reader.ready, "the watcher has not listed everything"
        await publisher.tell_clock(synced=True, freshness={"node": "5"})
        await eventually(lambda: view.reader.ready)
        assert view.reader.freshness == {"node": "5"}
        assert view.reader.sequence == publisher.sequence == await last_sequence(streams_bus, StreamName.STATE)
        assert view.reader.epoch == publisher.epoch
        assert view.reader.clock_age() < 5


async def test_a_reader_that_comes_later_is_ready_once_it_has_applied_what_was_there(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus)
    await publisher.publish([node(f"n{number}", number + 1) for number in range(500)])
    await publisher.tell_clock(synced=True, freshness={})
    async with following(streams_bus) as view:
        await eventually(lambda: view.reader.ready)
        assert len(view.nodes()) == 500


async def test_a_new_watcher_makes_readers_unready_until_it_has_listed(streams_bus) -> None:
    await synced_publisher(streams_bus, "w1")
    async with following(streams_bus) as view:
        await eventually(lambda: view.reader.ready)
        second = StatePublisher(streams_bus, identity="w2")
        await second.take_over()
        await eventually(lambda: not view.reader.ready)
        assert view.reader.freshness == {}
        await second.tell_clock(synced=True, freshness={})
        await eventually(lambda: view.reader.ready)


async def test_a_kill_of_the_server_loses_nothing_and_the_reader_is_ready_again(own_server) -> None:
    async with (
        await connect(own_server.url, name="test") as bus,
        await connect(own_server.url, name="writer") as writer,
    ):
        await ensure_streams(bus, incarnation=1)
        publisher = await synced_publisher(writer)
        await publisher.publish([node("a", 1), node("b", 2)])
        async with following(bus) as view:
            await eventually(lambda: view.reader.ready and len(view.nodes()) == 2)
            await own_server.kill()
            await eventually(lambda: not view.reader.ready)
            await own_server.start()
            await eventually(lambda: writer.connected)
            stored = await publisher.reload()
            assert {place for place in stored if place[0] == "node"} == {("node", "a"), ("node", "b")}
            await publisher.publish([node("a", 3), gone("b", 4)])
            await eventually(lambda: view.nodes() == {"a": "3"})
            await eventually(lambda: view.reader.ready)
            assert view.resets == []


async def test_readiness_after_a_reconnect_needs_everything_published_meanwhile(own_server) -> None:
    async with (
        await connect(own_server.url, name="test") as bus,
        await connect(own_server.url, name="writer") as writer,
    ):
        await ensure_streams(bus, incarnation=1)
        publisher = await synced_publisher(writer)
        async with following(bus) as view:
            await eventually(lambda: view.reader.ready)
            seen: list[tuple[bool, int]] = []

            async def look() -> None:
                seen.append((view.reader.ready, len(view.nodes())))

            view.pause = look
            # Only the reader's connection breaks; the writer goes on.
            view.reader.bus.client._transport.close()
            await publisher.publish([node(f"n{number}", number + 1) for number in range(2000)])
            await eventually(lambda: view.reader.ready and len(view.nodes()) == 2000)
            assert (False, 0) in seen, "the loss of the connection was told"


async def test_a_deleted_consumer_is_noticed_and_nothing_is_missed(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus)
    async with following(streams_bus) as view:
        await eventually(lambda: view.reader.ready)
        [consumer] = await streams_bus.jetstream.consumers_info(StreamName.STATE)
        await streams_bus.jetstream.delete_consumer(StreamName.STATE, consumer.name)
        await publisher.publish([node("a", 1)])
        await eventually(lambda: view.nodes() == {"a": "1"} and view.reader.ready)
        assert view.readiness[-3:] == [True, False, True]
        assert view.resets == []


async def test_a_silent_server_makes_readers_unready(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        await synced_publisher(bus)
        async with following(bus) as view:
            await eventually(lambda: view.reader.ready)
            await own_server.pause()
            await eventually(lambda: not view.reader.ready)
            own_server.resume()
            await eventually(lambda: view.reader.ready)


async def test_a_reader_is_ready_when_the_last_message_it_waits_for_has_expired(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus, tombstone_seconds=1)
    await publisher.publish([node("a", 1)])
    await publisher.publish([gone("a", 2)])
    before = await last_sequence(streams_bus, StreamName.STATE)

    async def expired() -> bool:
        info = await stream_info(streams_bus, StreamName.STATE)
        return info is not None and info.state.messages == 2

    await eventually(expired)
    assert await last_sequence(streams_bus, StreamName.STATE) == before, "no marker is written into the order"
    async with following(streams_bus) as view:
        await eventually(lambda: view.reader.ready)
        assert view.reader.sequence == before


async def test_a_reader_that_was_away_longer_than_tombstones_live_reads_everything_anew(own_server) -> None:
    async with (
        await connect(own_server.url, name="test") as bus,
        await connect(own_server.url, name="writer") as writer,
    ):
        await ensure_streams(bus, incarnation=1)
        publisher = await synced_publisher(writer, tombstone_seconds=1)
        await publisher.publish([node("a", 1), node("b", 2)])
        async with following(bus, tombstone_seconds=1.0) as view:
            await eventually(lambda: view.reader.ready and len(view.nodes()) == 2)
            held = asyncio.Event()
            view.pause = held.wait
            await publisher.publish([gone("b", 3)])
            await eventually(lambda: "b" not in view.nodes())
            # The reader is stuck in its own work and hears nothing while a tombstone comes and expires.
            await view.reader._ordered._subscription.unsubscribe()
            await publisher.publish([gone("a", 4)])

            async def expired() -> bool:
                info = await stream_info(writer, StreamName.STATE)
                return info is not None and info.state.messages == 2

            await eventually(expired)
            assert view.nodes() == {"a": "1"}
            view.pause = lambda: asyncio.sleep(0)
            held.set()
            await eventually(lambda: view.reader.ready and view.nodes() == {})
            assert view.resets == ["no contact for more than 0.5 s"]


async def test_a_reader_ends_when_its_cancellation_comes_together_with_an_answer(streams_bus, monkeypatch) -> None:
    """Python 3.11's wait_for returns the answer and forgets the cancellation."""
    asked = asyncio.Event()

    async def answered(_bus: Bus, _name: str) -> None:
        asked.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    monkeypatch.setattr("muster.bus.ordered.stream_info", answered)
    following = asyncio.create_task(View(streams_bus).follow())
    await asked.wait()
    following.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await following


# Rule 2: one writer -------------------------------------------------------------------------------------------------


async def test_the_epoch_is_the_sequence_of_its_own_message(streams_bus) -> None:
    publisher = StatePublisher(streams_bus, identity="w1")
    assert await publisher.take_over() != {}
    found = await streams_bus.jetstream.get_last_msg(StreamName.STATE, state_subject("epoch", str(publisher.epoch)))
    stored = msgspec.json.decode(found.data, type=StateMessage)
    assert found.seq == stored.epoch == publisher.epoch
    assert msgspec.json.decode(stored.object, type=Epoch) == Epoch(epoch=publisher.epoch, identity="w1")


async def test_state_messages_ask_for_no_deduplication(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus)
    await publisher.publish([node("a", 1)])
    found = await streams_bus.jetstream.get_last_msg(StreamName.STATE, state_subject("node", "a"))
    assert "Nats-Msg-Id" not in found.headers
    assert found.headers["Nats-Expected-Last-Sequence"] == str(found.seq - 1)


async def test_a_deposed_publisher_is_refused_and_told_so(streams_bus) -> None:
    first = await synced_publisher(streams_bus, "w1")
    second = await synced_publisher(streams_bus, "w2")
    with pytest.raises(StateMovedError):
        await first.publish([node("a", 1)])
    with pytest.raises(StateMovedError, match="must take over, or reload"):
        await first.publish([node("a", 1)])
    with pytest.raises(DeposedError, match=f"epoch {second.epoch}, this writer has {first.epoch}"):
        await first.reload()
    assert await second.publish([node("a", 2)]) == await last_sequence(streams_bus, StreamName.STATE)


async def test_a_new_watcher_loads_what_is_there(streams_bus) -> None:
    first = await synced_publisher(streams_bus, "w1")
    await first.publish([node("a", 1), node("b", 2), gone("b", 3)])
    second = StatePublisher(streams_bus, identity="w2")
    stored = await second.take_over()
    assert stored["node", "a"].object == Node(name=NodeName("a"), resource_version="1")
    assert stored["node", "b"].object is None
    assert stored["clock", WATCHER_KEY].object.synced


async def stray(bus: Bus, *, epoch: int, publication: Publication) -> int:
    """A pipelined publish of a deposed writer whose expected sequence happens to be right when it arrives."""
    last = await last_sequence(bus, StreamName.STATE)
    body = StateMessage(
        epoch=epoch,
        kind=publication.kind,
        key=publication.key,
        resource_version=publication.resource_version,
        object=msgspec.Raw(msgspec.json.encode(publication.object)),
    )
    return await bus.publish(state_subject(publication.kind, publication.key), body, expected_last_sequence=last)


async def test_a_stray_of_a_deposed_writer_is_dropped_and_published_over(streams_bus) -> None:
    first = await synced_publisher(streams_bus, "w1")
    await first.publish([node("a", 1)])
    second = await synced_publisher(streams_bus, "w2")
    await second.publish([node("a", 5)])
    async with following(streams_bus) as view:
        await eventually(lambda: view.reader.ready and view.nodes() == {"a": "5"})
        await stray(streams_bus, epoch=first.epoch, publication=node("a", 9))
        await eventually(lambda: view.reader.dropped["epoch"] == 1)
        assert view.nodes() == {"a": "5"}
        async with following(streams_bus) as late:
            await eventually(lambda: late.reader.dropped["epoch"] == 1)
            assert late.nodes() == {}, "the stray overwrote the key: it is missing until it is published again"
            with pytest.raises(StateMovedError):
                await second.tell_clock(synced=True, freshness={})
            stored = await second.reload()
            assert stored["node", "a"].unknown
            await second.publish([node("a", 5)])
            await second.tell_clock(synced=True, freshness={})
            await eventually(lambda: late.nodes() == {"a": "5"} and late.reader.ready)
        assert view.nodes() == {"a": "5"}


async def test_the_pipeline_of_a_deposed_writer_slips_in_and_does_no_harm(streams_bus, nats_server) -> None:
    async with await connect(nats_server.url, name="old") as old, following(streams_bus) as view:
        first = await synced_publisher(old, "w1")
        base = first.sequence
        # The old writer's next publishes expect base and base+1; between them the new writer's epoch takes base+1 … so the
        # second one is refused and a third, expecting base+2, is stored.
        second = StatePublisher(streams_bus, identity="w2")
        assert await stray(old, epoch=first.epoch, publication=node("x", 1)) == base + 1
        await second.take_over()
        assert second.epoch == base + 2
        with pytest.raises(WrongLastSequenceError):
            await old.publish(state_subject("node", "y"), b"{}", expected_last_sequence=base + 1)
        assert await stray(old, epoch=first.epoch, publication=node("z", 3)) == base + 3
        with pytest.raises(StateMovedError):
            await second.publish([node("a", 1)])
        await second.reload()
        await second.publish([node("a", 1)])
        await second.tell_clock(synced=True, freshness={})
        await eventually(lambda: view.reader.ready and view.nodes() == {"x": "1", "a": "1"})


async def test_a_clock_does_not_count_while_what_superseded_another_message_is_not_read(streams_bus) -> None:
    """The consumer stalls on flow control: what is superseded behind it is never sent, and the clock comes before its successor."""
    publisher = await synced_publisher(streams_bus)
    filler = "x" * 4000

    def large(version: int) -> list[Publication]:
        return [
            Publication(kind="node", key=f"n{number}", object=Node(name=NodeName(f"n{number}"), labels={"f": filler}),
                        resource_version=str(version))
            for number in range(1500)
        ]  # fmt: skip

    async with following(streams_bus) as view:
        await eventually(lambda: view.reader.ready)
        claimed: list[tuple[int, str]] = []
        held = asyncio.Event()
        view.pause = held.wait
        await publisher.publish([*large(10), node("z", 11)])
        await publisher.tell_clock(synced=True, freshness={"node": "11"})
        await publisher.publish([*large(12), node("z", 13)])

        async def look() -> None:
            claimed.append((int(view.reader.freshness.get("node", "0")), view.nodes().get("z", "0")))

        view.pause = look
        held.set()
        await eventually(lambda: view.nodes().get("z") == "13")
        assert [(fresh, shown) for fresh, shown in claimed if fresh >= 11 and int(shown) < 11] == []
        await publisher.tell_clock(synced=True, freshness={"node": "13"})
        await eventually(lambda: view.reader.freshness == {"node": "13"})


async def test_no_clock_goes_out_while_an_earlier_publish_is_refused_or_unanswered(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus)
    await stray(streams_bus, epoch=publisher.epoch - 1, publication=node("x", 1))
    with pytest.raises(StateMovedError):
        await publisher.publish([node(f"n{number}", number + 2) for number in range(5)])
    with pytest.raises(StateMovedError, match="must take over, or reload"):
        await publisher.tell_clock(synced=True, freshness={"node": "6"})
    stored = await publisher.reload()
    assert stored["clock", WATCHER_KEY].object.freshness == {"node": "1"}
    there = sorted(key for kind, key in stored if kind == "node" and not stored[kind, key].unknown)
    assert there == ["n1", "n2", "n3", "n4"], (
        "the first was refused; those behind it slipped in, and a clock would have too"
    )


async def test_every_answer_is_in_when_a_refused_publish_is_told(streams_bus, monkeypatch) -> None:
    publisher = await synced_publisher(streams_bus)
    answers: list[asyncio.Future[Sequence]] = []
    send = streams_bus.send

    async def counted(*arguments: Any, **options: Any) -> "asyncio.Future[Sequence]":
        answers.append(await send(*arguments, **options))
        return answers[-1]

    monkeypatch.setattr(streams_bus, "send", counted)
    monkeypatch.setattr("muster.bus.state_publishing.IN_FLIGHT", 10)
    await stray(streams_bus, epoch=publisher.epoch - 1, publication=node("x", 1))
    del answers[:]
    with pytest.raises(StateMovedError):
        await publisher.publish([node(f"n{number}", number + 2) for number in range(500)])
    assert 10 <= len(answers) < 500
    assert all(answer.done() for answer in answers)


async def test_a_stray_voids_a_clock_for_readers_that_come_later(streams_bus) -> None:
    first = await synced_publisher(streams_bus, "w1")
    second = StatePublisher(streams_bus, identity="w2")
    await second.take_over()
    await second.publish([node("a", 5)])
    await second.tell_clock(synced=True, freshness={"node": "5"})
    async with following(streams_bus) as early:
        await eventually(lambda: early.reader.ready)
        await stray(streams_bus, epoch=first.epoch, publication=node("a", 4))
        await eventually(lambda: early.reader.dropped["epoch"] == 1)
        assert early.reader.ready, "what counted stays true: the view does not go back"
        assert early.reader.freshness == {"node": "5"}
        async with following(streams_bus) as late:
            await eventually(lambda: late.reader.sequence == early.reader.sequence)
            await asyncio.sleep(0.2)
            assert not late.reader.ready
            assert late.reader.clock is None
            stored = await second.reload()
            assert stored["node", "a"].unknown
            await second.publish([node("a", 5)])
            await second.tell_clock(synced=True, freshness={"node": "5"})
            await eventually(lambda: late.reader.freshness == {"node": "5"} and late.nodes() == {"a": "5"})


async def test_freshness_never_goes_back_with_a_watcher_that_lists_late(streams_bus) -> None:
    first = await synced_publisher(streams_bus, "w1")
    await first.publish([node("a", 9)])
    await first.tell_clock(synced=True, freshness={"node": "9"})
    async with following(streams_bus) as view, following(streams_bus) as other:
        await eventually(lambda: view.reader.freshness == {"node": "9"})
        second = StatePublisher(streams_bus, identity="w2")
        await second.take_over()
        await second.publish([node("a", 7)])
        await second.tell_clock(synced=True, freshness={"node": "7", "pod": "8"})
        await eventually(lambda: view.reader.epoch == second.epoch and view.reader.ready)
        assert view.reader.freshness == {"node": "9", "pod": "8"}
        assert view.nodes() == other.nodes() == {"a": "9"}
        async with following(streams_bus) as late:
            await eventually(lambda: late.reader.ready)
            assert (late.nodes(), late.reader.freshness) == ({"a": "7"}, {"node": "7", "pod": "8"})


async def test_epochs_stay_until_what_was_stray_is_published_over(streams_bus, nats_server) -> None:
    """Two connections: the deposed writer's second publish in flight lands right behind the new epoch."""

    async def epochs() -> list[int]:
        info = await streams_bus.jetstream.stream_info(StreamName.STATE, subjects_filter="muster.state.epoch.*")
        return sorted(int(subject.rpartition(".")[2]) for subject in info.state.subjects or {})

    async with await connect(nats_server.url, name="old") as old:
        first = await synced_publisher(old, "w1")
        await first.publish([node("a", 1)])
        second = StatePublisher(streams_bus, identity="w2")
        await second.take_over()
        await stray(old, epoch=first.epoch, publication=node("a", 2))
        third = StatePublisher(streams_bus, identity="w3")
        stored = await third.take_over()
        assert await epochs() == [first.epoch, second.epoch, third.epoch]
        assert stored["node", "a"].unknown, "the epoch of a watcher that repaired nothing still tells"
        await third.publish([node("a", 2)])
        await third.tell_clock(synced=True, freshness={"node": "2"})
        await third.remove_old_epochs()
        assert await epochs() == [third.epoch]
        async with following(streams_bus) as view:
            await eventually(lambda: view.reader.ready and view.nodes() == {"a": "2"})
            assert not view.reader.dropped
        with pytest.raises(DeposedError):
            await second.reload()


async def test_a_writer_without_answers_goes_on_under_a_new_epoch(own_server) -> None:
    async with await connect(own_server.url, name="writer") as bus:
        await ensure_streams(bus, incarnation=1)
        publisher = await synced_publisher(bus)
        epoch = publisher.epoch
        await publisher.publish([node("a", 1)])
        await publisher.reload()
        assert publisher.epoch == epoch, "a reload after answers keeps the epoch"
        await own_server.pause()
        publishing = asyncio.create_task(publisher.publish([node("a", 2), node("a", 3)]))
        await asyncio.sleep(0.05)
        bus.client._transport.close()
        with pytest.raises(StateMovedError):
            await publishing
        own_server.resume()
        await eventually(lambda: bus.connected)
        await publisher.reload()
        assert publisher.epoch > epoch
        await publisher.publish([node("a", 4)])
        async with following(bus) as view:
            await eventually(lambda: view.nodes() == {"a": "4"})


async def test_two_watchers_that_take_over_at_once_never_share_an_epoch(streams_bus, nats_server) -> None:
    async with await connect(nats_server.url, name="other") as other:
        publishers = [StatePublisher(streams_bus, identity="w1"), StatePublisher(other, identity="w2")]
        outcomes = await asyncio.gather(*(publisher.take_over() for publisher in publishers), return_exceptions=True)
        assert publishers[0].epoch != publishers[1].epoch
        newest = max(publishers, key=lambda publisher: publisher.epoch)
        assert isinstance(outcomes[publishers.index(newest)], dict)
        await newest.publish([node("a", 1)])


async def test_an_object_too_large_is_told_and_the_writer_goes_on(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus)
    noise = "".join(chr(0x4E00 + (number * 7919) % 20000) for number in range(6_000_000))
    large = Node(name=NodeName("large"), gpu_model=noise)
    with pytest.raises(MessageTooLargeError, match=r"muster\.state\.node\.large"):
        await publisher.publish([node("a", 1), Publication(kind="node", key="large", object=large), node("b", 2)])
    await publisher.publish([node("b", 2)])
    async with following(streams_bus) as view:
        await eventually(lambda: view.nodes() == {"a": "1", "b": "2"})


async def test_a_large_object_is_compressed(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus)
    large = Node(name=NodeName("large"), labels={f"label-{number}": "x" * 60 for number in range(20_000)})
    await publisher.publish([Publication(kind="node", key="large", object=large, resource_version="4")])
    async with following(streams_bus) as view:
        await eventually(lambda: view.objects.get(("node", "large")) == large)


async def test_a_refused_pipeline_is_never_sent_again(own_server) -> None:
    async with await connect(own_server.url, name="writer") as bus:
        await ensure_streams(bus, incarnation=1)
        publisher = await synced_publisher(bus)
        await own_server.pause()
        publishing = asyncio.create_task(publisher.publish([node(f"n{number}", number + 1) for number in range(50)]))
        await asyncio.sleep(0.05)
        await own_server.kill()
        with pytest.raises(StateMovedError, match="connection was lost"):
            await publishing
        await own_server.start()
        await eventually(lambda: bus.connected)
        stored = await publisher.reload()
        missing = [node(f"n{number}", number + 1) for number in range(50) if ("node", f"n{number}") not in stored]
        for _ in range(3):
            # What was on its way may still come and make one more reload necessary.
            with contextlib.suppress(StateMovedError):
                await publisher.publish(missing)
                break
            await publisher.reload()
        assert len([place for place in await publisher.reload() if place[0] == "node"]) == 50


# Rule H: an emptied store -------------------------------------------------------------------------------------------


async def test_a_recreated_state_starts_above_and_readers_start_anew(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus)
    await publisher.publish([node("a", 1), node("b", 2)])
    async with following(streams_bus) as view:
        await eventually(lambda: view.reader.ready and len(view.nodes()) == 2)
        await empty(streams_bus)
        await eventually(lambda: not view.reader.ready)
        await ensure_streams(streams_bus, incarnation=2)
        await eventually(lambda: view.resets == ["the stream was re-created"])
        assert view.nodes() == {}
        assert not view.reader.ready
        with pytest.raises(StateMovedError):
            await publisher.publish([node("c", 3)])
        with pytest.raises(DeposedError, match="the store was emptied"):
            await publisher.reload()
        second = await synced_publisher(streams_bus, "w2")
        # The API server may be a restored one too: older versions than before count after a reset.
        await second.publish([node("a", 1)])
        await eventually(lambda: view.reader.ready and view.nodes() == {"a": "1"})
        assert incarnation_of(view.reader.sequence) == 2
        assert view.reader.epoch == second.epoch > publisher.epoch


async def test_a_store_emptied_while_the_server_was_down_is_noticed(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        publisher = await synced_publisher(bus)
        await publisher.publish([node("a", 1)])
        async with following(bus) as view:
            await eventually(lambda: view.reader.ready)
            await own_server.kill()
            own_server.empty_store()
            await own_server.start()
            await eventually(lambda: bus.connected)
            await ensure_streams(bus, incarnation=2)
            second = await synced_publisher(bus, "w2")
            await second.publish([node("b", 1)])
            await eventually(lambda: view.reader.ready and view.nodes() == {"b": "1"})
            assert view.resets == ["the stream was re-created"]


async def test_clock_messages_decode_to_their_struct(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus)
    await publisher.tell_clock(synced=True, freshness={"pod": "17"}, now=12.5)
    async with following(streams_bus) as view:
        await eventually(lambda: view.reader.ready)
        assert view.reader.clock == Clock(epoch=publisher.epoch, at=12.5, synced=True, freshness={"pod": "17"})


async def test_many_messages_are_read_in_order_without_a_gap(streams_bus) -> None:
    publisher = await synced_publisher(streams_bus)
    await publisher.publish([node(f"n{number}", number + 1) for number in range(2000)])
    async with following(streams_bus) as view:
        await publisher.publish([node(f"n{number}", number + 2001) for number in range(2000)])
        await publisher.tell_clock(synced=True, freshness={})
        await eventually(lambda: view.reader.ready and view.reader.sequence == publisher.sequence)
        assert view.nodes() == {f"n{number}": str(number + 2001) for number in range(2000)}
        assert not view.reader.dropped
