"""What the policy lets into queues, and what people have paused, is held by the core itself."""

import msgspec
import pytest

from muster.decide import pauses
from muster.decide.memory import CoreMemory, Nomination
from muster.decide.queue_rules import forbidden, ignored, preemptible
from muster.decide.reasons import NEVER, Reason
from muster.decide.scheduling import decide
from muster.model.gangs import Timing
from muster.model.instructions import Pending, Place, Slot
from muster.model.pauses import ACTS, Pause
from muster.model.pods import CardUse
from muster.model.policy import Policy, QueueRules
from muster.model.snapshot import Snapshot
from muster.model.workloads import Queue
from tests.decide.build import gang, node, role

QUEUES = (Queue(name="root"), Queue(name="dept", parent="root"), Queue(name="q", parent="dept"), Queue(name="r"))


def decided(*gangs, policy=None, paused=()):
    snapshot = Snapshot(nodes=(node("n1", gpus=8),), queues=QUEUES, gangs=gangs, pauses=tuple(paused))
    return decide(snapshot, CoreMemory(), 1000.0, policy or Policy()).instructions


def pending(instructions):
    return {one.gang: one for one in instructions if isinstance(one, Pending)}


def placed(instructions):
    return {one.gang for one in instructions if isinstance(one, Place)}


def cards(name="g", **more):
    return gang(name, role(gpus=1), **more)


@pytest.mark.parametrize(
    ("rules", "priority_class", "code", "told"),
    [
        pytest.param({}, "", None, "", id="without rules anything may enter"),
        pytest.param({"q": QueueRules(namespaces=("ns", "x"))}, "", None, "", id="a namespace that is named may"),
        pytest.param(
            {"q": QueueRules(namespaces=("team-a",))}, "", Reason.NAMESPACE_NOT_ALLOWED,
            "queue q takes jobs of namespace team-a only, not of ns", id="another namespace is held",
        ),
        pytest.param(
            {"*": QueueRules(namespaces=("team-a", "team-b")), "r": QueueRules()}, "", Reason.NAMESPACE_NOT_ALLOWED,
            'submit it to queue r, or have the namespace added to queues."*".namespaces of the policy',
            id="the rules for all others hold it, and a queue that would take it is named",
        ),
        pytest.param(
            {"*": QueueRules(namespaces=("team-a",)), "q": QueueRules()}, "", None, "",
            id="a queue's own rules replace those for all others",
        ),
        pytest.param(
            {"q": QueueRules(priority_classes=("low",))}, "high", Reason.PRIORITY_NOT_ALLOWED,
            "queue q takes jobs of priority class low only, and this one has priority class high",
            id="another priority class is held",
        ),
        pytest.param(
            {"q": QueueRules(priority_classes=("low", "mid"))}, "", Reason.PRIORITY_NOT_ALLOWED,
            "queue q takes jobs of priority classes low, mid only, and this one has no priority class",
            id="no class where one is asked is held",
        ),
    ],
)  # fmt: skip
def test_the_rules_of_a_queue(rules, priority_class, code, told):
    instructions = decided(cards(priority_class=priority_class), policy=Policy(queues=rules))
    if code is None:
        assert placed(instructions) == {"ns/g"}
        return
    assert not placed(instructions)
    held = pending(instructions)["ns/g"]
    assert held.code == code
    assert told in held.message
    assert code in NEVER


def test_who_may_not_enter_stands_in_no_line_and_blocks_nobody():
    policy = Policy(queues={"q": QueueRules(namespaces=("other",))})
    instructions = decided(
        gang("first", role(gpus=8), priority=9), gang("second", role(gpus=8), queue="r"), policy=policy
    )
    assert placed(instructions) == {"ns/second"}
    assert pending(instructions)["ns/first"].position == 0


def test_a_wish_that_the_queue_does_not_grant_is_not_granted_and_said():
    policy = Policy(queues={"q": QueueRules(non_preemptible=False, grace_max=10, max_wait_min=600)})
    timing = Timing(grace=30, min_runtime=60, max_wait=5)
    asks = msgspec.structs.replace(cards(), preemptible=False, timing=timing)
    assert preemptible(asks, policy)
    assert not preemptible(asks, Policy())
    told = ignored(asks, policy)
    assert len(told) == 3
    assert "it counts as preemptible" in told[0]
    assert "asks 30 s; queue q grants 10 s" in told[1]
    assert "at least 600 s" in told[2]
    assert ignored(msgspec.structs.replace(cards(), preemptible=False), Policy()) == ()
    assert forbidden(asks, policy) is None


