"""How the leader judges proposals, which plans it takes back, and what it says of them."""

import asyncio

import msgspec
import pytest

from muster.bus.proposals import PlanProposal, WithdrawProposal
from muster.bus.state import Change
from muster.decide.commitments import Kind, LedgerView, OpenEntry, nominations
from muster.decide.memory import CoreMemory
from muster.decide.pauses import CORE as PAUSES
from muster.decide.pauses import value_of
from muster.decide.reasons import Reason
from muster.decide.scheduling import decide
from muster.model.instructions import Place, Slot
from muster.model.ledger import Nominated, Plan, Victim, Withdrawing
from muster.model.nodes import Card, CardMode, Node
from muster.model.pauses import Pause
from muster.model.pods import CardUse, Owner, Phase, Pod, Request, Shape
from muster.model.policy import Actions, Policy, Timeouts
from muster.model.units import CardCount, CardIndex, GangKey, MiB, NodeName, PodUid, QueueName, RoleName, Sequence
from muster.model.workloads import PodGroup, Queue
from muster.scheduler.audit import decisions_of
from muster.scheduler.committing import Committing, Upset
from muster.scheduler.judging import Standpoint, refusal
from muster.scheduler.proposals import Asked, Proposals
from muster.scheduler.releases import Releases
from muster.scheduler.withdrawals import Withdrawals
from muster.view.keeping import Keeping
from muster.view.world import World

SMALL, LARGE, OTHER = GangKey("ns/small"), GangKey("ns/large"), GangKey("ns/other")
POLICY = Policy(actions=Actions(reclaim="act", consolidate="observe"), timeouts=Timeouts(start=60.0))
NOW, GRACE = 1000.0, 30.0


def pod(name: str, gang: GangKey, node: str | None = None, card: int = 0, **fields: object) -> Pod:
    cards = (CardUse(index=CardIndex(card), whole=True),) if node is not None else ()
    return Pod(
        namespace="ns",
        name=name,
        uid=PodUid(f"u-{name}"),
        scheduler_name="muster",
        gang=gang,
        role=RoleName("w"),
        shape=Shape(request=Request(cards=CardCount(1))),
        owner=Owner(api_version="v1", kind="Job", name="j", uid="j"),
        node=NodeName(node) if node is not None else None,
        cards=cards,
        **fields,
    )


class Reporter:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.refused_for: list[tuple[str, str]] = []
        self.defects: list[Exception] = []

    def refused(self, gang, code, message, numbers):
        self.refused_for.append((code, message))

    def failed(self, what, error):
        self.defects.append(error)


