"""Random clusters with running and waiting jobs: whatever happens, it settles, and nothing that must never happen does.

MUSTER_EXAMPLES=5000 looks at so many clusters instead of a few; a failure prints how to draw the same one again.
"""

import os
from collections import Counter, defaultdict
from fractions import Fraction

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.memory import CoreMemory
from muster.decide.placement.validate import validate
from muster.decide.preemption import propose
from muster.decide.room import Room
from muster.decide.scheduling import decide
from muster.decide.shares import tree_of
from muster.model.gangs import MemberState
from muster.model.instructions import Pending, Place
from muster.scenarios.check import check
from muster.scenarios.format import Scenario
from muster.scenarios.runner import MOST_ROUNDS, Runner, build, run
from tests.decide.test_preemption_properties import optimum

EXAMPLES = int(os.environ.get("MUSTER_EXAMPLES", "0"))

KINDS = [
    {"gpu": 1},
    {"gpu": 2},
    {"gpu": 1, "cpu": "2"},
    {"cpu": "3"},
    {"gpu_memory_mib": 400},
    {"gpu_core_percent": 60},
    {},
]


@st.composite
def scenarios(draw):
    nodes = [
        {
            "name": f"n{i}",
            "cpu": draw(st.sampled_from(["4", "8"])),
            "memory": "64Gi",
            "gpus": draw(st.integers(1, 3)),
            "gpu_memory_mib": 1000,
            "labels": {"rack": f"r{draw(st.integers(0, 1))}"},
        }
        for i in range(draw(st.integers(1, 3)))
    ]
    shares = [
        {"deserved": {"gpu": 2}},
        {"deserved": {"gpu": 1}, "capability": {"gpu": 3}},
        {},
        {"deserved": {"cpu": "4"}},
    ]
    queues = [{"name": "top", **draw(st.sampled_from([{}, {"deserved": {"gpu": 3}}]))}]
    queues += [
        {
            "name": name,
            **draw(st.sampled_from([{}, {"parent": "top"}])),
            **draw(st.sampled_from(shares)),
            "reclaimable": draw(st.sampled_from([True, True, False])),
        }
        for name in ("qa", "qb")
    ]
    pending = []
    for number in range(draw(st.integers(2, 6))):
        tasks = [
            {"role": f"w{part}", "replicas": draw(st.integers(1, 3)), "requests": draw(st.sampled_from(KINDS))}
            for part in range(draw(st.sampled_from([1, 1, 2])))
        ]
        total = sum(task["replicas"] for task in tasks)
        pending.append(
            {
                "job": f"job-{number}",
                "queue": draw(st.sampled_from(["qa", "qb"])),
                "priority": draw(st.sampled_from([0, 50, 100])),
                "preemptible": draw(st.sampled_from([True, True, False])),
                "min_available": draw(st.integers(1, total)),
                "submit_order": number,
                "topology": draw(st.sampled_from([{}, {}, {"required_level": "rack"}, {"preferred_level": "rack"}])),
                "tasks": tasks,
            }
        )
    data = {
        "id": "random", "area": "idle", "about": "", "topology_levels": ["rack"], "nodes": nodes, "queues": queues,
        "running": [], "pending": pending, "expect": {"cards": {"max_percent": 100}}, "confidence": "certain",
    }  # fmt: skip
    return msgspec.convert(data, Scenario), draw(st.integers(1, len(pending)))


class Watched(Runner):
    """A runner whose jobs arrive in two waves, and that checks every step."""

    def __init__(self, scenario, first_wave):
        super().__init__(scenario)
        everything = build(scenario).gangs
        self.later = everything[first_wave:]
        self.snapshot = msgspec.structs.replace(self.snapshot, gangs=everything[:first_wave])

    def arrive(self):
        self.snapshot = msgspec.structs.replace(self.snapshot, gangs=(*self.snapshot.gangs, *self.later))


@settings(max_examples=EXAMPLES or 80, deadline=None)
@given(scenarios())
def test_two_waves_of_jobs_settle_with_every_card_and_gang_whole(drawn):
    scenario, first_wave = drawn
    runner = Watched(scenario, first_wave)
    first = runner.run()
    assert first.rounds < MOST_ROUNDS, "the first wave never settles"
    runner.arrive()
    outcome = runner.run()
    assert outcome.rounds < MOST_ROUNDS, "the cluster never settles"
    assert check(outcome) == []
    assert not any(reason.code == "PLAN_REJECTED" for reason in outcome.reasons.values())
    nonpreemptible = {gang.key for gang in outcome.snapshot.gangs if not gang.preemptible}
    assert not {f"scenario/{one.job}" for one in outcome.evictions} & nonpreemptible
    for wave in (first, outcome):
        assert_nobody_leaves_for_whom_they_made_leave(wave)
        assert_usage_is_recounted_and_below_capability(wave.snapshot)
    for key, _, least in optimum(outcome.snapshot, runner.policy, runner.now):
        if key not in behind_a_reservation(outcome.snapshot, runner.memory):
            assert least is None, f"{key} waits though a plan is proven and lawful"


