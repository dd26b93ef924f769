"""Leadership in virtual time: who leads when, in which epoch, and that it has stopped before another can begin."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.kube.errors import Unavailable
from muster.kube.lease import SHORT_TIMINGS, LeadershipLost, LeaseLock, LeaseTimings
from tests.kube.memory_api import MemoryApi
from tests.kube.timings import VirtualTiming, settle

KEY = "muster/scheduler"
DOWN = Unavailable("down", cause="refused", unknown_outcome=False)


class Link:
    """One candidate's own connection to the API: it can be broken without the others noticing."""

    def __init__(self, api, timing):
        self.api = api
        self.timing = timing
        self.broken = False
        self.hangs = False
        self.answers_after = 0.0

    async def request(self, *args, **options):
        if self.hangs:
            await asyncio.get_running_loop().create_future()
        if self.broken:
            await asyncio.sleep(0)
            raise DOWN
        content = await self.api.request(*args, **options)
        if self.answers_after:
            await self.timing.sleep(self.answers_after)
        return content


class Candidate:
    """Runs a lock and writes down when it leads."""

    def __init__(self, name, api, timing, *, timings=SHORT_TIMINGS, stop_seconds=0.0, **options):
        self.name = name
        self.link = Link(api, timing)
        self.timing = timing
        self.reports = []
        self.lock = LeaseLock(
            self.link,
            namespace="muster",
            name="scheduler",
            identity=name,
            timings=timings,
            timing=timing,
            report=self.reports.append,
            **options,
        )
        self.leading = False
        self.epochs = []
        self.ended = []
        self.finish = asyncio.Event()
        self.stop_seconds = stop_seconds
        self.task = asyncio.create_task(self.lock.run(self.lead))

    async def lead(self, leadership):
        self.leading = True
        self.epochs.append(leadership.epoch)
        try:
            await self.finish.wait()
        except asyncio.CancelledError:
            self.ended.append(leadership.lost_because)
            if self.stop_seconds:
                await self.timing.sleep(self.stop_seconds)
            raise
        finally:
            self.leading = False

    async def stop(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@contextlib.asynccontextmanager
async def candidates(*names, **options):
    api, timing = MemoryApi(), VirtualTiming()
    made = [Candidate(name, api, timing, **options) for name in names]
    try:
        yield api, timing, *made
    finally:
        for each in made:
            each.link.hangs = False
            each.link.broken = True
            each.stop_seconds = 0.0
        for each in made:
            await each.stop()


def spec(api):
    return api.objects[KEY]["spec"]


async def test_the_first_candidate_creates_the_lease_and_leads_in_epoch_one():
    async with candidates("a") as (api, timing, a):
        await timing.advance(0)
        assert a.epochs == [1]
        assert spec(api)["holderIdentity"] == "a"
        assert spec(api)["leaseTransitions"] == 1
        assert spec(api)["leaseDurationSeconds"] == 6
        assert spec(api)["renewTime"].endswith("Z")


async def test_only_one_of_several_candidates_leads_and_it_keeps_the_lease():
    async with candidates("a", "b", "c") as (_, timing, *all_three):
        for _ in range(30):
            await timing.advance(60)
            assert sum(each.leading for each in all_three) == 1
        assert sorted(epoch for each in all_three for epoch in each.epochs) == [1]


async def test_a_dead_leader_is_followed_within_the_duration_and_a_little_more():
    async with candidates("a", "b") as (api, timing, a, b):
        await timing.advance(10)
        leader, other = (a, b) if a.leading else (b, a)
        leader.link.hangs = True
        stopped = timing.now
        while not other.leading:
            await timing.advance(0.1)
            assert timing.now - stopped < 6 + 1
        assert not leader.leading
        assert spec(api)["leaseTransitions"] == 2


async def test_a_leader_without_a_connection_has_stopped_before_another_can_begin():
    async with candidates("a", "b", stop_seconds=0.3) as (_, timing, a, b):
        await timing.advance(3.3)
        leader, other = (a, b) if a.leading else (b, a)
        leader.link.broken = True
        while not other.leading:
            await timing.advance(0.05)
            assert not (leader.leading and other.leading)
        assert leader.ended == ["no renewal succeeded in time"]
        assert any("renewing: down" in report for report in leader.reports)


async def test_leadership_counts_from_the_moment_a_renewal_was_sent_not_from_its_late_answer():
    async with candidates("a", "b") as (_, timing, a, b):
        await timing.advance(1)
        leader, other = (a, b) if a.leading else (b, a)
        leader.link.answers_after = 1.9
        await timing.advance(20)
        assert leader.leading
        leader.link.broken = True
        while not other.leading:
            await timing.advance(0.05)
            assert not (leader.leading and other.leading)


async def test_a_renewal_that_hangs_cannot_outlast_the_deadline():
    async with candidates("a") as (_, timing, a):
        await timing.advance(1)
        a.link.hangs = True
        await timing.advance(6)
        assert a.ended == ["no renewal succeeded in time"]


async def test_a_short_outage_is_bridged():
    async with candidates("a", "b") as (_, timing, a, b):
        await timing.advance(1)
        leader, other = (a, b) if a.leading else (b, a)
        leader.link.broken = True
        await timing.advance(3.5)
        leader.link.broken = False
        await timing.advance(60)
        assert leader.leading
        assert other.epochs == []


async def test_the_same_process_that_leads_again_does_so_in_a_new_epoch():
    async with candidates("a") as (_, timing, a):
        await timing.advance(1)
        a.link.broken = True
        await timing.advance(10)
        a.link.broken = False
        await timing.advance(10)
        assert a.epochs == [1, 2]


async def test_a_clean_exit_releases_the_lease_for_the_next_at_once():
    async with candidates("a", "b") as (api, timing, a, b):
        await timing.advance(1)
        leader, other = (a, b) if a.leading else (b, a)
        leader.finish.set()
        await timing.advance(0)
        assert leader.task.done()
        assert spec(api).get("holderIdentity") is None
        await timing.advance(SHORT_TIMINGS.retry)
        assert other.epochs == [2]


async def test_a_cancelled_service_releases_the_lease_too():
    async with candidates("a") as (api, timing, a):
        await timing.advance(1)
        await a.stop()
        assert a.task.cancelled()
        assert spec(api).get("holderIdentity") is None


async def test_an_error_of_the_leading_task_is_passed_on_and_the_lease_released():
    api, timing = MemoryApi(), VirtualTiming()
    lock = LeaseLock(api, namespace="muster", name="scheduler", identity="a", timings=SHORT_TIMINGS, timing=timing)
    with pytest.raises(RuntimeError, match="broken"):
        async with lock.leading():
            raise RuntimeError("broken")
    assert spec(api).get("holderIdentity") is None


async def test_a_lease_taken_by_another_ends_the_leading_block_at_the_next_renewal():
    api, timing = MemoryApi(), VirtualTiming()
    lock = LeaseLock(api, namespace="muster", name="scheduler", identity="a", timings=SHORT_TIMINGS, timing=timing)
    seen = []

    async def work():
        async with lock.leading() as leadership:
            seen.append(leadership)
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await timing.advance(0)
    api.update(KEY, spec={**spec(api), "holderIdentity": "thief", "leaseTransitions": 2})
    await timing.advance(2)
    with pytest.raises(LeadershipLost, match="held by thief in epoch 2, ours was epoch 1"):
        await task
    assert seen[0].lost.is_set()
    assert spec(api)["holderIdentity"] == "thief", "a lost lease must not be released"


async def test_a_cancellation_from_outside_is_not_taken_for_a_loss():
    api, timing = MemoryApi(), VirtualTiming()
    lock = LeaseLock(api, namespace="muster", name="scheduler", identity="a", timings=SHORT_TIMINGS, timing=timing)

    async def work():
        async with lock.leading():
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await timing.advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_block_that_swallows_its_cancellation_still_ends_with_the_loss():
    api, timing = MemoryApi(), VirtualTiming()
    link = Link(api, timing)
    lock = LeaseLock(link, namespace="muster", name="scheduler", identity="a", timings=SHORT_TIMINGS, timing=timing)

    async def work():
        async with lock.leading():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await timing.advance(1)
    link.broken = True
    await timing.advance(10)
    with pytest.raises(LeadershipLost):
        await task
    assert task.cancelling() == 0


async def test_a_lost_answer_to_an_acquisition_costs_an_epoch_but_no_time():
    api, timing = MemoryApi(), VirtualTiming()
    api.lose_answers = 1
    a = Candidate("a", api, timing)
    await timing.advance(SHORT_TIMINGS.retry)
    assert a.epochs == [2]
    await a.stop()


async def test_a_lost_answer_to_a_renewal_is_recognised_as_our_own():
    async with candidates("a", "b") as (api, timing, a, b):
        await timing.advance(1)
        leader = a if a.leading else b
        for _ in range(20):
            api.lose_answers = 1
            await timing.advance(2)
        assert leader.leading
        assert leader.epochs == [1]


async def test_other_clocks_are_never_compared():
    async with candidates("a") as (api, timing, a):
        await timing.advance(1)
        await a.stop()
        for year in ("1970", "2400"):
            holder = {"holderIdentity": "far", "leaseDurationSeconds": 6, "leaseTransitions": 7}
            api.update(KEY, spec={**holder, "renewTime": f"{year}-01-01T00:00:00.000000Z"})
            b = Candidate("b", api, timing)
            for second in range(5):
                await timing.advance(1)
                api.update(KEY, spec={**holder, "renewTime": f"{year}-01-01T00:00:{second:02}.000000Z"})
            assert b.epochs == [], "the record changed, so its holder lives"
            await timing.advance(7)
            assert b.epochs == [8], "the record stood still for a whole duration"
            await b.stop()


async def test_a_longer_duration_of_the_holder_is_respected():
    async with candidates() as (api, timing):
        holder = {"holderIdentity": "far", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z"}
        api.create(KEY, spec=holder)
        b = Candidate("b", api, timing)
        await timing.advance(39)
        assert b.epochs == []
        await timing.advance(2)
        assert b.epochs == [1]
        await b.stop()


async def test_a_deleted_lease_ends_leadership_and_cannot_bring_old_epochs_back():
    ledger = [41]
    async with candidates("a", epoch_floor=lambda: ledger[-1]) as (api, timing, a):
        await timing.advance(1)
        ledger.extend(a.epochs)
        api.delete(KEY)
        await timing.advance(5)
        assert a.ended == ["the Lease was deleted"]
        assert a.epochs == [42, 43]


async def test_api_failures_while_waiting_are_reported_and_retried():
    async with candidates("a") as (api, timing, a):
        api.failures = [DOWN, DOWN]
        await timing.advance(2)
        assert a.leading
        assert a.reports == ["acquiring: down", "acquiring: down"]


async def test_the_incarnation_lives_on_the_lease_beside_the_leadership():
    async with candidates("a") as (api, timing, a):
        assert await a.lock.incarnation() == 0
        await timing.advance(1)
        await a.lock.set_incarnation(3)
        assert api.objects[KEY]["metadata"]["annotations"]["muster.dev/incarnation"] == "3"
        assert await a.lock.incarnation() == 3
        await timing.advance(30)
        assert a.leading
        assert await a.lock.incarnation() == 3
        await a.lock.set_incarnation(3)
        with pytest.raises(ValueError, match="only ever rises"):
            await a.lock.set_incarnation(2)


async def test_an_incarnation_can_be_written_before_anybody_leads():
    api, timing = MemoryApi(), VirtualTiming()
    lock = LeaseLock(api, namespace="muster", name="scheduler", identity="a", timings=SHORT_TIMINGS, timing=timing)
    await lock.set_incarnation(1)
    async with lock.leading() as leadership:
        assert leadership.epoch == 1
        assert await lock.incarnation() == 1


async def test_writers_of_the_incarnation_that_meet_do_not_lower_it():
    api, timing = MemoryApi(), VirtualTiming()
    locks = [
        LeaseLock(api, namespace="muster", name="scheduler", identity=str(n), timings=SHORT_TIMINGS, timing=timing)
        for n in range(4)
    ]
    writing = [asyncio.create_task(lock.set_incarnation(n)) for n, lock in enumerate(locks, start=1)]
    for _ in range(20):
        await timing.advance(0.1)
    results = await asyncio.gather(*writing, return_exceptions=True)
    assert all(result is None or isinstance(result, ValueError) for result in results)
    assert await locks[0].incarnation() == 4


async def test_an_unreadable_incarnation_is_an_error_not_a_zero():
    api = MemoryApi()
    api.create(KEY, spec={}, metadata={"annotations": {"muster.dev/incarnation": "three"}})
    lock = LeaseLock(api, namespace="muster", name="scheduler", identity="a", timing=VirtualTiming())
    with pytest.raises(ValueError, match="'three'"):
        await lock.incarnation()


@pytest.mark.parametrize(
    ("timings", "message"),
    [
        (LeaseTimings(duration=10, renew=5, write_timeout=5), "lease duration 10"),
        (LeaseTimings(renew=0), "lease renew 0"),
        (LeaseTimings(margin=-1), "lease margin -1"),
    ],
)
async def test_times_that_cannot_work_together_are_refused(timings, message):
    with pytest.raises(ValueError, match=message):
        LeaseLock(MemoryApi(), namespace="n", name="l", identity="i", timings=timings)


async def test_an_empty_identity_is_refused():
    with pytest.raises(ValueError, match="identity"):
        LeaseLock(MemoryApi(), namespace="n", name="l", identity="")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["break", "mend", "hang", "late answers", "lose answer", "wait", "wait"]), st.integers(0, 2)
        ),
        max_size=25,
    ),
    st.floats(0, 0.99),
)
def test_never_do_two_lead_at_once_and_epochs_only_rise(operations, chance):
    async def play():
        api, timing = MemoryApi(), VirtualTiming(chance=chance)
        everyone = [Candidate(name, api, timing) for name in "abc"]
        history = []

        async def pass_time(seconds):
            for _ in range(int(seconds * 4)):
                await timing.advance(0.25)
                assert sum(each.leading for each in everyone) <= 1
            seen = sorted(epoch for each in everyone for epoch in each.epochs)
            assert len(seen) == len(set(seen)), "one epoch, two leaders"
            history.append(max(seen, default=0))

        for operation, number in operations:
            link = everyone[number].link
            if operation == "break":
                link.broken = True
            elif operation == "hang":
                link.hangs = True
            elif operation == "late answers":
                link.answers_after = 0.5 + number / 2
            elif operation == "mend":
                link.broken = link.hangs = False
                link.answers_after = 0.0
            elif operation == "lose answer":
                api.lose_answers = 1
            else:
                await pass_time(1.5 + number)
        for each in everyone:
            each.link.broken = each.link.hangs = False
            if each.task.done():
                each.task.result()
        api.lose_answers = 0
        assert history == sorted(history)
        for each in everyone:
            each.link.broken = True
            each.task.cancel()
        await settle()
        await asyncio.gather(*(each.task for each in everyone), return_exceptions=True)

    asyncio.run(play())
