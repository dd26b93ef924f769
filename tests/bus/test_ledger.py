import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import msgspec
import pytest

from muster.bus.client import Bus, connect
from muster.bus.errors import LedgerMovedError, NotConnectedError, UndecodableError, UnknownOutcomeError
from muster.bus.ledger import Ledger, commit_subject
from muster.bus.streams import StreamName, ensure_streams, last_sequence
from muster.model.ledger import Bind, Close, Commit, Leader, Memory, Undoing
from muster.model.units import GangKey, Sequence, first_sequence
from tests.nats_fixtures import empty, eventually


class View:
    def __init__(self, bus: Bus) -> None:
        self.ledger = Ledger(bus)
        self.commits: list[tuple[int, Commit]] = []
        self.resets: list[str] = []

    async def follow(self) -> None:
        async for batch in self.ledger.batches():
            if batch.reset:
                self.commits.clear()
                self.resets.append(batch.reset)
            self.commits.extend(batch.commits)


@contextlib.asynccontextmanager
async def following(bus: Bus) -> AsyncIterator[View]:
    view = View(bus)
    task = asyncio.create_task(view.follow())
    try:
        yield view
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, UndecodableError):
            await task


def leader(identity: str) -> Commit:
    return Commit(epoch=Sequence(0), identity=identity, entries=(Leader(identity=identity, lease_transitions=1),))


def memory(size: int, *, identity: str = "s1") -> Commit:
    """A commit whose body cannot be compressed below ``size`` bytes."""
    text = random.Random(7).randbytes(size).hex()
    return Commit(epoch=Sequence(1), identity=identity, entries=(Memory(core="scheduling", value={"text": text}),))


BIND = Bind(gang=GangKey("ns/g"), gang_uid="u", slots=())


@pytest.mark.parametrize(
    ("entries", "subject"),
    [
        ((Leader(identity="s.1", lease_transitions=1),), "muster.ledger.leader.s=2E1"),
        ((BIND,), "muster.ledger.bind.ns/g"),
        ((Undoing(gang=GangKey("ns/g"), gang_uid="u", slots=(), reason="R"),), "muster.ledger.undoing.ns/g"),
        (
            (Close(gang=GangKey("ns/g"), entry=Sequence(4), outcome="bound", freshness="9"),),
            "muster.ledger.close.ns/g",
        ),
        ((Memory(core="scheduling", value={}),), "muster.ledger.memory.scheduling"),
        ((BIND, BIND), "muster.ledger.batch.12"),
    ],
)
def test_commits_are_filed_by_verb_and_key(entries, subject) -> None:
    assert commit_subject(Commit(epoch=Sequence(12), identity="s", entries=entries)) == subject


async def test_an_append_at_the_applied_sequence_is_stored_and_read_by_all(streams_bus) -> None:
    async with following(streams_bus) as view:
        await eventually(lambda: view.ledger.ready)
        assert view.ledger.sequence == first_sequence(1) - 1
        sequence = await view.ledger.append(leader("s1"), expected_last_sequence=view.ledger.sequence)
        assert sequence == first_sequence(1)
        await eventually(lambda: view.commits == [(sequence, leader("s1"))])
        assert view.ledger.sequence == sequence
        found = await streams_bus.jetstream.get_msg(StreamName.LEDGER, seq=sequence)
        assert "Nats-Msg-Id" not in found.headers


async def test_who_decided_on_an_older_ledger_is_refused(streams_bus) -> None:
    ledger, other = Ledger(streams_bus), Ledger(streams_bus)
    start = await last_sequence(streams_bus, StreamName.LEDGER)
    await other.append(leader("s2"), expected_last_sequence=start)
    with pytest.raises(LedgerMovedError):
        await ledger.append(leader("s1"), expected_last_sequence=start)
    assert await last_sequence(streams_bus, StreamName.LEDGER) == start + 1


async def test_of_two_leaders_that_append_at_once_one_wins(streams_bus, nats_server) -> None:
    async with await connect(nats_server.url, name="other") as other:
        start = await last_sequence(streams_bus, StreamName.LEDGER)
        outcomes = await asyncio.gather(
            Ledger(streams_bus).append(leader("s1"), expected_last_sequence=start),
            Ledger(other).append(leader("s2"), expected_last_sequence=start),
            return_exceptions=True,
        )
        assert sorted(map(type, outcomes), key=str) == sorted([int, LedgerMovedError], key=str)


