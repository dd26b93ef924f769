import asyncio

import pytest

from muster.bus.client import Bus
from muster.bus.errors import NoStreamError, QueueFullError, StreamConflictError
from muster.bus.messages import ShortJob, Submit
from muster.bus.streams import STREAMS, StreamName, ensure_streams, last_sequence, missing_streams, spec_of, stream_info
from muster.bus.subjects import jobs_submit, state_subject
from muster.model.units import first_sequence, incarnation_of


async def test_missing_streams_are_created_and_a_second_time_nothing_is_done(bus: Bus) -> None:
    assert set(await missing_streams(bus)) == set(StreamName)
    ensured = await ensure_streams(bus, incarnation=0)
    assert set(ensured.created) == set(StreamName)
    assert await missing_streams(bus) == ()
    again = await ensure_streams(bus, incarnation=0)
    assert (again.created, again.updated) == ((), ())


async def test_two_services_may_ensure_at_the_same_time(bus: Bus) -> None:
    one, other = await asyncio.gather(ensure_streams(bus, incarnation=3), ensure_streams(bus, incarnation=3))
    assert set(one.created) | set(other.created) == set(StreamName)


async def test_state_and_ledger_start_at_their_incarnation_and_the_others_at_one(bus: Bus) -> None:
    await ensure_streams(bus, incarnation=7)
    for spec in STREAMS:
        info = await stream_info(bus, spec.name)
        assert info is not None
        assert info.state.first_seq == (first_sequence(7) if spec.incarnated else 0 if info.state.last_seq == 0 else 1)
    sequence = await bus.publish(state_subject("node", "a"), b"{}")
    assert sequence == first_sequence(7)
    assert incarnation_of(sequence) == 7


async def test_the_first_incarnation_starts_at_one(bus: Bus) -> None:
    await ensure_streams(bus, incarnation=0)
    assert await last_sequence(bus, StreamName.LEDGER) == 0
    assert await bus.publish(state_subject("node", "a"), b"{}") == 1


async def test_a_lease_behind_the_stream_is_told(bus: Bus) -> None:
    await ensure_streams(bus, incarnation=7)
    with pytest.raises(StreamConflictError, match="is at incarnation 7, the Lease says 6"):
        await ensure_streams(bus, incarnation=6)


async def test_what_may_be_changed_is_changed_and_kept_messages_stay(bus: Bus) -> None:
    wanted = spec_of(StreamName.STATUS).config(incarnation=0, replicas=1)
    await bus.jetstream.add_stream(wanted.evolve(max_age=3600.0, max_bytes=999_999))
    await bus.publish("muster.status.t.j", b"x")
    ensured = await ensure_streams(bus, incarnation=0)
    assert ensured.updated == (StreamName.STATUS,)
    info = await stream_info(bus, StreamName.STATUS)
    assert info is not None
    assert info.config.max_age == 7 * 86_400
    assert info.config.max_bytes == 999_999, "the operator's own size is left alone"
    assert info.state.messages == 1


async def test_what_cannot_be_changed_is_named(bus: Bus) -> None:
    wanted = spec_of(StreamName.JOBS).config(incarnation=0, replicas=1)
    await bus.jetstream.add_stream(wanted.evolve(retention="limits"))
    with pytest.raises(StreamConflictError, match=r"JOBS: retention is 'limits' and must be .*workqueue"):
        await ensure_streams(bus, incarnation=0)


async def test_delete_markers_written_by_the_server_are_switched_off(bus: Bus) -> None:
    wanted = spec_of(StreamName.STATE).config(incarnation=0, replicas=1)
    await bus.jetstream.add_stream(wanted.evolve(subject_delete_marker_ttl=60.0, allow_rollup_hdrs=True))
    await ensure_streams(bus, incarnation=0)
    info = await stream_info(bus, StreamName.STATE)
    assert info is not None
    assert not info.config.subject_delete_marker_ttl


async def test_a_full_tenant_hears_so_and_the_others_go_on(bus: Bus) -> None:
    await ensure_streams(bus, incarnation=0)
    info = await stream_info(bus, StreamName.JOBS)
    assert info is not None
    await bus.jetstream.update_stream(info.config.evolve(max_msgs_per_subject=2))
    submit = Submit(id="a", short=ShortJob(image="x"))
    for _ in range(2):
        await bus.publish(jobs_submit("greedy"), submit)
    with pytest.raises(QueueFullError, match=r"muster\.jobs\.submit\.greedy: not stored.*too many messages wait there"):
        await bus.publish(jobs_submit("greedy"), submit)
    await bus.publish(jobs_submit("modest"), submit)


async def test_without_a_stream_the_publisher_hears_so(bus: Bus) -> None:
    with pytest.raises(NoStreamError):
        await bus.publish("muster.jobs.submit.t", b"x")
