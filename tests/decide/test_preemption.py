import msgspec
import pytest

from muster.decide.memory import CoreMemory, nominated
from muster.decide.preemption import propose
from muster.model.gangs import MemberState
from muster.model.nodes import Cordoned
from muster.model.policy import Actions, Fairness, Policy
from tests.decide.build import CARD, gang, node, placed, queue, reasons, role, run, snapshot, standing, whole

ACT = Policy(actions=Actions(preempt="act", reclaim="act", consolidate="act"), fairness=Fairness(stability=0.0))


def holder(name="low", *, on="n1", cards=(0,), priority=0, minimum=None, namespace_="ns", **more):
    """A running job with one pod of one card for each index."""
    members = [standing(f"{name}-{i}", on, cards=whole(i)) for i in cards]
    one = gang(
        name,
        role(count=0, gpus=1),
        minimum=len(cards) if minimum is None else minimum,
        priority=priority,
        members=members,
        **more,
    )
    return msgspec.structs.replace(one, namespace=namespace_)


def victims(proposal):
    return sorted(uid for _, uid in proposal.plan.victims) if proposal.plan else None


def plan_of(*gangs, nodes=None, queues=None, policy=ACT, memory=None):
    return propose(snapshot(nodes or [node(gpus=2)], gangs, queues), memory or CoreMemory(), 0.0, policy)


WANT = gang("want", role(gpus=2), priority=9)


@pytest.mark.parametrize(
    ("gangs", "expected"),
    [
        pytest.param([holder(), WANT], ["low-0"], id="one free card and one victim are enough"),
        pytest.param([holder(cards=(0, 1)), WANT], ["low-0", "low-1"], id="a gang ends whole"),
        pytest.param([holder(priority=9), WANT], None, id="equal priority stays"),
        pytest.param([holder(preemptible=False), WANT], None, id="a protected job stays"),
        pytest.param([holder(namespace_="kube-system"), WANT], None, id="kube-system stays"),
        pytest.param([holder(), msgspec.structs.replace(WANT, never_preempts=True)], None, id="policy Never evicts nobody"),
        pytest.param([holder(), gang("want", role(gpus=3), priority=9)], None, id="nothing for a gang that fits no node"),
        pytest.param([holder(), gang("want", role(gpus=1), priority=9)], None, id="nothing when it fits as it is"),
        pytest.param(
            [holder(cards=(0, 1), minimum=1), gang("want", role(gpus=1), priority=9)], ["low-1"], id="a surplus pod goes, the job stays"
        ),
        pytest.param([holder("a", priority=2), holder("b", cards=(1,)), gang("want", role(gpus=1), priority=9)], ["b-1"],
            id="the lower priority goes"),
    ],
)  # fmt: skip
def test_who_leaves_inside_a_queue(gangs, expected):
    assert victims(plan_of(*gangs)) == expected


QUEUES = [queue("q", deserved={"gpu": CARD}), queue("p", deserved={"gpu": CARD})]


@pytest.mark.parametrize(
    ("gangs", "queues", "expected"),
    [
        pytest.param(
            [holder("a"), holder("b", cards=(1,), priority=1)], QUEUES, ["a-0"], id="the lower of two borrowers"
        ),
        pytest.param(
            [holder("a", cards=(0, 1))], QUEUES, ["a-0", "a-1"], id="a gang that cannot be split falls below its share"
        ),
        pytest.param([holder("a"), holder("b", cards=(1,), queue="p")], QUEUES, None, id="nobody is above a share"),
        pytest.param(
            [holder("a"), holder("b", cards=(1,))],
            [queue("q", deserved={"gpu": CARD}, reclaimable=False), QUEUES[1]],
            None,
            id="a queue that is not reclaimable",
        ),
        pytest.param(
            [holder("a"), holder("b", cards=(1,))],
            [QUEUES[0], queue("p")],
            None,
            id="a reclaimer that deserves nothing",
        ),
        pytest.param(
            [holder("a"), holder("b", cards=(1,))],
            [QUEUES[0], queue("p", parent="top", deserved={"gpu": CARD}), queue("top", deserved={"gpu": 0})],
            None,
            id="a parent without a share",
        ),
        pytest.param(
            [holder("a"), holder("b", cards=(1,))],
            [QUEUES[0], queue("p", parent="top", deserved={"gpu": CARD}), queue("top")],
            ["b-1"],
            id="a parent that names nothing claims what its children do",
        ),
    ],
)
def test_who_leaves_across_queues(gangs, queues, expected):
    proposal = plan_of(*gangs, gang("want", role(gpus=1), queue="p"), queues=queues)
    assert victims(proposal) == expected or (expected == ["b-1"] and victims(proposal) == ["a-0"])
    assert proposal.plan is None or proposal.plan.cause == "reclaim"


