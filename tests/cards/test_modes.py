"""Each card mode on the whole line: what was decided and what the simulated plugin gave out agree, or it is told."""

import json

import pytest

from muster.bus.server import EmbeddedServer
from muster.decide.reservations import reservation_manifest
from muster.model.nodes import CardMode, Node
from muster.model.policy import Policy, Timeouts
from muster.simulator.cluster import ClusterSpec, NodeGroup
from tests.cards.support import SERVICES, create_gang, metric, phase, pod, reason_of, running
from tests.line import Line
from tests.nats_fixtures import eventually

QUICK = Policy(timeouts=Timeouts(backoff_initial=0.5))
SHARE = {"volcano.sh/gpu-memory": "20480", "volcano.sh/gpu-core": "25"}


MIXED = ClusterSpec(
    nodes=(
        NodeGroup(name_pattern="share", gpus=4, card_mode=CardMode.VOLCANO, labels={"mode": "share"}),
        NodeGroup(
            name_pattern="vgpu-%d",
            count=3,
            gpus=2,
            card_mode=CardMode.VOLCANO,
            card_plugin="vgpu",
            labels={"mode": "vgpu"},
        ),
        NodeGroup(name_pattern="reserved", gpus=3, card_mode=CardMode.RESERVED, labels={"mode": "reserved"}),
        NodeGroup(name_pattern="mig", gpus=0, resources={"nvidia.com/mig-1g.5gb": 7}),
        NodeGroup(name_pattern="lost", gpus=2, card_mode=CardMode.VOLCANO, labels={"mode": "lost"}),
        NodeGroup(
            name_pattern="lost-vgpu",
            gpus=2,
            card_mode=CardMode.VOLCANO,
            card_plugin="vgpu",
            labels={"mode": "lost-vgpu"},
        ),
    )
)
STOCK = ClusterSpec(
    nodes=(
        NodeGroup(name_pattern="gpu-node-01", gpus=4, card_mode=CardMode.STOCK, labels={"mode": "stock"}),
        NodeGroup(name_pattern="patched", gpus=1, card_mode=CardMode.STOCK, labels={"mode": "patched"}),
    )
)


@pytest.fixture(scope="module")
async def running_line(tmp_path_factory):
    """One line for the module; the tests keep apart by node labels."""
    async with (
        EmbeddedServer(store_dir=tmp_path_factory.mktemp("nats")) as server,
        Line(server.url, cluster=MIXED, services=("watcher", "controller", "scheduler"), policy=QUICK) as line,
    ):
        yield line


@pytest.fixture
async def line(running_line):
    """The module's line, emptied after the test."""
    yield running_line
    store = running_line.sim.store
    for kind in ("jobs.batch.volcano.sh", "podgroups.scheduling.volcano.sh", "pods"):
        for one in store.list(kind, "default"):
            store.delete(kind, "default", one["metadata"]["name"], grace_period=0)
    await eventually(lambda: not store.list("pods", "default"))


def on(mode):
    return {"nodeSelector": {"mode": mode}}


def held(line, name):
    return line.sim.kubelets.cards_of("default", name)


# --- stock, and a hand-patched node ----------------------------------------------------------------------------------


