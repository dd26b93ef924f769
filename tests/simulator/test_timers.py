"""The one heap of timers behind kubelets and controllers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.simulator.clock import VirtualClock
from muster.simulator.controllers.work_queue import WorkQueue
from muster.simulator.timers import Timers


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=30))
async def test_timers_fire_once_in_time_order_and_never_when_cancelled(wanted):
    clock, fired = VirtualClock(0.0), []
    timers = Timers(clock)
    for number, (seconds, cancelled) in enumerate(wanted):
        timer = timers.after(
            seconds, lambda seconds=seconds, number=number: fired.append((clock.now(), seconds, number))
        )
        if cancelled:
            timer.cancel()
    await clock.advance(100)
    expected = sorted((float(seconds), seconds, number) for number, (seconds, gone) in enumerate(wanted) if not gone)
    assert fired == expected
    assert len(timers) == 0


async def test_a_timer_that_fails_does_not_keep_the_others_from_firing():
    clock, fired = VirtualClock(), []
    timers = Timers(clock)
    timers.after(1, lambda: 1 / 0)
    timers.after(1, lambda: fired.append("same moment"))
    timers.after(2, lambda: fired.append("later"))
    with pytest.raises(ExceptionGroup) as failed:
        await clock.advance(5)
    assert isinstance(failed.value.exceptions[0], ZeroDivisionError)
    assert fired == ["same moment"]
    await clock.advance(5)
    assert fired == ["same moment", "later"]


async def test_after_stop_nothing_fires_and_nothing_is_taken():
    clock, fired = VirtualClock(), []
    timers = Timers(clock)
    timers.after(1, lambda: fired.append(1))
    timers.stop()
    timers.after(1, lambda: fired.append(2))
    await clock.advance(5)
    assert fired == []


async def test_a_key_asked_for_often_is_looked_at_once():
    clock, seen = VirtualClock(0.0), []
    queue = WorkQueue[str](Timers(clock), lambda key: seen.append((clock.now(), key)), batch_seconds=1)
    for _ in range(5):
        queue.add("a")
    queue.add("b")
    queue.add_after("c", 10)
    queue.add_after("c", 3)
    queue.add_after("d", 2)
    queue.forget("d")
    await clock.advance(20)
    assert seen == [(1.0, "a"), (1.0, "b"), (3.0, "c")]
