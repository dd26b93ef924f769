"""Keys to be looked at: each once, a little later, however often it was asked for meanwhile."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from muster.simulator.timers import Timer, Timers

Key = TypeVar("Key", bound=Hashable)
BATCH_SECONDS = 0.05


class WorkQueue(Generic[Key]):
    """Calls `sync(key)` after `batch_seconds`; an earlier wish for the same key wins over a later one."""

    def __init__(self, timers: Timers, sync: Callable[[Key], None], *, batch_seconds: float = BATCH_SECONDS) -> None:
        self._timers = timers
        self._sync = sync
        self._batch_seconds = batch_seconds
        self._soon: set[Key] = set()
        self._later: dict[Key, Timer] = {}

    def add(self, key: Key) -> None:
        """Look at the key soon."""
        if key not in self._soon:
            self._soon.add(key)
            self._timers.after(self._batch_seconds, lambda: self._run(key))

    def add_after(self, key: Key, seconds: float) -> None:
        """Look at the key when `seconds` have passed, instead of at the moment asked for before by this method."""
        self.forget(key)
        self._later[key] = self._timers.after(seconds, lambda: self._run_later(key))

    def forget(self, key: Key) -> None:
        """Drop what `add_after` was asked for."""
        timer = self._later.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _run(self, key: Key) -> None:
        self._soon.discard(key)
        self._sync(key)

    def _run_later(self, key: Key) -> None:
        self._later.pop(key, None)
        self._sync(key)
