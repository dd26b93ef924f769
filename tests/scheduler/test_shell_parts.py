"""Deadlines, news of nodes, serial allocation, and what an error of the API server means."""

import asyncio

import msgspec
import pytest

from muster.bus.state import Change
from muster.decide.commitments import Kind, LedgerView, Lingering, OpenEntry
from muster.decide.settling import Steps
from muster.fenced.actions import Actions
from muster.fenced.executor import BUDGET_SECONDS, Outcome, Result, not_now
from muster.kube.errors import Forbidden, Invalid, TooManyRequests, Unauthorized, Unavailable, UnexpectedReply
from muster.model.instructions import Slot
from muster.model.nodes import CardMode, Node
from muster.model.pods import CardUse, Phase, Pod
from muster.model.units import CardIndex, GangKey, NodeName, PodUid, RoleName, Sequence
from muster.scheduler.binding import may_bind_now
from muster.scheduler.deadlines import LONGEST_STEP, ActiveTime, Since
from muster.view.world import World

NODE = NodeName("n1")
CARD = (CardUse(index=CardIndex(0), whole=True),)


def test_time_stands_still_during_an_outage_and_a_long_pause_counts_as_a_short_one():
    time = ActiveTime(100.0)
    time.advance(103.0, counts=True)
    time.advance(500.0, counts=False)
    time.advance(502.0, counts=True)
    assert time.seconds == 5.0
    time.advance(900.0, counts=True)
    assert time.seconds == 5.0 + LONGEST_STEP


def test_a_clock_that_goes_back_takes_nothing_away():
    time = ActiveTime(100.0)
    time.advance(50.0, counts=True)
    assert time.seconds == 0.0


def test_what_is_not_so_any_more_starts_anew():
    since = Since[str]()
    since.keep(["a"], 10.0)
    since.keep(["a"], 15.0)
    assert since.lasted("a", 20.0) == 10.0
    since.keep([], 21.0)
    since.keep(["a"], 22.0)
    assert since.lasted("a", 25.0) == 3.0
    assert since.lasted("never", 25.0) == 0.0


def change(world: World, kind: str, value, version: str) -> None:
    key = value.key if isinstance(value, Pod) else value.name
    world.apply(Change(kind=kind, key=key, object=value, resource_version=version, sequence=Sequence(1)))


def pod(name: str = "p1", **fields) -> Pod:
    return msgspec.structs.replace(Pod(namespace="ns", name=name, uid=PodUid(f"u-{name}")), **fields)


@pytest.mark.parametrize(
    ("before", "after", "arrived"),
    [
        pytest.param(None, pod(node=NODE), True, id="a pod that is first seen on a node takes room"),
        pytest.param(pod(), pod(node=NODE), True, id="so does one that was bound"),
        pytest.param(pod(node=NODE), pod(node=NODE, phase=Phase.RUNNING), False, id="one that starts takes no more"),
        pytest.param(pod(node=NODE), pod(node=NODE, phase=Phase.FAILED), False, id="one that ends frees some"),
        pytest.param(pod(), pod(nominated_node=NODE), True, id="a promise of another scheduler takes room"),
        pytest.param(pod(node=NODE), pod(node=NODE, uid=PodUid("new")), True, id="a new uid is another pod"),
    ],
)
def test_news_are_pods_that_take_room(before, after, arrived):
    world = World()
    if before is not None:
        change(world, "pod", before, "1")
    world.take_news()
    change(world, "pod", after, "2")
    assert bool(world.take_news().arrived) is arrived


def test_a_node_whose_version_alone_moved_is_the_same():
    world = World()
    change(world, "node", Node(name=NODE, uid="1", resource_version="1"), "1")
    world.take_news()
    change(world, "node", Node(name=NODE, uid="1", resource_version="2"), "2")
    assert not world.take_news().changed
    change(world, "node", Node(name=NODE, uid="1", resource_version="3", unschedulable=True), "3")
    assert world.take_news().changed == {NODE}


def slot(name: str) -> Slot:
    return Slot(uid=PodUid(f"u-{name}"), pod=name, role=RoleName("w"), node=NODE, cards=CARD)


def entry(kind: Kind, *names: str) -> OpenEntry:
    slots = tuple(slot(name) for name in names)
    return OpenEntry(sequence=Sequence(5), kind=kind, gang=GangKey("ns/g"), gang_uid="g", slots=slots, at=0.0)


def steps(binds: tuple[str, ...], undos: tuple[str, ...] = ()) -> Steps:
    bind, undo = entry(Kind.BIND, *binds), entry(Kind.UNDOING, *undos)
    return Steps(binds=tuple((bind, slot) for slot in bind.slots), undos=tuple((undo, slot) for slot in undo.slots))


@pytest.mark.parametrize(
    ("mode", "pods", "wanted", "allowed"),
    [
        pytest.param(CardMode.STOCK, (), steps(("a", "b")), 2, id="a stock plugin is told nothing: all at once"),
        pytest.param(CardMode.VOLCANO, (), steps(("a", "b")), 1, id="an obeying plugin: one at a time"),
        pytest.param(
            CardMode.VOLCANO, (pod("x", node=NODE, cards=CARD),), steps(("a",)), 0, id="not beside one that allocates"
        ),
        pytest.param(
            CardMode.VOLCANO,
            (pod("x", node=NODE, cards=CARD, annotations={"volcano.sh/gpu-assigned": "true"}),),
            steps(("a",)),
            1,
            id="beside one that has its card",
        ),
        pytest.param(
            CardMode.VOLCANO, (), steps(("a",), ("x",)), 0, id="not while one is taken back that may have been bound"
        ),
    ],
)
def test_one_pod_at_a_time_is_between_binding_and_allocation(mode, pods, wanted, allowed):
    world = World()
    change(world, "node", Node(name=NODE, card_mode=mode), "1")
    for one in pods:
        change(world, "pod", one, "2")
    assert len(may_bind_now(world, wanted)) == allowed