class Stage:
    """Two nodes of two cards: `small` stands on n1, one pod of `other` on n2, and `large` waits for two cards of one node."""

    def __init__(self) -> None:
        self.world = World()
        self.version = 0
        self.view = LedgerView(sequence=Sequence(5), leader=Sequence(1))
        self.reporter = Reporter()
        for name in ("n1", "n2"):
            cards = tuple(Card(index=CardIndex(index), memory_mib=MiB(1000)) for index in range(2))
            self.put(
                "node",
                name,
                Node(
                    name=NodeName(name), uid=f"{name}-uid", cards=cards, allocatable_cards=2, card_mode=CardMode.STOCK
                ),
            )
        self.put("queue", "q", Queue(name=QueueName("q")))
        for key, minimum in ((SMALL, 2), (LARGE, 2), (OTHER, 1)):
            self.group(key, minimum)
        for one in (
            *(pod(f"s{number}", SMALL, "n1", number, phase=Phase.RUNNING) for number in range(2)),
            *(pod(f"l{number}", LARGE, priority=10) for number in range(2)),
            pod("o0", OTHER, "n2", 0, phase=Phase.RUNNING),
        ):
            self.put("pod", one.key, one)
        self.keeping = Keeping(world=self.world, policy=POLICY)

    def group(self, key: GangKey, minimum: int) -> None:
        name = key.partition("/")[2]
        group = PodGroup(namespace="ns", name=name, uid=f"{name}-uid", min_member=minimum, queue=QueueName("q"))
        self.put("podgroup", key, group)

    def put(self, kind: str, key: str, value: object) -> None:
        self.version += 1
        version = str(self.version)
        if kind == "pod" and value is not None:
            value = msgspec.structs.replace(value, resource_version=version)
        change = Change(kind=kind, key=key, object=value, resource_version=version, sequence=Sequence(self.version))
        self.world.apply(change)

    def change(self, name: str, **fields: object) -> None:
        self.put("pod", f"ns/{name}", msgspec.structs.replace(self.world.pods[f"ns/{name}"], **fields))

    def open(self, *entries: OpenEntry) -> None:
        self.view = msgspec.structs.replace(
            self.view, open={**self.view.open, **{entry.gang: entry for entry in entries}}
        )

    async def judge(self, proposal, *, core=refusal, ready=True, policy=POLICY):
        """The entry, or the reply that refused it."""

        async def off_the_loop(at, plan):
            await asyncio.sleep(0)
            return core(at, plan)

        proposals = Proposals(world=self.world, reporter=self.reporter, refusal=off_the_loop, wake=lambda: None)
        asked = Asked(proposal)
        at = Standpoint(
            view=self.view,
            snapshot=self.keeping.snapshot(self.view),
            memory=msgspec.structs.replace(CoreMemory(), nominations=nominations(self.view)),
            policy=policy,
            now=NOW,
            freshness=str(self.version),
            ready=ready,
        )
        entries = await proposals.judge(asked, at)
        if entries:
            (entry,) = entries
            return entry
        return await asked.reply

    def due(self, *, lasted: float = 0.0, wall: float = NOW):
        """The withdrawings after things have been as they are for so many active seconds."""
        withdrawals = Withdrawals(world=self.world, timeouts=POLICY.timeouts)
        self.keeping.snapshot(self.view)
        for now in (0.0, lasted):
            due = tuple(
                withdrawals.due(
                    self.keeping.join,
                    self.view,
                    freshness=str(self.version),
                    complete=str(self.version),
                    now=now,
                    wall=wall,
                )
            )
        return due


def slot(name: str, node: str, card: int) -> Slot:
    use = (CardUse(index=CardIndex(card), whole=True),)
    return Slot(uid=PodUid(f"u-{name}"), pod=name, role=RoleName("w"), node=NodeName(node), cards=use)


def victim(name: str, gang: GangKey = SMALL, node: str = "n1") -> Victim:
    return Victim(gang=gang, uid=PodUid(f"u-{name}"), pod=name, node=NodeName(node), evict_after=NOW + GRACE)


ROOM = Nominated(gang=LARGE, gang_uid="large-uid", slots=(slot("l0", "n1", 0), slot("l1", "n1", 1)))
PLAN = Plan(
    gang=LARGE,
    gang_uid="large-uid",
    cause="preempt",
    victims=(victim("s0"), victim("s1")),
    nominated=(ROOM,),
    message="small has a lower priority",
)


def changed(**fields: object) -> PlanProposal:
    return PlanProposal(plan=msgspec.structs.replace(PLAN, **fields), ledger=5)


def opened(gang: GangKey, kind: Kind, **fields: object) -> OpenEntry:
    fields = {"slots": (), "sequence": Sequence(5), **fields}
    return OpenEntry(kind=kind, gang=gang, gang_uid=f"{gang.partition('/')[2]}-uid", at=NOW, **fields)


OPEN_PLAN = opened(LARGE, Kind.PLAN, victims=PLAN.victims, nominated=PLAN.nominated, cause="preempt")


async def test_a_sound_plan_is_committed_with_what_the_leader_knows_of_its_room():
    stage = Stage()
    entry = await stage.judge(changed())
    assert isinstance(entry, Plan)
    assert (entry.decided_at, entry.freshness, entry.victims) == (NOW, str(stage.version), PLAN.victims)
    assert {(one.node_uid, one.request.cards) for one in entry.nominated[0].slots} == {("n1-uid", 1)}


def bound_elsewhere(stage):
    stage.change("s1", node=NodeName("n2"))


