"""The protocol holds with every rule, and no rule can be left out."""

from pathlib import Path

import pytest

from tests.model.explore import Outcome, explore, walk
from tests.model.rules import LIVENESS_RULES, RULES
from tests.model.scenarios import BREAKS, SCENARIOS, WALKED

LONGEST_HISTORY = 18


def without(rule: str) -> Outcome:
    scenario = SCENARIOS[BREAKS[rule]]
    settle_every = 1 if rule in LIVENESS_RULES else 0
    return explore(scenario.build(frozenset({rule})), limit=scenario.limit, settle_every=settle_every)


@pytest.mark.parametrize("name", SCENARIOS, ids=[f"all rules hold when {s.title}" for s in SCENARIOS.values()])
def test_with_every_rule_no_reachable_state_breaks_an_invariant(name):
    scenario = SCENARIOS[name]
    outcome = explore(scenario.build(frozenset()), limit=scenario.limit, settle_every=scenario.settle_every)
    assert not outcome.broken, f"{scenario.title}\n{outcome.report()}"
    assert outcome.exhausted, f"{scenario.title}: more than {scenario.limit} states; make the instance smaller"
    assert outcome.settled > 0


@pytest.mark.parametrize(
    "rule", RULES, ids=[f"{rule} cannot be left out: {sentence}" for rule, sentence in RULES.items()]
)
def test_without_a_rule_a_short_history_breaks_an_invariant(rule):
    outcome = without(rule)
    assert outcome.broken, f"without {rule} nothing breaks in {outcome.states} states: the rule or its scenario is idle"
    assert 0 < len(outcome.history) <= LONGEST_HISTORY, outcome.report()


@pytest.mark.parametrize("name", WALKED, ids=[f"random walks find nothing when {s.title}" for s in WALKED.values()])
def test_random_walks_through_larger_instances_break_nothing(name):
    outcome = walk(WALKED[name].build(frozenset()), seed=20, walks=150, length=60)
    assert not outcome.broken, outcome.report()


def test_random_walks_do_find_what_breadth_first_finds():
    outcome = walk(SCENARIOS["undo"].build(frozenset({"D-room-held-until-close"})), seed=20, walks=300, length=40)
    assert outcome.broken


def test_an_unknown_rule_is_refused_by_name():
    with pytest.raises(ValueError, match="Z-no-such-rule"):
        SCENARIOS["undo"].build(frozenset({"Z-no-such-rule"}))


def test_the_readme_explains_every_rule():
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    assert [rule for rule in RULES if f"`{rule}`" not in text] == []


def test_every_rule_names_the_scenario_that_needs_it():
    assert list(BREAKS) == list(RULES)
