"""What owners are told of plans: Events on their pods, their PodGroup and their job, each once a plan.

    Preempting           a pod is asked to leave: until when, for whom, why              (Warning)
    EvictionBlocked      its time is over, and a PodDisruptionBudget forbids to evict it  (Warning)
    PreemptionWithdrawn  a pod that was asked to leave stays after all                    (Normal)
    ForgedFence          a pod carries a fence that nobody gave; it leaves all the same      (Warning)
    RoomComing           pods of others leave for this gang, and when                     (Normal)

Events inform; what is promised stands on the pods (see `muster.decide.warnings`).
"""

from collections.abc import Callable

import structlog

from muster.decide.commitments import OpenEntry
from muster.decide.reasons import count
from muster.decide.warnings import format_moment
from muster.kube.recording import EventType, ObjectReference
from muster.kube.writer import FENCE_ANNOTATION, Writer
from muster.model.durations import format_duration
from muster.model.ledger import Victim
from muster.model.pods import Pod
from muster.model.units import GangKey, Sequence, split_key
from muster.view.world import World

PODGROUP_VERSION = "scheduling.volcano.sh/v1beta1"


class Telling:
    """The Events of one term."""

    def __init__(
        self, *, writer: Writer, world: World, wall: Callable[[], float], log: structlog.stdlib.BoundLogger
    ) -> None:
        self._writer = writer
        self._world = world
        self._wall = wall
        self._log = log
        self._told: set[tuple[Sequence, str]] = set()

    def keep_only(self, sequences: frozenset[Sequence]) -> None:
        """Forget what was told of plans that are not open any more."""
        self._told = {one for one in self._told if one[0] in sequences}

    def _first(self, entry: OpenEntry, what: str) -> bool:
        if (entry.sequence, what) in self._told:
            return False
        self._told.add((entry.sequence, what))
        return True

    def warned(self, entry: OpenEntry, victim: Victim, evict_at: float) -> None:
        """A victim carries its warning now."""
        seconds = format_duration(max(0.0, round(evict_at - self._wall())))
        why = f" ({entry.cause}: {entry.message})" if entry.message else f" ({entry.cause})"
        until = f"{format_moment(evict_at)}, in {seconds}" if evict_at > self._wall() else "now"
        text = f"asked to leave until {until}, for {self._world.job_of(entry.gang)}{why}; write a checkpoint"
        pod = self._world.by_uid.get(victim.uid)
        if pod is not None:
            self._say(_pod_reference(pod), "Preempting", text, type="Warning")
        if not self._first(entry, victim.gang):
            return
        pods = sum(one.gang == victim.gang for one in entry.victims)
        self._log.info("asks to leave", gang=victim.gang, pods=pods, room_for=entry.gang, cause=entry.cause)
        for about in self._owners(victim.gang):
            self._say(about, "Preempting", f"{count(pods, 'pod')} of it {text}", type="Warning")

    def planned(self, entry: OpenEntry, due: float) -> None:
        """Every victim of a plan was told: whoever gets the room hears of it."""
        if not self._first(entry, "planned"):
            return
        gangs = len({victim.gang for victim in entry.victims})
        text = (
            f"{count(len(entry.victims), 'pod')} of {count(gangs, 'other job')} leave for it"
            f" at {format_moment(due)} ({entry.cause})"
        )
        for about in self._owners(entry.gang):
            self._say(about, "RoomComing", text)

    def blocked(self, entry: OpenEntry, victim: Victim, why: str) -> None:
        """A budget forbids an eviction for now."""
        pod = self._world.by_uid.get(victim.uid)
        if pod is not None:
            text = f"not evicted for {self._world.job_of(entry.gang)} yet: {why}"
            self._say(_pod_reference(pod), "EvictionBlocked", text, type="Warning")
        if self._first(entry, "blocked"):
            self._log.warning("a budget forbids evictions", gang=victim.gang, room_for=entry.gang, why=why)

    def forged(self, victim: Victim, fence: int) -> None:
        """A pod carries a fence that Muster never wrote."""
        pod = self._world.by_uid.get(victim.uid)
        if pod is not None:
            text = (
                f"the annotation {FENCE_ANNOTATION} says {fence}, which Muster never wrote: it keeps the pod neither from "
                f"its warning nor from its eviction"
            )
            self._say(_pod_reference(pod), "ForgedFence", text, type="Warning")
        self._log.warning("a fence that nobody gave", gang=victim.gang, pod=victim.pod, fence=fence)

    def stays(self, pod: Pod, room_for: str) -> None:
        """A pod that was warned is not asked to leave any more."""
        whom = f" for {room_for}" if room_for else ""
        self._say(_pod_reference(pod), "PreemptionWithdrawn", f"it may stay: it is not asked to leave{whom} any more")

    def _owners(self, gang: GangKey) -> list[ObjectReference]:
        """The PodGroup of a gang, and the job that owns it."""
        group = self._world.podgroups.get(gang)
        if group is None:
            return []
        namespace, name = split_key(gang)
        found = [
            ObjectReference(
                api_version=PODGROUP_VERSION, kind="PodGroup", namespace=namespace, name=name, uid=group.uid
            )
        ]
        if group.owner is not None and group.owner.kind != "Pod":
            owner = group.owner
            found.append(
                ObjectReference(
                    api_version=owner.api_version, kind=owner.kind, namespace=namespace, name=owner.name, uid=owner.uid
                )
            )
        return found

    def _say(self, about: ObjectReference, reason: str, text: str, *, type: EventType = "Normal") -> None:  # noqa: A002
        self._writer.record_event(about, reason, text, type=type)


def _pod_reference(pod: Pod) -> ObjectReference:
    return ObjectReference(api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
