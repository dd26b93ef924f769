"""Whether evictions are paused: `muster pause evict` is kept in the LEDGER, in the memory named ``pauses``."""

from muster.decide.commitments import LedgerView

PAUSES = "pauses"
EVICT = "evict"


def evictions_paused(view: LedgerView) -> bool:
    """Whether nobody may be evicted now."""
    return bool(view.memory.get(PAUSES, {}).get(EVICT))
