"""A simulated cluster without its HTTP server, on a virtual clock: what the tests of kubelets and controllers stand on."""

from collections.abc import Mapping
from typing import Any

from muster.simulator.clock import VirtualClock
from muster.simulator.cluster import ClusterSpec, load_cluster, seed
from muster.simulator.controllers import Controllers
from muster.simulator.kubelet import Kubelets
from muster.simulator.pod_plan import Plan
from muster.simulator.store import Store
from muster.simulator.timers import Timers

Object = dict[str, Any]


class Bench:
    """Store, kubelets and controllers, started; `advance` moves time."""

    def __init__(
        self, cluster: str | ClusterSpec = "2x8", *, plan: Plan | None = None, controllers: bool = True
    ) -> None:
        self.clock = VirtualClock()
        self.store = Store(self.clock, seed=1)
        seed(self.store)
        self.timers = Timers(self.clock)
        spec = load_cluster(cluster) if isinstance(cluster, str) else cluster
        self.kubelets = Kubelets(self.store, spec, plan=plan, timers=self.timers)
        self.controllers = Controllers(self.store, timers=self.timers) if controllers else None
        self.kubelets.start()

    @classmethod
    async def ready(cls, cluster: str | ClusterSpec = "2x8", **options: Any) -> "Bench":
        """One whose nodes are Ready."""
        bench = cls(cluster, **options)
        await bench.advance(1.0)
        return bench

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    def pod(
        self,
        name: str,
        *,
        limits: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        node: str | None = None,
        bind: Mapping[str, str] | None = None,
        namespace: str = "default",
        owners: list[Object] | None = None,
        **spec: Any,
    ) -> Object:
        """Create a pod; bound to `node` with the annotations `bind` when a node is named."""
        container = {"name": "c", "image": "registry.example.com/x:1", "resources": {"limits": dict(limits or {})}}
        metadata: Object = {"name": name, "annotations": dict(annotations or {})}
        if owners:
            metadata["ownerReferences"] = owners
        created = self.store.create(
            "pods",
            {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Never", **spec}},
            namespace=namespace,
        )
        if node is not None:
            self.bind(name, node, bind, namespace=namespace)
        return created

    def bind(
        self, name: str, node: str, annotations: Mapping[str, str] | None = None, *, namespace: str = "default"
    ) -> None:
        self.store.bind(
            namespace, name, {"metadata": {"annotations": dict(annotations or {})}, "target": {"name": node}}
        )

    def get(self, name: str, resource: str = "pods", namespace: str | None = "default") -> Object | None:
        return self.store.find(resource, namespace, name)

    def phase(self, name: str) -> str | None:
        found = self.get(name)
        return None if found is None else found["status"]["phase"]

    def status(self, name: str) -> Object:
        return self.store.get("pods", "default", name)["status"]

    def node(self, name: str) -> Object:
        return self.store.get("nodes", None, name)

    def taints(self, name: str) -> set[tuple[str, str]]:
        return {
            (t["key"].removeprefix("node.kubernetes.io/"), t["effect"])
            for t in self.node(name)["spec"].get("taints") or ()
        }

    def ready_status(self, name: str) -> str:
        return next(c["status"] for c in self.node(name)["status"]["conditions"] if c["type"] == "Ready")


def assigned(index: str, time: int = 1) -> dict[str, str]:
    """The annotations a scheduler puts on a Binding for Volcano's plugin."""
    return {"volcano.sh/gpu-index": index, "volcano.sh/predicate-time": str(time)}
