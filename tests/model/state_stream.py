"""STATE for the model of rule I: messages with the last one of each subject kept, watchers and a reader as tuples."""

from enum import IntEnum
from typing import NamedTuple

EPOCH, KEY, CLOCK = "epoch", "key", "clock"


class Version(NamedTuple):
    """An object at a revision; `there` is False for a deleted one."""

    revision: int
    there: bool


UNKNOWN = Version(-1, False)
NEVER = Version(0, False)


class Message(NamedTuple):
    """A STATE message: `version` of a key, or for a clock the freshness as its revision."""

    sequence: int
    kind: str
    epoch: int
    key: int = -1
    version: Version = NEVER


class Role(IntEnum):
    """A watcher: not started, to load STATE, to list, to announce its epoch late, publishing, deposed for good."""

    OFF = 0
    LOADING = 1
    LISTING = 2
    ANNOUNCING = 3
    CURRENT = 4
    STOPPED = 5


class Watcher(NamedTuple):
    """A watcher process; `shown` is what it believes STATE shows, `queue` its publishes in flight, in order, `tell` a clock still to send."""

    role: Role = Role.OFF
    epoch: int = 0
    at: int = 0
    expected: int = 0
    shown: tuple[Version, ...] = ()
    queue: tuple[Message, ...] = ()
    refused: tuple[Message, ...] = ()
    tell: int = 0


class Reader(NamedTuple):
    """A consumer of STATE: `claimed` is the last clock it took, `fresh` the freshness it counts on; ready from `ready_at` on."""

    position: int
    highest: int
    view: tuple[Version, ...]
    claimed: int
    fresh: int
    ready_at: int


class Counts(NamedTuple):
    """How often each thing may still happen."""

    start: int = 0
    reset: int = 0
    stale_list: int = 0
    remove: int = 0


class World(NamedTuple):
    """Everything; `history` holds every version that a key ever had."""

    history: tuple[tuple[Version, ...], ...]
    revision: int
    state: tuple[Message, ...]
    last: int
    watchers: tuple[Watcher, ...]
    reader: Reader
    counts: Counts
    epoch: int = 1
    broken: str = ""


def publish(world: World, message: Message, on: frozenset[str]) -> World:
    """STATE stores the message as the last of its subject (every epoch is a subject of its own)."""
    stored = message._replace(sequence=world.last + 1)
    kept = tuple(
        m
        for m in world.state
        if (m.kind, m.key) != (stored.kind, stored.key) or (stored.kind == EPOCH and "I-epochs-kept" in on)
    )
    return world._replace(state=(*kept, stored), last=world.last + 1)


def without_old_epochs(world: World, epoch: int) -> World:
    """STATE without the epoch messages before this one."""
    return world._replace(state=tuple(m for m in world.state if m.kind != EPOCH or m.epoch >= epoch))


def clock_of(watcher: Watcher) -> Message:
    """The clock that vouches for everything up to where the watcher is."""
    return Message(0, CLOCK, watcher.epoch, -1, Version(watcher.at, there=True))


def pipeline(watcher: Watcher, messages: list[Message]) -> Watcher:
    """Put messages in flight, each expecting to follow the one before."""
    numbered = tuple(m._replace(sequence=watcher.expected + 1 + n) for n, m in enumerate(messages))
    return watcher._replace(queue=watcher.queue + numbered, expected=watcher.expected + len(messages))


def with_watcher(world: World, number: int, watcher: Watcher) -> World:
    """The world with one watcher replaced."""
    return world._replace(watchers=put(world.watchers, number, watcher))


def put(items: tuple, index: int, item: object) -> tuple:
    """The tuple with one item replaced."""
    return (*items[:index], item, *items[index + 1 :])


def version_at(versions: tuple[Version, ...], revision: int) -> Version:
    """What the key was at a revision."""
    return next((v for v in reversed(versions) if v.revision <= revision), NEVER)


def said(version: Version) -> str:
    """A version in words."""
    return f"at revision {version.revision}" if version.there else f"absent (revision {version.revision})"


def told(message: Message) -> str:
    """A message in words."""
    if message.kind == KEY:
        return f"message of epoch {message.epoch}: key {message.key} {said(message.version)}"
    return f"{message.kind} message of epoch {message.epoch}" + (
        f" ({message.version.revision})" if message.kind == CLOCK else ""
    )