@pytest.mark.parametrize(
    ("pause", "held"),
    [
        pytest.param(Pause(act="bind"), {"ns/a", "ns/b"}, id="everywhere"),
        pytest.param(Pause(act="bind", queue="q"), {"ns/a"}, id="of one queue"),
        pytest.param(Pause(act="bind", queue="dept"), {"ns/a"}, id="of a queue's parent"),
        pytest.param(Pause(act="evict"), set(), id="of another act"),
        pytest.param(Pause(act="bind", queue="s"), set(), id="of a queue that is not there"),
    ],
)
def test_a_pause_holds_the_gangs_that_it_concerns(pause, held):
    pause = msgspec.structs.replace(pause, by="alice", reason="a new driver", since=1_796_000_000.0)
    instructions = decided(cards("a"), cards("b", queue="r"), paused=(pause,))
    assert placed(instructions) == {"ns/a", "ns/b"} - held
    for key in held:
        one = pending(instructions)[key]
        assert one.code == Reason.PAUSED
        assert "by alice: a new driver" in one.message
        assert "since 2026-11-30 00:53 UTC" in one.message
        assert "muster resume bind" in one.message
    assert Reason.PAUSED not in NEVER


def test_pauses_are_kept_one_for_an_act_in_a_place():
    first = Pause(act="bind", queue="q", by="alice", since=1.0)
    second = Pause(act="bind", queue="q", by="bob", since=2.0)
    other = Pause(act="evict")
    kept = pauses.with_pauses(pauses.with_pauses((), (first, other)), (second,))
    assert set(kept) == {second, other}
    memory = {pauses.CORE: pauses.value_of(kept)}
    assert set(pauses.pauses_of(memory)) == {second, other}
    assert pauses.paused(memory, "bind", "q", "root") == second
    assert pauses.paused(memory, "bind", "r") is None
    assert pauses.paused(memory, "evict", "r") == other
    assert pauses.paused({}, "evict") is None


def test_resuming_lifts_what_was_paused_in_exactly_that_place():
    everywhere, queue = Pause(act="bind"), Pause(act="bind", queue="q")
    assert pauses.without((everywhere, queue), ACTS, "") == ((queue,), (everywhere,))
    assert pauses.without((everywhere, queue), ("bind",), "q") == ((everywhere,), (queue,))
    assert pauses.without((everywhere, queue), ("evict",), "") == ((everywhere, queue), ())


def test_what_cannot_be_read_counts_as_a_pause_of_everything():
    found = pauses.pauses_of({pauses.CORE: {"pauses": [{"act": "dance"}]}})
    assert {one.act for one in found} == set(ACTS)
    assert all(pauses.UNREADABLE in one.reason for one in found)


@pytest.mark.parametrize(
    ("paused", "started", "codes"),
    [
        pytest.param((), {"ns/waits"}, {"ns/other": Reason.BEHIND}, id="not paused: it goes first"),
        pytest.param(
            (Pause(act="bind", queue="q"),), set(), {"ns/waits": Reason.PAUSED, "ns/other": Reason.NOT_ENOUGH_ROOM},
            id="paused: nobody else gets it",
        ),
    ],
)  # fmt: skip
def test_room_that_was_freed_for_a_gang_stays_its_own_while_it_is_paused(paused, started, codes):
    waits, other = gang("waits", role(gpus=8)), gang("other", role(gpus=8), queue="r", priority=9)
    slot = Slot(
        uid="waits-w-0",
        pod="waits-w-0",
        node="n1",
        role="w",
        cards=tuple(CardUse(index=n, whole=True) for n in range(8)),
    )
    memory = CoreMemory(nominations=(Nomination(gang="ns/waits", slots=(slot,), victims=("gone",), until=1e12),))
    snapshot = Snapshot(nodes=(node("n1", gpus=8),), queues=QUEUES, gangs=(waits, other), pauses=paused)
    decision = decide(snapshot, memory, 1000.0, Policy())
    assert placed(decision.instructions) == started
    assert {key: one.code for key, one in pending(decision.instructions).items()} == codes
