"""What an actor that only observes would do: the plan that would be made if every actor might act."""

import msgspec

from muster.decide.basis import Basis
from muster.decide.memory import CoreMemory
from muster.decide.preemption.entry import Named, plan_entry
from muster.decide.preemption.proposing import propose
from muster.decide.reasons import known_name
from muster.model.ledger import Plan
from muster.model.policy import Actions, Mode, Policy
from muster.model.snapshot import Snapshot
from muster.model.units import GangKey


def actor_of(cause: str) -> str:
    """The field of the policy's `actions` that rules plans of this cause."""
    return cause if cause in {"reclaim", "consolidate"} else "preempt"


def mode_of(cause: str, actions: Actions) -> Mode:
    """Whether the actor of a plan's cause acts."""
    mode: Mode = getattr(actions, actor_of(cause))
    return mode


def observes(actions: Actions) -> bool:
    """Whether some actor only says what it would do."""
    return "observe" in {actions.preempt, actions.reclaim, actions.consolidate}


def acts(actions: Actions) -> bool:
    """Whether some actor may evict."""
    return "act" in {actions.preempt, actions.reclaim, actions.consolidate}


def if_all_acted(policy: Policy) -> Policy:
    """The same policy with every actor of plans acting."""
    actions = Actions(bind="act", preempt="act", reclaim="act", consolidate="act", cordon=policy.actions.cordon)
    return msgspec.structs.replace(policy, actions=actions)


def observed_plan(
    snapshot: Snapshot,
    memory: CoreMemory,
    now: float,
    policy: Policy,
    *,
    only: GangKey | None = None,
    basis: Basis | None = None,
    named: Named = known_name,
) -> Plan | None:
    """The plan of an actor that only observes; None when there is none, or when the first plan is of an actor that acts.

    ``only``: for this gang alone; else for the first in the line that has one. ``memory`` with the room of open plans.
    """
    proposal = propose(snapshot, memory, now, if_all_acted(policy), basis=basis, only=only)
    if proposal.plan is None or mode_of(proposal.plan.cause, policy.actions) == "act":
        return None
    return plan_entry(proposal, snapshot, memory, now, policy, named=named)
