"""The models know what is guaranteed to other queues, so that their plans are not lost to it."""

import pytest

from muster.model.policy import Policy, Solver
from muster.model.workloads import Limits
from tests.decide.build import CARD, gang, node, placed, queue, role, run, snapshot

ENGINE = Policy(solver=Solver(exact_max_variables=0, batch_deterministic_seconds=0.05, wall_seconds=30))


@pytest.mark.parametrize(
    "policy", [pytest.param(Policy(), id="the exact model"), pytest.param(ENGINE, id="the engine")]
)
def test_what_another_queue_is_guaranteed_is_left_by_the_plan_that_fills_the_rest(policy):
    """Seven of 24 cards are not guaranteed: 1 + 3 + 3 fills them, which no greedy order finds."""
    there = [node(f"n{number}", gpus=8) for number in range(3)]
    jobs = [gang(f"g{order}", role(gpus=cards), order=order) for order, cards in enumerate((1, 2, 3, 5, 3))]
    queues = [queue("q"), queue("p", guarantee=Limits(amounts={"gpu": 17 * CARD}))]
    assert sorted(placed(run(snapshot(there, jobs, queues), policy=policy))) == ["g0", "g2", "g4"]
