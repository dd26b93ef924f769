"""Cards in the core: link groups, register, warnings, several cards, set-aside cards, upkeep of reservations, lint."""

import json

import msgspec
import pytest

from muster.decide.actual import CardFindingCode, card_findings, with_actual_cards
from muster.decide.assignment import assignment_annotations
from muster.decide.cards import normalise_containers
from muster.decide.linting import lint_document
from muster.decide.memory import CoreMemory, card_refused, without_cards_aside
from muster.decide.projection import project_node
from muster.decide.reservations import reservation_manifest, reservation_name, reserved_card, upkeep
from muster.kube.objects import RawNode
from muster.model.instructions import Place, Slot
from muster.model.nodes import VGPU, Card, CardMode, Node
from muster.model.pods import CardUse, Phase, Pod, Request, Shape, Share
from muster.model.policy import Policy, Timeouts
from muster.reservation.service import ReservationError, reported
from tests.decide.build import gang, node, queue, role, run, snapshot


def slots_of(decision):
    return [slot for one in decision.instructions if isinstance(one, Place) for slot in one.slots]


def raw_node(annotations=None, **capacity):
    amounts = {name: str(value) for name, value in capacity.items()}
    document = {
        "metadata": {"name": "n", "annotations": annotations or {}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    return project_node(msgspec.convert(document, RawNode))


def test_link_groups_and_uuids_are_read_card_by_card():
    found = raw_node(
        {"muster.dev/card-link-groups": "0,0,1", "muster.dev/card-uuids": "a,b,c"}, **{"nvidia.com/gpu": 4}
    )
    assert [(card.link_group, card.uuid) for card in found.cards] == [(0, "a"), (0, "b"), (1, "c"), (0, "")]


def test_the_cards_of_a_pod_are_of_one_link_group_where_one_has_enough():
    groups = tuple(Card(index=index, memory_mib=81920, link_group=index % 2) for index in range(4))
    decision = run(snapshot([node("n", cards=groups, allocatable_cards=4)], [gang("g", role(gpus=2))]))
    (slot,) = slots_of(decision)
    assert len({use.index % 2 for use in slot.cards}) == 1


@pytest.mark.parametrize(
    ("capacity", "mode", "warning"),
    [
        ({"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 80240}, CardMode.STOCK, "no device plugin hands out"),
        ({"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 80}, CardMode.STOCK, "Did you mean 81920"),
        ({"nvidia.com/gpu": 8, "volcano.sh/gpu-memory": 640}, CardMode.STOCK, "(80 GiB a card)"),
        ({"nvidia.com/gpu": 1}, CardMode.STOCK, ""),
        ({"volcano.sh/gpu-number": 2, "volcano.sh/gpu-memory": 163840}, CardMode.VOLCANO, ""),
    ],
    ids=[
        "memory patched in by hand",
        "GiB for MiB",
        "GiB for MiB on eight cards",
        "nothing to say",
        "a plugin that counts memory",
    ],
)
def test_what_a_node_says_of_its_cards_may_deserve_a_warning(capacity, mode, warning):
    found = raw_node(**capacity)
    assert found.card_mode is mode
    assert warning in found.card_warning
    assert bool(found.card_warning) == bool(warning)


def test_memory_patched_in_by_hand_is_the_cards_memory_and_a_unit_trap_is_not():
    assert raw_node(**{"nvidia.com/gpu": 2, "volcano.sh/gpu-memory": 160480}).cards[0].memory_mib == 80240
    assert raw_node(**{"nvidia.com/gpu": 1, "volcano.sh/gpu-memory": 80}).cards[0].memory_mib == 0


@pytest.mark.parametrize("amount", ["80", "80240"])
@pytest.mark.parametrize("form", ["patch", "wrapped", "node"])
def test_lint_judges_the_memory_of_a_node_in_every_form(amount, form):
    status = {"status": {"capacity": {"volcano.sh/gpu-memory": amount}}}
    document = {
        "patch": status,
        "wrapped": {"about": "x", "patch": status},
        "node": {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, **status},
    }[form]
    (finding,) = lint_document(document, policy=Policy())
    if amount == "80":
        assert (finding.value, "Did you mean 81920" in finding.message) == ("80", True)
    else:
        assert "nothing isolates shares" in finding.message


def share_role(each, *, mib=8192, core=10, **more):
    request = Request(
        share=Share(memory_mib=mib, core_percent=core, count=each), card_resource="volcano.sh/vgpu-number"
    )
    return role(shape=Shape(request=request), **more)


def vgpu_node(name="n", *, gpus=2):
    cards = tuple(Card(index=index, memory_mib=16384, uuid=f"{name}-{index}") for index in range(gpus))
    return node(name, cards=cards, allocatable_cards=gpus, card_plugin=VGPU, card_resource="volcano.sh/vgpu-number")


def test_shares_of_several_cards_lie_on_different_cards_and_are_charged_for_each():
    decision = run(snapshot([vgpu_node()], [gang("g", share_role(2, count=2))]))
    assert [sorted(use.index for use in slot.cards) for slot in slots_of(decision)] == [[0, 1], [0, 1]]
    limited = snapshot(
        [vgpu_node()],
        [gang("g", share_role(2, count=2))],
        queues=[queue(capability={"gpu": 1_500_000})],
    )
    assert not slots_of(run(limited))  # 2 pods × 2 cards × 8192/16384


@pytest.mark.parametrize(
    ("cards", "pods"), [(2, 3), (3, 4)], ids=["memory is full", "the third card helps nobody twice"]
)
def test_more_shares_of_several_cards_than_fit_wait(cards, pods):
    assert not slots_of(run(snapshot([vgpu_node(gpus=cards)], [gang("g", share_role(2, count=pods))])))
    assert slots_of(run(snapshot([vgpu_node(gpus=cards)], [gang("g", share_role(2, count=pods - 1))])))


def test_the_vgpu_plugin_is_told_each_containers_devices():
    request = Request(
        share=Share(memory_mib=300), card_resource="volcano.sh/vgpu-number",
        card_containers=((0, 1, 100, 0), (2, 1, 200, 5)),
    )  # fmt: skip
    slot = Slot(uid="u", pod="p", role="", node="n", cards=(CardUse(index=1, memory_mib=300),), request=request)
    told = assignment_annotations(slot, msgspec.structs.replace(vgpu_node(), card_mode=CardMode.VOLCANO), 12.5)
    assert told["volcano.sh/devices-to-allocate"] == "n-1,NVIDIA,100,0:;;n-1,NVIDIA,200,5:"
    assert (told["volcano.sh/vgpu-node"], told["volcano.sh/bind-phase"]) == ("n", "allocating")
    assert (told["volcano.sh/vgpu-time"], told["volcano.sh/bind-time"]) == ("12", "12")


def test_a_percentage_of_memory_is_read_by_the_largest_card():
    limits = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory-percentage": 50}
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}
    made = normalise_containers(template, largest_card_mib=81920)
    assert made.template["spec"]["containers"][0]["resources"]["limits"]["volcano.sh/vgpu-memory"] == "40960"
    assert normalise_containers(template).problems


def test_a_container_with_a_share_reads_what_it_may_see_and_the_others_do_not():
    share = {"resources": {"limits": {"volcano.sh/gpu-memory": 4096}}}
    own = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    template = {"spec": {"containers": [{"name": "a", **share, "env": [own]}, {"name": "b"}]}}
    made = normalise_containers(template)
    first, second = made.template["spec"]["containers"]
    source = first["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]
    assert source == "metadata.annotations['muster.dev/visible-devices']"
    assert len(first["env"]) == 1
    assert "env" not in second
    assert [note.field for note in made.notes] == ["spec.containers[0].env"]


def test_models_that_a_pod_asks_for_or_refuses_restrict_its_nodes():
    nodes = [node(name, gpus=1, gpu_model=f"NVIDIA-{name.upper()}") for name in ("a100", "t4")]
    for names, expected in (({"gpu_models": ("T4",)}, "t4"), ({"refused_gpu_models": ("T4",)}, "a100")):
        (slot,) = slots_of(run(snapshot(nodes, [gang("g", role(gpus=1, **names))])))
        assert slot.node == expected


def test_a_refused_card_is_set_aside_longer_each_time_and_comes_back():
    timeouts = Timeouts(backoff_initial=5)
    memory = card_refused(CoreMemory(), "n", (CardUse(index=0),), now=100, timeouts=timeouts)
    nodes = (node("n", gpus=2),)
    assert [card.healthy for card in without_cards_aside(nodes, memory, 101)[0].cards] == [False, True]
    assert without_cards_aside(nodes, memory, 106) is nodes
    again = card_refused(memory, "n", (CardUse(index=0),), now=106, timeouts=timeouts)
    assert again.cards[0].until == 116
    assert CoreMemory.from_data(again.to_data()) == again
    (slot,) = slots_of(run(snapshot(list(nodes), [gang("g", role(gpus=1))]), memory=memory, now=101))
    assert [use.index for use in slot.cards] == [1]


def reservation(index, **more):
    made = reservation_manifest(Node(name="r"), index, namespace="muster-system", image="x", fence=7)
    return Pod(
        namespace="muster-system",
        name=made["metadata"]["name"],
        uid=f"reservation-{index}",
        scheduler_name=made["spec"]["schedulerName"],
        node="r",
        phase=Phase.RUNNING,
        annotations=made["metadata"]["annotations"],
        **more,
    )


def share_pod(name, index, **more):
    more.setdefault("phase", Phase.RUNNING)
    return Pod(namespace="ns", name=name, uid=name, node="r", cards=(CardUse(index=index, memory_mib=1024),), **more)


NODES = {"r": Node(name="r", card_mode=CardMode.RESERVED)}


@pytest.mark.parametrize(
    ("pods", "promised", "missing", "useless"),
    [
        ([reservation(0), share_pod("a", 0)], [], [], []),
        ([share_pod("a", 0)], [], [("r", 0)], []),
        ([reservation(0)], [], [], ["card-0-r"]),
        ([reservation(0)], [("r", 0)], [], []),
        ([], [("r", 0)], [], []),
        ([reservation(0), share_pod("a", 0, phase=Phase.SUCCEEDED)], [], [], ["card-0-r"]),
        ([reservation(0), share_pod("a", 0, terminating=True)], [], [], []),
        ([reservation(0, terminating=True)], [], [], []),
    ],
    ids=[
        "in use",
        "lost under its share",
        "an orphan",
        "promised",
        "promised: made by the bind",
        "its last share has ended",
        "its last share is leaving",
        "leaving already",
    ],
)  # fmt: skip
def test_exactly_the_card_groups_in_use_are_reserved(pods, promised, missing, useless):
    work = upkeep(NODES, pods, promised)
    assert list(work.missing) == missing
    assert [pod.name for pod in work.useless] == useless


def test_a_reservation_is_named_by_node_and_group_and_known_again():
    assert reservation_name("r", 3) == "card-3-r"
    assert len(reservation_name("n" * 250, 3)) <= 200
    assert reserved_card(reservation(3)) == 3
    assert reserved_card(share_pod("a", 3, annotations={"muster.dev/reserves-card": "3"})) is None


def held_by(*devices, mode=CardMode.VOLCANO, decided=(0,)):
    there = node("n", cards=tuple(Card(index=i, memory_mib=10, uuid=f"u{i}") for i in range(3)), mode=mode)
    text = json.dumps([{"index": index, "whole": True} for index in decided])
    pod = Pod(
        namespace="ns",
        name="p",
        uid="p",
        node="n",
        phase=Phase.RUNNING,
        shape=Shape(request=Request(cards=len(devices))),
        cards=tuple(CardUse(index=index, whole=True) for index in decided),
        annotations={"muster.dev/cards": text},
        devices=devices,
    )
    return there, pod


def test_accounting_follows_what_the_kubelet_gave_and_a_broken_promise_is_told():
    there, pod = held_by("u2")
    actual = with_actual_cards(pod, there)
    assert [use.index for use in actual.cards] == [2]
    (found,) = card_findings({"n": there}, [actual])
    assert found.code is CardFindingCode.CARD_MISMATCH
    assert "cards 0 were decided, its device plugin gave 2" in found.message


def test_what_the_stock_plugin_chose_is_counted_and_no_finding():
    there, pod = held_by("u1", "u2", mode=CardMode.STOCK, decided=(0, 1))
    actual = with_actual_cards(pod, there)
    assert [use.index for use in actual.cards] == [1, 2]
    assert not card_findings({"n": there}, [actual])


@pytest.mark.parametrize("devices", [("elsewhere",), ()], ids=["devices of other names", "nothing told"])
def test_devices_that_name_no_card_change_nothing(devices):
    there, pod = held_by(*devices)
    assert with_actual_cards(pod, there) is pod


def test_a_pod_on_a_lost_card_is_told():
    there, pod = held_by("u0")
    lost = tuple(msgspec.structs.replace(card, healthy=card.index != 0) for card in there.cards)
    found = card_findings({"n": msgspec.structs.replace(there, cards=lost)}, [pod])
    assert [one.code for one in found] == [CardFindingCode.CARD_LOST]


@pytest.mark.parametrize("card", ["", "all", "void", "a,b"])
def test_a_reservation_pod_without_a_single_card_says_so(card):
    environ = {"MUSTER_RESERVATION_POD": "p", "MUSTER_RESERVATION_NAMESPACE": "n", "NVIDIA_VISIBLE_DEVICES": card}
    with pytest.raises(ReservationError, match="NVIDIA_VISIBLE_DEVICES"):
        reported(environ)
    assert reported({**environ, "NVIDIA_VISIBLE_DEVICES": "GPU-1"}) == ("n", "p", "GPU-1")
