"""Explanations: why a gang waits, what is asked and what is missing, who holds it, and what would cure it.

explainer   each round, for every gang that waits: one code, the numbers that decided, a sentence
nodes, limits, fitting   the questions it asks, one after the other
"""

from muster.decide.explaining.explainer import Explainer
from muster.decide.explaining.words import Why

__all__ = ["Explainer", "Why"]
