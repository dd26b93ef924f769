"""The join of STATE's projections into gangs."""

import msgspec

from muster.decide.explaining.fixes import fixes_of
from muster.decide.gangs import build_snapshot
from muster.model.gangs import MemberState
from muster.model.pods import Phase, Pod, Request, Shape, Share, TopologyWish
from muster.model.policy import Policy
from muster.model.snapshot import Hold
from muster.model.workloads import Namespace, PodGroup, PriorityClass, SubGroup
from tests.decide.build import node, placed, queue, reasons, request, run, whole

SHAPE = Shape(request=request(gpus=1))


def pod(name, *, group="ns/g", role="w", scheduler="muster", shape=SHAPE, **more):
    return Pod(
        namespace="ns", name=name, uid=f"u-{name}", scheduler_name=scheduler, gang=group, role=role, shape=shape, **more
    )


def group(name="g", minimum=2, **more):
    more.setdefault("queue", "q")
    return PodGroup(namespace="ns", name=name, uid=f"uid-{name}", min_member=minimum, **more)


def build(pods, groups=(), *, holds=(), classes=(), namespaces=(), nodes=None):
    return build_snapshot(nodes or [node(gpus=8)], pods, groups, [queue()], [], classes, namespaces, holds, Policy())


def gangs(state):
    return {one.key.partition("/")[2]: one for one in state.gangs}


def states(state, name="g"):
    return {member.name: member.state.value for member in gangs(state)[name].members}


def test_pods_of_one_podgroup_are_a_gang_with_roles_minimums_queue_and_topology():
    wish = TopologyWish(required_tier=1)
    one = group(
        minimum=3,
        min_task_member={"ps": 1},
        topology=wish,
        sub_groups=(SubGroup(name="ps", topology=TopologyWish(required_level="rack")),),
    )
    labels = dict.fromkeys(Policy().topology_levels, "one")
    state = build([pod("a"), pod("b"), pod("c", role="ps")], [one], nodes=[node(gpus=8, labels=labels)])
    found = gangs(state)["g"]
    assert (found.minimum, found.queue, found.topology) == (3, "q", wish)
    assert [(r.name, r.minimum, r.replicas, r.topology.required_level) for r in found.roles] == [
        ("ps", 1, 1, "rack"),
        ("w", 0, 2, ""),
    ]
    assert placed(run(state)) == {"g": ["n1", "n1", "n1"]}


def test_where_a_pod_stands_is_read_from_state_and_the_open_entries():
    pods = [
        pod("waits"),
        pod("gated", gated=True),
        pod("bound", node="n1"),
        pod("leaving", node="n1", terminating=True),
        pod("done", node="n1", phase=Phase.SUCCEEDED),
        pod("broke", node="n1", phase=Phase.FAILED),
        pod("assumed"),
    ]
    hold = Hold(gang="ns/g", uid="u-assumed", node="n1", request=SHAPE.request, cards=whole(3))
    state = build(pods, [group()], holds=[hold])
    assert states(state) == {
        "waits": "waiting", "gated": "gated", "bound": "bound", "leaving": "leaving", "done": "succeeded",
        "broke": "failed", "assumed": "assumed",
    }  # fmt: skip
    member = next(m for m in gangs(state)["g"].members if m.name == "assumed")
    assert (member.node, member.cards) == ("n1", whole(3))
    assert state.holds == ()


def test_a_hold_of_a_pod_that_is_gone_or_stands_elsewhere_stays_a_hold():
    holds = [
        Hold(gang="ns/g", uid="u-gone", node="n1", request=SHAPE.request),
        Hold(gang="ns/g", uid="u-moved", node="n1", request=SHAPE.request),
        Hold(gang="ns/g", uid="u-there", node="n1", request=SHAPE.request),
    ]
    state = build([pod("moved", node="n2"), pod("there", node="n1")], [group()], holds=holds)
    assert [hold.uid for hold in state.holds] == ["u-gone", "u-moved"]


def test_pods_whose_podgroup_does_not_exist_wait_and_say_so():
    why = reasons(run(build([pod("a")])))["g"]
    assert why.code == "NO_PODGROUP"
    assert "ns/g" in why.message


