"""Nodes that look alike card by card, judged once for all of them: for values that depend on every single card.

    look      free CPU and memory, and of every card: what is free of it, whether anybody is on it
    sample    a room whose rows are the looks, in which a value is worked out when a look is first met

As with `muster.decide.looks`, a change moves single rows to other looks, and a value by row is one gather.
"""

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from muster.decide.fleet import CPU, MEMORY, Fleet, Floats, Ints
from muster.decide.looks import MANY_PARTS, unique_states

if TYPE_CHECKING:
    from muster.decide.room import Room

Compute = Callable[["Room", Ints], Floats]

OFFERED = ("card_usable", "card_memory", "shares_cards", "total", "allocatable_cards")
STATE = ("free", "whole_free", "card_memory", "card_core", "card_users")


class CardLooks:
    """The looks of a room's rows, card by card."""

    def __init__(self, room: "Room") -> None:
        self._room = room
        self._seen = len(room.changed)
        kinds = _kinds(room.fleet)
        self._kind: list[int] = kinds.tolist()
        numbers = np.stack([kinds, room.whole_free, room.free[:, CPU], room.free[:, MEMORY]], axis=1)
        states = np.concatenate([numbers, room.card_memory, room.card_core, room.card_users > 0], axis=1)
        first, self.of_row = unique_states(states.astype(np.int64))
        self._known = {self._key(row): look for look, row in enumerate(first.tolist())}
        self._rows: dict[str, npt.NDArray[Any]] = {}
        self._size = 0
        self._sample = copy(room)
        self._sample.fleet = copy(room.fleet)
        self._sample.forget()
        self._sample.is_sample = True
        self._tables: dict[object, tuple[int, Floats]] = {}
        self._moved: list[int] = []
        self._by_row: dict[object, tuple[int, Floats]] = {}
        self._add(first.tolist())

    def _key(self, row: int) -> tuple[object, ...]:
        room = self._room
        return (
            self._kind[row],
            int(room.whole_free[row]),
            room.free[row, : MEMORY + 1].tobytes(),
            room.card_memory[row].tobytes(),
            room.card_core[row].tobytes(),
            (room.card_users[row] > 0).tobytes(),
        )

    def _add(self, rows: list[int]) -> None:
        """Append looks as these rows have them."""
        for source, target, names in (
            (self._room, self._sample, STATE),
            (self._room.fleet, self._sample.fleet, OFFERED),
        ):
            for name in names:
                fresh = getattr(source, name)[rows]
                setattr(target, name, np.concatenate([getattr(target, name), fresh]) if self._size else fresh)
        self._size += len(rows)

    def follow(self) -> None:
        """Move the rows that changed since the last time."""
        changed = self._room.changed
        if self._seen == len(changed):
            return
        rows = sorted(set(changed[self._seen :]))
        self._seen = len(changed)
        new: list[int] = []
        known = self._known
        for row in rows:
            key = self._key(row)
            look = known.get(key)
            if look is None:
                look = known[key] = self._size + len(new)
                new.append(row)
            self.of_row[row] = look
        self._moved += rows
        if new:
            self._add(new)

    def values(self, key: object, compute: Compute) -> Floats:
        """The value of every row; ``key`` says which. The next answer for the same key is written over this one."""
        self.follow()
        done, table = self._tables.get(key, (0, None))
        if done < self._size:
            fresh = compute(self._sample, np.arange(done, self._size))
            table = fresh if table is None else np.concatenate([table, fresh])
            self._tables[key] = self._size, table
        assert table is not None
        at, found = self._by_row.get(key, (-1, None))
        now = len(self._moved)
        if found is None or (now - at) * MANY_PARTS > self.of_row.size:
            found = table[self.of_row]
        elif at < now:
            moved = self._moved[at:]
            found[moved] = table[self.of_row[moved]]
        self._by_row[key] = now, found
        return found


def _kinds(fleet: Fleet) -> Ints:
    """A number for each combination of what nodes offer."""
    found = fleet.memo.get("kinds of cards")
    if found is None:
        offered = [np.asarray(getattr(fleet, name)).reshape(fleet.size, -1).astype(np.int64) for name in OFFERED]
        found = fleet.memo["kinds of cards"] = unique_states(np.concatenate(offered, axis=1))[1]
    assert isinstance(found, np.ndarray)
    return found
