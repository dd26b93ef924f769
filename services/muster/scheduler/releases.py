"""Gangs that cannot go on: below their minimum for too long, or with members that never start (rule D).

Kubernetes cannot unbind. What is taken back is evicted, so only pods whose owner makes them anew are; others stay where they
are and are reported.
"""

from collections.abc import Iterable

from muster.decide.commitments import LedgerView
from muster.model.gangs import Gang, MemberState
from muster.model.instructions import Slot
from muster.model.ledger import Undoing
from muster.model.pods import Phase
from muster.model.policy import Timeouts
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, PodUid
from muster.scheduler.world import World


class Releases:
    """Since when gangs are broken and members do not start, by a monotonic clock in seconds."""

    def __init__(self, *, world: World, timeouts: Timeouts) -> None:
        self._world = world
        self._timeouts = timeouts
        self._broken: dict[GangKey, float] = {}
        self._unstarted: dict[PodUid, float] = {}

    def due(self, snapshot: Snapshot, view: LedgerView, *, freshness: str, now: float) -> Iterable[Undoing]:
        """The undoings whose time has come; gangs with an open entry are left alone."""
        broken = {gang.key: gang for gang in snapshot.gangs if gang.broken and gang.key not in view.open}
        self._broken = {key: self._broken.get(key, now) for key in broken}
        for key, gang in broken.items():
            waited = now - self._broken[key]
            slots = self._slots(gang)
            if waited > self._timeouts.start and slots:
                message = f"{gang.counted} of at least {gang.minimum} pods for {waited:.0f} s"
                yield _undoing(gang, slots, "GANG_INCOMPLETE", message, freshness)
        late = self._late(snapshot, now)
        for gang, slots in late:
            if gang.key not in view.open and gang.key not in broken:
                message = f"{len(slots)} pods did not start within {self._timeouts.start:g} s"
                yield _undoing(gang, slots, "START_TIMEOUT", message, freshness)

    def _late(self, snapshot: Snapshot, now: float) -> list[tuple[Gang, tuple[Slot, ...]]]:
        pending: dict[PodUid, float] = {}
        late = []
        for gang in snapshot.gangs:
            slots = []
            for slot in self._slots(gang):
                pod = self._world.by_uid[slot.uid]
                if pod.phase is not Phase.PENDING or pod.terminating:
                    continue
                pending[slot.uid] = self._unstarted.get(slot.uid, now)
                if now - pending[slot.uid] > self._timeouts.start:
                    slots.append(slot)
            if slots:
                late.append((gang, tuple(slots)))
        self._unstarted = pending
        return late

    def _slots(self, gang: Gang) -> tuple[Slot, ...]:
        slots = []
        for member in gang.members:
            pod = self._world.by_uid.get(member.uid)
            if member.state is not MemberState.BOUND or member.node is None or pod is None or pod.owner is None:
                continue
            slots.append(
                Slot(
                    uid=member.uid,
                    pod=member.name,
                    role=member.role,
                    node=member.node,
                    cards=member.cards,
                    request=pod.shape.request,
                )
            )
        return tuple(slots)


def _undoing(gang: Gang, slots: tuple[Slot, ...], reason: str, message: str, freshness: str) -> Undoing:
    return Undoing(gang=gang.key, gang_uid=gang.uid, slots=slots, reason=reason, message=message, freshness=freshness)
