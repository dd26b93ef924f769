import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.projection import project_node, project_pod, project_podgroup, project_queue
from muster.kube.decoding import KINDS, RawObject
from muster.model.nodes import CardMode
from muster.model.pods import Phase, Share, TopologyWish
from muster.model.workloads import QueueState
from muster.simulator.pod_requests import pod_requests


def pod(spec=None, status=None, **metadata):
    document = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7", **metadata},
        "spec": {"containers": [], **(spec or {})},
        "status": status or {},
    }
    return project_pod(msgspec.convert(document, KINDS["pods"].struct))


def node(capacity, *, allocatable=None, labels=None, annotations=None, **status):
    document = {
        "metadata": {"name": "n", "labels": labels or {}, "annotations": annotations or {}},
        "status": {"capacity": capacity, "allocatable": allocatable or capacity, **status},
    }
    return project_node(msgspec.convert(document, KINDS["nodes"].struct))


def plain(**document):
    return msgspec.convert({"metadata": {"name": "x", "namespace": "ns"}, **document}, RawObject)


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "example.com/a"]),
    st.sampled_from(["0", "1", "250m", "3", "2Gi"]),
    max_size=3,
)
CONTAINERS = st.lists(
    st.builds(
        lambda limits, requests: {"name": "c", "resources": {"limits": limits, "requests": requests}}, AMOUNTS, AMOUNTS
    ),
    min_size=1,
    max_size=3,
)
INITS = st.lists(
    st.builds(
        lambda limits, always: {
            "name": "i",
            "resources": {"limits": limits},
            **({"restartPolicy": "Always"} if always else {}),
        },
        AMOUNTS,
        st.booleans(),
    ),
    max_size=3,
)


@settings(deadline=None)
@given(containers=CONTAINERS, inits=INITS, overhead=AMOUNTS)
def test_the_request_is_what_the_simulated_kubelet_counts(containers, inits, overhead):
    spec = {"containers": containers, "initContainers": inits, "overhead": overhead}
    request = pod(spec).shape.request
    found = {"cpu": request.cpu, "memory": request.memory, **dict(request.extended)}
    assert {name: amount for name, amount in found.items() if amount} == pod_requests({"spec": spec})


def test_a_pod_of_a_gang():
    found = pod(
        {
            "schedulerName": "volcano",
            "nodeName": "n1",
            "containers": [
                {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 5120}}}
            ],
        },
        {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
        annotations={
            "scheduling.k8s.io/group-name": "g",
            "volcano.sh/task-spec": "w",
            "muster.dev/fence": "12",
            "mine": "x",
        },
    )
    assert (found.gang, found.role, found.node, found.phase) == ("ns/g", "w", "n1", Phase.FAILED)
    assert (found.exit_code, found.fence) == (3, 12)
    assert "mine" not in found.annotations
    assert (found.shape.request.cards, found.shape.request.share) == (0, Share(memory_mib=5120))


NAMED = {
    "by annotation, as Volcano writes it": ({"scheduling.k8s.io/group-name": "a"}, {}, "ns/a"),
    "by label, as Kubeflow's trainer writes it": ({}, {"scheduling.volcano.sh/group-name": "b"}, "ns/b"),
    "by both: the annotation counts": (
        {"scheduling.volcano.sh/group-name": "a"}, {"scheduling.k8s.io/group-name": "b"}, "ns/a",
    ),
    "by nothing": ({}, {"app": "x"}, None),
}  # fmt: skip


@pytest.mark.parametrize(("annotations", "labels", "gang"), NAMED.values(), ids=NAMED)
def test_a_pod_names_its_podgroup(annotations, labels, gang):
    assert pod(annotations=annotations, labels=labels).gang == gang


def test_why_a_pod_is_not_scheduled_is_read_from_its_condition():
    condition = {"type": "PodScheduled", "status": "False", "reason": "QuotaBlocked", "message": "full"}
    found = pod(status={"conditions": [condition]})
    assert (found.unschedulable_reason, found.unschedulable_message) == ("QuotaBlocked", "full")


