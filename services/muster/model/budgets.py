"""PodDisruptionBudgets: how many pods of a set may be evicted now, as the API server last counted it."""

import msgspec

from muster.model.pods import Requirement
from muster.model.units import PodUid


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One PodDisruptionBudget."""

    namespace: str
    name: str
    selector: tuple[Requirement, ...] = ()
    """All must hold of a pod's labels; () is every pod of the namespace."""
    selects_nothing: bool = False
    """It has no selector at all: no pod is meant."""
    allowed: int = 0
    """Healthy pods that may be evicted now; 0 also while its status is behind its spec."""
    unready_are_free: bool = False
    """Pods that are not ready may be evicted whatever it allows (unhealthyPodEvictionPolicy AlwaysAllow)."""
    pods: tuple[PodUid, ...] = ()
    """Pods of ours on nodes that it covers, sorted; filled in by the snapshot. A pod under two budgets cannot be evicted at all."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"
