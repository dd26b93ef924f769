"""Scenarios in time: jobs arrive, end, and take their time to leave; budgets; files that are known not to come true."""

import pytest

from muster.scenarios.check import check
from muster.scenarios.format import ScenarioError, load
from muster.scenarios.report import main
from muster.scenarios.runner import run

NODE = "nodes: [{name: n, gpus: 4}]\nqueues: [{name: q, deserved: {gpu: 4}}]\n"


def written(tmp_path, text):
    path = tmp_path / "timed.yaml"
    path.write_text(NODE + text, encoding="utf-8")
    return path


def outcome_of(tmp_path, text):
    return run(load(written(tmp_path, text)))


def test_a_job_that_ends_makes_room_at_its_second(tmp_path):
    outcome = outcome_of(
        tmp_path,
        "running: [{job: old, queue: q, runs: 600, tasks: [{node: n, requests: {gpu: 4}}]}]\n"
        "pending: [{job: next, queue: q, tasks: [{requests: {gpu: 4}}]}]\n",
    )
    assert 600 <= outcome.started["next"] <= 605
    assert outcome.evictions == []


def test_a_job_that_started_ends_after_its_time_and_lets_the_next_one_in(tmp_path):
    outcome = outcome_of(
        tmp_path,
        "pending:\n- {job: first, queue: q, runs: 100, tasks: [{requests: {gpu: 4}}]}\n"
        "- {job: second, queue: q, runs: 100, tasks: [{requests: {gpu: 4}}]}\n"
        "- {job: third, queue: q, tasks: [{requests: {gpu: 4}}]}\n"
        "expect: {placed: {first: {all: true}, second: {all: true}, third: {all: true}}}\n",
    )
    assert check(outcome) == []
    assert [round(outcome.started[job], -2) for job in ("first", "second", "third")] == [0, 100, 200]


def test_a_job_is_not_there_before_it_arrives(tmp_path):
    outcome = outcome_of(
        tmp_path,
        "pending:\n- {job: late, queue: q, arrives: 50, priority: 9, tasks: [{requests: {gpu: 4}}]}\n"
        "- {job: early, queue: q, tasks: [{requests: {gpu: 4}}], preemptible: false}\n",
    )
    assert outcome.started == {"early": 0.0}
    assert outcome.reasons["late"].code == "NOT_ENOUGH_ROOM"


def test_a_victim_holds_its_room_until_it_is_gone(tmp_path):
    outcome = outcome_of(
        tmp_path,
        "running: [{job: low, queue: q, leaves_in: 90, tasks: [{node: n, requests: {gpu: 4}}]}]\n"
        "pending: [{job: high, queue: q, priority: 5, tasks: [{requests: {gpu: 4}}]}]\n",
    )
    assert outcome.started["high"] >= 90


def test_a_start_that_comes_too_late_is_found(tmp_path):
    text = (
        "running: [{job: old, queue: q, runs: 600, tasks: [{node: n, requests: {gpu: 4}}]}]\n"
        "pending: [{job: next, queue: q, tasks: [{requests: {gpu: 4}}]}]\nexpect: {starts_by: {next: %d}}\n"
    )
    assert check(outcome_of(tmp_path, text % 610)) == []
    assert any("expected to start by second 300" in line for line in check(outcome_of(tmp_path, text % 300)))


@pytest.mark.parametrize(("may_lose", "evicted"), [(0, 0), (1, 0), (2, 2)])
def test_a_budget_lets_so_many_pods_go(tmp_path, may_lose, evicted):
    outcome = outcome_of(
        tmp_path,
        f"running: [{{job: low, queue: q, may_lose: {may_lose}, tasks: [{{replicas: 2, node: n, requests: {{gpu: 2}}}}]}}]\n"
        "pending: [{job: high, queue: q, priority: 5, tasks: [{requests: {gpu: 4}}]}]\n",
    )
    assert len(outcome.evictions) == evicted


def test_a_node_offers_less_than_its_cards(tmp_path):
    path = written(tmp_path, "pending: [{job: four, queue: q, tasks: [{requests: {gpu: 4}}]}]\n")
    path.write_text(path.read_text("utf-8").replace("gpus: 4}", "gpus: 4, allocatable_gpus: 3}", 1), "utf-8")
    assert run(load(path)).reasons["four"].code == "NEVER_FITS"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(
            "running: [{job: a, queue: q, arrives: 5, tasks: [{node: n}]}]\npending: []\n",
            "it runs, so it cannot arrive later",
            id="a running job that arrives",
        ),
        pytest.param(
            "pending: [{job: a, queue: q, started: 5, tasks: [{}]}]\n",
            "it waits, so started",
            id="a waiting job that started",
        ),
        pytest.param(
            "pending: [{job: a, queue: q, may_lose: 1, tasks: [{}]}]\n", "may_lose says nothing", id="a budget"
        ),
        pytest.param("pending: [{job: a, queue: q, tasks: [{}]}]\npolicy: {acts: {}}\n", "acts", id="no such policy"),
        pytest.param(
            "pending: [{job: a, queue: q, tasks: [{}]}]\nexpect: {starts_by: {b: 5}}\n",
            "b is not pending",
            id="no such job",
        ),
    ],
)
def test_what_makes_no_sense_in_time_is_refused(tmp_path, text, says):
    with pytest.raises(ScenarioError, match=says):
        load(written(tmp_path, text))


def test_a_policy_of_the_question_counts(tmp_path):
    text = (
        "running: [{job: low, queue: q, tasks: [{node: n, requests: {gpu: 4}}]}]\n"
        "pending: [{job: high, queue: q, priority: 5, tasks: [{requests: {gpu: 4}}]}]\n"
    )
    assert outcome_of(tmp_path, text).evictions
    assert not outcome_of(tmp_path, text + "policy: {actions: {preempt: observe}}\n").evictions


def test_a_known_gap_is_told_with_its_reason(tmp_path, capsys):
    text = "pending: [{job: a, queue: q, tasks: [{requests: {gpu: 9}}]}]\nexpect: {placed: {a: {all: true}}}\ngap: no node is as large\n"
    assert main([str(written(tmp_path, text))]) == 1
    assert "not as expected (known: no node is as large):" in capsys.readouterr().out
