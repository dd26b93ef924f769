import itertools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.asks import ask_of
from muster.decide.fleet import Fleet
from muster.decide.placement.validate import validate
from muster.decide.topology import domain_name, domains, level_name, resolve
from muster.model.gangs import Member, MemberState, Slices
from muster.model.instructions import Place, Slot
from muster.model.pods import Requirement, TopologyWish
from muster.model.policy import Policy
from muster.model.topology import HyperMember, HyperNode
from tests.decide.build import gang, node, placed, queue, reasons, role, run, snapshot, standing, whole

USUAL = Policy().topology_levels
RACK, BLOCK, ZONE = "topology.muster.dev/rack", "topology.muster.dev/block", "topology.kubernetes.io/zone"


def labelled(*labels, gpus=8):
    return [node(f"n{number}", gpus=gpus, labels=dict(one)) for number, one in enumerate(labels)]


def groups(fleet, level):
    """The names of the nodes of each domain, as sets."""
    codes = domains(fleet, level).tolist()
    return {frozenset(fleet.names[row] for row, code in enumerate(codes) if code == one) for one in set(codes) - {-1}}


@pytest.mark.parametrize(
    ("nodes", "levels", "known"),
    [
        pytest.param(labelled({}), USUAL, ("node",), id="without labels there is only the node"),
        pytest.param(labelled({RACK: "a"}), USUAL, ("rack", "node"), id="a level that no node has does not count"),
        pytest.param(
            labelled({"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "s"}),
            USUAL,
            ("block", "rack", "node"),
            id="the keys of GKE",
        ),
        pytest.param(
            labelled({f"topology.k8s.aws/network-node-layer-{layer}": "x" for layer in (1, 2, 3)}),
            USUAL,
            ("core", "block", "rack", "node"),
            id="the keys of EKS",
        ),
        pytest.param(
            labelled({"fabric.topograph.run/tier-0": "a", "accelerator.topograph.run/domain": "c"}),
            USUAL,
            ("rack", "node", "clique"),
            id="the keys of Topograph, with the clique as its own dimension",
        ),
        pytest.param(labelled({"row": "1"}), ("row",), ("row", "node"), id="any label key can be a level"),
    ],
)
def test_levels_are_those_that_occur_on_nodes(nodes, levels, known):
    assert Fleet(nodes, levels).topology.known == known


@pytest.mark.parametrize(
    "name", ["rack", RACK, "cloud.google.com/gce-topology-subblock", "network.topology.nvidia.com/leaf"]
)
def test_a_level_is_asked_for_by_its_short_name_or_any_of_its_keys(name):
    fleet = Fleet(labelled({"fabric.topograph.run/tier-0": "a"}), USUAL)
    assert resolve(fleet, TopologyWish(required_level=name)).required == 0


def test_the_same_rack_name_in_two_zones_is_two_racks():
    fleet = Fleet(labelled({ZONE: "a", RACK: "r1"}, {ZONE: "b", RACK: "r1"}), USUAL)
    assert groups(fleet, 1) == {frozenset({"n0"}), frozenset({"n1"})}


@pytest.mark.parametrize(
    ("labels", "racks"),
    [
        pytest.param(
            [{ZONE: "a", RACK: "r1"}, {RACK: "r1"}],
            [{"n0", "n1"}],
            id="a missing zone is inherited when the siblings agree",
        ),
        pytest.param(
            [{ZONE: "a", RACK: "r1"}, {ZONE: "b", RACK: "r1"}, {RACK: "r1"}],
            [{"n0"}, {"n1"}, {"n2"}],
            id="a missing zone is not inherited when the siblings differ",
        ),
        pytest.param([{RACK: "r1"}, {ZONE: "a"}], [{"n0"}], id="a node without the label is outside"),
    ],
)
def test_missing_labels(labels, racks):
    fleet = Fleet(labelled(*labels), USUAL)
    assert groups(fleet, fleet.levels.index("rack")) == {frozenset(rack) for rack in racks}


def test_a_node_outside_a_required_level_is_not_used_though_a_narrower_label_is_there():
    nodes = labelled({BLOCK: "b", RACK: "r1"}, {RACK: "r2"})
    wish = TopologyWish(required_level="block", preferred_level="rack")
    one = msgspec.structs.replace(gang("g", role(count=2, gpus=8)), topology=wish)
    assert reasons(run(snapshot(nodes, [one], levels=USUAL)))["g"].code in {"TOPOLOGY_UNFIT", "NEVER_FITS"}


def test_the_clique_is_required_beside_the_rack():
    clique = "nvidia.com/gpu.clique"
    nodes = labelled(
        {RACK: "a", clique: "1"}, {RACK: "a", clique: "2"}, {RACK: "a", clique: "2"}, {RACK: "b", clique: "1"}
    )
    wish = gang("g", role(count=2, gpus=8, rack="clique"), rack="rack")
    assert placed(run(snapshot(nodes, [wish], levels=USUAL))) == {"g": ["n1", "n2"]}


def test_a_preferred_clique_is_kept_together_inside_the_required_rack():
    clique = "nvidia.com/gpu.clique"
    nodes = labelled(
        {RACK: "a", clique: "1"}, {RACK: "b", clique: "2"}, {RACK: "b", clique: "1"}, {RACK: "b", clique: "2"}
    )
    wish = gang("g", role(count=2, gpus=8), rack="rack", prefer="clique")
    assert placed(run(snapshot(nodes, [wish], levels=USUAL))) == {"g": ["n1", "n3"]}


def test_an_unknown_level_names_those_that_are_known():
    why = reasons(run(snapshot(labelled({RACK: "a"}), [gang("g", role(gpus=1), rack="island")], levels=USUAL)))["g"]
    assert (why.code, why.position) == ("TOPOLOGY_LEVEL_UNKNOWN", 0)
    assert "island" in why.message
    assert "rack, node" in why.message


# HyperNodes


def leaf(name, *members, tier=1, tier_name=""):
    return HyperNode(name=name, tier=tier, tier_name=tier_name, members=members)


def exact(name, *, hyper=False):
    return HyperMember(name=name, hyper=hyper)


TREE = (
    leaf("s0", exact("n0"), exact("n1"), tier_name="switch"),
    leaf("s1", HyperMember(pattern="^n[23]$")),
    leaf("s2", HyperMember(by_labels=True, labels=(Requirement(key="pod", operator="In", values=("c",)),))),
    leaf("top", exact("s0", hyper=True), HyperMember(pattern="^s1$", hyper=True), tier=3, tier_name="spine"),
)
TREE_NODES = labelled({RACK: "x"}, {RACK: "y"}, {RACK: "x"}, {RACK: "y"}, {"pod": "c"})


def test_hypernodes_win_over_labels_and_nest():
    fleet = Fleet(TREE_NODES, USUAL, TREE)
    assert fleet.topology.known == ("spine", "switch", "node", "rack")
    assert groups(fleet, 1) == {frozenset({"n0", "n1"}), frozenset({"n2", "n3"}), frozenset({"n4"})}
    # n4 is in no HyperNode of tier 3: the widest up to it that holds it is its own.
    assert groups(fleet, 0) == {frozenset({"n0", "n1", "n2", "n3"}), frozenset({"n4"})}
    assert domain_name(fleet, 0, 0) == "top"
    assert level_name(fleet, 1) == "switch"


@pytest.mark.parametrize(
    ("wish", "level"),
    [
        pytest.param(TopologyWish(required_tier=1), 1, id="tier 1 is the lowest"),
        pytest.param(TopologyWish(required_tier=2), 1, id="a tier between two means the lower one"),
        pytest.param(TopologyWish(required_tier=3), 0, id="the highest tier"),
        pytest.param(TopologyWish(required_tier=4), None, id="a tier above all constrains nothing"),
        pytest.param(TopologyWish(required_level="spine"), 0, id="a tier by its name"),
        pytest.param(TopologyWish(required_level="rack"), 3, id="a label level stays known beside HyperNodes"),
    ],
)
def test_the_level_that_a_tier_means(wish, level):
    assert resolve(Fleet(TREE_NODES, USUAL, TREE), wish).required == level


@pytest.mark.parametrize(
    ("count", "tier", "nodes"),
    [
        pytest.param(2, 1, 2, id="two pods in one HyperNode of tier 1"),
        pytest.param(4, 3, 4, id="four pods under the HyperNode of tier 3"),
        pytest.param(3, 1, None, id="three pods in no HyperNode of tier 1"),
        pytest.param(5, 3, None, id="five pods not with one outside"),
    ],
)
def test_gangs_stay_inside_hypernodes(count, tier, nodes):
    one = msgspec.structs.replace(gang("g", role(count=count, gpus=8)), topology=TopologyWish(required_tier=tier))
    decision = run(snapshot(TREE_NODES, [one], levels=USUAL, hypernodes=TREE))
    where = placed(decision).get("g")
    assert (where and len(set(where))) == nodes
    if nodes is None:
        assert reasons(decision)["g"].code in {"TOPOLOGY_UNFIT", "NEVER_FITS"}
        assert "s" in str(reasons(decision)["g"].numbers["best"]) or reasons(decision)["g"].numbers["best"] == "top"


def test_a_circle_of_hypernodes_and_a_bad_pattern_hold_nothing():
    circle = (leaf("a", exact("b", hyper=True)), leaf("b", exact("a", hyper=True)), leaf("c", HyperMember(pattern="(")))
    assert Fleet(TREE_NODES, USUAL, circle).topology.known == ("rack", "node")


# Slices


def sliced(parts, *, minimum, size=2, level="rack", gang_minimum=None, standing_parts=()):
    """A gang whose role w has slices named 0, 1, …; some of them stand already."""
    base = gang("g", role(count=0, gpus=8), minimum=gang_minimum or 0)
    wish = TopologyWish(required_level=level)
    members = [
        Member(
            uid=f"g-{part}-{pod}", name=f"g-w-{part * size + pod}", role="w", state=MemberState.WAITING, slice=str(part)
        )
        for part in range(parts)
        for pod in range(size)
    ]
    one = msgspec.structs.replace(
        base.roles[0], replicas=parts * size, slices=Slices(size=size, minimum=minimum, topology=wish)
    )
    return msgspec.structs.replace(base, roles=(one,), members=(*standing_parts, *members))


def racks_of(decision, size=2):
    """The rack of every slice: the nodes are named after their racks."""
    place = next(one for one in decision.instructions if isinstance(one, Place))
    found = {}
    for slot in place.slots:
        found.setdefault(int(slot.pod.rpartition("-")[2]) // size, set()).add(slot.node[0])
    return found


def rack_nodes(**counts):
    return [
        node(f"{rack}{number}", gpus=8, labels={RACK: rack})
        for rack, count in counts.items()
        for number in range(count)
    ]


def test_each_slice_is_in_one_rack_and_slices_may_be_in_different_ones():
    found = racks_of(run(snapshot(rack_nodes(a=3, b=3), [sliced(2, minimum=2)], levels=USUAL)))
    assert sorted(found) == [0, 1]
    assert all(len(racks) == 1 for racks in found.values())


def test_too_few_racks_for_the_slices_start_none_of_them():
    decision = run(snapshot(rack_nodes(a=3, b=1), [sliced(2, minimum=2)], levels=USUAL))
    assert placed(decision) == {}
    assert reasons(decision)["g"].code in {"TOPOLOGY_UNFIT", "NEVER_FITS", "NOT_ENOUGH_ROOM"}


def test_slices_above_the_minimum_come_whole():
    found = racks_of(run(snapshot(rack_nodes(a=3, b=2, c=1), [sliced(4, minimum=1)], levels=USUAL)))
    assert len(found) == 2
    assert all(len(racks) == 1 for racks in found.values())


def test_a_slice_that_lost_a_pod_is_made_whole_in_its_rack():
    left = standing("g-w-0", "a0", cards=whole(*range(8)))
    one = sliced(1, minimum=1, size=2)
    waits = one.members[1]
    one = msgspec.structs.replace(one, members=(msgspec.structs.replace(left, slice="0"), waits))
    assert placed(run(snapshot(rack_nodes(a=2, b=2), [one], levels=USUAL))) == {"g": ["a1"]}


def test_the_gangs_own_minimum_is_made_up_of_whole_slices():
    ask = ask_of(sliced(3, minimum=1, gang_minimum=3))
    assert sum(part.need for part in ask.roles) == 4
    assert ask.short == 0


def test_a_slice_whose_pods_do_not_all_exist_yet_counts_as_missing():
    one = sliced(2, minimum=2)
    assert ask_of(msgspec.structs.replace(one, members=one.members[:3])).short == 2


# The validator against a brute-force oracle


def same_domain(nodes, level_keys):
    paths = {tuple(one.labels.get(key) for key in level_keys) for one in nodes}
    return len(paths) == 1 and None not in next(iter(paths))


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(
        st.fixed_dictionaries({ZONE: st.sampled_from("ab"), RACK: st.sampled_from("rs")}), min_size=2, max_size=4
    ),
    where=st.lists(st.integers(0, 3), min_size=2, max_size=3),
    level=st.sampled_from(["zone", "rack"]),
)
def test_the_validator_agrees_with_full_paths_of_labels(labels, where, level):
    nodes = labelled(*labels)
    chosen = [nodes[number % len(nodes)] for number in where]
    one = gang("g", role(count=len(where), cpu=1), rack=level)
    place = Place(
        gang=one.key,
        gang_uid=one.uid,
        slots=tuple(
            Slot(uid=member.uid, pod=member.name, role="w", node=to.name)
            for member, to in zip(one.members, chosen, strict=True)
        ),
    )
    problems = validate(snapshot(nodes, [one], levels=USUAL), [place], levels=USUAL)
    keys = [ZONE] if level == "zone" else [ZONE, RACK]
    assert (problems == []) == same_domain(chosen, keys), problems


@settings(max_examples=40, deadline=None)
@given(
    racks=st.lists(st.sampled_from(["r", "s", None]), min_size=1, max_size=6),
    size=st.integers(1, 3),
    parts=st.integers(1, 3),
)
def test_slices_are_placed_exactly_when_some_placement_exists(racks, size, parts):
    nodes = labelled(*({RACK: rack} if rack else {} for rack in racks))
    decision = run(snapshot(nodes, [sliced(parts, minimum=parts, size=size)], [queue()], levels=("rack",)))
    rooms = [racks.count(rack) for rack in ("r", "s")]
    possible = any(
        all(sum(one == number for one in choice) * size <= room for number, room in enumerate(rooms))
        for choice in itertools.product(range(2), repeat=parts)
    )
    if not any(racks):
        possible = False
    assert bool(placed(decision)) == possible
