"""Messages larger than the server takes: chunks, then a commit record. Nothing acts before the commit.

    chunk 0 … chunk n-1     header muster-chunk: <id> <index> <count>, a piece of the body each
    commit record           header muster-commit: <id> <count> <sha256 of the body>, empty; the message's own headers

All go to the same subject, in order. What is left of a series whose commit never came is dropped when the next one starts, or
after a while.
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


class Assembler(Generic[T]):
    """Puts one sender's series together again. One series is open at a time; chunks may come in any order and twice."""

    def __init__(self) -> None:
        """Nothing is open."""
        self._id = ""
        self._count = 0
        self._pieces: dict[int, bytes] = {}
        self._parts: list[T] = []

    @property
    def open_parts(self) -> tuple[T, ...]:
        """Deliveries of the series that is not complete."""
        return tuple(self._parts)

    def abandon(self) -> tuple[T, ...]:
        """Drop what is open and tell its deliveries."""
        parts = tuple(self._parts)
        self._id, self._count, self._pieces, self._parts = "", 0, {}, []
        return parts

    def add(self, body: bytes, headers: Mapping[str, str], part: T) -> Whole[T] | None:
        """A complete message, or None while chunks are missing. A message that is no part is complete by itself.

        Raises:
            UndecodableError: the commit record does not fit its chunks (they are dropped), or a header is malformed.
        """
        if CHUNK in headers:
            self._add_chunk(body, headers[CHUNK], part)
            return None
        if COMMIT in headers:
            return self._commit(headers, part)
        return Whole(body=body, headers=dict(headers), parts=(part,))

    def _add_chunk(self, body: bytes, told: str, part: T) -> None:
        fields = told.split(" ")
        if len(fields) != 3 or not (fields[1].isdecimal() and fields[2].isdecimal()):
            raise UndecodableError(f"{CHUNK} is {told!r}; it must be '<id> <index> <count>'")
        message_id, index, count = fields[0], int(fields[1]), int(fields[2])
        if not (index < count <= LARGEST_COUNT):
            raise UndecodableError(
                f"{CHUNK} is {told!r}; the index must be below the count, the count at most {LARGEST_COUNT}"
            )
        if message_id != self._id:
            self.abandon()
            self._id, self._count = message_id, count
        self._parts.append(part)
        self._pieces[index] = body
        size = sum(map(len, self._pieces.values()))
        if size > LARGEST:
            self.abandon()
            raise UndecodableError(f"series {message_id!r} has {size} bytes; at most {LARGEST} are taken")

    def _commit(self, headers: Mapping[str, str], part: T) -> Whole[T]:
        told = headers[COMMIT]
        pieces, count, known = self._pieces, self._count, self._id
        parts = (*self.abandon(), part)
        body = b"".join(pieces[index] for index in sorted(pieces))
        if told != f"{known} {count} {hashlib.sha256(body).hexdigest()}" or len(pieces) != count:
            raise UndecodableError(
                f"{COMMIT} is {told!r}, but {len(pieces)} of {count} chunks of series {known!r} are here; it is dropped"
            )
        return Whole(body=body, headers={key: value for key, value in headers.items() if key != COMMIT}, parts=parts)
