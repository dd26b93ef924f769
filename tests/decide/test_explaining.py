"""The details of a wait, in the words that people read: the best place, who holds it, why the other will not do, what cures it."""

import msgspec
import pytest

from muster.decide.doubts import annotation_doubts
from muster.decide.explaining.details import Scene, details_of
from muster.decide.explaining.fixes import fixes_of
from muster.decide.memory import CoreMemory, ShareSince
from muster.decide.reasons import CURED_BY_NODES, NEVER, Reason
from muster.model.budgets import Budget
from muster.model.gangs import Member, MemberState, Timing
from muster.model.nodes import Taint
from muster.model.policy import Actions, Fairness, Policy
from muster.model.snapshot import Occupant
from tests.decide.build import CARD, gang, node, queue, reasons, request, role, run, snapshot, standing, whole

NOW = 100_000.0
ACTS = Policy(actions=Actions(preempt="act", reclaim="act"))


def on(name, node_name, cards, *, queue_name="dev", priority=0, timing=None, **more):
    """A job of one pod that holds the first cards of a node."""
    members = [standing(f"{name}-0", node_name, cards=whole(*range(cards)))]
    one = gang(name, role(count=0, gpus=cards), minimum=1, members=members, queue=queue_name, priority=priority, **more)
    return msgspec.structs.replace(one, timing=timing or Timing())


def racks(sizes, gpus=8):
    return [
        node(f"{rack}-{number}", gpus=gpus, labels={"zone": "z", "block": "b", "rack": f"rack-{rack}"})
        for rack, size in sizes.items()
        for number in range(1, size + 1)
    ]


QUEUES = [
    queue("prod", deserved={"gpu": 48 * CARD}, capability={"gpu": 64 * CARD}),
    queue("dev"),
    queue("some", deserved={"gpu": 2 * CARD}),
]


def explained(state, name, policy=ACTS):
    why = reasons(run(state))[name]
    one = next(one for one in state.gangs if one.key == f"ns/{name}")
    return why, details_of(Scene.of(state), one, why.code, policy, NOW)


def test_the_best_rack_what_it_lacks_and_why_the_one_with_more_free_cards_does_not_do():
    saved = Timing(started=NOW - 7200, last_checkpoint=NOW - 180)
    holders = [on(f"x{n}", f"a-{n}", cards) for n, cards in ((1, 2), (2, 2), (3, 3), (4, 2))]
    small = [
        msgspec.structs.replace(
            on(f"small-{n}", "b-2", 1, timing=saved), members=(standing(f"small-{n}-0", "b-2", cards=whole(*cards)),)
        )
        for n, cards in ((1, (0, 1, 2)), (2, (3, 4)))
    ]
    asks = gang("llm", role(count=4, gpus=8), rack="rack", queue="prod", priority=10)
    why, details = explained(snapshot(racks({"a": 4, "b": 4}), [*holders, *small, asks], QUEUES), "llm")
    assert why.code == "NOT_ENOUGH_ROOM"
    assert details.best_fit == (
        "rack-b: room for 3 of 4 pods; b-2 is held by 2 jobs of dev (5 cards, lower priority, checkpoint 3 min ago)"
    )
    assert details.not_it == ("rack-a has 23 free cards, but on 4 nodes with at most 6 each: room for 0 of 4 pods")
    assert details.entitled == (
        "entitled, so jobs of lower priority in its queue and jobs of queues above their share may be asked to leave for it"
    )


def test_a_rack_that_is_too_small_even_when_empty_is_not_the_best_one():
    state = snapshot(
        [*racks({"a": 2}), *racks({"b": 3})],
        [
            *(on(f"x{n}", f"b-{n}", 8) for n in (1, 2)),
            gang("wide", role(count=3, gpus=8), rack="rack", queue="prod"),
        ],
        QUEUES,
    )
    _, details = explained(state, "wide")
    assert details.best_fit.startswith(
        "rack-b: room for 1 of 3 pods; b-1 is held by x1 of dev (8 cards, same priority); b-2"
    )
    assert details.not_it == "rack-a has 16 free cards, but even when empty it holds 2 of 3 pods"


TIMES = {
    "its end is known": (Timing(started=NOW - 600, expected_duration=1320), "ends in about 12 min"),
    "its end is over": (Timing(started=NOW - 4200, expected_duration=600), "expected to have ended 1 h ago"),
    "its deadline is its end": (Timing(started=NOW - 600, deadline=660), "ends in about 1 min"),
    "it has just saved": (Timing(started=NOW - 600, last_checkpoint=NOW - 20), "checkpoint 20 s ago"),
    "nothing is known": (Timing(started=NOW - 600), "same priority)"),
}


