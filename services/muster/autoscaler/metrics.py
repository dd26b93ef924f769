"""What the autoscaler measures. No node or job label anywhere."""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from muster.decide.commitments import NodePromise, NodeVerb
from muster.decide.idle import Demand, Look
from muster.decide.idle.pools import cards_of
from muster.fenced.executor import Result
from muster.model.nodes import Node
from muster.model.units import NodeName

LOOK_BUCKETS = (0.01, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)


class AutoscalerMetrics:
    """The autoscaler's metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leader = Gauge("muster_autoscaler_leader", "1 while this process works.", registry=registry)
        self.look = Histogram(
            "muster_autoscaler_look_seconds", "Time of one look at the nodes.", registry=registry, buckets=LOOK_BUCKETS
        )
        self.defects = Counter(
            "muster_autoscaler_defects_total", "Looks that failed although they must not.", registry=registry
        )
        self.idle = Gauge("muster_idle_nodes", "Open nodes that were empty for their whole window.", registry=registry)
        self.nodes = Gauge(
            "muster_idle_node_states",
            "Nodes with open entries, by pool and state (cordon, removable, uncordon).",
            ["pool", "state"],
            registry=registry,
        )
        self.vetoes = Gauge(
            "muster_idle_vetoes", "Nodes with cards that stay open, by the reason.", ["reason"], registry=registry
        )
        self.proposals = Counter(
            "muster_autoscaler_proposals_total",
            "Nodes proposed, by verb (cordon, uncordon) and answer: committed, a refusal's code, unanswered.",
            ["verb", "answer"],
            registry=registry,
        )
        self.flaps = Counter(
            "muster_idle_flaps_total",
            "Nodes given back sooner after their cordon than idle.min_down.",
            registry=registry,
        )
        self.saved = Counter(
            "muster_idle_card_seconds_total",
            "Card seconds of nodes while they were cordoned as idle.",
            registry=registry,
        )
        self.demand = Gauge(
            "muster_demand_nodes", "Nodes that waiting gangs would need beside those that there are, by pool.", ["pool"],
            registry=registry,
        )  # fmt: skip
        self.demands = Counter("muster_demand_events_total", "Demands for nodes that were told.", registry=registry)
        self.writes = Counter(
            "muster_node_writes_total",
            "Writes on nodes, by verb (cordon, removable, uncordon, keep, release) and outcome.",
            ["verb", "outcome"],
            registry=registry,
        )
        self.paused = Gauge("muster_autoscaler_paused", "1 while cordons are paused.", registry=registry)
        self._vetoes: set[str] = set()
        self._states: set[tuple[str, str]] = set()
        self._pools: set[str] = set()

    def looked(self, look: Look) -> None:
        """What a look found."""
        self.idle.set(look.idle_nodes)
        for reason in self._vetoes - set(look.vetoes):
            self.vetoes.remove(reason)
        for reason, number in look.vetoes.items():
            self.vetoes.labels(reason).set(number)
        self._vetoes = set(look.vetoes)

    def demanded(self, demands: Iterable[Demand]) -> None:
        """What waiting gangs would need now."""
        wanted: dict[str, int] = {}
        for demand in demands:
            wanted[demand.pool] = wanted.get(demand.pool, 0) + demand.nodes
        for pool in self._pools - wanted.keys():
            self.demand.remove(pool)
        for pool, number in wanted.items():
            self.demand.labels(pool).set(number)
        self._pools = set(wanted)

    def standing(self, promises: Iterable[NodePromise], nodes: Mapping[NodeName, Node], seconds: float) -> None:
        """What is open for nodes, as it has been for so many seconds."""
        states: dict[tuple[str, str], int] = {}
        for promise in promises:
            key = (promise.pool, promise.verb.value)
            states[key] = states.get(key, 0) + 1
            node = nodes.get(promise.node)
            if node is not None and promise.verb is not NodeVerb.UNCORDON:
                self.saved.inc(cards_of(node) * seconds)
        for pool, state in self._states - states.keys():
            self.nodes.remove(pool, state)
        for (pool, state), number in states.items():
            self.nodes.labels(pool, state).set(number)
        self._states = set(states)

    def acted(self, verb: str, result: Result, _seconds: float) -> None:
        """A write on a node was answered."""
        self.writes.labels(verb, result.outcome.value).inc()
