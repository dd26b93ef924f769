"""Consolidation: jobs that leave one node, and are placed again in the same plan, so that a gang fits.

Only preemptible jobs not above the gang's priority move, and of other queues only for a gang that stays within its queue's
claim; each is re-placed whole; the gang uses one node that moved jobs were on, so that a plan clears a single node and stays
small; and no more card time moves than `MOST_MOVED` per card gained.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from muster.decide.asks import Ask, ask_of
from muster.decide.fleet import CPU, MEMORY
from muster.decide.placement.feasibility import capacity
from muster.decide.placement.greedy import Landed
from muster.decide.preemption.allowances import Allowances
from muster.decide.preemption.candidates import bounds_of
from muster.decide.preemption.law import within_claim
from muster.decide.preemption.trial import Trial
from muster.decide.preemption.victims import Unit, unit_of
from muster.decide.room import Room
from muster.decide.shares import Amounts
from muster.model.gangs import Gang, MemberState
from muster.model.pods import Shape
from muster.model.units import ONE_CARD

MOST_MOVED = 2.0
MOST_JOBS_ON_A_NODE = 8
MOST_NODES_TRIED = 64


class Move(NamedTuple):
    """Jobs that move, where they go, and where the gang goes."""

    units: tuple[Unit, ...]
    replaced: tuple[tuple[Ask, tuple[Landed, ...]], ...]
    landed: tuple[Landed, ...]


def consolidation(trial: Trial, empty: Room, ask: Ask, gangs: Sequence[Gang], allowances: Allowances) -> Move | None:
    """The smallest set of moves from one node that makes room for the gang, or None. ``gangs``: those that may leave."""
    fleet = trial.room.fleet
    movable = [
        unit_of(gang, [m for m in gang.members if m.state is MemberState.BOUND], fleet, core=True)
        for gang in gangs
        if gang.key != ask.gang.key and gang.priority <= ask.gang.priority
    ]
    movable = [unit for unit in movable if not allowances.refuses([unit])]
    movable.sort(key=lambda unit: (unit.charge.get("gpu", 0), len(unit.members), unit.key))
    by_row: dict[int, list[Unit]] = {}
    for unit in movable:
        for row in unit.rows:
            by_row.setdefault(row, []).append(unit)
    if not movable or _too_little(trial, ask):
        return None
    best: Move | None = None
    placeable = _has_room(trial, movable)
    wide = np.sum(bounds_of(trial, empty, ask, movable).fits[-1], axis=0)
    rows = [row for row in by_row if wide[row] >= ask.minimum and any(unit.key in placeable for unit in by_row[row])]
    for row in sorted(rows)[:MOST_NODES_TRIED]:
        chosen: list[Unit] = []
        for unit in [one for one in by_row[row] if one.key in placeable][:MOST_JOBS_ON_A_NODE]:
            chosen.append(unit)
            move = _try(trial, ask, chosen)
            if move is not None and not allowances.refuses(move.units):
                if best is None or _moved(move.units) < _moved(best.units):
                    best = move
                break
    return best


def _too_little(trial: Trial, ask: Ask) -> bool:
    """Whether there is less free in the whole cluster than the gang asks: moves alone make nothing free."""
    room = trial.room
    lacking = max(0, ask.need - sum(role.need for role in ask.roles))
    cards = cpu = memory = 0
    for role in sorted(ask.roles, key=lambda one: (one.shape.request.cards, one.shape.request.cpu)):
        more = min(lacking, len(role.waiting) - role.need)
        lacking -= more
        pods = role.need + more
        cards += pods * role.shape.request.cards
        cpu += pods * role.shape.request.cpu
        memory += pods * role.shape.request.memory
    free = np.maximum(room.free, 0).sum(axis=0)
    return bool(int(room.card_core.sum()) < 100 * cards or free[CPU] < cpu or free[MEMORY] < memory)


def _has_room(trial: Trial, units: Sequence[Unit]) -> set[object]:
    """Units for whose pods there is a free place somewhere, as things stand, or that stand on several nodes."""
    free: dict[Shape, bool] = {}
    found: set[object] = set()
    for unit in units:
        shapes = {role.name: role.shape for role in unit.gang.roles}
        for shape in {shapes[member.role] for member in unit.members}:
            if shape not in free:
                free[shape] = bool(capacity(trial.room, shape).any())
            if free[shape] or len(unit.rows) > 1:
                found.add(unit.key)
    return found


def _moved(units: Sequence[Unit]) -> int:
    return sum(unit.charge.get("gpu", 0) for unit in units)


def _try(trial: Trial, ask: Ask, units: Sequence[Unit]) -> Move | None:
    mark = trial.without(units)
    move = None
    landed = trial.place(ask)
    if landed is not None:
        charge = trial.charge(ask, landed)
        trial.tree.charge(ask.gang.queue, charge)
        replaced = []
        charged = []
        for unit in units:
            again = _again(unit)
            where = trial.place(again)
            if where is None:
                break
            amounts = trial.charge(again, where)
            trial.tree.charge(unit.gang.queue, amounts)
            charged.append((unit.gang.queue, amounts))
            replaced.append((again, tuple(where)))
        else:
            rows = {row for unit in units for row in unit.rows} & {one.row for one in landed}
            gained = charge.get("gpu", 0) or ONE_CARD
            small = len(rows) == 1 and {one.row for one in landed} == rows and _moved(units) <= MOST_MOVED * gained
            if small and _may_move_others(trial, ask, units, charge):
                move = Move(tuple(units), tuple(replaced), tuple(landed))
        for queue, amounts in charged:
            trial.tree.charge(queue, amounts, -1)
        trial.tree.charge(ask.gang.queue, charge, -1)
    trial.put_back(units, mark)
    return move


def _may_move_others(trial: Trial, ask: Ask, units: Sequence[Unit], charge: Amounts) -> bool:
    """Whether the gang stays within its queue's claim, where jobs of other queues move for it. It is charged already."""
    others = {unit.gang.queue for unit in units} - {ask.gang.queue}
    if not others:
        return True
    trial.tree.charge(ask.gang.queue, charge, -1)
    within = within_claim(trial.tree, ask, charge, others, charge)
    trial.tree.charge(ask.gang.queue, charge)
    return within


def _again(unit: Unit) -> Ask:
    """The moved job as it will ask once its pods have been made again: everything it has now, all of it."""
    moved = {member.uid for member in unit.members}
    members = tuple(
        msgspec.structs.replace(member, state=MemberState.WAITING, node=None, cards=())
        if member.uid in moved
        else member
        for member in unit.gang.members
    )
    return ask_of(msgspec.structs.replace(unit.gang, members=members, minimum=unit.gang.counted))
