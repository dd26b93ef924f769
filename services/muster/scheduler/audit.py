"""Committed entries as messages of the audit log (DECISIONS), each about one gang or one node.

bind, undo, close    the gang's own start, and its end
plan                 nominate: the gang that gets room; preempt: each gang that pods leave; move: each that is placed again
withdrawing          undo, of the gang that was to get room
cordon, removable, uncordon, node-close    the node's own
"""

from collections import Counter
from collections.abc import Callable, Iterator

from muster.bus.messages import Decision, DecisionVerb
from muster.decide.reasons import count, known_name
from muster.model.ledger import (
    Bind,
    Close,
    Cordon,
    Entry,
    NodeClose,
    Plan,
    Removable,
    Uncordon,
    Undoing,
    Withdrawing,
)
from muster.model.units import GangKey, Sequence


def decisions_of(
    entry: Entry, *, sequence: Sequence, epoch: Sequence, at: float, named: Callable[[GangKey], str] = known_name
) -> Iterator[Decision]:
    """What is said of an entry; nothing of leaders and memory. `at` is Unix seconds, `named` how people call a gang."""
    match entry:
        case Bind():
            nodes = len({slot.node for slot in entry.slots})
            yield Decision(
                verb="bind",
                gang=entry.gang,
                message=f"{count(len(entry.slots), 'pod')} on {count(nodes, 'node')}",
                slots=entry.slots,
                epoch=epoch,
                sequence=sequence,
                at=at,
            )
        case Undoing():
            yield Decision(
                verb="undo",
                gang=entry.gang,
                code=entry.reason,
                message=entry.message,
                slots=entry.slots,
                epoch=epoch,
                sequence=sequence,
                at=at,
            )
        case Close():
            yield Decision(verb="close", gang=entry.gang, code=entry.outcome, epoch=epoch, sequence=sequence, at=at)
        case Plan():
            yield from _of_plan(entry, named(entry.gang), sequence=sequence, epoch=epoch, at=at)
        case Withdrawing():
            yield Decision(
                verb="undo",
                gang=entry.gang,
                code=entry.reason,
                message="the plan to make room for it is taken back: "
                + (entry.message or entry.reason).replace(entry.gang, named(entry.gang)),
                numbers={"plan": entry.plan},
                epoch=epoch,
                sequence=sequence,
                at=at,
            )
        case Cordon():
            yield _of_node("cordon", entry.node, entry.reason, entry.message, sequence=sequence, epoch=epoch, at=at)
        case Removable():
            why = "it is cordoned, and nothing stands on it: it may be removed"
            yield _of_node("cordon", entry.node, "REMOVABLE", why, sequence=sequence, epoch=epoch, at=at)
        case Uncordon():
            yield _of_node("uncordon", entry.node, entry.reason, entry.message, sequence=sequence, epoch=epoch, at=at)
        case NodeClose():
            yield _of_node("close", entry.node, entry.outcome, "", sequence=sequence, epoch=epoch, at=at)
        case _:
            return


def _of_node(
    verb: DecisionVerb, node: str, code: str, message: str, *, sequence: Sequence, epoch: Sequence, at: float
) -> Decision:
    return Decision(verb=verb, node=node, code=code, message=message, epoch=epoch, sequence=sequence, at=at)


def _of_plan(plan: Plan, room_for: str, *, sequence: Sequence, epoch: Sequence, at: float) -> Iterator[Decision]:
    leaving = Counter(victim.gang for victim in plan.victims)
    moved = {one.gang: one for one in plan.nominated if one.gang != plan.gang}
    grace = max((victim.evict_after for victim in plan.victims), default=at) - at
    for one in plan.nominated:
        if one.gang == plan.gang:
            yield Decision(
                verb="nominate",
                gang=plan.gang,
                code=plan.cause,
                message=plan.message or f"{count(len(plan.victims), 'pod')} of other jobs leave for it",
                numbers={
                    "pods": len(one.slots),
                    "victims": len(plan.victims),
                    "victim_gangs": len(leaving),
                    "grace_seconds": round(max(0.0, grace), 3),
                },
                slots=one.slots,
                epoch=epoch,
                sequence=sequence,
                at=at,
            )
    for gang, pods in leaving.items():
        again = moved.get(gang)
        first = min(victim.evict_after for victim in plan.victims if victim.gang == gang)
        yield Decision(
            verb="preempt" if again is None else "move",
            gang=gang,
            code=plan.cause,
            message=f"{count(pods, 'pod')} of it {'leaves' if pods == 1 else 'leave'} for {room_for}"
            + (f": {plan.message}" if plan.message else ""),
            numbers={"pods": pods, "for": room_for, "grace_seconds": round(max(0.0, first - at), 3)},
            slots=again.slots if again is not None else (),
            epoch=epoch,
            sequence=sequence,
            at=at,
        )
