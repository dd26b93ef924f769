"""Why each gang that was not placed waits, asked of the room as it is after the round's placements.

Asked in this order: held · predicates · queue limit · larger than an empty cluster · behind others ·
one share too large · domain · room.
Computed once per (queue, what is asked, priority standing), since equal gangs of one queue wait for the same reason.
"""

from collections.abc import Iterable, Mapping

from muster.decide.asks import Ask
from muster.decide.explaining.fitting import neighbours, never, no_room, too_large, topology
from muster.decide.explaining.limits import capability, not_allowed
from muster.decide.explaining.nodes import no_node, unknown_level
from muster.decide.explaining.words import Why, asked_roles, asks_text
from muster.decide.ordering import gang_key_order
from muster.decide.placement.greedy import Greedy
from muster.decide.reasons import NEVER, Reason, count, known_name
from muster.decide.room import Room
from muster.decide.scheduling.holds import Held
from muster.decide.scheduling.state import Round
from muster.model.gangs import Gang
from muster.model.instructions import Pending
from muster.model.units import GangKey, QueueName


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
        unknown = unknown_level(self.room, ask)
        if unknown is not None:
            return unknown
        for role in asked_roles(ask):
            refused = no_node(self.room, role)
            if refused is not None:
                return refused
        return (
            capability(self.work, ask)
            or never(self.empty, self.work.packing, ask)
            or self._behind(ask)
            or not_allowed(self.work, ask)
            or too_large(self.room, ask)
            or topology(self.room, ask)
            or neighbours(self.room, ask)
            or no_room(self.room, ask)
        )

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
        names = ", ".join(known_name(gang.key) for gang in same[:3]) + (" …" if len(same) > 3 else "")
        return Why(
            Reason.BEHIND,
            f"asks {asks_text(ask)}; the room goes to {count(len(ahead), 'job')} ahead of it: {names}",
            {"ahead": len(ahead)},
        )
