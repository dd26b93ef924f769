"""The policy in force, followed while the service runs.

    policy file ─► looked at every second ─► changed, and the same twice ─► sound: in force, everybody is told
                                                                       └─► wrong: the old one stays, and that is told

A ConfigMap that is mounted changes by a swap of symbolic links: what is compared is what the path leads to. A file that is
being written is not taken before it has stood still for one look; an empty one is never taken, since it would set every
limit back to its default.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import structlog
from prometheus_client import CollectorRegistry, Gauge

from muster.model.policy import Policy
from muster.runtime.policy_file import PolicyError, parse_policy, read_text

LOOK_SECONDS = 1.0
FRESH_SECONDS = 2.0
"""A file this young is read again although it looks the same: clocks of file systems are coarse."""

Follower = Callable[[Policy], None]
AT_START: tuple[str, ...] = ("card_resources", "bind_concurrency", "reservation_image")
"""Fields that some service takes over only when it starts."""


class Mark(NamedTuple):
    """What tells one state of a file from another without reading it."""

    device: int
    inode: int
    size: int
    modified: int


class PolicySource:
    """Where a service has its policy from; `current` is the one in force."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        policy: Policy | None = None,
        log: structlog.stdlib.BoundLogger | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Read the file, or take the policy that is given; with neither it is the default policy.

        Raises:
            PolicyError: the file cannot be read or is wrong; at the start there is no older one to go on with.
        """
        self.path = path
        self._mark = self._look()
        self._taken: str | None = read_text(path) if path is not None else None
        """The text that was judged last."""
        if policy is None:
            policy = parse_policy(self._taken or "", source=str(path))
        self.current = policy
        self.loaded_at = wall()
        """Unix seconds at which `current` came into force."""
        self.problem = ""
        """Why the file as it is now is not in force; '' when it is."""
        self._log: structlog.stdlib.BoundLogger = log or structlog.get_logger()
        self._wall = wall
        self._followers: list[Follower] = []
        self._new: str | None = None
        self._gauges: tuple[Gauge, Gauge] | None = None

    @property
    def valid(self) -> bool:
        """The file as it is now is in force."""
        return not self.problem

    def measure(self, registry: CollectorRegistry) -> None:
        """Keep two gauges of the policy's state in this registry."""
        self._gauges = (
            Gauge(
                "muster_policy_valid", "1 while the policy file as it is now is in force, else 0.", registry=registry
            ),
            Gauge("muster_policy_loaded_timestamp_seconds", "When the policy came into force.", registry=registry),
        )
        self._tell_gauges()

    def follow(self, follower: Follower) -> None:
        """Call it with every policy that comes into force from now on."""
        self._followers.append(follower)

    async def run(
        self, *, every: float = LOOK_SECONDS, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Look at the file until cancelled."""
        while self.path is not None:
            await sleep(every)
            self.look()

    def look(self) -> bool:
        """Look at the file once; True when another policy is in force from now on."""
        if self.path is None:
            return False
        mark = self._look()
        young = mark is not None and self._wall() - mark.modified / 1e9 < FRESH_SECONDS
        if mark == self._mark and self._new is None and not young and mark is not None:
            return False
        self._mark = mark
        try:
            text = read_text(self.path)
        except PolicyError as error:
            self._new = self._taken = None
            self._refuse(str(error))
            return False
        if text == self._taken:
            self._new = None
            return False
        if text != self._new:
            self._new = text
            return False
        self._new = None
        self._taken = text
        return self._judge(text)

    def _judge(self, text: str) -> bool:
        source = str(self.path)
        if not _says_something(text):
            self._refuse(f"{source}: says nothing; to take every default write {{}}")
            return False
        try:
            policy = parse_policy(text, source=source)
        except PolicyError as error:
            self._refuse(str(error))
            return False
        cured, self.problem = self.problem, ""
        if policy == self.current:
            if cured:
                self._log.info("the policy file is sound again; it says what is in force", path=source)
            self._tell_gauges()
            return False
        before, self.current, self.loaded_at = self.current, policy, self._wall()
        changed = changed_fields(before, policy)
        self._log.info("a new policy is in force", path=source, changed=changed)
        if late := [name for name in changed if name in AT_START]:
            self._log.warning("some of it is taken over by a service only when it starts", fields=late)
        self._tell_gauges()
        for follower in self._followers:
            follower(policy)
        return True

    def _refuse(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        self._log.error("the policy file is refused; the policy before it stays in force", problem=problem)
        self._tell_gauges()

    def _tell_gauges(self) -> None:
        if self._gauges is not None:
            self._gauges[0].set(1 if self.valid else 0)
            self._gauges[1].set(self.loaded_at)

    def _look(self) -> Mark | None:
        if self.path is None:
            return None
        try:
            found = self.path.stat()
        except OSError:
            return None
        return Mark(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def changed_fields(before: Policy, after: Policy) -> list[str]:
    """The top-level fields in which two policies differ."""
    return [name for name in Policy.__struct_fields__ if getattr(before, name) != getattr(after, name)]


def _says_something(text: str) -> bool:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return any(line not in {"", "---", "..."} for line in lines)
