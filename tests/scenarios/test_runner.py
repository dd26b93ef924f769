"""The runner, the check and the report themselves: they must be able to fail."""

import json
import shutil
from pathlib import Path

import pytest

from muster.decide.scheduling import Decision, decide
from muster.model.instructions import Evict, Place
from muster.scenarios.check import check
from muster.scenarios.format import ScenarioError, load
from muster.scenarios.report import main
from muster.scenarios.runner import MOST_ROUNDS, run

OWN = Path(__file__).parent / "files"
SAMPLE = OWN / "gang" / "two-pods-over-two-single-card-nodes.yaml"


def edited(tmp_path, *changes, source=SAMPLE):
    text = source.read_text(encoding="utf-8")
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = tmp_path / source.name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        pytest.param("gpus: 1,", "gpuz: 1,", "gpuz", id="an unknown key is refused by name"),
        pytest.param("gpus: 1,", "gpus: one,", ":5: $.nodes[0].gpus", id="a wrong type is refused with line and place"),
        pytest.param("area: gang", "area: gangs", "not one of", id="an unknown area is refused with the known ones"),
        pytest.param("queue: team-a", "queue: team-z", "queue team-z does not exist", id="an unknown queue is refused"),
        pytest.param("placed: {run-a", "placed: {run-z", "run-z is not pending", id="an unknown job is refused"),
        pytest.param("deserved: {gpu: 2}", "deserved: {gpu: two}", "deserved.gpu", id="a deserved that is no number"),
        pytest.param("nodes:", "nodes: [", "not YAML", id="a file that is not YAML"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path, before, after, says):
    with pytest.raises(ScenarioError, match=r".+") as caught:
        load(edited(tmp_path, (before, after)))
    assert says in str(caught.value)
    assert SAMPLE.name in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        pytest.param("{all: true}", "{count: 1}", "expected 1 pods placed, actual 2", id="a wrong count is found"),
        pytest.param("{all: true}", "{all: true, 'on': [gpu-01]}", "expected on gpu-01", id="a wrong node is found"),
        pytest.param(
            "placed: {run-a: {all: true}}", "pending: [run-a]", "expected to wait", id="a pod that should wait is found"
        ),
        pytest.param(
            "evicted: {none: true}",
            "cards: {free_cards: {gpu-01: 1}}",
            "untouched",
            id="a card that should be free is found",
        ),
    ],
)
def test_the_check_finds_what_differs(tmp_path, before, after, says):
    why = check(run(load(edited(tmp_path, (before, after)))))
    assert any(says in line for line in why), why


def test_an_eviction_that_nobody_expects_is_found():
    scenario = load(OWN / "priority" / "late-but-higher-goes-first.yaml")
    done = []

    def evicting(snapshot, memory, now, policy):
        decision = decide(snapshot, memory, now, policy)
        if done:
            return decision
        done.append(True)
        gang = next(gang for gang in snapshot.gangs if gang.key == "scenario/run-x")
        victim = Evict(gang="scenario/run-b", victims=((gang.key, gang.members[0].uid),), slots=(), cause="preempt")
        return Decision(instructions=(victim, *decision.instructions), memory=decision.memory)

    why = check(run(scenario, decide_with=evicting))
    assert any("expected nobody evicted" in line for line in why), why


def test_a_scheduler_that_never_comes_to_rest_is_found():
    scenario = load(SAMPLE)
    turn = iter(range(10_000))

    def restless(snapshot, memory, now, policy):
        next(turn)
        empty = Place(gang=snapshot.gangs[0].key, gang_uid="", slots=())
        return Decision(instructions=(empty,), memory=memory)

    outcome = run(scenario, decide_with=restless)
    assert outcome.rounds == MOST_ROUNDS
    assert any("not settled" in line for line in check(outcome))


def test_report_exits_1_and_prints_expected_against_actual_when_a_file_fails(tmp_path, capsys):
    edited(tmp_path, ("{all: true}", "{count: 1}"))
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "expected 1 pods placed, actual 2" in out


def test_report_prints_one_json_line_for_each_file_and_exits_0_when_all_pass(tmp_path, capsys):
    for path in (SAMPLE, OWN / "gang" / "one-pod-of-each-part.yaml"):
        shutil.copy(path, tmp_path)
    assert main([str(tmp_path), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["id"], row["ok"], row["area"], row["confidence"], row["why"]) for row in rows] == [
        ("one-pod-of-each-part", True, "gang", "certain", []),
        (SAMPLE.stem, True, "gang", "certain", []),
    ]


def test_report_names_a_path_that_is_not_there(tmp_path, capsys):
    assert main([str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
