"""Numbers and times as people read them."""

from muster.decide.reasons import span
from muster.model.units import ONE_CARD

__all__ = ["cards", "ordinal", "plural", "span"]


def cards(millionths: int | None) -> str:
    """Cards: ``8``, ``0.5``, ``–`` for nothing."""
    if millionths is None:
        return "–"
    return f"{millionths / ONE_CARD:.2f}".rstrip("0").rstrip(".")


def plural(count: int, one: str, many: str = "") -> str:
    """``1 gang``, ``2 gangs``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``3rd``, ``4th``, ``11th``."""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