async def test_two_appends_of_one_ledger_at_a_time_are_a_mistake(streams_bus) -> None:
    ledger = Ledger(streams_bus)
    start = await last_sequence(streams_bus, StreamName.LEDGER)
    first = asyncio.create_task(ledger.append(leader("s1"), expected_last_sequence=start))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="one append at a time"):
        await ledger.append(leader("s1"), expected_last_sequence=start)
    await first


async def lose_in_mid_append(server, ledger: Ledger, commit: Commit, expected: Sequence, *, deliver: bool) -> None:
    """Break the connection while an append is in flight, after (or before) the server got it."""
    if deliver:
        client = ledger.bus.client
        answered, ledger.bus._publisher._answered = ledger.bus._publisher._answered, None
        assert answered is not None

        async def deaf(_message) -> None:
            return

        for subscription in client._subs.values():
            if subscription._cb == answered:
                subscription._cb = deaf
        appending = asyncio.create_task(ledger.append(commit, expected_last_sequence=expected))
        async with await connect(server.url, name="looker") as looker:
            await eventually(lambda: _moved(looker, expected))
        await server.kill()
    else:
        await server.pause()
        appending = asyncio.create_task(ledger.append(commit, expected_last_sequence=expected))
        await asyncio.sleep(0.05)
        await server.kill()
    with pytest.raises(UnknownOutcomeError, match="connection was lost"):
        await appending
    await server.start()
    await eventually(lambda: ledger.bus.connected)


async def _moved(bus: Bus, expected: int) -> bool:
    return await last_sequence(bus, StreamName.LEDGER) > expected