def test_an_actor_that_only_observes_proposes_nothing():
    observe = Policy(actions=Actions(preempt="observe", reclaim="observe", consolidate="observe"))
    assert plan_of(holder(), WANT, policy=observe).plan is None


def test_nothing_is_proposed_while_pods_are_leaving_or_a_plan_is_open():
    leaving = holder()
    gone = tuple(msgspec.structs.replace(m, state=MemberState.LEAVING) for m in leaving.members)
    assert plan_of(msgspec.structs.replace(leaving, members=gone), WANT).plan is None
    first = plan_of(holder(), WANT)
    assert plan_of(holder(), WANT, memory=nominated(CoreMemory(), first.nominations)).plan is None


def test_victims_stand_on_ready_nodes_only():
    assert plan_of(holder(), WANT, nodes=[node(gpus=2, ready=False), node("n2", gpus=1)]).plan is None


def test_freed_room_is_held_for_the_gang_and_given_to_nobody_else():
    low, other = holder(), gang("other", role(gpus=1), order=1, queue="p")
    queues = [queue(), queue("p")]
    first = plan_of(low, WANT, queues=queues)
    assert victims(first) == ["low-0"]
    memory = nominated(CoreMemory(), first.nominations)
    leaving = msgspec.structs.replace(
        low, members=tuple(msgspec.structs.replace(m, state=MemberState.LEAVING) for m in low.members)
    )
    nodes = [node(gpus=2)]
    during = run(snapshot(nodes, [leaving, WANT, other], queues), memory=memory)
    assert placed(during) == {}, "the idle card is part of the plan"
    assert reasons(during)["want"].code == "FREEING"
    gone = snapshot(nodes, [WANT, other], queues)
    after = run(gone, memory=during.memory)
    assert placed(after) == {"want": ["n1", "n1"][:1]}
    assert after.memory.nominations == ()


@pytest.mark.parametrize("state", [MemberState.SUCCEEDED, MemberState.FAILED])
def test_victims_that_ended_by_themselves_hold_nothing_any_more(state):
    low = holder()
    memory = nominated(CoreMemory(), plan_of(low, WANT).nominations)
    ended = msgspec.structs.replace(low, members=tuple(msgspec.structs.replace(m, state=state) for m in low.members))
    after = run(snapshot([node(gpus=2)], [ended, WANT]), memory=memory)
    assert placed(after) == {"want": ["n1"]}


def test_a_nomination_ends_when_its_gang_is_gone():
    memory = nominated(CoreMemory(), plan_of(holder(), WANT).nominations)
    decision = run(snapshot([node(gpus=2)], [gang("other", role(gpus=2))]), memory=memory)
    assert placed(decision) == {"other": ["n1"]}
    assert decision.memory.nominations == ()


def test_jobs_move_to_make_a_whole_node_only_when_each_is_placed_again():
    nodes = [node("n1", gpus=2), node("n2", gpus=2)]
    want = gang("want", role(gpus=2))
    proposal = plan_of(holder("a"), holder("b", on="n2"), want, nodes=nodes)
    assert proposal.plan.cause == "consolidate"
    assert len(proposal.plan.victims) == 1
    assert {one.gang for one in proposal.nominations} == {"ns/want", proposal.plan.victims[0][0]}
    full = plan_of(holder("a"), holder("b", on="n2", cards=(0, 1)), want, nodes=nodes)
    assert full.plan is None
    protected = plan_of(holder("a", preemptible=False), holder("b", on="n2", preemptible=False), want, nodes=nodes)
    assert protected.plan is None


@pytest.mark.parametrize(
    ("withheld", "expected"),
    [
        pytest.param("", ["low-0"], id="a node that somebody cordoned helps nobody"),
        pytest.param("is cordoned: it was idle", None, id="an idle node of ours comes back instead"),
    ],
)
def test_nobody_leaves_for_a_gang_that_an_idle_node_will_serve(withheld, expected):
    away = msgspec.structs.replace(
        node("n2", gpus=2),
        unschedulable=True,
        cordoned=Cordoned(owner="muster") if withheld else None,
        withheld=withheld,
    )
    assert victims(plan_of(holder(), WANT, nodes=[node(gpus=2), away])) == expected


def test_a_gang_that_was_not_served_in_time_is_not_put_off_any_more():
    away = msgspec.structs.replace(
        node("n2", gpus=2), unschedulable=True, cordoned=Cordoned(owner="muster"), withheld="is cordoned: it was idle"
    )
    state = snapshot([node(gpus=2), away], [holder(), msgspec.structs.replace(WANT, submitted=1000.0)], None)
    assert propose(state, CoreMemory(), 1060.0, ACT).plan is None
    assert victims(propose(state, CoreMemory(), 1121.0, ACT)) == ["low-0"]
