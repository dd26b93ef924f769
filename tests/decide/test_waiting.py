"""Reservations, backfill and promotion: who is reserved for, what is held, who may use it, and what people are told."""

import msgspec
import pytest

from muster.decide.memory import Backfilled, CoreMemory, Eviction, Reservation
from muster.decide.preemption import propose
from muster.decide.scheduling import decide
from muster.decide.waiting.durations import expected_duration, expected_end, followed
from muster.decide.waiting.eviction import may_evict_backfilled, may_evict_late
from muster.decide.waiting.promotion import longest_wait
from muster.model.gangs import MemberState, Timing
from muster.model.instructions import Pending, Place
from muster.model.policy import Actions, Policy, QueueRules, Waiting
from muster.model.snapshot import Snapshot
from tests.decide.build import CARD, gang, node, queue, role, standing, whole

NOW = 1_000.0


def policy(**waiting):
    return Policy(actions=Actions(preempt="act", reclaim="act"), waiting=Waiting(**waiting))


def running(name, on, cards, *, first=0, ends=None, started=900.0, **more):
    """A gang of one pod that stands; ``ends``: seconds from now at which it is expected to end."""
    timing = Timing(started=started, expected_duration=0.0 if ends is None else NOW + ends - started)
    member = standing(f"{name}-0", on, cards=whole(*range(first, first + cards)))
    one = role("w", count=0, gpus=cards)
    more.setdefault("preemptible", False)
    return gang(name, one, minimum=1, members=(member,), timing=timing, submitted=900.0, **more)


def asks(name, *, pods=1, cards=8, runs=0.0, **more):
    more.setdefault("timing", Timing(expected_duration=runs))
    more.setdefault("submitted", 990.0)
    more.setdefault("preemptible", False)
    return gang(name, role("w", count=pods, gpus=cards), **more)


def snapshot(nodes, *gangs, queues=()):
    total = sum(len(one.cards) for one in nodes)
    return Snapshot(
        nodes=tuple(nodes), queues=tuple(queues) or (queue(deserved={"gpu": total * CARD}),), gangs=tuple(gangs),
        topology_levels=("rack",),
    )  # fmt: skip


def at(state, memory=None, now=NOW, **waiting):
    return decide(state, memory or CoreMemory(), now, policy(**waiting))


def placed(decision):
    return {one.gang[3:] for one in decision.instructions if isinstance(one, Place)}


def told(decision):
    return {one.gang[3:]: one for one in decision.instructions if isinstance(one, Pending)}


NODES = (node("n1", gpus=8), node("n2", gpus=8))
BIG = {"pods": 2, "order": 1}
"""Asks both nodes whole."""
HALF = running("half", "n1", 4, ends=600)


class TestWhoMayUseReservedRoom:
    """Eight cards of n2 and four of n1 are free; the gang of both nodes can start in 600 s."""

    @pytest.mark.parametrize(
        ("small", "starts", "backfilled"),
        [
            pytest.param(asks("s", cards=2, runs=500, order=2), True, False, id="a job that ends before it"),
            pytest.param(asks("s", cards=2, runs=700, order=2), False, False, id="not one that would still run"),
            pytest.param(asks("s", cards=2, order=2), False, False, id="not one of which nobody knows"),
            pytest.param(asks("s", cards=2, order=2, preemptible=True), True, True, id="one that may be asked to leave, backfilled"),
        ],
    )  # fmt: skip
    def test_room_is_kept_only_from_those_who_would_delay_the_gang(self, small, starts, backfilled):
        decision = at(snapshot(NODES, HALF, asks("big", **BIG), small))
        assert placed(decision) == ({"s"} if starts else set())
        assert [one.gang for one in decision.memory.backfilled] == (["ns/s"] if backfilled else [])
        [kept] = decision.memory.reservations
        assert (kept.gang, kept.start, kept.nodes) == ("ns/big", NOW + 600, ("n1", "n2"))

    def test_who_comes_before_the_gang_is_not_bound_by_its_reservation(self):
        before = at(snapshot(NODES, HALF, asks("big", **BIG))).memory
        urgent = asks("s", cards=2, runs=700, order=2, priority=1)
        decision = at(snapshot(NODES, HALF, asks("big", **BIG), urgent), before)
        assert placed(decision) == {"s"}
        assert [kept.start for kept in decision.memory.reservations] == [NOW + 700]

    def test_the_one_that_waits_and_the_one_that_is_kept_out_are_told(self):
        decision = at(snapshot(NODES, HALF, asks("big", **BIG), asks("s", cards=2, order=2)))
        big, small = told(decision)["big"], told(decision)["s"]
        assert (big.code, big.numbers["estimated_start"], big.numbers["reserved"]) == ("RESERVED", 1600, "n1, n2")
        assert big.message.endswith("n1, n2 are reserved for it: expected free about 00:27 UTC")
        assert (small.code, small.numbers["held_for"], small.numbers["until"]) == ("HELD_FOR_OTHERS", "ns/big", 1600)
        assert small.message.startswith("it fits, but free room on n1, n2 is kept for ns/big until about 00:27 UTC")

    def test_without_reservations_in_the_policy_everybody_takes_what_is_free(self):
        decision = at(snapshot(NODES, HALF, asks("big", **BIG), asks("s", cards=2, order=2)), reservations=0)
        assert placed(decision) == {"s"}
        assert decision.memory.reservations == ()

    def test_who_lost_room_too_often_is_not_let_in_for_nobody_would_ask_it_to_leave(self):
        state = snapshot(NODES, HALF, asks("big", **BIG), asks("s", cards=2, preemptible=True, order=2))
        assert placed(at(state)) == {"s"}
        tired = CoreMemory(evictions=tuple(Eviction(gang="ns/s", at=NOW - 60.0 * n) for n in range(3)))
        assert placed(at(state, tired)) == set()

    def test_where_preemption_only_observes_nobody_is_let_in_to_be_evicted_later(self):
        state = snapshot(NODES, HALF, asks("big", **BIG), asks("s", cards=2, order=2, preemptible=True))
        watching = Policy(actions=Actions(preempt="observe"))
        assert placed(decide(state, CoreMemory(), NOW, watching)) == set()

    def test_room_that_the_gang_does_not_need_is_not_held(self):
        nodes = (*NODES, node("n3", gpus=2))
        assert placed(at(snapshot(nodes, HALF, asks("big", **BIG), asks("s", cards=2, order=2)))) == {"s"}


