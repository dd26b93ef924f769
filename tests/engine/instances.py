"""Small random instances for the engine, and its parts put together as `solve_batch` does."""

import random

from muster.decide.asks import ask_of
from muster.decide.fleet import Fleet
from muster.decide.placement.engine.plan import Batch
from muster.decide.placement.exact import Exact, Item, Limit
from muster.decide.placement.greedy import Greedy
from muster.decide.room import Room
from muster.decide.shares import base_charge
from muster.model.policy import Packing
from muster.model.snapshot import Occupant
from tests.decide.build import CARD, gang, node, queue, request, role, snapshot, whole


def state(seed, *, awkward=False, nodes=6, gangs=7):
    """Racks of two or three nodes of 4 or 8 cards, partly used; more gangs than fit."""
    draw = random.Random(seed)
    made, occupants = [], []
    for number in range(nodes):
        gpus = draw.choice((4, 8, 8, 6 if awkward else 8))
        rack = number // 3
        cpu = draw.choice((64_000, 64_000, 10_000)) if awkward else 640_000
        labels = {"zone": "z", "block": f"b{rack // 2}", "rack": f"r{rack}", "model": draw.choice("ab")}
        made.append(node(f"n{number}", gpus=gpus, cpu=cpu, labels=labels))
        used = draw.choice((0, 0, 1, 2, 3, 5)) % (gpus + 1)
        if used:
            cards = whole(*sorted(draw.sample(range(gpus), used)))
            occupants.append(
                Occupant(
                    uid=f"o{number}", key=f"x/o{number}", node=f"n{number}", request=request(gpus=used), cards=cards
                )
            )
    waiting = []
    sizes = (1, 2, 3, 4, 5, 6, 8) if awkward else (1, 2, 4, 8)
    for number in range(gangs):
        parts = []
        for name in "ab"[: draw.choice((1, 1, 2))]:
            count = draw.randint(1, 3)
            size = draw.choice(sizes)
            cpu = draw.choice((1000, 4000, 30_000)) * (1 if draw.random() < 0.8 else size) if awkward else 1000 * size
            selector = (("model", draw.choice("ab")),) if draw.random() < 0.3 else ()
            parts.append(
                role(name, count=count, minimum=draw.choice((0, 1)), gpus=size, cpu=cpu, node_selector=selector)
            )
        if awkward and draw.random() < 0.25:
            parts.append(role("head", count=1, minimum=1, cpu=draw.choice((1000, 20_000))))
        if awkward and draw.random() < 0.2:
            parts.append(role("share", count=1, minimum=1, mib=8192, core=20))
        total = sum(one.replicas for one in parts)
        waiting.append(
            gang(
                f"g{number}",
                *parts,
                minimum=draw.randint(max(1, total - 2), total),
                queue=draw.choice("qp"),
                priority=draw.choice((0, 0, 0, 10)),
                order=number,
                rack=draw.choice(("", "", "rack", "block")),
                prefer=draw.choice(("", "", "rack")),
            )
        )
    limit = draw.choice(({}, {}, {"gpu": 12 * CARD}))
    return snapshot(made, waiting, queues=[queue("q", capability=limit), queue("p")], occupants=tuple(occupants))


def problem(of, *, fixed=0):
    """(items, hint of the greedy, limits, charges) of a snapshot; the first so many that landed must stay."""
    room = Room.of(of)
    limits = [
        Limit(frozenset(one.key for one in of.gangs if one.queue == row.name), name, amount)
        for row in of.queues
        for name, amount in row.capability.amounts.items()
    ]
    left = {number: limit.amount for number, limit in enumerate(limits)}
    landed, charges, items = {}, {}, []
    for number, one in enumerate(of.gangs):
        ask = ask_of(one)
        mark = room.mark()
        found = Greedy(room, Packing()).minimum(ask)
        value = 10 * sum(part.shape.request.cards or 1 for part in ask.roles) + number
        if found is not None:
            charge = {}
            for pod in found:
                for name, amount in base_charge(ask.roles[pod.role].shape.request).items():
                    charge[name] = charge.get(name, 0) + amount
            mine = [at for at, limit in enumerate(limits) if one.key in limit.gangs]
            if all(charge.get(limits[at].resource, 0) <= left[at] for at in mine):
                for at in mine:
                    left[at] -= charge.get(limits[at].resource, 0)
                landed[one.key], charges[one.key] = found, charge
            else:
                room.rollback(mark)
        items.append(Item(ask, fixed=one.key in landed and len(landed) <= fixed, value=value))
    return items, landed, limits, charges


def batch_of(of, fixed=0):
    """The batch of a snapshot's waiting gangs, hinted with the greedy."""
    items, landed, limits, charges = problem(of, fixed=fixed)
    return Batch(Room.of(of), items, limits=limits, landed=landed, charges=charges, blocked={})


def exact_of(of, fixed=0):
    """The node-level model of the same problem."""
    items, landed, limits, _ = problem(of, fixed=fixed)
    return Exact(
        Room(Fleet(of.nodes, of.topology_levels), _held(of)), items, limits=limits, hint=landed, blocked={}
    ), items


def _held(of):
    from muster.decide.held import held_by

    return held_by(of)


def value_of(batch, plan):
    """What a plan admits, with the gangs that stand aside where the greedy put them."""
    total = sum(batch.demands.entries[number].item.value for number in plan.placed)
    for bag, admitted in zip(batch.demands.bags, plan.admitted, strict=True):
        total += sum(item.value for item in bag.items[:admitted])
    return total + sum(item.value for item in batch.demands.aside if item.ask.gang.key in batch.landed)
