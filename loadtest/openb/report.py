"""The tables of the openb benchmark, and what has to be said beside them."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from loadtest.openb.runs import Run, Setting
from loadtest.openb.trace import FIRST_SEED
from loadtest.tables import machine, table

PUBLISHED = {
    ("default", "Random"): "86.30 / 87.47",
    ("default", "BestFit"): "92.86 / 93.08",
    ("default", "FGD"): "95.23 / 95.39",
    ("cpu100", "Random"): "87.44 / 89.11",
    ("cpu100", "BestFit"): "93.26 / 93.44",
    ("cpu100", "FGD"): "95.21 / 95.35",
    ("gpushare40", "Random"): "84.86 / 86.00",
    ("gpushare40", "BestFit"): "91.44 / 91.69",
    ("gpushare40", "FGD"): "93.96 / 94.15",
    ("gpuspec10", "Random"): "86.26 / 87.43",
    ("gpuspec10", "BestFit"): "93.10 / 93.30",
    ("gpuspec10", "FGD"): "94.66 / 94.95",
    ("multigpu20", "Random"): "86.92 / 88.69",
    ("multigpu20", "BestFit"): "93.73 / 93.93",
    ("multigpu20", "FGD"): "95.53 / 95.65",
}
"""Means of the paper's repository (experiments/analysis/expected_results, Apache-2.0) at 100 % / 130 %, for the same seeds."""


class Bound(NamedTuple):
    """What no scheduler can exceed on one order, in percent of the cards."""

    pods: str
    seed: int
    at_100: float
    at_130: float


def text(runs: Sequence[Run], bounds: Sequence[Bound], *, setting: Setting | None, command: str) -> str:
    """The whole section for docs/benchmarks.md."""
    parts = [f"## openb: how much of the cards is used\n\n`{command}`\n\n{machine()}\n", _words(runs, setting)]
    for pods in dict.fromkeys(run.pods for run in runs):
        own = [run for run in runs if run.pods == pods]
        of_list = [bound for bound in bounds if bound.pods == pods]
        parts.append(f"\n### {pods}\n\n{_table(pods, own, of_list)}")
        if of_list:
            parts.append(
                f"\nNo scheduler can exceed {_mean([one.at_100 for one in of_list])} % at 100 % and "
                f"{_mean([one.at_130 for one in of_list])} % at 130 % on these orders (cards alone as cutting stock, everything "
                "known, any number of moves)."
            )
    return "\n".join(parts)


def _words(runs: Sequence[Run], setting: Setting | None) -> str:
    seeds = sorted({run.seed for run in runs})
    said = [
        (
            f"Orders: the published ones (Go's math/rand, seeds {seeds[0]} … {seeds[-1]}), the same for every policy. Pods arrive one "
            "at a time and are tried once; nothing leaves, nothing is evicted. Allocation at x % is the mean over the arrivals at "
            "which the demand that arrived rounds to x % of the cards, placed demand in percent of the cards rounded to 0.01; mean ± "
            "standard deviation over the orders. Failed: pods and their demand in cards up to 100 % / up to the end."
        ),
        (
            "Ties go to the smallest node name after the random renaming of the run, for every policy. FGD and BestFit round their "
            "score to whole numbers as published, FGD knows the mix of the whole list from the start; Muster compares its score "
            "at nine decimals. The row `Muster` knows only what was placed before; `Muster, mix of the list known` has the "
            "knowledge that FGD has. Neither looks ahead, waits, retries, moves or refuses a pod that fits."
        ),
    ]
    if setting is not None:
        said.append(
            f"`Muster, windows` decides over {setting.window} arrivals together (look-ahead: the window) and makes at most "
            f"{setting.moves} moves of placed pods per window; every move is counted. Within a window larger pods may be served "
            "before smaller ones: it is not comparable with the other rows, which have neither."
        )
    if seeds and seeds[0] == FIRST_SEED:
        said.append("The exponent and the terms of Muster's score were chosen on seeds 42, 45, 48 and 50 of the lists.")
    return "\n\n".join(said)


def _table(pods: str, runs: Sequence[Run], bounds: Sequence[Bound]) -> str:
    base = {run.seed: run for run in runs if run.policy == "FGD"}
    rows = []
    for policy in dict.fromkeys(run.policy for run in runs):
        own = [run for run in runs if run.policy == policy]
        ceiling = {bound.seed: bound.at_100 for bound in bounds}
        pairs = [
            (run.at_100 - base[run.seed].at_100, run.missed_100 - base[run.seed].missed_100)
            for run in own
            if run.seed in base
        ]
        rows.append(
            [
                policy,
                _spread([run.at_100 for run in own]),
                _spread([run.at_130 for run in own]),
                f"{_mean([run.failed_100 for run in own], 0)} / {_mean([run.failed_130 for run in own], 0)}",
                f"{_mean([run.missed_100 for run in own], 1)} / {_mean([run.missed_130 for run in own], 1)}",
                _difference([one for one, _ in pairs]) if policy != "FGD" else "–",
                _difference([one for _, one in pairs], 1) if policy != "FGD" else "–",
                _mean([ceiling[run.seed] - run.at_100 for run in own if run.seed in ceiling]),
                _mean([run.moves for run in own], 0) if any(run.moves for run in own) else "–",
                PUBLISHED.get((pods, policy), "–"),
            ]
        )
    head = (
        "policy",
        "allocated % at 100 %",
        "at 130 %",
        "failed pods",
        "failed demand, cards",
        "allocated − FGD (least … most)",
        "failed demand − FGD",
        "below the bound",
        "moves",
        "published",
    )
    return table(head, rows)


def _mean(values: Sequence[float], digits: int = 2) -> str:
    return f"{statistics.fmean(values):.{digits}f}" if values else "–"


def _spread(values: Sequence[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.2f} ± {deviation:.2f}"


def _difference(values: Sequence[float], digits: int = 2) -> str:
    if not values:
        return "–"
    return f"{statistics.fmean(values):+.{digits}f} ({min(values):+.{digits}f} … {max(values):+.{digits}f})"
