"""The room that the LEDGER promises, by pod: `muster.decide.commitments.holds`, kept up to date by what changed.

Plans promise room in another way, as nominations; of them only the victims are kept here, by their gangs.

A slot of an open or lingering entry holds its room until STATE shows its pod on the slot's node. Where several name one pod
the last counts: open entries after lingering ones, each in the order of the LEDGER.
"""

from collections.abc import Iterable, Mapping
from itertools import count
from typing import NamedTuple

from muster.decide.commitments import LedgerView, Lingering, OpenEntry
from muster.model.instructions import Slot
from muster.model.pods import Pod, Request
from muster.model.snapshot import Hold
from muster.model.units import GangKey, PodUid


class _Promise(NamedTuple):
    rank: tuple[bool, int]
    gang: GangKey
    slot: Slot
    hold: Hold | None
    """As it stands when the slot says what it asks."""


class Promises:
    """Open entries by gang, and the room that they and the lingering ones hold."""

    def __init__(self, pods: Mapping[PodUid, Pod]) -> None:
        """``pods``: what STATE shows, by uid; looked at, never changed."""
        self._pods = pods
        self._lingering: dict[int, Lingering] = {}
        """By identity: entries of a view stay the same objects until they go."""
        self._by_uid: dict[PodUid, dict[int, _Promise]] = {}
        self._number = count()
        self.entries: dict[GangKey, OpenEntry] = {}
        self.holds: dict[PodUid, Hold] = {}
        """Room for pods that do not stand on their slot's node."""
        self.victims: dict[GangKey, frozenset[PodUid]] = {}
        """Pods that open plans name as victims, by their gang."""
        self._view = LedgerView()

    def __contains__(self, uid: object) -> bool:
        """Whether any slot names this pod."""
        return uid in self._by_uid

    def follow(self, view: LedgerView) -> tuple[set[GangKey], set[PodUid]]:
        """The LEDGER is now so. Returns gangs whose open entry or victims changed, and pods whose promised room may have."""
        gangs: set[GangKey] = set()
        uids: set[PodUid] = set()
        if view is self._view:
            return gangs, uids
        self._view = view
        leaving: set[GangKey] = set()
        for gang in self.entries.keys() | view.open.keys():
            before, after = self.entries.get(gang), view.open.get(gang)
            if before is after:
                continue
            gangs.add(gang)
            for entry in (before, after):
                leaving |= {victim.gang for victim in entry.victims} if entry is not None else set()
            if before is not None:
                self._withdraw(before.slots, id(before))
                uids |= {slot.uid for slot in before.slots}
                del self.entries[gang]
            if after is not None:
                self._promise(gang, after.slots, id(after), is_open=True)
                uids |= {slot.uid for slot in after.slots}
                self.entries[gang] = after
        if leaving:
            self._collect_victims(view)
        lingering = {id(item): item for item in view.lingering}
        for number, item in self._lingering.items():
            if number not in lingering:
                self._withdraw(item.slots, number)
                uids |= {slot.uid for slot in item.slots}
        for number, item in lingering.items():
            if number not in self._lingering:
                self._promise(item.gang, item.slots, number, is_open=False)
                uids |= {slot.uid for slot in item.slots}
        self._lingering = lingering
        for uid in uids:
            self.moved(uid)
        return gangs | leaving, uids

    def _collect_victims(self, view: LedgerView) -> None:
        victims: dict[GangKey, set[PodUid]] = {}
        for entry in view.open.values():
            for victim in entry.victims:
                victims.setdefault(victim.gang, set()).add(victim.uid)
        self.victims = {gang: frozenset(uids) for gang, uids in victims.items()}

    def _promise(self, gang: GangKey, slots: Iterable[Slot], owner: int, *, is_open: bool) -> None:
        rank = (is_open, next(self._number))
        for slot in slots:
            hold = _hold(gang, slot, slot.request) if slot.request is not None else None
            self._by_uid.setdefault(slot.uid, {})[owner] = _Promise(rank, gang, slot, hold)

    def _withdraw(self, slots: Iterable[Slot], owner: int) -> None:
        for slot in slots:
            mine = self._by_uid.get(slot.uid)
            if mine is not None:
                mine.pop(owner, None)
                if not mine:
                    del self._by_uid[slot.uid]

    def moved(self, uid: PodUid) -> None:
        """A pod changed, came or went."""
        promised = self._by_uid.get(uid)
        pod = self._pods.get(uid)
        last: _Promise | None = None
        for one in (promised or {}).values():
            if (pod is None or pod.node != one.slot.node) and (last is None or one.rank > last.rank):
                last = one
        if last is None:
            self.holds.pop(uid, None)
            return
        hold = last.hold or _hold(last.gang, last.slot, pod.shape.request if pod is not None else Request())
        if self.holds.get(uid) != hold:
            self.holds[uid] = hold


def _hold(gang: GangKey, slot: Slot, request: Request) -> Hold:
    return Hold(gang=gang, uid=slot.uid, node=slot.node, request=request, cards=slot.cards)
