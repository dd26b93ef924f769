"""Carries out what the leader's view calls for: volumes, Bindings, undos, and touches of victims whose plan is withdrawn.

Every action has the token of its entry or of the leader, whichever is higher (rule C). Evictions under open plans are the
preemptor's.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from muster.decide.commitments import OpenEntry
from muster.decide.settling import Steps
from muster.fenced.actions import Actions
from muster.fenced.executor import DONE, Executor, Outcome, Result, seen_in_state
from muster.fenced.forged import forged_version
from muster.fenced.volumes import VolumeExecutor
from muster.model.instructions import Slot
from muster.model.ledger import Victim
from muster.model.nodes import CardMode
from muster.model.units import PodUid, Sequence, split_key
from muster.scheduler.binding import annotations_of, may_bind_now, reserved_places
from muster.scheduler.book import Book, Deposed
from muster.scheduler.card_watch import CardWatch
from muster.scheduler.reservations import Reservations
from muster.scheduler.volumes import BindingVolumes, NotMade
from muster.view.world import World


class Carrying:
    """The actions of one leadership."""

    def __init__(
        self,
        *,
        world: World,
        book: Book,
        executor: Executor,
        actions: Actions,
        card_watch: CardWatch,
        reservations: Reservations | None,
        volumes: VolumeExecutor | None,
        not_made: NotMade,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._world = world
        self._book = book
        self._executor = executor
        self._actions = actions
        self._card_watch = card_watch
        self._reservations = reservations
        self._binding_volumes = BindingVolumes(
            world=world, book=book, actions=actions, executor=volumes, not_made=not_made
        )
        self._clock = clock
        self._wall = wall

    def act(self, steps: Steps) -> None:
        """Start what is not under way yet."""
        if self._reservations is not None:
            self._reservations.tend(reserved_places(self._book.view, self._world), token=self._book.token)
        self._card_watch.look(self._clock())
        ready = msgspec.structs.replace(steps, binds=self._binding_volumes.tend(steps.binds))
        for entry, slot in may_bind_now(self._world, ready, self._book.view):
            self._actions.start("bind", (entry.sequence, slot.uid), partial(self._bind, entry, slot))
        for entry, slot in steps.undos:
            self._actions.start("undo", (entry.sequence, slot.uid), partial(self._undo, entry, slot))
        for entry, victim in steps.touches:
            self._actions.start("touch", (entry.sequence, victim.uid), partial(self._touch, entry, victim))

    def without_volume(self) -> dict[PodUid, str]:
        """Pods to be bound whose claims cannot be served where they were placed, with the reason."""
        return self._binding_volumes.failures()

    def _token(self, entry: OpenEntry) -> Sequence:
        return Sequence(max(entry.sequence, self._book.token))

    async def _bind(self, entry: OpenEntry, slot: Slot) -> Result:
        namespace, _ = split_key(entry.gang)
        node = self._world.nodes.get(slot.node)
        if self._book.deposed.is_set():
            return Result(outcome=Outcome.SUPERSEDED, message="a newer leader stands")
        if node is None or slot.node_uid not in {"", node.uid}:
            return Result(outcome=Outcome.AGAIN, message=f"node {slot.node} is gone", retry_after=1.0)
        reserved_uuid = ""
        if node.card_mode is CardMode.RESERVED and slot.cards:
            if self._reservations is None:
                return Result(outcome=Outcome.REFUSED, message=f"node {slot.node}: cards cannot be reserved here")
            reserved = await self._reservations.ready(node, slot.cards[0].index, token=self._book.token)
            if isinstance(reserved, Result):
                return reserved
            reserved_uuid = reserved
        result = await self._executor.bind(
            namespace,
            slot.pod,
            uid=slot.uid,
            node=slot.node,
            token=self._token(entry),
            annotations=annotations_of(slot, node, self._wall(), reserved_uuid=reserved_uuid),
            known=seen_in_state(self._world.by_uid.get(slot.uid)),
        )
        return await self._judged(entry, result)

    async def _judged(self, entry: OpenEntry, result: Result) -> Result:
        """A newer fence is a newer entry's or leader's; when none stands, no LEDGER gave it and the pod cannot be bound."""
        if result.outcome is not Outcome.SUPERSEDED:
            return result
        if not await self._still_open(entry):
            return result
        return Result(outcome=Outcome.REFUSED, message=f"{result.message}, which no LEDGER gave")

    async def _still_open(self, entry: OpenEntry) -> bool:
        """Whether the LEDGER, read to its end, shows the entry open and no newer leader."""
        try:
            await self._book.caught_up()
        except Deposed:
            return False
        current = self._book.view.open.get(entry.gang)
        return current is not None and current.sequence == entry.sequence and not self._book.deposed.is_set()

    async def _undo(self, entry: OpenEntry, slot: Slot) -> Result:
        namespace, _ = split_key(entry.gang)
        if self._book.deposed.is_set():
            return Result(outcome=Outcome.SUPERSEDED, message="a newer leader stands")
        token = self._token(entry)
        result = await self._executor.undo(namespace, slot.pod, uid=slot.uid, node=slot.node, token=token)
        if result.outcome is not Outcome.SUPERSEDED:
            return result
        forged = await forged_version(
            self._executor,
            namespace,
            slot.pod,
            uid=slot.uid,
            token=token,
            still_open=partial(self._still_open, entry),
        )
        if isinstance(forged, Result):
            return forged
        return await self._executor.evict_version(namespace, slot.pod, forged, node=slot.node)

    async def _touch(self, entry: OpenEntry, victim: Victim) -> Result:
        namespace, _ = split_key(victim.gang)
        if self._book.deposed.is_set():
            return Result(outcome=Outcome.SUPERSEDED, message="a newer leader stands")
        touched = await self._executor.touch(
            namespace,
            victim.pod,
            uid=victim.uid,
            token=self._token(entry),
            known=seen_in_state(self._world.by_uid.get(victim.uid)),
        )
        return touched if isinstance(touched, Result) else DONE
