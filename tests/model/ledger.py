"""The LEDGER as the model sees it: entries, and the memory that a reader folds out of a prefix.

    sequence = first sequence of the store + position          one entry, one sequence
    commitment = what a bind or plan entry opened and no closing entry has ended; an undoing or withdrawing entry marks it

Only commitments hold room. What `fold` returns is shared between all worlds with the same prefix and must not be changed.
"""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

LEADER, BIND, NAME, UNDOING, PLAN, WITHDRAWING, CLOSE = (
    "leader",
    "bind",
    "name",
    "undoing",
    "plan",
    "withdrawing",
    "close",
)

UNNAMED = -1
UNBOUND = -1


class Slot(NamedTuple):
    """Room for one member: its pod's name, the uid it was named with (or UNNAMED), the node."""

    name: int
    uid: int
    node: int


class Entry(NamedTuple):
    """One LEDGER entry; `fresh` is the pod freshness of the deciding view, `author` the deciding leader's epoch."""

    kind: str
    author: int
    gang: int = -1
    slots: tuple[Slot, ...] = ()
    refers: int = 0
    fresh: int = 0
    victims: tuple[int, ...] = ()


@dataclass(frozen=True)
class Commitment:
    """An open bind, plan or release: `undoing` and `withdrawing` are the sequences of the entries that end it, or 0."""

    sequence: int
    kind: str
    gang: int
    slots: tuple[Slot, ...]
    victims: tuple[int, ...] = ()
    undoing: int = 0

    def uids(self) -> tuple[int, ...]:
        """Every uid that something may be under way for: the members to be bound or undone, the victims of a plan."""
        if self.kind == PLAN:
            return self.victims
        return tuple(slot.uid for slot in self.slots if slot.uid != UNNAMED)


@dataclass
class Memory:
    """What a prefix of the LEDGER says."""

    leader: int = 0
    leader_epoch: int = 0
    commitments: dict[int, Commitment] = field(default_factory=dict)
    placed: dict[int, tuple[int, tuple[Slot, ...]]] = field(default_factory=dict)
    named_at: dict[int, int] = field(default_factory=dict)
    bound_before: bool = False

    def of(self, gang: int) -> Commitment | None:
        """The newest open commitment of a gang."""
        return next((c for c in reversed(self.commitments.values()) if c.gang == gang), None)

    def victims(self) -> frozenset[int]:
        """Every uid that some open plan means to evict."""
        return frozenset(uid for c in self.commitments.values() for uid in c.victims)


@cache
def fold(entries: tuple[Entry, ...], base: int) -> Memory:
    """Fold a prefix whose first entry has sequence base + 1."""
    memory = Memory()
    for sequence, entry in enumerate(entries, start=base + 1):
        if entry.kind == LEADER:
            memory.leader, memory.leader_epoch = sequence, entry.author
        elif entry.kind in {BIND, PLAN}:
            memory.bound_before = True
            memory.commitments.pop(entry.refers, None)  # the plan that this bind consumes
            memory.placed.pop(entry.gang, None)
            memory.commitments[sequence] = Commitment(sequence, entry.kind, entry.gang, entry.slots, entry.victims)
        elif entry.kind == NAME:
            _name(memory, entry)
        elif entry.kind in {UNDOING, WITHDRAWING}:
            memory.placed.pop(entry.gang, None)
            open_entry = memory.commitments.get(entry.refers)
            memory.commitments[entry.refers or sequence] = (
                replace(open_entry, undoing=sequence)
                if open_entry
                else Commitment(sequence, UNDOING, entry.gang, entry.slots, (), sequence)
            )
        else:
            ended = memory.commitments.pop(entry.refers)
            if not ended.undoing:
                memory.placed[ended.gang] = (entry.fresh, ended.slots)
        for uid in [slot.uid for slot in entry.slots if slot.uid != UNNAMED] + list(entry.victims):
            memory.named_at[uid] = max(memory.named_at.get(uid, 0), entry.fresh)
    return memory


def _name(memory: Memory, entry: Entry) -> None:
    uids = {slot.name: slot.uid for slot in entry.slots}
    open_entry = memory.commitments.get(entry.refers)
    if open_entry is None:  # only without rule F-new-uid-no-slot: a slot that was closed long ago is taken up again
        memory.commitments[entry.refers] = Commitment(entry.refers, BIND, entry.gang, entry.slots)
        return
    slots = tuple(Slot(s.name, uids.get(s.name, s.uid), s.node) for s in open_entry.slots)
    memory.commitments[entry.refers] = replace(open_entry, slots=slots)
