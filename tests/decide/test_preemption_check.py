"""The committer's and the executor's word on plans."""

import msgspec
import pytest

from muster.decide.basis import Basis
from muster.decide.join import Changes
from muster.decide.memory import Backfilled, CoreMemory, Reservation, ShareSince, evicted, nominated
from muster.decide.preemption import plan_entry, propose, refusal, tried, unsound
from muster.model.budgets import Budget
from muster.model.gangs import MemberState, Timing
from muster.model.pauses import Pause
from muster.model.policy import Actions, Fairness, Policy, Preemption, QueueRules
from tests.decide.build import CARD, gang, node, queue, role, snapshot, standing, whole
from tests.decide.test_preemption import holder

NOW = 10_000.0
UNTIMED = Timing()
ACT = Policy(actions=Actions(preempt="act", reclaim="act", consolidate="act"), fairness=Fairness(stability=0.0))
WANT = gang("want", role(gpus=2), priority=9)
NODES = [node("n1", gpus=2), node("n2", gpus=2)]


def state(*gangs, nodes=NODES, queues=None):
    return snapshot(nodes, gangs, queues)


def entry(before, memory=None, policy=ACT):
    memory = memory or CoreMemory()
    return plan_entry(propose(before, memory, NOW, policy), before, memory, NOW, policy)


BEFORE = state(holder("a", cards=(0, 1)), holder("b", on="n2", cards=(0, 1)), WANT)


def test_what_is_proposed_is_sound_and_names_pods_times_and_reasons():
    plan = entry(BEFORE)
    assert refusal(BEFORE, CoreMemory(), NOW, ACT, plan) == ""
    assert {victim.gang for victim in plan.victims} in ({"ns/a"}, {"ns/b"})
    assert all(victim.evict_after == NOW + 30 and victim.cards == CARD for victim in plan.victims)
    name = plan.victims[0].gang
    assert (
        plan.message
        == f"2 pods, 2 cards leave within 30s so that ns/want fits, from 1 job of lower priority: {name} of q"
    )


def changed(gang_name, **changes):
    gangs = tuple(
        msgspec.structs.replace(one, **changes) if one.key == f"ns/{gang_name}" else one for one in BEFORE.gangs
    )
    return msgspec.structs.replace(BEFORE, gangs=gangs)


def without(gang_name):
    return msgspec.structs.replace(BEFORE, gangs=tuple(one for one in BEFORE.gangs if one.key != f"ns/{gang_name}"))


VICTIM = entry(BEFORE).victims[0].gang.partition("/")[2]


@pytest.mark.parametrize(
    ("after", "word"),
    [
        pytest.param(without("want"), "is gone", id="the gang is gone"),
        pytest.param(changed("want", uid="other"), "another one", id="the gang is another of the same name"),
        pytest.param(changed("want", hold="PAUSED"), "is held", id="the gang is held"),
        pytest.param(changed("want", never_preempts=True), "nothing is to be preempted", id="the gang preempts nobody"),
        pytest.param(without(VICTIM), "is gone", id="a victim is gone"),
        pytest.param(changed(VICTIM, preemptible=False), "is not preemptible", id="a victim is protected"),
        pytest.param(changed(VICTIM, priority=9), "not of lower priority", id="a victim has the same priority"),
        pytest.param(changed(VICTIM, timing=Timing(started=NOW - 10, min_runtime=60)), "is left alone", id="inside its min-runtime"),
        pytest.param(changed(VICTIM, timing=Timing(started=NOW - 10, cooldown=60)), "is left alone", id="inside its cool-down"),
    ],
)  # fmt: skip
def test_a_plan_is_refused_when(after, word):
    assert word in refusal(after, CoreMemory(), NOW, ACT, entry(BEFORE))


def test_a_plan_with_a_victim_that_need_not_leave_is_refused():
    nodes = [node("n1", gpus=3)]
    before = state(holder("a", cards=(0, 1)), holder("b", cards=(2,)), WANT, nodes=nodes)
    plan = entry(before)
    assert [victim.gang for victim in plan.victims] == ["ns/a", "ns/a"]
    spare = msgspec.structs.replace(plan.victims[0], gang="ns/b", uid="b-2", pod="b-2")
    more = msgspec.structs.replace(plan, victims=(*plan.victims, spare))
    assert "need not leave" in refusal(before, CoreMemory(), NOW, ACT, more)


