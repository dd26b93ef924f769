"""Synthetic clusters and pending batches for measuring placement.

racks of 16 nodes × 8 cards, a block (spine) is 8 racks, 70/30 two card models by rack
a rack's utilisation is Beta distributed around the load; its nodes are full, empty or fragmented
5 % of the nodes are short of cpu; everything is drawn from one seed

mixed        45 % of the demand in gangs of 8-card pods, 17 % in gangs of two roles, the rest single pods
contended    gangs that must stay in one rack and nothing else; demand 0.9 × the free cards
fractional   mixed, with 8 % of the demand in shares of cards
"""

import random
from typing import Literal, NamedTuple

from muster.model.gangs import Gang, Member, MemberState, Role
from muster.model.nodes import Card, CardMode, Node
from muster.model.pods import CardUse, Request, Shape, Share, TopologyWish
from muster.model.snapshot import Occupant, Snapshot
from muster.model.units import (
    Bytes,
    CardCount,
    CardIndex,
    CorePercent,
    MiB,
    MilliCpu,
    NodeName,
    PodUid,
    QueueName,
    RoleName,
    gang_key,
)
from muster.model.workloads import Limits, Queue

GIB = 2**30
CARDS = 8
NODES_PER_RACK = 16
RACKS_PER_BLOCK = 8
CARD_MIB = 81_920
CPU_PER_NODE, CPU_PER_CARD = 128_000, 8_000
MEMORY_PER_NODE, MEMORY_PER_CARD = 2_048 * GIB, 64 * GIB
LEVELS = ("topology.kubernetes.io/zone", "topology.muster.dev/block", "topology.muster.dev/rack")
MODEL = "gpu.model"
QUEUES = tuple(QueueName(f"team-{letter}") for letter in "abcdefgh")

Kind = Literal["mixed", "contended", "fractional"]
RACK = TopologyWish(required_level="rack")
BLOCK = TopologyWish(required_level="block")
NEAR = TopologyWish(preferred_level="rack")
FREE = TopologyWish()


class Cluster(NamedTuple):
    """A generated snapshot with what it holds: nodes, pending pods, free cards before the decision."""

    snapshot: Snapshot
    nodes: int
    pods: int
    gangs: int
    free_cards: int