@pytest.mark.parametrize("name", TIMES)
def test_what_is_known_of_the_holders_time(name):
    timing, says = TIMES[name]
    state = snapshot(
        [node(gpus=8)], [on("eval", "n1", 8, timing=timing), gang("g", role(gpus=8), queue="prod")], QUEUES
    )
    _, details = explained(state, "g")
    assert details.best_fit.startswith("room for 0 of 1 pod; n1 is held by eval of dev (8 cards, ")
    assert says in details.best_fit


HOLDERS = {
    "higher priority": ({"priority": 5}, "higher priority"),
    "not preemptible": ({"preemptible": False}, "same priority, not preemptible"),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_how_the_holder_stands_against_the_one_that_asks(name):
    more, says = HOLDERS[name]
    state = snapshot([node(gpus=8)], [on("eval", "n1", 8, **more), gang("g", role(gpus=8), queue="prod")], QUEUES)
    assert f"(8 cards, {says})" in explained(state, "g")[1].best_fit


@pytest.mark.parametrize(("allowed", "says"), [(0, ", kept by PodDisruptionBudget keep)"), (1, "same priority)")])
def test_a_budget_that_allows_nothing_is_named_beside_the_job_that_it_keeps(allowed, says):
    job = on("eval", "n1", 8)
    budget = Budget(namespace="ns", name="keep", allowed=allowed, pods=(job.members[0].uid,))
    state = snapshot([node(gpus=8)], [job, gang("g", role(gpus=8), queue="prod")], QUEUES, budgets=(budget,))
    assert says in explained(state, "g")[1].best_fit


def test_pods_that_leave_and_pods_of_other_schedulers_are_told_apart():
    leaving = msgspec.structs.replace(
        on("gone", "n1", 4), members=(standing("gone-0", "n1", state=MemberState.LEAVING, cards=whole(0, 1, 2, 3)),)
    )
    foreign = Occupant(uid="f", key="ns/f", node="n1", request=request(gpus=2), cards=whole(4, 5))
    state = snapshot([node(gpus=8)], [leaving, gang("g", role(gpus=8), queue="prod")], QUEUES, occupants=(foreign,))
    assert explained(state, "g")[1].best_fit.endswith(
        "n1 is held by gone of dev (4 cards, leaving), 1 pod of other schedulers (2 cards)"
    )


def test_free_cards_on_nodes_that_may_not_take_it_are_explained():
    state = snapshot(
        [
            node("a", gpus=8, labels={"pool": "big"}),
            node("b", gpus=8),
            node("c", gpus=4, labels={"pool": "big"}, taints=(Taint(key="k", effect="NoSchedule", value="v"),)),
        ],
        [on("eval", "a", 8), gang("g", role(gpus=4, node_selector=(("pool", "big"),)), queue="prod")],
        QUEUES,
    )
    assert explained(state, "g")[1].not_it == (
        "12 free cards on 2 nodes that may not take it: 1 do not match the nodeSelector, "
        "1 have a taint that is not tolerated"
    )


ENTITLEMENTS = {
    "nothing deserved": ("dev", ACTS, {}, "it deserves none for certain, so no other queue gives way: it waits until there is room"),
    "above what it deserves": ("some", ACTS, {}, "with this job it would use 6 cards more than deserved: it waits until there is room"),
    "observed only": ("prod", Policy(actions=Actions(preempt="observe")), {}, "entitled, but nobody is asked to leave: the policy only"),
    "it never preempts": ("prod", ACTS, {"never_preempts": True}, "its pods say preemptionPolicy Never"),
    "reclaim alone acts": (
        "prod", Policy(actions=Actions(preempt="observe", reclaim="act")), {}, "entitled, so jobs of queues above their share may"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENTITLEMENTS)
def test_whether_the_queue_may_have_it_and_what_follows(name):
    queue_name, policy, more, says = ENTITLEMENTS[name]
    state = snapshot([node(gpus=8)], [on("eval", "n1", 8), gang("g", role(gpus=8), queue=queue_name, **more)], QUEUES)
    assert says in explained(state, "g", policy)[1].entitled


def test_a_share_that_has_just_changed_makes_nobody_leave_yet_and_says_when():
    state = snapshot([node(gpus=8)], [on("eval", "n1", 8), gang("g", role(gpus=8), queue="prod")], QUEUES)
    policy = Policy(actions=Actions(preempt="observe", reclaim="act"), fairness=Fairness(stability=300.0))
    one = next(one for one in state.gangs if one.key == "ns/g")
    for ago, told in ((60.0, " (in 4 min, when its share has stood for 5m)"), (301.0, "")):
        memory = CoreMemory(shares_since={"prod": ShareSince(share="gpu=all", since=NOW - ago)})
        details = details_of(Scene.of(state), one, "NOT_ENOUGH_ROOM", policy, NOW, memory=memory)
        assert details.entitled == f"entitled, so jobs of queues above their share{told} may be asked to leave for it"


def test_lower_priority_in_the_own_queue_may_leave_without_any_share():
    state = snapshot([node(gpus=8)], [on("eval", "n1", 8), gang("g", role(gpus=8), queue="dev", priority=5)], QUEUES)
    assert explained(state, "g")[1].entitled.endswith("or jobs of lower priority in its queue leave")


def test_of_what_does_not_lack_room_no_place_is_told():
    state = snapshot([node(gpus=8)], [gang("g", role(gpus=9), queue="prod")], QUEUES)
    assert explained(state, "g")[1] == ("", "", "")


def test_many_holders_are_counted_after_the_first_two_nodes():
    state = snapshot(
        [node(f"n{n}", gpus=8) for n in range(1, 6)],
        [*(on(f"x{n}", f"n{n}", 8) for n in range(1, 6)), gang("g", role(count=5, gpus=8), queue="prod")],
        QUEUES,
    )
    assert explained(state, "g")[1].best_fit.endswith("; 3 more nodes the same way")


@pytest.mark.parametrize("code", sorted(NEVER - {Reason.NEVER_FITS, Reason.UNIT_TRAP, Reason.POD_SPECS_DIFFER}))
def test_what_never_ends_by_itself_has_a_cure_even_without_numbers(code):
    [fix] = fixes_of(code, {})
    assert fix
    assert "{" not in fix


def test_waits_that_end_by_themselves_ask_nothing_of_anybody():
    assert all(
        not fixes_of(code, {}) for code in (Reason.NOT_ENOUGH_ROOM, Reason.BEHIND, Reason.FREEING, Reason.BACKOFF)
    )


def test_what_nodes_would_cure_is_neither_the_queues_matter_nor_a_missing_thing():
    others = {
        Reason.QUEUE_CAPABILITY,
        Reason.QUEUE_CLOSED,
        Reason.QUEUE_UNKNOWN,
        Reason.CLAIM_MISSING,
        Reason.NO_PODGROUP,
    }
    assert not CURED_BY_NODES & (others | {Reason.TOO_FEW_PODS, Reason.PAUSED, Reason.BACKOFF})


def test_gated_pods_are_told_apart_from_pods_that_do_not_exist():
    one = gang("g", role(count=1, cpu=1), minimum=4)
    gated = Member(uid="x", name="x", role="w", state=MemberState.GATED)
    state = snapshot([node()], [msgspec.structs.replace(one, members=(*one.members, gated))])
    why = reasons(run(state))["g"]
    assert why.message == "1 pod of the minimum 4 exist; 1 pod more has scheduling gates, and 2 must be created"
    assert fixes_of(why.code, why.numbers) == ("remove the scheduling gates of 1 pod",)


DOUBTS = {
    "a letter is missing": ({"muster.dev/topology-requird": "rack"}, "did you mean muster.dev/topology-required?"),
    "no time": ({"muster.dev/max-wait": "soon"}, "muster.dev/max-wait: 'soon' is no amount of time"),
}


@pytest.mark.parametrize("name", DOUBTS)
def test_an_annotation_that_counts_for_nothing_is_told(name):
    marks, says = DOUBTS[name]
    [doubt] = annotation_doubts(marks, marks)
    assert says in doubt


def test_marks_that_programs_write_are_no_doubt():
    marks = ("muster.dev/cards", "muster.dev/fence", "muster.dev/submission", "muster.dev/tenant", "muster.dev/evict-at",
             "muster.dev/evict-for", "muster.dev/evict-plan", "volcano.sh/gpu-index", "volcano.sh/predicate-time",
             "volcano.sh/job-name", "volcano.sh/job-version", "volcano.sh/template-uid", "volcano.sh/vgpu-node",
             "volcano.sh/vgpu-ids-new", "volcano.sh/bind-phase", "example.com/topology-required")  # fmt: skip
    assert annotation_doubts(dict.fromkeys(marks, "x")) == ()


def test_five_thousand_equal_gangs_are_explained_as_one():
    holders = [on(f"x{n}", f"n{n}", 8) for n in range(20)]
    state = snapshot([node(f"n{n}", gpus=8) for n in range(20)], [*holders, *(gang(f"g{n}", role(gpus=8), order=n) for n in range(5000))],
                     [queue("q", deserved={"gpu": 160 * CARD}), queue("dev")])  # fmt: skip
    found = reasons(run(state))
    assert len({one.message for name, one in found.items() if name.startswith("g")}) == 1
    shared = [one.numbers for name, one in found.items() if name.startswith("g") and "reserved" not in one.numbers]
    assert len({id(numbers) for numbers in shared}) == 1, "worked out once"
    assert len(shared) >= 4998, "apart from the few for which room is reserved"
