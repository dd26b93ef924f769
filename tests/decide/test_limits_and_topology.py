"""A parameter server and workers of 8 cards in one rack, in a queue capped at 20 cards."""

import msgspec
import pytest

from muster.model.pods import TopologyWish
from muster.model.policy import Policy, Solver
from tests.decide.build import CARD, GIB, gang, node, placed, queue, reasons, role, run, snapshot, standing, whole

NODES = [node(f"g{number}", gpus=8, labels={"topology.muster.dev/rack": "ab"[number % 2]}) for number in range(10)]
CAPPED = [queue("q", capability={"gpu": 20 * CARD})]


def job(*, workers, minimum):
    one = gang("job", role("ps", cpu=8000, memory=32 * GIB), role("worker", count=workers, gpus=8), minimum=minimum)
    return msgspec.structs.replace(one, topology=TopologyWish(required_tier=1))


def using(cards):
    members = tuple(standing(f"u{number}", f"g{number // 8}", cards=whole(number % 8)) for number in range(cards))
    return gang("u", role(count=0, gpus=1), minimum=cards, members=members)


@pytest.mark.parametrize(
    ("used", "workers", "minimum", "says"),
    [
        pytest.param(0, 3, 4, "asks 24 cards, queue q is capped at 20 cards", id="more than the limit"),
        pytest.param(
            12, 3, 4, "asks 24 cards, queue q is capped at 20 cards", id="more than the limit, which is used in part"
        ),
        pytest.param(
            12, 2, 3, "asks 16 cards; queue q uses 12 cards of its limit 20 cards", id="more than is left of the limit"
        ),
    ],
)
@pytest.mark.parametrize("enabled", [pytest.param(True, id="with the solver"), pytest.param(False, id="without it")])
def test_the_limit_is_the_reason_and_not_the_rack(used, workers, minimum, says, enabled):
    policy = Policy(solver=Solver(enabled=enabled))
    gangs = [*([using(used)] if used else []), job(workers=workers, minimum=minimum)]
    why = reasons(run(snapshot(NODES, gangs, CAPPED, levels=policy.topology_levels), policy=policy))["job"]
    assert why.code == "QUEUE_CAPABILITY"
    assert says in why.message, why.message


def test_without_the_solver_too_a_gang_takes_the_pods_that_its_queue_may_pay_for():
    policy = Policy(solver=Solver(enabled=False))
    found = placed(
        run(snapshot(NODES, [job(workers=3, minimum=3)], CAPPED, levels=policy.topology_levels), policy=policy)
    )
    assert len(found["job"]) == 3
