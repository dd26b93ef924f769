"""The scheduler's shell in a bad world (see `simulation`), with all its rules and without each of some."""

import pytest

from tests.scheduler.broken_rules import BROKEN
from tests.scheduler.simulation import describe, first_failure

SEEDS = 120
ENOUGH = 600
"""Seeds within which a missing rule must show."""


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS // 4))
def test_every_promise_is_kept_and_everything_comes_to_rest(first):
    failure = first_failure(range(first, first + SEEDS // 4))
    assert failure is None, describe(failure)


@pytest.mark.parametrize("rule", BROKEN)
def test_the_simulation_finds_a_violation_when(rule, monkeypatch):
    BROKEN[rule](monkeypatch)
    assert first_failure(range(ENOUGH)) is not None
