"""Queues, jobs and policy against practice: what no single object shows.

    Surroundings (queues, jobs, priority classes, room, policy) ─► Told: about what, and a problem or a note

A problem can never do what its writer wants; a note is something that often surprises.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

import msgspec

from muster.decide.findings import Note, Problem
from muster.decide.lifecycle.queues import ROOT
from muster.decide.queue_rules import forbidden
from muster.decide.reasons import count, format_amount
from muster.decide.spelling import meant
from muster.model.durations import format_duration
from muster.model.gangs import Gang
from muster.model.policy import Policy
from muster.model.units import GangKey, QueueName
from muster.model.workloads import Limits, PriorityClass, Queue, QueueState

MUCH_DESERVED = Fraction(60, 100)
"""Of the room: above it little is left for queues to borrow, and every loan is soon asked back."""
GOOD_MINIMUM = Fraction(80, 100)
LONG_SECONDS = 4 * 3600.0
SHORT_SECONDS = 1800.0
FEW_PODS = 5
"""Below so many a share of the pods means little."""
WORDS: Mapping[str, int] = {"critical": 4, "production": 4, "high": 3, "normal": 2, "medium": 2, "default": 2, "low": 1, "offline": 1, "idle": 0}  # fmt: skip
"""Words in names of priority classes, by how urgent they sound."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What asks for room, as far as it is judged here."""

    name: str
    """As people know it: ``Job team-a/llm``."""
    namespace: str
    queue: QueueName
    serves: bool = False
    """It runs for ever (a Deployment); else it ends."""
    priority_class: str = ""
    minimum: int = 0
    pods: int = 0
    expected: float = 0.0
    """Seconds; 0 is unknown."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is judged together."""

    queues: tuple[Queue, ...] = ()
    all_queues: bool = False
    """There are no other queues than these."""
    room: Limits = Limits()
    """What all nodes have together; a resource that is not named is not known."""
    jobs: tuple[Job, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    all_classes: bool = False
    pending: Mapping[str, int] = {}
    """Jobs that wait, by queue."""
    policy: Policy = Policy()


class Told(NamedTuple):
    """A finding, and about what: ``Queue train-prod``, ``policy``."""

    about: str
    finding: Problem | Note


def lint_queues(around: Surroundings) -> list[Told]:
    """Everything that is found."""
    queues = {queue.name: queue for queue in around.queues}
    found = [
        *(Told(f"Queue {queue.name}", one) for queue in around.queues for one in limits_in_order(queue)),
        *_parents(queues, around),
        *_sums(queues, around),
        *_closed(queues, around),
        *_jobs(queues, around),
        *_classes(around),
        *_policy(queues, around),
    ]
    return list(dict.fromkeys(found))


def limits_in_order(queue: Queue) -> Iterable[Problem]:
    """A queue's own limits: what is guaranteed is within what it deserves, and that within what it may have at most."""
    pairs = (
        ("capability", queue.capability, "deserved", queue.deserved, "it could never be used"),
        ("capability", queue.capability, "guarantee", queue.guarantee, "it could never be used"),
        ("deserved", queue.deserved, "guarantee", queue.guarantee, "what is guaranteed is deserved too"),
    )
    for high_name, high, low_name, low, why in pairs:
        for resource, amount in low.amounts.items():
            limit = high.get(resource)
            if limit is not None and limit < amount:
                yield Problem(
                    field=f"spec.{high_name}.{resource}",
                    value=_amount(resource, limit),
                    message=f"{high_name} {_amount(resource, limit)} is below {low_name} {_amount(resource, amount)}: {why}",
                )


def _parents(queues: Mapping[QueueName, Queue], around: Surroundings) -> Iterable[Told]:
    for queue in around.queues:
        parent = queue.parent
        if parent is None or parent == ROOT or parent in queues:
            circle = _circle(queue, queues)
            if circle and queue.name == min(circle):  # told once
                message = f"{queue.name} stands below itself: {' → '.join(circle)}"
                yield Told(f"Queue {queue.name}", Problem(field="spec.parent", value=str(parent), message=message))
            continue
        message = f"there is no queue {parent}{meant(parent, queues)}"
        if around.all_queues:
            yield Told(f"Queue {queue.name}", Problem(field="spec.parent", value=parent, message=message))
        else:
            yield Told(f"Queue {queue.name}", Note(field="spec.parent", message=f"{message} among these files"))


def _circle(queue: Queue, queues: Mapping[QueueName, Queue]) -> list[str]:
    passed = [str(queue.name)]
    parent = queue.parent
    while parent is not None and parent in queues and parent not in passed:
        passed.append(parent)
        parent = queues[parent].parent
    return [*passed, str(parent)] if parent == queue.name else []


def _sums(queues: Mapping[QueueName, Queue], around: Surroundings) -> Iterable[Told]:
    """What queues of one parent have together, against the parent; of the topmost ones, against the room."""
    children: dict[QueueName, list[Queue]] = {}
    for queue in around.queues:
        if queue.name != ROOT:
            children.setdefault(queue.parent or QueueName(ROOT), []).append(queue)
    for parent, below in sorted(children.items()):
        above = queues.get(parent)
        for kind, limits in (("deserved", _deserved), ("guarantee", _guarantee)):
            sums: dict[str, int] = {}
            for queue in below:
                for resource, amount in limits(queue).amounts.items():
                    sums[resource] = sums.get(resource, 0) + amount
            names = ", ".join(sorted(queue.name for queue in below))
            for resource, total in sorted(sums.items()):
                if resource == "gpu" and any(name.endswith("/gpu") and sums[name] == total for name in sums):
                    continue  # the sum over one kind of cards: told by its own name
                limit = limits(above).get(resource) if above is not None else None
                if parent != ROOT and limit is not None and total > limit:
                    message = (
                        f"the queues below it ({names}) have {kind} {_amount(resource, total)} together, "
                        f"more than its own {_amount(resource, limit)}"
                    )
                    yield Told(f"Queue {parent}", Problem(field=f"spec.{kind}.{resource}", value="", message=message))
                if parent == ROOT:
                    yield from _against_room(kind, resource, total, around.room.get(resource), names)
        if above is not None:
            yield from _wider_than(above, below)


def _deserved(queue: Queue) -> Limits:
    return queue.deserved


def _guarantee(queue: Queue) -> Limits:
    return queue.guarantee


def _against_room(kind: str, resource: str, total: int, room: int | None, names: str) -> Iterable[Told]:
    if not room:
        return
    told, have = format_amount(resource, total), format_amount(resource, room)
    share = round(100 * total / room)
    field = f"spec.{kind}.{resource}"
    if total > room:
        message = (
            f"queues {names} have {kind} {told} together, and all nodes have {have}: it cannot be kept to all of them"
        )
        yield Told("queues", Problem(field=field, value="", message=message))
    elif kind == "deserved" and Fraction(total, room) > MUCH_DESERVED:
        message = (
            f"queues {names} deserve {told} together, {share} % of the {have} there are; above "
            f"{round(100 * MUCH_DESERVED)} % little is left to borrow, and nodes that fail are soon missing"
        )
        yield Told("queues", Note(field=field, message=message))


def _wider_than(above: Queue, below: Iterable[Queue]) -> Iterable[Told]:
    for queue in below:
        for resource, amount in queue.capability.amounts.items():
            limit = above.capability.get(resource)
            if limit is not None and amount > limit:
                message = (
                    f"capability {_amount(resource, amount)} is above that of its parent {above.name}, "
                    f"{_amount(resource, limit)}: the parent's counts"
                )
                yield Told(f"Queue {queue.name}", Note(field=f"spec.capability.{resource}", message=message))


def _closed(queues: Mapping[QueueName, Queue], around: Surroundings) -> Iterable[Told]:
    waiting: dict[str, int] = dict(around.pending)
    for job in around.jobs:
        waiting.setdefault(job.queue, sum(one.queue == job.queue for one in around.jobs))
    for name, number in sorted(waiting.items()):
        queue = queues.get(QueueName(name))
        if number and queue is not None and queue.state in {QueueState.CLOSED, QueueState.CLOSING}:
            message = (
                f"{count(number, 'job')} wait in it, and it is {queue.state.value}: open it, or take them elsewhere"
            )
            yield Told(f"Queue {name}", Problem(field="status.state", value=queue.state.value, message=message))


# --- jobs ------------------------------------------------------------------------------------------------------------


def _jobs(queues: Mapping[QueueName, Queue], around: Surroundings) -> Iterable[Told]:
    classes = {one.name for one in around.priority_classes}
    for job in around.jobs:
        yield from (Told(job.name, one) for one in _minimum(job))
        if around.all_queues and job.queue not in queues:
            message = f"there is no queue {job.queue}{meant(job.queue, queues)}"
            yield Told(job.name, Problem(field="queue", value=job.queue, message=message))
        if job.priority_class and around.all_classes and job.priority_class not in classes:
            message = f"there is no priority class {job.priority_class}{meant(job.priority_class, classes)}"
            yield Told(job.name, Problem(field="priorityClassName", value=job.priority_class, message=message))
        gang = Gang(
            key=GangKey(job.name), uid="", queue=job.queue, priority_class=job.priority_class, roles=(),
            namespace=job.namespace,
        )  # fmt: skip
        if (ruling := forbidden(gang, around.policy)) is not None:
            yield Told(job.name, Problem(field="queue", value=job.queue, message=ruling.message))
    for name in sorted({job.queue for job in around.jobs}):
        ending = [job.name for job in around.jobs if job.queue == name and not job.serves]
        serving = [job.name for job in around.jobs if job.queue == name and job.serves]
        if ending and serving:
            message = (
                f"it has work that ends ({_first(ending)}) and work that serves for ever ({_first(serving)}): the latter "
                "never gives its room back by itself; two queues keep them apart, each with its own deserved"
            )
            yield Told(f"Queue {name}", Note(field="", message=message))


def _minimum(job: Job) -> Iterable[Note]:
    if job.serves or job.pods < FEW_PODS or not job.minimum or not job.expected:
        return
    share = Fraction(job.minimum, job.pods)
    good = -(-job.pods * GOOD_MINIMUM.numerator // GOOD_MINIMUM.denominator)
    told = f"minimum {job.minimum} of {job.pods} pods, expected to run {format_duration(job.expected)}"
    if job.expected >= LONG_SECONDS and share > GOOD_MINIMUM:
        yield Note(
            field="minAvailable",
            message=f"{told}: if it can run with fewer, about {good} lets it start earlier and outlive the loss of a pod",
        )
    elif job.expected <= SHORT_SECONDS and share < GOOD_MINIMUM:
        yield Note(
            field="minAvailable",
            message=f"{told}: with so few it starts early and runs longer than it would have waited; {good} or more suits it",
        )


def _first(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


# --- priorities ------------------------------------------------------------------------------------------------------


def _classes(around: Surroundings) -> Iterable[Told]:
    """Names that promise more than their numbers."""
    ranked = [(_urgency(one.name), one) for one in around.priority_classes]
    for urgency, one in ranked:
        for other_urgency, other in ranked:
            if urgency is None or other_urgency is None or urgency <= other_urgency or one.value >= other.value:
                continue
            message = f"its value {one.value} is below the {other.value} of {other.name}, which sounds less urgent"
            yield Told(f"PriorityClass {one.name}", Note(field="value", message=message))
    defaults = sorted(one.name for one in around.priority_classes if one.global_default)
    if len(defaults) > 1:
        message = f"{', '.join(defaults)} all say globalDefault; Kubernetes takes the one of the lowest value"
        yield Told(f"PriorityClass {defaults[0]}", Note(field="globalDefault", message=message))


def _urgency(name: str) -> int | None:
    """How urgent a name sounds, by the last word in it that says so."""
    words = [WORDS[word] for word in name.lower().replace("_", "-").split("-") if word in WORDS]
    return words[-1] if words else None


# --- the policy ------------------------------------------------------------------------------------------------------


def _policy(queues: Mapping[QueueName, Queue], around: Surroundings) -> Iterable[Told]:
    policy = around.policy
    if around.queues:
        named = [
            *((f"queues.{name}", name) for name in policy.queues if name != "*"),
            *((f"tenants.{tenant}.queues", name) for tenant, one in policy.tenants.items() for name in one.queues),
        ]
        for field, name in named:
            if name not in queues:
                where = "" if around.all_queues else " among these files"
                yield Told("policy", Note(field=field, message=f"there is no queue {name}{where}{meant(name, queues)}"))
    if around.all_classes:
        classes = {one.name for one in around.priority_classes}
        for queue, rules in policy.queues.items():
            for name in rules.priority_classes:
                if name not in classes:
                    message = f"there is no priority class {name}{meant(name, classes)}"
                    yield Told("policy", Note(field=f"queues.{queue}.priority_classes", message=message))
    yield from _inversions(around)


def _inversions(around: Surroundings) -> Iterable[Told]:
    """A queue that goes first, and takes only jobs that are less urgent than all of a queue that goes after it."""
    value_of = {one.name: one.value for one in around.priority_classes}
    allowed = {
        queue.name: (queue, [value_of[name] for name in names if name in value_of])
        for queue in around.queues
        if (names := around.policy.rules(queue.name).priority_classes)
    }
    for name, (queue, values) in sorted(allowed.items()):
        for other_name, (other, other_values) in sorted(allowed.items()):
            if not values or not other_values or queue.priority <= other.priority or queue.parent != other.parent:
                continue
            if max(values) < min(other_values):
                message = (
                    f"it goes before queue {other_name} (priority {queue.priority} over {other.priority}), but its rules "
                    "take only jobs of lower priority classes than any of that queue"
                )
                yield Told(f"Queue {name}", Note(field="spec.priority", message=message))


def _amount(resource: str, amount: int) -> str:
    """A bare number for cards, as it is written in a queue; else with its unit."""
    told = format_amount(resource, amount)
    return told.removesuffix(" cards").removesuffix(" card")
