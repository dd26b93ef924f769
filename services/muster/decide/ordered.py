"""Values in the order of their keys, kept sorted while single ones come, change and go; all of them as one tuple.

A change costs one binary search and one shift of a list; the tuple is made when it is asked for and something has changed.
"""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar


class Sortable(Protocol):
    """What can be a key."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether it comes first."""
        ...


K = TypeVar("K", bound=Sortable)
V = TypeVar("V")


class Ordered(Generic[K, V]):
    """A sorted table."""

    def __init__(self) -> None:
        self._keys: list[K] = []
        self._values: list[V] = []
        self._all: tuple[V, ...] | None = ()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._keys)

    def __iter__(self) -> Iterator[V]:
        """The values in order."""
        return iter(self._values)

    def items(self) -> Iterator[tuple[K, V]]:
        """Keys and values in order."""
        return zip(self._keys, self._values, strict=True)

    def _find(self, key: K) -> tuple[int, bool]:
        at = bisect_left(self._keys, key)
        return at, at < len(self._keys) and self._keys[at] == key

    def get(self, key: K) -> V | None:
        """The value of a key, None when there is none."""
        at, there = self._find(key)
        return self._values[at] if there else None

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        at, there = self._find(key)
        if there:
            self._values[at] = value
        else:
            self._keys.insert(at, key)
            self._values.insert(at, value)
        self._all = None

    def drop(self, key: K) -> V | None:
        """Remove a key; its value, None when it was not there."""
        at, there = self._find(key)
        if not there:
            return None
        self._all = None
        del self._keys[at]
        return self._values.pop(at)

    def all(self) -> tuple[V, ...]:
        """Every value, in the order of the keys."""
        if self._all is None:
            self._all = tuple(self._values)
        return self._all
