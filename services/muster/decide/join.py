"""The join of STATE into a snapshot, kept up to date: what `muster.decide.gangs.build_snapshot` makes of everything, by what changed.

    pod ──► its gang is made anew (members of unchanged pods are kept), or its occupant
    PodGroup, workload, namespace, claim … ──► the gangs that look at it
    LEDGER view ──► the gangs whose entries opened or closed, the holds of their slots
    terms between pods begin or cease to matter ──► everything

`snapshot` does the work for whatever changed since the last one; `take_changes` tells it to those who derive more from it.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from muster.decide.budgets import Budgets
from muster.decide.commitments import Kind, LedgerView, NodePromise, OpenEntry
from muster.decide.cordons import withheld
from muster.decide.gangs import (
    bare_gang,
    gang_of,
    is_foreign,
    limits_of,
    member_of,
    occupant_of,
    same_member,
    stands_alike,
)
from muster.decide.neighbours import Asked, Labelled
from muster.decide.ordered import Ordered
from muster.decide.pauses import pauses_of
from muster.decide.promises import Promises
from muster.decide.reasons import Reason
from muster.decide.roles import member_state
from muster.decide.seen import Seen, supply_for
from muster.decide.surroundings import Surroundings
from muster.decide.terms import Terms
from muster.decide.timing import NO_LIMITS, Limits, limits_of_owner, timing_of
from muster.decide.volumes import NO_SUPPLY, claim_keys, with_offers
from muster.model.gangs import Gang, Member, MemberState
from muster.model.nodes import Node
from muster.model.pauses import Pause
from muster.model.pods import Phase, Pod
from muster.model.policy import Policy
from muster.model.snapshot import Hold, Occupant, Snapshot
from muster.model.units import GangKey, NodeName, PodUid, Sequence
from muster.model.workloads import Namespace, PodGroup, PriorityClass, Queue, Workload

STANDING = frozenset({MemberState.BOUND, MemberState.LEAVING})
Place = tuple[int, float, str, str]
"""Where something stands in its list: sort of thing, creation, key, uid."""


class Changes(NamedTuple):
    """What differs from the last snapshot; None: it is gone."""

    gangs: dict[Place, Gang | None]
    occupants: dict[Place, Occupant | None]
    holds: dict[PodUid, Hold | None]
    everything: bool
    """All there is is told, as if nothing had been there."""


class Join:
    """STATE and the LEDGER's view as gangs, occupants and holds; see the module."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._pods: dict[str, Pod] = {}
        self._by_uid: dict[PodUid, Pod] = {}
        self._members: dict[GangKey, dict[str, Pod]] = {}
        self._unsorted: set[GangKey] = set()
        self._groups: dict[GangKey, PodGroup] = {}
        self._owned: dict[str, set[GangKey]] = {}
        """Gangs by the uid of the workload that owns their PodGroup."""
        self._classes: dict[str, PriorityClass] = {}
        self._closing: set[str] = set()
        self._workloads: dict[str, str] = {}
        """Uids of workloads that are being deleted, by their key."""
        self._ending: set[str] = set()
        self._limits: dict[str, Limits] = {}
        """What workloads say of time, by their uid; those that say something."""
        self._uid_of: dict[str, str] = {}
        """Uids of those, by their key."""
        self._around: dict[str, dict[str, Any]] = {
            "hypernode": {},
            "claim": {},
            "volume": {},
            "storageclass": {},
        }
        self._nodes: Ordered[str, Node] = Ordered()
        self._told: dict[NodeName, Node] = {}
        """Nodes as STATE has them."""
        self._node_promises: dict[NodeName, NodePromise] = {}
        self._plain: dict[NodeName, Node] = {}
        """Nodes without the volumes that are counted as theirs; those with open entries are withheld."""
        self._using: dict[str, dict[str, Pod]] = {}
        """Pods that stand, by the keys of the claims they mount."""
        self._queues: Ordered[str, Queue] = Ordered()
        self._gangs: Ordered[Place, Gang] = Ordered()
        self._occupants: Ordered[Place, Occupant] = Ordered()
        self._holds: Ordered[str, Hold] = Ordered()
        self._placed_at: dict[str, Place] = {}
        """Where the occupant or the bare gang of a pod stands, by the pod's key."""
        self._made: dict[PodUid, tuple[Pod, Hold | None, str, Member]] = {}
        self._terms = Terms(self._policy.scheduler_names)
        self._seen = Seen(Surroundings(), Labelled(None), self._policy.min_share_memory_mib)
        self._promises = Promises(self._by_uid)
        self._budgets = Budgets(self._pods, lambda pod: self._gang_key(pod) is not None and pod.holds_room)
        self.unstarted: dict[PodUid, GangKey] = {}
        """Pods of ours that are bound and have not started, with their gangs."""
        self.broken: dict[GangKey, Gang] = {}
        """Gangs of the last snapshot that are broken."""
        self._dirty_gangs: set[GangKey] = set()
        self._moved: dict[GangKey, dict[PodUid, Pod]] = {}
        """Members that stand elsewhere than before, of gangs that are the same otherwise."""
        self._position: dict[GangKey, dict[PodUid, int] | None] = {}
        """Where members stand in their gang; None: where they stand decides more than their own state."""
        self._dirty_pods: set[str] = set()
        self._dirty_uids: set[PodUid] = set()
        self._changes = Changes({}, {}, {}, everything=True)
        self._stale = True
        """What stands around pods changed."""
        self._unserved = False
        """What serves claims that are not bound may have changed."""
        self._pauses: tuple[Pause, ...] = ()
        self._sequence = Sequence(0)
        """How far the LEDGER is read."""
        self._ahead: dict[PodUid, tuple[GangKey, int]] = {}
        """Pods that wait under a fence which the LEDGER has not reached, by uid: their gang and the fence."""

    # --- changes of STATE --------------------------------------------------------------------------------------------

    def change(self, kind: str, key: str, value: Any) -> None:
        """An object of STATE is now so; None: it is gone. Kinds that a snapshot does not look at are passed over."""
        match kind:
            case "pod":
                self._change_pod(key, value)
            case "podgroup":
                self._change_group(GangKey(key), value)
            case "node":
                self._change_node(NodeName(key), value)
            case "queue":
                if value is None:
                    self._queues.drop(key)
                else:
                    self._queues.put(key, value)
            case "workload":
                self._change_workload(key, value)
            case "namespace":
                self._change_namespace(key, value)
            case "priorityclass":
                if value is None:
                    self._classes.pop(key, None)
                else:
                    self._classes[key] = value
                self._dirty_gangs.update(self._groups)
            case "pdb":
                self._budgets.change(key, value)
            case "hypernode" | "claim" | "volume" | "storageclass":
                if value is None:
                    self._around[kind].pop(key, None)
                else:
                    self._around[kind][key] = value
                self._change_surroundings(kind)
            case _:
                pass

    def _change_node(self, key: NodeName, value: Node | None) -> None:
        self._unserved |= bool(self._terms.mounting)
        if value is None:
            self._nodes.drop(key)
            self._told.pop(key, None)
            self._plain.pop(key, None)
        else:
            self._told[key] = value
            node = self._plain[key] = withheld(value, self._node_promises.get(key))
            self._nodes.put(key, with_offers(node, self._seen.supply))

    def _follow_claims(self, key: str, before: Pod | None, after: Pod | None) -> None:
        """Who uses claims, and that what serves those that wait has to be found anew."""
        if before is not None and after is not None and _uses_alike(before, after):
            for claim in claim_keys(after):
                if key in self._using.get(claim, ()):
                    self._using[claim][key] = after
            return
        for pod in (before, after):
            if pod is None or not pod.shape.claims:
                continue
            self._unserved = True
            for claim in claim_keys(pod):
                users = self._using.setdefault(claim, {})
                if pod is after and pod.holds_room:
                    users[key] = pod
                else:
                    users.pop(key, None)
                if not users:
                    del self._using[claim]

    def _change_pod(self, key: str, after: Pod | None) -> None:
        before = self._pods.get(key)
        if before is after:
            return
        self._follow_claims(key, before, after)
        self._follow_fence(before, after)
        self._budgets.change_pod(before, after)
        if before is not None and after is not None and before.started == after.started and stands_alike(before, after):
            self._pods[key] = self._by_uid[after.uid] = after
            gang = self._gang_key(after)
            if gang is not None:
                self._members[gang][key] = after
                self._follow_start(after, gang)
            return
        self._terms.change(key, before, after)
        gang = self._gang_key(after) if after is not None else None
        if before is not None and after is not None and gang is not None and same_member(before, after):
            self._pods[key] = self._by_uid[after.uid] = self._members[gang][key] = after
            self._follow_start(after, gang)
            self._follow_promise(after.uid)
            self._moved.setdefault(gang, {})[after.uid] = after
            return
        if before is not None:
            self._unlearn(key, before, after)
        if after is not None:
            self._learn(key, before, after)

    def _follow_fence(self, before: Pod | None, after: Pod | None) -> None:
        if before is not None and (known := self._ahead.pop(before.uid, None)) is not None:
            self._dirty_gangs.add(known[0])
        if after is None or after.node is not None or after.fence <= self._sequence:
            return
        gang = self._gang_key(after)
        if gang is not None:
            self._ahead[after.uid] = (gang, after.fence)
            self._dirty_gangs.add(gang)

    def _unlearn(self, key: str, before: Pod, after: Pod | None) -> None:
        self._touch(key, before)
        if after is None:
            del self._pods[key]
        if (after is None or after.uid != before.uid) and self._by_uid.get(before.uid) is before:
            del self._by_uid[before.uid]
            self._made.pop(before.uid, None)
            self.unstarted.pop(before.uid, None)
            self._promises.moved(before.uid)
        gang = self._gang_key(before)
        if gang is not None and (after is None or self._gang_key(after) != gang):
            mine = self._members[gang]
            del mine[key]
            if not mine:
                del self._members[gang]

    def _learn(self, key: str, before: Pod | None, after: Pod) -> None:
        self._pods[key] = self._by_uid[after.uid] = after
        self._touch(key, after)
        gang = self._gang_key(after)
        if gang is not None:
            mine = self._members.setdefault(gang, {})
            if key not in mine or before is None or (before.created, before.uid) != (after.created, after.uid):
                self._unsorted.add(gang)
            mine[key] = after
        self._follow_start(after, gang)

    def _follow_start(self, pod: Pod, gang: GangKey | None) -> None:
        if gang is not None and pod.node is not None and pod.phase is Phase.PENDING and not pod.terminating:
            self.unstarted[pod.uid] = gang
        else:
            self.unstarted.pop(pod.uid, None)

    def _touch(self, key: str, pod: Pod) -> None:
        gang = self._gang_key(pod)
        if gang is not None:
            self._dirty_gangs.add(gang)
        else:
            self._dirty_pods.add(key)
        self._follow_promise(pod.uid)

    def _follow_promise(self, uid: PodUid) -> None:
        if uid in self._promises:
            self._dirty_uids.add(uid)
            self._promises.moved(uid)

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name in self._policy.scheduler_names

    def _gang_key(self, pod: Pod) -> GangKey | None:
        return pod.gang if self._is_ours(pod) else None

    def _change_group(self, key: GangKey, after: PodGroup | None) -> None:
        before = self._groups.pop(key, None)
        if before is not None and before.owner is not None:
            owned = self._owned.get(before.owner.uid, set())
            owned.discard(key)
            if not owned:
                self._owned.pop(before.owner.uid, None)
        if after is not None:
            self._groups[key] = after
            if after.owner is not None:
                self._owned.setdefault(after.owner.uid, set()).add(key)
        self._dirty_gangs.add(key)

    def _change_workload(self, key: str, after: Workload | None) -> None:
        self._change_limits(key, after)
        before = self._workloads.pop(key, None)
        uid = after.uid if after is not None and after.terminating else None
        if uid is not None:
            self._workloads[key] = uid
        if uid == before:
            return
        for one in (before, uid):
            if one is not None:
                self._ending.discard(one) if one == before else self._ending.add(one)
                self._dirty_gangs.update(self._owned.get(one, ()))

    def _change_limits(self, key: str, after: Workload | None) -> None:
        limits = limits_of_owner(after) if after is not None else NO_LIMITS
        stood = self._uid_of.pop(key, None)
        before = self._limits.pop(stood, NO_LIMITS) if stood is not None else NO_LIMITS
        if after is not None and limits != NO_LIMITS:
            self._limits[after.uid] = limits
            self._uid_of[key] = after.uid
        stands = self._uid_of.get(key)
        if (limits, stands) != (before, stood):
            for uid in (stood, stands):
                self._dirty_gangs.update(self._owned.get(uid, ()) if uid is not None else ())

    def _change_namespace(self, key: str, after: Namespace | None) -> None:
        closes = after is not None and after.terminating
        if closes == (key in self._closing):
            return
        if closes:
            self._closing.add(key)
        else:
            self._closing.discard(key)
        prefix = f"{key}/"
        self._dirty_gangs.update(gang for gang in (*self._groups, *self._members) if gang.startswith(prefix))

    def _change_surroundings(self, kind: str) -> None:
        self._stale = True
        if kind == "hypernode":
            return
        self._unserved = True
        for key, pod in self._terms.mounting.items():
            self._touch(key, pod)

    # --- the LEDGER --------------------------------------------------------------------------------------------------

    def follow(self, view: LedgerView) -> None:
        """The LEDGER is now so."""
        self._pauses = pauses_of(view.memory)
        before, self._node_promises = self._node_promises, view.nodes
        if before is not view.nodes:
            for name in before.keys() | view.nodes.keys():
                if name in self._told and before.get(name) is not view.nodes.get(name):
                    self._change_node(name, self._told[name])
        self._follow_sequence(view.sequence)
        gangs, uids = self._promises.follow(view)
        self._unserved |= bool(uids and self._terms.mounting)
        self._dirty_gangs |= gangs
        for uid in uids:
            self._dirty_uids.add(uid)
            pod = self._by_uid.get(uid)
            gang = self._gang_key(pod) if pod is not None else None
            if gang is not None:
                self._dirty_gangs.add(gang)

    def _follow_sequence(self, sequence: Sequence) -> None:
        """The LEDGER is read up to here; a lower one than before is another LEDGER."""
        anew = sequence < self._sequence
        self._sequence = sequence
        for one in tuple(self._pods.values()) if anew else ():
            self._follow_fence(one, one)
        for uid, (waits, fence) in tuple(self._ahead.items()):
            if fence <= sequence:
                del self._ahead[uid]
                self._dirty_gangs.add(waits)

    # --- snapshots ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Everything a decision looks at, now."""
        self._complete()
        for gang, pods in self._moved.items():
            if gang not in self._dirty_gangs and not self._move_members(gang, pods):
                self._dirty_gangs.add(gang)
        self._moved.clear()
        for gang in self._dirty_gangs:
            self._remake_gang(gang)
        for key in self._dirty_pods:
            self._remake_pod(key)
        for uid in self._dirty_uids:
            self._remake_hold(uid)
        self._dirty_gangs.clear()
        self._dirty_pods.clear()
        self._dirty_uids.clear()
        return Snapshot(
            nodes=self._nodes.all(),
            queues=self._queues.all(),
            gangs=self._gangs.all(),
            occupants=self._occupants.all(),
            holds=self._holds.all(),
            topology_levels=self._policy.topology_levels,
            hypernodes=self._seen.around.hypernodes,
            budgets=self._budgets.all(),
            pod_terms=self._asked is not None,
            pauses=self._pauses,
        )

    def gang(self, key: GangKey) -> Gang | None:
        """A gang of the last snapshot."""
        return self._gangs.get((1, 0.0, key, ""))

    def take_changes(self, *, everything: bool = False) -> Changes:
        """What the last snapshot differs in from the one at the last call; ``everything``: all that is in it."""
        changes, self._changes = self._changes, Changes({}, {}, {}, everything=False)
        if not (everything or changes.everything):
            return changes
        holds: dict[PodUid, Hold | None] = {hold.uid: hold for hold in self._holds}
        return Changes(dict(self._gangs.items()), dict(self._occupants.items()), holds, everything=True)

    @property
    def _asked(self) -> Asked | None:
        return self._seen.labelled.asked

    def _complete(self) -> None:
        """What stands around pods, and which terms between them matter, before anything is made anew."""
        if self._stale:
            self._stale = False
            around = self._around
            self._seen = self._seen._replace(
                around=Surroundings(
                    hypernodes=tuple(one for _, one in sorted(around["hypernode"].items())),
                    claims=around["claim"],
                    volumes=around["volume"],
                    storage_classes=around["storageclass"],
                )
            )
        if self._unserved:
            self._unserved = False
            self._serve()
        asked = self._terms.asked()
        if asked != self._asked:
            self._seen = self._seen._replace(labelled=Labelled(asked))
            self._made.clear()
            self._dirty_gangs.update(self._groups, self._members)
            self._dirty_pods.update(key for key, pod in self._pods.items() if self._gang_key(pod) is None)
            self._changes = self._changes._replace(everything=True)

    def _serve(self) -> None:
        """Find anew what serves claims that are not bound; where that changed, so may the pods and the nodes."""
        mounting, before = self._terms.mounting, self._seen.supply
        supply = NO_SUPPLY
        if mounting:
            keys = {key for pod in mounting.values() for key in claim_keys(pod)}
            using = {key: self._using[key].values() for key in keys & self._using.keys()}
            supply = supply_for(self._seen.around, mounting.values(), self._promises.holds, self._plain, using)
        if supply == before:
            return
        self._seen = self._seen._replace(supply=supply)
        for key, pod in mounting.items():
            self._touch(key, pod)
        if supply.offers != before.offers:
            for name, node in self._plain.items():
                offering = with_offers(node, supply)
                if offering != self._nodes.get(name):
                    self._nodes.put(name, offering)

    def _remake_gang(self, key: GangKey) -> None:
        place: Place = (1, 0.0, key, "")
        group, mine = self._groups.get(key), self._members.get(key)
        self._position.pop(key, None)
        if group is None and not mine:
            if self._gangs.drop(place) is not None:
                self._changes.gangs[place] = None
            self.broken.pop(key, None)
            return
        if mine and key in self._unsorted:
            mine = self._members[key] = dict(
                sorted(mine.items(), key=lambda item: (item[1].created, item[1].key, item[1].uid))
            )
        self._unsorted.discard(key)
        gang = gang_of(
            key,
            group,
            tuple(mine.values()) if mine else (),
            self._promises.holds,
            self._classes,
            policy=self._policy,
            closing=self._closing,
            ending=self._ending,
            seen=self._seen,
            limits=self._limits,
            member=self._member,
        )
        entry, leaving = self._promises.entries.get(key), self._promises.victims.get(key, frozenset())
        gang = being_carried_out(gang, entry, leaving)
        self._put_gang(place, without_forged(gang, self._forged(mine or {}), self._sequence))

    def _forged(self, members: Mapping[str, Pod]) -> Pod | None:
        if not self._ahead:
            return None
        return next((pod for pod in members.values() if pod.uid in self._ahead), None)

    def _move_members(self, key: GangKey, pods: Mapping[PodUid, Pod]) -> bool:
        """Replace single members; False: the gang has to be made anew."""
        place: Place = (1, 0.0, key, "")
        gang = self._gangs.get(place)
        if gang is None or self._asked is not None or key in self._promises.victims:
            return False
        if key not in self._position:
            self._position[key] = self._positions(gang, self._members[key].values())
        position = self._position[key]
        if position is None:
            return False
        members = list(gang.members)
        for uid, pod in pods.items():
            at = position[uid]
            members[at] = self._member(pod, self._promises.holds.get(uid), None, members[at].slice)
        group = self._groups.get(key)
        timing = timing_of(group, self._members[key].values(), limits_of(group, self._limits))
        self._put_gang(place, msgspec.structs.replace(gang, members=tuple(members), timing=timing))
        return True

    @staticmethod
    def _positions(gang: Gang, pods: Iterable[Pod]) -> dict[PodUid, int] | None:
        """None where the pods of a role differ: which of them still wait decides what the role asks."""
        shapes = {role.name: role.shape for role in gang.roles}
        if any(pod.shape.claims or pod.shape != shapes[pod.role] for pod in pods):
            return None
        return {member.uid: at for at, member in enumerate(gang.members)}

    def _put_gang(self, place: Place, gang: Gang) -> None:
        key = gang.key
        self._changes.gangs[place] = gang
        self._gangs.put(place, gang)
        if _is_broken(gang):
            self.broken[key] = gang
        else:
            self.broken.pop(key, None)

    def _member(self, pod: Pod, hold: Hold | None, asked: Asked | None, part: str) -> Member:
        known = self._made.get(pod.uid)
        if known is not None and known[1] is hold and known[2] == part:
            if known[0] is pod:
                return known[3]
            if stands_alike(known[0], pod):
                self._made[pod.uid] = (pod, hold, part, known[3])
                return known[3]
        member = member_of(pod, hold, asked, part)
        self._made[pod.uid] = (pod, hold, part, member)
        return member

    def _remake_pod(self, key: str) -> None:
        """The occupant, or the gang without a PodGroup, that a pod makes; members of gangs make neither."""
        stood = self._placed_at.pop(key, None)
        if stood is not None:
            if stood[0]:
                self._occupants.drop(stood)
                self._changes.occupants[stood] = None
            else:
                self._gangs.drop(stood)
                self._changes.gangs[stood] = None
        pod = self._pods.get(key)
        if pod is None or self._gang_key(pod) is not None:
            return
        ours = self._is_ours(pod)
        if ours and not pod.holds_room:
            if not pod.finished and not pod.terminating:
                place: Place = (0, pod.created, pod.key, pod.uid)
                gang = self._changes.gangs[place] = bare_gang(pod, self._policy, self._seen)
                self._gangs.put(place, gang)
                self._placed_at[key] = place
            return
        if ours and pod.node is not None:
            self._occupy(3, pod, occupant_of(pod, pod.node, self._asked))
        elif not is_foreign(pod, self._policy):
            return
        elif pod.node is not None:
            self._occupy(1, pod, occupant_of(pod, pod.node, self._asked))
        elif pod.nominated_node is not None and not pod.finished:
            self._occupy(2, pod, occupant_of(pod, pod.nominated_node, self._asked, promised=True))

    def _occupy(self, sort: int, pod: Pod, occupant: Occupant) -> None:
        place: Place = (sort, pod.created, pod.key, pod.uid)
        self._changes.occupants[place] = occupant
        self._occupants.put(place, occupant)
        self._placed_at[pod.key] = place

    def _remake_hold(self, uid: PodUid) -> None:
        hold = self._promises.holds.get(uid)
        pod = self._by_uid.get(uid)
        member = pod is not None and self._gang_key(pod) is not None
        if hold is not None and not (member and pod is not None and member_state(pod, hold) is MemberState.ASSUMED):
            self._holds.put(uid, hold)
            self._changes.holds[uid] = hold
        elif self._holds.drop(uid) is not None:
            self._changes.holds[uid] = None


