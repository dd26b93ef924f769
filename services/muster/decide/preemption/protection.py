"""Who is left alone whatever the room: the rules that protect gangs from plans (DESIGN 8, never).

    for good      non-preemptible where its queue's rules let it be, kube-system and critical, pods assumed or on nodes not ready
    for a while   inside its min-runtime or cool-down, evicted too often within the hour, named by an open plan, evictions from
                  its queue paused

Wishes are capped by the policy, per queue where its rules say so. A gang whose start is not known has just been bound.
"""

from collections.abc import Collection

from muster.decide.fleet import Fleet
from muster.decide.memory import CoreMemory
from muster.decide.pauses import sentence, standing
from muster.decide.preemption.victims import belongs_to_cluster, pods_that_stand
from muster.decide.shares import Tree
from muster.decide.waiting.eviction import evicted_lately
from muster.model.durations import format_duration
from muster.model.gangs import Gang
from muster.model.pauses import Pause
from muster.model.policy import Policy
from muster.model.units import GangKey, PodUid


def grace_of(gang: Gang, policy: Policy) -> float:
    """Seconds between the warning and the eviction of its pods."""
    own = policy.rules(gang.queue).grace_max
    return min(gang.timing.grace or policy.preemption.grace, policy.preemption.grace_max if own is None else own)


def restarts_of(memory: CoreMemory) -> dict[GangKey, int]:
    """How often each gang lost pods to plans, as far as it is remembered."""
    times: dict[GangKey, int] = {}
    for one in memory.evictions:
        times[one.gang] = times.get(one.gang, 0) + 1
    return times


class Protection:
    """What protects gangs now, as sentences."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        memory: CoreMemory,
        now: float,
        policy: Policy,
        tree: Tree,
        named: Collection[PodUid] = frozenset(),
        pauses: tuple[Pause, ...] = (),
        history: bool = True,
    ) -> None:
        """``named``: pods that open plans name. ``history``: what was evicted lately counts."""
        self._tree = tree
        self._pauses = pauses
        self._fleet = fleet
        self._now = now
        self._policy = policy
        self._named = named
        self._lately = evicted_lately(memory, now) if history and policy.preemption.per_gang_per_hour else {}

    def refuses(self, gang: Gang) -> str:
        """Why no pod of the gang may leave, '' when pods of it may."""
        if not gang.preemptible and self._policy.rules(gang.queue).non_preemptible:
            return f"{gang.key} is not preemptible"
        if belongs_to_cluster(gang):
            return f"{gang.key} belongs to the cluster itself"
        if not (stands := pods_that_stand(gang, self._fleet)):
            return f"{gang.key} does not stand on ready nodes alone"
        if self._pauses and (pause := standing(self._pauses, "evict", self._tree.path(gang.queue))) is not None:
            return sentence(pause)
        if self._named and any(uid in self._named for uid in stands):
            return f"pods of {gang.key} leave for another plan"
        if (wait := self._left_alone(gang)) > 0:
            return f"{gang.key} is left alone for another {format_duration(max(1.0, wait))} after its start"
        times = self._lately.get(gang.key, 0)
        if times and times >= self._policy.preemption.per_gang_per_hour:
            return f"{gang.key} lost pods to other jobs {times} times within the hour"
        return ""

    def _left_alone(self, gang: Gang) -> float:
        """Seconds for which it is inside its min-runtime or cool-down."""
        timing, rules, limits = gang.timing, self._policy.rules(gang.queue), self._policy.preemption
        longest = limits.min_runtime_max if rules.min_runtime_max is None else rules.min_runtime_max
        coolest = limits.cooldown_max if rules.cooldown_max is None else rules.cooldown_max
        alone = max(min(timing.min_runtime or limits.min_runtime, longest), min(timing.cooldown, coolest))
        return (timing.started or self._now) + alone - self._now if alone else 0.0