async def test_stock_gives_whole_cards_of_its_own_choice_and_refuses_shares(nats_server):
    async with Line(nats_server.url, cluster=STOCK, services=SERVICES) as line:
        await line.create_queue("default")
        amounts = {"volcano.sh/gpu-memory": "80240"}
        await line.writer.merge_patch(
            "nodes", None, "patched", {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status"
        )
        await create_gang(line, "two", {"nvidia.com/gpu": 2}, **on("stock"))
        await create_gang(line, "share", SHARE)
        await eventually(running(line, "two-0"))
        expected = json.loads(pod(line, "two-0")["metadata"]["annotations"]["muster.dev/cards"])
        assert [card["expected"] for card in expected] == [True, True]
        assert "volcano.sh/gpu-index" not in pod(line, "two-0")["metadata"]["annotations"]
        actual = held(line, "two-0")
        # The kubelet has its own order: what we expected is not what it chose, and that is no finding.
        assert actual != tuple(card["index"] for card in expected)

        async def counted():
            row = next(row for row in (await line.client.nodes()).nodes if row.name == "gpu-node-01")
            return tuple(card.index for card in row.cards if card.gangs) == actual

        await eventually(counted)
        await create_gang(line, "rest", {"nvidia.com/gpu": 1}, pods=2, **on("stock"))
        await eventually(running(line, "rest-0", "rest-1"))
        row = await eventually(lambda: reason_of(line, "default/share"))
        assert row.code == "SHARING_NOT_AVAILABLE"
        assert phase(line, "share-0") == "Pending"
        # The memory that somebody patched in is no plugin: the node stays stock, and people are told.
        await eventually(lambda: metric(line, "muster_card_warnings") == 1.0)
        events = await eventually(lambda: events_of(line, "NoIsolation"))
        assert "no device plugin hands out" in text_of(events[0])
        assert metric(line, "muster_card_mismatches") == 0.0
        assert not line.sim.kubelets.violations


def events_of(line, reason):
    return [event for event in line.sim.store.list("events") if event["reason"] == reason]


def text_of(event):
    return event.get("note") or event.get("message") or ""


# --- volcano: gpu-share -------------------------------------------------------------------------------------------------


async def test_gpu_share_obeys_and_a_difference_is_found_and_counted(line):
    await create_gang(line, "share", SHARE, pods=3, **on("share"))
    await create_gang(line, "whole", {"nvidia.com/gpu": 2}, **on("share"))
    names = ("share-0", "share-1", "share-2", "whole-0")
    await eventually(running(line, *names))
    for name in names:
        annotations = pod(line, name)["metadata"]["annotations"]
        decided = tuple(int(index) for index in annotations["volcano.sh/gpu-index"].split(","))
        assert held(line, name) == decided
        if name.startswith("share"):
            assert annotations["muster.dev/visible-devices"] == annotations["volcano.sh/gpu-index"]
    await eventually(lambda: metric(line, "muster_card_mismatches") == 0.0)
    # As if something else had been decided: what the plugin gave counts, and the difference is told.
    card = held(line, "share-0")[0]
    wrong = json.dumps([{"index": (card + 1) % 4, "memory_mib": 20480, "core_percent": 25}])
    patch = {"metadata": {"annotations": {"muster.dev/cards": wrong}}}
    await line.writer.merge_patch("pods", "default", "share-0", patch)
    await eventually(lambda: metric(line, "muster_card_mismatches") == 1.0)
    events = await eventually(lambda: events_of(line, "CardMismatch"))
    assert "share-0" in text_of(events[0])

    async def counted():
        row = next(row for row in (await line.client.nodes()).nodes if row.name == "share")
        return {card.index for card in row.cards if "default/share" in card.gangs} == {
            index for name in names[:3] for index in held(line, name)
        }

    await eventually(counted)
    assert not line.sim.kubelets.violations


async def test_a_pod_whose_card_could_not_be_handed_over_starts_anew_without_a_retry_of_its_job(line):
    refused = {"simulator.muster.dev/refuse": "UnexpectedAdmissionError"}
    await line.writer.create("jobs.batch.volcano.sh", "default", vcjob("j", SHARE, mode="share", annotations=refused))

    def job_runs():
        return [one for one in line.sim.store.list("pods", "default") if one["status"].get("phase") == "Running"]

    again = (await eventually(job_runs))[0]
    assert again["metadata"]["annotations"]["muster.dev/visible-devices"] != "none"
    assert line.sim.store.get("jobs.batch.volcano.sh", "default", "j")["status"].get("retryCount", 0) == 0


def vcjob(name, limits, *, mode, annotations=None):
    container = {"name": "main", "image": "registry.example.com/x:1", "resources": {"limits": limits}}
    template = {
        "metadata": {"annotations": annotations or {}},
        "spec": {"restartPolicy": "Never", "containers": [container], **on(mode)},
    }
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "muster",
            "queue": "default",
            "minAvailable": 1,
            "maxRetry": 5,
            "tasks": [{"name": "w", "replicas": 1, "template": template}],
        },
    }


