"""Random requests, decided by the core and handed to the simulated plugins: no card above 100 percent in any mode."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.decide.actual import with_actual_cards
from muster.decide.assignment import assignment_annotations
from muster.decide.cards import normalise_containers
from muster.decide.gangs import build_snapshot
from muster.decide.memory import CoreMemory
from muster.decide.projection import project_node, project_pod
from muster.decide.reservations import card_uuid, reservation_manifest, reservation_name, upkeep
from muster.decide.scheduling import decide
from muster.kube.objects import RawNode
from muster.kube.pods import RawPod
from muster.model.instructions import Place
from muster.model.nodes import CardMode
from muster.model.policy import Policy
from muster.model.workloads import PodGroup, Queue
from tests.simulator.bench import Bench

NAMESPACE = "muster-system"
POLICY = Policy()
WORDS = {
    "stock": ("nvidia.com/gpu", "", ""),
    "volcano": ("nvidia.com/gpu", "volcano.sh/gpu-memory", "volcano.sh/gpu-core"),
    "reserved": ("nvidia.com/gpu", "volcano.sh/gpu-memory", "volcano.sh/gpu-core"),
    "vgpu": ("volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"),
}


def asked(mode):
    whole, memory, core = WORDS[mode]
    cards = st.integers(1, 3).map(lambda count: {whole: count})
    if mode == "stock":
        return cards
    part = st.tuples(st.integers(1, 40).map(lambda gib: gib * 2048), st.sampled_from([0, 10, 25, 50, 100]))
    shares = part.map(lambda pair: {memory: pair[0], **({core: pair[1]} if pair[1] else {})})
    if mode == "reserved":
        return shares
    if mode == "vgpu":
        shares = st.tuples(shares, st.integers(1, 3)).map(lambda pair: {whole: pair[1], **pair[0]})
    return cards | shares


class World:
    """The part of a scheduler that matters here: decide on what the API server shows, bind one pod at a time."""

    def __init__(self, bench):
        self.bench = bench
        self.memory = CoreMemory()

    def nodes(self):
        found = [project_node(msgspec.convert(one, RawNode)) for one in self.bench.store.list("nodes")]
        return {node.name: node for node in found}

    def pods(self, nodes):
        listed = [msgspec.convert(one, RawPod) for one in self.bench.store.list("pods")]
        pods = [project_pod(one) for one in listed]
        return [with_actual_cards(pod, nodes.get(pod.node)) for pod in pods]

    def submit(self, name, limits):
        container = {"name": "c", "image": "x", "resources": {"limits": limits}}
        metadata = {"name": name, "annotations": {"scheduling.k8s.io/group-name": name}}
        template = {"metadata": metadata, "spec": {"schedulerName": "muster", "containers": [container]}}
        made = normalise_containers(template)
        self.bench.store.create("pods", made.template, namespace="default")

    async def round(self, names):
        nodes = self.nodes()
        pods = self.pods(nodes)
        groups = [PodGroup(namespace="default", name=name, uid=name, min_member=1, queue="q") for name in names]
        snapshot = build_snapshot(
            nodes=nodes.values(),
            pods=pods,
            podgroups=groups,
            queues=[Queue(name="q")],
            workloads=[],
            priority_classes=[],
            namespaces=[],
            holds=[],
            policy=POLICY,
        )
        decision = decide(snapshot, self.memory, self.bench.clock.now(), POLICY)
        self.memory = decision.memory
        requests = {pod.uid: pod.shape.request for pod in pods}
        for place in decision.instructions:
            if isinstance(place, Place):
                for slot in place.slots:
                    slot = msgspec.structs.replace(slot, request=requests[slot.uid])  # noqa: PLW2901
                    await self.bind(slot, nodes[slot.node])
        await self.tidy()

    async def bind(self, slot, node):
        uuid = ""
        if node.card_mode is CardMode.RESERVED:
            index = slot.cards[0].index
            name = reservation_name(node.name, index)
            if self.bench.get(name, namespace=NAMESPACE) is None:
                manifest = reservation_manifest(node, index, namespace=NAMESPACE, image="x", fence=0)
                self.bench.store.create("pods", manifest, namespace=NAMESPACE)
                await self.bench.advance(5)
            uuid = card_uuid(project_pod(msgspec.convert(self.bench.get(name, namespace=NAMESPACE), RawPod)))
        annotations = assignment_annotations(slot, node, self.bench.clock.now(), reserved_uuid=uuid)
        self.bench.bind(slot.pod, node.name, annotations)
        await self.bench.advance(1)

    async def tidy(self):
        nodes = self.nodes()
        for pod in upkeep(nodes, self.pods(nodes), []).useless:
            self.bench.store.delete("pods", pod.namespace, pod.name, grace_period=0)


def story(mode):
    """Two waves of requests, and after each the numbers of some pods that leave."""
    wave = st.tuples(st.lists(asked(mode), min_size=1, max_size=6), st.lists(st.integers(0, 11), max_size=3))
    return st.tuples(wave, wave)


@pytest.mark.parametrize("mode", WORDS)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_no_card_is_above_full_and_no_kubelet_refuses(mode, data):
    asyncio.run(played(mode, data.draw(story(mode))))


async def played(mode, waves):
    bench = await Bench.ready(f"2x3:{mode}")
    bench.store.create("namespaces", {"metadata": {"name": NAMESPACE}})
    world = World(bench)
    names = []
    for number, (requests, leaving) in enumerate(waves):
        for place, limits in enumerate(requests):
            names.append(f"p{number}-{place}")
            world.submit(names[-1], limits)
        await world.round(names)
        for name in {names[one] for one in leaving if one < len(names)}:
            if bench.get(name) is not None:
                bench.store.delete("pods", "default", name, grace_period=0)
        await bench.advance(1)
        await world.tidy()
        await bench.advance(3)
    await world.round(names)
    await bench.advance(3)
    assert not bench.kubelets.violations
    assert not bench.kubelets.mixups
    assert not [name for name in names if bench.phase(name) == "Failed"]
    nodes = world.nodes()
    for name in nodes:
        for state in bench.kubelets.cards(name):
            assert state.memory_used_mib <= state.card.memory_mib
            assert state.core_used_percent <= 100
    for pod in world.pods(nodes):
        if pod.namespace == "default" and pod.cards and nodes[pod.node].card_mode is not CardMode.RESERVED:
            assert tuple(use.index for use in pod.cards) == bench.kubelets.cards_of(pod.namespace, pod.name)
