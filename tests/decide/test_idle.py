"""Which idle nodes are cordoned, which come back, which are asked for: tables, and properties over random job streams."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.commitments import NodePromise, NodeVerb
from muster.decide.cordons import withheld
from muster.decide.idle import IdleMemory, Sight, Veto, look, refusals
from muster.decide.idle.forecast import cards_kept
from muster.decide.idle.memory import BUCKET_SECONDS, Demanded, wanted, was_cordoned
from muster.decide.memory import CoreMemory, Reservation
from muster.decide.scheduling import decide
from muster.model.gangs import MemberState
from muster.model.instructions import Place
from muster.model.nodes import Cordoned
from muster.model.policy import Actions, Idle, Policy, Pool, Solver
from muster.model.snapshot import Occupant
from tests.decide.build import gang, node, queue, request, role, snapshot, standing, whole

NOW = 100_000.0
IDLE = Idle(window=600.0, min_up=900.0, min_down=600.0, quantile=0.0)


def policy(**fields):
    return Policy(
        actions=Actions(cordon="act"), idle=msgspec.structs.replace(IDLE, **fields), solver=Solver(enabled=False)
    )


def gpu(name, *, gpus=8, rack="", **more):
    labels = {"topology.muster.dev/rack": rack} if rack else {}
    return node(name, gpus=gpus, uid=f"{name}-uid", labels=labels | more.pop("labels", {}), **more)


def away(name, verb=NodeVerb.REMOVABLE, *, since=NOW - 5000.0, **more):
    return NodePromise(
        sequence=7, verb=verb, node=name, node_uid=f"{name}-uid", begins=5, at=since, since=since, **more
    )


def seen_at(nodes, gangs=(), *, memory=None, core=None, promises=(), named=(), now=NOW, rules=None, **more):
    """A look at these nodes, which have been empty for a long time unless the memory says otherwise."""
    by_name = {promise.node: promise for promise in promises}
    marks = Cordoned(owner="muster")
    there = [
        withheld(msgspec.structs.replace(one, unschedulable=True, cordoned=marks), by_name[one.name])
        if one.name in by_name
        else one
        for one in nodes
    ]
    state = snapshot(there, gangs, (queue(),), ("rack",), **more)
    if memory is None:
        memory = IdleMemory(empty={one.uid: NOW - 5000.0 for one in nodes})
    sight = Sight(state, core or CoreMemory(), by_name, frozenset(named), now, rules or policy())
    return look(sight, memory)


def cordoned(found):
    return sorted(one.node for one in found.cordons)


def returned(found):
    return {one.node: one.reason for one in found.uncordons}


def on(name, node_name, *, cards=1):
    return gang(
        name,
        role(count=0, minimum=0, gpus=cards),
        minimum=1,
        members=(standing(name, node_name, cards=whole(*range(cards))),),
    )


def test_a_node_that_was_empty_for_its_window_is_cordoned_and_one_with_pods_is_not():
    found = seen_at([gpu("n1"), gpu("n2")], [on("g", "n1")])
    assert cordoned(found) == ["n2"]
    assert found.vetoes == {Veto.BUSY: 1}
    assert "nobody waits for its 8 cards" in found.cordons[0].message


def test_daemon_sets_do_not_keep_a_node_and_pods_of_others_do():
    def occupant(name, *, system):
        return Occupant(uid=name, key=f"ns/{name}", node=name, request=request(cpu=100), system=system)

    found = seen_at([gpu("n1"), gpu("n2")], occupants=(occupant("n1", system=True), occupant("n2", system=False)))
    assert cordoned(found) == ["n1"]


KEPT = {
    "without cards": (gpu("n1", gpus=0), {}, None),
    "not ready": (gpu("n1", ready=False), {}, Veto.NOT_READY),
    "cordoned by somebody else": (gpu("n1", unschedulable=True), {}, Veto.CORDONED_BY_OTHERS),
    "kept by somebody else's annotation": (gpu("n1", kept=("karpenter.sh/do-not-disrupt",)), {}, Veto.KEPT_BY_OTHERS),
    "named by an open entry": (gpu("n1"), {"named": ("n1",)}, Veto.PROMISED),
    "reserved": (
        gpu("n1"),
        {"core": CoreMemory(reservations=(Reservation(gang="ns/x", gang_uid="x", nodes=("n1",), made_at=1.0),))},
        Veto.RESERVED,
    ),
    "empty for less than the window": (
        gpu("n1"), {"memory": IdleMemory(empty={"n1-uid": NOW - 599.0})}, Veto.WINDOW,
    ),
    "first seen empty just now": (gpu("n1"), {"memory": IdleMemory()}, Veto.WINDOW),
    "young": (gpu("n1", created=NOW - 899.0), {}, Veto.MIN_UP),
    "given back lately": (
        gpu("n1"),
        {"memory": IdleMemory(empty={"n1-uid": NOW - 5000.0}, returned={"n1-uid": NOW - 899.0})},
        Veto.MIN_UP,
    ),
    "paid for": (gpu("n1", created=NOW - 7200.0 - 1800.0), {"rules": policy(billing_period=3600.0)}, Veto.BILLED),
    "under the floor of its pool": (
        gpu("n1", labels={"pool": "a"}), {"rules": policy(pools={"a": Pool(labels={"pool": "a"}, floor=1)})}, Veto.FLOOR,
    ),
    "more than may be cordoned of its pool": (
        gpu("n1"), {"rules": policy(pools={"all": Pool(most_cordoned=50)})}, Veto.SHARE,
    ),
    "spare": (gpu("n1"), {"rules": policy(pools={"all": Pool(spare_cards=1)})}, Veto.FORECAST),
    "over the budget of the hour": (
        gpu("n1"),
        {"rules": policy(per_hour=1), "memory": was_cordoned(IdleMemory(empty={"n1-uid": 0.0}), NOW - 10.0)},
        Veto.BUDGET,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("there", "given_", "veto"), KEPT.values(), ids=KEPT)
def test_a_node_stays_open_that_is(there, given_, veto):
    found = seen_at([there], **given_)
    assert cordoned(found) == []
    assert found.vetoes == ({veto: 1} if veto is not None else {})


def test_a_pool_has_a_window_of_its_own():
    rules = policy(pools={"a": Pool(labels={"pool": "a"}, window=10.0)})
    memory = IdleMemory(empty={"n1-uid": NOW - 20.0, "n2-uid": NOW - 20.0})
    found = seen_at([gpu("n1", labels={"pool": "a"}), gpu("n2")], memory=memory, rules=rules)
    assert cordoned(found) == ["n1"]


def test_nodes_of_the_rack_with_the_least_free_room_go_first_so_that_whole_racks_stay():
    nodes = [gpu(f"a{number}", rack="a") for number in range(3)] + [gpu(f"b{number}", rack="b") for number in range(3)]
    found = seen_at(nodes, [on("g", "b0")], rules=policy(pools={"all": Pool(floor=4)}))
    assert cordoned(found) == ["b1", "b2"]


def test_a_waiting_gang_gets_back_just_the_nodes_on_which_it_will_start():
    nodes = [gpu("n1"), *(gpu(f"n{number}") for number in range(2, 6))]
    promises = [away(f"n{number}") for number in range(2, 6)]
    wants = gang("large", role(count=3, gpus=8))
    found = seen_at(nodes, [wants], promises=promises)
    assert len(returned(found)) == 2
    assert set(returned(found).values()) == {"DEMAND"}
    assert {one.gang for one in found.uncordons} == {"ns/large"}
    assert cordoned(found) == [], "n1 is used by it too"
    assert found.demands == ()


def test_a_gang_that_wants_one_rack_gets_back_nodes_of_one_rack():
    nodes = [gpu("a1", rack="a"), gpu("a2", rack="a"), gpu("b1", rack="b"), gpu("b2", rack="b")]
    found = seen_at(
        nodes,
        [on("g", "a1"), gang("large", role(count=2, gpus=8), rack="rack")],
        promises=[away("a2"), away("b1"), away("b2")],
    )
    assert set(returned(found)) == {"b1", "b2"}


def test_a_gang_that_does_not_fit_even_then_gets_what_it_could_use_and_the_rest_is_asked_for_as_a_whole():
    found = seen_at(
        [gpu("n1"), gpu("n2")], [on("g", "n1"), gang("large", role(count=4, gpus=8))], promises=[away("n2")]
    )
    (demand,) = found.demands
    assert (demand.nodes, demand.cards, demand.gang) == (3, 8, "ns/large")
    assert "3 more nodes like" in demand.message


def test_new_nodes_for_a_gang_in_one_rack_are_counted_without_what_is_free_elsewhere():
    found = seen_at([gpu("a1", rack="a"), gpu("b1", rack="b")], [gang("large", role(count=2, gpus=8), rack="rack")])
    (demand,) = found.demands
    assert (demand.nodes, demand.level) == (2, "rack")


@pytest.mark.parametrize("hold", ["QUEUE_CAPABILITY", "TOO_FEW_PODS"])
def test_a_gang_that_nodes_would_not_help_wants_none(hold):
    limited = queue(capability={"gpu": 0}) if hold == "QUEUE_CAPABILITY" else queue()
    wants = gang("g", role(count=1, gpus=8), minimum=1 if hold == "QUEUE_CAPABILITY" else 2)
    state = snapshot([withheld(gpu("n1"), away("n1"))], [wants], (limited,), ("rack",))
    found = look(Sight(state, CoreMemory(), {"n1": away("n1")}, frozenset(), NOW, policy()), IdleMemory())
    assert (found.uncordons, found.demands) == ((), ())


def test_nodes_that_a_waiting_gang_could_use_stay_open():
    found = seen_at([gpu("n1"), gpu("n2")], [on("g", "n1"), gang("large", role(count=2, gpus=8))])
    assert cordoned(found) == []
    assert found.vetoes[Veto.WAITED_FOR] == 1


def test_a_gang_larger_than_all_nodes_together_keeps_none_of_them():
    found = seen_at([gpu("n1"), gpu("n2")], [gang("huge", role(count=9, gpus=8))])
    assert cordoned(found) == ["n1", "n2"]
    assert found.demands[0].nodes == 7


def test_a_floor_that_was_raised_brings_nodes_back_at_once_those_cordoned_last_first():
    promises = [away("n1", since=NOW - 900.0), away("n2", since=NOW - 100.0)]
    found = seen_at([gpu("n1"), gpu("n2")], promises=promises, rules=policy(pools={"all": Pool(floor=1)}))
    assert returned(found) == {"n2": "FLOOR"}


def test_the_forecast_brings_nodes_back_not_sooner_than_min_down():
    rules = policy(pools={"all": Pool(spare_cards=8)})
    assert returned(seen_at([gpu("n1")], promises=[away("n1", since=NOW - 599.0)], rules=rules)) == {}
    assert returned(seen_at([gpu("n1")], promises=[away("n1", since=NOW - 600.0)], rules=rules)) == {"n1": "FORECAST"}


def test_nodes_on_their_way_back_are_not_asked_for_again():
    found = seen_at([gpu("n1")], [gang("g", role(count=1, gpus=8))], promises=[away("n1", NodeVerb.UNCORDON)])
    assert (found.uncordons, found.cordons) == ((), ())


def test_nodes_in_use_are_marked_for_other_autoscalers_when_the_policy_says_so_and_only_our_marks_are_lifted():
    nodes = [gpu("n1"), gpu("n2", kept=("x",), kept_by_us=True), gpu("n3", kept=("x",))]
    found = seen_at(nodes, [on("g", "n1")], rules=policy(keep_nodes=True))
    assert (found.keep, found.release) == (("n1",), ("n2",))
    assert seen_at(nodes, [on("g", "n1")]).keep == ()


FORECASTS = {
    "without a past nothing is kept": ([], 0.9, 0),
    "steady demand needs nothing more": ([8] * 20, 0.9, 0),
    "a rise that comes every time is kept for": ([0, 16] * 10, 0.9, 16),
    "a rare one is not": ([0] * 30 + [16], 0.9, 0),
    "unless everything is to be kept for": ([0] * 30 + [16], 1.0, 16),
    "nothing is kept when no part is": ([0, 16] * 10, 0.0, 0),
}


@pytest.mark.parametrize(("past", "quantile", "kept"), FORECASTS.values(), ids=FORECASTS)
def test_how_many_cards_are_kept_for_what_usually_comes(past, quantile, kept):
    idle = Idle(lead=BUCKET_SECONDS, quantile=quantile)
    assert cards_kept([Demanded(number, cards) for number, cards in enumerate(past)], idle) == kept


def test_demand_is_remembered_as_the_most_of_each_bucket_for_a_day():
    memory = IdleMemory()
    for number, cards in enumerate((3, 5, 4)):
        memory = wanted(memory, {"": cards}, NOW + number)
    assert [one.cards for one in memory.demanded[""]] == [5]
    later = wanted(memory, {"": 1}, NOW + 2 * 86_400.0)
    assert [one.cards for one in later.demanded[""]] == [1]


def test_memory_outlives_its_process_but_for_since_when_nodes_are_empty():
    memory = IdleMemory(empty={"u": 1.0}, returned={"u": 2.0}, cordoned=(3.0,), demanded={"": (Demanded(1, 2),)})
    assert IdleMemory.from_data(memory.to_data()) == msgspec.structs.replace(memory, empty={})


def test_the_committer_refuses_what_its_own_view_does_not_show_idle_and_counts_floors_over_all_of_a_proposal():
    state = snapshot([gpu("n1"), gpu("n2"), gpu("n3")], [on("g", "n1")], (queue(),), ("rack",))
    rules = policy(pools={"all": Pool(floor=2)})
    uids = {"n1": "n1-uid", "n2": "n2-uid", "n3": "n3-uid", "n9": "x"}
    refused = refusals(state, CoreMemory(), {}, frozenset(), rules, uids)
    assert set(refused) == {"n1", "n3", "n9"}
    assert "pods stand on it" in refused["n1"]
    assert "2 nodes of its pool stay open" in refused["n3"]


# --- random job streams -----------------------------------------------------------------------------------------------

STEP = 60.0
JOBS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 3), st.sampled_from((1, 2, 4)), st.integers(2, 25)), max_size=14
)


@settings(deadline=None, max_examples=60)
@given(JOBS, st.integers(0, 2), st.sampled_from((0.0, 300.0, 900.0)), st.booleans())
def test_over_random_streams_no_node_is_cordoned_that_is_needed_and_none_flaps(jobs, floor, window, forecast):
    """Jobs arrive at a minute, ask pods of so many cards, and run for so many minutes, on four nodes of four cards."""
    rules = policy(
        window=window,
        min_up=600.0,
        min_down=300.0,
        quantile=0.9 if forecast else 0.0,
        pools={"all": Pool(floor=floor)},
    )
    nodes = [gpu(f"n{number}", gpus=4) for number in range(4)]
    promises: dict[str, NodePromise] = {}
    memory, core = IdleMemory(), CoreMemory()
    waiting: list = []
    running: list = []
    changed: dict[str, float] = {}
    asked_for: dict[str, int] = {}
    for minute in range(90):
        now = minute * STEP
        running = [one for one in running if one[0] > minute]
        waiting += [
            (gang(f"j{number}", role(count=pods, gpus=cards), order=number, submitted=at * STEP), length)
            for number, (at, pods, cards, length) in enumerate(jobs)
            if at == minute
        ]
        there = [_as_state(one, promises.get(one.name)) for one in nodes]
        state = snapshot(there, [*(one for _, one in running), *(one for one, _ in waiting)], (queue(),), ("rack",))
        decision = decide(state, core, now, rules)
        core = decision.memory
        for place in decision.instructions:
            if isinstance(place, Place):
                assert not {slot.node for slot in place.slots} & promises.keys(), "nothing is placed on a cordoned node"
                started = next(one for one in waiting if one[0].key == place.gang)
                waiting.remove(started)
                running.append((minute + started[1], _standing(started[0], place)))
        state = msgspec.structs.replace(state, gangs=(*(one for _, one in running), *(one for one, _ in waiting)))
        found = look(Sight(state, core, promises, frozenset(), now, rules), memory)
        memory = found.memory
        occupied = {member.node for _, one in running for member in one.members}
        for wish in found.uncordons:
            assert wish.node in promises, "only our own cordons are lifted"
            if wish.reason != "DEMAND":
                assert wish.reason == "FLOOR" or now - changed[wish.node] >= 300.0
            del promises[wish.node]
            changed[wish.node] = now
            memory = msgspec.structs.replace(memory, returned={**memory.returned, f"{wish.node}-uid": now})
        refused = refusals(state, core, promises, frozenset(), rules, {one.node: one.node_uid for one in found.cordons})
        assert not refused, "the committer agrees with the proposer on the same view"
        for wish in found.cordons:
            assert wish.node not in occupied
            assert now - changed.get(wish.node, -1e9) >= 600.0, "it was given back too lately to go again"
            promises[wish.node] = away(wish.node, since=now)
            changed[wish.node] = now
            memory = was_cordoned(memory, now)
        assert len(nodes) - len(promises) >= floor
        # Whoever fits an emptied cluster waits for one round of giving back at the most, where room is free.
        for one, _ in waiting:
            fits = _fits_all(nodes, state.gangs, one, rules=rules, now=now)
            asked_for[one.key] = asked_for.get(one.key, 0) + 1 if fits else 0
            assert asked_for[one.key] <= 2


def _as_state(one, promise):
    if promise is None:
        return one
    return withheld(msgspec.structs.replace(one, unschedulable=True, cordoned=Cordoned(owner="muster")), promise)


def _standing(one, place):
    slots = {slot.uid: slot for slot in place.slots}
    members = tuple(
        msgspec.structs.replace(
            member, state=MemberState.BOUND, node=slots[member.uid].node, cards=slots[member.uid].cards
        )
        for member in one.members
    )
    return msgspec.structs.replace(one, members=members)


def _fits_all(nodes, gangs, one, *, rules, now):
    """Whether the gang would start at once if no node were cordoned."""
    state = snapshot(nodes, gangs, (queue(),), ("rack",))
    decision = decide(state, CoreMemory(), now, rules)
    return any(isinstance(place, Place) and place.gang == one.key for place in decision.instructions)
