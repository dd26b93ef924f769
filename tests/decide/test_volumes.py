import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.gangs import build_snapshot
from muster.decide.placement.validate import validate
from muster.decide.projection import (
    project_claim,
    project_hypernode,
    project_podgroup,
    project_storage_class,
    project_volume,
)
from muster.decide.surroundings import Surroundings
from muster.decide.volumes import assign, suits, supply_of, with_offers
from muster.kube.decoding import KINDS
from muster.model.gangs import Slices
from muster.model.instructions import Place
from muster.model.pods import NodeTerm, Pod, Requirement, Shape, TopologyWish
from muster.model.policy import Policy
from muster.model.snapshot import Hold
from muster.model.topology import HyperMember, HyperNode
from muster.model.volumes import NO_PROVISIONER, Claim, StorageClass, Volume
from muster.model.workloads import PodGroup, SubGroup
from tests.decide.build import node, placed, queue, reasons, request, run

HOST = "kubernetes.io/hostname"


def on_host(*names):
    return NodeTerm(labels=(Requirement(key=HOST, operator="In", values=names),))


def claim(name="data", **more):
    return Claim(namespace="ns", name=name, **more)


def around(*claims, volumes=(), classes=()):
    return Surroundings(
        claims={one.key: one for one in claims},
        volumes={one.name: one for one in volumes},
        storage_classes={one.name: one for one in classes},
    )


def pod(name="p", *claims, index=0, labels=None):
    return Pod(
        namespace="ns",
        name=f"{name}-{index}",
        uid=f"{name}-{index}",
        scheduler_name="muster",
        gang="ns/g",
        role="w",
        shape=Shape(request=request(cpu=100), claims=claims),
        labels=labels or {},
    )


def state(surroundings, *pods, group=None, holds=()):
    nodes = [node(name, labels={HOST: name}) for name in ("n1", "n2", "n3")]
    group = group or PodGroup(namespace="ns", name="g", uid="u", min_member=len(pods), queue="q")
    return build_snapshot(nodes, pods, [group], [queue()], [], [], [], holds, Policy(), surroundings=surroundings)


LOCAL = Volume(name="v", nodes=(on_host("n2"),))
WAITING = StorageClass(name="local", waits_for_pod=True)
LOCAL_CLASS = StorageClass(name="local", waits_for_pod=True, provisioner=NO_PROVISIONER)


def csi(*hosts):
    topologies = (on_host(*hosts),) if hosts else ()
    return StorageClass(name="csi", waits_for_pod=True, provisioner="csi.example.com", topologies=topologies)


def free(name, *hosts, size=10, **more):
    more = {"storage_class": "local", "access_modes": ("ReadWriteOnce",), **more}
    return Volume(name=name, nodes=(on_host(*hosts),) if hosts else (), size=size, free=True, **more)


def unbound(name="data", size=10, **more):
    return claim(name, storage_class="local", size=size, access_modes=("ReadWriteOnce",), **more)


@pytest.mark.parametrize(
    ("surroundings", "claims", "nodes"),
    [
        pytest.param(around(claim(bound=True, volume="v"), volumes=[LOCAL]), ["data"], ["n2"], id="a local volume names its node"),
        pytest.param(
            around(claim(bound=True, volume="v"), volumes=[Volume(name="v", nodes=(on_host("n9"), on_host("n3")))]), ["data"], ["n3"],
            id="terms of a volume are alternatives",
        ),
        pytest.param(around(claim(bound=True, volume="v"), volumes=[Volume(name="v")]), ["data"], ["n1"], id="a network volume"),
        pytest.param(around(claim(selected_node="n3"), classes=[WAITING]), ["data"], ["n3"], id="a node was selected already"),
        pytest.param(
            around(
                claim("a", bound=True, volume="v"), claim("b", bound=True, volume="w"),
                volumes=[Volume(name="v", nodes=(on_host("n1", "n2"),)), Volume(name="w", nodes=(on_host("n2", "n3"),))],
            ),
            ["a", "b"], ["n2"], id="all volumes must be reached",
        ),
    ],
)  # fmt: skip
def test_claims_restrict_nodes(surroundings, claims, nodes):
    assert placed(run(state(surroundings, pod("p", *claims)))) == {"g": nodes}


