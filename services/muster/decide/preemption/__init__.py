"""The preemptor's core: who must leave so that an entitled gang fits (DESIGN 8). It proposes; the scheduler commits.

victims   which pods may leave at all, in units: one surplus pod, or what is left of a gang, whole
trial     a room and usage from which units are taken away, to see whether the gang fits then
law       whose share allows what
plans     the cheapest set of units that suffices
moves     consolidation: jobs that leave one node and are placed again in the same plan
"""

from muster.decide.preemption.proposing import Proposal, propose

__all__ = ["Proposal", "propose"]
