"""All fake kubelets of a simulated cluster, driven by one object: no task a node, no task a pod.

    register (taint not-ready) ─► Ready after `ready_seconds` ─► lease renewed every `lease_seconds`
    pods/binding ─► the node's `NodePods`, which admits, runs, ends and removes its pods by timers

A stopped kubelet (`stop_node`) reports nothing more; what happens then is the node lifecycle controller's business.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from muster.simulator.cards import CardState, Hold
from muster.simulator.clock import micro_timestamp
from muster.simulator.cluster import ClusterSpec, NodeSpec
from muster.simulator.errors import ApiError
from muster.simulator.node_pods import NodePods
from muster.simulator.node_status import LEASE_NAMESPACE, lease_object, node_object, node_status
from muster.simulator.pod_life import Findings, Mixup, PodLife, Violation
from muster.simulator.pod_plan import Plan
from muster.simulator.store import Store
from muster.simulator.timers import Timer, Timers

LEASES = "leases.coordination.k8s.io"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class KubeletTimes:
    """How kubelets pace themselves, in simulated seconds."""

    ready_seconds: float = 0.2
    """From registration to the first Ready report."""
    lease_seconds: float = 10.0


@dataclass(slots=True)
class _Machine:
    """One node's kubelet: what it is, its pods, whether it is up."""

    spec: NodeSpec
    number: int
    pods: NodePods
    ready: Timer | None = None
    lease: Timer | None = None