# --- volcano: vGPU ------------------------------------------------------------------------------------------------------


def vgpu(number=1, memory=0, cores=0):
    amounts = {"volcano.sh/vgpu-number": number, "volcano.sh/vgpu-memory": memory, "volcano.sh/vgpu-cores": cores}
    return {name: amount for name, amount in amounts.items() if amount}


async def test_vgpu_pods_are_allocated_one_after_another_as_decided(line):
    await create_gang(line, "many", vgpu(1, 16384, 20), pods=6, **on("vgpu"))
    await create_gang(line, "both", vgpu(2, 8192, 10), **on("vgpu"))
    await create_gang(line, "whole", vgpu(1), **on("vgpu"))
    names = (*(f"many-{number}" for number in range(6)), "both-0", "whole-0")
    await eventually(running(line, *names))
    for name in names:
        annotations = pod(line, name)["metadata"]["annotations"]
        assert annotations["volcano.sh/bind-phase"] == "success"
        assert annotations["volcano.sh/devices-to-allocate"] == ""
        decided = sorted(card["index"] for card in json.loads(annotations["muster.dev/cards"]))
        assert sorted(held(line, name)) == decided
    assert len(held(line, "both-0")) == 2
    assert pod(line, "both-0")["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"].count("NVIDIA,8192,10:") == 2
    assert not line.sim.kubelets.mixups
    assert not line.sim.kubelets.violations


async def test_each_container_has_its_own_entry(line):
    image = "registry.example.com/x:1"
    containers = [
        {"name": "sidecar", "image": image},
        {"name": "main", "image": image, "resources": {"limits": vgpu(1, 8192)}},
    ]
    await create_gang(line, "g", {}, containers=containers, **on("vgpu"))
    await eventually(running(line, "g-0"))
    listed = pod(line, "g-0")["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"].split(";")
    assert listed[0] == ""
    assert listed[1].endswith("NVIDIA,8192,0:")


@pytest.mark.parametrize(
    ("limits", "mode"),
    [(SHARE, "vgpu"), ({"nvidia.com/gpu": 1}, "vgpu"), (vgpu(1, 8192), "share"), ({"nvidia.com/gpu": 1}, "reserved")],
    ids=["a share in other words", "a card in other words", "a vgpu for gpu-share", "a whole card among shared ones"],
)
async def test_words_that_the_plugin_does_not_know_find_no_card(line, limits, mode):
    await create_gang(line, "g", limits, **on(mode))
    row = await eventually(lambda: reason_of(line, "default/g"))
    assert row.code == "NO_MATCHING_NODE"


# --- reserved -------------------------------------------------------------------------------------------------------------


def reservations(line):
    return {
        one["metadata"]["name"]: one
        for one in line.sim.store.list("pods", "muster-system")
        if "muster.dev/reserves-card" in one["metadata"]["annotations"]
    }


async def test_reserved_cards_are_held_by_a_pod_while_shares_are_on_them(line):
    await create_gang(line, "g", SHARE, pods=5, **on("reserved"))
    names = [f"g-{number}" for number in range(5)]
    await eventually(running(line, *names))
    held_now = reservations(line)
    assert sorted(held_now) == ["card-0-reserved", "card-1-reserved"]
    by_card = {}
    for name in names:
        annotations = pod(line, name)["metadata"]["annotations"]
        group = json.loads(annotations["muster.dev/cards"])[0]["index"]
        reported = held_now[f"card-{group}-reserved"]["metadata"]["annotations"]["muster.dev/card-uuid"]
        assert annotations["muster.dev/visible-devices"] == reported
        by_card.setdefault(held(line, name), []).append(name)
    assert sorted(map(len, by_card.values())) == [1, 4]
    assert not line.sim.kubelets.violations
    await eventually(lambda: metric(line, "muster_card_warnings") == 1.0)
    # The scheduler is another one now: it finds what was made, and uses it.
    await line.stop("scheduler")
    await line.start("scheduler", identity="another")
    await create_gang(line, "more", SHARE, **on("reserved"))
    await eventually(running(line, "more-0"))
    assert {name: one["metadata"]["uid"] for name, one in reservations(line).items()} == {
        name: one["metadata"]["uid"] for name, one in held_now.items()
    }
    for name in (*names, "more-0"):
        await line.writer.delete("pods", "default", name, grace_period=0)
    await eventually(lambda: not reservations(line))


