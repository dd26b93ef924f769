"""Keeps a consumer's picture of one kind equal to the server's: list, watch, resume, relist and diff.

        ┌──────── list (paged) ── first: Listed, later: the differences ── Fresh
        │                              │
        │ expired, rewound             ▼
        └───────────────────────── watch from the last resourceVersion ──► Changed, Deleted; Fresh
                                       ▲                  │ end, silence, reset, 429, 5xx
                                       └── back-off ◄─────┘

Changes are delivered in order, one at a time; a slow consumer slows the reading, and the server then cuts the watch,
which only costs a resume. No failure ends `run`: it retries for ever, tells its observer why, and backs off, also after
clean ends that come soon (kubernetes watches are cut at any time). Errors of the consumer do end it.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from muster.kube.decoding import Bookmark, KindInfo, Malformed, Removed, Upserted, WatchEvent, kind_info
from muster.kube.errors import (
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedReply,
)
from muster.kube.listing import PAGE_SIZE, list_all, selection
from muster.kube.timing import Backoff, SystemTiming, Timing
from muster.kube.transport import Transport
from muster.kube.view import Change, Changed, Deleted, Fresh, Known, Listed, Unserved, View, is_newer
from muster.kube.watching import watch_batches

__all__ = [
    "Change",
    "Changed",
    "Deleted",
    "Deliver",
    "Fresh",
    "Freshness",
    "Listed",
    "Reflector",
    "ReflectorLimits",
    "ReflectorObserver",
    "Unserved",
]

Deliver = Callable[[Change], Awaitable[None]]


class ReflectorObserver(Protocol):
    """Hears what metrics and logs want to know. Calls must be quick and must not raise."""

    def listed(self, kind: KindInfo[Any], items: int, seconds: float) -> None:
        """A list of this many objects was taken."""

    def restarted(self, kind: KindInfo[Any], cause: str, message: str) -> None:
        """A watch or a list ended; `cause` is one word: end, expired, rewound, silence, reset, refused, throttled,
        unavailable, unreadable, invalid, missing, forbidden, unauthorized.
        """

    def malformed(self, kind: KindInfo[Any], key: str, message: str) -> None:
        """An object that does not fit its kind was skipped; what was known of it stays."""


class _Unobserved:
    def listed(self, kind: KindInfo[Any], items: int, seconds: float) -> None:
        """Nobody listens."""

    def restarted(self, kind: KindInfo[Any], cause: str, message: str) -> None:
        """Nobody listens."""

    def malformed(self, kind: KindInfo[Any], key: str, message: str) -> None:
        """Nobody listens."""


class ReflectorLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and times, seconds unless said otherwise.

    `settled`: a watch that lasted this long was healthy and clears the back-off. `pause_with_progress`: the longest
    pause after a watch that delivered something. `slow_retry`: between attempts while the kind is missing or forbidden.
    """

    page_size: int = PAGE_SIZE
    list_timeout: float = 60.0
    open_timeout: float = 30.0
    read_timeout: float = 90.0
    watch_shortest: float = 240.0
    watch_longest: float = 300.0
    settled: float = 10.0
    pause_base: float = 0.1
    pause_longest: float = 30.0
    pause_with_progress: float = 1.0
    slow_retry: float = 30.0


class Freshness(msgspec.Struct, frozen=True):
    """Up to which resourceVersion everything was delivered, and when that was heard (monotonic seconds)."""

    resource_version: str
    at: float


