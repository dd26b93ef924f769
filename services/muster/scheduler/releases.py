"""Gangs that cannot go on: below their minimum for too long, or with members that never start (rule D).

Kubernetes cannot unbind. What is taken back is evicted, so only pods whose owner makes them anew are; others stay where they
are and are reported.
"""

from collections.abc import Iterable

from muster.decide.commitments import LedgerView
from muster.decide.join import Join
from muster.model.gangs import Gang, MemberState
from muster.model.instructions import Slot
from muster.model.ledger import Undoing
from muster.model.pods import Phase
from muster.model.policy import Timeouts
from muster.model.units import GangKey, PodUid
from muster.scheduler.deadlines import Since
from muster.view.world import World


class Releases:
    """Since when gangs are broken and members do not start, in active seconds (see `deadlines`)."""

    def __init__(self, *, world: World, timeouts: Timeouts) -> None:
        self._world = world
        self.timeouts = timeouts
        self._broken: Since[GangKey] = Since()
        self._unstarted: Since[PodUid] = Since()

    def due(self, join: Join, view: LedgerView, *, freshness: str, now: float) -> Iterable[Undoing]:
        """The undoings whose time has come; gangs with an open entry are left alone, and so are those whose pods a plan evicts.

        A victim is in one open entry at a time: a withdrawing would touch it above the token of its undoing.
        """
        victims = view.victims()
        broken = {key: gang for key, gang in join.broken.items() if key not in view.open}
        self._broken.keep(broken, now)
        for key, gang in broken.items():
            waited = self._broken.lasted(key, now)
            slots = self._slots(gang) if waited > self.timeouts.start else ()
            if slots and victims.isdisjoint(slot.uid for slot in slots):
                message = f"{gang.counted} of at least {gang.minimum} pods for {waited:.0f} s"
                yield _undoing(gang, slots, "GANG_INCOMPLETE", message, freshness)
        for gang, slots in self._late(join, now):
            free = victims.isdisjoint(slot.uid for slot in slots)
            if free and gang.key not in view.open and gang.key not in broken:
                message = f"{len(slots)} pods did not start within {self.timeouts.start:g} s"
                yield _undoing(gang, slots, "START_TIMEOUT", message, freshness)

    def _late(self, join: Join, now: float) -> Iterable[tuple[Gang, tuple[Slot, ...]]]:
        self._unstarted.keep((uid for uid in join.unstarted if self._has_not_started(uid)), now)
        late: dict[GangKey, set[PodUid]] = {}
        for uid, key in join.unstarted.items():
            if self._unstarted.lasted(uid, now) > self.timeouts.start:
                late.setdefault(key, set()).add(uid)
        for key, uids in sorted(late.items()):
            gang = join.gang(key)
            slots = tuple(slot for slot in self._slots(gang) if slot.uid in uids) if gang is not None else ()
            if gang is not None and slots:
                yield gang, slots

    def _has_not_started(self, uid: PodUid) -> bool:
        pod = self._world.by_uid.get(uid)
        return pod is not None and pod.phase is Phase.PENDING and not pod.terminating

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