class Kubelets:
    """The kubelets of every node of `spec`; `start` registers the nodes.

    `plan` says what pods do (see `pod_plan`); pods without a rule or annotation run until they are deleted.
    """

    def __init__(
        self,
        store: Store,
        spec: ClusterSpec,
        *,
        plan: Plan | None = None,
        timers: Timers | None = None,
        times: KubeletTimes | None = None,
    ) -> None:
        self.plan = plan if plan is not None else Plan()
        self._store = store
        self._times = times if times is not None else KubeletTimes()
        self._timers = timers if timers is not None else Timers(store.clock)
        self._findings = Findings()
        self._machines: dict[str, _Machine] = {}
        self._numbers = 0
        self._unsubscribe: list[Callable[[], None]] = []
        self._specs = spec.expand()

    # -- control -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Register every node and take up the pods that are bound to them already."""
        self._unsubscribe = [
            self._store.subscribe("pods", self._on_pod),
            self._store.subscribe("nodes", self._on_node),
        ]
        for spec in self._specs:
            self.add_node(spec)

    def stop(self) -> None:
        """Stop all kubelets; their objects stay as they are."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        self._timers.stop()

    def add_node(self, spec: NodeSpec) -> None:
        """A new machine whose kubelet registers its Node."""
        if spec.name in self._machines:
            raise ValueError(f"node {spec.name}: there is a machine of that name already")
        self._numbers += 1
        pods = NodePods(
            self._store, self._timers, spec=spec, number=self._numbers, plan=self.plan, findings=self._findings
        )
        self._machines[spec.name] = _Machine(spec, self._numbers, pods)
        self.start_node(spec.name)

    def remove_node(self, name: str) -> None:
        """The machine is taken away: its pods end with it, its Node object is deleted."""
        machine = self._machine(name)
        self._go_offline(machine)
        machine.pods.power_off()
        del self._machines[name]
        if self._store.find("nodes", None, name) is not None:
            self._store.delete("nodes", None, name)

    def stop_node(self, name: str) -> None:
        """The kubelet loses the API server: no lease, no status, no pod life to be seen; containers go on."""
        self._go_offline(self._machine(name))

    def start_node(self, name: str) -> None:
        """The kubelet comes (back): it registers if its Node is gone, reports Ready and makes up for what it missed."""
        machine = self._machine(name)
        if machine.pods.online:
            return
        machine.pods.online = True
        if self._store.find("nodes", None, name) is None:
            offer = machine.pods.plugin.advertise(machine.pods.cards)
            node = node_object(machine.spec, address=machine.pods.address, offer=offer, now=self._store.clock.now())
            self._store.create("nodes", node)
        self._resync(machine)
        machine.ready = self._timers.after(self._times.ready_seconds, lambda: self._report(machine, ready=True))
        self._renew(machine)

    def lose_card(self, node: str, index: int) -> None:
        """The card falls off the bus: less is allocatable, pods on it fail."""
        machine = self._machine(node)
        state = machine.pods.cards.state(index)
        state.healthy = False
        self._report(machine, ready=machine.ready is None)
        for uid in list(state.holds):
            life = next(life for life in machine.pods if life.uid == uid)
            machine.pods.fail(life, exit_code=1, message=f"card {index} ({state.card.uuid}) was lost")

    def restore_card(self, node: str, index: int) -> None:
        """The card works again."""
        machine = self._machine(node)
        machine.pods.cards.state(index).healthy = True
        self._report(machine, ready=machine.ready is None)

    def end_pod(self, namespace: str, name: str, *, exit_code: int) -> None:
        """The pod's containers end now with this code; LookupError when no kubelet runs such a pod."""
        machine, life = self._life(namespace, name)
        machine.pods.finish(life, exit_code)

    # -- what tests look at ----------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of all machines."""
        return tuple(self._machines)

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Broken promises, oldest first: more on a card than it has, cards where there are none."""
        return tuple(self._findings.violations)

    @property
    def mixups(self) -> tuple[Mixup, ...]:
        """Pods that were handed cards meant for another, oldest first."""
        return tuple(self._findings.mixups)

    def cards(self, node: str) -> tuple[CardState, ...]:
        """The cards of a node with their holders; do not change them."""
        return self._machine(node).pods.cards.states

    def model(self, node: str) -> str:
        """The model of a node's cards."""
        return self._machine(node).spec.gpu_model

    def busy(self, node: str, hold: Hold) -> float:
        """Percent of a card's core that a holder keeps busy: nothing before its pod runs."""
        return self._machine(node).pods.busy(hold)

    def cards_of(self, namespace: str, name: str) -> tuple[int, ...]:
        """The indexes of the cards that a pod really has; LookupError when no kubelet knows the pod."""
        machine, life = self._life(namespace, name)
        return machine.pods.cards.held_by(life.uid)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _machine(self, name: str) -> _Machine:
        machine = self._machines.get(name)
        if machine is None:
            raise LookupError(
                f"node {name!r}: there is no such machine; there are {', '.join(list(self._machines)[:5])} …"
            )
        return machine

    def _life(self, namespace: str, name: str) -> tuple[_Machine, PodLife]:
        for machine in self._machines.values():
            for life in machine.pods:
                if (life.namespace, life.name) == (namespace, name):
                    return machine, life
        raise LookupError(f"pod {namespace}/{name}: no kubelet knows it")

    def _on_pod(self, event: str, pod: dict[str, Any], _old: dict[str, Any] | None) -> None:
        if event == "DELETED":
            machine = self._machines.get(pod["spec"].get("nodeName") or "")
            if machine is not None:
                machine.pods.gone(pod["metadata"]["uid"])
            return
        machine = self._machines.get(pod["spec"].get("nodeName") or "")
        # A stopped kubelet hears nothing; it lists its pods when it starts again.
        if machine is not None and machine.pods.online:
            machine.pods.seen(pod)

    def _on_node(self, event: str, node: dict[str, Any], _old: dict[str, Any] | None) -> None:
        if event == "DELETED":
            machine = self._machines.get(node["metadata"]["name"])
            if machine is not None:
                # A kubelet registers only when it starts: without its Node object it is as good as gone.
                self._go_offline(machine)
                machine.pods.power_off()

    def _go_offline(self, machine: _Machine) -> None:
        machine.pods.online = False
        for timer in (machine.ready, machine.lease):
            if timer is not None:
                timer.cancel()
        machine.ready = machine.lease = None

    def _resync(self, machine: _Machine) -> None:
        bound = {
            pod["metadata"]["uid"]: pod
            for pod in self._store.objects("pods")
            if pod["spec"].get("nodeName") == machine.spec.name
        }
        for life in list(machine.pods):
            if life.uid not in bound:
                machine.pods.gone(life.uid)
        for pod in bound.values():
            machine.pods.seen(pod)
        machine.pods.catch_up()

    def _report(self, machine: _Machine, *, ready: bool) -> None:
        """Write the node's status and the plugin's annotations as they are now."""
        if ready:
            machine.ready = None
        if not machine.pods.online:
            return
        name = machine.spec.name
        node = self._store.find("nodes", None, name)
        if node is None:
            return
        offer = machine.pods.plugin.advertise(machine.pods.cards)
        annotations: Mapping[str, str] = node["metadata"].get("annotations") or {}
        changed = {key: value for key, value in offer.annotations.items() if annotations.get(key) != value}
        if changed:
            self._store.patch("nodes", None, name, {"metadata": {"annotations": changed}})
        status = node_status(
            machine.spec,
            address=machine.pods.address,
            offer=offer,
            ready=ready,
            now=self._store.clock.now(),
            old=node.get("status"),
        )
        # Strategic, as kubelet does it: amounts that others patched onto the node stay.
        self._store.patch("nodes", None, name, {"status": status}, content_type=STRATEGIC, subresource="status")

    def _renew(self, machine: _Machine) -> None:
        name, now = machine.spec.name, self._store.clock.now()
        if self._store.find(LEASES, LEASE_NAMESPACE, name) is None:
            node = self._store.find("nodes", None, name)
            if node is None:
                return
            try:
                self._store.create(LEASES, lease_object(node, now=now), namespace=LEASE_NAMESPACE)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
        else:
            self._store.patch(LEASES, LEASE_NAMESPACE, name, {"spec": {"renewTime": micro_timestamp(now)}})
        # The first renewal is early by a part of the period, so that a thousand nodes do not renew in the same moment.
        first = machine.lease is None
        seconds = self._times.lease_seconds * (machine.number % 97 / 97 if first else 1.0)
        machine.lease = self._timers.after(max(seconds, 0.1), lambda: self._renew(machine))