class TestWhoIsReservedFor:
    """And where, and for how many."""

    def test_the_rack_that_is_free_first_is_reserved(self):
        nodes = [node(f"{rack}{n}", gpus=8, labels={"rack": rack}) for rack in "ab" for n in (1, 2)]
        held = [running("x", "a1", 8, ends=900), running("y", "b1", 8, ends=300), running("z", "a2", 8, ends=100),
                running("v", "b2", 8, ends=200)]  # fmt: skip
        decision = at(snapshot(nodes, *held, asks("big", pods=2, rack="rack")))
        [kept] = decision.memory.reservations
        assert (kept.domain, kept.start) == ("b", NOW + 300)
        assert told(decision)["big"].numbers["reserved"] == "b"

    def test_never_where_a_pod_that_nobody_may_evict_has_no_known_end(self):
        decision = at(snapshot(NODES, running("x", "n1", 4), asks("big", **BIG), asks("s", cards=2, order=2)))
        assert decision.memory.reservations == ()
        assert placed(decision) == {"s"}, "a gang that can count on nothing keeps nobody out"

    def test_after_its_max_wait_there_too_and_newcomers_that_nobody_may_ask_are_kept_out(self):
        big, small = asks("big", **BIG, submitted=100.0), asks("s", cards=2, order=2)
        decision = at(snapshot(NODES, running("x", "n1", 4), big, small), max_wait=900)
        [kept] = decision.memory.reservations
        assert (kept.gang, kept.nodes, kept.start) == ("ns/big", ("n1", "n2"), None)
        assert placed(decision) == set()
        assert told(decision)["s"].code == "HELD_FOR_OTHERS"

    def test_it_keeps_its_nodes_when_nobody_knows_any_more_when_they_will_be_free(self):
        big = asks("big", cards=8, submitted=100.0)
        busy = [running("x", "n1", 4), running("y", "n2", 4)]
        memory = CoreMemory(
            reservations=(Reservation(gang="ns/big", gang_uid="uid-big", nodes=("n2",), made_at=5.0, start=NOW + 60),)
        )
        [kept] = at(snapshot(NODES, *busy, big), memory, max_wait=900).memory.reservations
        assert (kept.nodes, kept.start, kept.made_at) == (("n2",), None, 5.0)

    def test_where_all_may_be_asked_the_ends_need_not_be_known(self):
        decision = at(snapshot(NODES, running("x", "n1", 4, preemptible=True), asks("big", **BIG)))
        [kept] = decision.memory.reservations
        assert kept.start is None
        assert "estimated_start" not in told(decision)["big"].numbers

    def test_no_more_than_the_policy_says_and_a_promoted_gang_takes_the_place_of_another(self):
        held = [running("x", "n1", 8, ends=600), running("y", "n2", 8, ends=700)]
        one, two = asks("one", order=1), asks("two", order=2, queue="r", submitted=1.0)
        queues = (queue(deserved={"gpu": 16 * CARD}), queue("r", deserved={"gpu": 16 * CARD}))
        first = at(snapshot(NODES, *held, one, queues=queues), reservations=1)
        assert [kept.gang for kept in first.memory.reservations] == ["ns/one"]
        second = at(snapshot(NODES, *held, one, two, queues=queues), first.memory, reservations=1)
        assert [kept.gang for kept in second.memory.reservations] == ["ns/one"]
        third = at(snapshot(NODES, *held, one, two, queues=queues), first.memory, reservations=1, max_wait=900)
        assert [kept.gang for kept in third.memory.reservations] == ["ns/two"]

    def test_a_gang_over_its_queue_s_share_is_not_reserved_for(self):
        queues = (queue("q", deserved={"gpu": 8 * CARD}), queue("r", deserved={"gpu": 8 * CARD}))
        mine = running("mine", "n1", 8, ends=600, queue="r")
        decision = at(snapshot(NODES, mine, asks("big", pods=2), queues=queues))
        assert decision.memory.reservations == ()

    def test_a_gang_larger_than_the_cluster_blocks_nobody(self):
        decision = at(snapshot(NODES, HALF, asks("huge", pods=3, order=1), asks("s", cards=2, order=2)))
        assert (placed(decision), decision.memory.reservations) == ({"s"}, ())

    def test_the_second_reservation_holds_only_what_the_limit_leaves(self):
        nodes = [node(f"n{n}", gpus=8) for n in range(1, 5)]
        held = [running(f"x{n}", f"n{n}", 4, ends=600) for n in range(1, 5)]
        one, two = asks("one", order=1), asks("two", order=2)
        wide = at(snapshot(nodes, *held, one, two, asks("s", cards=4, pods=2, order=3)))
        assert placed(wide) == {"s"}, "4 + 4 of 32 cards are held"
        narrow = at(snapshot(nodes, *held, one, two, asks("s", cards=4, pods=3, order=3)), percent=0)
        assert placed(narrow) == set(), "one gang's cards may always be held"
        assert told(narrow)["s"].code == "HELD_FOR_OTHERS"

    def test_the_reservation_ends_when_the_gang_starts_or_is_gone(self):
        before = at(snapshot(NODES, HALF, asks("big", **BIG))).memory
        assert at(snapshot(NODES, HALF), before).memory.reservations == ()
        started = at(snapshot(NODES, asks("big", **BIG)), before)
        assert (placed(started), started.memory.reservations) == ({"big"}, ())

    def test_five_idle_decisions_change_nothing(self):
        state = snapshot(NODES, HALF, asks("big", **BIG), asks("s", cards=2, order=2))
        first = at(state)
        later = first
        for second in range(1, 6):
            later = at(state, later.memory, now=NOW + second)
        assert (later.memory, later.instructions) == (first.memory, first.instructions)


