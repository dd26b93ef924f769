"""The cards of one node and who holds them: the simulated hardware, which is the truth whatever annotations say.

A hold is a memory part (MiB) and a core part (percent) of one card; a whole card is all of its memory and 100 percent.
Nothing here refuses: `overcommitted` tells what would break, and the kubelet decides.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from muster.model.nodes import Card


@dataclass(frozen=True, slots=True)
class Hold:
    """What one pod has of one card."""

    uid: str
    pod: str
    """``namespace/name``."""
    memory_mib: int
    core_percent: int
    whole: bool


@dataclass(slots=True)
class CardState:
    """One card: what it is, whether it works, who holds it (by pod uid)."""

    card: Card
    healthy: bool = True
    holds: dict[str, Hold] = field(default_factory=dict)

    @property
    def memory_used_mib(self) -> int:
        """MiB held by all pods together."""
        return sum(hold.memory_mib for hold in self.holds.values())

    @property
    def core_used_percent(self) -> int:
        """Percent of the core held by all pods together."""
        return sum(hold.core_percent for hold in self.holds.values())


class NodeCards:
    """All cards of a node, by index."""

    def __init__(self, cards: Iterable[Card]) -> None:
        self.states: tuple[CardState, ...] = tuple(CardState(card) for card in cards)

    def state(self, index: int) -> CardState:
        """One card; LookupError names the indexes that exist."""
        if not 0 <= index < len(self.states):
            raise LookupError(f"card {index}: the node has cards 0 to {len(self.states) - 1}")
        return self.states[index]

    def healthy(self) -> list[CardState]:
        """The cards that work."""
        return [state for state in self.states if state.healthy]

    def unheld(self) -> list[CardState]:
        """The cards that work and that nobody holds any part of."""
        return [state for state in self.states if state.healthy and not state.holds]

    def overcommitted(self, indexes: Sequence[int], *, memory_mib: int, core_percent: int, whole: bool) -> str:
        """What would be wrong with holding this part of each of these cards; empty when nothing."""
        for index in indexes:
            if not 0 <= index < len(self.states):
                return f"card {index} does not exist"
            state = self.states[index]
            if not state.healthy:
                return f"card {index} is not healthy"
            if whole and state.holds:
                return f"card {index} is asked whole but held by {_names(state)}"
            memory = state.memory_used_mib + (state.card.memory_mib if whole else memory_mib)
            if memory > state.card.memory_mib:
                return f"card {index}: {memory} of {state.card.memory_mib} MiB would be used, with {_names(state)}"
            core = state.core_used_percent + (100 if whole else core_percent)
            if core > state.card.core_percent:
                return f"card {index}: {core} percent of its core would be used, with {_names(state)}"
        return ""

    def hold(
        self, indexes: Sequence[int], *, uid: str, pod: str, memory_mib: int, core_percent: int, whole: bool
    ) -> None:
        """Give this part of each of these cards to a pod."""
        for index in indexes:
            state = self.state(index)
            state.holds[uid] = Hold(
                uid=uid,
                pod=pod,
                memory_mib=state.card.memory_mib if whole else memory_mib,
                core_percent=100 if whole else core_percent,
                whole=whole,
            )

    def release(self, uid: str) -> None:
        """Take everything back from a pod."""
        for state in self.states:
            state.holds.pop(uid, None)

    def held_by(self, uid: str) -> tuple[int, ...]:
        """The indexes a pod holds a part of."""
        return tuple(index for index, state in enumerate(self.states) if uid in state.holds)


def _names(state: CardState) -> str:
    return ", ".join(sorted(hold.pod for hold in state.holds.values())) or "nobody"
