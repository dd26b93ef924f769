"""What a queue may not be charged: its capability and its parents', and what is guaranteed to others."""

from collections.abc import Mapping

from muster.decide.asks import Ask
from muster.decide.explaining.words import Why
from muster.decide.reasons import Reason, format_amount
from muster.decide.scheduling.state import Round, least_charge


def capability(work: Round, ask: Ask) -> Why | None:
    """The least that it can be charged is above a limit, or above what is left of it."""
    charge = least_charge(work.room, ask)
    if ask.minimum == 0:
        charge = {}
    tree = work.tree
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
    return _over(work, ask, charge) or _guarantees(work, ask, charge)


def _over(work: Round, ask: Ask, charge: Mapping[str, int]) -> Why | None:
    over = work.tree.over_capability(ask.gang.queue, charge)
    if over is None:
        return None
    queue, resource, used, limit = over
    return Why(
        Reason.QUEUE_CAPABILITY,
        f"asks {format_amount(resource, charge[resource])}; queue {queue} uses {format_amount(resource, used)} "
        f"of its limit {format_amount(resource, limit)}",
        {"asked": charge[resource], "used": used, "capability": limit, "resource": resource, "queue": queue},
    )


def not_allowed(work: Round, ask: Ask) -> Why | None:
    """There is room, but where the gang fits its queue would be charged more than it may use."""
    if ask.minimum == 0 or not any(work.tree.queues[name].capability for name in work.tree.path(ask.gang.queue)):
        return None
    mark = work.room.mark()
    landed = work.greedy(thrifty=True).minimum(ask)
    work.room.rollback(mark)
    if landed is None:
        return None
    charge = work.charge_of(ask, landed)
    return _over(work, ask, charge) or _guarantees(work, ask, charge)


def _guarantees(work: Round, ask: Ask, charge: Mapping[str, int]) -> Why | None:
    over = work.tree.over_guarantees(ask.gang.queue, charge)
    if over is None:
        return None
    resource, free, kept = over
    return Why(
        Reason.GUARANTEE_RESERVED,
        f"asks {format_amount(resource, charge[resource])}; of {format_amount(resource, free)} free, "
        f"{format_amount(resource, kept)} are guaranteed to other queues",
        {"asked": charge[resource], "free": free, "guaranteed": kept, "resource": resource},
    )
