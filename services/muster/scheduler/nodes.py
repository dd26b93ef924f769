"""Nodes in the LEDGER, as the leader tends them: what settles by itself, and what the autoscaler proposes (rule G).

muster.propose.cordon | uncordon ─► judged on the leader's own view ─► cordon | uncordon entries
STATE ─► `muster.decide.cordons.settle_nodes` ─► removable, uncordon, node-close entries
"""

import asyncio
from functools import partial
from typing import NamedTuple

from muster.bus.proposals import CordonProposal, RememberProposal, UncordonProposal
from muster.decide.commitments import LedgerView, NodeVerb
from muster.decide.cordons import Surrounds, named_nodes, settle_nodes, written
from muster.decide.idle import CORE, refusals
from muster.decide.memory import CoreMemory
from muster.decide.pauses import paused, sentence
from muster.fenced.actions import Actions
from muster.fenced.nodes import NodeExecutor
from muster.model.ledger import Cordon, Entry, Memory, NodeEntry, Uncordon
from muster.model.policy import Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey, NodeName, PodUid, Sequence
from muster.scheduler.deadlines import Since
from muster.view.world import World

GIVEN_BACK_WITHIN = 10.0
"""Seconds that the autoscaler has for it."""
NodeProposal = CordonProposal | UncordonProposal | RememberProposal


class Verdict(NamedTuple):
    """What is appended of a proposal, and what is not; the code is of the refusal when nothing is."""

    entries: tuple[Entry, ...] = ()
    code: str = ""
    message: str = ""
    refused: dict[NodeName, str] = {}  # noqa: RUF012  (never changed)


class NodeCommitments:
    """Open entries of nodes, in one leadership.

    Writing them is the autoscaler's. Only where it has not given a node back for a while does the leader do so itself: a
    node must not stay unused because nobody is there to write it.
    """

    def __init__(self, *, world: World, executor: NodeExecutor | None = None) -> None:
        """Without an executor nothing is written."""
        self._world = world
        self._executor = executor
        self._shown: Since[Sequence] = Since()
        self._versions: dict[Sequence, str] = {}

    def due(self, view: LedgerView, *, policy: Policy, complete: str, now: float, wall: float) -> tuple[NodeEntry, ...]:
        """The entries that follow now.

        Args:
            view: the LEDGER up to now.
            policy: the one in force.
            complete: every pod event up to this resourceVersion is in the view of STATE.
            now: active seconds; removal grace counts only while we look.
            wall: Unix seconds.
        """
        nodes = self._world.nodes
        shown = [
            promise.sequence
            for name, promise in view.nodes.items()
            if name in nodes and promise.verb is not NodeVerb.REMOVABLE and written(promise, nodes[name])
        ]
        self._shown.keep(shown, now)
        self._versions = {
            promise.sequence: self._versions.get(promise.sequence, nodes[name].resource_version)
            for name, promise in view.nodes.items()
            if name in nodes and promise.verb is NodeVerb.CORDON and written(promise, nodes[name])
        }
        return tuple(
            settle_nodes(
                view.nodes,
                Surrounds(
                    nodes=nodes,
                    marked=self._world.marked,
                    standing={name: self._world.standing(name) for name in view.nodes},
                    named=named_nodes(view) if view.nodes else frozenset(),
                    complete=complete,
                    versions=self._versions,
                    rested={sequence: self._shown.lasted(sequence, now) for sequence in shown},
                    now=wall,
                    acts=policy.actions.cordon == "act",
                    paused=paused(view.memory, "cordon") is not None,
                    settle=policy.idle.settle,
                    grace=policy.idle.removal_grace,
                    deadline=policy.timeouts.bind,
                ),
            )
        )

    def act(self, view: LedgerView, actions: Actions, *, wall: float) -> None:
        """Give back what nobody has given back in time."""
        for name, promise in view.nodes.items() if self._executor is not None else ():
            node = self._world.nodes.get(name)
            late = promise.verb is NodeVerb.UNCORDON and wall - promise.at > GIVEN_BACK_WITHIN
            if late and node is not None and node.uid == promise.node_uid and not written(promise, node):
                assert self._executor is not None
                key = (promise.sequence, PodUid(promise.node_uid))
                actions.start("uncordon", key, partial(self._executor.carry_out, promise))


async def judge(
    proposal: NodeProposal, view: LedgerView, snapshot: Snapshot, memory: CoreMemory, *, policy: Policy, now: float
) -> Verdict:
    """What of a proposal is appended on this view. Looking through all nodes runs in a thread."""
    match proposal:
        case RememberProposal():
            if proposal.core != CORE:
                return Verdict(code="unsound", message=f"only the memory of {CORE!r} is kept for others")
            return Verdict((Memory(core=proposal.core, value=proposal.value),))
        case UncordonProposal():
            return _uncordon(proposal, view)
        case CordonProposal():
            if policy.actions.cordon != "act":
                return Verdict(code="observe", message="actions.cordon of the policy is observe, not act")
            if (pause := paused(view.memory, "cordon")) is not None:
                return Verdict(code="paused", message=sentence(pause))
            return await asyncio.to_thread(_cordon, proposal, view, snapshot, memory, policy, now)


def _cordon(  # noqa: PLR0917  (called in a thread)
    proposal: CordonProposal,
    view: LedgerView,
    snapshot: Snapshot,
    memory: CoreMemory,
    policy: Policy,
    now: float,
) -> Verdict:
    uids = {one.node: one.node_uid for one in proposal.nodes}
    refused = refusals(snapshot, memory, view.nodes, named_nodes(view), policy, uids)
    taken = tuple(
        Cordon(
            node=one.node,
            node_uid=one.node_uid,
            reason=one.reason,
            message=one.message,
            pool=one.pool,
            decided_at=now,
        )
        for one in proposal.nodes
        if one.node not in refused
    )
    if not taken:
        return Verdict((), "unsound", next(iter(refused.values()), "no node is named"), refused)
    return Verdict(taken, refused=refused)


def _uncordon(proposal: UncordonProposal, view: LedgerView) -> Verdict:
    entries: list[Entry] = []
    refused: dict[NodeName, str] = {}
    for name in dict.fromkeys(proposal.nodes):
        promise = view.nodes.get(name)
        if promise is None:
            refused[name] = f"{name} is not cordoned by us"
        elif promise.verb is NodeVerb.UNCORDON:
            refused[name] = f"{name} is on its way back already"
        else:
            entries.append(
                Uncordon(
                    node=name,
                    node_uid=promise.node_uid,
                    reason=proposal.reason,
                    message=proposal.message,
                    gang=GangKey(proposal.gang),
                )
            )
    if not entries:
        return Verdict((), "stale", next(iter(refused.values()), "no node is named"), refused)
    return Verdict(tuple(entries), refused=refused)
