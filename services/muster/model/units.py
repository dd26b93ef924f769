"""Units and names as types of their own, so that numbers and strings that look alike cannot be swapped.

All amounts are integers: CPU in thousandths, memory in bytes (node memory) or MiB (card memory), cards in millionths
where shares are summed, so that 0.2 of a card is exact.
"""

from typing import NewType

MilliCpu = NewType("MilliCpu", int)
Bytes = NewType("Bytes", int)
MiB = NewType("MiB", int)
CorePercent = NewType("CorePercent", int)
CardCount = NewType("CardCount", int)
CardIndex = NewType("CardIndex", int)
CardMillionths = NewType("CardMillionths", int)
Seconds = NewType("Seconds", float)

NodeName = NewType("NodeName", str)
QueueName = NewType("QueueName", str)
RoleName = NewType("RoleName", str)
PodUid = NewType("PodUid", str)
GangKey = NewType("GangKey", str)
"""``namespace/name`` of the PodGroup, or of the pod that stands for one."""
Sequence = NewType("Sequence", int)
"""A sequence number of the LEDGER or STATE stream; the incarnation is its high part (see `incarnation_of`)."""

ONE_CARD = CardMillionths(1_000_000)
WHOLE_CORE = CorePercent(100)
INCARNATION_SHIFT = 40


def incarnation_of(sequence: Sequence) -> int:
    """The incarnation of the stream that gave this sequence: a re-created stream starts at incarnation × 2^40."""
    return sequence >> INCARNATION_SHIFT


def first_sequence(incarnation: int) -> Sequence:
    """The first sequence of a stream of this incarnation. The first incarnation, 0, starts at 1."""
    return Sequence(max(1, incarnation << INCARNATION_SHIFT))


def gang_key(namespace: str, name: str) -> GangKey:
    """The key of the gang that the PodGroup ``namespace/name`` makes."""
    return GangKey(f"{namespace}/{name}")


def split_key(key: str) -> tuple[str, str]:
    """Namespace and name of a ``namespace/name`` key; a key without a slash has the namespace ''."""
    namespace, _, name = key.rpartition("/")
    return namespace, name
