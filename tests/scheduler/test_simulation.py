"""The scheduler's shell in a bad world (see `simulation`), with all its rules and without each of some."""

from itertools import product

import pytest

from tests.scheduler.broken_rules import BROKEN, BROKEN_PLANS
from tests.scheduler.simulation import BAD, CALM, HANDOVER, LATE, WORLDS, describe, first_failure, simulate

SEEDS = 25
ENOUGH = 150
"""Seeds of each world within which a missing rule must show; nearly all need a tenth of it."""


@pytest.mark.parametrize("world", [pytest.param(world, id=name) for name, world in WORLDS.items()])
def test_every_promise_is_kept_and_everything_comes_to_rest(world):
    failure = first_failure(range(SEEDS), world)
    assert failure is None, describe(failure)


@pytest.mark.parametrize("rule", BROKEN_PLANS)
def test_the_simulation_of_plans_finds_a_violation_when(rule, monkeypatch):
    BROKEN_PLANS[rule](monkeypatch)
    assert any(simulate(seed, world).error for seed, world in product(range(ENOUGH), (CALM, HANDOVER)))


@pytest.mark.parametrize("rule", BROKEN)
def test_the_simulation_finds_a_violation_when(rule, monkeypatch):
    BROKEN[rule](monkeypatch)
    assert any(simulate(seed, world).error for seed, world in product(range(ENOUGH), (HANDOVER, BAD, LATE)))


def test_a_seed_tells_the_same_story_twice():
    assert simulate(7) == simulate(7)