@pytest.mark.parametrize(
    ("surroundings", "code", "says"),
    [
        pytest.param(around(), "CLAIM_MISSING", "PersistentVolumeClaim data", id="no such claim"),
        pytest.param(around(claim(terminating=True)), "CLAIM_MISSING", "being deleted", id="a claim being deleted"),
        pytest.param(around(claim(lost=True, volume="v")), "CLAIM_UNBOUND", "lost its volume v", id="a claim whose volume is gone"),
        pytest.param(around(claim(bound=True, volume="v")), "CLAIM_UNBOUND", "volume v, which does not exist", id="a volume nobody sees"),
        pytest.param(around(claim(storage_class="fast")), "CLAIM_UNBOUND", "StorageClass fast", id="an immediate claim not bound yet"),
        pytest.param(
            around(claim(storage_class="local", size=10, access_modes=("ReadWriteOnce",)), classes=[LOCAL_CLASS], volumes=[free("v", "n2", size=9)]),
            "CLAIM_UNBOUND", "no unbound volume of StorageClass local suits the PersistentVolumeClaim data of p-0 (10, ReadWriteOnce)",
            id="no volume is large enough, and nobody makes one",
        ),
        pytest.param(
            around(claim(storage_class="csi"), classes=[csi("n9")]), "NO_MATCHING_NODE", "3 cannot reach its volumes",
            id="no node is among those that volumes can be made for",
        ),
        pytest.param(
            around(claim(bound=True, volume="v"), volumes=[Volume(name="v", nodes=(on_host("n9"),))]), "NO_MATCHING_NODE",
            "3 cannot reach its volumes", id="a volume that no node reaches",
        ),
    ],
)  # fmt: skip
def test_a_pod_waits_for_its_claims_with_a_reason(surroundings, code, says):
    why = reasons(run(state(surroundings, pod("p", "data"))))["g"]
    assert (why.code, why.position) == (code, 0 if code != "NO_MATCHING_NODE" else 1)
    assert says in why.message, why.message


def test_pods_of_one_role_with_claims_of_their_own_on_network_volumes_are_alike():
    surroundings = around(
        claim("a", bound=True, volume="v"),
        claim("b", bound=True, volume="w"),
        volumes=[Volume(name="v"), Volume(name="w")],
    )
    found = placed(run(state(surroundings, pod("p", "a"), pod("p", "b", index=1))))
    assert len(found["g"]) == 2


def test_the_validator_refuses_a_node_from_which_a_volume_cannot_be_reached():
    shot = state(around(claim(bound=True, volume="v"), volumes=[LOCAL]), pod("p", "data"))
    place = next(one for one in run(shot).instructions if isinstance(one, Place))
    assert validate(shot, [place], levels=()) == []
    elsewhere = msgspec.structs.replace(place, slots=(msgspec.structs.replace(place.slots[0], node="n1"),))
    assert any("volume" in text for text in validate(shot, [elsewhere], levels=()))


# Claims that wait for a pod to be placed first


@pytest.mark.parametrize(
    ("surroundings", "pods", "nodes"),
    [
        pytest.param(around(claim(storage_class="csi"), classes=[csi("n3")]), [["data"]], ["n3"], id="where the class admits it"),
        pytest.param(
            around(claim("a", storage_class="csi"), claim("b", storage_class="csi"), classes=[csi("n2")]), [["a"], ["b"]], ["n2", "n2"],
            id="volumes that are made are as many as are asked",
        ),
        pytest.param(around(unbound(), classes=[LOCAL_CLASS], volumes=[free("v", "n2")]), [["data"]], ["n2"], id="where the free volume is"),
        pytest.param(
            around(unbound("a"), unbound("b"), classes=[LOCAL_CLASS], volumes=[free("v", "n2"), free("w", "n3"), free("x", "n1", size=9)]),
            [["a"], ["b"]], ["n2", "n3"], id="a volume serves one claim",
        ),
        pytest.param(
            around(unbound("a"), unbound("b", size=20), classes=[LOCAL_CLASS], volumes=[free("v", "n2"), free("w", "n2", size=20)]),
            [["a"], ["b"]], ["n2", "n2"], id="the small claim leaves the large volume",
        ),
        pytest.param(
            around(unbound("a"), unbound("b"), classes=[LOCAL_CLASS], volumes=[free("v", "n2"), free("w", "n2")]),
            [["a", "b"]], ["n2"], id="two claims of one pod",
        ),
        pytest.param(
            around(unbound(), classes=[LOCAL_CLASS], volumes=[free("v", "n2", "n3"), free("w", "n1", size=5)]), [["data"]], ["n2"],
            id="a volume that several nodes reach is kept for the claim",
        ),
        pytest.param(
            around(unbound(), classes=[LOCAL_CLASS], volumes=[free("v", "n2")]), [["data"], ["data"]], ["n2", "n2"],
            id="pods that share a claim go where one volume is",
        ),
        pytest.param(
            around(unbound(), classes=[LOCAL_CLASS], volumes=[free("v", "n1"), free("w", "n3", claim="ns/data")]), [["data"]], ["n3"],
            id="a volume that somebody kept for the claim",
        ),
        pytest.param(
            around(
                claim("a", bound=True, volume="v"), claim("b", storage_class="csi"), classes=[csi()],
                volumes=[Volume(name="v", nodes=(on_host("n3"),))],
            ),
            [["a"], ["b"]], ["n1", "n3"], id="pods of one role of which one has its volume already",
        ),
    ],
)  # fmt: skip
def test_claims_that_wait_for_a_pod_go_where_a_volume_is_or_can_be_made(surroundings, pods, nodes):
    made = [pod("p", *claims, index=number) for number, claims in enumerate(pods)]
    assert placed(run(state(surroundings, *made))) == {"g": nodes}


