"""What people are told of plans, on both sides, and of what actors that observe would do."""

import msgspec
import pytest

from muster.decide.commitments import Kind, LedgerView, OpenEntry
from muster.decide.memory import CoreMemory, Eviction
from muster.decide.preemption.observing import mode_of, observed_plan
from muster.model.gangs import MemberState, Timing
from muster.model.ledger import Victim
from muster.model.pods import Pod
from muster.model.policy import Actions, Fairness, Policy
from muster.scheduler import leaving
from tests.decide.build import CARD, gang, node, queue, role, snapshot, standing, whole

NOW = 1_700_000_000.0
OBSERVES = Policy(
    actions=Actions(preempt="act", reclaim="observe", consolidate="observe"), fairness=Fairness(stability=0.0)
)


def named(key):
    return key.partition("/")[2]


def plan(victims, *, after=25.0, gang="ns/llm"):
    return OpenEntry(
        sequence=7, kind=Kind.PLAN, gang=gang, gang_uid="g", slots=(), at=NOW, cause="reclaim",
        victims=tuple(
            Victim(gang=f"ns/{name}", uid=f"{name}-{n}", pod=f"{name}-{n}", node="n1", evict_after=NOW + after)
            for name, pods in victims.items() for n in range(pods)
        ),
    )  # fmt: skip


def pods(*names):
    return {name: Pod(namespace="ns", name=name, uid=name, shape=role(gpus=1).shape) for name in names}


def low(*, checkpoint=0.0, bound=2, waiting=0):
    members = [standing(f"low-{n}", "n1", cards=whole(n)) for n in range(bound)]
    members += [standing(f"low-{bound + n}", None, state=MemberState.WAITING) for n in range(waiting)]
    timing = Timing(started=NOW - 100 if bound else 0.0, last_checkpoint=checkpoint)
    return gang("low", role(count=bound + waiting, gpus=1), members=members, queue="dev", timing=timing, minimum=1)


def test_a_victim_is_told_until_when_for_whom_how_much_of_it_and_what_is_kept():
    text = leaving.asked_to_leave(plan({"low": 1}), low(checkpoint=NOW - 180), None, now=NOW, named=named)
    assert text.startswith(f"asked to leave until {leaving.clock(NOW + 25)} (in 25 s) for llm: 1 of its 2 pods;")
    assert text.endswith(f"its last checkpoint is of {leaving.clock(NOW - 180)} (3 min ago)")


def test_a_victim_without_a_checkpoint_is_told_that_none_is_known():
    text = leaving.asked_to_leave(plan({"low": 2}, after=0), low(), None, now=NOW + 5, named=named)
    assert text == "leaves now for llm: all of it; no checkpoint of it is known (muster.dev/last-checkpoint)"


def test_what_a_pod_was_told_counts_and_not_what_the_plan_hoped_for():
    text = leaving.asked_to_leave(plan({"low": 2}), low(), NOW + 40, now=NOW, named=named)
    assert "(in 40 s)" in text


@pytest.mark.parametrize(
    ("victims", "still", "due", "text"),
    [
        pytest.param({"a": 2}, ["a-0", "a-1"], None, "2 pods of a will be asked to leave at {end} if they have not ended", id="not told yet"),
        pytest.param({"a": 2, "b": 1}, ["a-0", "a-1", "b-0"], 25.0, "2 pods of a, 1 pod of b are asked to leave until {end} (in 25 s)", id="all are told"),
        pytest.param({"a": 2}, ["a-1"], 25.0, "1 pod of a is asked to leave until {end} (in 25 s); 1 pod left already", id="one has left"),
        pytest.param({"a": 1}, ["a-0"], -1.0, "1 pod of a leaves now", id="its time is over"),
        pytest.param({"a": 1}, [], None, "all who had to leave for it have left", id="all are gone"),
        pytest.param(dict.fromkeys("abcde", 1), [f"{n}-0" for n in "abcde"], -1.0, "1 pod of a, 1 pod of b, 1 pod of c and of 2 more jobs leave now", id="three jobs are named"),
    ],
)  # fmt: skip
def test_the_gang_that_gets_room_is_told_who_leaves(victims, still, due, text):
    moment = None if due is None else NOW + due
    told = leaving.leave_for(plan(victims), pods(*still), moment, now=NOW, named=named)
    assert told == text.format(end=leaving.clock(NOW + 25))


def test_a_job_that_left_is_told_when_for_whom_what_is_kept_and_what_follows():
    memory = CoreMemory(
        evictions=(
            Eviction(gang="ns/low", at=NOW - 7200, pods=1, room_for="ns/old"),
            Eviction(gang="ns/low", at=NOW - 600, pods=2, room_for="ns/llm"),
            Eviction(gang="ns/other", at=NOW - 60, pods=2, room_for="ns/x"),
        )
    )
    text = leaving.left(low(bound=0, waiting=2, checkpoint=NOW - 630), memory, now=NOW, named=named)
    assert text.startswith(
        f"2 pods of it left for llm, asked at {leaving.clock(NOW - 600)} (10 min ago); its last checkpoint"
    )
    assert text.endswith("it starts again by itself when there is room")
    assert leaving.left(low(), memory, now=NOW, named=named) == ""
    assert leaving.left(low(bound=0, waiting=2), CoreMemory(), now=NOW, named=named) == ""


def state(asks=1):
    """`dev` uses both cards and deserves none; `prod` deserves both and its jobs wait."""
    waits = [gang(f"llm{n}", role(gpus=1), queue="prod", order=n) for n in range(asks)]
    queues = (queue("dev", deserved={"cpu": 1}), queue("prod", deserved={"gpu": 2 * CARD}))
    return snapshot([node(gpus=2)], [low(), *waits], queues=queues)


def test_what_an_observing_actor_would_do_is_a_plan_with_the_line_that_switches_it():
    found = observed_plan(state(), CoreMemory(), NOW, OBSERVES, named=named)
    assert found is not None
    assert (found.gang, found.cause, [one.gang for one in found.victims]) == ("ns/llm0", "reclaim", ["ns/low"])
    text = leaving.would_leave(found, OBSERVES, now=NOW, named=named)
    assert text == (
        "1 pod of low (1 card) would be asked to leave, with 30 s to write a checkpoint; "
        "the policy only observes (actions.reclaim: observe; act lets it)"
    )
    assert leaving.would_leave_for(found, OBSERVES, named=named).startswith(
        "would be asked to leave for llm0; the policy only"
    )


def test_the_plan_for_one_gang_alone_does_not_depend_on_who_stands_before_it():
    found = observed_plan(state(asks=2), CoreMemory(), NOW, OBSERVES, only="ns/llm1")
    assert found is not None
    assert found.gang == "ns/llm1"
    assert observed_plan(state(asks=2), CoreMemory(), NOW, OBSERVES, only="ns/nobody") is None


def test_nothing_is_observed_of_an_actor_that_acts():
    acts = msgspec.structs.replace(OBSERVES, actions=Actions(reclaim="act", consolidate="observe"))
    assert observed_plan(state(), CoreMemory(), NOW, acts) is None
    assert mode_of("backfill", acts.actions) == acts.actions.preempt


def test_the_open_plan_that_asks_a_gang_to_leave_is_found():
    view = LedgerView(open={"ns/llm": plan({"low": 1})})
    assert leaving.asked_by("ns/low", view.open.values()) is view.open["ns/llm"]
    assert leaving.asked_by("ns/llm", view.open.values()) is None