def test_a_plan_that_breaks_a_gang_without_ending_it_is_refused():
    plan = entry(BEFORE)
    half = msgspec.structs.replace(plan, victims=plan.victims[:1])
    assert "below its minimum" in refusal(BEFORE, CoreMemory(), NOW, ACT, half)


def test_a_plan_is_refused_when_the_gang_fits_without_it():
    plan = entry(BEFORE)
    after = msgspec.structs.replace(BEFORE, nodes=(*BEFORE.nodes, node("n3", gpus=2)))
    assert "fits without any plan" in refusal(after, CoreMemory(), NOW, ACT, plan)


def test_room_elsewhere_than_freed_is_refused_by_the_validator():
    plan = entry(BEFORE)
    other = "n2" if plan.victims[0].node == "n1" else "n1"
    slots = tuple(msgspec.structs.replace(slot, node=other) for slot in plan.nominated[0].slots)
    wrong = msgspec.structs.replace(plan, nominated=(msgspec.structs.replace(plan.nominated[0], slots=slots),))
    assert "its room is not there" in refusal(BEFORE, CoreMemory(), NOW, ACT, wrong)


def test_several_plans_are_open_at_once_on_disjoint_nodes_and_never_on_the_same():
    before = msgspec.structs.replace(BEFORE, gangs=(*BEFORE.gangs, gang("more", role(gpus=2), priority=8)))
    first = propose(before, CoreMemory(), NOW, ACT)
    plan = plan_entry(first, before, CoreMemory(), NOW, ACT)
    memory = nominated(CoreMemory(), first.nominations)
    second = propose(before, memory, NOW, ACT)
    assert second.plan is not None
    assert second.plan.gang == "ns/more"
    assert not {key for key, _ in first.plan.victims} & {key for key, _ in second.plan.victims}
    other = plan_entry(second, before, memory, NOW, ACT)
    assert refusal(before, memory, NOW, ACT, other) == ""
    same = msgspec.structs.replace(other, victims=plan.victims, nominated=(
        msgspec.structs.replace(other.nominated[0], slots=tuple(
            msgspec.structs.replace(slot, node=plan.victims[0].node) for slot in other.nominated[0].slots)),))  # fmt: skip
    assert refusal(before, memory, NOW, ACT, same) != ""
    third = propose(before, nominated(memory, second.nominations), NOW, ACT)
    assert third.plan is None


def test_nothing_is_planned_where_pods_are_leaving_and_none_is_when_their_room_suffices():
    leaves = gang("gone", role(count=0, gpus=1), minimum=1, members=[
        standing(f"gone-{i}", "n1", state=MemberState.LEAVING, cards=whole(i)) for i in (0, 1)])  # fmt: skip
    assert propose(state(leaves, holder("b", on="n2", cards=(0, 1)), WANT), CoreMemory(), NOW, ACT).plan is None
    two = gang("two", role(gpus=2), priority=8)
    proposal = propose(state(leaves, holder("b", on="n2", cards=(0, 1)), WANT, two), CoreMemory(), NOW, ACT)
    # Each alone would fit where pods leave; only once that room is spoken for is there a plan for the other.
    assert proposal.plan is None


# --- before a batch of evictions ---------------------------------------------------------------------------------------


def opened(before=BEFORE):
    proposal = propose(before, CoreMemory(), NOW, ACT)
    plan = plan_entry(proposal, before, CoreMemory(), NOW, ACT)
    memory = evicted(nominated(CoreMemory(), proposal.nominations), plan, NOW)
    return plan, memory


def with_members(before, key, change):
    gangs = tuple(
        one if one.key != key else msgspec.structs.replace(
            one, members=tuple(after for member in one.members if (after := change(member)) is not None))
        for one in before.gangs
    )  # fmt: skip
    return msgspec.structs.replace(before, gangs=gangs)


