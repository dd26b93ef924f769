"""What every object's metadata tells: owner, times, and the annotations that are Muster's business."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from muster.model.pods import Owner, Requirement, TopologyWish
from muster.model.quantity import whole_number

FENCE = "muster.dev/fence"
CORDON_OWNER = "muster.dev/cordoned-by"
CORDON_SINCE = "muster.dev/cordoned-since"
CORDON_REASON = "muster.dev/cordoned-because"
REMOVABLE = "muster.dev/removable"
"""Label of nodes that may be removed."""
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
NODE_HOLDS = (SCALE_DOWN_DISABLED, DO_NOT_DISRUPT)
"""Annotations by which other autoscalers leave a node alone."""
KEPT_BY = "muster.dev/kept-by"
"""Who set those."""
OWN_PREFIXES = ("muster.dev/", "volcano.sh/", "scheduling.volcano.sh/", "scheduling.k8s.io/", "batch.volcano.sh/")
TOPOLOGY_REQUIRED = "muster.dev/topology-required"
TOPOLOGY_PREFERRED = "muster.dev/topology-preferred"
VOLCANO_TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
VOLCANO_TOPOLOGY_TIER = "volcano.sh/network-topology-highest-tier"


def kept_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations of Muster, Volcano and Kubernetes scheduling; people's own are none of our business."""
    return {name: value for name, value in annotations.items() if name.startswith(OWN_PREFIXES)}


def controlling_owner(metadata: Any) -> Owner | None:
    """The owner reference with ``controller: true``, if there is one."""
    for owner in metadata.owner_references:
        if owner.controller:
            return Owner(api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid)
    return None


def seconds(moment: datetime | None) -> float:
    """Unix seconds, 0 when the moment is not given."""
    return moment.timestamp() if moment is not None else 0.0


def label_selector(selector: Mapping[str, Any] | None) -> tuple[Requirement, ...]:
    """The requirements of a labelSelector in plain JSON; () when there is none or it is empty."""
    named = selector or {}
    found = [
        Requirement(key=key, operator="In", values=(str(value),))
        for key, value in (named.get("matchLabels") or {}).items()
    ]
    found += requirements_of(named.get("matchExpressions"))
    return tuple(sorted(found, key=lambda one: (one.key, one.operator, one.values)))


def requirements_of(expressions: Iterable[Mapping[str, Any]] | None) -> tuple[Requirement, ...]:
    """``key, operator, values`` in plain JSON as requirements, sorted."""
    found = [
        Requirement(
            key=str(item["key"]),
            operator=str(item["operator"]),
            values=tuple(sorted(map(str, item.get("values") or ()))),
        )
        for item in expressions or ()
    ]
    return tuple(sorted(found, key=lambda one: (one.key, one.operator, one.values)))


def topology_wish(
    network_topology: Mapping[str, Any] | None, annotations: Mapping[str, str] | None = None
) -> TopologyWish:
    """Volcano's networkTopology, completed by annotations; Muster's own annotations name levels and win.

    ``mode: hard`` is a requirement, ``soft`` a preference; without a tier or tier name the narrowest tier, 1, is meant.
    """
    marks = annotations or {}
    wish = dict(network_topology or {})
    if not wish and VOLCANO_TOPOLOGY_MODE in marks:
        wish = {"mode": marks[VOLCANO_TOPOLOGY_MODE]}
        if VOLCANO_TOPOLOGY_TIER in marks:
            wish["highestTierAllowed"] = whole_number(marks[VOLCANO_TOPOLOGY_TIER])
    level, tier = "", 0
    if wish:
        level = str(wish.get("highestTierName") or "")
        tier = 0 if level else int(wish.get("highestTierAllowed") or 1)
    hard = wish.get("mode", "hard") == "hard"
    return TopologyWish(
        required_level=marks.get(TOPOLOGY_REQUIRED) or (level if hard else ""),
        preferred_level=marks.get(TOPOLOGY_PREFERRED) or ("" if hard else level),
        required_tier=0 if marks.get(TOPOLOGY_REQUIRED) or not hard else tier,
        preferred_tier=0 if marks.get(TOPOLOGY_PREFERRED) or hard else tier,
    )
