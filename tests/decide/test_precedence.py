"""Plans do not go back and forth: who took whose room, and streams of jobs in which plans of all kinds meet."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.decide.memory import CoreMemory, Eviction, evicted
from muster.decide.preemption import propose
from muster.decide.preemption.check import refusal
from muster.decide.preemption.precedence import took_room_of
from muster.model.ledger import Nominated, Plan, Victim
from muster.model.pods import Request, Shape
from muster.model.policy import Actions, Fairness, Policy, Preemption, Solver
from muster.model.units import Bytes, CardCount, MilliCpu
from muster.scenarios.stream import Job, Rules, Stream
from tests.decide.build import CARD, gang, node, queue, role, snapshot, standing, whole

WEIGHTS = {"production": 3, "research": 2, "shared": 1}
ACT = Actions(bind="act", preempt="act", reclaim="act", consolidate="observe")
POLICY = Policy(
    actions=ACT,
    fairness=Fairness(stability=0.0),
    solver=Solver(enabled=False),
    # Nothing but the rule itself ends a chain here.
    preemption=Preemption(per_gang_per_hour=0, moved_per_gained=0.0),
)


def took(*pairs, moved=()):
    lost = [Eviction(gang=loser, at=1.0, room_for=winner) for winner, loser in pairs]
    lost += [Eviction(gang=loser, at=1.0, room_for=winner, moved=True) for winner, loser in moved]
    return CoreMemory(evictions=tuple(lost))


TAKEN = {
    "nobody took anything": (took(), "c", ""),
    "who took the room of a gang": (took(("b", "c")), "c", "b"),
    "and who took that of the taker": (took(("a", "b"), ("b", "c")), "c", "ab"),
    "not who lost to it": (took(("b", "c")), "b", ""),
    "several took some": (took(("a", "c"), ("b", "c")), "c", "ab"),
    "a gang that moved lost no room": (took(moved=(("b", "c"),)), "c", ""),
    "a memory from before this rule does not say who took it": (CoreMemory(evictions=(Eviction(gang="c", at=1.0),)), "c", ""),
    "a ring, which an older memory may hold": (took(("a", "b"), ("b", "a")), "a", "b"),
}  # fmt: skip


@pytest.mark.parametrize(("memory", "loser", "takers"), TAKEN.values(), ids=TAKEN)
def test_who_took_whose_room(memory, loser, takers):
    assert took_room_of(memory, loser) == set(takers)


def test_a_committed_plan_says_who_took_whose_room_and_a_move_does_not():
    victims = (Victim(gang="ns/low", uid="u", pod="p", node="n1"),)
    plan = Plan(gang="ns/high", gang_uid="g", cause="reclaim", victims=victims, nominated=())
    assert took_room_of(evicted(CoreMemory(), plan, 5.0), "ns/low") == {"ns/high"}
    moves = msgspec.structs.replace(plan, cause="consolidate")
    assert took_room_of(evicted(CoreMemory(), moves, 5.0), "ns/low") == set()


def low_and_high():
    low = gang("low", role(count=0, gpus=1), minimum=1, members=(standing("low-0", "n1", cards=whole(0)),))
    high = gang("high", role(gpus=1), priority=9)
    return snapshot([node(gpus=1)], [low, high])


def test_neither_proposer_nor_committer_lets_a_taker_leave_for_the_one_it_took_from():
    state = low_and_high()
    plan = propose(state, CoreMemory(), 10.0, POLICY).plan
    assert plan is not None
    assert propose(state, took(("ns/low", "ns/high")), 10.0, POLICY).plan is None
    entry = Plan(
        gang="ns/high",
        gang_uid="uid-high",
        cause="preempt",
        victims=(Victim(gang="ns/low", uid="low-0", pod="low-0", node="n1"),),
        nominated=(Nominated(gang="ns/high", gang_uid="uid-high", slots=plan.slots),),
    )
    assert refusal(state, CoreMemory(), 10.0, POLICY, entry) == ""
    assert "plans do not go back and forth" in refusal(state, took(("ns/low", "ns/high")), 10.0, POLICY, entry)


# --- streams ----------------------------------------------------------------------------------------------------------

JOBS = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(50, 500),
        st.sampled_from(((1, 1), (1, 2), (2, 1), (1, 4), (2, 4), (1, 8), (2, 8))),
        st.sampled_from(tuple(WEIGHTS)),
        st.sampled_from((0, 50, 100)),
        st.booleans(),
    ),
    min_size=10,
    max_size=24,
)


@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(JOBS)
def test_a_cluster_comes_to_rest_at_every_moment_whatever_plans_meet(rows):
    """Three queues on sixteen cards, with all that they deserve asked for; the stream raises when a moment does not end."""
    now, jobs = 0.0, []
    for number, (gap, work, (pods, cards), of, priority, elastic) in enumerate(rows):
        now += gap
        shape = Shape(request=Request(cpu=MilliCpu(1000), memory=Bytes(1 << 30), cards=CardCount(cards)))
        jobs.append(
            Job(name=f"j{number}", at=now, work=float(work), pods=pods, shape=shape, queue=of, priority=priority,
                minimum=1 if elastic else None, checkpoint_interval=100.0)
        )  # fmt: skip
    queues = [queue(name, weight=weight, deserved={"gpu": 14 * weight // 6 * CARD}) for name, weight in WEIGHTS.items()]
    run = Stream(
        jobs, nodes=[node(f"n{n}", gpus=8) for n in range(2)], queues=queues, policy=POLICY, rules=Rules(tick=60.0)
    )
    assert all(life.ended is not None for life in run.run())
