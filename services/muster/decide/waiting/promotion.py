"""Promotion: who waited longer than it should goes before the others of its queue, and is reserved for first."""

from collections.abc import Iterable

from muster.decide.asks import Ask
from muster.decide.memory import CoreMemory
from muster.model.gangs import Gang
from muster.model.policy import Policy
from muster.model.units import GangKey


def longest_wait(gang: Gang, policy: Policy) -> float:
    """Seconds after which the gang is promoted: its wish within its queue's rules, never more than the policy's."""
    most = policy.waiting.max_wait
    wish = gang.timing.max_wait
    return min(max(wish, policy.rules(gang.queue).max_wait_min), most) if wish else most


def promoted(asks: Iterable[Ask], memory: CoreMemory, now: float, policy: Policy) -> dict[GangKey, float]:
    """Gangs that waited so long, each with the moment since when it has waited: since it was submitted, or lost its room."""
    lost = {one.gang: one.at for one in memory.evictions}
    found: dict[GangKey, float] = {}
    for ask in asks:
        gang = ask.gang
        if not ask.minimum or gang.submitted <= 0:
            continue
        since = max(gang.submitted, lost.get(gang.key, 0.0))
        if now - since >= longest_wait(gang, policy):
            found[gang.key] = since
    return found
