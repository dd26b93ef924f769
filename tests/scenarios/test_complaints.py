"""What users of other schedulers report, where a scenario file cannot say it; docs/complaints.md lists all of it.

The table and the files are compared: none may be missing on either side, and every test that is named must exist.
"""

import ast
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from muster.decide.lifecycle.actions import VCJOBS
from muster.decide.memory import CoreMemory, gang_failed
from muster.model.gangs import MemberState
from muster.model.instructions import Slot
from muster.model.ledger import Nominated, Plan, Victim
from muster.model.policy import Timeouts
from muster.model.snapshot import Occupant
from muster.scenarios.format import load
from muster.scenarios.report import files_below
from muster.scheduler.audit import decisions_of
from tests.decide.build import CARD, gang, node, placed, queue, reasons, request, role, run, snapshot, standing, whole
from tests.decide_lifecycle.world import World, job_document

ROOT = Path(__file__).parents[2]
FILES = Path(__file__).parent / "files"
TABLE = ROOT / "docs" / "complaints.md"
ROW = re.compile(
    r"^\| (?P<number>[RV]\d+) \| (?P<complaint>[^|]+) \| (?P<words>[^|]+) \| (?P<where>[^|]+) \| (?P<outcome>[^|]+) \|$"
)
FILE = re.compile(r"\]\(\.\./(tests/scenarios/files/[^)]+\.yaml)\)")
TEST = re.compile(r"`(tests/[^`]+\.py)::(\w+)`")
RIVALS, VOLCANO = 45, 30
"""Entries of the two lists that were gone through, by number."""
OUTCOMES = ("as it should be", "gap:", "exception:")


def rows():
    return [found.groupdict() for line in TABLE.read_text("utf-8").splitlines() if (found := ROW.match(line))]


def test_every_entry_of_both_lists_is_in_the_table():
    numbers = {row["number"] for row in rows()}
    assert numbers == {f"R{n}" for n in range(1, RIVALS + 1)} | {f"V{n}" for n in range(1, VOLCANO + 1)}


def test_every_line_of_the_table_is_read():
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if re.match(r"^\| [RV]\d", line)]
    assert len(lines) == len(rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["complaint"])