def gone(stage):
    stage.put("pod", "ns/s1", None)


def leaving(stage):
    stage.change("s1", terminating=True)


def named_by_an_undoing(stage):
    stage.open(opened(SMALL, Kind.UNDOING, slots=(slot("s1", "n1", 1),)))


def victim_of_another_plan(stage):
    stage.open(opened(OTHER, Kind.PLAN, victims=(victim("s1"),), sequence=Sequence(4)))


def victim_of_a_plan_that_is_withdrawn(stage):
    stage.open(opened(OTHER, Kind.WITHDRAWING, victims=(victim("s1"),), sequence=Sequence(4), plan=Sequence(3)))


def has_a_plan(stage):
    stage.open(OPEN_PLAN)


def is_being_bound(stage):
    stage.open(opened(LARGE, Kind.BIND, slots=(slot("l0", "n2", 1),)))


def is_bound(stage):
    stage.change("l0", node=NodeName("n2"))


def another_group(stage):
    stage.put("podgroup", LARGE, msgspec.structs.replace(stage.world.podgroups[LARGE], uid="another"))


def node_made_anew(stage):
    stage.put("node", "n1", msgspec.structs.replace(stage.world.nodes["n1"], uid="another"))


def card_used_by_another(stage):
    stage.put("pod", "ns/x", pod("x", OTHER, "n1", 1, phase=Phase.RUNNING))
    stage.change("s1", cards=())


def as_it_is(stage):
    pass


@pytest.mark.parametrize(
    ("prepare", "proposal", "code", "says"),
    [
        pytest.param(bound_elsewhere, changed(), "stale", "does not stand on n1", id="a victim stands elsewhere"),
        pytest.param(gone, changed(), "stale", "does not stand on n1", id="a victim is gone"),
        pytest.param(leaving, changed(), "stale", "does not stand on n1", id="a victim leaves already"),
        pytest.param(named_by_an_undoing, changed(), "open", "another open entry", id="a victim is being taken back"),
        pytest.param(victim_of_another_plan, changed(), "open", "another open entry", id="a victim of another plan"),
        pytest.param(
            victim_of_a_plan_that_is_withdrawn, changed(), "open", "another open entry", id="of one being withdrawn"
        ),
        pytest.param(has_a_plan, changed(), "open", "open entry: plan", id="the gang has a plan already"),
        pytest.param(is_being_bound, changed(), "open", "open entry: bind", id="the gang is being bound"),
        pytest.param(is_bound, changed(), "stale", "do not all wait", id="a pod of the gang does not wait any more"),
        pytest.param(another_group, changed(), "stale", "not here as the plan names it", id="another gang of the name"),
        pytest.param(
            node_made_anew,
            changed(
                nominated=(
                    msgspec.structs.replace(
                        ROOM, slots=tuple(msgspec.structs.replace(one, node_uid="n1-uid") for one in ROOM.slots)
                    ),
                )
            ),
            "stale",
            "node n1 is not here",
            id="another node of the name",
        ),
        pytest.param(card_used_by_another, changed(), "unsound", "does not fit", id="the room is not freed"),
        pytest.param(as_it_is, changed(victims=(victim("s0"),)), "unsound", "below its minimum", id="too few leave"),
        pytest.param(as_it_is, changed(victims=(victim("s0", LARGE),)), "unsound", "for itself", id="one of its own"),
        pytest.param(as_it_is, changed(victims=()), "unsound", "has victims", id="nobody leaves"),
        pytest.param(
            as_it_is, changed(victims=(victim("s0"), victim("s0"))), "unsound", "twice", id="a victim is named twice"
        ),
        pytest.param(
            as_it_is, changed(victims=(victim("s0", OTHER), victim("s1"))), "stale", "of ns/small", id="of another gang"
        ),
        pytest.param(
            as_it_is,
            changed(nominated=(msgspec.structs.replace(ROOM, gang=OTHER),)),
            "unsound",
            "for its gang first",
            id="no room for the gang itself",
        ),
        pytest.param(as_it_is, changed(cause="consolidate"), "observe", "consolidate", id="the policy only observes"),
        pytest.param(as_it_is, changed(cause="whim"), "unsound", "'whim' is not known", id="a cause that is none"),
        pytest.param(
            as_it_is, msgspec.structs.replace(changed(), ledger=6), "stale", "this view is at 5", id="from the future"
        ),
    ],
)
async def test_a_plan_is_refused(prepare, proposal, code, says):
    stage = Stage()
    prepare(stage)
    reply = await stage.judge(proposal)
    assert (reply.committed, reply.code) == (False, code), reply
    assert says in reply.message
    assert stage.reporter.refused_for == [(code, reply.message)]
    assert not stage.reporter.defects