@pytest.mark.parametrize(
    ("volumes", "claims"),
    [
        pytest.param([free("v", "n2"), free("w", "n2", size=20)], [("a", 20), ("b", 20)], id="only one is large enough for both"),
        pytest.param([free("v", "n2")], [("a", 10), ("b", 5)], id="one volume, two sizes of claim"),
        pytest.param([free("v", "n1", "n2"), free("w", "n9", size=3)], [("a", 10), ("b", 5)], id="one volume of many nodes, two claims"),
    ],
)  # fmt: skip
def test_no_volume_is_promised_twice(volumes, claims):
    surroundings = around(*(unbound(name, size=size) for name, size in claims), volumes=volumes, classes=[LOCAL_CLASS])
    pods = [pod("p", name, index=number) for number, (name, _) in enumerate(claims)]
    assert placed(run(state(surroundings, *pods))) == {}


def test_a_placed_pod_has_its_volume_before_those_that_wait():
    surroundings = around(unbound("a"), unbound("b"), volumes=[free("v", "n2"), free("w", "n3")], classes=[LOCAL_CLASS])
    first = msgspec.structs.replace(pod("first", "a"), gang="ns/h")
    hold = Hold(gang="ns/h", uid=first.uid, node="n2", request=first.shape.request)
    shot = state(
        surroundings,
        first,
        pod("p", "b"),
        holds=[hold],
        group=PodGroup(namespace="ns", name="g", uid="u", min_member=1, queue="q"),
    )
    assert placed(run(shot))["g"] == ["n3"]


def test_members_that_stand_do_not_count_as_users_of_volumes_that_are_free():
    surroundings = around(
        claim("a", bound=True, volume="u"), unbound("b"), classes=[LOCAL_CLASS],
        volumes=[Volume(name="u", nodes=(on_host("n2"),), claim="ns/a"), free("v", "n2")],
    )  # fmt: skip
    standing = msgspec.structs.replace(pod("p", "a"), node="n2")
    shot = state(surroundings, standing, pod("p", "b", index=1))
    assert placed(run(shot)) == {"g": ["n2"]}


def test_a_roles_minimum_is_kept_when_its_volumes_split_it():
    surroundings = around(
        claim("a", bound=True, volume="v"), claim("b", storage_class="csi"), claim("c", storage_class="csi"), classes=[csi()],
        volumes=[Volume(name="v", nodes=(on_host("n9"),))],
    )  # fmt: skip
    pods = [pod("p", name, index=number) for number, name in enumerate("abc")]
    group = PodGroup(namespace="ns", name="g", uid="u", min_member=1, min_task_member={"w": 3}, queue="q")
    shot = state(surroundings, *pods, group=group)
    assert {role.name: (role.replicas, role.minimum) for role in shot.gangs[0].roles} == {"w": (2, 2), "w (a)": (1, 1)}
    assert placed(run(shot)) == {}
    flexible = msgspec.structs.replace(group, min_task_member={"w": 2})
    assert placed(run(state(surroundings, *pods, group=flexible)))["g"] == ["n1", "n1"]


