"""On small lists of our own; the public ones are looked at only where they are present, and only for a short while."""

import csv
import json
import os
from pathlib import Path

import pytest

from loadtest.openb import main
from loadtest.openb.bound import most_allocated
from loadtest.openb.goorder import GoRandom
from loadtest.openb.muster_runs import Muster
from loadtest.openb.rivals import FGD, BestFit, Random
from loadtest.openb.runs import Setting, bounds, one_run
from loadtest.openb.trace import Kind, Machine, Order, Trace, order, read
from loadtest.openb.windows import Windows

PUBLIC = Path(os.environ.get("MUSTER_SHARED", Path(__file__).parents[3] / "shared")) / "traces/openb-v2023"


def trace(machines, kinds, pods=()):
    return Trace(tuple(machines), tuple(kinds), tuple(pods))


def arriving(machines, arrivals):
    return Order(42, tuple(range(len(machines))), tuple(arrivals))


def small_trace():
    machines = [
        Machine(f"n{number}", 32_000, 65_536, 2 + 2 * (number % 2), "A" if number % 3 else "B") for number in range(8)
    ]
    kinds = [
        Kind(4_000, 8_192, 1, 1000, ()),
        Kind(2_000, 4_096, 1, 470, ()),
        Kind(3_000, 4_096, 1, 810, ("A",)),
        Kind(8_000, 8_192, 2, 1000, ()),
        Kind(6_000, 8_192, 0, 0, ()),
    ]
    return trace(machines, kinds, [number % 5 for number in range(30)])


def test_random_numbers_are_those_of_go():
    # rand.Seed(1): ten times rand.Intn(100); rand.Seed(42): rand.Int(), rand.Shuffle of 0…19, rand.Perm(10).
    one = GoRandom(1)
    assert [one.below(100) for _ in range(10)] == [81, 87, 47, 59, 81, 18, 25, 40, 56, 0]
    two = GoRandom(42)
    assert two.word() & (2**63 - 1) == 3440579354231278675
    assert two.shuffled(range(20)) == [18, 19, 15, 13, 10, 9, 14, 16, 17, 2, 8, 7, 4, 5, 12, 6, 0, 3, 11, 1]
    assert two.permutation(10) == [6, 2, 0, 3, 8, 5, 1, 7, 4, 9]


def test_an_order_holds_the_list_shuffled_and_then_more_until_130_percent_are_asked_for():
    one = small_trace()
    arrivals = order(one, 42).arrivals
    demand = sum(one.kinds[number].demand for number in arrivals)
    assert sorted(arrivals[: len(one.pods)]) == sorted(one.pods)
    assert 1.3 * one.capacity - 2000 <= demand <= 1.3 * one.capacity + 1000
    assert sorted(order(one, 42).machines) == list(range(8))
    assert order(one, 42) == order(one, 42) != order(one, 43)


def test_a_list_that_asks_too_much_loses_pods_at_random():
    one = small_trace()
    crowded = one._replace(pods=one.pods * 3)
    arrivals = order(crowded, 42).arrivals
    assert sum(one.kinds[number].demand for number in arrivals) <= 1.3 * one.capacity
    assert len(arrivals) < len(crowded.pods)


def test_best_fit_takes_the_fullest_node_and_the_tightest_card():
    machines = [Machine("a", 64_000, 10**6, 8, ""), Machine("b", 16_000, 10**6, 2, "")]
    kinds = [Kind(1000, 1, 1, 600, ()), Kind(1000, 1, 1, 300, ()), Kind(1000, 1, 1, 700, ())]
    policy = BestFit(trace(machines, kinds), arriving(machines, ()))
    assert [policy.place(number) for number in (0, 2, 1)] == [True] * 3
    # 600 and 700 on a card each of b; 300 completes the tighter one of 300, not the one of 400.
    assert policy.cluster.gpu[1].tolist()[:2] == [400, 0]
    assert policy.cluster.cpu.tolist() == [64_000, 13_000]


def test_fgd_counts_fragments_by_the_popular_kinds():
    machines = [Machine("a", 8_000, 10**6, 2, "T4")]
    kinds = [
        Kind(4000, 1, 1, 1000, ()),
        Kind(1000, 1, 1, 500, ("V100",)),
        Kind(1000, 1, 0, 0, ()),
        Kind(9000, 1, 1, 200, ()),
    ]
    policy = FGD(trace(machines, kinds, [0] * 5 + [1] * 2 + [2] * 2 + [3]), arriving(machines, ()))
    state = policy.cluster.gpu[0].astype(float)
    state[0] = 300.0
    # A whole card: the 300 left over. Another model, no cards, too little CPU: all of 1,300.
    found = policy._fragments(0, policy.cluster.cpu[:1], state[None])
    assert found[0] == pytest.approx(0.5 * 300 + 0.5 * 1300)