def behind_a_reservation(snapshot, memory):
    """Gangs whose queue has a reservation for one of more priority: evicting for them could be in vain."""
    gangs = {gang.key: gang for gang in snapshot.gangs}
    ahead = [gangs[one.gang] for one in memory.reservations if one.gang in gangs]
    return {
        key
        for key, gang in gangs.items()
        if any(one.queue == gang.queue and one.priority > gang.priority for one in ahead)
    }


def assert_nobody_leaves_for_whom_they_made_leave(outcome):
    """No ping-pong: within one wave nobody gets back by eviction what was taken for somebody, and nobody is hit over and over."""
    pairs = {(one.job, one.made_room_for) for one in outcome.evictions if one.cause != "consolidate"}
    assert not {(other, job) for job, other in pairs} & pairs
    times = Counter((one.job, one.pod, one.made_room_for) for one in outcome.evictions)
    assert not times or max(times.values()) == 1


def assert_usage_is_recounted_and_below_capability(state):
    """What queues use, counted from the members alone, is what the core charges; and no queue is above its capability."""
    parents = {one.name: one.parent for one in state.queues}
    sizes = {(one.name, card.index): card.memory_mib for one in state.nodes for card in one.cards}
    used = {name: defaultdict(Fraction) for name in parents}
    for gang in state.gangs:
        requests = {role.name: role.shape.request for role in gang.roles}
        for member in gang.members:
            if member.node is None or member.state not in {MemberState.BOUND, MemberState.LEAVING}:
                continue
            asked = requests[member.role]
            amounts = {"cpu": asked.cpu, "memory": asked.memory, "gpu": asked.cards * 1_000_000}
            for use in member.cards if asked.share is not None else ():
                memory = -(-use.memory_mib * 1_000_000 // sizes[member.node, use.index])
                amounts["gpu"] += max(memory, use.core_percent * 10_000)
            name = gang.queue
            while name is not None:
                for resource, amount in amounts.items():
                    used[name][resource] += amount
                name = parents[name]
    tree = tree_of(state, Room.of(state))
    for one in state.queues:
        for resource in ("cpu", "memory", "gpu"):
            assert tree.usage[one.name].get(resource, 0) == used[one.name][resource]
            limit = one.capability.get(resource)
            assert limit is None or used[one.name][resource] <= limit


@settings(max_examples=EXAMPLES or 60, deadline=None)
@given(scenarios())
def test_a_plan_is_proven_needs_every_victim_and_never_breaks_a_gang(drawn):
    scenario, first_wave = drawn
    runner = Watched(scenario, first_wave)
    runner.run()
    runner.arrive()
    state, memory = runner.snapshot, CoreMemory()
    if any(isinstance(one, Place) for one in decide(state, memory, 1.0, runner.policy).instructions):
        return
    proposal = propose(state, memory, 1.0, runner.policy)
    if proposal.plan is None:
        return
    plan = proposal.plan
    gone = {uid for _, uid in plan.victims}
    gangs = {gang.key: gang for gang in state.gangs}
    hit = defaultdict(int)
    for key, _ in plan.victims:
        assert gangs[key].preemptible
        hit[key] += 1
        if plan.cause == "preempt":
            assert gangs[key].priority < gangs[plan.gang].priority
            assert gangs[key].queue == gangs[plan.gang].queue

    def without(gang):
        return msgspec.structs.replace(gang, members=tuple(m for m in gang.members if m.uid not in gone))

    after = msgspec.structs.replace(state, gangs=tuple(without(gang) for gang in state.gangs))
    place = Place(gang=plan.gang, gang_uid=gangs[plan.gang].uid, slots=plan.slots)
    assert validate(after, [place], levels=state.topology_levels) == [], "the gang fits once the victims are gone"
    for gang in after.gangs:
        if hit[gang.key]:
            left = [m for m in gang.members if m.state is MemberState.BOUND]
            assert gang.complete or not left, "a victim is whole or gone"


@settings(max_examples=EXAMPLES or 30, deadline=None)
@given(scenarios())
def test_a_run_is_the_same_twice(drawn):
    scenario, _ = drawn
    one, two = run(scenario), run(scenario)
    assert one.snapshot == two.snapshot
    assert one.evictions == two.evictions
    assert {k: v.code for k, v in one.reasons.items()} == {k: v.code for k, v in two.reasons.items()}
    assert all(isinstance(reason, Pending) and reason.message for reason in one.reasons.values())