@pytest.mark.parametrize("where", ["n1", None])
def test_a_claim_for_one_pod_keeps_others_waiting_and_names_the_holder(where):
    surroundings = around(claim(bound=True, volume="v", access_modes=("ReadWriteOncePod",)), volumes=[Volume(name="v")])
    other = msgspec.structs.replace(
        pod("a", "data"), node=where, scheduler_name="other" if where else "muster", gang=None if where else "ns/h"
    )
    group = PodGroup(namespace="ns", name="g", uid="u", min_member=1, queue="q")
    why = reasons(run(state(surroundings, other, pod("p", "data"), group=group)))["g"]
    assert why.code == "CLAIM_IN_USE"
    assert "one pod at a time" in why.message
    assert "ns/a-0" in why.message
    if where:
        ended = msgspec.structs.replace(other, phase="Succeeded")
        assert placed(run(state(surroundings, ended, pod("p", "data"), group=group))) == {"g": ["n1"]}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_is_counted_can_be_given_out(data):
    sizes, selectors = st.integers(1, 4), st.sampled_from(({}, {"kind": "a"}, {"kind": "b"}))
    drawn = data.draw(st.lists(st.tuples(sizes, selectors), max_size=6))
    volumes = {
        f"v{number}": free(f"v{number}", "n1", size=size, labels=labels) for number, (size, labels) in enumerate(drawn)
    }
    claims = {}
    for number, (size, labels) in enumerate(data.draw(st.lists(st.tuples(sizes, selectors), min_size=1, max_size=5))):
        one = unbound(
            f"c{number}",
            size=size,
            selector=tuple(Requirement(key=k, operator="In", values=(v,)) for k, v in labels.items()),
        )
        claims[one.key] = one
    pods = [pod("p", one.name, index=number) for number, one in enumerate(claims.values())]
    classes = {"local": LOCAL_CLASS}
    supply = supply_of(claims, volumes, classes, waiting=pods, promised=(), using={})
    there = node("n1", labels={HOST: "n1"})
    left, given_out = dict(with_offers(there, supply).extended), []
    for key, taken in supply.asks.items():
        if all(left.get(name, 0) > 0 for name in taken):
            left.update({name: left[name] - 1 for name in taken})
            given_out.append((claims[key], there))
    chosen = assign(given_out, volumes.values())
    assert len(chosen) == len(given_out) == len(set(chosen.values()))
    assert all(suits(volumes[name], claims[key]) for key, name in chosen.items())
    if not any(one.selector for one in claims.values()):
        # Of choices that are nested nothing is given away: as many are served as can be.
        assert len(given_out) == len(assign([(one, there) for one in claims.values()], volumes.values()))


# Projections


def decoded(kind, document):
    return msgspec.convert(
        {"metadata": {"name": "one", **document.pop("metadata", {})}, **document}, KINDS[kind].struct
    )


def test_a_claim_is_projected():
    raw = decoded(
        "persistentvolumeclaims",
        {
            "metadata": {"namespace": "ns", "uid": "u", "annotations": {"volume.kubernetes.io/selected-node": "n1"}},
            "spec": {"volumeName": "v", "storageClassName": "fast"},
            "status": {"phase": "Bound"},
        },
    )
    assert project_claim(raw) == Claim(
        namespace="ns", name="one", uid="u", volume="v", bound=True, storage_class="fast", selected_node="n1"
    )


def test_a_volume_is_projected_with_its_nodes():
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["n2", "n1"]}]}
    raw = decoded("persistentvolumes", {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}})
    assert project_volume(raw) == Volume(name="one", nodes=(on_host("n1", "n2"),))
    assert project_volume(decoded("persistentvolumes", {"spec": {}})) == Volume(name="one")


@pytest.mark.parametrize(("mode", "waits"), [("WaitForFirstConsumer", True), ("Immediate", False)])
def test_a_storage_class_is_projected(mode, waits):
    raw = decoded("storageclasses.storage.k8s.io", {"volumeBindingMode": mode, "provisioner": "x"})
    assert project_storage_class(raw) == StorageClass(name="one", waits_for_pod=waits, provisioner="x")


def test_the_nodes_that_a_storage_class_admits_are_projected():
    term = {"matchLabelExpressions": [{"key": HOST, "values": ["n2", "n1"]}]}
    raw = decoded("storageclasses.storage.k8s.io", {"provisioner": "x", "allowedTopologies": [term]})
    assert project_storage_class(raw).topologies == (on_host("n1", "n2"),)


