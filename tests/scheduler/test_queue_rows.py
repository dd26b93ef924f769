"""`muster get queues`: what a queue has as its share, what of its cards is borrowed, and what could be taken back."""

import pytest

from muster.decide.memory import CoreMemory
from muster.decide.scheduling import decide
from muster.model.instructions import Pending
from muster.model.policy import Policy
from muster.scheduler.queue_rows import queue_rows
from tests.decide.build import CARD, gang, node, queue, role, snapshot, standing, whole


def rows(*queues, used, asked=0):
    """Rows when `dev` uses so many of 8 cards and `prod` asks for so many."""
    stands = gang("d", role(gpus=used), members=(standing("d-0", "n1", cards=whole(*range(used))),), queue="dev")
    waits = gang("p", role(gpus=max(asked, 1)), queue="prod", minimum=1)
    state = snapshot([node(gpus=8)], [stands, waits] if asked else [stands], queues=queues)
    decision = decide(state, CoreMemory(), 100.0, Policy())
    pending = {one.gang: one for one in decision.instructions if isinstance(one, Pending)}
    return {row.name: row for row in queue_rows(state, pending, decision.shares)}


@pytest.mark.parametrize(
    ("dev", "asked", "share", "borrowed", "taken"),
    [
        pytest.param({"deserved": 4}, 0, 8, 4, 0, id="all that it uses is its share while nobody else asks"),
        pytest.param({"deserved": 4}, 4, 4, 4, 4, id="who deserves the rest and asks for it makes it reclaimable"),
        pytest.param({"deserved": 4, "reclaimable": False}, 4, 4, 4, 0, id="not from a queue that is not reclaimable"),
        pytest.param({"deserved": 8}, 0, 8, 0, 0, id="within deserved nothing is borrowed"),
        pytest.param({}, 4, 4, 8, 4, id="a queue that names no deserved borrows all of it"),
    ],
)
def test_what_a_queue_has_borrowed(dev, asked, share, borrowed, taken):
    deserved = {"gpu": dev.pop("deserved") * CARD} if "deserved" in dev else None
    row = rows(queue("dev", deserved=deserved, **dev), queue("prod", deserved={"gpu": 4 * CARD}), used=8, asked=asked)[
        "dev"
    ]
    assert (row.used, row.share) == (8 * CARD, share * CARD)
    assert (row.borrowed, row.reclaimable) == (borrowed * CARD, taken * CARD)


def test_nothing_is_borrowed_where_nobody_deserves_anything():
    row = rows(queue("dev"), queue("prod"), used=8, asked=4)["dev"]
    assert (row.borrowed, row.reclaimable) == (0, 0)
    assert row.share == 4 * CARD
