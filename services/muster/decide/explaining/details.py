"""The details of one gang's wait, worked out when somebody asks (`muster explain`): the best place and what it lacks, why the
obvious other one does not do, and where its queue stands.

    rack-b: room for 3 of 4 pods; gpu-node-09 is held by 2 jobs of train-dev (5 cards, lower priority, checkpoint 3 min ago)
    rack-a has 31 free cards, but on 9 nodes with at most 6 each
    entitled, so jobs of lower priority in its queue may be asked to leave for it
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from muster.decide.asks import Ask, RoleAsk, ask_of
from muster.decide.explaining.holders import Holders, Named
from muster.decide.explaining.nodes import SAID
from muster.decide.explaining.words import asked_roles, wishes
from muster.decide.fleet import Fleet, Ints, Mask
from muster.decide.memory import CoreMemory
from muster.decide.placement.feasibility import admission, capacity
from muster.decide.reasons import Reason, count, format_amount, known_name, span
from muster.decide.room import Room
from muster.decide.scheduling.state import least_charge
from muster.decide.shares import Tree, tree_of
from muster.decide.topology import domain_name, domains, resolve
from muster.decide.waiting.stability import shares_stable
from muster.model.durations import format_duration
from muster.model.gangs import Gang
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, QueueName, RoleName, split_key

MOST_NODES = 2
"""Nodes whose holders are named."""
ROOM = frozenset(
    {Reason.NOT_ENOUGH_ROOM, Reason.TOPOLOGY_UNFIT, Reason.FREEING, Reason.CARD_SHARE_TOO_LARGE, "RESERVED"}
)
"""Codes of gangs that lack room: for them a best place and who holds it are worth telling."""


class Scene(NamedTuple):
    """What a snapshot says of rooms, queues and holders; made once for many questions."""

    fleet: Fleet
    room: Room
    empty: Room
    tree: Tree
    holders: Holders

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Scene":
        """Of a snapshot."""
        fleet = Fleet(snapshot.nodes, snapshot.topology_levels, snapshot.hypernodes)
        room = Room.of(snapshot, fleet)
        return cls(fleet, room, Room(fleet), tree_of(snapshot, room), Holders(snapshot))


class Details(NamedTuple):
    """Sentences, '' where there is nothing to say."""

    best_fit: str = ""
    not_it: str = ""
    entitled: str = ""


def own_name(gang: GangKey) -> str:
    """A gang by the name of its PodGroup."""
    return known_name(split_key(gang)[1])


def details_of(
    scene: Scene,
    gang: Gang,
    code: str,
    policy: Policy,
    now: float,
    *,
    named: Named = own_name,
    memory: CoreMemory | None = None,
) -> Details:
    """The details of a gang that waits for ``code``. ``now``: Unix seconds; ``memory``: since when shares are what they are."""
    ask = ask_of(gang)
    if not ask.waiting or gang.queue not in scene.tree.queues:
        return Details()
    if code not in ROOM or not scene.fleet.size:
        return Details()
    entitled, places = _entitled(scene, ask, policy, memory, now), _Places(scene, ask)
    return Details(best_fit=places.best_fit(now, named), not_it=places.not_it(), entitled=entitled)


class _Places:
    """The domains that a gang may choose from: those of the level it requires, else the cluster as one."""

    def __init__(self, scene: Scene, ask: Ask) -> None:
        self.scene, self.ask = scene, ask
        roles = asked_roles(ask) or [role for role in ask.roles if role.waiting]
        level = None
        for role, wish, _ in wishes(ask):
            level = resolve(scene.fleet, wish).required
            if level is not None:
                roles = roles if role is None else [role]
                break
        self.level = level
        self.main = max(roles, key=lambda one: (one.shape.request.cards, one.need, len(one.waiting)))
        self.pods = [(role, _pods_of(role, ask, alone=len(roles) == 1)) for role in roles]
        self.wanted = sum(pods for _, pods in self.pods)
        self.codes = np.zeros(scene.fleet.size, dtype=np.int64) if level is None else domains(scene.fleet, level)
        self.free = {role.name: capacity(scene.room, role.shape) for role, _ in self.pods}
        self.whole = {role.name: capacity(scene.empty, role.shape) for role, _ in self.pods}
        self.now_fits = self._sums(self.free)
        self.empty_fits = self._sums(self.whole)
        able = self.empty_fits >= self.wanted
        order = np.where(able, self.now_fits, -1) if able.any() else self.now_fits
        self.best = int(np.argmax(order)) if order.size else -1

    def _sums(self, fits: Mapping[RoleName, Ints]) -> Ints:
        inside = self.codes >= 0
        size = int(self.codes.max(initial=-1)) + 1
        total = np.zeros(size, dtype=np.int64)
        for role, pods in self.pods:
            sums = np.bincount(self.codes[inside], weights=fits[role.name][inside], minlength=size).astype(np.int64)
            total += np.minimum(sums, pods)
        return total

    def _name(self, code: int) -> str:
        if self.level is None:
            return ""
        return domain_name(self.scene.fleet, self.level, int(np.flatnonzero(self.codes == code)[0]))

    def best_fit(self, now: float, named: Named) -> str:
        """The best domain, how much of the gang it takes now, and who holds what it lacks."""
        if self.best < 0:
            return ""
        fits = int(self.now_fits[self.best])
        some = f"room for {fits} of {count(self.wanted, 'pod')}"
        if fits >= self.wanted:
            some = f"room for {count(self.wanted, 'pod')} each, not for all together" if self.wanted > 1 else "has room"
        name = self._name(self.best)
        text = f"{name}: {some}" if name else some
        names = self.scene.fleet.names
        missing = (self.whole[self.main.name] - self.free[self.main.name]) * (self.codes == self.best)
        rows = [int(row) for row in np.flatnonzero(missing > 0)]
        rows.sort(key=lambda row: (self.scene.holders.cards(names[row]) / max(1, int(missing[row])), names[row]))
        lacking, needed = max(self.wanted - fits, 0), []
        for row in rows:
            if lacking <= 0:
                break
            needed.append(row)
            lacking -= int(missing[row])
        held = [
            f"{names[row]} is held by {self.scene.holders.text(names[row], self.ask.gang, now, named)}"
            for row in needed[:MOST_NODES]
        ]
        if len(needed) > MOST_NODES:
            held.append(f"{count(len(needed) - MOST_NODES, 'more node')} the same way")
        return "; ".join([text, *held])

    def not_it(self) -> str:
        """Why the other domain with the most free cards, or cards elsewhere, are of no use."""
        cards = self.main.shape.request.cards
        if not cards:
            return ""
        room, fleet = self.scene.room, self.scene.fleet
        free = np.clip(room.whole_free, 0, None)
        found = admission(fleet, self.main.shape)
        if self.level is not None:
            size = len(self.now_fits)
            usable = (self.codes >= 0) & found.rows
            sums = np.bincount(self.codes[usable], weights=free[usable], minlength=size).astype(np.int64)
            sums[self.best] = -1
            other = int(np.argmax(sums)) if size > 1 else -1
            if other >= 0 and int(sums[other]) >= cards:
                return self._of_no_use(other, int(sums[other]), usable & (self.codes == other), free)
        outside = ~found.rows & (free > 0)
        if not outside.any():
            return ""
        reasons = {name: int((~rows & outside).sum()) for name, rows in found.passes.items()}
        why = ", ".join(f"{number} {SAID[name]}" for name, number in reasons.items() if number)
        total = int(free[outside].sum())
        return f"{count(total, 'free card')} on {count(int(outside.sum()), 'node')} that may not take it: {why}"

    def _of_no_use(self, code: int, cards: int, rows: Mask, free: Ints) -> str:
        name, nodes = self._name(code), int((rows & (free > 0)).sum())
        has = f"{name} has {count(cards, 'free card')}"
        if int(self.empty_fits[code]) < self.wanted:
            whole = int(self.empty_fits[code])
            return f"{has}, but even when empty it holds {whole} of {count(self.wanted, 'pod')}"
        most = int(free[rows].max(initial=0))
        fits = int(self.now_fits[code])
        if nodes > 1:
            has += f", but on {nodes} nodes with at most {most} each"
        return f"{has}: room for {fits} of {count(self.wanted, 'pod')}"


def _pods_of(role: RoleAsk, ask: Ask, *, alone: bool) -> int:
    return role.need or (min(ask.minimum or 1, len(role.waiting)) if alone else len(role.waiting))


def _has_lower(scene: Scene, ask: Ask, policy: Policy) -> bool:
    """Whether its own queue holds what may be preempted for it."""
    if policy.actions.preempt != "act" or ask.gang.never_preempts:
        return False
    return any(
        one.gang.queue == ask.gang.queue and one.gang.preemptible and one.gang.priority < ask.gang.priority
        for ones in scene.holders.gangs.values()
        for one in ones
    )


def _entitled(scene: Scene, ask: Ask, policy: Policy, memory: CoreMemory | None, now: float) -> str:
    """Whether the queue may have what is asked within its share, and what follows."""
    tree, queue = scene.tree, ask.gang.queue
    charge = least_charge(scene.room, ask)
    for level in tree.path(queue):
        for resource, asked in charge.items():
            if not tree.governed(level, resource):
                continue
            claim, used = tree.claim(level, resource), tree.usage[level].get(resource, 0)
            if used + asked > claim:
                over = format_amount(resource, used + asked - claim)
                whose = "it" if level == queue else level
                lower = ", or jobs of lower priority in its queue leave" if _has_lower(scene, ask, policy) else ""
                if not claim:
                    return f"{whose} deserves none for certain, so no other queue gives way: it waits until there is room{lower}"
                return f"with this job {whose} would use {over} more than deserved: it waits until there is room{lower}"
    actions = policy.actions
    acting = [name for name in ("preempt", "reclaim") if getattr(actions, name) == "act"]
    if ask.gang.never_preempts:
        return "entitled, but nobody is asked to leave: its pods say preemptionPolicy Never"
    if not acting:
        return "entitled, but nobody is asked to leave: the policy only observes (actions.preempt, actions.reclaim)"
    who = []
    if actions.preempt == "act":
        who.append("jobs of lower priority in its queue")
    if actions.reclaim == "act":
        who.append(f"jobs of queues above their share{_unstable(queue, policy, memory, now)}")
    return f"entitled, so {' and '.join(who)} may be asked to leave for it"


def _unstable(queue: QueueName, policy: Policy, memory: CoreMemory | None, now: float) -> str:
    """That a share which has just changed makes nobody leave yet."""
    known = memory.shares_since.get(queue) if memory is not None else None
    if known is None or shares_stable(memory or CoreMemory(), queue, now, policy):
        return ""
    left = span(known.since + policy.fairness.stability - now)
    return f" (in {left}, when its share has stood for {format_duration(policy.fairness.stability)})"