def test_what_a_claim_asks_and_a_free_volume_offers_is_projected():
    modes = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "volumeMode": "Block"}
    asks = {**modes, "resources": {"requests": {"storage": "1Gi"}}, "selector": {"matchLabels": {"a": "b"}}}
    raw = decoded(
        "persistentvolumeclaims",
        {"metadata": {"namespace": "ns", "annotations": {"muster.dev/fence": "7"}}, "spec": asks},
    )
    assert project_claim(raw) == Claim(
        namespace="ns", name="one", storage_class="local", access_modes=("ReadWriteOnce",), size=2**30, volume_mode="Block",
        selector=(Requirement(key="a", operator="In", values=("b",)),), fence=7,
    )  # fmt: skip
    offers = {**modes, "capacity": {"storage": "2Gi"}}
    raw = decoded(
        "persistentvolumes", {"metadata": {"labels": {"a": "b"}}, "spec": offers, "status": {"phase": "Available"}}
    )
    assert project_volume(raw) == Volume(
        name="one", storage_class="local", size=2**31, access_modes=("ReadWriteOnce",), volume_mode="Block", labels={"a": "b"}, free=True,
    )  # fmt: skip
    kept = {**offers, "claimRef": {"namespace": "ns", "name": "data", "uid": "u"}}
    raw = decoded("persistentvolumes", {"spec": kept, "status": {"phase": "Available"}})
    assert (project_volume(raw).free, project_volume(raw).claim, project_volume(raw).claim_uid) == (
        False,
        "ns/data",
        "u",
    )


def test_a_hypernode_is_projected_with_every_way_to_choose_members():
    members = [
        {"type": "Node", "selector": {"exactMatch": {"name": "n1"}}},
        {"type": "Node", "selector": {"regexMatch": {"pattern": "^n"}}},
        {"type": "Node", "selector": {"labelMatch": {"matchLabels": {"a": "b"}}}},
        {"type": "HyperNode", "selector": {"exactMatch": {"name": "s0"}}},
    ]
    raw = decoded("hypernodes.topology.volcano.sh", {"spec": {"tier": 2, "tierName": "spine", "members": members}})
    assert project_hypernode(raw) == HyperNode(
        name="one",
        tier=2,
        tier_name="spine",
        members=(
            HyperMember(name="n1"),
            HyperMember(pattern="^n"),
            HyperMember(labels=(Requirement(key="a", operator="In", values=("b",)),), by_labels=True),
            HyperMember(hyper=True, name="s0"),
        ),
    )


# subGroupPolicy

KEYS = ("volcano.sh/task-spec", "volcano.sh/partition-id")


def group_with(*sub_groups):
    return PodGroup(namespace="ns", name="g", uid="u", min_member=2, queue="q", sub_groups=sub_groups)


def test_a_sub_group_policy_with_label_keys_makes_slices():
    pods = [pod("p", index=number, labels={"volcano.sh/partition-id": str(number // 2)}) for number in range(4)]
    policy = SubGroup(name="w", size=2, minimum=1, match_label_keys=KEYS, topology=TopologyWish(required_tier=1))
    gang = state(Surroundings(), *pods, group=group_with(policy)).gangs[0]
    assert gang.roles[0].slices == Slices(size=2, minimum=1, topology=TopologyWish(required_tier=1))
    assert [member.slice for member in gang.members] == ["0", "0", "1", "1"]


def test_a_sub_group_policy_without_label_keys_is_the_wish_of_its_role():
    gang = state(
        Surroundings(), pod(), group=group_with(SubGroup(name="w", topology=TopologyWish(required_tier=2)))
    ).gangs[0]
    assert gang.roles[0].topology == TopologyWish(required_tier=2)
    assert gang.roles[0].slices is None


def test_groups_of_several_tasks_are_refused_with_a_reason():
    both = [pod("p", labels={"cell": "1"}), msgspec.structs.replace(pod("q", labels={"cell": "1"}), role="other")]
    shot = state(Surroundings(), *both, group=group_with(SubGroup(name="cells", size=2, match_label_keys=("cell",))))
    assert reasons(run(shot))["g"].code == "SUB_GROUP_UNSUPPORTED"


def test_a_podgroups_sub_group_policy_is_projected_with_its_selector():
    item = {
        "name": "w",
        "subGroupSize": 2,
        "minSubGroups": 1,
        "labelSelector": {"matchLabels": {"volcano.sh/task-spec": "w"}},
        "matchLabelKeys": list(KEYS),
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    raw = msgspec.convert(
        {"metadata": {"name": "g", "namespace": "ns", "uid": "u"}, "spec": {"subGroupPolicy": [item]}},
        KINDS["configmaps"].struct,
    )
    selector = (Requirement(key="volcano.sh/task-spec", operator="In", values=("w",)),)
    assert project_podgroup(raw).sub_groups == (
        SubGroup(
            name="w", size=2, minimum=1, labels=selector, match_label_keys=KEYS, topology=TopologyWish(required_tier=1)
        ),
    )
