"""One decision, in the numbered steps of DESIGN 6."""

from collections.abc import Iterable
from fractions import Fraction
from functools import partial
from itertools import chain

import msgspec
import numpy as np

from muster.decide.asks import Ask
from muster.decide.basis import Basis, Start, start_of
from muster.decide.explain import Explainer
from muster.decide.fleet import Fleet, Mask
from muster.decide.memory import CoreMemory, mix_key, requests_seen, shape_key, without_cards_aside, without_expired
from muster.decide.ordering import Line, gang_key_order
from muster.decide.placement.expand import slots_of
from muster.decide.placement.feasibility import capacity
from muster.decide.placement.fragmentation import mix_of
from muster.decide.placement.recount import Recount
from muster.decide.placement.solver import Solve, solve_here
from muster.decide.placement.validate import validate
from muster.decide.placement.validate_topology import Domains
from muster.decide.reasons import Reason
from muster.decide.room import Room
from muster.decide.scheduling.holds import Held, hold_of
from muster.decide.scheduling.nominated import freeing, hold_nominated
from muster.decide.scheduling.quotas import Quotas
from muster.decide.scheduling.repair import repair
from muster.decide.scheduling.reserving import Keeping
from muster.decide.scheduling.state import Round, least_charge
from muster.decide.shares import GPU, Amounts, Tree, add, card_kinds, demand_charge, total_of
from muster.decide.waiting.decayed import history_of, remembered
from muster.decide.waiting.durations import followed
from muster.decide.waiting.promotion import promoted
from muster.decide.waiting.stability import shares_noted
from muster.decide.water_filling import set_shares
from muster.model.instructions import Instruction, Place
from muster.model.pods import Shape
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, QueueName


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What should happen now, and what the core remembers from here on."""

    instructions: tuple[Instruction, ...]
    memory: CoreMemory
    shares: dict[QueueName, Fraction] = {}
    """Of cards of any kind, in millionths, by queue."""


def decide(
    snapshot: Snapshot,
    memory: CoreMemory,
    now: float,
    policy: Policy,
    *,
    solve: Solve = solve_here,
    fleet: Fleet | None = None,
    basis: Basis | None = None,
) -> Decision:
    """Decide what starts, and say of everything else why it waits.

    ``fleet`` may be given by a caller that kept it from the last decision: it must be of the same nodes and levels. ``basis``
    may be given by one that keeps more, and noted there what changed since the last snapshot; the fleet is its own then.
    ``solve`` carries out one CP-SAT call; the shell passes its own to be able to stop it.
    """
    nodes = without_cards_aside(snapshot.nodes, memory, now)
    if nodes is not snapshot.nodes:
        snapshot, fleet = msgspec.structs.replace(snapshot, nodes=nodes), None
    if basis is None:
        return _decided(start_of(snapshot, fleet), snapshot, memory, now, policy, solve=solve)
    try:
        return _decided(basis.start(snapshot), snapshot, memory, now, policy, solve=solve)
    finally:
        basis.give_back()


def _decided(
    start: Start, snapshot: Snapshot, memory: CoreMemory, now: float, policy: Policy, *, solve: Solve
) -> Decision:
    fleet, room, empty, tree, asks, recount = start
    before = room.mark()
    holds = {
        key: hold
        for key, ask in asks.items()
        if (hold := hold_of(ask, tree, memory, now, policy=policy, pauses=snapshot.pauses)) is not None
    }
    free = [ask for key, ask in asks.items() if key not in holds and ask.waiting]
    hopeful = [ask for ask in free if fits_empty(empty, ask)]

    total, demand = total_of(fleet), demand_of(fleet, tree, hopeful)
    memory = remembered(followed(memory, snapshot.gangs, now), tree, total, now, policy)
    set_shares(tree, total, demand, history_of(memory, now, policy), kinds=card_kinds(fleet))
    memory = shares_noted(memory, tree, demand, now)
    first, reserved = hold_nominated(room, tree, asks=asks, snapshot=snapshot, memory=memory, now=now)
    paused = {key for key, hold in holds.items() if hold.code == Reason.PAUSED}
    holds |= {key: freeing(key, memory) for key in reserved if key in asks and key not in paused}
    hopeful = [ask for ask in hopeful if ask.gang.key not in reserved]
    blocked = blocked_rows(fleet, memory, now, hopeful)
    work = Round(room, tree, policy.packing, blocked=blocked, mix=mix_of(memory.mix, fleet))
    ahead = promoted(hopeful, memory, now, policy)
    keeping = Keeping(
        work, empty, snapshot, memory=memory, now=now, policy=policy, asks=hopeful, promoted=ahead, nominated=reserved
    )
    quotas = Quotas(tree, room, hopeful, promoted=ahead, most=policy.waiting.reservations)
    failed = serve_minimums(work, hopeful, first=first, keeping=keeping, quotas=quotas)
    memory = repair(work, keeping.lend(failed), memory, policy=policy.solver, solve=solve)
    keeping.resume()
    serve_surplus(work, hopeful, keeping=keeping)
    kept_out = {ask.gang.key: why for ask in failed if (why := quotas.keeps_out(ask)) is not None}
    quotas.release()
    keeping.release()

    places, rejected = _places(work, snapshot, recount)
    started = {place.gang for place in places}
    explainer = Explainer(work, before=before, empty=empty)
    waiting = [ask for key, ask in asks.items() if key not in started]
    pending = explainer.pending(waiting, holds | rejected | keeping.reasons(explainer.why) | kept_out)
    memory = keeping.remembered(memory, {place.gang: place.slots for place in places})
    memory = msgspec.structs.replace(
        memory, nominations=tuple(one for one in memory.nominations if one.gang in reserved)
    )
    memory = without_expired(memory, now=now, keep=policy.timeouts.backoff_max)
    shares = {name: one.get(GPU, Fraction(0)) for name, one in tree.shares.items()}
    return Decision(instructions=(*places, *pending), memory=_remember(memory, work, started), shares=shares)


def fits_empty(empty: Room, ask: Ask) -> bool:
    """Whether an empty cluster could hold the minimums, role by role; the quick test for hopeless gangs."""
    memo = empty.fleet.memo
    total = 0
    for role in ask.roles:
        key = ("empty", role.shape)
        if key not in memo:
            memo[key] = int(capacity(empty, role.shape).sum())
        fits = memo[key]
        assert isinstance(fits, int)
        if fits < role.need:
            return False
        total += min(fits, len(role.waiting))
    return total >= max(ask.minimum, 1)


def demand_of(fleet: Fleet, tree: Tree, asks: Iterable[Ask]) -> dict[QueueName, Amounts]:
    """Usage plus what placeable gangs ask, on every level of the tree."""
    demand: dict[QueueName, Amounts] = {name: dict(usage) for name, usage in tree.usage.items()}
    for ask in asks:
        for role in ask.roles:
            charge = demand_charge(fleet, role.shape.request)
            for queue in tree.path(ask.gang.queue):
                add(demand[queue], charge, len(role.waiting))
    return demand


def serve_minimums(
    work: Round, asks: Iterable[Ask], *, keeping: Keeping, quotas: Quotas, first: Iterable[GangKey] = ()
) -> list[Ask]:
    """Gangs whose room was freed for them, broken gangs, then queue by queue; what did not fit, in the order tried.

    What fails at its turn may be reserved for; those whose turn comes later are kept from that room.
    """
    failed: list[Ask] = []
    lacking = [ask for ask in asks if ask.minimum > 0]
    for key in first:
        ask = next((one for one in lacking if one.gang.key == key), None)
        if ask is None:
            continue
        with quotas.turn(ask):
            admitted = work.admit(ask)
        if admitted:
            quotas.started(ask)
            lacking.remove(ask)
            work.settled.add(key)
    broken = sorted((ask for ask in lacking if ask.gang.broken), key=lambda ask: gang_key_order(ask.gang))
    line = Line(
        work.tree,
        (ask for ask in lacking if not ask.gang.broken),
        lambda ask: least_charge(work.room, ask),
        promoted=keeping.promoted,
    )
    for turn in chain(broken, iter(line.next, None)):
        with quotas.turn(turn):
            admitted = work.admit(turn) or keeping.let_in(turn, partial(work.admit, turn), whole=True)
            if admitted:
                quotas.started(turn)
        if admitted:
            if turn.gang.key in keeping.known or turn.gang.key in keeping.promoted:
                work.settled.add(turn.gang.key)
        else:
            failed.append(turn)
            keeping.failed(turn)
    return failed


def serve_surplus(work: Round, asks: Iterable[Ask], *, keeping: Keeping) -> None:
    """Pods above the minimums, one by one, of gangs that stand or were placed in this round."""
    candidates = [ask for ask in asks if ask.minimum == 0 or ask.gang.key in work.landed]
    left: dict[GangKey, list[int]] = {}
    for ask in candidates:
        counts = [len(role.waiting) for role in ask.roles]
        for landed in work.landed.get(ask.gang.key, ()):
            counts[landed.role] -= 1
        if any(counts):
            left[ask.gang.key] = counts
    line = Line(work.tree, (ask for ask in candidates if ask.gang.key in left), lambda ask: _one_pod(work, ask, left))
    while (turn := line.next()) is not None:
        counts = left[turn.gang.key]
        for number, count in enumerate(counts):
            grow = partial(work.grow, turn, number)
            if count and (grow() or keeping.let_in(turn, grow, whole=False)):
                counts[number] -= count if turn.roles[number].whole else 1
                break
            counts[number] = 0  # the room only shrinks within a round: this role is done
        if any(counts):
            line.again(turn)


def _one_pod(work: Round, ask: Ask, left: dict[GangKey, list[int]]) -> Amounts:
    number = next(number for number, count in enumerate(left[ask.gang.key]) if count)
    return demand_charge(work.room.fleet, ask.roles[number].shape.request)


def blocked_rows(fleet: Fleet, memory: CoreMemory, now: float, asks: Iterable[Ask]) -> dict[Shape, Mask]:
    """Rows that refused a shape a moment ago."""
    active = [one for one in memory.nodes if one.until > now and one.node in fleet.row_of]
    blocked: dict[Shape, Mask] = {}
    if not active:
        return blocked
    for shape in {role.shape for ask in asks for role in ask.roles}:
        key = shape_key(shape)
        rows = [fleet.row_of[one.node] for one in active if one.shape == key]
        if rows:
            mask = np.zeros(fleet.size, dtype=np.bool_)
            mask[rows] = True
            blocked[shape] = mask
    return blocked


def _places(work: Round, snapshot: Snapshot, recount: Recount) -> tuple[list[Place], dict[GangKey, Held]]:
    """The instructions; nothing leaves without passing the validator, and what does not pass says so."""
    places = [
        Place(gang=key, gang_uid=work.asks[key].gang.uid, slots=slots_of(work.room.fleet, work.asks[key], landed))
        for key, landed in work.landed.items()
        if landed
    ]
    if not places:
        return [], {}
    levels, memo = snapshot.topology_levels, work.room.fleet.label_memo
    domains = memo.get("validator's domains")
    if not isinstance(domains, Domains):
        nodes = {node.name: node for node in snapshot.nodes}
        domains = memo["validator's domains"] = Domains(nodes, levels, snapshot.hypernodes)
    check = partial(validate, snapshot, levels=levels, recount=recount, domains=domains)
    if not check(places):
        return places, {}
    sound: list[Place] = []
    rejected: dict[GangKey, Held] = {}
    for place in places:
        problems = check([*sound, place])
        if problems:
            text = "; ".join(problems[:3])
            rejected[place.gang] = Held(Reason.PLAN_REJECTED, f"the plan for it is unsound: {text}", {})
        else:
            sound.append(place)
    return sound, rejected


def _remember(memory: CoreMemory, work: Round, started: set[GangKey]) -> CoreMemory:
    seen: dict[str, int] = {}
    for key in started:
        ask = work.asks[key]
        for landed in work.landed[key]:
            mix = mix_key(ask.roles[landed.role].shape)
            seen[mix] = seen.get(mix, 0) + 1
    return requests_seen(memory, seen)
