"""Messages larger than the server takes: chunks, then a commit record. Nothing acts before the commit.

    chunk 0 … chunk n-1     header muster-chunk: <id> <index> <count>, a piece of the body each
    commit record           header muster-commit: <id> <count> <sha256 of the body>, empty; the message's own headers

All go to the same subject, in order. What is left of a series whose commit never came is given up when others need its place,
or after a while.
"""

import hashlib
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from muster.bus.errors import UndecodableError

T = TypeVar("T")

CHUNK = "muster-chunk"
COMMIT = "muster-commit"
HEADER_ROOM = 8 * 1024
"""Bytes of a message kept for its headers."""
LARGEST = 64 * 1024 * 1024
LARGEST_COUNT = 4096


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One message to publish."""

    headers: dict[str, str]
    body: bytes


class Whole(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A complete message: its body, its headers, and every delivery it came in (the commit record last)."""

    body: bytes
    headers: dict[str, str]
    parts: tuple[T, ...]


def split(message_id: str, body: bytes, headers: Mapping[str, str], *, max_payload: int) -> list[Piece]:
    """The messages that carry this one: itself when it is small enough.

    Raises:
        ValueError: larger than `LARGEST`.
    """
    room = max_payload - HEADER_ROOM
    if len(body) <= room:
        return [Piece(headers=dict(headers), body=body)]
    if len(body) > LARGEST:
        raise ValueError(f"{len(body)} bytes are more than {LARGEST}, the most a message may have")
    pieces = [body[start : start + room] for start in range(0, len(body), room)]
    count = len(pieces)
    chunks = [Piece(headers={CHUNK: f"{message_id} {index} {count}"}, body=piece) for index, piece in enumerate(pieces)]
    commit = {**headers, COMMIT: f"{message_id} {count} {hashlib.sha256(body).hexdigest()}"}
    return [*chunks, Piece(headers=commit, body=b"")]


def is_part(headers: Mapping[str, str]) -> bool:
    """The message is a chunk or a commit record."""
    return CHUNK in headers or COMMIT in headers


class Series(Generic[T]):
    """Chunks whose commit record has not come."""

    __slots__ = ("count", "parts", "pieces")

    def __init__(self, count: int) -> None:
        """``count`` chunks are expected."""
        self.count = count
        self.pieces: dict[int, bytes] = {}
        self.parts: list[T] = []


class Assembler(Generic[T]):
    """Puts series together again; chunks may come in any order and twice.

    At most ``series_limit`` series are open at a time: 1 where there is one sender, more where several share a subject. Of a
    series that is given up, the deliveries are told by `take_dropped`.
    """

    def __init__(self, *, series_limit: int = 1) -> None:
        """Nothing is open."""
        self._limit = series_limit
        self._open: dict[str, Series[T]] = {}
        self._dropped: list[T] = []

    @property
    def open_parts(self) -> tuple[T, ...]:
        """Deliveries of the series that are not complete."""
        return tuple(part for series in self._open.values() for part in series.parts)

    def abandon(self) -> None:
        """Give up everything that is open."""
        for message_id in list(self._open):
            self._drop(message_id)

    def take_dropped(self) -> tuple[T, ...]:
        """Deliveries of what was given up since the last call."""
        dropped, self._dropped = tuple(self._dropped), []
        return dropped

    def add(self, body: bytes, headers: Mapping[str, str], part: T) -> Whole[T] | None:
        """A complete message, or None while chunks are missing. A message that is no part is complete by itself.

        Raises:
            UndecodableError: the commit record does not fit its chunks (they are given up), or a header is malformed.
        """
        if CHUNK in headers:
            self._add_chunk(body, headers[CHUNK], part)
            return None
        if COMMIT in headers:
            return self._commit(headers, part)
        return Whole(body=body, headers=dict(headers), parts=(part,))

    def _drop(self, message_id: str) -> None:
        series = self._open.pop(message_id, None)
        if series is not None:
            self._dropped.extend(series.parts)

    def _add_chunk(self, body: bytes, told: str, part: T) -> None:
        fields = told.split(" ")
        if len(fields) != 3 or not (fields[1].isdecimal() and fields[2].isdecimal()):
            raise UndecodableError(f"{CHUNK} is {told!r}; it must be '<id> <index> <count>'")
        message_id, index, count = fields[0], int(fields[1]), int(fields[2])
        if not (index < count <= LARGEST_COUNT):
            raise UndecodableError(
                f"{CHUNK} is {told!r}; the index must be below the count, the count at most {LARGEST_COUNT}"
            )
        if message_id not in self._open:
            while len(self._open) >= self._limit:
                self._drop(next(iter(self._open)))
            self._open[message_id] = Series(count)
        series = self._open[message_id]
        series.parts.append(part)
        series.pieces[index] = body
        size = sum(map(len, series.pieces.values()))
        if size > LARGEST:
            series.parts.pop()
            self._drop(message_id)
            raise UndecodableError(f"series {message_id!r} has {size} bytes; at most {LARGEST} are taken")

    def _commit(self, headers: Mapping[str, str], part: T) -> Whole[T]:
        told = headers[COMMIT]
        message_id = told.partition(" ")[0]
        series = self._open.get(message_id, Series(0))
        body = b"".join(series.pieces[index] for index in sorted(series.pieces))
        digest = hashlib.sha256(body).hexdigest()
        if told != f"{message_id} {series.count} {digest}" or len(series.pieces) != series.count:
            here = len(series.pieces)
            self._drop(message_id)
            raise UndecodableError(f"{COMMIT} is {told!r}, but the {here} chunks that are here do not fit it")
        del self._open[message_id]
        kept = {key: value for key, value in headers.items() if key != COMMIT}
        return Whole(body=body, headers=kept, parts=(*series.parts, part))
