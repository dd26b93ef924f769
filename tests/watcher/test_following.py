import msgspec
import structlog
from prometheus_client import CollectorRegistry

from muster.bus.errors import MessageTooLargeError
from muster.kube.decoding import KINDS
from muster.kube.view import Changed
from muster.model.policy import Policy
from muster.runtime.health import Readiness
from muster.watcher.following import Follower, Received
from muster.watcher.kinds import watched_kinds
from muster.watcher.metrics import WatcherMetrics

KIND = {kind.name: kind for kind in watched_kinds(Policy())}


class Publisher:
    """Stores what it is given, up to the first that is too large."""

    def __init__(self, too_large):
        self.too_large = too_large
        self.sequence = 100
        self.stored = []

    async def publish(self, publications):
        for item in publications:
            if item.key in self.too_large:
                raise MessageTooLargeError(item.key)
            self.sequence += 1
            self.stored.append(item.key)
        return self.sequence


def changed(name):
    raw = msgspec.convert({"metadata": {"name": name, "namespace": "ns", "resourceVersion": "1"}}, KINDS["pods"].struct)
    return Received(kind=KIND["pod"], change=Changed(KINDS["pods"], raw), at=0.0)


async def test_an_object_that_is_too_large_is_left_out_and_the_others_are_published():
    metrics = WatcherMetrics(CollectorRegistry())
    follower = Follower(
        None, None, tuple(KIND.values()), identity="me", metrics=metrics, ready=Readiness(), log=structlog.get_logger()
    )
    follower.publisher = Publisher({"ns/b", "ns/c"})
    await follower._publish([changed(name) for name in "abcd"])
    assert follower.publisher.stored == ["ns/a", "ns/d"]
    follower.publisher.too_large = set()
    await follower._publish([changed(name) for name in "abcd"])
    assert follower.publisher.stored == ["ns/a", "ns/d", "ns/b", "ns/c"]
