"""Why each gang that was not placed waits: one code, the numbers that decided, and a sentence for people.

Asked in this order: held · predicates · queue limit · larger than an empty cluster · behind others ·
one share too large · domain · room.
Computed once per (queue, what is asked, priority standing), since equal gangs of one queue wait for the same reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from muster.decide.asks import Ask, RoleAsk
from muster.decide.ordering import gang_key_order
from muster.decide.placement.feasibility import admission, allowed, capacity, share_fits
from muster.decide.placement.greedy import Greedy
from muster.decide.reasons import NEVER, Reason, count, format_amount
from muster.decide.room import Room
from muster.decide.scheduling.holds import Held
from muster.decide.scheduling.state import Round, least_charge
from muster.decide.topology import domain_name, domains, level_name, resolve
from muster.model.gangs import Gang
from muster.model.instructions import Pending
from muster.model.pods import Shape, TopologyWish
from muster.model.quantity import format_bytes, format_cpu
from muster.model.units import GangKey, QueueName

Numbers = dict[str, int | str]


class Why(NamedTuple):
    """A reason before it is tied to a gang."""

    code: str
    message: str
    numbers: Numbers
    never: bool = False
    """Nothing but a change of the job or its queue will help: it stands in no line."""


class Explainer:
    """Explains gangs against the room as it is after the round's placements."""

    def __init__(self, work: Round, *, before: int, empty: Room) -> None:
        """``before``: the mark of the room before anything was placed or held for plans."""
        self.work = work
        self.room = work.room
        self._mark = before
        self.empty = empty
        self._known: dict[object, Why] = {}
        self._before: Room | None = None
        self._ahead: list[Gang] | None = None

    def pending(self, asks: Iterable[Ask], holds: Mapping[GangKey, Held]) -> list[Pending]:
        """A pending instruction for each gang that still lacks a minimum, with its place in its queue's line."""
        lines: dict[QueueName, int] = {}
        result = []
        for ask in sorted(asks, key=lambda one: (one.gang.queue, gang_key_order(one.gang))):
            if ask.minimum == 0 and not ask.waiting:
                continue
            hold = holds.get(ask.gang.key)
            why = Why(*hold) if hold is not None else self.why(ask)
            position = 0
            if why.code not in NEVER and not why.never:
                position = lines[ask.gang.queue] = lines.get(ask.gang.queue, 0) + 1
            result.append(
                Pending(
                    gang=ask.gang.key,
                    queue=ask.gang.queue,
                    code=str(why.code),
                    message=why.message,
                    numbers=why.numbers,
                    position=position,
                )
            )
        return result

    def why(self, ask: Ask) -> Why:
        """The reason of one gang that is not held."""
        parts = tuple((role.shape, len(role.waiting), role.need, role.topology, role.standing) for role in ask.roles)
        key = (ask.gang.queue, ask.need, ask.gang.topology, parts)
        if key not in self._known:
            self._known[key] = self._why(ask)
        return self._known[key]

    def _why(self, ask: Ask) -> Why:
        fleet = self.room.fleet
        if not fleet.size or not fleet.ready.any():
            return Why(Reason.NO_NODES, "there is no ready node", {"nodes": fleet.size})
        unknown = self._unknown_level(ask)
        if unknown is not None:
            return unknown
        for role in self._asked(ask):
            refused = self._no_node(role)
            if refused is not None:
                return refused
        return (
            self._capability(ask)
            or self._never(ask)
            or self._behind(ask)
            or self._not_allowed(ask)
            or self._too_large(ask)
            or self._topology(ask)
            or self._neighbours(ask)
            or self._no_room(ask)
        )

    @staticmethod
    def _asked(ask: Ask) -> list[RoleAsk]:
        """Roles without which the minimum is not reached; every waiting one when any of them would do."""
        needed = [role for role in ask.roles if role.need]
        if sum(role.need for role in needed) >= ask.minimum > 0:
            return needed
        waiting = [role for role in ask.roles if role.waiting]
        spare = sum(len(role.waiting) for role in waiting)
        # A role may be left out when the others can still make up the gang's minimum.
        return [role for role in waiting if role.need or spare - len(role.waiting) < max(ask.minimum, 1)]

    def _unknown_level(self, ask: Ask) -> Why | None:
        for topology in (ask.gang.topology, *(role.topology for role in ask.roles)):
            unknown = resolve(self.room.fleet, topology).unknown
            if unknown:
                levels = ", ".join(self.room.fleet.topology.known)
                return Why(
                    Reason.TOPOLOGY_LEVEL_UNKNOWN,
                    f"asks for one {unknown}, but there is no such topology level; levels here: {levels}",
                    {"level": unknown},
                )
        return None

    def _no_node(self, role: RoleAsk) -> Why | None:
        fleet = self.room.fleet
        found = admission(fleet, role.shape)
        request = role.shape.request
        vector = fleet.vector(request)
        if vector is None:
            missing = [name for name, amount in request.extended if amount and name not in fleet.dimensions]
            return Why(
                Reason.NEVER_FITS, f"asks {', '.join(missing)}, which no node has", {"resource": ", ".join(missing)}
            )
        if found.rows.any():
            return None
        refusals = found.refusals()
        if request.share is not None and not fleet.shares_cards.any():
            return Why(
                Reason.SHARING_NOT_AVAILABLE,
                f"asks a share of a card, but none of the {count(fleet.size, 'node')} has a device plugin that gives out shares",
                {"nodes": fleet.size},
            )
        said = {
            "selector": "do not match the nodeSelector",
            "affinity": "do not match the node affinity",
            "volumes": "cannot reach its volumes",
            "taints": "have a taint that is not tolerated",
            "unschedulable": "are cordoned",
            "not ready": "are not ready",
            "card kind": "have no such cards",
        }
        numbers: Numbers = {"nodes": fleet.size}
        numbers.update({name.replace(" ", "_"): number for name, number in refusals.items()})
        parts = ", ".join(f"{number} {said[name]}" for name, number in refusals.items())
        what = f"{role.name}: " if role.name else ""
        return Why(Reason.NO_MATCHING_NODE, f"{what}none of {count(fleet.size, 'node')} may take it: {parts}", numbers)

    def _capability(self, ask: Ask) -> Why | None:
        charge = least_charge(self.room, ask)
        if ask.minimum == 0:
            charge = {}
        tree = self.work.tree
        for queue in tree.path(ask.gang.queue):
            for resource, limit in tree.queues[queue].capability.amounts.items():
                if charge.get(resource, 0) > limit:
                    asks, cap = format_amount(resource, charge[resource]), format_amount(resource, limit)
                    return Why(
                        Reason.QUEUE_CAPABILITY,
                        f"can never run as it is: it asks {asks}, queue {queue} is capped at {cap}",
                        {"asked": charge[resource], "capability": limit, "resource": resource, "queue": queue},
                        never=True,
                    )
        return self._over(ask, charge) or self._guarantees(ask, charge)

    def _over(self, ask: Ask, charge: Mapping[str, int]) -> Why | None:
        over = self.work.tree.over_capability(ask.gang.queue, charge)
        if over is None:
            return None
        queue, resource, used, limit = over
        return Why(
            Reason.QUEUE_CAPABILITY,
            f"asks {format_amount(resource, charge[resource])}; queue {queue} uses {format_amount(resource, used)} "
            f"of its limit {format_amount(resource, limit)}",
            {"asked": charge[resource], "used": used, "capability": limit, "resource": resource, "queue": queue},
        )

    def _not_allowed(self, ask: Ask) -> Why | None:
        """There is room, but where the gang fits its queue would be charged more than it may use."""
        if ask.minimum == 0 or not any(self.work.tree.queues[name].capability for name in self._path(ask)):
            return None
        mark = self.room.mark()
        landed = self.work.greedy(thrifty=True).minimum(ask)
        self.room.rollback(mark)
        if landed is None:
            return None
        charge = self.work.charge_of(ask, landed)
        return self._over(ask, charge) or self._guarantees(ask, charge)

    def _path(self, ask: Ask) -> Sequence[QueueName]:
        return self.work.tree.path(ask.gang.queue)

    def _guarantees(self, ask: Ask, charge: Mapping[str, int]) -> Why | None:
        over = self.work.tree.over_guarantees(ask.gang.queue, charge)
        if over is None:
            return None
        resource, free, kept = over
        return Why(
            Reason.GUARANTEE_RESERVED,
            f"asks {format_amount(resource, charge[resource])}; of {format_amount(resource, free)} free, "
            f"{format_amount(resource, kept)} are guaranteed to other queues",
            {"asked": charge[resource], "free": free, "guaranteed": kept, "resource": resource},
        )

    def _never(self, ask: Ask) -> Why | None:
        mark = self.empty.mark()
        fits = Greedy(self.empty, self.work.packing).minimum(ask)
        self.empty.rollback(mark)
        if fits is not None:
            return None
        possible = {role.name: int(capacity(self.empty, role.shape).sum()) for role in ask.roles}
        for role in ask.roles:
            if possible[role.name] < role.need:
                return self._larger(ask, role.need, possible[role.name], role.name)
        all_roles = sum(min(possible[role.name], len(role.waiting)) for role in ask.roles)
        if all_roles < ask.minimum:
            return self._larger(ask, ask.minimum, all_roles)
        return self._topology(ask, self.empty, never=True)

    def _larger(self, ask: Ask, asked: int, possible: int, role: str = "") -> Why:
        return Why(
            Reason.NEVER_FITS,
            f"asks {self._asks(ask)} together; the whole cluster, when empty, holds {possible} of {asked} {role or 'pods'}",
            {"asked": asked, "possible": possible},
        )

    def _too_large(self, ask: Ask) -> Why | None:
        """One share that no single card has free, though the node would do."""
        for role in self._asked(ask):
            share = role.shape.request.share
            if share is None or int(capacity(self.room, role.shape).sum()):
                continue
            fleet = self.room.fleet
            rows = admission(fleet, role.shape).rows
            if (share_fits(self.room, role.shape.request)[rows] > 0).any():
                continue
            memory = int(self.room.card_memory[rows].max(initial=0))
            core = int(self.room.card_core[rows].max(initial=0))
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

    def _behind(self, ask: Ask) -> Why | None:
        if not self.work.landed or ask.minimum == 0:
            return None
        if self._before is None:
            self._before = self.room.as_of(self._mark)
        mark = self._before.mark()
        fits = Greedy(self._before, self.work.packing, blocked=self.work.blocked).minimum(ask)
        self._before.rollback(mark)
        if fits is None:
            return None
        if self._ahead is None:
            landed = (one.gang for key, one in self.work.asks.items() if self.work.landed.get(key))
            self._ahead = sorted(landed, key=gang_key_order)
        ahead = self._ahead
        same = [gang for gang in ahead if gang.queue == ask.gang.queue] or ahead
        names = ", ".join(gang.key for gang in same[:3]) + (" …" if len(same) > 3 else "")
        return Why(
            Reason.BEHIND,
            f"asks {self._asks(ask)}; the room goes to {count(len(ahead), 'job')} ahead of it: {names}",
            {"ahead": len(ahead)},
        )

    def _topology(self, ask: Ask, room: Room | None = None, *, never: bool = False) -> Why | None:
        room = room or self.room
        for role, topology, wanted in self._wishes(ask):
            level = resolve(room.fleet, topology).required
            if level is None or not wanted:
                continue
            codes = domains(room.fleet, level)
            shapes = [role.shape] if role is not None else [one.shape for one in self._asked(ask)]
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
                f"asks {self._asks(ask)} in one {label}; {when}the best, {name}, has room for {holds}",
                {"asked": wanted, "best": name, "best_fits": int(sums[best]), "level": label},
            )
        return None

    def _neighbours(self, ask: Ask) -> Why | None:
        """Room by itself, but not where terms between pods leave it."""
        for role in self._asked(ask):
            if not role.shape.namespace:
                continue
            alone = msgspec.structs.replace(role.shape, namespace="", labels=(), pod_terms=(), spread=())
            fits = capacity(self.room, alone)
            if int(fits.sum()) < max(role.need, 1):
                continue
            room = fits > 0
            left = allowed(self.room, role.shape)
            counts = {name: int((room & ~rows).sum()) for name, rows in left._asdict().items()}
            said = {
                "affinity": "not beside the pods that its pod affinity asks for",
                "anti": "beside pods that anti-affinity keeps apart",
                "spread": "in domains that hold more than the spread constraint allows",
            }
            nodes = int(room.sum())
            parts = ", ".join(f"{count(counts[name], 'node')} {text}" for name, text in said.items() if counts[name])
            wanted = role.need or ask.minimum or 1
            code = Reason.SPREAD_UNFIT if counts["spread"] >= max(counts["affinity"], counts["anti"], 1) else None
            code = code or (Reason.POD_AFFINITY_UNFIT if role.shape.pod_terms or counts["anti"] else None)
            code = code or (Reason.SPREAD_UNFIT if role.shape.spread else None)
            if code is None:
                continue
            numbers: Numbers = {"asked": wanted, "nodes": nodes, **counts}
            text = f"asks {self._asks(ask)}; of {count(nodes, 'node')} with room: {parts or 'none holds them all together'}"
            return Why(code, text, numbers)
        return None

    @staticmethod
    def _wishes(ask: Ask) -> list[tuple[RoleAsk | None, TopologyWish, int]]:
        gang = (None, ask.gang.topology, ask.minimum or 1)
        return [gang, *((role, role.topology, role.need or len(role.waiting)) for role in ask.roles)]

    def _no_room(self, ask: Ask) -> Why:
        room = self.room
        roles = self._asked(ask) or list(ask.roles)
        role = max(roles, key=lambda one: (one.shape.request.cards, one.shape.request.cpu, one.shape.request.memory))
        rows = admission(room.fleet, role.shape).rows
        wanted = ask.minimum or 1
        fits = sum(min(int(capacity(room, one.shape).sum()), len(one.waiting)) for one in ask.roles)
        free_cards = int(np.clip(room.whole_free[rows], 0, None).sum())
        block = int(np.clip(room.whole_free[rows], 0, None).max(initial=0))
        numbers: Numbers = {"asked": wanted, "fits": min(fits, wanted), "nodes": int(rows.sum())}
        some = f"{min(fits, wanted)} of {count(wanted, 'pod')} fit now"
        text = f"asks {self._asks(ask)}; {some if fits < wanted else 'they fit one by one but not together'}"
        if role.shape.request.cards:
            numbers |= {"free_cards": free_cards, "largest_block": block}
            text += f": {count(free_cards, 'card')} free on {count(int(rows.sum()), 'node')}, at most {block} on one"
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

    @staticmethod
    def _asks(ask: Ask) -> str:
        """``4 pods × 8 cards``."""
        parts = []
        for role in ask.roles:
            number = role.need or (len(role.waiting) if len(ask.roles) > 1 else ask.minimum or len(role.waiting))
            if number:
                parts.append(f"{count(number, 'pod')} × {_request_text(role.shape)}")
        return " + ".join(parts) or "nothing"


def _request_text(shape: Shape) -> str:
    request = shape.request
    if request.share is not None:
        parts = [f"{request.share.memory_mib} MiB"] if request.share.memory_mib else []
        parts += [f"{request.share.core_percent} %"] if request.share.core_percent else []
        return f"a share of a card ({', '.join(parts)})" if parts else "a share of a card"
    if request.cards:
        return count(request.cards, "card")
    if request.cpu or request.memory:
        return f"{format_cpu(request.cpu)} cores, {format_bytes(request.memory)}"
    return "no resources"
