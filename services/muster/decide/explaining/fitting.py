"""Whether there is room: in an empty cluster, on one card, in one domain, beside other pods, at all."""

import msgspec
import numpy as np

from muster.decide.asks import Ask
from muster.decide.explaining.words import Numbers, Why, asked_roles, asks_text, wishes
from muster.decide.placement.feasibility import admission, allowed, capacity, share_fits
from muster.decide.placement.greedy import Greedy
from muster.decide.reasons import Reason, count
from muster.decide.room import Room
from muster.decide.topology import domain_name, domains, level_name, resolve
from muster.model.policy import Packing
from muster.model.quantity import format_bytes, format_cpu


def never(empty: Room, packing: Packing, ask: Ask) -> Why | None:
    """It is larger than the cluster, or than every domain, when empty."""
    mark = empty.mark()
    fits = Greedy(empty, packing).minimum(ask)
    empty.rollback(mark)
    if fits is not None:
        return None
    possible = {role.name: int(capacity(empty, role.shape).sum()) for role in ask.roles}
    for role in ask.roles:
        if possible[role.name] < role.need:
            return _larger(ask, role.need, possible[role.name], role.name)
    all_roles = sum(min(possible[role.name], len(role.waiting)) for role in ask.roles)
    if all_roles < ask.minimum:
        return _larger(ask, ask.minimum, all_roles)
    return topology(empty, ask, never=True)


def _larger(ask: Ask, asked: int, possible: int, role: str = "") -> Why:
    return Why(
        Reason.NEVER_FITS,
        f"asks {asks_text(ask)} together; the whole cluster, when empty, holds {possible} of {asked} {role or 'pods'}",
        {"asked": asked, "possible": possible},
    )


def too_large(room: Room, ask: Ask) -> Why | None:
    """One share that no single card has free, though the node would do."""
    for role in asked_roles(ask):
        share = role.shape.request.share
        if share is None or int(capacity(room, role.shape).sum()):
            continue
        fleet = room.fleet
        rows = admission(fleet, role.shape).rows
        if (share_fits(room, role.shape.request)[rows] > 0).any():
            continue
        memory = int(room.card_memory[rows].max(initial=0))
        core = int(room.card_core[rows].max(initial=0))
        asks = " and ".join(
            text
            for text in (
                f"{share.memory_mib} MiB" if share.memory_mib else "",
                f"{share.core_percent} % of the core" if share.core_percent else "",
            )
            if text
        )
        return Why(
            Reason.CARD_SHARE_TOO_LARGE,
            f"asks {asks} of one card; the most free on one card is {memory} MiB, and {core} % of a core",
            {
                "asked_mib": share.memory_mib,
                "asked_core_percent": share.core_percent,
                "largest_mib": memory,
                "largest_core_percent": core,
            },
        )
    return None


def topology(room: Room, ask: Ask, *, never: bool = False) -> Why | None:
    """Enough room in all, but in no domain of the level that is required."""
    for role, wish, wanted in wishes(ask):
        level = resolve(room.fleet, wish).required
        if level is None or not wanted:
            continue
        codes = domains(room.fleet, level)
        shapes = [role.shape] if role is not None else [one.shape for one in asked_roles(ask)]
        fits = np.sum([capacity(room, shape) for shape in dict.fromkeys(shapes)], axis=0)
        if not fits.size or int(fits.sum()) < wanted:
            continue
        inside = codes >= 0
        if not inside.any():
            continue
        sums = np.bincount(codes[inside], weights=fits[inside]).astype(np.int64)
        best = int(np.argmax(sums))
        name = domain_name(room.fleet, level, int(np.flatnonzero(codes == best)[0]))
        label = level_name(room.fleet, level)
        if int(sums[best]) >= wanted and len(ask.roles) == 1 and not ask.standing:
            continue
        when = "even when empty, " if never else ""
        holds = f"{int(sums[best])} of {wanted}" if int(sums[best]) < wanted else "each, but not for all together"
        return Why(
            Reason.NEVER_FITS if never else Reason.TOPOLOGY_UNFIT,
            f"asks {asks_text(ask)} in one {label}; {when}the best, {name}, has room for {holds}",
            {"asked": wanted, "best": name, "best_fits": int(sums[best]), "level": label},
        )
    return None


