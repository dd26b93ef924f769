"""Who has to leave for a reservation, as far as a plan asks: see `muster.decide.waiting.eviction`."""

from muster.decide.memory import CoreMemory
from muster.decide.preemption.candidates import Owes
from muster.decide.waiting.eviction import may_evict_for_reservation
from muster.model.policy import Policy


def owes_of(memory: CoreMemory, now: float, policy: Policy) -> Owes | None:
    """The question for each unit; None where nothing is reserved and nobody runs on that condition."""
    if not memory.reservations and not memory.backfilled:
        return None
    return lambda gang, unit: may_evict_for_reservation(
        memory, gang, unit.gang, [member.uid for member in unit.members], now=now, policy=policy
    )
