"""The preemptor's core: who must leave so that an entitled gang fits (DESIGN 8). It proposes; the scheduler commits.

protection  who is left alone, for good or for a while
victims     which pods leave together, in units: one surplus pod, or what is left of a gang, whole
owing       who has to leave for a reservation
candidates  the units of all gangs in the order of what they cost, and bounds on what their leaving could free
world       the cluster as a plan may count on it, beside other open plans
allowances  what PodDisruptionBudgets still allow; donors: what may still be taken, unit by unit
trial       a room and usage from which units are taken away, to see whether the gang fits then
law         whose share allows what
judging     whether units suffice for a gang
plans       the cheapest set of units that suffices; places: domains by their bounds; clearing: nodes cleared one by one;
            choices: every set of few units; costs: what plans are compared by
moves       consolidation: jobs that leave one node and are placed again in the same plan
history     what earlier plans mean for the next
observing   what actors that only observe would do
entry       a proposal as the plan entry of the LEDGER
check       what the committer and the executor ask of a plan
"""

from muster.decide.preemption.check import refusal, unsound
from muster.decide.preemption.entry import plan_entry
from muster.decide.preemption.history import tried
from muster.decide.preemption.proposing import Proposal, propose

__all__ = ["Proposal", "plan_entry", "propose", "refusal", "tried", "unsound"]