@pytest.mark.parametrize(
    ("shown", "allowed"),
    [
        pytest.param(None, 0, id="is not shown at all"),
        pytest.param({}, 0, id="is shown unbound"),
        pytest.param({"node": NODE, "cards": CARD, "phase": Phase.RUNNING}, 1, id="is shown running"),
    ],
)
def test_no_pod_is_bound_beside_one_whose_entry_a_leader_with_a_later_view_closed_and_that(shown, allowed):
    world = World()
    change(world, "node", Node(name=NODE, card_mode=CardMode.VOLCANO), "1")
    change(world, "pod", Pod(namespace="ns", name="next", uid=PodUid("next")), "2")
    if shown is not None:
        change(world, "pod", Pod(namespace="ns", name="closed", uid=PodUid("closed"), **shown), "2")
    gang = GangKey("ns/g")
    entry = OpenEntry(sequence=Sequence(5), kind=Kind.BIND, gang=gang, gang_uid="g", slots=(), at=0.0)
    wanted, closed = (
        Slot(uid=PodUid(name), pod=name, role=RoleName("w"), node=NODE, cards=CARD) for name in ("next", "closed")
    )
    view = LedgerView(lingering=(Lingering(gang=gang, slots=(closed,), freshness="9"),))
    assert len(may_bind_now(world, Steps(binds=((entry, wanted),)), view)) == allowed


def test_no_pod_is_bound_beside_one_whose_entry_cannot_be_completed_and_is_not_taken_back_yet():
    world = World()
    change(world, "node", Node(name=NODE, card_mode=CardMode.VOLCANO), "1")
    names = ("failing", "next")
    for name in names:
        change(world, "pod", Pod(namespace="ns", name=name, uid=PodUid(name)), "2")
    entries = {
        GangKey(f"ns/{name}"): OpenEntry(
            sequence=Sequence(number),
            kind=Kind.BIND,
            gang=GangKey(f"ns/{name}"),
            gang_uid="g",
            slots=(Slot(uid=PodUid(name), pod=name, role=RoleName("w"), node=NODE, cards=CARD),),
            at=0.0,
        )
        for number, name in enumerate(names, start=5)
    }
    following = entries[GangKey("ns/next")]
    steps = Steps(binds=((following, following.slots[0]),))
    assert may_bind_now(world, steps, LedgerView(open=entries)) == []
    change(
        world, "pod", Pod(namespace="ns", name="failing", uid=PodUid("failing"), node=NODE, phase=Phase.RUNNING), "3"
    )
    assert len(may_bind_now(world, steps, LedgerView(open=entries))) == 1


@pytest.mark.parametrize(
    ("error", "outcome", "away"),
    [
        pytest.param(Invalid("no", status=422), Outcome.REFUSED, False, id="422 is final"),
        pytest.param(Forbidden("no", status=403), Outcome.REFUSED, False, id="403 is final"),
        pytest.param(Unauthorized("who", status=401), Outcome.AGAIN, False, id="401 passes with new credentials"),
        pytest.param(UnexpectedReply("html"), Outcome.AGAIN, False, id="a proxy's page tells nothing"),
        pytest.param(
            Unavailable("x", cause="timeout", unknown_outcome=True), Outcome.AGAIN, True, id="no answer: it is away"
        ),
        pytest.param(TooManyRequests("slow"), Outcome.AGAIN, False, id="throttled is not away"),
    ],
)
def test_what_an_error_means(error, outcome, away):
    result = not_now(error)
    assert (result.outcome, result.away) == (outcome, away)


def test_an_eviction_that_a_budget_forbids_is_asked_for_seldom():
    assert not_now(TooManyRequests("budget", disruption_budget=True)).retry_after == BUDGET_SECONDS


class Quiet:
    """A log that nobody reads."""

    def warning(self, event, **fields):
        pass


@pytest.mark.parametrize(
    ("next_step", "away"),
    [
        pytest.param("nothing", True, id="until something else is heard of it"),
        pytest.param("another answer", False, id="until another action is answered"),
        pytest.param("entry closed", False, id="until its entry is closed, after which nothing would be asked again"),
    ],
)
async def test_deadlines_stand_still_after_an_action_that_was_not_answered(next_step, away):
    actions = Actions(concurrency=1, wake=lambda: None, clock=lambda: 0.0, log=Quiet())
    key, other = (Sequence(5), PodUid("a")), (Sequence(6), PodUid("b"))

    async def act(key, result):
        async def action():
            return result

        actions.start("bind", key, action)
        while actions.running(key):
            await asyncio.sleep(0)

    await act(key, Result(outcome=Outcome.AGAIN, retry_after=1.0, away=True))
    assert actions.away
    match next_step:
        case "another answer":
            await act(other, Result(outcome=Outcome.DONE))
        case "entry closed":
            actions.keep_only(frozenset({other[0]}))
        case _:
            actions.keep_only(frozenset({key[0]}))
    assert actions.away is away
