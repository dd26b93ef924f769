"""Actions under way: binds and undos of open entries, with bounded concurrency, each once at a time.

An action that was carried out is not repeated until STATE has had time to show it; one that could not be carried out now
is tried again after its delay; one that the API server refuses for good is remembered until its entry is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from muster.fenced.executor import Outcome, Result
from muster.model.units import PodUid, Sequence

SHOWN_WITHIN = 5.0
"""Seconds after which an action that succeeded, but that STATE does not show, is looked at again."""

Key = tuple[Sequence, PodUid]


class Actions:
    """The actions of one leadership; cancelled with it."""

    def __init__(
        self,
        *,
        concurrency: int,
        wake: Callable[[], None],
        clock: Callable[[], float],
        log: structlog.stdlib.BoundLogger,
        observe: Callable[[str, Result, float], None] | None = None,
    ) -> None:
        self._slots = asyncio.Semaphore(concurrency)
        self._wake = wake
        self._clock = clock
        self._log = log
        self._observe = observe
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._done: dict[Key, float] = {}
        self._later: dict[Key, float] = {}
        self._refused: dict[Key, str] = {}
        self._away: Key | None = None

    @property
    def refused(self) -> dict[PodUid, str]:
        """Uids of pods whose Binding, and of claims whose volume, was refused for good under an open entry, with the reason."""
        return {uid: message for (_, uid), message in self._refused.items()}

    @property
    def away(self) -> bool:
        """The last answered action found the API server away, and is still wanted; deadlines stand still meanwhile."""
        return self._away is not None

    @property
    def busy(self) -> int:
        """Actions under way."""
        return len(self._running)

    def running(self, key: Key) -> bool:
        """Whether the action is under way."""
        return key in self._running

    def may_start(self, key: Key) -> bool:
        """Whether the action is neither under way, nor just done, nor has to wait."""
        now = self._clock()
        return not (key in self._running or self._done.get(key, 0.0) > now or self._later.get(key, 0.0) > now)

    def start(self, verb: str, key: Key, action: Callable[[], Coroutine[Any, Any, Result]]) -> bool:
        """Start the action if it `may_start`; True when it was started."""
        if not self.may_start(key):
            return False
        self._running[key] = asyncio.create_task(self._run(verb, key, action))
        return True

    def keep_only(self, sequences: frozenset[Sequence]) -> None:
        """Forget what belongs to entries that are not open any more."""
        tables: tuple[dict[Key, Any], ...] = (self._done, self._later, self._refused)
        for table in tables:
            for key in [key for key in table if key[0] not in sequences]:
                del table[key]
        if self._away is not None and self._away[0] not in sequences:
            self._away = None

    def hurry(self, sequences: frozenset[Sequence]) -> None:
        """What kept actions of these entries from being carried out has changed: they need not wait any more."""
        for key in [key for key in self._later if key[0] in sequences]:
            del self._later[key]

    def next_retry(self) -> float | None:
        """When the earliest delayed action may be tried again, by the clock; None when none waits."""
        waiting = [at for at in (*self._later.values(), *self._done.values()) if at > self._clock()]
        return min(waiting, default=None)

    async def stop(self) -> None:
        """Cancel everything and wait for it."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, verb: str, key: Key, action: Callable[[], Awaitable[Result]]) -> None:
        began = self._clock()
        try:
            async with self._slots:
                result = await action()
        except Exception as error:  # noqa: BLE001  (an unforeseen error must not end the leadership silently)
            self._log.exception("action failed", verb=verb, uid=key[1])
            result = Result(outcome=Outcome.AGAIN, message=str(error), retry_after=1.0)
        finally:
            self._running.pop(key, None)
        now = self._clock()
        if self._observe is not None:
            self._observe(verb, result, now - began)
        self._away = key if result.away else None
        if result.outcome is Outcome.AGAIN:
            self._later[key] = now + result.retry_after
        elif result.outcome is Outcome.REFUSED:
            self._log.warning("refused", verb=verb, uid=key[1], error=result.message)
            if verb in {"bind", "volume"}:
                self._refused[key] = result.message
            self._later[key] = now + SHOWN_WITHIN
        else:
            if result.outcome is Outcome.SUPERSEDED:
                self._log.warning("superseded", verb=verb, uid=key[1], why=result.message)
            self._done[key] = now + SHOWN_WITHIN
        self._wake()