async def test_a_lost_answer_leaves_an_unknown_outcome_and_ledger_tells_that_it_is_there(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        ledger = Ledger(bus)
        start = await last_sequence(bus, StreamName.LEDGER)
        await lose_in_mid_append(own_server, ledger, leader("s1"), start, deliver=True)
        assert await ledger.find_outcome(expected_last_sequence=start) == start + 1


async def test_a_lost_append_leaves_an_unknown_outcome_and_ledger_tells_that_it_is_not_there(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        ledger = Ledger(bus)
        start = await last_sequence(bus, StreamName.LEDGER)
        await lose_in_mid_append(own_server, ledger, leader("s1"), start, deliver=False)
        outcome = await ledger.find_outcome(expected_last_sequence=start)
        # What was lost in the socket is gone; what the client still held was sent again. Either is told truly.
        last = await last_sequence(bus, StreamName.LEDGER)
        assert outcome == (None if last == start else start + 1)
        expected = Sequence(start if outcome is None else outcome)
        assert await ledger.append(leader("s2"), expected_last_sequence=expected) == expected + 1


async def test_of_a_lost_append_and_anothers_one_is_stored_and_ledger_tells_which(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus, await connect(own_server.url, name="other") as other:
        await ensure_streams(bus, incarnation=1)
        ledger = Ledger(bus)
        start = await last_sequence(bus, StreamName.LEDGER)
        await own_server.pause()
        appending = asyncio.create_task(ledger.append(leader("s1"), expected_last_sequence=start))
        await asyncio.sleep(0.05)
        await own_server.kill()
        with pytest.raises(UnknownOutcomeError):
            await appending
        await own_server.start()
        await eventually(lambda: other.connected)
        await eventually(lambda: bus.connected)
        # The client may have kept the bytes and sent them again: then the other one is refused, never both stored.
        try:
            await Ledger(other).append(leader("s2"), expected_last_sequence=start)
        except LedgerMovedError:
            assert await ledger.find_outcome(expected_last_sequence=start) == start + 1
        else:
            with pytest.raises(LedgerMovedError, match="without this commit"):
                await ledger.find_outcome(expected_last_sequence=start)
        assert await last_sequence(bus, StreamName.LEDGER) == start + 1


async def test_when_another_leader_appended_the_outcome_is_told_as_moved(streams_bus) -> None:
    ledger = Ledger(streams_bus)
    start = await last_sequence(streams_bus, StreamName.LEDGER)
    await Ledger(streams_bus).append(leader("s2"), expected_last_sequence=start)
    with pytest.raises(LedgerMovedError):
        await ledger.append(leader("s1"), expected_last_sequence=start)
    with pytest.raises(LedgerMovedError, match="without this commit"):
        await ledger.find_outcome(expected_last_sequence=start)


async def test_an_append_while_disconnected_is_certain_not_to_be_there(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        start = await last_sequence(bus, StreamName.LEDGER)
        await own_server.kill()
        await eventually(lambda: not bus.connected)
        with pytest.raises(NotConnectedError):
            await Ledger(bus).append(leader("s1"), expected_last_sequence=start)
        await own_server.start()
        await eventually(lambda: bus.connected)
        assert await last_sequence(bus, StreamName.LEDGER) == start


async def test_what_was_acknowledged_survives_a_kill(own_server) -> None:
    async with await connect(own_server.url, name="test") as bus:
        await ensure_streams(bus, incarnation=1)
        async with following(bus) as view:
            await eventually(lambda: view.ledger.ready)
            sequence = view.ledger.sequence
            for number in range(20):
                sequence = await view.ledger.append(leader(f"s{number}"), expected_last_sequence=sequence)
            await own_server.kill()
            await own_server.start()
            await eventually(lambda: view.ledger.ready and len(view.commits) == 20)
            assert view.ledger.sequence == sequence
            async with following(bus) as late:
                await eventually(lambda: late.commits == view.commits)
            assert view.resets == []


async def test_a_commit_larger_than_a_message_acts_only_when_it_is_complete(streams_bus) -> None:
    large = memory(9_000_000)
    async with following(streams_bus) as view:
        await eventually(lambda: view.ledger.ready)
        start = view.ledger.sequence
        sequence = await view.ledger.append(large, expected_last_sequence=start)
        assert sequence > start + 1, "it went in chunks"
        assert await view.ledger.find_outcome(expected_last_sequence=start) == sequence
        await eventually(lambda: view.commits == [(sequence, large)])
        assert view.ledger.sequence == sequence


async def test_a_series_whose_writer_died_is_dropped_and_the_next_one_counts(streams_bus) -> None:
    async with following(streams_bus) as view:
        await eventually(lambda: view.ledger.ready)
        last = view.ledger.sequence
        await streams_bus.publish(
            "muster.ledger.memory.x", b"half", headers={"muster-chunk": "dead-1 0 2"}, expected_last_sequence=last
        )
        await eventually(lambda: view.ledger.sequence == last + 1)
        assert view.commits == []
        sequence = await view.ledger.append(memory(9_000_000), expected_last_sequence=Sequence(last + 1))
        await eventually(lambda: [found for found, _ in view.commits] == [sequence])


async def test_a_commit_nobody_can_read_stops_the_reader(streams_bus) -> None:
    view = View(streams_bus)
    await streams_bus.publish("muster.ledger.bind.x", b'{"epoch":"no"}')
    with pytest.raises(UndecodableError, match=r"\$\.epoch"):
        async with asyncio.timeout(5):
            await view.follow()


async def test_a_recreated_ledger_starts_above_every_old_sequence_and_readers_start_anew(streams_bus) -> None:
    async with following(streams_bus) as view:
        await eventually(lambda: view.ledger.ready)
        old = await view.ledger.append(leader("s1"), expected_last_sequence=view.ledger.sequence)
        await eventually(lambda: len(view.commits) == 1)
        await empty(streams_bus)
        await ensure_streams(streams_bus, incarnation=2)
        await eventually(lambda: view.resets == ["the stream was re-created"])
        await eventually(lambda: view.ledger.ready)
        assert view.commits == []
        with pytest.raises(LedgerMovedError):
            await view.ledger.append(leader("s1"), expected_last_sequence=old)
        new = await view.ledger.append(leader("s1"), expected_last_sequence=view.ledger.sequence)
        assert new == first_sequence(2) > old


async def test_trimming_keeps_what_is_open_and_the_order_goes_on(streams_bus) -> None:
    ledger = Ledger(streams_bus)
    sequence = await last_sequence(streams_bus, StreamName.LEDGER)
    for number in range(5):
        sequence = await ledger.append(leader(f"s{number}"), expected_last_sequence=sequence)
    await ledger.trim(before=Sequence(sequence - 1))
    async with following(streams_bus) as view:
        await eventually(lambda: [found for found, _ in view.commits] == [sequence - 1, sequence])
    assert await ledger.append(leader("s9"), expected_last_sequence=sequence) == sequence + 1


def test_commits_are_plain_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(leader("s1"))) == {
        "epoch": 0,
        "identity": "s1",
        "entries": [{"type": "leader", "identity": "s1", "lease_transitions": 1}],
        "at": 0.0,
    }
