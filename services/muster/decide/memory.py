"""The scheduling core's memory: what the cluster does not tell.

    nominations       room that a committed plan frees, held for its gang
    gang back-offs    a gang that was rejected again and again waits longer each time
    node back-offs    a (node, shape) the kubelet refused is left alone for a while
    card back-offs    so is a card whose handing over to a pod failed
    evictions         what plans of the last hours made leave: for the limits on evictions, and the cost of one more
    tried             plans that were refused or led nowhere, by their inputs: not proposed again while those are the same
    request mix       how often which request was seen, for judging fragmentation
    reservations      gangs for which room is kept, where and from when on, and who runs there until then
    durations         how long gangs of an owner ran, and which of those that run are followed
    past usage        of each queue, decaying; and since when its share has been what it is

Frozen; every function returns a new memory. The shell persists it in the LEDGER as plain data.
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import msgspec

from muster.decide.volumes import COUNTED
from muster.model.instructions import Slot
from muster.model.ledger import Plan
from muster.model.nodes import Node
from muster.model.pods import CardUse, Request, Shape, Share
from muster.model.policy import Timeouts
from muster.model.units import Bytes, CardCount, CardIndex, CorePercent, GangKey, MiB, MilliCpu, NodeName, PodUid

CORE = "scheduling"
EVICTIONS_KEPT = 21_600.0
"""Seconds."""


class Backoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Wait until then; the next one is longer."""

    until: float
    failures: int = 1


class NodeBackoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node that refused pods of a shape."""

    node: NodeName
    shape: str
    """Key of the shape, see `shape_key`."""
    until: float
    failures: int = 1


class CardBackoff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A card whose handing over failed: it is left alone for a while."""

    node: NodeName
    card: CardIndex
    until: float
    failures: int = 1


