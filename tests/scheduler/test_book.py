"""The leader's copy of the LEDGER: leading, appending, trimming."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.bus.errors import QueueFullError, UnknownOutcomeError
from muster.decide.commitments import LedgerView
from muster.decide.folding import fold_all
from muster.model.instructions import Slot
from muster.model.ledger import Bind, Close, Commit, Leader, Memory, Plan, Undoing, Victim, Withdrawing
from muster.model.units import GangKey, NodeName, PodUid, RoleName, Sequence
from muster.scheduler.book import Book, Deposed

DAY = 86_400.0


class Stream:
    """A LEDGER whose answers are prepared."""

    def __init__(self) -> None:
        self.commits: list[tuple[Sequence, Commit]] = []
        self.size = 1
        self.errors: list[Exception] = []
        self.before_answer = None
        self.trimmed = 0

    async def append(self, commit: Commit, *, expected_last_sequence: Sequence) -> Sequence:
        assert expected_last_sequence == await self.last_sequence()
        if self.errors:
            raise self.errors.pop(0)
        sequence = Sequence(expected_last_sequence + self.size)
        self.commits.append((sequence, commit))
        if self.before_answer is not None:
            await self.before_answer()
        return sequence

    async def find_outcome(self, *, expected_last_sequence: Sequence) -> Sequence | None:
        return None

    async def last_sequence(self) -> Sequence:
        return self.commits[-1][0] if self.commits else Sequence(0)

    async def trim(self, *, before: Sequence) -> None:
        self.trimmed = before
        self.commits = [item for item in self.commits if item[0] >= before]


def gang(number: int) -> GangKey:
    return GangKey(f"ns/g{number}")


def bind(number: int) -> Bind:
    slot = Slot(uid=PodUid(f"u{number}"), pod=f"p{number}", role=RoleName("w"), node=NodeName("n1"))
    return Bind(gang=gang(number), gang_uid="g", slots=(slot,), freshness="5")


async def leading(stream: Stream, *, at: float = 0.0) -> Book:
    book = Book(identity="me", stream=stream)
    await book.lead(transitions=1, at=at)
    return book


async def append(book: Book, *entries, at: float = 0.0) -> Sequence:
    sequence = await book.append(entries, expected=book.view.sequence, at=at)
    assert sequence is not None
    return sequence


async def test_a_newer_leader_that_the_reader_saw_before_our_own_answer_came_deposes_us():
    stream = Stream()
    book = Book(identity="me", stream=stream)

    async def overtaken() -> None:
        newer = Commit(epoch=Sequence(0), identity="other", entries=(Leader(identity="other", lease_transitions=2),))
        await book.apply_all([*stream.commits, (Sequence(2), newer)])

    stream.before_answer = overtaken
    with pytest.raises(Deposed):
        await book.lead(transitions=1, at=0.0)


async def test_an_append_decided_on_an_older_view_is_not_sent():
    stream = Stream()
    book = await leading(stream)
    old = book.view.sequence
    await append(book, bind(1))
    assert await book.append((bind(2),), expected=old, at=0.0) is None
    assert len(stream.commits) == 2


@pytest.mark.parametrize("error", [UnknownOutcomeError("no answer"), QueueFullError("disk full")])
async def test_an_append_that_was_not_stored_changes_nothing(error, monkeypatch):
    monkeypatch.setattr("muster.scheduler.book.FULL_SECONDS", 0.0)
    stream = Stream()
    book = await leading(stream)
    before = book.view
    stream.errors = [error]
    assert await book.append((bind(1),), expected=before.sequence, at=0.0) is None
    assert book.view == before


async def test_a_lost_ledger_ends_a_leader_that_waits_for_the_reader():
    stream = Stream()
    book = await leading(stream)
    stream.commits.append((Sequence(9), stream.commits[0][1]))
    waiting = asyncio.create_task(book.caught_up())
    await asyncio.sleep(0)
    await book.lose()
    with pytest.raises(Deposed):
        await waiting


async def test_trimming_keeps_open_entries_whole_and_writes_memory_again():
    stream = Stream()
    book = await leading(stream, at=0.0)
    await append(book, Memory(core="scheduling", value={"a": 1}), at=1 * DAY)
    closed = await append(book, bind(1), at=2 * DAY)
    await append(book, Close(gang=gang(1), entry=closed, outcome="bound", freshness="6"), at=3 * DAY)
    stream.size = 4  # three chunks and their record
    still_open = await append(book, bind(2), at=4 * DAY)
    stream.size = 1
    await append(book, bind(3), at=50 * DAY)
    whole = fold_all(LedgerView(), stream.commits)
    assert await book.trim(older_than=20 * DAY, at=50 * DAY) == still_open - 3
    assert stream.trimmed == still_open - 3
    assert stream.commits[0][0] == still_open
    rest = fold_all(LedgerView(), stream.commits)
    assert (rest.open, rest.leader, rest.memory, rest.refused) == (whole.open, whole.leader, whole.memory, 0)
    assert await book.trim(older_than=20 * DAY, at=50 * DAY) is None


async def test_trimming_keeps_a_plan_that_is_being_withdrawn_with_its_victims():
    stream = Stream()
    book = await leading(stream, at=0.0)
    closed = await append(book, bind(1), at=2 * DAY)
    await append(book, Close(gang=gang(1), entry=closed, outcome="bound", freshness="6"), at=3 * DAY)
    victim = Victim(gang=gang(1), uid=PodUid("u1"), pod="p1", node=NodeName("n1"))
    plan = Plan(gang=gang(2), gang_uid="g", cause="preempt", victims=(victim,), nominated=())
    planned = await append(book, plan, at=4 * DAY)
    await append(book, Withdrawing(gang=gang(2), plan=planned, reason="X"), at=50 * DAY)
    for number in range(60):  # the book forgets where entries that are not open began
        opened = await append(book, bind(3), at=(51 + number) * DAY)
        await append(book, Close(gang=gang(3), entry=opened, outcome="bound", freshness="6"), at=(51 + number) * DAY)
    assert await book.trim(older_than=100 * DAY, at=120 * DAY) == planned
    assert fold_all(LedgerView(), stream.commits).open == book.view.open
    assert book.view.victims() == {"u1"}


async def test_nothing_young_is_trimmed():
    stream = Stream()
    book = await leading(stream, at=10 * DAY)
    await append(book, bind(1), at=11 * DAY)
    assert await book.trim(older_than=5 * DAY, at=20 * DAY) is None
    assert len(stream.commits) == 2


@given(st.lists(st.tuples(st.sampled_from("boucml"), st.integers(0, 2)), max_size=25), st.data())
def test_a_trimmed_ledger_folds_into_the_same_open_entries(steps, data):
    """Cut anywhere before the first open entry, with memory written again, the rest says the same."""
    commits: list[tuple[Sequence, Commit]] = []
    leader = Sequence(1)

    def add(*entries, epoch: int | None = None) -> None:
        sequence = Sequence(len(commits) + 1)
        commits.append(
            (sequence, Commit(epoch=Sequence(leader if epoch is None else epoch), identity="x", entries=entries))
        )

    add(Leader(identity="x", lease_transitions=1), epoch=0)
    for what, number in steps:
        open_now = fold_all(LedgerView(), commits).open
        mine = open_now.get(gang(number))
        if what == "l":
            add(Leader(identity="x", lease_transitions=1), epoch=0)
            leader = Sequence(len(commits))
        elif what == "m":
            add(Memory(core="c", value={"n": len(commits)}))
        elif what == "b" and mine is None:
            add(bind(number))
        elif what == "u" and mine is not None:
            add(Undoing(gang=gang(number), gang_uid="g", slots=mine.slots, reason="X", freshness="9"))
        elif what == "c" and mine is not None:
            add(Close(gang=gang(number), entry=mine.sequence, outcome="bound", freshness="9"))
    whole = fold_all(LedgerView(), commits)
    for core, value in whole.memory.items():
        add(Memory(core=core, value=value))
    first_open = min((entry.sequence for entry in whole.open.values()), default=len(commits) + 1 - len(whole.memory))
    cut = data.draw(st.integers(1, max(1, first_open)))
    rest = fold_all(LedgerView(), [item for item in commits if item[0] >= cut])
    assert rest.refused == 0
    assert {key: one.slots for key, one in rest.open.items()} == {key: one.slots for key, one in whole.open.items()}
    assert rest.memory == whole.memory
    assert rest.leader in {0, whole.leader}


async def test_reading_a_long_ledger_takes_time_in_proportion_to_it():
    commits = [
        (Sequence(1), Commit(epoch=Sequence(0), identity="x", entries=(Leader(identity="x", lease_transitions=1),)))
    ]
    for number in range(20_000):
        sequence = Sequence(2 + 2 * number)
        close = Close(gang=gang(number), entry=sequence, outcome="bound", freshness=str(number + 1))
        commits.append((sequence, Commit(epoch=Sequence(1), identity="x", entries=(bind(number),))))
        commits.append((Sequence(sequence + 1), Commit(epoch=Sequence(1), identity="x", entries=(close,))))
    book = Book(identity="me", stream=Stream())
    began = asyncio.get_running_loop().time()
    for start in range(0, len(commits), 500):
        await book.apply_all(commits[start : start + 500])
    assert asyncio.get_running_loop().time() - began < 5.0
    assert len(book.view.lingering) == 20_000
    book.saw_pods("20000")
    assert not book.view.lingering