@pytest.mark.parametrize(
    ("more", "code"),
    [
        pytest.param({"ready": False}, "stale", id="STATE is not current"),
        pytest.param(
            {"policy": msgspec.structs.replace(POLICY, actions=Actions(bind="observe"))},
            "observe",
            id="a scheduler that binds anything",
        ),
        pytest.param({"core": lambda at, plan: "below its share"}, "unsound", id="the core says no"),
        pytest.param({"core": lambda at, plan: 1 / 0}, "unsound", id="the core fails"),
    ],
)
async def test_a_plan_is_refused_for_want_of(more, code):
    stage = Stage()
    reply = await stage.judge(changed(), **more)
    assert (reply.committed, reply.code) == (False, code)
    assert bool(stage.reporter.defects) is ("core" in more and not stage.reporter.refused_for)


@pytest.mark.parametrize(
    ("pause", "refused"),
    [
        pytest.param(Pause(act="evict"), True, id="everywhere"),
        pytest.param(Pause(act="evict", queue=QueueName("q")), True, id="in the victims' queue"),
        pytest.param(Pause(act="evict", queue=QueueName("root")), True, id="in a queue above theirs"),
        pytest.param(Pause(act="evict", queue=QueueName("another")), False, id="in another queue only"),
        pytest.param(Pause(act="cordon"), False, id="for cordons only"),
    ],
)
async def test_no_plan_is_committed_where_evictions_are_paused(pause, refused):
    stage = Stage()
    stage.put("queue", "root", Queue(name=QueueName("root")))
    stage.put("queue", "q", Queue(name=QueueName("q"), parent=QueueName("root")))
    stage.view = msgspec.structs.replace(stage.view, memory={PAUSES: value_of([pause])})
    answer = await stage.judge(changed())
    assert isinstance(answer, Plan) is not refused, answer
    assert not refused or (answer.code, "is paused" in answer.message) == ("paused", True)


async def test_a_victim_that_left_while_the_core_judged_makes_the_plan_stale():
    stage = Stage()

    def meanwhile(at, plan):
        gone(stage)
        return ""

    assert (await stage.judge(changed(), core=meanwhile)).code == "stale"


async def test_a_plan_beside_another_open_plan_is_judged_with_the_room_that_the_other_nominates():
    stage = Stage()
    third = GangKey("ns/third")
    stage.group(third, 1)
    stage.put("pod", "ns/t0", pod("t0", third, priority=10))
    room = Nominated(gang=third, gang_uid="third-uid", slots=(slot("t0", "n2", 1),))
    leaving = (victim("o0", OTHER, "n2"),)
    stage.open(opened(third, Kind.PLAN, sequence=Sequence(4), victims=leaving, nominated=(room,)))
    for card in (0, 1):
        both = msgspec.structs.replace(ROOM, slots=(slot("l0", "n1", 0), slot("l1", "n2", card)))
        assert (await stage.judge(changed(nominated=(both,)))).code == "unsound"
    assert isinstance(await stage.judge(changed()), Plan)


async def test_room_of_a_gang_that_moves_is_completed_as_well():
    stage = Stage()
    again = Nominated(gang=OTHER, gang_uid="other-uid", slots=(slot("o0", "n2", 1),))
    policy = msgspec.structs.replace(POLICY, actions=Actions(consolidate="act"))
    moves = changed(cause="consolidate", victims=(victim("o0", OTHER, "n2"),), nominated=(ROOM, again))
    entry = await stage.judge(moves, policy=policy, core=lambda at, plan: "")
    assert [one.node_uid for room in entry.nominated for one in room.slots] == ["n1-uid", "n1-uid", "n2-uid"]