def test_an_open_plan_stays_sound_while_its_victims_go_one_by_one():
    plan, memory = opened()
    assert unsound(BEFORE, memory, NOW, ACT, plan) == ""
    first = plan.victims[0].uid
    leaving = with_members(BEFORE, plan.victims[0].gang, lambda m: msgspec.structs.replace(m, state=MemberState.LEAVING) if m.uid == first else m)  # fmt: skip
    assert unsound(leaving, memory, NOW, ACT, plan) == ""
    half = with_members(BEFORE, plan.victims[0].gang, lambda m: None if m.uid == first else m)
    assert unsound(half, memory, NOW, ACT, plan) == ""
    none = with_members(BEFORE, plan.victims[0].gang, lambda m: None)
    assert unsound(none, memory, NOW, ACT, plan) == ""


def test_an_open_plan_is_judged_alike_from_what_was_kept():
    plan, memory = opened()
    basis = kept(BEFORE)
    assert unsound(BEFORE, memory, NOW, ACT, plan, basis=basis) == unsound(BEFORE, memory, NOW, ACT, plan) == ""
    without = with_members(BEFORE, plan.gang, lambda m: None)
    for _ in range(2):
        told = unsound(without, memory, NOW, ACT, plan, basis=kept(without))
        assert told == unsound(without, memory, NOW, ACT, plan) != ""


def kept(state):
    basis = Basis()
    gangs = {(0, float(number), gang.key, ""): gang for number, gang in enumerate(state.gangs)}
    occupants = {(1, float(number), one.key, ""): one for number, one in enumerate(state.occupants)}
    basis.note(Changes(gangs, occupants, {hold.uid: hold for hold in state.holds}, everything=True))
    return basis


@pytest.mark.parametrize(
    ("change", "word"),
    [
        pytest.param(lambda s: msgspec.structs.replace(s, gangs=s.gangs[:-1]), "is gone", id="the gang is gone"),
        pytest.param(lambda s: msgspec.structs.replace(s, nodes=(*s.nodes, node("n3", gpus=2))), "fits now without", id="room came"),
        pytest.param(lambda s: with_members(s, "ns/want", lambda m: msgspec.structs.replace(m, state=MemberState.BOUND, node="n3")),
            "needs no room", id="the gang stands"),
        pytest.param(lambda s: msgspec.structs.replace(s, nodes=tuple(msgspec.structs.replace(n, unschedulable=True) for n in s.nodes)),
            "emptied cluster", id="its nodes are cordoned"),
    ],
)  # fmt: skip
def test_an_open_plan_ends_when(change, word):
    plan, memory = opened()
    assert word in unsound(change(BEFORE), memory, NOW, ACT, plan)


# --- limits ------------------------------------------------------------------------------------------------------------


def proposal_with(policy=ACT, memory=None, timing=UNTIMED, now=NOW):
    low = holder("low", cards=(0, 1), timing=timing)
    return propose(state(low, WANT, nodes=[node("n1", gpus=2)]), memory or CoreMemory(), now, policy)


def test_min_runtime_is_the_wish_capped_by_the_policy_and_the_queues_rules():
    wish = Timing(started=NOW - 100, min_runtime=7200)
    assert proposal_with(timing=wish).plan is None
    assert proposal_with(timing=wish, now=NOW + 3500.0).plan is not None
    capped = msgspec.structs.replace(ACT, queues={"q": QueueRules(min_runtime_max=60.0)})
    assert proposal_with(capped, timing=wish).plan is not None
    everybody = msgspec.structs.replace(ACT, preemption=Preemption(min_runtime=600.0))
    assert proposal_with(everybody, timing=Timing(started=NOW - 100)).plan is None


def test_a_wish_not_to_be_preempted_counts_only_where_the_queue_lets_its_jobs_have_it():
    low = holder("low", cards=(0, 1), preemptible=False)
    before = state(low, WANT, nodes=[node("n1", gpus=2)])
    assert propose(before, CoreMemory(), NOW, ACT).plan is None
    ruled = msgspec.structs.replace(ACT, queues={"*": QueueRules(non_preemptible=False)})
    assert propose(before, CoreMemory(), NOW, ruled).plan is not None


