"""Idle nodes (DESIGN 9): which are cordoned, which are given back, and which are asked for.

memory      since when nodes are empty, when they were given back, how demand rose
pools       nodes by the policy's pools: floors, budgets, windows
forecast    how many cards stay open for what usually comes
vetoes      why a node may not be cordoned
demand      who waits for nodes: those to be given back, and those to be asked for
looking     one look at all of it
"""

from muster.decide.idle.demand import Demand
from muster.decide.idle.looking import CordonIdea, Look, Sight, UncordonIdea, look
from muster.decide.idle.memory import CORE, IdleMemory
from muster.decide.idle.vetoes import Veto, refusals

__all__ = ["CORE", "CordonIdea", "Demand", "IdleMemory", "Look", "Sight", "UncordonIdea", "Veto", "look", "refusals"]
