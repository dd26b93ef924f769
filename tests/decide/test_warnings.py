"""What an open plan asks of its victims: tables over what their pods carry, and when everybody's time is over."""

import msgspec
import pytest

from muster.decide.commitments import Kind, LedgerView, OpenEntry
from muster.decide.warnings import EVICT_AT, EVICT_PLAN, duties_of, format_moment, is_marked, marks_of, outlived
from muster.model.durations import parse_moment
from muster.model.ledger import Victim
from muster.model.pods import Phase, Pod

AT = 1_000_000.0
GRACE = 30.0


def victim(name: str, *, grace: float = GRACE) -> Victim:
    return Victim(gang="a/low", uid=f"u-{name}", pod=name, node="n1", evict_after=AT + grace)


PLAN = OpenEntry(
    sequence=7,
    kind=Kind.PLAN,
    gang="a/urgent",
    gang_uid="g",
    slots=(),
    at=AT,
    freshness="5",
    victims=(victim("p"), victim("q")),
)


def pod(name: str, *, told: float | None = None, plan: int = 7, **fields) -> Pod:
    marks = {} if told is None else {**marks_of(PLAN, told, room_for="a/urgent"), EVICT_PLAN: str(plan)}
    return Pod(namespace="a", name=name, uid=f"u-{name}", node="n1", phase=Phase.RUNNING, annotations=marks, **fields)


def duties(*pods: Pod, now: float, plan: OpenEntry = PLAN, complete: str = "9"):
    found = duties_of(plan, {one.uid: one for one in pods}, complete=complete, now=now)
    return {one.victim.pod: one.evict_at for one in found.warn}, {one.pod for one in found.evict}, found.due


UNTIL = AT + GRACE
CASES = {
    "nobody was told yet": ([pod("p"), pod("q")], AT + 1, ({"p": UNTIL, "q": UNTIL}, set(), None)),
    "one was told, the other was not": ([pod("p", told=UNTIL), pod("q")], AT + 1, ({"q": UNTIL}, set(), None)),
    "all were told and have time": ([pod("p", told=UNTIL), pod("q", told=UNTIL)], AT + 29, ({}, set(), UNTIL)),
    "their time is over": ([pod("p", told=UNTIL), pod("q", told=UNTIL)], UNTIL, ({}, {"p", "q"}, UNTIL)),
    "one was told late, and both go together": (
        [pod("p", told=UNTIL), pod("q", told=UNTIL + 20)],
        UNTIL + 1,
        ({}, set(), UNTIL + 20),
    ),
    "one that nobody told when its time was over has its grace from now on": (
        [pod("p", told=UNTIL), pod("q")],
        UNTIL + 100,
        ({"q": UNTIL + 130}, set(), None),
    ),
    "what an older plan told counts for nothing": (
        [pod("p", told=AT - 500, plan=3), pod("q", told=UNTIL)],
        AT + 1,
        ({"p": UNTIL}, set(), None),
    ),
    "one ended by itself": ([pod("q", told=UNTIL)], UNTIL, ({}, {"q"}, UNTIL)),
    "one is leaving already": (
        [pod("p", told=UNTIL, terminating=True), pod("q", told=UNTIL)],
        UNTIL,
        ({}, {"q"}, UNTIL),
    ),
    "nobody stands any more": ([], UNTIL, ({}, set(), None)),
    "a moment moved to the next century helps for ten minutes": (
        [pod("p", told=UNTIL), pod("q", told=AT + 4e9)],
        UNTIL + 600,
        ({}, {"p", "q"}, UNTIL + 600),
    ),
    "a moment moved to the past brings nobody to leave early": (
        [pod("p", told=AT - 100), pod("q", told=UNTIL)],
        AT + 10,
        ({}, set(), UNTIL),
    ),
}


@pytest.mark.parametrize(("pods", "now", "expected"), CASES.values(), ids=CASES.keys())
def test_what_a_plan_asks_for(pods, now, expected):
    assert duties(*pods, now=now) == expected


def test_a_moment_that_cannot_be_read_is_told_again():
    spoiled = pod("p", told=UNTIL)
    spoiled = msgspec.structs.replace(spoiled, annotations={**spoiled.annotations, EVICT_AT: "soon"})
    assert duties(spoiled, pod("q", told=UNTIL), now=AT + 1) == ({"p": UNTIL}, set(), None)


def test_graces_of_different_length_end_together():
    plan = msgspec.structs.replace(PLAN, victims=(victim("p", grace=0.0), victim("q", grace=60.0)))
    told = (pod("p", told=AT), pod("q", told=AT + 60))
    assert duties(*told, now=AT + 59, plan=plan) == ({}, set(), AT + 60)
    assert duties(*told, now=AT + 60, plan=plan) == ({}, {"p", "q"}, AT + 60)


@pytest.mark.parametrize("moment", [0.0, 1.0, 1.2, 1e9, 1e9 + 0.5])
def test_what_is_written_is_never_before_what_was_meant(moment):
    assert 0 <= parse_moment(format_moment(moment)) - moment < 1


def test_warnings_that_no_plan_stands_behind_are_outlived_once_the_ledger_is_read_so_far():
    view = LedgerView(sequence=7, open={"a/urgent": PLAN})
    told, other, newer = pod("p", told=UNTIL), pod("r", told=UNTIL, plan=3), pod("s", told=UNTIL, plan=8)
    leaving = pod("t", told=UNTIL, terminating=True)
    assert [one.name for one in outlived(view, [told, other, newer, leaving])] == ["r"]
    assert is_marked(told)
    assert not is_marked(pod("x"))
