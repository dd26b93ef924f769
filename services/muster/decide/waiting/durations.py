"""How long gangs run: said by their owners, else learned from the gangs of the same queue and owner that have ended.

    hard       activeDeadlineSeconds: never longer
    expected   what the owner says; longer than `policy.waiting.overrun` times that is late
    learned    a high quantile of the last durations, of those above what it has run already

A gang that vanishes from the cluster, or whose pods have all ended, has ended; one that lost its minimum before has not:
what it ran until then teaches nothing.
"""

from collections.abc import Iterable
from math import ceil

import msgspec

from muster.decide.memory import CoreMemory, Followed
from muster.model.gangs import Gang, MemberState
from muster.model.policy import Policy
from muster.model.units import GangKey

QUANTILE = 0.9
FEWEST = 3
"""Fewer durations teach nothing."""
MOST_DURATIONS = 16
MOST_OWNERS = 256
MOST_FOLLOWED = 1024
STANDS = frozenset({MemberState.BOUND, MemberState.ASSUMED, MemberState.LEAVING})


def learned_by(gang: Gang) -> str:
    """What a gang's durations are learned by; '' when nothing tells its kind."""
    return f"{gang.queue} {gang.owner}" if gang.owner else ""


def learned_quantile(memory: CoreMemory, gang: Gang, *, ran: float = 0.0) -> float | None:
    """Seconds after which gangs like this, that ran so long already, have mostly ended; None when too little is known."""
    known = memory.durations_learned.get(learned_by(gang), ())
    if len(known) < FEWEST:
        return None
    longer = sorted(one for one in known if one > ran)
    return longer[ceil(QUANTILE * len(longer)) - 1] if longer else None


def expected_duration(memory: CoreMemory, gang: Gang) -> float | None:
    """Seconds that a gang which has not started will run at the most, as far as one knows."""
    timing = gang.timing
    said = min((one for one in (timing.expected_duration, timing.deadline) if one > 0), default=None)
    return said if said is not None else learned_quantile(memory, gang)


def late(gang: Gang, now: float, policy: Policy) -> bool:
    """Whether a running gang is past its expected duration by more than the policy lets pass."""
    timing = gang.timing
    if not timing.started or not timing.expected_duration:
        return False
    return now - timing.started >= timing.expected_duration * policy.waiting.overrun


def expected_end(memory: CoreMemory, gang: Gang, now: float, policy: Policy) -> float | None:
    """When a running gang will have ended, Unix seconds; None when nobody knows. It changes only as estimates are passed."""
    timing = gang.timing
    if not timing.started:
        return None
    ran = now - timing.started
    if timing.deadline and (not timing.expected_duration or ran >= timing.expected_duration):
        return timing.started + timing.deadline
    if timing.expected_duration:
        for factor in (1.0, policy.waiting.overrun):
            if ran < timing.expected_duration * factor:
                return timing.started + timing.expected_duration * factor
        return None
    known = learned_quantile(memory, gang, ran=ran)
    return None if known is None else timing.started + known


def followed(memory: CoreMemory, gangs: Iterable[Gang], now: float) -> CoreMemory:
    """Note what has started, and learn from what has ended since the last decision."""
    before = memory.followed
    running: dict[GangKey, Followed] = {}
    ended: list[GangKey] = []
    seen: set[GangKey] = set()
    for gang in gangs:
        key = gang.key
        known = before.get(key)
        if known is None and (not gang.timing.started or not gang.owner):
            continue
        seen.add(key)
        if any(member.state in STANDS for member in gang.members):
            if not gang.timing.started:
                continue
            if known is not None and known.started == gang.timing.started:
                running[key] = known
            elif len(running) < MOST_FOLLOWED:
                running[key] = Followed(started=gang.timing.started, by=learned_by(gang))
        elif known is not None and any(member.state is MemberState.SUCCEEDED for member in gang.members):
            ended.append(key)
    ended += [key for key in before if key not in seen]
    learned = memory.durations_learned
    for key in ended:
        learned = _learned(learned, before[key].by, now - before[key].started)
    if learned is memory.durations_learned and running == before:
        return memory
    return msgspec.structs.replace(memory, followed=running, durations_learned=learned)


def _learned(known: dict[str, tuple[float, ...]], by: str, duration: float) -> dict[str, tuple[float, ...]]:
    """One duration more; the owners not heard of for longest are forgotten first."""
    rest = {key: value for key, value in known.items() if key != by}
    while len(rest) >= MOST_OWNERS:
        del rest[next(iter(rest))]
    rest[by] = (*known.get(by, ()), round(max(0.0, duration), 1))[-MOST_DURATIONS:]
    return rest
