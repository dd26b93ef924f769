"""How shapes of pods are completed by what stands around them: volumes, and labels that terms between pods ask about."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from muster.decide.cards import GPU_MEMORY, memory_doubt
from muster.decide.neighbours import Labelled
from muster.decide.reasons import Reason
from muster.decide.surroundings import Problem, Surroundings, with_volumes, without_claims
from muster.decide.volumes import NO_SUPPLY, Supply, claim_keys, supply_of
from muster.model.nodes import Node
from muster.model.pods import Pod, Shape
from muster.model.snapshot import Hold
from muster.model.units import NodeName, PodUid


class Seen(NamedTuple):
    """How shapes of pods are completed by what stands around them."""

    around: Surroundings
    labelled: Labelled
    smallest_share: int
    """MiB of a card below which a share is a mistake of the unit."""
    supply: Supply = NO_SUPPLY

    def shape(self, pod: Pod) -> tuple[Shape, Problem | None]:
        """The shape by which a pod is placed, and what keeps it from being placed."""
        if pod.node is not None or pod.finished:
            return self.placed(pod), None
        shape, problem = with_volumes(pod, self.around, self.supply)
        return self.labelled.shape(shape, pod), problem or self._doubt(pod)

    def placed(self, pod: Pod) -> Shape:
        """The shape of a pod that stands, or was promised its node: what volumes say of nodes is behind it."""
        return self.labelled.shape(without_claims(pod.shape), pod)

    def _doubt(self, pod: Pod) -> Problem | None:
        """Jobs are judged when they come in; a pod that somebody made by other means is judged here."""
        share = pod.shape.request.share
        doubt = "" if share is None else memory_doubt(share.memory_mib, smallest=self.smallest_share)
        return Problem(Reason.UNIT_TRAP, f"{pod.name}: {GPU_MEMORY}: {doubt}") if doubt else None


def supply_from_nothing(
    around: Surroundings,
    pods: Iterable[Pod],
    ours: Iterable[Pod],
    promised: Mapping[PodUid, Hold],
    nodes: Mapping[NodeName, Node],
) -> Supply:
    """What serves the claims of pods of ours that are not bound, from all pods as they stand."""
    mounting = [pod for pod in ours if pod.shape.claims and pod.node is None and not pod.finished]
    using: dict[str, list[Pod]] = defaultdict(list)
    if mounting:
        for pod in pods:
            if pod.holds_room:
                for key in claim_keys(pod):
                    using[key].append(pod)
    return supply_for(around, mounting, promised, nodes, using)


def supply_for(
    around: Surroundings,
    mounting: Iterable[Pod],
    promised: Mapping[PodUid, Hold],
    nodes: Mapping[NodeName, Node],
    using: Mapping[str, Iterable[Pod]],
) -> Supply:
    """What serves the claims of pods of ours that are not bound; ``using``: pods that stand, by the claims they mount."""
    waiting, placed = [], []
    for pod in mounting:
        hold = promised.get(pod.uid)
        if hold is None:
            waiting.append(pod)
        else:
            placed.append((pod, nodes.get(hold.node)))
    if not waiting:
        return NO_SUPPLY
    placed.sort(key=lambda one: (one[0].created, one[0].key, one[0].uid))
    claims, volumes, classes = around.claims, around.volumes, around.storage_classes
    return supply_of(claims, volumes, classes, waiting=waiting, promised=placed, using=using)
