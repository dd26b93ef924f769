import msgspec
import pytest

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
from muster.kube.decoding import KINDS
from muster.model.gangs import Slices
from muster.model.instructions import Place
from muster.model.pods import NodeTerm, Pod, Requirement, Shape, TopologyWish
from muster.model.policy import Policy
from muster.model.topology import HyperMember, HyperNode
from muster.model.volumes import Claim, StorageClass, Volume
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


def state(surroundings, *pods, group=None):
    nodes = [node(name, labels={HOST: name}) for name in ("n1", "n2", "n3")]
    group = group or PodGroup(namespace="ns", name="g", uid="u", min_member=len(pods), queue="q")
    return build_snapshot(nodes, pods, [group], [queue()], [], [], [], [], Policy(), surroundings=surroundings)


LOCAL = Volume(name="v", nodes=(on_host("n2"),))
WAITING = StorageClass(name="local", waits_for_pod=True)


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
            around(claim(storage_class="local"), classes=[WAITING]), "VOLUME_UNSUPPORTED", "waits for a pod to be placed first",
            id="a claim that waits for its first consumer",
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
    assert project_storage_class(raw) == StorageClass(name="one", waits_for_pod=waits)


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
