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
        pytest.param("gpus: 1,", "gpus: one,", ":5: nodes[0].gpus", id="a wrong type is refused with line and place"),
        pytest.param("gpus: 1,", "gpu: 1,", "did you mean gpus?", id="a misspelt key is told with the likely one"),
        pytest.param("memory: 512Gi", "memory: 512GB", "did you mean 512G or 512Gi?", id="no quantity of Kubernetes"),
        pytest.param("{all: true}", "{all: false}", "expect.placed.run-a says nothing", id="an expectation of nothing"),
        pytest.param("{all: true}", "{min: 0}", "expect.placed.run-a says nothing", id="at least no pod"),
        pytest.param("{none: true}", "{none: false}", "expect.evicted says nothing", id="nothing said of evictions"),
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


QUESTION = """\
nodes:
- {name: node-1, gpus: 8}
- {name: node-2, gpus: 8}
queues: [{name: prod, deserved: {gpu: 16}}, {name: dev}]
running:
- {job: eval, queue: dev, tasks: [{replicas: 2, node: node-1, requests: {gpu: 2}}]}
pending:
- {job: train, queue: prod, tasks: [{replicas: 2, requests: {gpu: 8}}]}
- {job: huge, queue: prod, tasks: [{replicas: 3, requests: {gpu: 8}}]}
"""


@pytest.fixture
def question(tmp_path):
    path = tmp_path / "question.yaml"
    path.write_text(QUESTION, encoding="utf-8")
    return path


def test_a_short_question_is_answered_for_every_job(question, capsys):
    assert main([str(question)]) == 0
    out = capsys.readouterr().out
    assert "train  starts 2 of 2 pods: node-1 cards 0-7; node-2 cards 0-7" in out
    assert "for it eval loses 2 of 2 pods (its queue is above its share)" in out
    assert "huge   waits: asks 3 pods × 8 cards together" in out
    assert "eval   loses 2 of 2 pods on node-1 for train" in out
    assert "as expected" not in out, "the file expects nothing"


def test_the_answer_is_there_as_data_beside_the_verdict(question, capsys):
    assert main([str(question), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["id"], row["ok"], row["why"]) == ("question", True, [])
    assert {"area", "confidence", "seconds"} <= row.keys()
    outcome = row["outcome"]
    assert outcome["placed"] == {"train": {"node-1": list(range(8)), "node-2": list(range(8))}}
    assert (outcome["pending"]["huge"]["code"], outcome["pending"]["huge"]["numbers"]["asked"]) == ("NEVER_FITS", 3)
    assert outcome["pending"]["eval"]["pods"] == 2
    assert outcome["evicted"]["eval"]["made_room_for"] == ["train"]
    assert outcome["moved"] == {}


def test_a_question_that_says_what_it_expects_is_compared(question, capsys):
    question.write_text(QUESTION + "expect:\n  placed: {train: {all: true}}\n  pending: [huge]\n", encoding="utf-8")
    assert main([str(question)]) == 0
    assert "as expected" in capsys.readouterr().out
    question.write_text(QUESTION + "expect:\n  evicted: {none: true}\n", encoding="utf-8")
    assert main([str(question)]) == 1
    assert "not as expected:\n  expected nobody evicted, actual eval (2)" in capsys.readouterr().out


def test_everything_that_is_wrong_with_a_file_is_told_at_once_each_with_its_line(question, capsys):
    question.write_text(
        QUESTION.replace("gpus: 8}\n- {name: node-2", "gpuz: 8}\n- {nam: node-2").replace("{gpu: 16}", "16"), "utf-8"
    )
    assert main([str(question)]) == 2
    told = capsys.readouterr().err
    assert "question.yaml:2: nodes[0].gpuz: there is no field gpuz here; did you mean gpus?" in told
    assert "question.yaml:3: nodes[1].nam: there is no field nam here; did you mean name?" in told
    assert "question.yaml:3: nodes[1].name: is missing" in told
    assert "question.yaml:4: queues[0].deserved: 16 is a number" in told


def test_a_running_job_that_does_not_say_where_is_refused(question):
    question.write_text(QUESTION.replace("node: node-1, ", ""), encoding="utf-8")
    with pytest.raises(ScenarioError, match="it runs, so say where"):
        load(question)


def test_a_job_that_is_moved_is_told_as_moved(tmp_path, capsys):
    path = tmp_path / "moves.yaml"
    path.write_text(
        "nodes:\n- {name: a, gpus: 2}\n- {name: b, gpus: 2}\nqueues: [{name: q, deserved: {gpu: 4}}]\n"
        "running:\n- {job: one, queue: q, tasks: [{node: a, requests: {gpu: 1}}]}\n"
        "- {job: two, queue: q, tasks: [{node: b, requests: {gpu: 1}}]}\n"
        "pending:\n- {job: wide, queue: q, tasks: [{requests: {gpu: 2}}]}\n",
        encoding="utf-8",
    )
    assert main([str(path), "--json"]) == 0
    outcome = json.loads(capsys.readouterr().out)["outcome"]
    [[moved]] = outcome["moved"].values()
    assert {moved["source"], moved["target"]} == {"a", "b"}
    assert moved["made_room_for"] == "wide"
    assert outcome["evicted"] == {}
    assert list(outcome["placed"]["wide"].values()) == [[0, 1]]
    main([str(path)])
    assert "moves:" in capsys.readouterr().out


def test_many_files_are_told_in_detail_only_when_asked(capsys):
    assert main([str(OWN / "gang")]) == 0
    assert "starts" not in capsys.readouterr().out
    assert main([str(OWN / "gang"), "-v"]) == 0
    out = capsys.readouterr().out
    assert "starts" in out
    assert "all  " in out


def test_the_example_of_the_documentation_is_what_the_command_prints(question, capsys, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text(encoding="utf-8")
    blocks = text.split("```")
    assert blocks[1] == f"yaml\n{QUESTION}"
    monkeypatch.chdir(question.parent)
    main([question.name])
    assert blocks[3] == f"\n$ muster scenario question.yaml\n{capsys.readouterr().out}"