def test_fgd_keeps_the_first_node_on_equal_scores_and_a_model_is_obeyed():
    machines = [
        Machine("a", 8_000, 10**6, 2, "T4"),
        Machine("b", 8_000, 10**6, 2, "V100"),
        Machine("c", 8_000, 10**6, 2, "T4"),
    ]
    kinds = [Kind(1000, 1, 1, 1000, ()), Kind(1000, 1, 1, 1000, ("V100",))]
    policy = FGD(trace(machines, kinds, [0, 0, 1]), arriving(machines, ()))
    assert [policy.place(number) for number in (1, 1, 1)] == [True, True, False]
    assert policy.place(0)
    assert policy.cluster.gpu.tolist() == [[0, 1000], [0, 0], [1000, 1000]]


@pytest.mark.parametrize("policy", [Random, BestFit, FGD, Muster])
def test_no_policy_takes_more_than_there_is_and_none_refuses_what_fits(policy):
    one = small_trace()
    arrivals = order(one, 44)
    placer = policy(one, arrivals)
    used = failed = 0
    for number in arrivals.arrivals:
        placed = placer.place(number)
        used += one.kinds[number].demand if placed else 0
        failed += not placed
    assert used <= one.capacity
    assert 0 < failed < len(arrivals.arrivals)
    room = placer.room if isinstance(placer, Muster) else placer.cluster
    free = room.card_memory.sum() if isinstance(placer, Muster) else room.gpu.clip(min=0).sum()
    assert free == one.capacity - used
    assert ((room.free if isinstance(placer, Muster) else room.cpu) >= 0).all()
    # What is left takes no whole card: had it, a pod of the first kind would have been placed at the end.
    whole = (room.card_memory == 1000) if isinstance(placer, Muster) else (room.gpu == 1000)
    assert placer.place(0) is bool((whole.any(axis=1) & (_cpu(placer) >= 4000)).any())


def _cpu(placer):
    return placer.room.free[:, 0] if isinstance(placer, Muster) else placer.cluster.cpu


@pytest.mark.parametrize(
    ("cards", "pods", "most"),
    [
        pytest.param(2, [(1, 1000), (1, 600), (1, 600)], 80.0, id="two of 600 need a card each"),
        pytest.param(2, [(1, 600), (1, 400), (2, 1000)], 100.0, id="a perfect cut is found"),
        pytest.param(4, [(1, 810)] * 8, 81.0, id="a kind that wastes on every card"),
        pytest.param(4, [(0, 0)], 0.0, id="pods without cards fill none"),
    ],
)
def test_the_bound_is_the_best_cut_of_the_cards(cards, pods, most):
    kinds = [Kind(1, 1, count, milli, ()) for count, milli in pods]
    one = trace([Machine("n", 1, 1, cards, "")], kinds)
    assert most_allocated(one, range(len(kinds))) == pytest.approx(most)


def test_no_run_exceeds_the_bound_and_a_run_is_the_same_again():
    one = small_trace()
    arrivals = order(one, 42)
    limits = bounds(one, arrivals)
    for policy in ("Random", "BestFit", "FGD", "Muster", "Muster, mix of the list known", "windows"):
        run = one_run(one, arrivals, "small", policy, Setting(10, 5))
        assert 60 < run.at_100 <= run.at_130
        assert run.at_100 <= limits[0] + 0.01
        assert run.at_130 <= limits[1] + 0.01
        assert run == one_run(one, arrivals, "small", policy, Setting(10, 5))


def test_a_window_makes_room_by_a_move_and_counts_it():
    machines = [Machine("a", 64_000, 10**6, 2, ""), Machine("b", 64_000, 10**6, 2, "")]
    kinds = [Kind(1000, 1, 1, 1000, ()), Kind(1000, 1, 2, 1000, ()), Kind(1000, 1, 1, 1000, ("none",))]
    one = trace(machines, kinds)
    for moves, placed in ((0, False), (1, True)):
        windows = Windows(one, arriving(machines, ()), moves=moves)
        for row in (0, 1):
            pod = windows._on_row(0, row)
            windows.pods.append(pod)
        assert windows.place([1]) == [placed]
        assert windows.moved == moves
        assert (windows.room.free >= 0).all()
        assert int((windows.room.card_users > 0).sum()) == (4 if placed else 2)
    assert windows.place([2]) == [False]


