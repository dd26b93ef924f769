"""Time that counts toward deadlines: it stands still while STATE or the API server is away.

One long step (the process was stopped, the loop was held up) counts as a short one, so that nothing is overdue only because
nobody looked.
"""

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

LONGEST_STEP = 10.0
"""Seconds."""

K = TypeVar("K", bound=Hashable)


class ActiveTime:
    """Seconds during which things could have gone on, by a monotonic clock."""

    def __init__(self, now: float) -> None:
        self.seconds = 0.0
        self._last = now

    def advance(self, now: float, *, counts: bool) -> None:
        """It is now so late; `counts`: the time since the last call was not lost to an outage."""
        if counts:
            self.seconds += min(max(0.0, now - self._last), LONGEST_STEP)
        self._last = now


class Since(Generic[K]):
    """Since when each of some things has been so, in active seconds."""

    def __init__(self) -> None:
        self._since: dict[K, float] = {}

    def keep(self, keys: Iterable[K], now: float) -> None:
        """These are so now; what is not among them is forgotten."""
        self._since = {key: self._since.get(key, now) for key in keys}

    def lasted(self, key: K, now: float) -> float:
        """Seconds; 0 for what is not so."""
        return now - self._since.get(key, now)