def generate(kind: Kind, nodes: int, load: float, seed: int, *, pods: int | None = None) -> Cluster:
    """One instance. ``pods`` limits the pending pods (None: by the demand alone)."""
    draw = random.Random(f"{kind}/{nodes}/{load}/{seed}")
    made, occupants, free = _nodes(draw, nodes, load)
    batch = _Batch(draw, free, pods if pods is not None else 1 << 30)
    if kind == "contended":
        batch.contended()
    else:
        batch.mixed(shares=0.08 if kind == "fractional" else 0.0)
    total = nodes * CARDS * 1_000_000
    queues = tuple(
        Queue(name=name, capability=Limits(amounts={"gpu": total // 4}), weight=1 + number % 3)
        for number, name in enumerate(QUEUES)
    )
    snapshot = Snapshot(
        nodes=made, queues=queues, gangs=tuple(batch.gangs), occupants=occupants, topology_levels=LEVELS
    )
    return Cluster(snapshot, nodes, batch.pods, len(batch.gangs), free)


def _nodes(draw: random.Random, count: int, load: float) -> tuple[tuple[Node, ...], tuple[Occupant, ...], int]:
    cards = tuple(Card(index=CardIndex(index), memory_mib=MiB(CARD_MIB)) for index in range(CARDS))
    nodes, occupants, free = [], [], 0
    spread = 4.0
    rack_load, model = 0.0, ""
    for number in range(count):
        rack = number // NODES_PER_RACK
        if number % NODES_PER_RACK == 0:
            rack_load = draw.betavariate(spread * load, spread * (1 - load))
            model = "large" if draw.random() < 0.7 else "small"
        name = NodeName(f"node-{number:05}")
        labels = {
            LEVELS[0]: f"zone-{rack // (RACKS_PER_BLOCK * 8)}",
            LEVELS[1]: f"block-{rack // RACKS_PER_BLOCK}",
            LEVELS[2]: f"rack-{rack}",
            MODEL: model,
        }
        nodes.append(
            Node(
                name=name,
                uid=f"uid-{name}",
                labels=labels,
                cpu=MilliCpu(CPU_PER_NODE),
                memory=Bytes(MEMORY_PER_NODE),
                cards=cards,
                allocatable_cards=CARDS,
                card_mode=CardMode.VOLCANO,
                gpu_model=model,
            )
        )
        if draw.random() < 0.5:
            used = CARDS if draw.random() < rack_load else 0
        else:
            used = sum(draw.random() < rack_load for _ in range(CARDS))
        free += CARDS - used
        taken = draw.sample(range(CARDS), used)
        if taken:
            request = Request(
                cpu=MilliCpu(used * CPU_PER_CARD), memory=Bytes(used * MEMORY_PER_CARD), cards=CardCount(used)
            )
            uses = tuple(
                CardUse(index=CardIndex(one), memory_mib=MiB(CARD_MIB), core_percent=CorePercent(100), whole=True)
                for one in sorted(taken)
            )
            occupants.append(
                Occupant(
                    uid=PodUid(f"busy-{number}"), key=f"other/busy-{number}", node=name, request=request, cards=uses
                )
            )
        if draw.random() < 0.05:
            hungry = Request(cpu=MilliCpu(draw.randrange(40_000, CPU_PER_NODE - used * CPU_PER_CARD + 1, 1000)))
            occupants.append(
                Occupant(uid=PodUid(f"cpu-{number}"), key=f"other/cpu-{number}", node=name, request=hungry)
            )
    return tuple(nodes), tuple(occupants), free


class _Batch:
    def __init__(self, draw: random.Random, free: int, most_pods: int) -> None:
        self.draw = draw
        self.free = free
        self.most_pods = most_pods
        self.gangs: list[Gang] = []
        self.pods = 0

    def contended(self) -> None:
        draw, left = self.draw, int(0.9 * self.free)
        while left > 0 and self.pods < self.most_pods:
            # About what one rack has free at 80 % load: which gang goes to which rack decides how many run.
            size = draw.choice((2, 4, 8))
            parts = [("worker", draw.choice((24, 32, 40, 48)) // size, size)]
            least = sum(count for _, count, _ in parts)
            if draw.random() < 0.35:
                least = max(1, least * 3 // 4)
            self._add(
                parts,
                RACK,
                minimum=least,
                selector=draw.random() < 0.3,
                priority=0,
            )
            left -= sum(count * size for _, count, size in parts)

    def mixed(self, *, shares: float) -> None:
        draw = self.draw
        demand = int(1.6 * self.free)
        for part, add in (
            (0.45, self._large_gang),
            (0.17, self._two_roles),
            (shares, self._share),
            (0.38 - shares, self._single),
        ):
            left, budget = int(part * demand), int(part * self.most_pods) if self.most_pods < 1 << 30 else 1 << 30
            if add == self._single and self.most_pods < 1 << 30:
                budget = self.most_pods - self.pods
            start = self.pods
            while left > 0 and self.pods - start < budget:
                left -= add()
        draw.shuffle(self.gangs)
        self.gangs = [_aged(gang, number) for number, gang in enumerate(self.gangs)]

    def _large_gang(self) -> int:
        draw = self.draw
        count = draw.choice((4, 4, 8, 8, 8, 16, 16, 32, 64))
        wish = draw.choice((RACK, RACK, NEAR, FREE)) if count <= 12 else draw.choice((BLOCK, BLOCK, FREE))
        minimum = max(1, count * 3 // 4) if draw.random() < 0.35 else count
        self._add([("worker", count, 8)], wish, minimum=minimum, selector=draw.random() < 0.3)
        return count * 8

    def _two_roles(self) -> int:
        draw = self.draw
        size, count = draw.choice((1, 2, 4)), draw.choice((4, 6, 8, 12, 16))
        minimum = 1 + (count * 3 // 4 if draw.random() < 0.35 else count)
        wish = draw.choice((RACK, RACK, NEAR, FREE))
        self._add([("launcher", 1, 1), ("worker", count, size)], wish, minimum=minimum, role_minimum=1)
        return 1 + count * size

    def _single(self) -> int:
        size = self.draw.choice((1, 1, 1, 2, 2, 4, 8))
        self._add([("main", 1, size)], FREE, minimum=1, selector=self.draw.random() < 0.2)
        return size

    def _share(self) -> int:
        draw = self.draw
        self._add(
            [("main", 1, 0)], FREE, minimum=1, share=draw.choice(((8192, 10), (16384, 25), (40960, 50), (20480, 0)))
        )
        return int(draw.random() < 0.3)

    def _add(
        self,
        parts: list[tuple[str, int, int]],
        wish: TopologyWish,
        *,
        minimum: int,
        selector: bool = False,
        role_minimum: int = 0,
        share: tuple[int, int] | None = None,
        priority: int | None = None,
    ) -> None:
        draw, number = self.draw, len(self.gangs)
        name = f"gang-{number:05}"
        want = ((MODEL, "large" if draw.random() < 0.7 else "small"),) if selector else ()
        roles, members = [], []
        for role, count, size in parts:
            each = draw.choice((4_000, 6_000, CPU_PER_CARD))
            request = Request(
                cpu=MilliCpu(each * max(size, 1)),
                memory=Bytes(max(size, 1) * MEMORY_PER_CARD // 2),
                cards=CardCount(size),
                share=Share(memory_mib=MiB(share[0]), core_percent=CorePercent(share[1])) if share else None,
            )
            shape = Shape(request=request, node_selector=want)
            roles.append(Role(name=RoleName(role), shape=shape, replicas=count, minimum=role_minimum and min(1, count)))
            members += [
                Member(
                    uid=PodUid(f"{name}-{role}-{one}"),
                    name=f"{name}-{role}-{one}",
                    role=RoleName(role),
                    state=MemberState.WAITING,
                )
                for one in range(count)
            ]
        self.pods += len(members)
        self.gangs.append(
            Gang(
                key=gang_key("load", name),
                uid=f"uid-{name}",
                queue=draw.choice(QUEUES),
                priority=draw.choice((0, 0, 0, 100)) if priority is None else priority,
                minimum=minimum,
                roles=tuple(roles),
                members=tuple(members),
                topology=wish,
                submitted=float(number),
                order=number,
                namespace="load",
            )
        )


def _aged(gang: Gang, number: int) -> Gang:
    import msgspec

    return msgspec.structs.replace(gang, submitted=float(number), order=number)
