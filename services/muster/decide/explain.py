"""Why gangs wait: see `muster.decide.explaining`."""

from muster.decide.explaining import Explainer, Why

__all__ = ["Explainer", "Why"]
