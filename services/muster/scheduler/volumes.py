"""Claims of pods that were placed: a Binding goes out when STATE shows every claim of its pod bound to a volume that the node reaches.

    unbound, the class makes volumes ──► select the node ──► wait ─┬─► bound: the pod may be bound
    unbound, people make them ──► keep a free volume for it ──► wait ┘
    selected under this entry and taken back, no volume left, bound to one out of reach ──► the placement has failed

What failed is undone like any placement; what only takes long, when the bind entry is overdue.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from muster.decide.commitments import Kind, OpenEntry
from muster.decide.volumes import assign, claim_keys, kept_volume, reaches, suits, unbound_of_promised, waits
from muster.fenced.actions import Actions
from muster.fenced.executor import Outcome, Result
from muster.fenced.volumes import VolumeExecutor, gave_up
from muster.model.instructions import Slot
from muster.model.nodes import Node
from muster.model.pods import Pod, Shape
from muster.model.units import NodeName, PodUid, Sequence
from muster.model.volumes import Claim
from muster.scheduler.book import Book
from muster.view.world import World

Wanted = tuple[OpenEntry, Slot]
NotMade = Callable[[NodeName, Shape], None]


class Look(NamedTuple):
    """What a claim of a placed pod needs: nothing any more, to wait, a write, or it has failed."""

    bound: bool = False
    failure: str = ""
    given_up: bool = False
    """The provisioner gave up; on another node it may not."""
    select: bool = False
    keep: str = ""
    """The volume to be kept for it."""


class BindingVolumes:
    """The volumes of one leadership's placements."""

    def __init__(
        self, *, world: World, book: Book, actions: Actions, executor: VolumeExecutor | None, not_made: NotMade
    ) -> None:
        """`not_made` is told where a provisioner made no volume, once for each placement."""
        self._world = world
        self._book = book
        self._actions = actions
        self._executor = executor
        self._not_made = not_made
        self._chosen: dict[str, str] = {}
        """Volumes by claims, as long as STATE does not show that they belong together: choices in flight stay."""
        self._told: set[tuple[Sequence, PodUid]] = set()
        """Slots of which it was said that no volume is made for them on their node."""

    def tend(self, binds: tuple[Wanted, ...]) -> tuple[Wanted, ...]:
        """Start the writes that claims of these slots need; returns the slots that need none and wait for none."""
        mounting = [(entry, slot, pod) for entry, slot in binds if (pod := self._mounts(slot)) is not None]
        if not mounting:
            self._chosen.clear()
            return binds
        self._choose(self._placed())
        waiting: set[PodUid] = set()
        for entry, slot, pod in mounting:
            for key in claim_keys(pod):
                look = self._look(key, entry, slot)
                if not look.bound:
                    waiting.add(slot.uid)
                if look.select or look.keep:
                    claim = self._world.claims[key]
                    action = partial(self._serve, claim, entry, slot, look)
                    self._actions.start("volume", (entry.sequence, PodUid(claim.uid)), action)
        return tuple(one for one in binds if one[1].uid not in waiting)

    def failures(self) -> dict[PodUid, str]:
        """Pods of open bind entries whose claims cannot be served on their nodes, with the reason."""
        failed: dict[PodUid, str] = {}
        chosen = False
        for entry in self._book.view.open.values():
            if entry.kind is not Kind.BIND:
                continue
            for slot in entry.slots:
                pod = self._mounts(slot)
                if pod is None:
                    continue
                if not chosen:
                    chosen = True
                    self._choose(self._placed())
                found = [look for key in claim_keys(pod) if (look := self._look(key, entry, slot)).failure]
                if found:
                    failed[slot.uid] = found[0].failure
                if any(look.given_up for look in found) and (entry.sequence, slot.uid) not in self._told:
                    self._told.add((entry.sequence, slot.uid))
                    self._not_made(slot.node, pod.shape)
        self._told = {told for told in self._told if told[1] in failed}
        return failed

    def _mounts(self, slot: Slot) -> Pod | None:
        """The pod of a slot, while it is to be bound and mounts claims."""
        pod = self._world.by_uid.get(slot.uid)
        return pod if pod is not None and pod.shape.claims and pod.node is None and not pod.finished else None

    def _placed(self) -> Iterable[tuple[Pod, Node | None]]:
        for entry in self._book.view.open.values():
            if entry.kind is Kind.BIND:
                for slot in entry.slots:
                    pod = self._mounts(slot)
                    if pod is not None:
                        yield pod, self._world.nodes.get(slot.node)

    def _choose(self, placed: Iterable[tuple[Pod, Node | None]]) -> None:
        """Volumes for the claims that need one of those that people made."""
        world = self._world
        needing = unbound_of_promised(placed, world.claims, world.storage_classes)
        fixed = {}
        for claim, node in needing:
            volume = world.volumes.get(self._chosen.get(claim.key, ""))
            if volume is not None and suits(volume, claim) and reaches(node, volume.nodes):
                fixed[claim.key] = volume.name
        self._chosen = assign(needing, world.volumes.values(), fixed=fixed) if needing else {}

    def _look(self, key: str, entry: OpenEntry, slot: Slot) -> Look:
        world = self._world
        claim, node = world.claims.get(key), world.nodes.get(slot.node)
        if claim is None or claim.terminating or claim.lost:
            return Look(
                failure=f"the claim {key} is gone"
                if claim is None
                else f"the claim {claim.name} is being deleted or lost"
            )
        if claim.bound:
            volume = world.volumes.get(claim.volume)
            if volume is None or node is None:
                return Look()
            if not reaches(node, volume.nodes):
                return Look(
                    failure=f"the volume {volume.name} of the claim {claim.name} cannot be reached from {slot.node}"
                )
            return Look(bound=True)
        if not waits(claim, world.storage_classes):
            return Look()
        refused = self._actions.refused.get(PodUid(claim.uid))
        if refused is not None:
            return Look(failure=refused)
        if self._executor is None:
            return Look(failure=f"the claim {claim.name} is not bound, and volumes are not bound here")
        if world.storage_classes[claim.storage_class].makes_volumes:
            # The node and the fence are written together: with this fence and no node it was taken back.
            given_up = claim.fence >= entry.sequence
            return Look(failure=gave_up(claim, slot.node), given_up=True) if given_up else Look(select=True)
        if kept_volume(claim, world.volumes.values()) is not None:
            return Look()
        name = self._chosen.get(key)
        if name is None:
            return Look(failure=f"no unbound volume on {slot.node} suits the claim {claim.name} any more")
        return Look(keep=name)

    async def _serve(self, claim: Claim, entry: OpenEntry, slot: Slot, look: Look) -> Result:
        if self._executor is None or self._book.deposed.is_set():
            return Result(outcome=Outcome.SUPERSEDED, message="a newer leader stands")
        token = Sequence(max(entry.sequence, self._book.token))
        if look.select:
            return await self._executor.select_node(claim, slot.node, entry=entry.sequence, token=token)
        return await self._executor.keep_volume(look.keep, claim, token=token)