def test_a_gang_that_was_evicted_often_within_the_hour_is_protected_until_it_is_over():
    policy = msgspec.structs.replace(ACT, preemption=Preemption(per_gang_per_hour=2))
    plan = plan_entry(proposal_with(policy), state(holder("low", cards=(0, 1)), WANT), CoreMemory(), NOW, policy)
    memory = evicted(evicted(CoreMemory(), plan, NOW - 3000), plan, NOW - 100)
    assert proposal_with(policy, memory).plan is None
    assert proposal_with(policy, memory, now=NOW + 700).plan is not None


def test_over_the_limit_of_evicted_cards_the_actor_stops_and_says_so():
    policy = msgspec.structs.replace(ACT, preemption=Preemption(cards_per_hour=3))
    plan = plan_entry(proposal_with(policy), state(holder("low", cards=(0, 1)), WANT), CoreMemory(), NOW, policy)
    memory = evicted(CoreMemory(), plan, NOW - 3540)
    stopped = proposal_with(policy, memory)
    assert stopped.plan is None
    assert stopped.finding.startswith("evictions stop: plans of the last hour freed 2 cards, this one frees 2 more")
    assert stopped.finding.endswith("preemption.cards_per_hour is 3; the oldest of them is an hour old in 1m")
    assert proposal_with(policy, memory, now=NOW + 61).plan is not None


LIMITS = {
    "a job of 8 cards leaves for one card: pods leave whole": (8, 1, Preemption(), True),
    "a job of 9 does not": (9, 1, Preemption(), False),
    "for 5 cards 15 may move": (15, 5, Preemption(), True),
    "and 16 may not": (16, 5, Preemption(), False),
    "the policy may allow more for each": (16, 5, Preemption(moved_per_gained=4.0), True),
    "or more in any case": (9, 1, Preemption(moved_always=9), True),
    "or set no limit": (16, 1, Preemption(moved_per_gained=0.0), True),
}


@pytest.mark.parametrize(("held", "gained", "limits", "allowed"), LIMITS.values(), ids=LIMITS)
def test_no_more_cards_move_for_those_that_are_gained_than_the_policy_allows(held, gained, limits, allowed):
    nodes = [node("n1", gpus=16)]
    others = [holder("kept", cards=range(held, 16), priority=9)] if held < 16 else []
    one = gang(
        "low", role(count=0, gpus=held), minimum=1, members=(standing("low-0", "n1", cards=whole(*range(held))),)
    )
    before = state(one, *others, gang("want", role(gpus=gained), priority=9), nodes=nodes)
    policy = msgspec.structs.replace(ACT, preemption=limits)
    assert (propose(before, CoreMemory(), NOW, policy).plan is not None) is allowed


def test_a_plan_that_led_nowhere_is_not_tried_again_until_something_it_looked_at_changed():
    plan = entry(BEFORE)
    memory = tried(CoreMemory(), plan, BEFORE)
    assert propose(BEFORE, memory, NOW, ACT).plan is None
    elsewhere = msgspec.structs.replace(BEFORE, gangs=(*BEFORE.gangs, gang("new", role(cpu=1))))
    assert propose(elsewhere, memory, NOW, ACT).plan is None
    assert propose(changed(VICTIM, priority=1), memory, NOW, ACT).plan is not None


# --- cost and law ------------------------------------------------------------------------------------------------------


def test_least_work_is_lost_among_equal_priorities_and_restarts_count_after_it():
    old = holder("old", cards=(0, 1), timing=Timing(started=NOW - 7200))
    saved = holder("saved", on="n2", cards=(0, 1), timing=Timing(started=NOW - 7200, last_checkpoint=NOW - 60))
    assert {key for key, _ in propose(state(old, saved, WANT), CoreMemory(), NOW, ACT).plan.victims} == {"ns/saved"}
    plan = entry(BEFORE)
    memory = evicted(CoreMemory(), plan, NOW - 4000)
    other = {"ns/a", "ns/b"} - {plan.victims[0].gang}
    assert {key for key, _ in propose(BEFORE, memory, NOW, ACT).plan.victims} == other


