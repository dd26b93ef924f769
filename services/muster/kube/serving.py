"""How every service reaches the cluster and its Lease, by its configuration."""

from collections.abc import Callable

from muster.kube.config import Kube, connect
from muster.kube.lease import LeaseLock, LeaseTimings
from muster.runtime.config import ServiceConfig

SHARE_OF_DURATION = 0.1
"""A candidate's pace, and the time a leader has to stop, as parts of the Lease's duration."""


async def connect_cluster(config: ServiceConfig, *, service: str) -> Kube:
    """The connection to the cluster that the configuration names; an async context manager."""
    return await connect(kubeconfig=config.kubeconfig, in_cluster=config.in_cluster, user_agent=f"muster-{service}")


def lease_timings(config: ServiceConfig) -> LeaseTimings:
    """The Lease's timings."""
    lease = config.lease
    short = max(0.2, lease.duration * SHARE_OF_DURATION)
    return LeaseTimings(
        duration=lease.duration, renew=lease.renew, write_timeout=lease.write_timeout, retry=short, margin=short
    )


def service_lease(kube: Kube, config: ServiceConfig, *, service: str, report: Callable[[str], None]) -> LeaseLock:
    """The Lease ``muster-<service>``; what keeps it from being had is told to `report`."""
    return LeaseLock(
        kube,
        namespace=config.namespace,
        name=f"muster-{service}",
        identity=config.identity,
        timings=lease_timings(config),
        report=report,
    )