async def test_no_gang_has_room_nominated_by_two_plans():
    stage = Stage()
    room = Nominated(gang=LARGE, gang_uid="large-uid", slots=(slot("l0", "n2", 1),))
    stage.open(opened(OTHER, Kind.PLAN, sequence=Sequence(4), victims=(victim("x"),), nominated=(room,)))
    reply = await stage.judge(changed(), core=lambda at, plan: "")
    assert (reply.code, reply.message) == ("open", "ns/large has room nominated by another plan")


async def test_an_open_plan_is_withdrawn_when_that_is_proposed_and_only_once():
    stage = Stage()
    stage.open(OPEN_PLAN)
    asked = WithdrawProposal(gang=LARGE, plan=5, reason="UNSOUND", message="it fits without")
    entry = await stage.judge(asked)
    assert entry == Withdrawing(
        gang=LARGE, plan=Sequence(5), reason="UNSOUND", message="it fits without", freshness=str(stage.version)
    )
    assert (await stage.judge(msgspec.structs.replace(asked, plan=4))).code == "stale"
    stage.open(opened(LARGE, Kind.WITHDRAWING, sequence=Sequence(7), plan=Sequence(5), victims=PLAN.victims))
    reply = await stage.judge(asked)
    assert (reply.committed, reply.sequence) == (True, 7)


async def test_a_proposal_that_no_round_takes_is_refused_in_time():
    proposals = Proposals(world=World(), reporter=Reporter(), refusal=None, wake=lambda: None, wait=0.01)
    reply = await proposals.propose(changed())
    assert (reply.code, proposals.waiting) == ("stale", 0)


async def test_proposals_that_wait_at_the_end_of_a_leadership_are_refused():
    proposals = Proposals(world=World(), reporter=Reporter(), refusal=None, wake=lambda: None)
    asked = asyncio.create_task(proposals.propose(changed()))
    await asyncio.sleep(0)
    proposals.close()
    assert (await asked).code == "stale"


async def test_an_asker_is_answered_when_the_leadership_ends_while_its_proposal_is_judged():
    asked = Asked(changed())
    with pytest.raises(RuntimeError), asked:
        raise RuntimeError
    assert not (await asked.reply).committed


# --- taken back by the leader ----------------------------------------------------------------------------------------


def group_gone(stage):
    stage.put("podgroup", LARGE, None)
    for number in range(2):
        stage.put("pod", f"ns/l{number}", None)


def gang_bound_by_hand(stage):
    for number in range(2):
        stage.change(f"l{number}", node=NodeName("n2"), phase=Phase.RUNNING)


def node_gone(stage):
    stage.put("node", "n1", None)


