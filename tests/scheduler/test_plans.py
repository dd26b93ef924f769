"""Plans in the LEDGER's fold, and what follows from them (rule E of the commit protocol)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.decide.commitments import NEVER, Kind, LedgerView, holds, nominations
from muster.decide.folding import RETURN_SECONDS, fold
from muster.decide.settling import consumable, remaining, settle
from muster.model.instructions import Slot
from muster.model.ledger import Bind, Close, Commit, Leader, Nominated, Plan, Undoing, Victim, Withdrawing
from muster.model.nodes import Node
from muster.model.pods import CardUse, Phase, Pod, Request
from muster.model.units import CardCount, CardIndex, GangKey, NodeName, PodUid, RoleName, Sequence

LARGE, SMALL, OTHER = GangKey("ns/large"), GangKey("ns/small"), GangKey("ns/other")
NODES = {NodeName(name): Node(name=NodeName(name)) for name in ("n1", "n2")}


def slot(pod: str, node: str = "n1", card: int = 0) -> Slot:
    return Slot(
        uid=PodUid(f"u-{pod}"),
        pod=pod,
        role=RoleName("w"),
        node=NodeName(node),
        cards=(CardUse(index=CardIndex(card), whole=True),),
        request=Request(cards=CardCount(1)),
    )


def pod(name: str, **fields: object) -> Pod:
    return msgspec.structs.replace(Pod(namespace="ns", name=name, uid=PodUid(f"u-{name}")), **fields)


def by_uid(*pods: Pod) -> dict[PodUid, Pod]:
    return {one.uid: one for one in pods}


def victim(name: str, gang: GangKey = SMALL, node: str = "n1") -> Victim:
    return Victim(gang=gang, uid=PodUid(f"u-{name}"), pod=name, node=NodeName(node), evict_after=50.0)


def nominated(gang: GangKey, *slots: Slot) -> Nominated:
    return Nominated(gang=gang, gang_uid="g", slots=slots)


def plan(*victims: Victim, gang: GangKey = LARGE, moves: tuple[Nominated, ...] = (), own: str = "l0") -> Plan:
    return Plan(
        gang=gang,
        gang_uid="g",
        cause="preempt",
        victims=victims or (victim("s0"), victim("s1")),
        nominated=(nominated(gang, slot(own)), *moves),
        freshness="10",
    )


def bind(gang: GangKey, *slots: Slot) -> Bind:
    return Bind(gang=gang, gang_uid="g", slots=slots, freshness="20")


def led(*entries: object) -> LedgerView:
    """A view after our leader entry at sequence 1, and these entries, each its own commit, from sequence 2 on."""
    view = fold(LedgerView(), Sequence(1), commit(Leader(identity="me", lease_transitions=1), epoch=0))
    for number, entry in enumerate(entries, start=2):
        view = fold(view, Sequence(number), commit(entry))
    return view


def commit(*entries: object, epoch: int = 1, at: float = 5.0) -> Commit:
    return Commit(epoch=Sequence(epoch), identity="me", entries=entries, at=at)


WITHDRAWING = Withdrawing(gang=LARGE, plan=Sequence(2), reason="UNSOUND", message="it fits without", freshness="12")


# --- the fold --------------------------------------------------------------------------------------------------------


def test_a_plan_is_its_gang_s_open_entry_and_names_its_victims():
    view = led(plan())
    entry = view.open[LARGE]
    assert (entry.kind, entry.sequence, entry.slots, entry.cause) == (Kind.PLAN, 2, (), "preempt")
    assert view.plans() == (entry,)
    assert view.victims() == view.named_uids() == {"u-s0", "u-s1"}


def test_a_bind_of_the_gang_consumes_its_plan():
    view = led(plan(), bind(LARGE, slot("l0")))
    assert view.open[LARGE].kind is Kind.BIND
    assert (view.plans(), view.victims(), nominations(view)) == ((), frozenset(), ())


def test_a_bind_that_consumes_a_plan_comes_after_the_entries_before_it():
    assert list(led(plan(), bind(OTHER, slot("o0")), bind(LARGE, slot("l0"))).open) == [OTHER, LARGE]


def test_a_bind_of_another_gang_leaves_a_plan_as_it_is():
    before = led(plan())
    assert fold(before, Sequence(3), commit(bind(OTHER, slot("o0", "n2")))).open[LARGE] == before.open[LARGE]


def test_a_withdrawing_marks_the_plan_and_keeps_its_victims_named():
    view = led(plan(), WITHDRAWING)
    entry = view.open[LARGE]
    assert (entry.kind, entry.sequence, entry.plan, entry.begins) == (Kind.WITHDRAWING, 3, 2, 2)
    assert (entry.reason, entry.freshness) == ("UNSOUND", "12")
    assert view.plans() == ()
    assert view.victims() == {"u-s0", "u-s1"}


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        pytest.param(
            (plan(), msgspec.structs.replace(WITHDRAWING, plan=Sequence(9))), Kind.PLAN, id="another plan's withdrawing"
        ),
        pytest.param(
            (plan(), msgspec.structs.replace(WITHDRAWING, gang=OTHER)), Kind.PLAN, id="a withdrawing of another gang"
        ),
        pytest.param(
            (plan(), bind(LARGE, slot("l0")), WITHDRAWING), Kind.BIND, id="a withdrawing of what was consumed"
        ),
        pytest.param(
            (plan(), WITHDRAWING, Close(gang=LARGE, entry=Sequence(2), outcome="withdrawn", freshness="1")),
            Kind.WITHDRAWING,
            id="a close of the plan that is being withdrawn, instead of its withdrawing",
        ),
    ],
)
def test_nothing_comes_of(entries, kind):
    assert led(*entries).open[LARGE].kind is kind


def test_a_withdrawn_plan_leaves_nothing_behind():
    view = led(plan(), WITHDRAWING, Close(gang=LARGE, entry=Sequence(3), outcome="withdrawn", freshness="15"))
    assert (view.open, view.lingering, nominations(view), view.victims()) == ({}, (), (), frozenset())


def test_the_token_of_a_plan_is_raised_by_a_newer_leader():
    view = led(plan())
    assert view.token(view.open[LARGE]) == 2
    after = fold(view, Sequence(3), commit(Leader(identity="other", lease_transitions=2), epoch=0))
    assert after.token(after.open[LARGE]) == 3


# --- the room --------------------------------------------------------------------------------------------------------


def test_a_plan_s_room_is_nominated_and_not_held_a_second_time():
    view = led(plan())
    (one,) = nominations(view)
    assert (one.gang, one.slots, one.victims, one.until) == (LARGE, (slot("l0"),), ("u-s0", "u-s1"), NEVER)
    assert holds(view, {}) == ()


def test_the_room_stays_nominated_while_the_plan_is_being_withdrawn():
    assert [one.gang for one in nominations(led(plan(), WITHDRAWING))] == [LARGE]


MOVING = plan(moves=(nominated(SMALL, slot("s0", "n2", 0), slot("s1", "n2", 1)),))


def test_a_moved_gang_has_its_room_nominated_after_the_gang_it_moves_for():
    assert [one.gang for one in nominations(led(MOVING))] == [LARGE, SMALL]


def test_a_moved_gang_that_is_bound_again_has_no_room_nominated_any_more():
    view = led(MOVING, bind(SMALL, slot("s2", "n2", 0)))
    assert [one.gang for one in nominations(view)] == [LARGE]
    assert view.victims() == {"u-s0", "u-s1"}


@pytest.mark.parametrize(
    ("entry", "at", "held"),
    [
        pytest.param(bind(OTHER, slot("o0")), 6.0, True, id="until something else is bound: still held"),
        pytest.param(bind(SMALL, slot("s2", "n2", 0)), 6.0, False, id="until it is bound again"),
        pytest.param(plan(victim("x", OTHER), gang=SMALL, own="s2"), 6.0, False, id="until it has a plan of its own"),
        pytest.param(bind(OTHER, slot("o0")), 6.0 + RETURN_SECONDS, False, id="until it has had the time to come back"),
    ],
)
def test_room_of_a_moved_gang_is_nominated_after_the_plan_was_consumed(entry, at, held):
    view = led(MOVING, bind(LARGE, slot("l0")))
    (one,) = nominations(view)
    assert (one.gang, one.victims, one.until) == (SMALL, (), 5.0 + RETURN_SECONDS)
    after = fold(view, Sequence(4), commit(entry, at=at))
    assert (SMALL in after.returning) is held


# --- what follows ----------------------------------------------------------------------------------------------------


def test_nothing_follows_from_an_open_plan_by_itself():
    assert settle(led(plan()), {}, NODES, freshness="99") == settle(LedgerView(), {}, NODES, freshness="99")


BOUND = {"node": NodeName("n1")}


@pytest.mark.parametrize(
    ("pods", "complete", "left"),
    [
        pytest.param(by_uid(pod("s0", **BOUND), pod("s1", **BOUND)), "10", ["s0", "s1"], id="both stand"),
        pytest.param(
            by_uid(pod("s0", **BOUND, terminating=True)), "10", ["s0"], id="one is leaving: it still has its room"
        ),
        pytest.param(by_uid(pod("s0", **BOUND, phase=Phase.FAILED)), "10", [], id="one has ended, one is gone"),
        pytest.param({}, "10", [], id="both are gone"),
        pytest.param({}, "9", ["s0", "s1"], id="both are absent from a view that is older than the plan"),
        pytest.param({}, "", ["s0", "s1"], id="both are absent from a view that promises nothing"),
    ],
)
def test_victims_that_remain(pods, complete, left):
    entry = led(plan()).open[LARGE]
    assert [one.pod for one in remaining(entry, pods, complete=complete)] == left
    assert consumable(entry, pods, complete=complete) is (left == [])


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param((plan(), WITHDRAWING), id="a plan that is being withdrawn"),
        pytest.param((bind(LARGE, slot("l0")),), id="a bind"),
        pytest.param(
            (Undoing(gang=LARGE, gang_uid="g", slots=(slot("l0"),), reason="X", freshness="1"),), id="an undoing"
        ),
    ],
)
def test_no_bind_consumes(entries):
    assert not consumable(led(*entries).open[LARGE], {}, complete="99")


@pytest.mark.parametrize(
    ("pods", "complete", "touched"),
    [
        pytest.param(
            by_uid(pod("s0", **BOUND, fence=3), pod("s1", **BOUND, fence=7)), "12", [], id="both touched: it closes"
        ),
        pytest.param({}, "12", [], id="both gone: it closes"),
        pytest.param(by_uid(pod("s0", **BOUND, phase=Phase.SUCCEEDED)), "12", [], id="ended and gone: it closes"),
        pytest.param(
            by_uid(pod("s0", **BOUND, fence=2), pod("s1", **BOUND, fence=3)),
            "12",
            ["s0"],
            id="one has the fence of the plan only: an eviction of it may be on its way",
        ),
        pytest.param({}, "11", ["s0", "s1"], id="absent from a view that is older than the withdrawing"),
        pytest.param(by_uid(pod("s1", **BOUND, fence=3, terminating=True)), "12", [], id="leaving and touched"),
    ],
)
def test_a_plan_that_is_being_withdrawn(pods, complete, touched):
    steps = settle(led(plan(), WITHDRAWING), pods, NODES, freshness="30", complete=complete)
    assert [one.pod for _, one in steps.touches] == touched
    closed = (Close(gang=LARGE, entry=Sequence(3), outcome="withdrawn", freshness="30"),)
    assert steps.entries == (() if touched else closed)


# --- any history of a correct leader ---------------------------------------------------------------------------------

GANGS = tuple(GangKey(f"ns/{name}") for name in "abcd")


class History:
    """A leader that keeps the rules, with a view that shows everything at once; pods are named by their uids."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.view = led()
        self.pods: dict[PodUid, Pod] = {}
        self.number = 0
        self.version = 30
        self.consumed: list[tuple[Victim, ...]] = []

    def append(self, entry: object) -> None:
        self.view = fold(self.view, Sequence(self.view.sequence + 1), commit(entry, at=float(self.number)))

    def pick(self, options):
        options = list(options)
        return self.draw(st.sampled_from(options)) if options else None

    def new_slot(self, gang: GangKey) -> Slot:
        self.number += 1
        name = f"{gang[-1]}{self.number}"
        self.pods[PodUid(f"u-{name}")] = pod(name, gang=gang)
        return slot(name, "n1", self.number)

    def step(self) -> None:
        view, complete = self.view, str(self.version)
        free = [
            gang for gang in GANGS if gang not in view.open or consumable(view.open[gang], self.pods, complete=complete)
        ]
        named = view.named_uids()
        promised = {one.gang for entry in view.open.values() for one in entry.nominated}
        standing = [one for one in self.pods.values() if one.node is not None and one.uid not in named]
        match self.draw(st.sampled_from(["bind", "plan", "withdraw", "settle", "land", "leave", "release"])):
            case "bind" if (gang := self.pick(free)) is not None:
                if gang in view.open:
                    self.consumed.append(view.open[gang].victims)
                self.append(bind(gang, self.new_slot(gang)))
            case "plan" if (
                gang := self.pick(gang for gang in GANGS if gang not in {*view.open, *promised})
            ) is not None:
                victims = [one for one in standing if one.gang != gang][: self.draw(st.integers(1, 2))]
                moved = {one.gang for one in victims} - promised
                moves = [nominated(key, self.new_slot(key)) for key in sorted(moved) if self.draw(st.booleans())]
                if victims:
                    leaving = tuple(victim(one.name, one.gang, one.node) for one in victims)
                    self.append(plan(*leaving, gang=gang, moves=tuple(moves), own=self.new_slot(gang).pod))
            case "withdraw" if (entry := self.pick(view.plans())) is not None:
                self.append(Withdrawing(gang=entry.gang, plan=entry.sequence, reason="X", freshness=complete))
            case "settle":
                for entry in settle(view, self.pods, NODES, freshness=complete).entries:
                    self.append(entry)
            case "land":
                for entry in view.open.values():
                    fields = {"fence": entry.sequence} if entry.kind is Kind.WITHDRAWING else {}
                    there = [one for one in (*entry.slots, *entry.victims) if one.uid in self.pods]
                    for one in there if entry.kind is not Kind.PLAN else ():
                        self.pods[one.uid] = msgspec.structs.replace(self.pods[one.uid], node=one.node, **fields)
            case "leave" if view.victims():
                self.pods.pop(self.pick(sorted(view.victims())), None)
            case "release" if (one := self.pick(standing)) is not None and one.gang not in view.open:
                place = slot(one.name, one.node)
                self.append(Undoing(gang=one.gang, gang_uid="g", slots=(place,), reason="X", freshness=complete))
                self.pods.pop(one.uid)
            case _:
                pass


@given(st.data())
def test_in_any_history_a_gang_has_one_entry_a_victim_one_plan_and_room_is_counted_once(data):
    history = History(data.draw)
    for _ in range(data.draw(st.integers(1, 25))):
        history.step()
        view = history.view
        assert all(gang == entry.gang for gang, entry in view.open.items())
        victims = [one.uid for entry in view.open.values() for one in entry.victims]
        assert len(victims) == len(set(victims))
        assert not set(victims) & {one.uid for entry in view.open.values() for one in entry.slots}
        rooms = nominations(view)
        assert len({one.gang for one in rooms}) == len(rooms)
        held = [one.uid for one in holds(view, history.pods)]
        promised = [one.uid for room in rooms for one in room.slots]
        assert len(held) + len(promised) == len({*held, *promised})
        for entry in view.open.values():
            assert (entry.kind in {Kind.PLAN, Kind.WITHDRAWING}) is bool(entry.victims)


@given(st.data())
def test_in_any_history_a_plan_is_consumed_only_after_its_victims_are_gone(data):
    history = History(data.draw)
    for _ in range(data.draw(st.integers(1, 25))):
        history.step()
    for victims in history.consumed:
        assert not any(one.uid in history.pods for one in victims)