def being_carried_out(gang: Gang, entry: OpenEntry | None, victims: Container[PodUid] = frozenset()) -> Gang:
    """The gang, held while its last entry is being carried out or taken back, or while victims among its pods stand.

    A plan does not hold its gang: the core knows of it by its nomination.
    """
    if gang.hold:
        return gang
    if entry is not None and entry.kind is not Kind.PLAN:
        why = entry.message or entry.reason
        messages = {
            Kind.BIND: "its last placement is being carried out",
            Kind.UNDOING: f"its last placement is being taken back: {why}",
            Kind.WITHDRAWING: f"the plan that made room for it is being taken back: {why}",
        }
        return msgspec.structs.replace(gang, hold=Reason.BINDING, hold_message=messages[entry.kind])
    if any(member.uid in victims and member.state in STANDING for member in gang.members):
        message = "pods of it are leaving to make room for another job; it gets no more before they are gone"
        return msgspec.structs.replace(gang, hold=Reason.LEAVING, hold_message=message)
    return gang


def without_forged(gang: Gang, pod: Pod | None, sequence: Sequence) -> Gang:
    """The gang, held while this pod of it carries a fence that the LEDGER, read up to ``sequence``, cannot have given."""
    if pod is None or gang.hold:
        return gang
    message = (
        f"pod {pod.name} carries the annotation muster.dev/fence: {pod.fence}, which Muster never wrote (it is at {sequence}); "
        f"nothing binds it"
    )
    return msgspec.structs.replace(gang, hold=Reason.FENCE_FORGED, hold_message=message)


def _uses_alike(before: Pod, after: Pod) -> bool:
    """Whether two states of a pod use their claims, or wait for them, in the same way."""
    return (
        before.shape.claims == after.shape.claims
        and (before.uid, before.node, before.finished, before.terminating, before.gated, before.created)
        == (after.uid, after.node, after.finished, after.terminating, after.gated, after.created)
        and before.scheduler_name == after.scheduler_name
    )


def _is_broken(gang: Gang) -> bool:
    """What `Gang.broken` says, in one pass where most gangs are not."""
    counted, started = 0, False
    for member in gang.members:
        state = member.state
        if state is MemberState.BOUND or state is MemberState.ASSUMED:
            counted += 1
        elif state is MemberState.SUCCEEDED:
            return False
        elif state is MemberState.LEAVING:
            started = True
    if not (started or counted):
        return False
    return counted < gang.minimum or (any(role.minimum for role in gang.roles) and gang.broken)
