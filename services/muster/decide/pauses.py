"""Pauses as the LEDGER keeps them, and what they hold back.

    LEDGER ─► view.memory["pauses"] ─► pauses_of ─► Snapshot.pauses ─► the core holds gangs (PAUSED)
                                   └─► paused(view.memory, "evict", queue) ─► whoever evicts or cordons asks before it acts

There is one pause at the most for an act in a place; a new one replaces it. What cannot be read counts as a pause of
everything: what people stopped must not go on because of a mistake.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from muster.model.pauses import ACTS, Act, Pause
from muster.model.units import QueueName

CORE = "pauses"
"""Name of the memory entry."""
NOUNS: Mapping[Act, str] = {"bind": "starting jobs", "evict": "evicting pods", "cordon": "cordoning nodes"}
UNREADABLE = "the saved pauses cannot be read"


class Saved(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The memory entry."""

    pauses: tuple[Pause, ...] = ()


def pauses_of(memory: Mapping[str, Mapping[str, object]]) -> tuple[Pause, ...]:
    """The pauses in the memory of a LEDGER view, by act and place."""
    value = memory.get(CORE)
    if value is None:
        return ()
    try:
        return msgspec.convert(value, Saved).pauses
    except msgspec.ValidationError as error:
        return tuple(Pause(act=act, by="muster", reason=f"{UNREADABLE}: {error}") for act in ACTS)


def value_of(pauses: Iterable[Pause]) -> dict[str, object]:
    """The memory entry of these pauses."""
    ordered = tuple(sorted(pauses, key=lambda one: (ACTS.index(one.act), one.queue)))
    value: dict[str, object] = msgspec.to_builtins(Saved(pauses=ordered))
    return value


def standing(pauses: Iterable[Pause], act: Act, queues: Iterable[str] = ()) -> Pause | None:
    """The pause that forbids an act: one of everywhere, or of one of these queues (a queue and its parents)."""
    places = frozenset(queues)
    found = [one for one in pauses if one.act == act and (not one.queue or one.queue in places)]
    return min(found, key=lambda one: (one.queue != "", one.queue), default=None)


def paused(memory: Mapping[str, Mapping[str, object]], act: Act, *queues: str) -> Pause | None:
    """The pause that forbids an act now, or None; ``queues`` are all that it concerns, with their parents."""
    return standing(pauses_of(memory), act, queues)


def with_pauses(pauses: Iterable[Pause], new: Iterable[Pause]) -> tuple[Pause, ...]:
    """The new ones stand too, each in the place of the one before it."""
    fresh = {(one.act, one.queue): one for one in new}
    return (*(one for one in pauses if (one.act, one.queue) not in fresh), *fresh.values())


def without(pauses: Iterable[Pause], acts: Iterable[Act], queue: str) -> tuple[tuple[Pause, ...], tuple[Pause, ...]]:
    """What still stands, and what is lifted: pauses of these acts in exactly this place."""
    wanted = frozenset(acts)
    everything = tuple(pauses)
    lifted = tuple(one for one in everything if one.act in wanted and one.queue == queue)
    return tuple(one for one in everything if one not in lifted), lifted


def sentence(pause: Pause) -> str:
    """``starting jobs is paused in train-dev since 2026-01-02 15:20 UTC by alice: a new driver``, and what ends it."""
    place = f" in queue {pause.queue}" if pause.queue else ""
    since = f" since {datetime.fromtimestamp(pause.since, UTC):%Y-%m-%d %H:%M} UTC" if pause.since else ""
    who = f" by {pause.by}" if pause.by else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"{NOUNS[pause.act]} is paused{place}{since}{who}{why}; it goes on after: {resuming(pause)}"


def resuming(pause: Pause) -> str:
    """The command that ends it."""
    return f"muster resume {pause.act}{f' --queue {pause.queue}' if pause.queue else ''}"


def unknown_queues(pauses: Iterable[Pause], queues: Iterable[QueueName]) -> tuple[QueueName, ...]:
    """Queues that pauses name and that do not exist."""
    known = frozenset(queues)
    return tuple(sorted({one.queue for one in pauses if one.queue and one.queue not in known}))