def with_budget(allowed, *pods, more=()):
    budget = Budget(namespace="ns", name="web", allowed=allowed, pods=pods)
    return msgspec.structs.replace(BEFORE, budgets=(budget, *more))


def test_no_more_pods_leave_than_their_disruption_budget_allows():
    plan = entry(BEFORE)
    mine = tuple(victim.uid for victim in plan.victims)
    assert refusal(with_budget(2, *mine), CoreMemory(), NOW, ACT, plan) == ""
    tight = with_budget(1, *mine)
    assert refusal(tight, CoreMemory(), NOW, ACT, plan) == (
        "PodDisruptionBudget ns/web allows 1 evictions now, 2 would be needed"
    )
    other = propose(tight, CoreMemory(), NOW, ACT)
    assert not {victim.gang for victim in plan.victims} & {key for key, _ in other.plan.victims}
    both = with_budget(1, "a-0", "a-1", "b-0", "b-1")
    assert propose(both, CoreMemory(), NOW, ACT).plan is None
    twice = Budget(namespace="ns", name="all", allowed=9, pods=("a-0", "b-0"))
    assert propose(with_budget(9, "a-0", "b-0", more=(twice,)), CoreMemory(), NOW, ACT).plan is None


def test_pods_that_open_plans_evict_are_counted_against_the_budget():
    before = msgspec.structs.replace(with_budget(3, "a-0", "a-1", "b-0", "b-1"), gangs=(
        *BEFORE.gangs, gang("more", role(gpus=2), priority=8)))  # fmt: skip
    first = propose(before, CoreMemory(), NOW, ACT)
    assert first.plan is not None
    assert propose(before, nominated(CoreMemory(), first.nominations), NOW, ACT).plan is None


SHARES = [queue("q", deserved={"gpu": 0}), queue("p", deserved={"gpu": 0})]


def second_case(mine, cards=6):
    """Nobody deserves anything; p holds all cards in jobs of one, q asks `mine` of them."""
    low = [holder(f"low{i}", cards=(i,), queue="p") for i in range(cards)]
    want = gang("want", role(gpus=mine), queue="q")
    return propose(state(*low, want, nodes=[node("n1", gpus=cards)], queues=SHARES), CoreMemory(), NOW, ACT)


def test_where_nobody_is_entitled_usage_over_share_evens_out_and_no_further():
    assert len(second_case(2).plan.victims) == 2
    assert len(second_case(3).plan.victims) == 3
    assert second_case(4).plan is None


# --- reservations, stability, pauses -----------------------------------------------------------------------------------


def test_who_runs_backfilled_for_a_gang_leaves_for_it_whatever_the_priorities_and_queues():
    filler = holder("filler", cards=(0, 1), queue="p", priority=99)
    before = state(filler, WANT, nodes=[node("n1", gpus=2)], queues=[queue("q"), queue("p", reclaimable=False)])
    assert propose(before, CoreMemory(), NOW, ACT).plan is None
    memory = CoreMemory(backfilled=(Backfilled(gang="ns/filler", reserved_for="ns/want"),))
    proposal = propose(before, memory, NOW, ACT)
    assert proposal.plan.cause == "backfill"
    plan = plan_entry(proposal, before, memory, NOW, ACT)
    assert refusal(before, memory, NOW, ACT, plan) == ""
    assert refusal(before, CoreMemory(), NOW, ACT, plan) != ""
    kept = msgspec.structs.replace(before, gangs=(msgspec.structs.replace(filler, preemptible=False), WANT))
    assert propose(kept, memory, NOW, ACT).plan is None


def test_what_is_owed_leaves_before_anybody_of_lower_priority():
    filler = holder("filler", cards=(0, 1), queue="p", priority=99)
    before = state(filler, holder("low", on="n2", cards=(0, 1)), WANT, queues=[queue("q"), queue("p")])
    memory = CoreMemory(backfilled=(Backfilled(gang="ns/filler", reserved_for="ns/want"),))
    assert {key for key, _ in propose(before, memory, NOW, ACT).plan.victims} == {"ns/filler"}


