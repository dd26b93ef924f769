"""The controllers of kube-controller-manager that a cluster of jobs cannot do without, on the simulated store."""

from muster.simulator.controllers.disruption import Disruption
from muster.simulator.controllers.garbage import GarbageCollector
from muster.simulator.controllers.jobs import JobController
from muster.simulator.controllers.namespaces import Namespaces
from muster.simulator.controllers.node_lifecycle import NodeLifecycle
from muster.simulator.controllers.pod_collector import PodCollector
from muster.simulator.controllers.service_accounts import ServiceAccounts
from muster.simulator.controllers.taint_eviction import TaintEviction
from muster.simulator.controllers.volumes import Volumes
from muster.simulator.store import Store
from muster.simulator.timers import Timers


class Controllers:
    """All of them on one store, each acting from the moment it is made; they stop with their timers."""

    def __init__(self, store: Store, *, timers: Timers | None = None) -> None:
        self.timers = timers if timers is not None else Timers(store.clock)
        self.service_accounts = ServiceAccounts(store)
        self.namespaces = Namespaces(store, self.timers)
        self.node_lifecycle = NodeLifecycle(store, self.timers)
        self.taint_eviction = TaintEviction(store, self.timers)
        self.pod_collector = PodCollector(store, self.timers)
        self.jobs = JobController(store, self.timers)
        self.disruption = Disruption(store, self.timers)
        self.volumes = Volumes(store, self.timers)
        self.garbage = GarbageCollector(store, self.timers)

    def stop(self) -> None:
        """Act no more."""
        self.timers.stop()