def test_equal_specs_in_another_order_have_equal_shapes():
    one = pod(
        {"nodeSelector": {"a": "1", "b": "2"}, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    )
    two = pod(
        {"nodeSelector": {"b": "2", "a": "1"}, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}
    )
    assert one.shape == two.shape
    assert one.shape.claims == ("c",)


REGISTER = "GPU-a,10,81920,NVIDIA-A100,true,hami-core:GPU-b,10,81920,NVIDIA-A100,false,hami-core:"
MODES = {
    "no cards": ({"cpu": "4"}, {}, None, 0, 0),
    "the stock plugin": ({"nvidia.com/gpu": "8"}, {"labels": {"nvidia.com/gpu.memory": "81920"}}, CardMode.STOCK, 8, 81920),
    "Volcano's plugin": (
        {"nvidia.com/gpu": "2", "volcano.sh/gpu-number": "2", "volcano.sh/gpu-memory": "40960"}, {}, CardMode.VOLCANO, 2, 20480,
    ),
    "Volcano's plugin without whole cards": ({"volcano.sh/gpu-number": "2", "volcano.sh/gpu-memory": "40960"}, {}, CardMode.VOLCANO, 2, 20480),
    "memory patched in by hand proves no plugin": (
        {"nvidia.com/gpu": "1", "volcano.sh/gpu-memory": "80240"}, {}, CardMode.STOCK, 1, 80240,
    ),
    "a hand-patched unit trap tells nothing": ({"nvidia.com/gpu": "1", "volcano.sh/gpu-memory": "80"}, {}, CardMode.STOCK, 1, 0),
    "what is declared wins": ({"nvidia.com/gpu": "1"}, {"annotations": {"muster.dev/card-mode": "volcano"}}, CardMode.VOLCANO, 1, 0),
    "the vGPU register": ({"volcano.sh/vgpu-number": "20"}, {"annotations": {"volcano.sh/node-vgpu-register": REGISTER}}, CardMode.VOLCANO, 2, 81920),
    "names of either case": ({"NVIDIA.com/GPU": "1"}, {}, CardMode.STOCK, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", MODES)
def test_what_a_node_promises_about_its_cards(name):
    capacity, options, mode, cards, memory = MODES[name]
    found = node(capacity, **options)
    assert (found.card_mode, len(found.cards)) == (mode, cards)
    assert {card.memory_mib for card in found.cards} == ({memory} if cards else set())


def test_a_lost_card_stays_known_and_is_not_offered():
    found = node(
        {"nvidia.com/gpu": "4", "volcano.sh/gpu-number": "4"},
        allocatable={"nvidia.com/gpu": "3"},
        annotations={"volcano.sh/gpu-unhealthy-ids": "1"},
    )
    assert [card.healthy for card in found.cards] == [True, False, True, True]
    assert found.allocatable_cards == 3


def test_an_unhealthy_registered_card_is_not_healthy():
    found = node({}, annotations={"volcano.sh/node-vgpu-register": REGISTER})
    assert [(card.uuid, card.healthy) for card in found.cards] == [("GPU-a", True), ("GPU-b", False)]


def test_a_queues_limits_are_exact():
    found = project_queue(
        plain(spec={"deserved": {"gpu": "1.5", "cpu": "2", "memory": "1Gi"}, "capability": {"nvidia.com/gpu": 3}})
    )
    assert found.deserved.amounts == {"gpu": 1_500_000, "cpu": 2000, "memory": 2**30}
    assert found.capability.amounts == {"nvidia.com/gpu": 3_000_000}


@pytest.mark.parametrize(
    ("named", "cards"),
    [
        pytest.param({"nvidia.com/gpu": 8}, 8_000_000, id="one kind of cards is what is deserved of cards"),
        pytest.param({"nvidia.com/gpu": 8, "amd.com/gpu": 4}, 12_000_000, id="two kinds add up"),
        pytest.param({"nvidia.com/gpu": 8, "gpu": 6}, 6_000_000, id="a named gpu stays as it is"),
        pytest.param({"cpu": 8}, None, id="without any card there is none"),
    ],
)
def test_a_queue_that_names_a_kind_of_cards_deserves_cards(named, cards):
    found = project_queue(
        plain(spec={"deserved": named, "guarantee": {"resource": named}}),
        card_resources=("nvidia.com/gpu", "amd.com/gpu"),
    )
    assert (found.deserved.get("gpu"), found.guarantee.get("gpu")) == (cards, cards)
    assert found.capability.amounts == {}
    assert (found.state, found.reclaimable, found.weight) == (QueueState.OPEN, True, 1)


WISHES = {
    "nothing": ({}, {}, TopologyWish()),
    "a hard tier": ({"mode": "hard", "highestTierAllowed": 2}, {}, TopologyWish(required_tier=2)),
    "a soft name": ({"mode": "soft", "highestTierName": "rack"}, {}, TopologyWish(preferred_level="rack")),
    "Volcano's annotations": ({}, {"volcano.sh/network-topology-mode": "hard"}, TopologyWish(required_tier=1)),
    "Muster's annotation wins": (
        {"mode": "hard", "highestTierAllowed": 2}, {"muster.dev/topology-required": "rack"}, TopologyWish(required_level="rack"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WISHES)
def test_a_podgroups_topology_wish(name):
    network, annotations, expected = WISHES[name]
    raw = msgspec.convert(
        {
            "metadata": {"name": "g", "namespace": "ns", "annotations": annotations},
            "spec": {"networkTopology": network} if network else {},
        },
        RawObject,
    )
    assert project_podgroup(raw).topology == expected
