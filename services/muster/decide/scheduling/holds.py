"""What keeps a gang from being tried at all, whatever the room."""

from functools import lru_cache
from typing import NamedTuple

from muster.decide.asks import Ask
from muster.decide.memory import CoreMemory
from muster.decide.pauses import sentence, standing
from muster.decide.queue_rules import forbidden
from muster.decide.reasons import Reason, count
from muster.decide.shares import Tree
from muster.decide.spelling import likely
from muster.model.gangs import MemberState
from muster.model.pauses import Pause
from muster.model.pods import UNKNOWN_NAMESPACES
from muster.model.policy import Policy


class Held(NamedTuple):
    """Why a gang is not tried."""

    code: str
    message: str
    numbers: dict[str, int | str]


def hold_of(
    ask: Ask, tree: Tree, memory: CoreMemory, now: float, *, policy: Policy, pauses: tuple[Pause, ...]
) -> Held | None:
    """The first thing that holds the gang, or None."""
    gang = ask.gang
    if gang.hold:
        return Held(gang.hold, gang.hold_message or f"{gang.key} is held: {gang.hold}", {})
    if gang.queue not in tree.queues:
        return _unknown_queue(gang.queue, tuple(sorted(tree.queues)))
    if not tree.open(gang.queue):
        closed = next(name for name in tree.path(gang.queue) if not tree.takes_jobs(name))
        return Held(Reason.QUEUE_CLOSED, f"queue {closed} is closed and takes no jobs", {"queue": closed})
    if (ruling := forbidden(gang, policy)) is not None:
        return Held(*ruling)
    if pauses and (pause := standing(pauses, "bind", tree.path(gang.queue))) is not None:
        return Held(Reason.PAUSED, sentence(pause), {"queue": pause.queue, "by": pause.by, "reason": pause.reason})
    unsupported = _unsupported(ask)
    if unsupported is not None:
        return unsupported
    if ask.short > 0:
        have = ask.gang.counted + ask.waiting
        gated = sum(member.state is MemberState.GATED for member in gang.members)
        more = f"{ask.short} more must be created"
        if gated:
            more = f"{count(gated, 'pod')} more {'has' if gated == 1 else 'have'} scheduling gates"
            rest = ask.short - gated
            more += f", and {rest} must be created" if rest > 0 else ""
        return Held(
            Reason.TOO_FEW_PODS,
            f"{count(have, 'pod')} of the minimum {gang.minimum} exist; {more}",
            {"have": have, "minimum": gang.minimum, "missing": ask.short, **({"gated": gated} if gated else {})},
        )
    backoff = memory.gangs.get(gang.key)
    if backoff is not None and backoff.until > now:
        wait = round(backoff.until - now)
        return Held(
            Reason.BACKOFF,
            f"started and failed {count(backoff.failures, 'time')}; tried again in {wait} s",
            {"failures": backoff.failures, "seconds": wait},
        )
    return None


@lru_cache(maxsize=256)
def _unknown_queue(name: str, queues: tuple[str, ...]) -> Held:
    """Thousands of gangs may name the same queue in every round: what was likely meant is looked for once."""
    numbers: dict[str, int | str] = {"queue": name}
    found = likely(name, queues)
    if found:
        numbers["meant"] = found
    return Held(
        Reason.QUEUE_UNKNOWN, f"queue {name} does not exist; queues here: {', '.join(queues) or 'none'}", numbers
    )


def _unsupported(ask: Ask) -> Held | None:
    for role in ask.roles:
        shape = role.shape
        name = role.name or ask.gang.key
        if shape.resource_claims:
            return Held(Reason.DRA_UNSUPPORTED, f"{name} uses resourceClaims, which are not supported yet", {})
        if shape.claims:
            claims = ", ".join(shape.claims)
            return Held(
                Reason.VOLUME_UNSUPPORTED,
                f"{name} mounts {claims}, and nothing is known here of its PersistentVolumeClaims",
                {"claims": claims},
            )
        if any(not term.weight and term.namespaces == UNKNOWN_NAMESPACES for term in shape.pod_terms):
            return Held(
                Reason.POD_AFFINITY_UNSUPPORTED,
                f"{name} has required pod affinity with a namespaceSelector, which is not supported; name the namespaces instead",
                {},
            )
    return None
