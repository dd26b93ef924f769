"""What a node refuses, and which cards a pod really gets, by card mode."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.model.nodes import Card
from muster.simulator.cards import NodeCards
from muster.simulator.cluster import ClusterSpec, NodeGroup
from muster.simulator.device_plugin import AllocationError, Demand, StockPlugin, VolcanoPlugin
from muster.simulator.pod_requests import pod_requests
from tests.simulator.bench import Bench, assigned

N1, N2 = "gpu-node-01", "gpu-node-02"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"cpu": "60"}, {"cpu": "40"}, "OutOfcpu"),
        ({"memory": "1000Gi"}, {"memory": "25Gi"}, "OutOfmemory"),
        ({"nvidia.com/gpu": 6}, {"nvidia.com/gpu": 3}, "OutOfnvidia.com/gpu"),
    ],
)
async def test_a_node_refuses_what_does_not_fit(first, second, reason):
    bench = await Bench.ready("1x8:stock")
    bench.pod("a", limits=first, node=N1)
    await bench.advance(3)
    bench.pod("b", limits=second, node=N1)
    await bench.advance(3)
    assert bench.phase("a") == "Running"
    status = bench.status("b")
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert "requested:" in status["message"]
    assert "used:" in status["message"]
    assert [e["reason"] for e in bench.store.list("events", "default")] == [reason]


async def test_a_finished_pod_leaves_its_room_to_the_next():
    bench = await Bench.ready("1x8:stock")
    bench.pod("a", limits={"nvidia.com/gpu": 8}, annotations={"simulator.muster.dev/run-seconds": "1"}, node=N1)
    await bench.advance(5)
    bench.pod("b", limits={"nvidia.com/gpu": 8}, node=N1)
    await bench.advance(3)
    assert (bench.phase("a"), bench.phase("b")) == ("Succeeded", "Running")


async def test_a_terminating_pod_still_holds_its_room():
    bench = await Bench.ready("1x8:stock")
    bench.pod("a", limits={"nvidia.com/gpu": 8}, annotations={"simulator.muster.dev/stop-seconds": "20"}, node=N1)
    await bench.advance(5)
    bench.store.delete("pods", "default", "a")
    bench.pod("b", limits={"nvidia.com/gpu": 8}, node=N1)
    await bench.advance(3)
    assert bench.status("b")["reason"] == "OutOfnvidia.com/gpu"


async def test_more_pods_than_the_node_takes_are_refused():
    group = NodeGroup(name_pattern="n", cpu="8", memory="8Gi", max_pods=2)
    bench = await Bench.ready(ClusterSpec(nodes=(group,)))
    for name in "abc":
        bench.pod(name, node="n")
    await bench.advance(3)
    assert sorted(bench.status(name).get("reason", "") for name in "abc") == ["", "", "OutOfpods"]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        pytest.param(
            {"nodeSelector": {"kubernetes.io/hostname": N2}}, "NodeAffinity", id="a selector for another node"
        ),
        pytest.param(
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "topology.muster.dev/rack", "operator": "In", "values": ["rack-z"]}
                                    ]
                                }
                            ]
                        }
                    }
                }
            },
            "NodeAffinity",
            id="an affinity the node does not meet",
        ),
        pytest.param(
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "nvidia.com/gpu.count", "operator": "Gt", "values": ["4"]}
                                    ]
                                },
                                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]},
                            ]
                        }
                    }
                }
            },
            "",
            id="one of two affinity terms is enough",
        ),
    ],
)
async def test_selectors_and_affinity_are_checked_again_on_the_node(spec, reason):
    bench = await Bench.ready()
    bench.pod("p", node=N1, **spec)
    await bench.advance(3)
    assert bench.status("p").get("reason", "") == reason


async def test_an_untolerated_no_execute_taint_refuses_the_pod():
    bench = await Bench.ready(controllers=False)
    bench.store.patch("nodes", None, N1, {"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}})
    bench.pod("a", node=N1)
    bench.pod("b", node=N1, tolerations=[{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}])
    await bench.advance(3)
    assert bench.status("a")["reason"] == "TaintToleration"
    assert bench.phase("b") == "Running"


async def test_a_planned_refusal_hits_once_for_each_name():
    bench = await Bench.ready()
    for attempt in ("first", "second"):
        bench.pod("p", annotations={"simulator.muster.dev/refuse": "UnexpectedAdmissionError"}, node=N1)
        await bench.advance(3)
        outcome = bench.status("p").get("reason", bench.phase("p"))
        assert outcome == {"first": "UnexpectedAdmissionError", "second": "Running"}[attempt]
        bench.store.delete("pods", "default", "p", grace_period=0)


async def test_a_card_asked_of_a_node_without_cards_is_recorded_as_a_violation():
    bench = await Bench.ready(ClusterSpec(nodes=(NodeGroup(name_pattern="cpu-only"),)))
    bench.pod("p", limits={"nvidia.com/gpu": 1}, node="cpu-only")
    await bench.advance(3)
    assert [v.pod for v in bench.kubelets.violations] == ["default/p"]


# -- Volcano's plugin --------------------------------------------------------------------------------------------------


async def test_the_volcano_plugin_obeys_the_index_and_marks_the_pod_assigned():
    bench = await Bench.ready()
    bench.pod("whole", limits={"nvidia.com/gpu": 2}, node=N1, bind=assigned("3,5"))
    await bench.advance(3)
    assert bench.kubelets.cards_of("default", "whole") == (3, 5)
    assert bench.get("whole")["metadata"]["annotations"]["volcano.sh/gpu-assigned"] == "true"
    uuids = bench.node(N1)["metadata"]["annotations"]["muster.dev/card-uuids"].split(",")
    allocated = bench.status("whole")["containerStatuses"][0]["allocatedResourcesStatus"]
    assert allocated == [
        {"name": "nvidia.com/gpu", "resources": [{"resourceID": uuids[i], "health": "Healthy"} for i in (3, 5)]}
    ]


async def test_shares_and_whole_cards_live_on_one_node():
    bench = await Bench.ready()
    bench.pod("a", limits={"volcano.sh/gpu-memory": 40960, "volcano.sh/gpu-core": 30}, node=N1, bind=assigned("0", 1))
    bench.pod(
        "b",
        limits={"nvidia.com/gpu": 0, "volcano.sh/gpu-memory": 40960, "volcano.sh/gpu-core": 70},
        node=N1,
        bind=assigned("0", 2),
    )
    bench.pod("c", limits={"nvidia.com/gpu": 7}, node=N1, bind=assigned("1,2,3,4,5,6,7", 3))
    await bench.advance(3)
    card = bench.kubelets.cards(N1)[0]
    assert [bench.phase(name) for name in "abc"] == ["Running"] * 3
    assert (card.memory_used_mib, card.core_used_percent) == (81920, 100)
    assert bench.kubelets.violations == ()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            {"volcano.sh/gpu-memory": 50000}, {"volcano.sh/gpu-memory": 40000}, id="more memory than the card has"
        ),
        pytest.param(
            {"volcano.sh/gpu-memory": 100, "volcano.sh/gpu-core": 60},
            {"volcano.sh/gpu-memory": 200, "volcano.sh/gpu-core": 50},
            id="more core than the card has",
        ),
        pytest.param({"nvidia.com/gpu": 1}, {"volcano.sh/gpu-memory": 10}, id="a share of a whole card's card"),
        pytest.param({"volcano.sh/gpu-memory": 10}, {"nvidia.com/gpu": 1}, id="a whole card that is shared"),
    ],
)
async def test_an_overcommitted_card_is_refused_and_recorded(first, second):
    bench = await Bench.ready()
    bench.pod("a", limits=first, node=N1, bind=assigned("4", 1))
    await bench.advance(3)
    bench.pod("b", limits=second, node=N1, bind=assigned("4", 2))
    await bench.advance(3)
    assert bench.phase("a") == "Running"
    assert (bench.phase("b"), bench.status("b")["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert [(v.node, v.pod) for v in bench.kubelets.violations] == [(N1, "default/b")]
    assert "default/a" in bench.kubelets.violations[0].message


@pytest.mark.parametrize(
    "bind", [{}, {"volcano.sh/gpu-index": "0,1"}, {"volcano.sh/gpu-index": "8"}, {"volcano.sh/gpu-index": "x"}]
)
async def test_a_missing_or_wrong_index_is_an_unexpected_admission_error(bind):
    bench = await Bench.ready()
    bench.pod("p", limits={"nvidia.com/gpu": 1}, node=N1, bind=bind)
    await bench.advance(3)
    assert bench.status("p")["reason"] == "UnexpectedAdmissionError"


async def test_two_equal_pods_that_wait_at_once_may_get_each_others_cards():
    # Kubelet hears of the two in an order of its own: exactly one of the two decision orders disagrees with it.
    outcomes = []
    for times in ((1, 2), (2, 1)):
        bench = await Bench.ready()
        bench.pod("a", limits={"nvidia.com/gpu": 1}, node=N1, bind=assigned("0", times[0]))
        bench.pod("b", limits={"nvidia.com/gpu": 1}, node=N1, bind=assigned("1", times[1]))
        await bench.advance(3)
        cards = (bench.kubelets.cards_of("default", "a"), bench.kubelets.cards_of("default", "b"))
        outcomes.append((cards, sorted((m.pod, m.meant_for) for m in bench.kubelets.mixups)))
        assert (bench.phase("a"), bench.phase("b")) == ("Running", "Running")
    assert sorted(outcomes) == [
        (((0,), (1,)), []),
        (((1,), (0,)), [("default/a", "default/b"), ("default/b", "default/a")]),
    ]


async def test_pods_of_different_amounts_are_not_mixed_up():
    bench = await Bench.ready()
    bench.pod("small", limits={"volcano.sh/gpu-memory": 1000}, node=N1, bind=assigned("1", 9))
    bench.pod("large", limits={"volcano.sh/gpu-memory": 2000}, node=N1, bind=assigned("2", 1))
    await bench.advance(3)
    assert bench.kubelets.cards_of("default", "small") == (1,)
    assert bench.kubelets.cards_of("default", "large") == (2,)


async def test_one_at_a_time_nothing_is_mixed_up():
    bench = await Bench.ready()
    for index in range(8):
        bench.pod(f"p{index}", limits={"nvidia.com/gpu": 1}, node=N1, bind=assigned(str(index), 100 - index))
        await bench.advance(2)
    assert [bench.kubelets.cards_of("default", f"p{i}") for i in range(8)] == [(i,) for i in range(8)]
    assert bench.kubelets.mixups == ()


# -- the stock plugin --------------------------------------------------------------------------------------------------


async def test_the_stock_plugin_chooses_by_itself_and_always_the_same():
    async def chosen():
        bench = await Bench.ready("1x8:stock")
        bench.pod("p", limits={"nvidia.com/gpu": 2}, node=N1, bind=assigned("0,1"))
        await bench.advance(3)
        return bench.kubelets.cards_of("default", "p")

    first = await chosen()
    assert len(first) == 2
    assert first == await chosen()
    assert first != (0, 1)


def test_the_stock_plugin_prefers_one_link_group_and_the_fullest():
    group = NodeGroup(name_pattern="n", gpus=8, cards_per_link_group=4)
    cards = NodeCards(group.node(1).cards)
    cards.hold([0], uid="u", pod="d/u", memory_mib=0, core_percent=0, whole=True)
    chosen = StockPlugin().allocate({}, Demand(cards=3), cards=cards, waiting=[]).indexes
    assert chosen == (1, 2, 3)
    chosen = StockPlugin().allocate({}, Demand(cards=4), cards=cards, waiting=[]).indexes
    assert chosen == (4, 5, 6, 7)
    with pytest.raises(AllocationError, match="Requested: 8, Available: 7"):
        StockPlugin().allocate({}, Demand(cards=8), cards=cards, waiting=[])


# -- lost cards --------------------------------------------------------------------------------------------------------


async def test_a_lost_card_fails_its_pods_and_leaves_the_allocatable():
    bench = await Bench.ready()
    bench.pod("a", limits={"volcano.sh/gpu-memory": 1000}, node=N1, bind=assigned("2", 1))
    bench.pod("b", limits={"volcano.sh/gpu-memory": 2000}, node=N1, bind=assigned("2", 2))
    bench.pod("c", limits={"nvidia.com/gpu": 1}, node=N1, bind=assigned("3", 3))
    await bench.advance(3)
    bench.kubelets.lose_card(N1, 2)
    await bench.advance(1)
    assert [bench.phase(name) for name in "abc"] == ["Failed", "Failed", "Running"]
    assert "card 2" in bench.status("a")["message"]
    node = bench.node(N1)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "7"
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert node["status"]["allocatable"]["volcano.sh/gpu-memory"] == str(7 * 81920)
    assert node["metadata"]["annotations"]["volcano.sh/gpu-unhealthy-ids"] == "2"
    assert bench.ready_status(N1) == "True"
    bench.pod("d", limits={"nvidia.com/gpu": 1}, node=N1, bind=assigned("2", 4))
    await bench.advance(3)
    assert bench.status("d")["reason"] == "UnexpectedAdmissionError"
    bench.kubelets.restore_card(N1, 2)
    node = bench.node(N1)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert "volcano.sh/gpu-unhealthy-ids" not in node["metadata"]["annotations"]


async def test_a_node_that_lost_cards_below_what_is_used_refuses_more():
    bench = await Bench.ready("1x8:stock")
    bench.pod("a", limits={"nvidia.com/gpu": 7}, node=N1)
    await bench.advance(3)
    free = next(i for i in range(8) if i not in bench.kubelets.cards_of("default", "a"))
    bench.kubelets.lose_card(N1, free)
    bench.pod("b", limits={"nvidia.com/gpu": 1}, node=N1)
    await bench.advance(3)
    assert bench.phase("a") == "Running"
    assert bench.status("b")["reason"] == "OutOfnvidia.com/gpu"


# -- sums --------------------------------------------------------------------------------------------------------------


def test_requests_are_summed_as_kubelet_sums_them():
    def container(**amounts):
        return {"name": "c", "resources": {"limits": amounts}}

    pod = {
        "spec": {
            "containers": [container(cpu="500m", memory="1Gi"), container(cpu=1, **{"nvidia.com/gpu": "2"})],
            "initContainers": [
                {**container(cpu="100m"), "restartPolicy": "Always"},
                container(cpu="3", memory="512Mi"),
            ],
            "overhead": {"cpu": "250m"},
        }
    }
    assert pod_requests(pod) == {"cpu": 3100 + 250, "memory": 2**30, "nvidia.com/gpu": 2}


shares = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 1000), st.integers(0, 100), st.booleans()), min_size=1, max_size=30
)


@settings(max_examples=60, deadline=None)
@given(shares)
def test_cards_never_exceed_what_they_have_when_the_check_is_obeyed(asked):
    cards = NodeCards(Card(index=i, memory_mib=1000) for i in range(4))
    for number, (index, memory, core, whole) in enumerate(asked):
        part = {"memory_mib": memory, "core_percent": core, "whole": whole}
        if not cards.overcommitted([index], **part):
            cards.hold([index], uid=str(number), pod=f"d/{number}", **part)
        if number % 5 == 4:
            cards.release(str(number - 2))
        for state in cards.states:
            assert state.memory_used_mib <= 1000
            assert state.core_used_percent <= 100
            assert not any(hold.whole for hold in state.holds.values()) or len(state.holds) == 1


def test_plugins_are_told_apart_by_what_they_are_asked_for():
    pod = {
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "resources": {
                        "limits": {"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 5120, "volcano.sh/gpu-core": 30}
                    },
                }
            ]
        }
    }
    assert VolcanoPlugin().demand(pod) == Demand(memory_mib=5120, core_percent=30)
    assert StockPlugin().demand(pod) == Demand(cards=1)


def test_card_modes_without_a_simulated_plugin_are_refused_by_name():
    with pytest.raises(msgspec.ValidationError, match="card_mode: no device plugin is simulated for 'dra'"):
        msgspec.convert({"nodes": [{"name_pattern": "n", "gpus": 1, "card_mode": "dra"}]}, ClusterSpec)
