import asyncio

from muster.controller.pacing import TokenBucket, WorkList
from muster.controller.view import Target

A, B = Target("pod", "a"), Target("pod", "b")


async def taken(work, seconds=0.2):
    try:
        async with asyncio.timeout(seconds):
            return await work.take()
    except TimeoutError:
        return None


async def test_a_target_is_with_one_worker_at_a_time_and_hints_are_kept():
    work = WorkList()
    work.add([A])
    assert await taken(work) == A
    work.add([A, B])
    assert await taken(work) == B
    assert await taken(work, 0.02) is None
    work.done(A)
    assert await taken(work) == A


async def test_the_same_hint_twice_is_one_look():
    work = WorkList()
    work.add([A, A])
    work.add([A])
    assert await taken(work) == A
    work.done(A)
    assert await taken(work, 0.02) is None


async def test_a_failure_comes_back_after_a_pause():
    work = WorkList()
    work.add([A])
    await taken(work)
    work.done(A, failed=True)
    assert await taken(work, 0.05) is None
    assert await taken(work, 2.0) == A


async def test_the_earlier_of_two_times_counts():
    work = WorkList()
    work.add_later(A, 0.02)
    work.add_later(A, 30.0)
    assert await taken(work, 1.0) == A
    work.done(A)
    assert await taken(work, 0.05) is None


async def test_what_waits_is_forgotten_for_a_new_leader():
    work = WorkList()
    work.add([A])
    work.add_later(B, 0.01)
    work.clear()
    assert await taken(work, 0.05) is None


async def test_a_bucket_lets_a_burst_through_and_then_its_rate():
    bucket = TokenBucket(rate=50.0, burst=3)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(3):
        await bucket.take()
    assert loop.time() - began < 0.015
    for _ in range(2):
        await bucket.take()
    assert loop.time() - began >= 0.03
