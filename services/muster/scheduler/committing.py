"""What a decision becomes: bind entries of what still holds of it, and appends that carry the core's memory along.

Room that plans nominate is no part of the memory that is kept: the LEDGER's open plans say it.
"""

from collections.abc import Callable, Iterable

import msgspec

from muster.decide.commitments import LedgerView, nominations
from muster.decide.memory import CORE, CoreMemory, card_refused, evicted, gang_failed, node_refused
from muster.model.instructions import Place, Slot
from muster.model.ledger import Bind, Entry, Memory, Plan, Undoing
from muster.model.pods import CardUse, Shape
from muster.model.policy import Timeouts
from muster.model.units import NodeName, PodUid, Sequence
from muster.scheduler.book import Book
from muster.scheduler.reporting import Reporter
from muster.view.world import News, World

READ_ELSEWHERE = ("reservations", "backfilled", "shares_since")
"""Parts of the core's memory that the preemptor plans by: they are written soon, by an append of their own when there is no other."""
SHARED_SECONDS = 2.0
"""How often these are written at the most."""
MEMORY_SECONDS = 60.0
"""How often the core's memory is written when no back-off in it has changed."""
VOLUME_REFUSALS = 3
"""The node is left alone for longer than the gang that is taken back for it, or it would be tried again with it."""
LARGEST_COMMIT = 20_000
"""Slots and victims. What is over goes into the next commit."""


class Committing:
    """The appends of one leadership, and the core's memory between them."""

    def __init__(
        self,
        *,
        world: World,
        book: Book,
        reporter: Reporter,
        timeouts: Timeouts,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._world = world
        self._book = book
        self._reporter = reporter
        self.timeouts = timeouts
        self._clock = clock
        self._wall = wall
        self.memory = CoreMemory()
        """What the core remembers, as far as decisions were committed."""
        self._saved = self.memory
        self._saved_at = clock()
        self._refusals: list[tuple[NodeName, Shape, tuple[CardUse, ...]]] = []

    def begin(self, memory: CoreMemory) -> None:
        """Go on from what the last leader left."""
        self.keep(memory)
        self._saved = self.memory

    def keep(self, memory: CoreMemory) -> None:
        """The core remembers this from now on; the room that the LEDGER nominates is left out of it."""
        self.memory = msgspec.structs.replace(memory, nominations=()) if memory.nominations else memory

    def kubelet_refused(self, node: NodeName, shape: Shape, cards: tuple[CardUse, ...]) -> None:
        """The next decision learns that a kubelet would not admit a pod of this shape, or not with these cards."""
        self._refusals.append((node, shape, cards))

    def volume_refused(self, node: NodeName, shape: Shape) -> None:
        """The next decision learns that no volume is made on the node for a pod of this shape."""
        self._refusals += [(node, shape, ())] * VOLUME_REFUSALS

    def remembering(self, view: LedgerView) -> CoreMemory:
        """The memory with what was learned since the last decision, and the room that the LEDGER nominates."""
        refusals, self._refusals = self._refusals, []
        now, timeouts = self._wall(), self.timeouts
        for node, shape, cards in refusals:
            self.memory = node_refused(self.memory, node, shape, now=now, timeouts=timeouts)
            self.memory = card_refused(self.memory, node, cards, now=now, timeouts=timeouts)
        return msgspec.structs.replace(self.memory, nominations=nominations(view))

    def still_holds(self, place: Place, upset: "Upset") -> bool:
        """Whether what the decision looked at is unchanged for these slots: their pods wait, their nodes are no fuller."""
        for slot in place.slots:
            pod = self._world.by_uid.get(slot.uid)
            if pod is None or pod.node is not None or pod.finished or pod.terminating or pod.gated:
                return False
            if slot.uid in upset.victims or slot.node in upset.nodes or slot.node not in self._world.nodes:
                return False
        return True

    def bind(self, place: Place, *, freshness: str) -> Bind:
        """The entry that promises what a place says."""
        return Bind(
            gang=place.gang,
            gang_uid=place.gang_uid,
            slots=tuple(completed(slot, self._world) for slot in place.slots),
            decided_at=self._wall(),
            freshness=freshness,
        )

    async def commit(self, entries: tuple[Entry, ...], memory: CoreMemory, *, expected: Sequence) -> Sequence | None:
        """Append the entries, with the memory when it is worth it; None: the view has moved on, and nothing is as if done.

        An undoing makes its gang back off; what a plan evicts is remembered for the limits on evictions.

        Raises:
            Deposed: a newer leader has taken over.
        """
        for entry in entries:
            if isinstance(entry, Undoing):
                memory = gang_failed(memory, entry.gang, now=self._wall(), timeouts=self.timeouts)
            if isinstance(entry, Plan):
                memory = evicted(memory, entry, self._wall())
        if memory.nominations:
            memory = msgspec.structs.replace(memory, nominations=())
        shared = self._is_waited_for(memory)
        if not entries and not shared:
            self.memory = memory
            return expected
        note = shared or self._is_worth_saving(memory)
        with_note = (*entries, Memory(core=CORE, value=memory.to_data())) if note else entries
        sequence = await self._book.append(with_note, expected=expected, at=self._wall())
        if sequence is None:
            return None
        self.memory = memory
        if note:
            self._saved, self._saved_at = memory, self._clock()
        self._reporter.committed(with_note, sequence, self._book.token)
        return sequence

    def _is_waited_for(self, memory: CoreMemory) -> bool:
        """The preemptor reads the memory from the LEDGER: what it plans by must not be a minute old."""
        if self._clock() - self._saved_at < SHARED_SECONDS:
            return False
        return any(getattr(memory, name, None) != getattr(self._saved, name, None) for name in READ_ELSEWHERE)

    def _is_worth_saving(self, memory: CoreMemory) -> bool:
        """Back-offs and evictions must outlive us; what else the core remembers may be a minute old."""
        saved = self._saved
        if (memory.gangs, memory.nodes, memory.cards) != (saved.gangs, saved.nodes, saved.cards):
            return True
        if memory.evictions != saved.evictions:
            return True
        return memory != self._saved and self._clock() - self._saved_at > MEMORY_SECONDS


class Upset:
    """What a decision made before the news may not count on: nodes that changed, or took a pod that was not expected there.

    Nor is a pod ever bound that a plan evicts.
    """

    def __init__(self, news: News, view: LedgerView) -> None:
        expected: set[tuple[PodUid, NodeName]] = set()
        if news.arrived:
            expected = {(slot.uid, slot.node) for entry in view.open.values() for slot in entry.slots}
        self.nodes = news.changed | {node for uid, node in news.arrived if node and (uid, node) not in expected}
        self.victims = view.victims()


def completed(slot: Slot, world: World) -> Slot:
    """The slot with its pod's request and its node's uid, as an entry names it; what is not there is left as it is."""
    pod, node = world.by_uid.get(slot.uid), world.nodes.get(slot.node)
    return msgspec.structs.replace(
        slot,
        request=pod.shape.request if pod is not None else slot.request,
        node_uid=node.uid if node is not None else slot.node_uid,
    )


def within_one_commit(entries: Iterable[Entry]) -> Iterable[Entry]:
    """As many of the entries as one commit takes, at least one."""
    total = 0
    for number, entry in enumerate(entries):
        total += _size(entry)
        if number and total > LARGEST_COMMIT:
            return
        yield entry


def _size(entry: Entry) -> int:
    match entry:
        case Bind() | Undoing():
            return len(entry.slots)
        case Plan():
            return len(entry.victims) + sum(len(one.slots) for one in entry.nominated)
        case _:
            return 1