def test_windows_never_move_more_than_they_may_and_hold_exactly_what_they_placed():
    one = small_trace()
    arrivals = order(one, 45).arrivals
    windows = Windows(one, order(one, 45), moves=2)
    for count, start in enumerate(range(0, len(arrivals), 7), start=1):
        windows.place(arrivals[start : start + 7])
        assert windows.moved <= 2 * count
    used = sum(one.kinds[pod.kind].demand for pod in windows.pods)
    assert windows.room.card_memory.sum() == one.capacity - used
    for pod in windows.pods:
        windows._take_off(pod)
    assert windows.room.card_memory.sum() == one.capacity
    assert (windows.room.card_users == 0).all()


def written(path, head, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def lists(folder):
    one = small_trace()
    nodes = written(
        folder / "nodes.csv",
        ["sn", "cpu_milli", "memory_mib", "gpu", "model"],
        [*one.machines, ("cpu-only", 64_000, 1000, 0, "")],
    )
    rows = [
        (f"pod-{number:03}", kind.cpu, kind.memory, kind.cards, kind.milli, "|".join(kind.models))
        for number, kind in enumerate(one.kinds[kind] for kind in one.pods)
    ]
    head = ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"]
    return nodes, written(folder / "openb_pod_list_small.csv", head, rows)


def test_a_trace_is_read_without_its_nodes_that_have_no_cards(tmp_path):
    nodes, pods = lists(tmp_path)
    found = read(nodes, pods)
    assert found.machines == small_trace().machines
    assert [found.kinds[number] for number in found.pods] == [
        small_trace().kinds[number] for number in small_trace().pods
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(("gpu_milli", "milli"), "no column gpu_milli", id="a column is missing"),
        pytest.param(("470", "much"), "gpu_milli of pod-001 is 'much'", id="an amount is no number"),
    ],
)
def test_a_list_of_another_form_says_what_is_wrong(tmp_path, capsys, change, message):
    nodes, pods = lists(tmp_path)
    pods.write_text(pods.read_text().replace(*change))
    assert main([str(nodes), str(pods)]) == 2
    assert message in capsys.readouterr().err


def test_the_command_writes_its_table_between_markers_and_every_run_as_json(tmp_path, capsys):
    nodes, pods = lists(tmp_path)
    page, data = tmp_path / "benchmarks.md", tmp_path / "runs.json"
    page.write_text("# Benchmarks\n\nabove\n\n<!-- begin openb -->\nold\n<!-- end openb -->\n\nbelow\n")
    arguments = [
        str(nodes),
        str(pods),
        "--orders",
        "2",
        "--processes",
        "1",
        "--window",
        "10",
        "--moves",
        "--write",
        str(page),
    ]
    assert main([*arguments, "--json", str(data)]) == 0
    text = page.read_text()
    assert "above" in text
    assert "below" in text
    assert "old" not in text
    assert "### small" in text
    assert "at most 20 moves" in text
    assert str(tmp_path) not in text
    runs = json.loads(data.read_text())
    assert len(runs["runs"]) == 2 * 6
    assert {run["seed"] for run in runs["bounds"]} == {42, 43}
    assert "left" in capsys.readouterr().err


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public lists are not here")
def test_the_published_order_arrives_as_published():
    one = read(PUBLIC / "openb_node_list_gpu_node.csv", PUBLIC / "openb_pod_list_default.csv")
    assert one.capacity == 6_212_000
    arrivals = order(one, 42).arrivals
    assert len(arrivals) == 10_866
    arrived, sums = 0, {1: [], 2: [], 3: []}
    for number in arrivals:
        arrived += one.kinds[number].demand
        sums.setdefault(round(100 * arrived / one.capacity), []).append(round(100 * arrived / one.capacity, 2))
    # The published allocations of this seed while everything still fits.
    assert [round(sum(sums[share]) / len(sums[share]), 2) for share in (1, 2, 3)] == [1.04, 2.01, 3.01]


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public lists are not here")
def test_on_a_corner_of_the_public_cluster_less_demand_fails_than_with_fgd():
    whole = read(PUBLIC / "openb_node_list_gpu_node.csv", PUBLIC / "openb_pod_list_default.csv")
    corner = whole._replace(machines=whole.machines[::12], pods=whole.pods[::12])
    missed = {"FGD": 0.0, "Muster": 0.0}
    for seed in (42, 43):
        for policy in missed:
            missed[policy] += one_run(corner, order(corner, seed), "corner", policy, Setting(0, 0)).missed_100
    assert missed["Muster"] <= missed["FGD"]
