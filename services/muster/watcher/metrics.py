"""What the watcher measures."""

import time
from collections.abc import Iterable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from muster.kube.decoding import KindInfo
from muster.watcher.kinds import Watched


class WatcherMetrics:
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register them."""
        self.leader = Gauge("muster_leader", "1 while this process leads.", ("service",), registry=registry)
        self.epoch = Gauge("muster_state_epoch", "Epoch under which STATE is written.", registry=registry)
        self.objects = Gauge("muster_state_objects", "Objects held in STATE.", registry=registry)
        self.age = Gauge(
            "muster_reflector_age_seconds",
            "Seconds since a kind's watch last told something.",
            ("kind",),
            registry=registry,
        )
        self.restarts = Counter(
            "muster_reflector_restarts_total", "Watches and lists that ended.", ("kind", "cause"), registry=registry
        )
        self.malformed = Counter(
            "muster_reflector_malformed_total", "Objects that could not be decoded.", ("kind",), registry=registry
        )
        self.published = Counter(
            "muster_state_published_total", "Messages written to STATE.", ("kind", "change"), registry=registry
        )
        self.lag = Histogram(
            "muster_state_publish_lag_seconds",
            "From the receipt of a change to its storage in STATE.",
            registry=registry,
            buckets=(0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2, 10),
        )
        self.waiting = Gauge(
            "muster_state_waiting_changes", "Changes received and not yet published.", registry=registry
        )
        self.reloads = Counter(
            "muster_state_reloads_total", "Times STATE was loaded again.", ("cause",), registry=registry
        )

    def limit_labels(self, kinds: Iterable[Watched]) -> None:
        """Show every kind from the start, at zero."""
        for kind in kinds:
            self.age.labels(kind.name).set(0)


class ReflectorWatch:
    """Hears a reflector for metrics and logs."""

    def __init__(self, kind: Watched, metrics: WatcherMetrics, log: structlog.stdlib.BoundLogger) -> None:
        """For one kind."""
        self._kind = kind
        self._metrics = metrics
        self._log = log.bind(kind=kind.name)
        self.heard = time.monotonic()

    def listed(self, kind: KindInfo[Any], items: int, seconds: float) -> None:
        """A list was taken."""
        del kind
        self._log.info("listed", items=items, seconds=round(seconds, 3))

    def restarted(self, kind: KindInfo[Any], cause: str, message: str) -> None:
        """A watch or list ended; a plain end is daily business and is only counted."""
        del kind
        self._metrics.restarts.labels(self._kind.name, cause).inc()
        if cause != "end":
            self._log.warning("the watch is started again", cause=cause, message=message)

    def malformed(self, kind: KindInfo[Any], key: str, message: str) -> None:
        """An object was skipped."""
        del kind
        self._metrics.malformed.labels(self._kind.name).inc()
        self._log.warning("an object cannot be read and is skipped", key=key, message=message)
