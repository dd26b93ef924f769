"""What is proposed to the committer, and its answer (request/reply on ``muster.propose.<verb>``).

    preempt     `PlanProposal`: a proven plan; the scheduler's leader checks it against its own view and commits or refuses it
    withdraw    `WithdrawProposal`: a committed plan that is not sound any more

An answer that does not come tells nothing: whether a plan was committed is read from the LEDGER.
"""

import msgspec

from muster.model.ledger import Plan


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


class ProposalReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the committer did."""

    committed: bool
    sequence: int = 0
    """LEDGER sequence of the entry, 0 when it was refused."""
    code: str = ""
    """Why it was refused: ``stale``, ``unsound``, ``open``, ``paused``, ``observe``."""
    message: str = ""