class Reflector:
    """Follows one kind; `run` it in a task of its own. See the module's drawing."""

    def __init__(
        self,
        transport: Transport,
        kind: str | KindInfo[Any],
        deliver: Deliver,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limits: ReflectorLimits | None = None,
        timing: Timing | None = None,
        observer: ReflectorObserver | None = None,
    ) -> None:
        self.kind = kind_info(kind)
        self._transport = transport
        self._deliver = deliver
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._limits = limits or ReflectorLimits()
        self._timing: Timing = timing or SystemTiming()
        self._observer: ReflectorObserver = observer or _Unobserved()
        self._view = View(self.kind)
        self._backoff = Backoff(self._timing, base=self._limits.pause_base, cap=self._limits.pause_longest)
        self._resource_version: str | None = None
        self._synced = False
        self._freshness: Freshness | None = None
        self._watching_since: float | None = None
        self._progressed = False
        self._unserved_attempts = 0
        self._unserved_cause = ""
        self._unreadable_attempts = 0

    @property
    def synced(self) -> bool:
        """Whether a first list was delivered."""
        return self._synced

    @property
    def freshness(self) -> Freshness | None:
        """The last resourceVersion seen in a list, an event or a bookmark; None before the first list."""
        return self._freshness

    @property
    def known(self) -> Mapping[str, Known]:
        """Uid and resourceVersion by key, as delivered."""
        return self._view.known

    async def run(self) -> None:
        """Follow until cancelled. Raises only what `deliver` raises."""
        while True:
            pause = await self._follow_once()
            await self._timing.sleep(pause)

    async def _follow_once(self) -> float:
        """One list (if needed) and one watch; seconds to pause afterwards."""
        self._watching_since = None
        self._progressed = False
        try:
            if self._resource_version is None:
                await self._list()
            await self._watch()
        except KubeError as error:
            return await self._recover(error)
        return self._restart("end", "the server ended the watch")

    async def _list(self) -> None:
        began = self._timing.monotonic()
        page = await list_all(
            self._transport,
            self.kind,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            page_size=self._limits.page_size,
            timeout_seconds=self._limits.list_timeout,
        )
        version = page.resource_version
        for malformed in page.malformed:
            self._observer.malformed(self.kind, malformed.key, malformed.message)
        if self._synced:
            keep = [malformed.key for malformed in page.malformed]
            changes = self._view.replaced(page.items, resource_version=version, keep=keep)
        else:
            changes = self._view.loaded(page.items, resource_version=version)
        for change in changes:
            await self._deliver(change)
        self._synced = True
        self._resource_version = version
        self._unserved_attempts = 0
        self._unserved_cause = ""
        self._observer.listed(self.kind, len(page.items), self._timing.monotonic() - began)
        await self._advance(version, announce=True)

    async def _watch(self) -> None:
        limits = self._limits
        spread = self._timing.random() * (limits.watch_longest - limits.watch_shortest)
        batches = watch_batches(
            self._transport,
            self.kind,
            namespace=self._namespace,
            selectors=selection(label_selector=self._label_selector, field_selector=self._field_selector),
            resource_version=self._resource_version or "",
            server_timeout_seconds=int(limits.watch_shortest + spread),
            open_timeout_seconds=limits.open_timeout,
            read_timeout_seconds=limits.read_timeout,
        )
        async with aclosing(batches):
            async for batch in batches:
                if self._watching_since is None:
                    self._watching_since = self._timing.monotonic()
                for event in batch:
                    await self._apply(event)
                if batch and not isinstance(batch[-1], Bookmark) and self._resource_version is not None:
                    # Single changes do not tell it: those that a list gives come in any order.
                    await self._deliver(Fresh(self.kind, self._resource_version))

    async def _apply(self, event: WatchEvent) -> None:
        self._progressed = True
        self._unreadable_attempts = 0
        if isinstance(event, Bookmark):
            await self._advance(event.resource_version, announce=True)
            return
        if isinstance(event, Malformed):
            self._observer.malformed(self.kind, event.key, event.message)
            await self._advance(event.resource_version, announce=False)
            return
        if isinstance(event, Upserted):
            changes = self._view.upserted(event.object)
        elif isinstance(event, Removed):
            changes = self._view.removed(event.object)
        for change in changes:
            await self._deliver(change)
        await self._advance(event.object.metadata.resource_version, announce=False)

    async def _advance(self, resource_version: str, *, announce: bool) -> None:
        if not resource_version:
            return
        current = self._resource_version
        if current is None or is_newer(resource_version, current):
            self._resource_version = current = resource_version
        self._freshness = Freshness(current, self._timing.monotonic())
        if announce:
            await self._deliver(Fresh(self.kind, current))

    async def _recover(self, error: KubeError) -> float:
        """Decide what an error means for the next attempt; seconds to pause before it."""
        said = error.message
        if isinstance(error, Gone):
            self._resource_version = None
            return self._restart("expired", said)
        if isinstance(error, Unavailable) and "too large resource version" in said.lower():
            # The server's store was restored to an earlier state: our version lies in a future that will not come.
            self._resource_version = None
            return self._restart("rewound", said)
        if isinstance(error, NotFound | Forbidden):
            return await self._unserved("missing" if isinstance(error, NotFound) else "forbidden", said)
        if isinstance(error, Unauthorized):
            return max(self._restart("unauthorized", said), self._limits.slow_retry * (0.5 + self._timing.random() / 2))
        if isinstance(error, TooManyRequests):
            return max(self._restart("throttled", said), self._asked_pause(error.retry_after))
        if isinstance(error, Unavailable):
            cause = {"timeout": "silence", "status": "unavailable"}.get(error.cause, error.cause)
            return max(self._restart(cause, said), self._asked_pause(error.retry_after))
        if isinstance(error, Invalid):
            self._resource_version = None
            return self._restart("invalid", said)
        if isinstance(error, UnexpectedReply):
            self._unreadable_attempts += 1
            if self._unreadable_attempts > 1:
                self._resource_version = None
            return self._restart("unreadable", said)
        return self._restart("unavailable", said)

    async def _unserved(self, cause: str, message: str) -> float:
        """A kind that is not installed or not allowed: say so once, try again slowly.

        A custom kind that stays missing has no objects. One answer is not enough to believe that: starting API
        servers have been seen to answer 404 before they serve custom kinds.
        """
        self._resource_version = None
        self._unserved_attempts = self._unserved_attempts + 1 if cause == self._unserved_cause else 1
        if self._unserved_attempts == 1:
            self._unserved_cause = cause
            await self._deliver(Unserved(self.kind, cause, message))
        elif cause == "missing" and self.kind.custom and self._unserved_attempts == 2:
            for change in self._view.replaced([], resource_version=""):
                await self._deliver(change)
        self._observer.restarted(self.kind, cause, message)
        return self._limits.slow_retry * (0.75 + self._timing.random() / 2)

    def _restart(self, cause: str, message: str) -> float:
        """Count a restart; the back-off is cleared by a watch that lasted, and short after one that delivered."""
        self._observer.restarted(self.kind, cause, message)
        since = self._watching_since
        if since is not None and self._timing.monotonic() - since >= self._limits.settled:
            self._backoff.reset()
        return self._backoff.next(cap=self._limits.pause_with_progress if self._progressed else None)

    def _asked_pause(self, retry_after: float | None) -> float:
        """At least what the server asked for, spread by up to a fifth so that clients do not return together."""
        return 0.0 if retry_after is None else retry_after * (1 + self._timing.random() / 5)
