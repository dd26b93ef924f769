"""Gangs: what is scheduled together. Built from a PodGroup (or the pod that stands for one) and its pods.

    Gang ── roles ── Role (shape, minimum)
      └──── members ── Member (one pod: waiting, bound to a node with cards, succeeded …)

A member counts toward the minimum while it is bound, assumed or succeeded; see `counts`.
"""

from enum import StrEnum

import msgspec

from muster.model.pods import CardUse, PodTerm, Shape, TopologyWish
from muster.model.units import GangKey, NodeName, PodUid, QueueName, RoleName


class MemberState(StrEnum):
    """Where a gang's pod stands for the scheduler."""

    WAITING = "waiting"
    """Not bound and not assumed: it may be placed."""
    GATED = "gated"
    """Has scheduling gates: it may not be placed yet."""
    ASSUMED = "assumed"
    """An open LEDGER entry holds its room."""
    BOUND = "bound"
    """STATE shows it on its node, not finished."""
    LEAVING = "leaving"
    """Bound, with a deletion time: holds its room but no longer counts."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class Slices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A role in slices (Volcano: partitionPolicy, subGroupPolicy): each is placed whole, in one domain."""

    size: int
    """Pods of one slice."""
    minimum: int = 0
    """Slices that must run together; the rest come and go one slice at a time."""
    topology: TopologyWish = TopologyWish()


class Role(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A gang's pods with the same spec (Volcano: task)."""

    name: RoleName
    shape: Shape
    replicas: int
    """Declared by the owner; at least the members that exist."""
    minimum: int = 0
    """Own minimum, 0 when it has none."""
    topology: TopologyWish = TopologyWish()
    slices: Slices | None = None


class Member(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One pod of a gang."""

    uid: PodUid
    name: str
    role: RoleName
    state: MemberState
    node: NodeName | None = None
    cards: tuple[CardUse, ...] = ()
    resource_version: str = ""
    slice: str = ""
    """Which slice of its role it belongs to."""
    labels: tuple[tuple[str, str], ...] = ()
    """Those that terms of pods ask about; () where there are no such terms in the cluster."""
    pod_terms: tuple[PodTerm, ...] = ()
    """Required anti-affinity of a pod that stands: it keeps others away."""

    @property
    def counts(self) -> bool:
        """Counts toward the gang's and the role's minimum."""
        return self.state in {MemberState.ASSUMED, MemberState.BOUND, MemberState.SUCCEEDED}


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is known, or wished, of a gang's time. Durations are seconds, moments Unix seconds; 0 is unknown or not said.

    Wishes stand here as they were written; the policy's caps are applied where they are used.
    """

    started: float = 0.0
    """When the first of the members that stand now was started."""
    expected_duration: float = 0.0
    """muster.dev/expected-duration, else what the owner's activeDeadlineSeconds allows at the most."""
    deadline: float = 0.0
    """The owner's activeDeadlineSeconds: it does not run longer, whatever it expects."""
    min_runtime: float = 0.0
    checkpoint_interval: float = 0.0
    last_checkpoint: float = 0.0
    grace: float = 0.0
    """muster.dev/preemption-grace: between the warning and the eviction."""
    cooldown: float = 0.0
    """volcano.sh/cooldown-time: not evicted for so long after its start."""
    max_wait: float = 0.0


class Gang(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is scheduled together. Times are Unix seconds."""

    key: GangKey
    uid: str
    """Of the PodGroup, or of the pod that stands for one."""
    queue: QueueName
    priority: int = 0
    priority_class: str = ""
    preemptible: bool = True
    never_preempts: bool = False
    """The pods' preemptionPolicy is Never: nothing is evicted for it."""
    minimum: int = 1
    roles: tuple[Role, ...]
    members: tuple[Member, ...] = ()
    topology: TopologyWish = TopologyWish()
    submitted: float = 0.0
    order: int = 0
    """Breaks ties between equal times: creation order where it is known."""
    namespace: str = ""
    hold: str = ""
    """A reason code (see decide.reasons) that keeps it from being placed whatever the room, '' when none."""
    hold_message: str = ""
    timing: Timing = Timing()
    owner: str = ""
    """What its durations are learned by: kind and name of the owner without a trailing number."""

    @property
    def counted(self) -> int:
        """Members that count toward the minimum."""
        return sum(member.counts for member in self.members)

    @property
    def broken(self) -> bool:
        """It started, has no succeeded member, and is now below a minimum."""
        started = any(m.state in {MemberState.BOUND, MemberState.ASSUMED, MemberState.LEAVING} for m in self.members)
        return started and not any(m.state is MemberState.SUCCEEDED for m in self.members) and not self.complete

    @property
    def complete(self) -> bool:
        """Gang minimum and every role's minimum are reached by members that count."""
        if self.counted < self.minimum:
            return False
        return all(
            sum(member.counts for member in self.members if member.role == role.name) >= role.minimum
            for role in self.roles
        )
