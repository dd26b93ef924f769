"""What the policy lets into a queue (policy.yaml: queues), whatever way a job came: the core itself holds what may not be there.

forbidden:  the gang's namespace or priority class is not allowed in its queue ─► held, with what would be right
ignored:    what its owner wishes and the queue does not grant ─► it is as if not wished, and that is said
"""

from collections.abc import Iterable
from typing import NamedTuple

from muster.decide.reasons import Reason
from muster.model.gangs import Gang
from muster.model.policy import Policy, QueueRules

MANY = 5
"""Names that a sentence lists at the most."""


class Ruling(NamedTuple):
    """Why a gang may not be in its queue."""

    code: Reason
    message: str
    numbers: dict[str, int | str]


def forbidden(gang: Gang, policy: Policy) -> Ruling | None:
    """Why the rules of its queue keep the gang out, or None."""
    if not policy.queues:
        return None
    rules = policy.rules(gang.queue)
    if rules.namespaces and gang.namespace not in rules.namespaces:
        return Ruling(
            Reason.NAMESPACE_NOT_ALLOWED,
            f"queue {gang.queue} takes jobs of {_names('namespace', rules.namespaces)} only, not of {gang.namespace}; "
            f"{_elsewhere(gang, policy)}have the namespace added to queues.{_entry(gang, policy)}.namespaces of the policy",
            {"queue": gang.queue, "namespace": gang.namespace, "allowed": ", ".join(rules.namespaces)},
        )
    if rules.priority_classes and gang.priority_class not in rules.priority_classes:
        has = f"priority class {gang.priority_class}" if gang.priority_class else "no priority class"
        return Ruling(
            Reason.PRIORITY_NOT_ALLOWED,
            f"queue {gang.queue} takes jobs of {_names('priority class', rules.priority_classes)} only, and this one has {has}; "
            f"change its priorityClassName, {_elsewhere(gang, policy)}have the class added to "
            f"queues.{_entry(gang, policy)}.priority_classes of the policy",
            {
                "queue": gang.queue,
                "priority_class": gang.priority_class,
                "allowed": ", ".join(rules.priority_classes),
            },
        )
    return None


def preemptible(gang: Gang, policy: Policy) -> bool:
    """Whether the gang may be a victim: its own wish counts where its queue grants it."""
    return gang.preemptible or not policy.rules(gang.queue).non_preemptible


def ignored(gang: Gang, policy: Policy) -> tuple[str, ...]:
    """Sentences on wishes that the queue's rules and the caps of the policy do not grant."""
    rules, limits, timing = policy.rules(gang.queue), policy.preemption, gang.timing
    told = []
    if not gang.preemptible and not rules.non_preemptible:
        told.append(
            f"it asks not to be preempted, but queue {gang.queue} does not grant that: it counts as preemptible"
        )
    caps = (
        ("muster.dev/preemption-grace", timing.grace, rules.grace_max, limits.grace_max),
        ("muster.dev/min-runtime", timing.min_runtime, rules.min_runtime_max, limits.min_runtime_max),
        ("volcano.sh/cooldown-time", timing.cooldown, rules.cooldown_max, limits.cooldown_max),
    )
    for name, wish, own, general in caps:
        most = general if own is None else own
        if wish > most:
            told.append(f"{name} asks {wish:g} s; queue {gang.queue} grants {most:g} s")
    if 0 < timing.max_wait < rules.max_wait_min:
        told.append(
            f"muster.dev/max-wait asks {timing.max_wait:g} s; in queue {gang.queue} it is at least {rules.max_wait_min:g} s"
        )
    return tuple(told)


def _names(one: str, names: tuple[str, ...]) -> str:
    listed = ", ".join(names[:MANY]) + (f" and {len(names) - MANY} more" if len(names) > MANY else "")
    plural = f"{one}es" if one.endswith("s") else f"{one}s"
    return f"{one if len(names) == 1 else plural} {listed}"


def _entry(gang: Gang, policy: Policy) -> str:
    """The key under `queues` whose rules apply."""
    return gang.queue if gang.queue in policy.queues else '"*"'


def _elsewhere(gang: Gang, policy: Policy) -> str:
    """Queues of the policy that would take the gang."""
    open_to = [name for name, rules in sorted(policy.queues.items()) if name != "*" and _takes(rules, gang)]
    if not open_to:
        return ""
    return f"submit it to {_or(open_to[:MANY])}, or "


def _takes(rules: QueueRules, gang: Gang) -> bool:
    return (not rules.namespaces or gang.namespace in rules.namespaces) and (
        not rules.priority_classes or gang.priority_class in rules.priority_classes
    )


def _or(names: Iterable[str]) -> str:
    return " or ".join(f"queue {name}" for name in names)
