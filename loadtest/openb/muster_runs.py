"""Muster one by one: the scheduler's own greedy (feasibility, order of nodes and cards, room) asked for one pod after another.

The mix of requests is what was placed so far, counted as the core counts it (`muster.decide.memory`); nothing is known before it
arrives. Nodes carry the renamed names of the run, so ties go to the same node as for the others. A card of the trace is a card
of 1,000 MiB, a thousandth is 1 MiB of it: shares are exact.
"""

from collections.abc import Sequence
from typing import Any

from loadtest.openb.trace import CARD, Kind, Order, Trace
from muster.decide.asks import Ask, ask_of
from muster.decide.fleet import Fleet
from muster.decide.memory import CoreMemory, mix_key, requests_seen
from muster.decide.placement.fragmentation import mix_of
from muster.decide.placement.greedy import Greedy, Landed
from muster.decide.room import Room
from muster.model.gangs import Gang, Member, MemberState, Role
from muster.model.nodes import Card, CardMode, Node
from muster.model.pods import NodeTerm, Request, Requirement, Shape, Share
from muster.model.policy import Packing
from muster.model.units import (
    Bytes,
    CardCount,
    CardIndex,
    GangKey,
    MiB,
    MilliCpu,
    NodeName,
    PodUid,
    QueueName,
    RoleName,
)

MODEL = "nvidia.com/gpu.product"
MEBIBYTE = 2**20
RENEWED = 1.25
"""The mix is counted anew when this many times as many requests were seen."""


def nodes_of(trace: Trace, order: Order) -> list[Node]:
    """The nodes of a run, named so that their order by name breaks ties as published."""
    nodes = []
    for place, number in enumerate(order.machines):
        machine = trace.machines[number]
        nodes.append(
            Node(
                name=NodeName(f"{place:04}-{machine.name}"),
                labels={MODEL: machine.model},
                cpu=MilliCpu(machine.cpu),
                memory=Bytes(machine.memory * MEBIBYTE),
                max_pods=1001,
                cards=tuple(Card(index=CardIndex(index), memory_mib=MiB(CARD)) for index in range(machine.cards)),
                allocatable_cards=machine.cards,
                card_mode=CardMode.VOLCANO,
            )
        )
    return nodes


def shape_of(kind: Kind) -> Shape:
    """A pod's spec of this kind."""
    model = NodeTerm(labels=(Requirement(key=MODEL, operator="In", values=kind.models),))
    return Shape(
        request=Request(
            cpu=MilliCpu(kind.cpu),
            memory=Bytes(kind.memory * MEBIBYTE),
            cards=CardCount(0 if kind.shared else kind.cards),
            share=Share(memory_mib=MiB(kind.milli)) if kind.shared else None,
        ),
        required_nodes=(model,) if kind.models else (),
    )


def ask_for(number: int, shape: Shape) -> Ask:
    """A gang of one pod."""
    name = f"kind-{number}"
    role = Role(name=RoleName("pod"), shape=shape, replicas=1, minimum=0)
    member = Member(uid=PodUid(name), name=name, role=role.name, state=MemberState.WAITING)
    gang = Gang(
        key=GangKey(f"openb/{name}"),
        uid=name,
        queue=QueueName("openb"),
        priority=0,
        order=0,
        minimum=1,
        roles=(role,),
        members=(member,),
        namespace="openb",
    )
    return ask_of(gang)


class Muster:
    """Places arrivals with the core's own code."""

    def __init__(self, trace: Trace, order: Order, *, known: bool = False) -> None:
        """``known``: the mix of the whole list is known from the start, as the protocol gives it to FGD."""
        self.trace = trace
        self.room = Room(Fleet(nodes_of(trace, order)))
        self.shapes = [shape_of(kind) for kind in trace.kinds]
        self.asks = [ask_for(number, shape) for number, shape in enumerate(self.shapes)]
        self.keys = [mix_key(shape) for shape in self.shapes]
        self.memory = CoreMemory()
        self.seen: dict[str, int] = {}
        self.counted = 0
        self.due = 0.0
        self.greedy = Greedy(self.room, Packing())
        self.known = known
        if known:
            for number in trace.pods:
                self.seen[self.keys[number]] = self.seen.get(self.keys[number], 0) + 1
            self._count()

    def place(self, number: int) -> bool:
        """Place the next arrival; False when it fits nowhere."""
        return self.land(number) is not None

    def land(self, number: int) -> Landed | None:
        """The same, telling where."""
        landed = self.greedy.minimum(self.asks[number])
        if landed is None:
            return None
        self.saw([number])
        return landed[0]

    def saw(self, numbers: Sequence[int]) -> None:
        """Count placed requests into the mix."""
        for number in numbers:
            key = self.keys[number]
            self.seen[key] = self.seen.get(key, 0) + 1
        self.counted += len(numbers)
        if self.counted >= self.due and not self.known:
            self._count()

    def _count(self) -> None:
        self.memory = requests_seen(self.memory, self.seen)
        self.seen = {}
        self.due = max(50.0, self.counted * RENEWED)
        mix = mix_of(self.memory.mix, self.room.fleet)
        if mix is not None:
            forget(self.room)
            self.greedy = Greedy(self.room, Packing(), mix=mix)


def forget(room: Room) -> None:
    """Drop scores by an older mix."""
    scores: dict[Any, Any] = room.scores
    scores.clear()
