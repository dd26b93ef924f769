"""One gang's explanation as it is answered: what it asks, the best place and who holds it, its queue, its priority and where
that comes from, what would cure it, and what happened to it.
"""

from typing import NamedTuple

from muster.bus.queries import ExplainReply, Fact, GangRow, Moment, QueueRow
from muster.decide.doubts import annotation_doubts
from muster.decide.explaining.details import Details
from muster.decide.explaining.fixes import fixes_of
from muster.decide.lifecycle.queues import NAMESPACE_ANNOTATIONS, OBJECT_ANNOTATIONS
from muster.decide.reasons import count, format_amount
from muster.model.gangs import Gang
from muster.model.instructions import Pending
from muster.model.pods import Request
from muster.model.quantity import format_bytes, format_cpu
from muster.model.units import ONE_CARD
from muster.view.world import World


class Subject(NamedTuple):
    """What is explained, as the scheduler knows it now."""

    gang: Gang
    row: GangRow
    reason: Pending | None
    queue: QueueRow | None
    history: tuple[Moment, ...]
    ignored: tuple[str, ...] = ()
    """Wishes that the policy does not grant."""
    for_it: str = ""
    """Who leaves for it under an open plan."""
    plans: tuple[tuple[str, str], ...] = ()
    """Label and text of what plans mean for it beside that."""


def reply_of(subject: Subject, details: Details, world: World) -> ExplainReply:
    """The answer. Facts that are empty are left out."""
    gang, row, reason = subject.gang, subject.row, subject.reason
    numbers = dict(reason.numbers) if reason is not None else {}
    facts = [
        ("asks", _asks(gang)),
        ("runs on", ", ".join(row.nodes)),
        ("best fit", details.best_fit),
        ("queue", _queue(subject, details, world)),
        *subject.plans,
        ("not it", details.not_it),
        ("priority", _priority(gang, world)),
        ("note", _doubts(gang, world)),
        ("not granted", "; ".join(subject.ignored)),
    ]
    start = numbers.get("estimated_start")
    return ExplainReply(
        job=row.job,
        state=row.state,
        queue=gang.queue,
        code=row.code,
        message=row.message,
        position=row.position,
        estimated_start=float(start) if isinstance(start, int) and start else None,
        numbers=dict(numbers),
        facts=tuple(Fact(label=label, text=text) for label, text in facts if text),
        fixes=fixes_of(row.code, numbers) if row.code else (),
        history=subject.history,
    )


def _queue(subject: Subject, details: Details, world: World) -> str:
    gang, row = subject.gang, subject.queue
    where = _queue_source(gang, world)
    if row is None:
        return f"{gang.queue} does not exist{where}"
    text = f"{_usage(row)}{where}"
    if subject.for_it:
        return f"{text}: entitled, so {subject.for_it}"
    return f"{text}: {details.entitled}" if details.entitled else text


def _usage(row: QueueRow) -> str:
    """``train-prod uses 8 of 48 deserved cards (64 cap)``."""
    cap = "no cap" if row.capability is None else f"{row.capability / ONE_CARD:g} cap"
    used = format_amount("gpu", row.used)
    if row.deserved is not None:
        used = f"{row.used / ONE_CARD:g} of {row.deserved / ONE_CARD:g} deserved cards"
    return f"{row.name} uses {used} ({cap})"


def _queue_source(gang: Gang, world: World) -> str:
    """Where the queue's name comes from, when it is not the job that names it."""
    namespace = world.namespaces.get(gang.namespace)
    own = world.podgroups.get(gang.key)
    marks = dict(own.annotations) if own is not None else {}
    for member in gang.members:
        pod = world.by_uid.get(member.uid)
        marks |= pod.annotations if pod is not None else {}
    if namespace is None or any(marks.get(name) == gang.queue for name in OBJECT_ANNOTATIONS):
        return ""
    for name in NAMESPACE_ANNOTATIONS:
        if namespace.annotations.get(name) == gang.queue:
            return f", named by the annotation {name} of namespace {gang.namespace}"
    return ""


def _doubts(gang: Gang, world: World) -> str:
    """Annotations that count for nothing."""
    group = world.podgroups.get(gang.key)
    marks = [group.annotations] if group is not None else []
    one_of_each = {member.role: member.uid for member in gang.members}
    marks += [pod.annotations for uid in one_of_each.values() if (pod := world.by_uid.get(uid)) is not None]
    return "; ".join(annotation_doubts(*marks))


def _priority(gang: Gang, world: World) -> str:
    """The priority that counts, and where it comes from."""
    group = world.podgroups.get(gang.key)
    pods = [pod for member in gang.members if (pod := world.by_uid.get(member.uid)) is not None]
    own = {pod.priority_class: pod.priority for pod in pods if pod.priority_class}
    named = group.priority_class if group is not None else ""
    if named and named not in world.priority_classes:
        return f"{gang.priority}: its PodGroup names the class {named}, which does not exist"
    if named:
        others = ", ".join(f"{name} ({value})" for name, value in sorted(own.items()) if name != named)
        if not others and world.priority_classes[named].global_default:
            return f"{gang.priority} (class {named}, which is the cluster's default)"
        return f"{gang.priority} (class {named} of its PodGroup{f'; its pods say {others}' if others else ''})"
    if own:
        return f"{gang.priority} (class {', '.join(sorted(own))} of its pods)"
    return f"{gang.priority} (no class)"


def _asks(gang: Gang) -> str:
    """``4 pods × 8 cards in one rack, all together``."""
    several = len(gang.roles) > 1
    parts = [
        f"{role.name + ': ' if several and role.name else ''}{count(role.replicas, 'pod')} × {_amount(role.shape.request)}"
        for role in gang.roles
    ]
    where = gang.topology.required_level
    place = f" in one {where.rpartition('/')[2]}" if where else ""
    pods = sum(role.replicas for role in gang.roles)
    if pods <= 1:
        return " + ".join(parts) + place
    together = "all together" if gang.minimum >= pods else f"at least {gang.minimum} together"
    return f"{' + '.join(parts)}{place}, {together}"


def _amount(request: Request) -> str:
    if request.share is not None:
        share = request.share
        amounts = [f"{share.memory_mib} MiB"] if share.memory_mib else []
        amounts += [f"{share.core_percent} % of the core"] if share.core_percent else []
        return f"a share of a card ({', '.join(amounts)})" if amounts else "a share of a card"
    if request.cards:
        return count(request.cards, "card")
    if request.cpu or request.memory:
        return f"{format_cpu(request.cpu)} cores, {format_bytes(request.memory)}"
    return "no card"
