"""Weights among siblings that ask, by what each had in the past (see `muster.decide.waiting.decayed`)."""

from collections.abc import Mapping
from fractions import Fraction

from muster.model.units import QueueName


def weighed(weights: Mapping[QueueName, int], had: Mapping[QueueName, int]) -> dict[QueueName, Fraction]:
    """Each weight times fair ÷ (fair + had): what it promises of all, and what the queue had of what they had."""
    total, together = sum(had.get(name, 0) for name in weights), sum(weights.values())
    if not total:
        return {name: Fraction(weight) for name, weight in weights.items()}
    result = {}
    for name, weight in weights.items():
        fair = Fraction(weight, together)
        result[name] = weight * fair / (fair + Fraction(had.get(name, 0), total))
    return result
