import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.bus.chunks import CHUNK, COMMIT, HEADER_ROOM, Assembler, is_part, split
from muster.bus.errors import UndecodableError

BODY = bytes(range(250))
PIECES = split("m1", BODY, {"ce-type": "t"}, max_payload=HEADER_ROOM + 100)


@given(st.binary(max_size=3000), st.integers(1, 500))
def test_what_is_split_comes_together_again(body: bytes, room: int) -> None:
    pieces = split("m1", body, {"a": "b"}, max_payload=HEADER_ROOM + room)
    assembler: Assembler[int] = Assembler()
    wholes = [assembler.add(piece.body, piece.headers, number) for number, piece in enumerate(pieces)]
    assert wholes[:-1] == [None] * (len(pieces) - 1), "nothing acts before the commit record"
    whole = wholes[-1]
    assert whole is not None
    assert (whole.body, whole.headers, whole.parts) == (body, {"a": "b"}, tuple(range(len(pieces))))
    assert all(len(piece.body) <= room for piece in pieces)


def test_a_small_message_stays_one() -> None:
    [piece] = split("m1", b"x", {"a": "b"}, max_payload=1_000_000)
    assert (piece.body, piece.headers) == (b"x", {"a": "b"})
    assert not is_part(piece.headers)


def test_chunks_may_come_in_any_order_and_twice() -> None:
    assembler: Assembler[int] = Assembler()
    for number in (2, 0, 2, 1):
        assert assembler.add(PIECES[number].body, PIECES[number].headers, number) is None
    whole = assembler.add(PIECES[3].body, PIECES[3].headers, 3)
    assert whole is not None
    assert whole.body == BODY
    assert whole.parts == (2, 0, 2, 1, 3)


@pytest.mark.parametrize("kept", [[0, 1], [0, 2], [1, 2], []], ids=str)
def test_a_commit_record_without_all_its_chunks_is_refused_and_the_rest_forgotten(kept: list[int]) -> None:
    assembler: Assembler[int] = Assembler()
    for number in kept:
        assembler.add(PIECES[number].body, PIECES[number].headers, number)
    with pytest.raises(UndecodableError, match=COMMIT):
        assembler.add(PIECES[3].body, PIECES[3].headers, 3)
    assert assembler.open_parts == ()
    assert assembler.take_dropped() == tuple(kept)


def test_a_commit_record_over_changed_chunks_is_refused() -> None:
    assembler: Assembler[int] = Assembler()
    for number in (0, 1, 2):
        assembler.add(PIECES[number].body[::-1], PIECES[number].headers, number)
    with pytest.raises(UndecodableError):
        assembler.add(PIECES[3].body, PIECES[3].headers, 3)


def test_the_next_series_drops_what_is_left_of_the_one_before() -> None:
    assembler: Assembler[int] = Assembler()
    assembler.add(b"old", {CHUNK: "dead 0 2"}, 1)
    assembler.add(b"new", {CHUNK: "m2 0 1"}, 2)
    assert assembler.open_parts == (2,)
    assert assembler.take_dropped() == (1,)
    digest = hashlib.sha256(b"new").hexdigest()
    whole = assembler.add(b"", {COMMIT: f"m2 1 {digest}"}, 3)
    assert whole is not None
    assert whole.body == b"new"


@pytest.mark.parametrize("told", ["m1", "m1 x 2", "m1 2 2", "m1 0 999999", "m1 -1 2"])
def test_a_malformed_chunk_header_is_refused(told: str) -> None:
    with pytest.raises(UndecodableError, match=CHUNK):
        Assembler[int]().add(b"", {CHUNK: told}, 1)


def test_a_message_far_too_large_is_refused_by_its_sender() -> None:
    with pytest.raises(ValueError, match="the most a message may have"):
        split("m1", bytes(64 * 1024 * 1024 + 1), {}, max_payload=1_000_000)


def test_series_of_several_senders_may_be_mixed() -> None:
    assembler: Assembler[str] = Assembler(series_limit=2)
    bodies = {"a": b"A" * 250, "b": b"B" * 250}
    series = {name: split(name, body, {}, max_payload=HEADER_ROOM + 100) for name, body in bodies.items()}
    found = {}
    for one, other in zip(series["a"], series["b"], strict=True):
        for name, piece in (("a", one), ("b", other)):
            if whole := assembler.add(piece.body, piece.headers, name):
                found[name] = whole.body
    assert found == bodies
    assert assembler.take_dropped() == ()