class Nomination(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Room that a committed plan frees, held for its gang until it stands there."""

    gang: GangKey
    slots: tuple[Slot, ...]
    victims: tuple[PodUid, ...]
    until: float
    """It does not lapse while victims are still there; after that it does at this time."""


class Eviction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A gang lost pods to a committed plan."""

    gang: GangKey
    at: float
    pods: int = 1
    cards: int = 0
    """In millionths."""
    room_for: GangKey = GangKey("")
    """Who got the room; '' where an older memory does not say."""
    moved: bool = False
    """It was placed again in the same plan."""


class Reservation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Room that is kept for a gang until it fits; see `muster.decide.waiting`."""

    gang: GangKey
    gang_uid: str
    nodes: tuple[NodeName, ...]
    made_at: float
    start: float | None = None
    """When its room is expected to be free; None: nobody knows; 0: as soon as those that may be asked to have left."""
    domain: str = ""
    """What people call the place, '' when it is just these nodes."""


class Backfilled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pods that run in the room of a reservation until its gang wants it."""

    gang: GangKey
    reserved_for: GangKey
    pods: tuple[PodUid, ...] = ()
    """() stands for all of the gang's."""


class Followed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running gang whose duration will be learned."""

    started: float
    by: str
    """Queue and owner, see `muster.decide.waiting.durations`."""


class PastUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Usage of one resource over time, decayed: `level` at the moment `at`, and what is used since then."""

    level: float
    used: int
    at: float


class ShareSince(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue's share, and since when it has been that."""

    share: str
    since: float


class CoreMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything the scheduling core remembers."""

    gangs: dict[GangKey, Backoff] = {}
    nodes: tuple[NodeBackoff, ...] = ()
    cards: tuple[CardBackoff, ...] = ()
    mix: dict[str, int] = {}
    """Requests seen, by key of `mix_key`, capped and halved so that it follows the present."""
    nominations: tuple[Nomination, ...] = ()
    """Room of committed plans, see `muster.decide.scheduling.nominated`."""
    fruitless: str = ""
    """Digest of the last problem that the exact model could not improve; it is not solved again while nothing changed."""

    evictions: tuple[Eviction, ...] = ()
    """Newest last."""
    tried: dict[GangKey, str] = {}
    """Digest of the plan of each gang that was refused or led nowhere, see `muster.decide.preemption.history`."""

    reservations: tuple[Reservation, ...] = ()
    backfilled: tuple[Backfilled, ...] = ()
    looked: dict[GangKey, float] = {}
    """Gangs for which there was no place to reserve: not looked for again before that time."""
    durations_learned: dict[str, tuple[float, ...]] = {}
    """Seconds, by queue and owner; the latest last, see `muster.decide.waiting.durations`."""
    followed: dict[GangKey, Followed] = {}
    usage_past: dict[str, dict[str, PastUsage]] = {}
    """By queue and resource, see `muster.decide.waiting.decayed`."""
    shares_since: dict[str, ShareSince] = {}
    """By queue, see `muster.decide.waiting.stability`."""

    def without_fruit(self, digest: str) -> "CoreMemory":
        """Remember the digest ('' forgets)."""
        return self if digest == self.fruitless else msgspec.structs.replace(self, fruitless=digest)

    def to_data(self) -> dict[str, Any]:
        """As plain data, for the LEDGER."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "CoreMemory":
        """From what `to_data` gave. Raises msgspec.ValidationError for anything else."""
        return msgspec.convert(data, cls)


def shape_key(shape: Shape) -> str:
    """A short stable name of a shape: of the pod's own, without what the snapshot joins to it."""
    request = shape.request
    if any(name.startswith(COUNTED) for name, _ in request.extended):
        extended = tuple(one for one in request.extended if not one[0].startswith(COUNTED))
        request = msgspec.structs.replace(request, extended=extended)
    own = msgspec.structs.replace(shape, request=request, claims=(), volume_nodes=(), namespace="", labels=())
    return hashlib.blake2b(msgspec.json.encode(own), digest_size=8).hexdigest()


def _wait(failures: int, timeouts: Timeouts) -> float:
    return float(min(timeouts.backoff_max, timeouts.backoff_initial * 2 ** min(failures - 1, 16)))


def nominated(memory: CoreMemory, nominations: tuple[Nomination, ...]) -> CoreMemory:
    """A plan was committed: its room is held from now on."""
    gangs = {one.gang for one in nominations}
    kept = tuple(one for one in memory.nominations if one.gang not in gangs)
    return msgspec.structs.replace(memory, nominations=(*kept, *nominations))


def evicted(memory: CoreMemory, plan: Plan, now: float) -> CoreMemory:
    """A plan was committed: its victims are remembered, older ones than `EVICTIONS_KEPT` are forgotten."""
    lost: dict[GangKey, Eviction] = {}
    moved = plan.cause == "consolidate"
    for victim in plan.victims:
        one = lost.get(victim.gang) or Eviction(gang=victim.gang, at=now, pods=0, room_for=plan.gang, moved=moved)
        lost[victim.gang] = msgspec.structs.replace(one, pods=one.pods + 1, cards=one.cards + victim.cards)
    kept = tuple(one for one in memory.evictions if one.at + EVICTIONS_KEPT > now)
    return msgspec.structs.replace(memory, evictions=(*kept, *lost.values()))


def gang_failed(memory: CoreMemory, gang: GangKey, *, now: float, timeouts: Timeouts) -> CoreMemory:
    """The gang was released (its binds did not complete, or it did not start): it backs off."""
    before = memory.gangs.get(gang)
    failures = before.failures + 1 if before is not None else 1
    after = Backoff(until=now + _wait(failures, timeouts), failures=failures)
    return msgspec.structs.replace(memory, gangs={**memory.gangs, gang: after})


def gang_started(memory: CoreMemory, gang: GangKey) -> CoreMemory:
    """The gang runs: its back-off is forgotten."""
    if gang not in memory.gangs:
        return memory
    return msgspec.structs.replace(memory, gangs={key: one for key, one in memory.gangs.items() if key != gang})


def node_refused(memory: CoreMemory, node: NodeName, shape: Shape, *, now: float, timeouts: Timeouts) -> CoreMemory:
    """The kubelet refused a pod of this shape: the pair backs off."""
    key = shape_key(shape)
    before = next((one for one in memory.nodes if one.node == node and one.shape == key), None)
    failures = before.failures + 1 if before is not None else 1
    after = NodeBackoff(node=node, shape=key, until=now + _wait(failures, timeouts), failures=failures)
    rest = tuple(one for one in memory.nodes if one is not before)
    return msgspec.structs.replace(memory, nodes=(*rest, after))


def card_refused(
    memory: CoreMemory, node: NodeName, cards: Iterable[CardUse], *, now: float, timeouts: Timeouts
) -> CoreMemory:
    """The kubelet refused a pod to which these cards were assigned: they are set aside."""
    kept = {(one.node, one.card): one for one in memory.cards}
    for use in cards:
        before = kept.get((node, use.index))
        failures = before.failures + 1 if before is not None else 1
        until = now + _wait(failures, timeouts)
        kept[node, use.index] = CardBackoff(node=node, card=use.index, until=until, failures=failures)
    return msgspec.structs.replace(memory, cards=tuple(kept.values()))


def without_cards_aside(nodes: tuple[Node, ...], memory: CoreMemory, now: float) -> tuple[Node, ...]:
    """The nodes, with the cards that are set aside now as if they were not healthy."""
    aside: dict[NodeName, set[CardIndex]] = {}
    for one in memory.cards:
        if one.until > now:
            aside.setdefault(one.node, set()).add(one.card)
    if not aside:
        return nodes
    return tuple(
        node
        if node.name not in aside
        else msgspec.structs.replace(
            node,
            cards=tuple(
                msgspec.structs.replace(card, healthy=False) if card.index in aside[node.name] else card
                for card in node.cards
            ),
        )
        for node in nodes
    )


def without_expired(memory: CoreMemory, *, now: float, keep: float) -> CoreMemory:
    """Drop back-offs that ended more than ``keep`` seconds ago (until then they still make the next one longer)."""
    gangs = {key: one for key, one in memory.gangs.items() if one.until + keep > now}
    nodes = tuple(one for one in memory.nodes if one.until + keep > now)
    cards = tuple(one for one in memory.cards if one.until + keep > now)
    if (len(gangs), len(nodes), len(cards)) == (len(memory.gangs), len(memory.nodes), len(memory.cards)):
        return memory
    return msgspec.structs.replace(memory, gangs=gangs, nodes=nodes, cards=cards)


def mix_key(shape: Shape) -> str:
    """What a request asks, as far as the mix tells requests apart: ``cards:2 cpu:8000 memory:17179869184``.

    The card part is ``cards:2``, ``share:8192:25`` or ``none``; CPU and memory keep two digits, so that keys stay few.
    """
    request = shape.request
    card = f"cards:{request.cards}" if request.cards else "none"
    if request.share is not None:
        card = f"share:{request.share.memory_mib}:{request.share.core_percent}"
    return f"{card} cpu:{_two_digits(request.cpu)} memory:{_two_digits(request.memory)}"


def _two_digits(amount: int) -> int:
    scale: int = 10 ** max(0, len(str(amount)) - 2)
    return -(-amount // scale) * scale


def request_of_mix(key: str) -> Request | None:
    """The request that a key of `mix_key` stands for; None for a key of another form, which an older memory may hold."""
    parts = dict(part.partition(":")[::2] for part in key.split(" "))
    try:
        cpu, memory = MilliCpu(int(parts["cpu"])), Bytes(int(parts["memory"]))
        if "share" in parts:
            mib, percent = parts["share"].split(":")
            share = Share(memory_mib=MiB(int(mib)), core_percent=CorePercent(int(percent)))
            return Request(cpu=cpu, memory=memory, share=share)
        return Request(cpu=cpu, memory=memory, cards=CardCount(int(parts.get("cards", 0))))
    except (KeyError, ValueError):
        return None


def requests_seen(memory: CoreMemory, shapes: dict[str, int], *, cap: int = 10_000) -> CoreMemory:
    """Count started requests by `mix_key`."""
    if not shapes:
        return memory
    mix = dict(memory.mix)
    for key, times in shapes.items():
        mix[key] = mix.get(key, 0) + times
    if sum(mix.values()) > cap:
        mix = {key: times // 2 for key, times in mix.items() if times > 1}
    return msgspec.structs.replace(memory, mix=mix)
