"""What happens around the leaders: owners, users, kubelets, nodes, another scheduler, an emptied store."""

from collections.abc import Iterator

from tests.model.explore import Step
from tests.model.ledger import UNBOUND
from tests.model.world import Phase, Pod, Room, World, pod_name, write_pod

FORGED = 1000
"""A fence that no LEDGER ever gives; a user may also write one that it will give soon."""
INCARNATION = 100
"""Stands for 2^40: how far a re-created store starts above the old one."""


def surroundings(world: World, *, fair: bool, above: bool) -> Iterator[Step]:
    """Every step of the environment; `fair`: no faults, owners always recreate; `above`: a new store starts above the old."""
    for name in range(len(world.pods)):
        yield from _pod(world, name, fair=fair)
    if fair:
        return
    for node, room in enumerate(world.nodes):
        used = any(p is not None and p.node == node for p in world.pods)
        for what, then in (("vanish", Room.VANISHED), ("foreign", Room.TAKEN)):
            spent = world.budget.spend(what)
            if room == Room.OURS and spent and not (used and what == "foreign"):
                nodes = (*world.nodes[:node], then, *world.nodes[node + 1 :])
                label = f"node n{node} vanishes" if what == "vanish" else f"another scheduler takes n{node}"
                yield Step(what, label, world._replace(nodes=nodes, budget=spent, revision=world.revision + 1))
    spent = world.budget.spend("lose_store")
    if spent:
        base = world.base + INCARNATION if above else 0
        after = world._replace(
            ledger=(),
            base=base,
            incarnation=world.incarnation + 1,
            lost=world.ledger,
            net=tuple(r for r in world.net if r.kind != "append"),
            budget=spent,
        )
        yield Step("lose", f"the LEDGER is emptied and re-created; its next sequence is {base + 1}", after)


def _pod(world: World, name: int, *, fair: bool) -> Iterator[Step]:
    pod = world.pods[name]
    size = len(world.pods)
    if pod is None:
        spent = world.budget if fair else world.budget.spend("recreate")
        if spent:
            generation = world.generations[name] + 1
            generations = (*world.generations[:name], generation, *world.generations[name + 1 :])
            new = Pod(name + size * generation, UNBOUND)
            after = write_pod(world._replace(budget=spent, generations=generations), name, new)
            yield Step("recreate", f"pod {pod_name(new.uid, size)} is created", after)
        return
    called = pod_name(pod.uid, size)
    room = world.nodes[pod.node] if pod.node != UNBOUND else Room.OURS
    if room == Room.VANISHED:
        yield Step("kubelet", f"{called} is collected with its vanished node", write_pod(world, name, None))
    elif pod.phase == Phase.TERMINATING or (fair and pod.phase == Phase.TERMINAL):
        yield Step("kubelet", f"{called} is gone", write_pod(world, name, None))
    elif pod.phase == Phase.ALIVE and room == Room.TAKEN:
        refused = write_pod(world, name, pod._replace(phase=Phase.TERMINAL))
        yield Step("kubelet", f"the kubelet refuses {called}: OutOfgpu", refused)
    if pod.phase == Phase.ALIVE and not fair and (spent := world.budget.spend("forge")):
        for fence in (FORGED, world.base + len(world.ledger) + 1, world.base + len(world.ledger) + 2):
            forged = write_pod(world._replace(budget=spent), name, pod._replace(fence=fence, forged=True))
            yield Step("forge", f"the user of {called} writes the fence {fence} on it", forged)
    if pod.phase == Phase.ALIVE and not fair and (spent := world.budget.spend("delete")):
        gone = pod._replace(phase=Phase.TERMINATING) if pod.node != UNBOUND else None
        label = f"{called} is deleted by its user"
        yield Step("delete", label, write_pod(world._replace(budget=spent), name, gone))
