"""Who holds a node: jobs by queue with cards, standing against the one that asks, and what is known of their time.

``2 jobs of train-dev (5 cards, lower priority, checkpoint 3 min ago)`` · ``eval-3 of dev (8 cards, ends in about 12 min)``
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from muster.decide.held import HOLDING
from muster.decide.reasons import count, span
from muster.model.gangs import Gang, Member, MemberState
from muster.model.snapshot import Occupant, Snapshot
from muster.model.units import GangKey, NodeName, PodUid, QueueName

Named = Callable[[GangKey], str]
"""How people call a gang: by its job's name, which only the shell knows."""


class Holder(NamedTuple):
    """A gang's pods on one node."""

    gang: Gang
    members: tuple[Member, ...]

    @property
    def cards(self) -> int:
        """Cards that they are on; shares count as cards here."""
        return len({use.index for member in self.members for use in member.cards})


class Holders:
    """Who stands where, made once for a snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        by_node: dict[NodeName, dict[str, tuple[Gang, list[Member]]]] = defaultdict(dict)
        for gang in snapshot.gangs:
            for member in gang.members:
                if member.node is not None and member.state in HOLDING:
                    by_node[member.node].setdefault(gang.key, (gang, []))[1].append(member)
        self.gangs: Mapping[NodeName, Sequence[Holder]] = {
            node: [Holder(gang, tuple(members)) for gang, members in ones.values()] for node, ones in by_node.items()
        }
        others: dict[NodeName, list[Occupant]] = defaultdict(list)
        for occupant in snapshot.occupants:
            others[occupant.node].append(occupant)
        self.others: Mapping[NodeName, Sequence[Occupant]] = others
        self._kept: dict[PodUid, str] = {
            uid: budget.name for budget in snapshot.budgets if budget.allowed <= 0 for uid in budget.pods
        }

    def cards(self, node: NodeName) -> int:
        """Cards that anybody holds there."""
        return sum(one.cards for one in self.gangs.get(node, ())) + sum(
            len(one.cards) or one.request.cards for one in self.others.get(node, ())
        )

    def text(self, node: NodeName, asker: Gang, now: float, named: Named) -> str:
        """Who holds the node, in words."""
        queues: dict[QueueName, list[Holder]] = defaultdict(list)
        for one in self.gangs.get(node, ()):
            if one.cards or not any(other.cards for other in self.gangs[node]):
                queues[one.gang.queue].append(one)
        parts = [self._queue_text(queue, ones, asker, now, named) for queue, ones in sorted(queues.items())]
        foreign = [one for one in self.others.get(node, ()) if one.cards or one.request.cards]
        if foreign:
            cards = sum(len(one.cards) or one.request.cards for one in foreign)
            parts.append(f"{count(len(foreign), 'pod')} of other schedulers ({count(cards, 'card')})")
        elif self.others.get(node) and not parts:
            parts.append(f"{count(len(self.others[node]), 'pod')} of other schedulers")
        return ", ".join(parts) or "nobody"

    def _queue_text(self, queue: QueueName, holders: Sequence[Holder], asker: Gang, now: float, named: Named) -> str:
        if len(holders) == 1:
            who = f"{named(holders[0].gang.key)} of {queue}"
        else:
            who = f"{count(len(holders), 'job')} of {queue}"
        cards = sum(one.cards for one in holders)
        notes = [count(cards, "card")] if cards else []
        notes += _standing(holders, asker)
        budgets = {self._kept[member.uid] for one in holders for member in one.members if member.uid in self._kept}
        notes += [f"kept by PodDisruptionBudget {name}" for name in sorted(budgets)]
        notes += _times([one.gang for one in holders], now)
        return f"{who} ({', '.join(notes)})" if notes else who


def _standing(holders: Sequence[Holder], asker: Gang) -> list[str]:
    notes = []
    if all(member.state is MemberState.LEAVING for one in holders for member in one.members):
        return ["leaving"]
    priorities = {one.gang.priority for one in holders}
    if max(priorities) < asker.priority:
        notes.append("lower priority")
    elif min(priorities) > asker.priority:
        notes.append("higher priority")
    elif priorities == {asker.priority}:
        notes.append("same priority")
    if not any(one.gang.preemptible for one in holders):
        notes.append("not preemptible")
    return notes


def _times(gangs: Iterable[Gang], now: float) -> list[str]:
    known = [gang.timing for gang in gangs]
    ends = [
        one.started + (one.expected_duration or one.deadline)
        for one in known
        if one.started and (one.expected_duration or one.deadline)
    ]
    if len(ends) == len(known) and ends:
        left = max(ends) - now
        return [f"ends in about {span(left)}"] if left > 0 else [f"expected to have ended {span(-left)} ago"]
    saved = [one.last_checkpoint for one in known if one.last_checkpoint]
    return [f"checkpoint {span(now - max(saved))} ago"] if saved else []