def test_a_bare_pod_of_ours_waits_for_its_podgroup_and_holds_room_when_it_is_bound():
    state = build([pod("bare", group=None), pod("old", group=None, node="n1", cards=whole(0))])
    assert reasons(run(state))["bare"].code == "NO_PODGROUP"
    assert [one.key for one in state.occupants] == ["ns/old"]


def test_pods_of_other_schedulers_are_occupants_and_their_nominations_promises():
    pods = [
        pod("other", scheduler="default-scheduler", node="n1", group=None),
        pod("promised", scheduler="default-scheduler", nominated_node="n1", group=None),
        pod("nowhere", scheduler="default-scheduler", group=None),
        pod("ended", scheduler="default-scheduler", node="n1", phase=Phase.SUCCEEDED, group=None),
        pod("alias", scheduler="volcano"),
    ]
    state = build(pods, [group(minimum=1)])
    assert sorted((one.key, one.promised) for one in state.occupants) == [("ns/other", False), ("ns/promised", True)]
    assert states(state) == {"alias": "waiting"}


def test_pods_of_one_role_that_ask_for_different_things_are_held_with_a_reason():
    state = build([pod("a"), pod("b", shape=Shape(request=request(gpus=2)))], [group()])
    why = reasons(run(state))["g"]
    assert why.code == "POD_SPECS_DIFFER"
    assert "task-spec" in why.message


def test_a_pod_that_asks_a_share_of_a_few_mib_is_held_and_asked_what_was_meant():
    shape = Shape(request=Request(share=Share(memory_mib=12)))
    why = reasons(run(build([pod("a", shape=shape)], [group(minimum=1)])))["g"]
    assert (why.code, why.position) == ("UNIT_TRAP", 0)
    assert "12 is 12 MiB. Did you mean 12288 (12 GiB)?" in why.message
    assert "in MiB" in " ".join(fixes_of(why.code, {}))
    core_only = Shape(request=Request(share=Share(core_percent=20)))
    assert not gangs(build([pod("a", shape=core_only)], [group(minimum=1)]))["g"].hold


def test_priority_comes_from_the_podgroups_class_before_the_pods():
    state = build(
        [pod("a", priority=5)], [group(priority_class="high")], classes=[PriorityClass(name="high", value=-3)]
    )
    assert gangs(state)["g"].priority == -3
    assert gangs(build([pod("a", priority=5)], [group()]))["g"].priority == 5


def test_preemptable_false_on_the_podgroup_or_a_pod_protects_the_gang():
    off = {"volcano.sh/preemptable": "false"}
    assert gangs(build([pod("a")], [group()]))["g"].preemptible
    assert not gangs(build([pod("a")], [group(annotations=off)]))["g"].preemptible
    assert not gangs(build([pod("a", annotations=off)], [group()]))["g"].preemptible


def test_preemption_policy_never_is_carried():
    assert gangs(build([pod("a", preemption_policy="Never")], [group()]))["g"].never_preempts


def test_a_gang_whose_namespace_goes_away_is_not_started():
    state = build([pod("a")], [group(minimum=1)], namespaces=[Namespace(name="ns", terminating=True)])
    assert reasons(run(state))["g"].code == "PAUSED"


def test_a_podgroup_without_pods_is_told_to_lack_them():
    assert reasons(run(build([], [group(minimum=2)])))["g"].code == "TOO_FEW_PODS"


def test_the_order_of_pods_and_podgroups_does_not_matter():
    pods = [pod(f"p{i}", group=f"ns/g{i % 3}", created=float(i % 2)) for i in range(9)]
    groups = [group(f"g{i}", minimum=1, created=1.0) for i in range(3)]
    one, two = build(pods, groups), build(pods[::-1], groups[::-1])
    assert one == two
    assert msgspec.json.encode(one) == msgspec.json.encode(two)


def test_a_member_that_never_stood_and_is_going_away_is_not_placed():
    assert states(build([pod("a", terminating=True)], [group()])) == {"a": MemberState.FAILED.value}