class TestEvictionForAReservation:
    """Backfilled and late jobs leave whatever their priority."""

    BACK = running("back", "n1", 4, started=NOW - 100, preemptible=True, priority=50)
    KEPT = Reservation(gang="ns/big", gang_uid="uid-big", nodes=("n1", "n2"), made_at=900.0)

    def test_a_backfilled_job_of_higher_priority_is_evicted_once_the_rest_is_there(self):
        memory = CoreMemory(reservations=(self.KEPT,), backfilled=(Backfilled(gang="ns/back", reserved_for="ns/big"),))
        state = snapshot(NODES, self.BACK, asks("big", **BIG))
        proposal = propose(state, memory, NOW, policy())
        assert proposal.plan is not None
        assert (proposal.plan.cause, [key for key, _ in proposal.plan.victims]) == ("backfill", ["ns/back"])
        assert propose(state, CoreMemory(), NOW, policy()).plan is None, "otherwise its priority protects it"

    def test_not_before_the_rest_is_there(self):
        memory = CoreMemory(reservations=(self.KEPT,), backfilled=(Backfilled(gang="ns/back", reserved_for="ns/big"),))
        state = snapshot(NODES, self.BACK, running("x", "n2", 1, ends=500), asks("big", **BIG))
        assert propose(state, memory, NOW, policy()).plan is None

    def test_backfilled_is_one_gang_for_another_and_pods_by_name_only_those(self):
        memory = CoreMemory(
            backfilled=(Backfilled(gang="a", reserved_for="r"), Backfilled(gang="b", reserved_for="r", pods=("p",)))
        )
        assert may_evict_backfilled(memory, "r", "a")
        assert not may_evict_backfilled(memory, "other", "a")
        assert may_evict_backfilled(memory, "r", "b", ["p"])
        assert not may_evict_backfilled(memory, "r", "b", ["p", "q"])
        assert not may_evict_backfilled(memory, "r", "b")

    @pytest.mark.parametrize(
        ("expected", "may"),
        [(200.0, False), (60.0, True), (80.0, False), (0.0, False)],
        ids=["in time", "longer than it may", "over, but not by so much", "nothing was said"],
    )
    def test_a_job_past_its_expected_duration_may_be_asked_for_the_reservation_it_blocks(self, expected, may):
        memory = CoreMemory(reservations=(self.KEPT,))
        late = running("late", "n1", 4)
        late = msgspec.structs.replace(late, timing=Timing(started=NOW - 100, expected_duration=expected))
        assert may_evict_late(memory, "ns/big", late, NOW, policy(overrun=1.5)) is may
        assert not may_evict_late(CoreMemory(), "ns/big", late, NOW, policy())


