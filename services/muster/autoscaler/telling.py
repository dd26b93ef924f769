"""What people are told of nodes: an Event on the node or the job, and a line of the audit log, each when it changes.

WouldCordon     the policy lets cordons only be observed          on the node
Cordoned        it was idle; it may be removed                    on the node
GivenBack       it is needed again                                on the node
NodesWanted     so many more nodes would complete a waiting gang  on its PodGroup
"""

from collections.abc import Callable, Iterable, Mapping

from muster.bus.messages import Decision
from muster.decide.commitments import NodePromise, NodeVerb
from muster.decide.idle import CordonIdea, Demand
from muster.kube.recording import ObjectReference
from muster.kube.writer import Writer
from muster.model.units import GangKey, NodeName, Sequence, split_key
from muster.view.world import World

PODGROUP_VERSION = "scheduling.volcano.sh/v1beta1"
EVENTS = {NodeVerb.REMOVABLE: "Cordoned", NodeVerb.UNCORDON: "GivenBack"}


class Telling:
    """What was told in one term."""

    def __init__(
        self, *, writer: Writer, world: World, say: Callable[[Decision], None], wall: Callable[[], float]
    ) -> None:
        self._writer = writer
        self._world = world
        self._say = say
        self._wall = wall
        self._would: dict[NodeName, str] = {}
        self._entries: dict[NodeName, Sequence] = {}
        self._wanted: dict[GangKey, Demand] = {}

    def would_cordon(self, ideas: Iterable[CordonIdea]) -> None:
        """What would be done if the policy said act."""
        now = {one.node: one for one in ideas}
        for name, idea in now.items():
            if self._would.get(name) == idea.node_uid:
                continue
            message = f"would be cordoned (actions.cordon is observe): {idea.message}"
            self._say(Decision(verb="cordon", node=name, code="WOULD_CORDON", message=message, at=self._wall()))
            self._event(name, "WouldCordon", message)
        self._would = {name: one.node_uid for name, one in now.items()}

    def entries(self, promises: Mapping[NodeName, NodePromise]) -> None:
        """What the LEDGER says of nodes now; the audit log has it from the leader."""
        for name, promise in promises.items():
            reason = EVENTS.get(promise.verb)
            if reason is not None and self._entries.get(name) != promise.sequence:
                message = promise.message or promise.reason
                may = " (it may be removed)" if promise.verb is NodeVerb.REMOVABLE else ""
                self._event(name, reason, f"{message}{may}")
        self._entries = {name: promise.sequence for name, promise in promises.items()}

    def wanted(self, demands: Iterable[Demand]) -> int:
        """What would help gangs that wait; returns how many of them were not told before."""
        now = {demand.gang: demand for demand in demands}
        news = [demand for gang, demand in now.items() if self._wanted.get(gang) != demand]
        for demand in news:
            self._say(
                Decision(
                    verb="demand",
                    gang=demand.gang,
                    code="NODES_WANTED",
                    message=demand.message,
                    numbers={
                        "nodes": demand.nodes,
                        "cards": demand.cards,
                        "pool": demand.pool,
                        "like": demand.like,
                        "level": demand.level,
                    },
                    at=self._wall(),
                )
            )
            namespace, name = split_key(demand.gang)
            if demand.gang in self._world.podgroups:
                about = ObjectReference(
                    api_version=PODGROUP_VERSION, kind="PodGroup", name=name, namespace=namespace, uid=demand.gang_uid
                )
                self._writer.record_event(about, "NodesWanted", demand.message)
        self._wanted = now
        return len(news)

    def _event(self, name: NodeName, reason: str, message: str) -> None:
        node = self._world.nodes.get(name)
        if node is not None:
            about = ObjectReference(api_version="v1", kind="Node", name=name, namespace="", uid=node.uid)
            self._writer.record_event(about, reason, message)