def test_a_share_that_has_just_changed_reclaims_nothing_yet():
    policy = msgspec.structs.replace(ACT, fairness=Fairness(stability=60.0))
    queues = [queue("q", deserved={"gpu": 2 * CARD}), queue("p")]
    before = state(holder("a", cards=(0, 1), queue="p"), WANT, nodes=[node("n1", gpus=2)], queues=queues)

    def seen(since):
        return CoreMemory(shares_since={"q": ShareSince(share="gpu=all", since=since)})

    assert propose(before, seen(NOW - 59), NOW, policy).plan is None
    proposal = propose(before, seen(NOW - 60), NOW, policy)
    assert proposal.plan.cause == "reclaim"
    plan = plan_entry(proposal, before, seen(NOW - 60), NOW, policy)
    assert refusal(before, seen(NOW - 60), NOW, policy, plan) == ""
    assert "has changed within 60 s" in refusal(before, seen(NOW - 1), NOW, policy, plan)


def test_nobody_is_planned_to_leave_a_queue_whose_evictions_are_paused():
    paused = msgspec.structs.replace(BEFORE, pauses=(Pause(act="evict", queue="q"),))
    assert propose(paused, CoreMemory(), NOW, ACT).plan is None
    assert "evicting pods is paused in queue q" in refusal(paused, CoreMemory(), NOW, ACT, entry(BEFORE))


def test_nobody_whose_turn_comes_later_is_planned_onto_nodes_reserved_for_another():
    later = gang("later", role(gpus=2), priority=8)
    before = state(holder("a", cards=(0, 1)), holder("b", on="n2", cards=(0, 1), preemptible=False), WANT, later)
    small = msgspec.structs.replace(WANT, never_preempts=True)
    waits = msgspec.structs.replace(before, gangs=(*before.gangs[:2], small, later))
    assert propose(waits, CoreMemory(), NOW, ACT).plan.gang == "ns/later"
    blocked = state(
        holder("a", cards=(0, 1)),
        holder("b", on="n2", cards=(0, 1)),
        gang("big", role(gpus=2, count=3), priority=9),
        later,
    )
    memory = CoreMemory(reservations=(Reservation(gang="ns/big", gang_uid="uid-big", nodes=("n1", "n2"), made_at=0.0),))
    nodes = (*NODES, node("n3", gpus=2, unschedulable=True))
    blocked = msgspec.structs.replace(blocked, nodes=nodes)
    assert propose(blocked, CoreMemory(), NOW, ACT).plan is not None
    # The big one could not fit an emptied cluster, so that it has no turn and keeps nothing.
    assert propose(blocked, memory, NOW, ACT).plan is not None
    held = msgspec.structs.replace(blocked, nodes=(*NODES, node("n3", gpus=2)), gangs=(
        *blocked.gangs, holder("c", on="n3", cards=(0, 1), preemptible=False)))  # fmt: skip
    assert propose(held, CoreMemory(), NOW, ACT).plan.gang == "ns/later"
    assert propose(held, memory, NOW, ACT).plan is None


def test_a_plan_of_moves_is_judged_too():
    """One card free on each node: the job on n1 moves to n2, so that both cards of n1 are there for the gang."""
    before = state(holder("a"), holder("b", on="n2"), gang("want", role(gpus=2), priority=0))
    proposal = propose(before, CoreMemory(), NOW, ACT)
    assert proposal.plan.cause == "consolidate"
    plan = plan_entry(proposal, before, CoreMemory(), NOW, ACT)
    assert refusal(before, CoreMemory(), NOW, ACT, plan) == ""
    assert "no room is nominated" in refusal(
        before, CoreMemory(), NOW, ACT, msgspec.structs.replace(plan, nominated=plan.nominated[:1])
    )
    mover = plan.victims[0].gang
    gangs = tuple(msgspec.structs.replace(one, queue="p") if one.key == mover else one for one in before.gangs)
    other = msgspec.structs.replace(before, gangs=gangs, queues=(queue("q"), queue("p")))
    assert "above the claim of its queue q" in refusal(other, CoreMemory(), NOW, ACT, plan)
