from hypothesis import given
from hypothesis import strategies as st

from muster.kube.timing import Backoff
from tests.kube.timings import InstantTiming


@given(st.floats(0, 0.999), st.integers(1, 60))
def test_pauses_double_stay_under_the_cap_and_never_lose_more_than_half_to_jitter(chance, attempts):
    backoff = Backoff(InstantTiming(chance=chance), base=0.1, cap=30.0)
    for attempt in range(attempts):
        whole = min(30.0, 0.1 * 2**attempt)
        assert whole / 2 <= backoff.next() <= whole


def test_a_reset_starts_from_the_shortest_pause():
    backoff = Backoff(InstantTiming(chance=0.0), base=0.1, cap=30.0)
    for _ in range(8):
        backoff.next()
    backoff.reset()
    assert backoff.next() == 0.05


def test_a_tighter_cap_holds_for_one_pause_only():
    backoff = Backoff(InstantTiming(chance=0.0), base=8.0, cap=30.0)
    assert backoff.next(cap=1.0) == 0.5
    assert backoff.next() == 8.0
