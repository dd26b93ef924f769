"""Short ways to write nodes, gangs and snapshots for tests of the core."""

from muster.decide.memory import CoreMemory
from muster.decide.scheduling import decide
from muster.model.gangs import Gang, Member, MemberState, Role
from muster.model.instructions import Pending, Place
from muster.model.nodes import Card, CardMode, Node
from muster.model.pods import CardUse, Request, Shape, Share, TopologyWish
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.workloads import Limits, Queue

GIB = 2**30
CARD = 1_000_000
LEVELS = ("zone", "block", "rack")


def node(name="n1", *, cpu=64_000, memory=512 * GIB, gpus=0, card_mib=81_920, mode=CardMode.VOLCANO, **more):
    cards = tuple(Card(index=index, memory_mib=card_mib) for index in range(gpus))
    more.setdefault("allocatable_cards", gpus)
    more.setdefault("cards", cards)
    return Node(name=name, cpu=cpu, memory=memory, card_mode=mode, **more)


def request(*, cpu=0, memory=0, gpus=0, mib=0, core=0, **more):
    share = Share(memory_mib=mib, core_percent=core) if mib or core else None
    return Request(cpu=cpu, memory=memory, cards=gpus, share=share, **more)


def role(name="w", *, count=1, minimum=0, rack="", prefer="", shape=None, **asks):
    more = {key: asks.pop(key) for key in list(asks) if key in Shape.__struct_fields__ and key != "request"}
    shape = shape or Shape(request=request(**asks), **more)
    wish = TopologyWish(required_level=rack, preferred_level=prefer)
    return Role(name=name, shape=shape, replicas=count, minimum=minimum, topology=wish)


def gang(name="g", *roles, minimum=None, queue="q", priority=0, order=0, rack="", prefer="", members=(), **more):
    roles = roles or (role(),)
    waiting = [
        Member(
            uid=f"{name}-{one.name}-{number}",
            name=f"{name}-{one.name}-{number}",
            role=one.name,
            state=MemberState.WAITING,
        )
        for one in roles
        for number in range(one.replicas)
    ]
    total = sum(one.replicas for one in roles)
    return Gang(
        key=f"ns/{name}",
        uid=f"uid-{name}",
        queue=queue,
        priority=priority,
        order=order,
        minimum=total if minimum is None else minimum,
        roles=tuple(roles),
        members=(*members, *waiting),
        topology=TopologyWish(required_level=rack, preferred_level=prefer),
        namespace="ns",
        **more,
    )


def standing(name, on, role="w", state=MemberState.BOUND, cards=()):
    return Member(uid=name, name=name, role=role, state=state, node=on, cards=cards)


def whole(*indexes, mib=81_920):
    return tuple(CardUse(index=index, memory_mib=mib, core_percent=100, whole=True) for index in indexes)


def queue(name="q", parent=None, deserved=None, capability=None, **more):
    return Queue(
        name=name,
        parent=parent,
        deserved=Limits(amounts=deserved or {}),
        capability=Limits(amounts=capability or {}),
        **more,
    )


def snapshot(nodes, gangs, queues=None, levels=LEVELS, **more):
    return Snapshot(
        nodes=tuple(nodes), queues=tuple(queues or (queue(),)), gangs=tuple(gangs), topology_levels=levels, **more
    )


def run(state, memory=None, now=100.0, policy=None, **more):
    return decide(state, memory or CoreMemory(), now, policy or Policy(), **more)


def placed(decision):
    """{gang name: sorted nodes}"""
    return {
        one.gang.partition("/")[2]: sorted(slot.node for slot in one.slots)
        for one in decision.instructions
        if isinstance(one, Place)
    }


def reasons(decision):
    """{gang name: Pending}"""
    return {one.gang.partition("/")[2]: one for one in decision.instructions if isinstance(one, Pending)}