def podgroup_gone(stage):
    stage.put("podgroup", LARGE, None)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        pytest.param(as_it_is, "", id="nothing has changed: it stands"),
        pytest.param(group_gone, "GANG_GONE", id="the gang is gone"),
        pytest.param(another_group, "GANG_GONE", id="the gang is another one of the same name"),
        pytest.param(podgroup_gone, "GANG_GONE", id="the gang has lost its PodGroup"),
        pytest.param(gang_bound_by_hand, "GANG_SERVED", id="the gang was bound by somebody"),
        pytest.param(node_gone, "NODE_GONE", id="a node of its room is gone"),
        pytest.param(node_made_anew, "NODE_GONE", id="a node of its room is another one of the same name"),
        pytest.param(gone, "", id="a victim is gone: that is what it is for"),
    ],
)
def test_a_plan_that_leads_nowhere_is_taken_back(prepare, reason):
    stage = Stage()
    slots = tuple(msgspec.structs.replace(one, node_uid="n1-uid") for one in ROOM.slots)
    room = (msgspec.structs.replace(ROOM, slots=slots),)
    stage.open(msgspec.structs.replace(OPEN_PLAN, nominated=room))
    prepare(stage)
    assert [one.reason for one in stage.due()] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("prepare", "lasted", "wall", "reason"),
    [
        pytest.param((), 61.0, NOW + GRACE + 1, "VICTIMS_STAY", id="nobody leaves long after the grace"),
        pytest.param((), 61.0, NOW + GRACE - 1, "", id="their grace is not over"),
        pytest.param((), 59.0, NOW + GRACE + 1, "", id="they have some time left"),
        pytest.param((gone,), 61.0, NOW + GRACE + 1, "VICTIMS_STAY", id="one of two does not leave"),
        pytest.param(("s0 leaves", leaving), 61.0, NOW + GRACE + 1, "", id="all of them are leaving, slowly"),
        pytest.param(("all gone",), 61.0, NOW + GRACE + 1, "ROOM_NOT_USED", id="all are gone, and it is not placed"),
        pytest.param(("all gone",), 59.0, NOW + GRACE + 1, "", id="all are gone, and it will be placed"),
    ],
)
def test_a_plan_that_does_not_come_to_its_end(prepare, lasted, wall, reason):
    stage = Stage()
    stage.open(OPEN_PLAN)
    for step in prepare:
        match step:
            case "s0 leaves":
                stage.change("s0", terminating=True)
            case "all gone":
                stage.put("pod", "ns/s0", None)
                gone(stage)
            case change:
                change(stage)
    assert [one.reason for one in stage.due(lasted=lasted, wall=wall)] == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("act", "queue", "gone_already", "costs"),
    [
        pytest.param("bind", "", True, False, id="nothing may be started: its free room waits for it"),
        pytest.param("bind", "another", True, True, id="only elsewhere: its free room is not used"),
        pytest.param("evict", "", False, False, id="nobody may be evicted: its victims stay without blame"),
        pytest.param("bind", "", False, True, id="victims stay although only starting is paused"),
    ],
)
def test_a_pause_costs_no_plan(act, queue, gone_already, costs):
    stage = Stage()
    stage.open(OPEN_PLAN)
    if gone_already:
        stage.put("pod", "ns/s0", None)
        gone(stage)
    pause = Pause(act=act, queue=QueueName(queue))
    stage.view = msgspec.structs.replace(stage.view, memory={PAUSES: value_of([pause])})
    assert bool(stage.due(lasted=61.0, wall=NOW + GRACE + 1)) is costs


def test_a_view_older_than_the_plan_takes_nothing_back():
    stage = Stage()
    stage.open(msgspec.structs.replace(OPEN_PLAN, freshness=str(stage.version + 5)))
    stage.put("podgroup", LARGE, None)
    assert stage.due() == ()


# --- gangs of victims ------------------------------------------------------------------------------------------------


def holds_of(stage) -> dict[str, str]:
    return {gang.key: gang.hold for gang in stage.keeping.snapshot(stage.view).gangs}


def test_a_gang_is_held_while_a_victim_of_it_stands_and_no_longer():
    stage = Stage()
    stage.put("pod", "ns/s2", pod("s2", SMALL))
    assert holds_of(stage)[SMALL] == ""
    stage.open(OPEN_PLAN)
    assert holds_of(stage) == {SMALL: Reason.LEAVING, LARGE: "", OTHER: ""}
    stage.change("s0", terminating=True)
    assert holds_of(stage)[SMALL] == "LEAVING"
    stage.put("pod", "ns/s0", None)
    stage.change("s1", phase=Phase.FAILED)
    assert holds_of(stage)[SMALL] == ""
    stage.change("s1", phase=Phase.RUNNING)
    assert holds_of(stage)[SMALL] == "LEAVING"
    stage.view = msgspec.structs.replace(stage.view, open={})
    assert holds_of(stage)[SMALL] == ""


def test_a_gang_whose_plan_is_being_withdrawn_is_held():
    stage = Stage()
    stage.open(opened(LARGE, Kind.WITHDRAWING, victims=PLAN.victims, plan=Sequence(4), reason="UNSOUND"))
    assert holds_of(stage)[LARGE] == "BINDING"


