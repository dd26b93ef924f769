"""The preemptor's real main() with a real scheduler, a real NATS server and the simulated cluster."""

import contextlib
import time

from muster.decide.warnings import EVICT_AT, EVICT_FOR, EVICT_PLAN
from muster.model.durations import parse_moment
from muster.model.policy import Policy, Preemption
from tests.line import Line
from tests.nats_fixtures import eventually
from tests.preemptor.seen import watched

SERVICES = ("watcher", "scheduler", "preemptor")


@contextlib.asynccontextmanager
async def full_cluster(nats_server, *, grace: float = 1.0, policy: Policy | None = None, cluster: str = "2x8", **low):
    """A queue, two priorities, and `low`: two pods that hold all cards."""
    policy = policy or Policy(preemption=Preemption(grace=grace))
    async with Line(nats_server.url, cluster=cluster, services=SERVICES, policy=policy) as line, watched(line) as seen:
        await line.create_queue("default")
        await line.create_priority("urgent", 1000)
        await line.create_priority("low", 1)
        await line.create_gang("low", **{"pods": 2, "minimum": 1, "cards": 8, "priority": "low", **low})
        await eventually(lambda: running(line, "low", 2))
        yield line, seen


async def running(line, gang: str, pods: int) -> bool:
    found = [pod for pod in await line.pods() if pod.metadata.name.startswith(f"{gang}-")]
    return sum(pod.status.phase == "Running" for pod in found) == pods


async def test_a_gang_of_higher_priority_gets_the_room_of_a_lower_one_after_a_warning_and_its_grace(nats_server):
    async with full_cluster(nats_server, grace=2.0) as (line, seen):
        began = time.time()
        await line.create_gang("urgent", pods=1, cards=8, priority="urgent")
        await eventually(lambda: running(line, "urgent", 1))
        evicted = [name for name in ("low-0", "low-1") if name not in {pod.metadata.name for pod in await line.pods()}]
        assert len(evicted) == 1
        warned = seen.pods[evicted[0]]
        marks = next(one.annotations for one in warned if EVICT_AT in one.annotations)
        assert marks[EVICT_FOR] == "default/urgent"
        assert parse_moment(marks[EVICT_AT]) >= began + 2.0
        leaving = next(one for one in warned if one.terminating)
        assert leaving.seen_at >= parse_moment(marks[EVICT_AT])
        plan = seen.ledger.plans[0]
        assert marks[EVICT_PLAN] == str(plan.sequence)
        assert leaving.fence >= plan.sequence
        events = {
            (event["involvedObject"]["kind"], event["involvedObject"]["name"], event["reason"])
            for event in seen.events()
        }
        assert {("Pod", evicted[0], "Preempting"), ("PodGroup", "low", "Preempting")} <= events
        assert ("PodGroup", "urgent", "RoomComing") in events