def neighbours(room: Room, ask: Ask) -> Why | None:
    """Room by itself, but not where terms between pods leave it."""
    for role in asked_roles(ask):
        if not role.shape.namespace:
            continue
        alone = msgspec.structs.replace(role.shape, namespace="", labels=(), pod_terms=(), spread=())
        fits = capacity(room, alone)
        if int(fits.sum()) < max(role.need, 1):
            continue
        roomy = fits > 0
        left = allowed(room, role.shape)
        counts = {name: int((roomy & ~rows).sum()) for name, rows in left._asdict().items()}
        said = {
            "affinity": "not beside the pods that its pod affinity asks for",
            "anti": "beside pods that anti-affinity keeps apart",
            "spread": "in domains that hold more than the spread constraint allows",
        }
        nodes = int(roomy.sum())
        parts = ", ".join(f"{count(counts[name], 'node')} {text}" for name, text in said.items() if counts[name])
        wanted = role.need or ask.minimum or 1
        code = Reason.SPREAD_UNFIT if counts["spread"] >= max(counts["affinity"], counts["anti"], 1) else None
        code = code or (Reason.POD_AFFINITY_UNFIT if role.shape.pod_terms or counts["anti"] else None)
        code = code or (Reason.SPREAD_UNFIT if role.shape.spread else None)
        if code is None:
            continue
        numbers: Numbers = {"asked": wanted, "nodes": nodes, **counts}
        text = f"asks {asks_text(ask)}; of {count(nodes, 'node')} with room: {parts or 'none holds them all together'}"
        return Why(code, text, numbers)
    return None


def no_room(room: Room, ask: Ask) -> Why:
    """How many of its pods fit, and what is free where."""
    roles = asked_roles(ask) or list(ask.roles)
    role = max(roles, key=lambda one: (one.shape.request.cards, one.shape.request.cpu, one.shape.request.memory))
    rows = admission(room.fleet, role.shape).rows
    wanted = ask.minimum or 1
    fits = sum(min(int(capacity(room, one.shape).sum()), len(one.waiting)) for one in ask.roles)
    free_cards = int(np.clip(room.whole_free[rows], 0, None).sum())
    block = int(np.clip(room.whole_free[rows], 0, None).max(initial=0))
    numbers: Numbers = {"asked": wanted, "fits": min(fits, wanted), "nodes": int(rows.sum())}
    some = f"{min(fits, wanted)} of {count(wanted, 'pod')} fit now"
    text = f"asks {asks_text(ask)}; {some if fits < wanted else 'they fit one by one but not together'}"
    if role.shape.request.cards:
        numbers |= {"free_cards": free_cards, "largest_block": block}
        if free_cards:
            having, nodes = int((room.whole_free[rows] > 0).sum()), count(int(rows.sum()), "node")
            where = nodes if having == rows.sum() else f"{having} of {nodes}"
            text += f": {count(free_cards, 'card')} free on {where}, at most {block} on one"
        else:
            text += f": no card free on {count(int(rows.sum()), 'node')}"
    else:
        cpu = int(np.clip(room.free[rows, 0], 0, None).max(initial=0))
        memory = int(np.clip(room.free[rows, 1], 0, None).max(initial=0))
        numbers |= {"largest_free_cpu": cpu, "largest_free_memory": memory}
        text += f": at most {format_cpu(cpu)} cores and {format_bytes(memory)} free on one of {count(int(rows.sum()), 'node')}"
        slots = int(np.clip(room.free[rows, 2], 0, None).max(initial=0))
        if not slots:
            numbers["pod_slots"] = 0
            text += ", and no pod slot on any"
    return Why(Reason.NOT_ENOUGH_ROOM, text, numbers)
