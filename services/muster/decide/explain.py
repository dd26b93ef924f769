"""Why gangs wait: see `muster.decide.explaining`."""

from muster.decide.explaining.explainer import Explainer
from muster.decide.explaining.words import Why

__all__ = ["Explainer", "Why"]
