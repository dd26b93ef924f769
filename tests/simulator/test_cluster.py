"""Clusters from shorthand and from files, and what is refused."""

from collections import Counter
from pathlib import Path

import pytest

from muster.model.nodes import CardMode
from muster.simulator.cluster import ClusterError, letters, load_cluster

SHARED = Path(__file__).parents[3] / "shared" / "manifests" / "cluster.yaml"


@pytest.mark.parametrize(
    ("text", "nodes", "cards", "racks"),
    [
        pytest.param("10x8", 10, 8, {"rack-a": 5, "rack-b": 5}, id="ten nodes stand in two racks"),
        pytest.param("2x8", 2, 8, {"rack-a": 2}, id="few nodes stand in one rack"),
        pytest.param(
            "100x8:4racks", 100, 8, dict.fromkeys(("rack-a", "rack-b", "rack-c", "rack-d"), 25), id="racks can be told"
        ),
        pytest.param("9x4:2racks", 9, 4, {"rack-a": 5, "rack-b": 4}, id="uneven racks differ by one node"),
        pytest.param("5x0", 5, 0, {"rack-a": 3, "rack-b": 2}, id="nodes without cards"),
    ],
)
def test_shorthand(text, nodes, cards, racks):
    expanded = load_cluster(text).expand()
    assert len(expanded) == nodes
    assert {len(node.cards) for node in expanded} == {cards}
    assert Counter(node.labels["topology.muster.dev/rack"] for node in expanded) == racks
    assert len({card.uuid for node in expanded for card in node.cards}) == nodes * cards


def test_shorthand_takes_card_memory_and_mode():
    (node,) = load_cluster("1x4:40:stock").expand()
    assert {card.memory_mib for card in node.cards} == {40960}
    assert node.card_mode is CardMode.STOCK
    assert load_cluster("1x4").expand()[0].card_mode is CardMode.VOLCANO


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10", "neither a file nor shorthand"),
        ("10x8:purple", "'purple'"),
        ("10x8:20racks", "20 racks"),
        ("0x8", "0 must be at least 1"),
        ("missing.yaml", "missing.yaml"),
    ],
)
def test_wrong_shorthand_says_what_would_be_right(text, says):
    with pytest.raises(ClusterError, match=says):
        load_cluster(text)


def write(tmp_path, text):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return path


def test_a_file_of_groups(tmp_path):
    path = write(
        tmp_path,
        """
nodes:
- {name_pattern: "gpu-node-%02d", count: 3, cpu: "96", memory: 1024Gi, gpus: 8, gpu_memory_mib: 81920, gpu_model: NVIDIA-A100-SXM4-80GB,
   card_mode: volcano, labels: {topology.kubernetes.io/zone: zone-a}, racks: [r1, r2], rack_label: example.com/rack, cards_per_link_group: 4}
- {name_pattern: login, cpu: 4, memory: 8Gi, max_pods: 20, taints: [{key: example.com/login, effect: NoSchedule}]}
""",
    )
    nodes = load_cluster(path).expand()
    assert [node.name for node in nodes] == ["gpu-node-01", "gpu-node-02", "gpu-node-03", "login"]
    assert [node.labels.get("example.com/rack") for node in nodes] == ["r1", "r1", "r2", None]
    assert [card.link_group for card in nodes[0].cards] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (nodes[0].cpu, nodes[0].memory) == (96_000, 1024 * 2**30)
    assert (nodes[3].max_pods, nodes[3].cards, nodes[3].card_mode) == (20, (), None)
    assert nodes[3].taints[0].effect == "NoSchedule"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("nodes: [{name_pattern: n, gpu: 8}]", r"unknown field `gpu`.*nodes\[0\]", id="an unknown field"),
        pytest.param("nodes: [{count: 1}]", "name_pattern", id="a missing name"),
        pytest.param("nodes: [{name_pattern: n, count: 2}]", "%02d", id="a name without a number for two nodes"),
        pytest.param("nodes: [{name_pattern: 'n-%s-%s'}]", "one number", id="a name with two holes"),
        pytest.param("nodes: [{name_pattern: a}, {name_pattern: a}]", "second time", id="the same name twice"),
        pytest.param("nodes: [{name_pattern: a, memory: 10Gib}]", "10Gib", id="a memory that is no quantity"),
        pytest.param(
            "nodes: [{name_pattern: a, gpus: 1, gpu_memory_mib: 80}]", "81920", id="card memory in GiB by mistake"
        ),
        pytest.param("nodes: [{name_pattern: a, card_mode: magic}]", "magic", id="a mode that does not exist"),
        pytest.param("nodes: [{name_pattern: a, count: zero}]", "Expected `int`", id="a count that is no number"),
        pytest.param("nodes: [", "expected", id="no YAML"),
        pytest.param("[]", "Expected `object`", id="no mapping"),
    ],
)
def test_a_wrong_file_is_refused_with_its_path_and_the_field(tmp_path, text, says):
    path = write(tmp_path, text)
    with pytest.raises(ClusterError, match=says) as refused:
        load_cluster(path)
    assert str(path) in str(refused.value)


@pytest.mark.skipif(not SHARED.is_file(), reason="the shared manifests are not here")
def test_the_cluster_of_the_shared_manifests():
    nodes = load_cluster(SHARED).expand()
    assert len(nodes) == 11
    assert [node.labels["topology.muster.dev/rack"] for node in nodes[:10]] == ["rack-a"] * 5 + ["rack-b"] * 5
    assert nodes[10].name == "small-01"
    assert [card.memory_mib for card in nodes[10].cards] == [20480]


@pytest.mark.parametrize(("number", "text"), [(0, "a"), (25, "z"), (26, "aa"), (701, "zz"), (702, "aaa")])
def test_racks_are_lettered_like_columns(number, text):
    assert letters(number) == text