def test_a_complaint_has_its_scenario_or_test_or_a_reason_why_not(row):
    files, tests = FILE.findall(row["where"]), TEST.findall(row["where"])
    outcome = row["outcome"]
    assert outcome.startswith(OUTCOMES), outcome
    if outcome.startswith("exception:"):
        assert len(outcome) > len("exception: ") + 10
        return
    assert files or tests
    gaps = [load(ROOT / path).gap for path in files]
    for path, name in tests:
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        defined = {one.name: one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in defined, f"{path} has no test {name}"
        gaps.append("xfail" if any("xfail" in ast.dump(mark) for mark in defined[name].decorator_list) else "")
    assert any(gaps) == outcome.startswith("gap:"), f"{gaps} and {outcome!r}"


def test_every_file_that_names_a_complaint_is_in_the_table():
    told = {(ROOT / path).resolve() for row in rows() for path in FILE.findall(row["where"])}
    there = {path.resolve() for path in files_below([FILES]) if "#" in load(path).source or "KEP" in load(path).source}
    assert there - told == set()
    assert all(path.is_file() for path in told)


def test_one_that_fits_behind_many_that_do_not_starts_in_the_first_round():
    hopeless = [gang(f"g{number}", role(gpus=8), order=number, priority=5) for number in range(1500)]
    state = snapshot([node("full", gpus=4), node("half", gpus=4)], [*hopeless, gang("small", role(gpus=2), order=9999)])
    assert placed(run(state)) == {"small": ["full"]}


def test_room_that_a_pod_of_another_scheduler_leaves_is_used_in_the_next_round():
    foreign = Occupant(uid="f", key="ns/f", node="n1", request=request(gpus=4), cards=whole(0, 1, 2, 3))
    state = snapshot([node(gpus=4)], [gang("g", role(count=2, gpus=2))], occupants=(foreign,))
    first = run(state)
    assert placed(first) == {}
    assert placed(run(msgspec.structs.replace(state, occupants=()), memory=first.memory)) == {"g": ["n1", "n1"]}


def test_a_gang_that_is_always_refused_lets_others_in_and_is_tried_more_and_more_seldom():
    state = snapshot([node(gpus=2)], [gang("refused", role(gpus=2), order=1), gang("patient", role(gpus=2), order=2)])
    assert placed(run(state)) == {"refused": ["n1"]}
    memory, waits = CoreMemory(), []
    for _ in range(4):
        memory = gang_failed(memory, "ns/refused", now=100, timeouts=Timeouts(backoff_initial=5, backoff_max=300))
        waits.append(memory.gangs["ns/refused"].until - 100)
    assert waits == [5, 10, 20, 40]
    later = run(state, memory=memory, now=101)
    assert placed(later) == {"patient": ["n1"]}
    assert reasons(later)["refused"].code == "BACKOFF"


@pytest.mark.parametrize(
    "waiting", [pytest.param(False, id="the rest runs"), pytest.param(True, id="one more is asked")]
)
def test_a_gang_of_which_a_pod_succeeded_is_whole(waiting):
    members = [
        standing("done", "n1", state=MemberState.SUCCEEDED),
        standing("runs", "n1", cards=whole(0)),
    ]
    one = gang("g", role(count=1 if waiting else 0, gpus=1), minimum=2, members=members)
    assert one.complete
    assert not one.broken
    decision = run(snapshot([node(gpus=4)], [one]))
    assert placed(decision) == ({"g": ["n1"]} if waiting else {})


def test_a_queue_that_is_made_anew_counts_what_runs_in_it():
    runs = gang(
        "old", role(count=0, gpus=1), minimum=2, members=[standing(f"p{n}", "n1", cards=whole(n)) for n in (0, 1)]
    )
    state = snapshot([node(gpus=4)], [runs, gang("new", role(gpus=1))], [queue(capability={"gpu": 2 * CARD})])
    gone = msgspec.structs.replace(state, queues=(queue("other"),))
    memory = run(state).memory
    without = run(gone, memory=memory)
    assert reasons(without)["new"].code == "QUEUE_UNKNOWN"
    again = run(state, memory=without.memory)
    assert placed(again) == {}
    assert reasons(again)["new"].numbers["used"] == 2 * CARD


def test_labels_of_nodes_that_go_and_come_back_lose_no_usage():
    full = gang(
        "old", role(count=0, gpus=2), minimum=2, members=[standing(n, n, cards=whole(0, 1)) for n in ("a", "b")]
    )
    asks = gang("new", role(count=2, gpus=1), rack="rack")

    def nodes(**labels):
        return [node(name, gpus=2, labels=labels) for name in ("a", "b")]

    state = snapshot(nodes(rack="r"), [full, asks])
    memory = run(state).memory
    bare = run(msgspec.structs.replace(state, nodes=tuple(nodes())), memory=memory)
    assert placed(bare) == {}
    assert placed(run(state, memory=bare.memory)) == {}


@pytest.mark.parametrize(
    ("left", "fits"),
    [
        pytest.param([MemberState.BOUND, MemberState.BOUND], 0, id="both run: the limit is used up"),
        pytest.param([MemberState.BOUND, MemberState.SUCCEEDED], 1, id="one succeeded: its part is free"),
        pytest.param([MemberState.BOUND, MemberState.LEAVING], 0, id="one is leaving: it still counts"),
        pytest.param([], 2, id="the job is gone: all of it is free"),
    ],
)
def test_a_queue_is_charged_for_what_stands_and_nothing_else(left, fits):
    members = [standing(f"p{n}", "n1", state=state, cards=whole(n)) for n, state in enumerate(left)]
    running = [gang("old", role(count=0, gpus=1), minimum=1, members=members)] if left else []
    state = snapshot(
        [node(gpus=4)], [*running, gang("new", role(count=4, gpus=1), minimum=1)], [queue(capability={"gpu": 2 * CARD})]
    )
    assert len(placed(run(state)).get("new", [])) == fits


def test_every_victim_is_told_and_counted_once():
    victims = tuple(
        Victim(gang=f"ns/{name}", uid=f"{name}-{n}", pod=f"{name}-{n}", node="n1", evict_after=130.0)
        for name, pods in (("wide", 3), ("narrow", 1))
        for n in range(pods)
    )
    slot = Slot(uid="u", pod="p", role="w", node="n1")
    plan = Plan(
        gang="ns/high",
        gang_uid="x",
        cause="preempt",
        victims=victims,
        nominated=(Nominated(gang="ns/high", gang_uid="x", slots=(slot,)),),
    )
    told = [one for one in decisions_of(plan, sequence=5, epoch=1, at=100.0) if one.verb == "preempt"]
    assert Counter(one.gang for one in told) == {"ns/wide": 1, "ns/narrow": 1}
    assert sum(int(one.numbers["pods"]) for one in told) == len(victims)


def test_a_pod_that_succeeded_is_not_run_again_when_its_node_takes_it_along():
    world = World()
    world.put(VCJOBS, job_document())
    world.settle()
    for number in range(3):
        world.set_pod(f"job-worker-{number}", "Running")
    world.settle()
    world.set_pod("job-worker-0", "Succeeded")
    world.settle()
    world.remove_pod("job-worker-0")
    world.settle()
    assert {pod.name for pod in world.pods()} == {"job-worker-1", "job-worker-2"}