async def test_a_reservation_that_somebody_deleted_is_made_again_and_another_card_is_told(line):
    await create_gang(line, "g", SHARE, **on("reserved"))
    await eventually(running(line, "g-0"))
    (name,) = reservations(line)
    before = reservations(line)[name]
    # Somebody takes the freed card before the reservation is there again.
    line.sim.store.delete("pods", "muster-system", name, grace_period=0)
    line.sim.store.create(
        "pods",
        {
            "metadata": {"name": "thief"},
            "spec": {
                "nodeName": "reserved",
                "containers": [
                    {"name": "c", "image": "registry.example.com/x:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}
                ],
            },
        },
        namespace="default",
    )
    await eventually(lambda: name in reservations(line))
    again = await eventually(lambda: reservations(line)[name]["metadata"]["annotations"].get("muster.dev/card-uuid"))
    if again != before["metadata"]["annotations"]["muster.dev/card-uuid"]:
        await eventually(lambda: metric(line, "muster_card_mismatches") == 1.0)
    assert reservations(line)[name]["metadata"]["uid"] != before["metadata"]["uid"]


async def test_an_orphan_reservation_is_removed(line):
    orphan = reservation_manifest(
        Node(name="reserved"), 2, namespace="muster-system", image="registry.example.com/muster:1", fence=0
    )
    line.sim.store.create("pods", orphan, namespace="muster-system")
    await eventually(lambda: not reservations(line))


async def test_a_share_that_does_not_read_what_it_may_see_is_not_put_on_a_reserved_card(line):
    await create_gang(line, "g", SHARE, rewritten=False, **on("reserved"))
    row = await eventually(lambda: reason_of(line, "default/g"))
    assert row.code == "NO_MATCHING_NODE"
    assert not reservations(line)


# --- MIG profiles, DRA --------------------------------------------------------------------------------------------------


async def test_mig_profiles_are_counted_as_resources(line):
    await create_gang(line, "g", {"nvidia.com/mig-1g.5gb": 3}, pods=2)
    await eventually(running(line, "g-0", "g-1"))
    assert {pod(line, f"g-{number}")["spec"]["nodeName"] for number in range(2)} == {"mig"}
    await create_gang(line, "more", {"nvidia.com/mig-1g.5gb": 2})
    row = await eventually(lambda: reason_of(line, "default/more"))
    assert row.code == "NOT_ENOUGH_ROOM"


async def test_pods_with_resource_claims_are_told_and_never_bound(line):
    await create_gang(line, "g", {"cpu": "1"}, resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}])
    row = await eventually(lambda: reason_of(line, "default/g"))
    assert row.code == "DRA_UNSUPPORTED"
    assert "nodeName" not in pod(line, "g-0")["spec"]


# --- broken cards ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "amounts"), [("lost", SHARE), ("lost-vgpu", vgpu(1, 20480))], ids=["gpu-share", "vgpu"]
)
async def test_no_new_pod_goes_to_a_lost_card(line, node, amounts):
    line.sim.kubelets.lose_card(node, 0)
    await create_gang(line, "g", amounts, pods=2, **on(node))
    await eventually(running(line, "g-0", "g-1"))
    assert {held(line, "g-0"), held(line, "g-1")} == {(1,)}
