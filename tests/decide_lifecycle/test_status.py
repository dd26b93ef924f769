import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.decide.lifecycle.status import FINAL, Observed, advance

STATES = ["Queued", "Scheduled", "Running", "Succeeded", "Failed", "Cancelled"]
NEXT = {
    None: {"Accepted", "Rejected", "Cancelled"},
    "Accepted": {"Queued", "Failed", "Cancelled", "Rejected"},
    "Queued": {"Queued", "Scheduled", "Failed", "Cancelled"},
    "Scheduled": {"Running", "Resumed", "Preempted", "Queued", "Failed", "Cancelled"},
    "Running": {"Preempted", "Queued", "Succeeded", "Failed", "Cancelled"},
    "Resumed": {"Preempted", "Queued", "Succeeded", "Failed", "Cancelled"},
    "Preempted": {"Queued", "Scheduled", "Failed", "Cancelled"},
}


def lives(observations):
    last, told = None, []
    for now, observed in enumerate(observations):
        for step in advance(last, observed, now=float(now)):
            told.append(step)
            last = step
    return told


@given(
    st.lists(
        st.builds(
            Observed,
            state=st.sampled_from(STATES),
            reason=st.sampled_from(["", "A", "B"]),
            position=st.integers(0, 2),
            retries=st.integers(0, 2),
        )
    )
)
def test_steps_are_numbered_without_gaps_and_follow_each_other_legally(observations):
    told = lives(observations)
    assert [step.number for step in told] == list(range(1, len(told) + 1))
    before = None
    for step in told:
        assert step.state in NEXT[before]
        before = step.state
    assert sum(step.state in FINAL for step in told) <= 1


@given(st.builds(Observed, state=st.sampled_from(STATES), retries=st.integers(0, 2)))
def test_what_was_told_is_not_told_again(observed):
    told = lives([observed])
    assert advance(told[-1], observed, now=1000.0) == ()


CASES = {
    "a job that ran before anyone looked": (["Running"], ["Accepted", "Queued", "Scheduled", "Running"]),
    "a job that ended before anyone looked": (
        ["Succeeded"],
        ["Accepted", "Queued", "Scheduled", "Running", "Succeeded"],
    ),
    "a job that lost its room": (
        ["Queued", "Running", "Queued", "Running"],
        ["Accepted", "Queued", "Scheduled", "Running", "Preempted", "Scheduled", "Resumed"],
    ),
    "nothing after the end": (["Failed", "Running", "Succeeded"], ["Accepted", "Failed"]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_life(name):
    observed, expected = CASES[name]
    assert [step.state for step in lives([Observed(state=state) for state in observed])] == expected


def test_a_restart_by_policy_is_no_preemption():
    told = lives(
        [
            Observed(state="Running"),
            Observed(state="Queued", reason="Restarting", retries=1),
            Observed(state="Running", retries=1),
        ]
    )
    assert [step.state for step in told][3:] == ["Running", "Queued", "Scheduled", "Running"]
