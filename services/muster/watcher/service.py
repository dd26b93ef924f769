"""The watcher as a process: one leads, by Lease; the leader alone writes STATE.

Lease muster-watcher ──► ensure STATE (a new incarnation when the store was emptied) ──► Follower
     ▲                                                                                      │
     └───────────────── lost: stop ◄──────── deposed or emptied: take over anew ◄───────────┘
"""

import asyncio

from muster.bus.client import Bus
from muster.bus.client import connect as connect_bus
from muster.bus.errors import BusError, DeposedError
from muster.bus.streams import StreamName, ensure_streams, stream_info
from muster.kube.config import Kube
from muster.kube.errors import KubeError
from muster.kube.lease import Leadership, LeaseLock
from muster.kube.serving import connect_cluster, service_lease
from muster.model.units import Sequence, incarnation_of
from muster.runtime.service import ServiceContext
from muster.runtime.tasks import run_together
from muster.watcher.following import Follower
from muster.watcher.kinds import watched_kinds
from muster.watcher.metrics import WatcherMetrics

NAME = "watcher"
RETRY_SECONDS = 1.0


async def main(context: ServiceContext) -> None:
    """Run the watcher until cancelled."""
    metrics = WatcherMetrics(context.metrics)
    metrics.limit_labels(watched_kinds(context.policy))
    metrics.leader.labels(NAME).set(0)
    async with await connect_cluster(context.config, service=NAME) as kube:
        bus = await connect_bus(context.config.nats_url, name=NAME, observer=context.log)
        try:
            context.ready.set("nats", True)
            lock = service_lease(
                kube,
                context.config,
                service=NAME,
                report=lambda sentence: context.log.warning("the lease", problem=sentence),
            )

            async def lead(leadership: Leadership) -> None:
                metrics.leader.labels(NAME).set(1)
                context.log.info("leading", lease_epoch=leadership.epoch)
                try:
                    # In a task of its own: the loss of the Lease must not get lost in a library's wait.
                    await run_together(reign(context, bus, kube, lock, metrics))
                finally:
                    metrics.leader.labels(NAME).set(0)
                    # A candidate is ready: it stands by.
                    context.ready.set("state", True)

            context.ready.set("state", True)
            await lock.run(lead)
        finally:
            await bus.close()


async def reign(context: ServiceContext, bus: Bus, kube: Kube, lock: LeaseLock, metrics: WatcherMetrics) -> None:
    """Write STATE while the Lease is held: after every failure take over anew, under a new epoch."""
    while True:
        context.ready.set("state", False)
        try:
            await ensure_state(bus, lock)
            await Follower(
                bus,
                kube,
                watched_kinds(context.policy),
                identity=context.config.identity,
                metrics=metrics,
                ready=context.ready,
                log=context.log,
            ).run()
        except DeposedError as error:
            metrics.reloads.labels("deposed").inc()
            context.log.warning("no longer the writer of STATE; taking over anew", error=str(error))
        except (BusError, KubeError) as error:
            metrics.reloads.labels("failed").inc()
            context.log.warning("STATE cannot be written now", error=str(error))
        await asyncio.sleep(RETRY_SECONDS)


async def ensure_state(bus: Bus, lock: LeaseLock) -> None:
    """Make STATE exist; one that is made anew starts above every sequence of the one before.

    Raises:
        BusError, KubeError: NATS or the API server cannot be used now.
    """
    incarnation = await lock.incarnation()
    info = await stream_info(bus, StreamName.STATE)
    if info is None:
        incarnation += 1
        await lock.set_incarnation(incarnation)
    else:
        reached = incarnation_of(Sequence(max(info.state.first_seq, info.state.last_seq)))
        if reached > incarnation:
            # The Lease was lost; the stream remembers better.
            incarnation = reached
            await lock.set_incarnation(incarnation)
    await ensure_streams(bus, incarnation=incarnation, names=(StreamName.STATE,))
