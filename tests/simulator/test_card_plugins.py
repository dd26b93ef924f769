"""Simulated device plugins of shared cards: vGPU and reserved."""

import pytest

from muster.model.nodes import CardMode
from muster.simulator.plugins import plugin_for
from tests.simulator.bench import Bench

N1 = "gpu-node-01"


def allocating(*devices, time=1):
    return {
        "volcano.sh/vgpu-node": N1,
        "volcano.sh/devices-to-allocate": "".join(f"{uuid},NVIDIA,{mib},{core}:" for uuid, mib, core in devices),
        "volcano.sh/bind-phase": "allocating",
        "volcano.sh/bind-time": str(time),
    }


def uuids(bench, node=N1):
    return [state.card.uuid for state in bench.kubelets.cards(node)]


async def test_a_vgpu_node_registers_its_cards_and_offers_virtual_ones():
    bench = await Bench.ready("1x2:vgpu")
    node = bench.node(N1)
    assert node["status"]["allocatable"]["volcano.sh/vgpu-number"] == "20"
    assert "nvidia.com/gpu" not in node["status"]["allocatable"]
    register = node["metadata"]["annotations"]["volcano.sh/node-vgpu-register"]
    assert [entry.split(",")[0] for entry in register.split(":") if entry] == uuids(bench)
    bench.kubelets.lose_card(N1, 1)
    register = bench.node(N1)["metadata"]["annotations"]["volcano.sh/node-vgpu-register"]
    assert [entry.split(",")[4] for entry in register.split(":") if entry] == ["true", "false"]


async def test_the_vgpu_plugin_gives_the_annotated_devices_and_erases_them():
    bench = await Bench.ready("1x2:vgpu")
    first, second = uuids(bench)
    bench.pod(
        "p", limits={"volcano.sh/vgpu-number": 2}, node=N1, bind=allocating((first, 4096, 10), (second, 8192, 20))
    )
    await bench.advance(2)
    annotations = bench.get("p")["metadata"]["annotations"]
    assert (annotations["volcano.sh/bind-phase"], annotations["volcano.sh/devices-to-allocate"]) == ("success", "")
    states = bench.kubelets.cards(N1)
    assert [(one.memory_used_mib, one.core_used_percent) for one in states] == [(4096, 10), (8192, 20)]


@pytest.mark.parametrize(
    ("bind", "message"),
    [
        ({}, "no pending pod in bind phase allocating"),
        (allocating(("x", 1, 1), ("y", 1, 1)), "device number not matched"),
        (allocating(("x", 1, 1)), "no device 'x' here"),
    ],
    ids=["not annotated", "a wrong number", "a card of another node"],
)
async def test_a_wrong_assignment_is_an_unexpected_admission_error(bind, message):
    bench = await Bench.ready("1x2:vgpu")
    bench.pod("p", limits={"volcano.sh/vgpu-number": 1}, node=N1, bind=bind)
    await bench.advance(2)
    status = bench.status("p")
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert message in status["message"]


async def test_two_vgpu_pods_that_allocate_at_once_may_be_mixed_up():
    bench = await Bench.ready("1x2:vgpu")
    for number, uuid in enumerate(uuids(bench)):
        for pod in range(3):
            name = f"p{number}-{pod}"
            bench.pod(
                name, limits={"volcano.sh/vgpu-number": 1}, node=N1, bind=allocating((uuid, 1024, 1), time=9 - pod)
            )
    await bench.advance(2)
    assert bench.kubelets.mixups


async def test_a_reservation_pod_tells_its_card_and_shares_see_that_card():
    bench = await Bench.ready("1x2:reserved")
    share = {"volcano.sh/gpu-memory": 4096}
    bench.pod("r", limits={"nvidia.com/gpu": 1}, annotations={"muster.dev/reserves-card": "0"}, node=N1)
    await bench.advance(2)
    uuid = bench.get("r")["metadata"]["annotations"]["muster.dev/card-uuid"]
    bench.pod("p", limits=share, node=N1, bind={"muster.dev/visible-devices": uuid})
    bench.pod("blind", limits=share, node=N1)
    bench.pod("astray", limits=share, node=N1, bind={"muster.dev/visible-devices": (set(uuids(bench)) - {uuid}).pop()})
    await bench.advance(2)
    assert bench.phase("p") == "Running"
    assert bench.kubelets.cards_of("default", "p") == bench.kubelets.cards_of("default", "r")
    assert "cards that are not its own" in bench.status("blind")["message"]
    assert "not held by a reservation pod" in bench.status("astray")["message"]


async def test_a_reserved_card_is_not_given_out_whole_again():
    bench = await Bench.ready("1x1:reserved")
    bench.pod("r", limits={"nvidia.com/gpu": 1}, annotations={"muster.dev/reserves-card": "0"}, node=N1)
    await bench.advance(2)
    bench.pod("w", limits={"nvidia.com/gpu": 1}, node=N1)
    await bench.advance(2)
    assert bench.status("w")["reason"] == "OutOfnvidia.com/gpu"


def test_a_plugin_that_is_not_simulated_is_refused_by_name():
    with pytest.raises(ValueError, match="no device plugin 'other'"):
        plugin_for(CardMode.VOLCANO, "other")
