"""What is proposed to the committer, and its answer (request/reply on ``muster.propose.<verb>``).

    preempt     `PlanProposal`: a proven plan; the scheduler's leader checks it against its own view and commits or refuses it
    withdraw    `WithdrawProposal`: a committed plan that is not sound any more
    cordon      `CordonProposal`: idle nodes; the leader takes those that its own view shows empty and unneeded
    uncordon    `UncordonProposal`: cordoned nodes that are needed
    remember    `RememberProposal`: what the autoscaler's core remembers, kept in the LEDGER by the one who appends there

An answer that does not come tells nothing: whether a plan was committed is read from the LEDGER.
"""

from typing import Any

import msgspec

from muster.model.ledger import Plan
from muster.model.units import NodeName


class PlanProposal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A plan, and the view it was made on."""

    plan: Plan
    ledger: int = 0
    """LEDGER sequence applied to the view that proposed."""


class WithdrawProposal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Take back the gang's open plan."""

    gang: str
    plan: int
    """Sequence of the plan entry."""
    reason: str
    message: str = ""


class CordonWish(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One idle node."""

    node: NodeName
    node_uid: str
    pool: str = ""
    reason: str
    message: str = ""


class CordonProposal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """These nodes are idle; each is taken or refused by itself."""

    nodes: tuple[CordonWish, ...]
    ledger: int = 0
    """LEDGER sequence applied to the view that proposed."""


class UncordonProposal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Give these nodes back together; those that are on their way already are passed over."""

    nodes: tuple[NodeName, ...]
    reason: str
    message: str = ""
    gang: str = ""


class RememberProposal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Keep this as the memory of a core."""

    core: str
    value: dict[str, Any]


class ProposalReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the committer did."""

    committed: bool
    sequence: int = 0
    """LEDGER sequence of the entry, 0 when it was refused."""
    code: str = ""
    """Why it was refused: ``stale``, ``unsound``, ``open``, ``paused``, ``observe``."""
    message: str = ""
    refused: dict[NodeName, str] = {}
    """Of several nodes: those that were not taken, and why."""