def test_a_broken_gang_is_not_released_while_a_plan_evicts_its_pods():
    stage = Stage()
    releases = Releases(world=stage.world, timeouts=POLICY.timeouts)
    stage.put("pod", "ns/s0", None)

    def due(now):
        stage.keeping.snapshot(stage.view)
        return [one.reason for one in releases.due(stage.keeping.join, stage.view, freshness="1", now=now)]

    stage.open(OPEN_PLAN)
    assert due(0.0) == due(61.0) == []
    stage.view = msgspec.structs.replace(stage.view, open={})
    assert due(62.0) == ["GANG_INCOMPLETE"]


def test_a_place_of_a_pod_that_a_plan_evicts_does_not_hold():
    stage = Stage()
    committing = Committing(
        world=stage.world, book=None, reporter=None, timeouts=POLICY.timeouts, clock=lambda: 0.0, wall=lambda: NOW
    )
    place = Place(gang=LARGE, gang_uid="large-uid", slots=(slot("l0", "n2", 1),))
    stage.world.take_news()
    assert committing.still_holds(place, Upset(stage.world.take_news(), stage.view))
    stage.open(opened(OTHER, Kind.PLAN, victims=(victim("l0", LARGE, "n2"),)))
    assert not committing.still_holds(place, Upset(stage.world.take_news(), stage.view))


def test_the_core_gives_the_room_that_a_plan_frees_to_its_gang_alone():
    stage = Stage()
    stage.open(OPEN_PLAN)
    for name in ("third", "fourth"):
        stage.group(GangKey(f"ns/{name}"), 1)
        stage.put("pod", f"ns/{name}0", pod(f"{name}0", GangKey(f"ns/{name}"), priority=100))

    def placed() -> dict[str, set[str]]:
        memory = msgspec.structs.replace(CoreMemory(), nominations=nominations(stage.view))
        decision = decide(stage.keeping.snapshot(stage.view), memory, NOW, POLICY)
        places = [one for one in decision.instructions if isinstance(one, Place)]
        return {one.gang: {slot.node for slot in one.slots} for one in places}

    ((other, nodes),) = placed().items()
    assert (other in {"ns/third", "ns/fourth"}, nodes) == (True, {"n2"})
    stage.change(f"{other[3:]}0", node=NodeName("n2"), cards=slot("x", "n2", 1).cards, phase=Phase.RUNNING)
    stage.put("pod", "ns/s0", None)
    assert placed() == {}
    stage.put("pod", "ns/s1", None)
    assert placed() == {LARGE: {"n1"}}


# --- what is said ----------------------------------------------------------------------------------------------------


def test_a_plan_is_told_to_each_gang_that_it_concerns():
    again = Nominated(gang=OTHER, gang_uid="other-uid", slots=(slot("o0", "n2", 1),))
    entry = msgspec.structs.replace(PLAN, victims=(*PLAN.victims, victim("o0", OTHER, "n2")), nominated=(ROOM, again))
    told = {one.verb: one for one in decisions_of(entry, sequence=Sequence(9), epoch=Sequence(1), at=NOW)}
    assert {verb: one.gang for verb, one in told.items()} == {"nominate": LARGE, "preempt": SMALL, "move": OTHER}
    assert told["nominate"].numbers == {"pods": 2, "victims": 3, "victim_gangs": 2, "grace_seconds": GRACE}
    assert told["preempt"].numbers == {"pods": 2, "for": LARGE, "grace_seconds": GRACE}
    assert told["preempt"].message == "2 pods of it leave for ns/large: small has a lower priority"
    assert told["move"].slots == again.slots
    assert {one.code for one in told.values()} == {"preempt"}


def test_a_withdrawing_is_told_to_the_gang_that_was_to_get_room():
    entry = Withdrawing(gang=LARGE, plan=Sequence(5), reason="VICTIMS_STAY", message="1 pod did not leave")
    (told,) = decisions_of(entry, sequence=Sequence(9), epoch=Sequence(1), at=NOW)
    assert (told.verb, told.gang, told.code) == ("undo", LARGE, "VICTIMS_STAY")
    assert "1 pod did not leave" in told.message