class TestDurations:
    """What is known of ends, and what is learned."""

    @pytest.mark.parametrize(
        ("timing", "end"),
        [
            pytest.param(Timing(started=900, expected_duration=300), 1200, id="by what its owner expects"),
            pytest.param(Timing(started=900, expected_duration=80), 1020, id="a little over: by what may pass"),
            pytest.param(Timing(started=800, expected_duration=80), None, id="late: nobody knows"),
            pytest.param(Timing(started=800, expected_duration=80, deadline=500), 1300, id="late: at its deadline"),
            pytest.param(Timing(started=900), None, id="nothing was said"),
            pytest.param(Timing(expected_duration=80), None, id="not started"),
        ],
    )
    def test_the_end_of_a_running_gang(self, timing, end):
        one = msgspec.structs.replace(running("x", "n1", 8), timing=timing)
        assert expected_end(CoreMemory(), one, NOW, policy(overrun=1.5)) == end

    def test_durations_are_learned_from_gangs_that_end(self):
        memory = CoreMemory()
        for number, ran in enumerate((100.0, 200.0, 300.0)):
            one = msgspec.structs.replace(running(f"x{number}", "n1", 8, started=NOW - ran), owner="Job/x")
            memory = followed(memory, [one], NOW - 1)
            ended = [msgspec.structs.replace(one, members=(standing("p", None, state=MemberState.SUCCEEDED),))]
            memory = followed(memory, ended if number else [], NOW)
        another = msgspec.structs.replace(asks("y"), owner="Job/x")
        assert memory.durations_learned == {"q Job/x": (100.0, 200.0, 300.0)}
        assert expected_duration(memory, another) == 300.0
        assert expected_duration(memory, msgspec.structs.replace(another, queue="r")) is None
        assert memory.followed == {}

    def test_a_gang_that_lost_its_pods_teaches_nothing(self):
        one = msgspec.structs.replace(running("x", "n1", 8), owner="Job/x")
        memory = followed(CoreMemory(), [one], NOW)
        waits = msgspec.structs.replace(asks("x"), owner="Job/x")
        assert followed(memory, [waits], NOW + 5).durations_learned == {}

    def test_what_is_learned_stays_bounded(self):
        memory = CoreMemory()
        for number in range(300):
            one = msgspec.structs.replace(running("x", "n1", 8), key=f"ns/{number}", owner=f"Job/{number}")
            memory = followed(followed(memory, [one], NOW), [], NOW + 1)
        assert len(memory.durations_learned) == 256
        assert "q Job/299" in memory.durations_learned


class TestPromotion:
    """Who waited too long goes first."""

    def test_it_goes_before_the_others_of_its_queue_whatever_their_priority(self):
        old, new = asks("old", submitted=500.0, order=1), asks("new", order=2, priority=100)
        nodes = NODES[:1]
        assert placed(at(snapshot(nodes, old, new))) == {"new"}
        assert placed(at(snapshot(nodes, old, new), max_wait=500)) == {"old"}

    @pytest.mark.parametrize(
        ("wish", "rules", "seconds"),
        [(0.0, {}, 3600), (60.0, {}, 60), (9000.0, {}, 3600), (60.0, {"q": QueueRules(max_wait_min=300)}, 300)],
        ids=["the policy's", "its own wish", "never more than the policy's", "lengthened by its queue's rules"],
    )
    def test_how_long_a_gang_may_wait(self, wish, rules, seconds):
        rule = Policy(waiting=Waiting(max_wait=3600), queues=rules)
        assert longest_wait(asks("x", timing=Timing(max_wait=wish)), rule) == seconds


def test_the_memory_comes_back_as_it_was():
    memory = at(snapshot(NODES, HALF, asks("big", **BIG), asks("s", cards=2, order=2, preemptible=True))).memory
    assert memory.reservations
    assert memory.backfilled
    assert memory.shares_since
    assert CoreMemory.from_data(msgspec.json.decode(msgspec.json.encode(memory.to_data()))) == memory
