"""Kubernetes quantities ("1500m", "64Gi", 8) as exact integers.

The grammar is that of apimachinery's resource.Quantity: a decimal number with a binary suffix (Ki … Ei), a decimal suffix
(n, u, m, k, M, G, T, P, E) or an exponent. Amounts are rounded up, as Kubernetes does, so that a request is never made smaller.
"""

import re
from decimal import ROUND_CEILING, Decimal

from muster.model.units import Bytes, MilliCpu

BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
DECIMAL = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
}  # fmt: skip
FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?")


MOST_DIGITS = 19
"""Of a number of 63 bits."""
LARGEST_POWER = 40
"""Of ten, of an amount that can be meant."""
LARGEST = 2**60
"""More than every cluster has, in every unit here; a few of them still add up within 63 bits."""


class QuantityError(ValueError):
    """A value that is no Kubernetes quantity; the message names it."""


def parse_quantity(value: str | float) -> Decimal:
    """The exact value of a quantity in its base unit.

    Raises:
        QuantityError: the value is not a quantity.
    """
    text = str(value).strip()
    matched = FORM.fullmatch(text)
    if matched is None:
        raise QuantityError(f"{value!r} is not a quantity such as 2, 500m or 64Gi")
    number, exponent, suffix = matched.groups()
    amount = Decimal(number + (exponent or ""))
    if amount and not -LARGEST_POWER <= amount.adjusted() <= LARGEST_POWER:
        raise QuantityError(f"{str(value)[:40]!r} is far beyond every amount; a quantity is such as 2, 500m or 64Gi")
    if suffix in BINARY:
        return amount * BINARY[suffix]
    return amount * DECIMAL[suffix or ""]


def to_units(value: str | float, scale: int = 1) -> int:
    """The quantity times ``scale``, rounded up to an integer; what is more than `LARGEST` counts as that."""
    amount = int((parse_quantity(value) * scale).to_integral_value(rounding=ROUND_CEILING))
    return max(-LARGEST, min(LARGEST, amount))


def whole_number(text: str | None) -> int:
    """A decimal text, such as an annotation, as a number that is not negative; 0 for anything else.

    What has more digits than a number of 63 bits is nothing that was written in good faith, and is 0 too.
    """
    if text is None or len(text) > MOST_DIGITS or not (text.isascii() and text.isdigit()):
        return 0
    return int(text)


def to_milli_cpu(value: str | float) -> MilliCpu:
    """A CPU quantity in thousandths of a core."""
    return MilliCpu(to_units(value, 1000))


def to_bytes(value: str | float) -> Bytes:
    """A memory or storage quantity in bytes."""
    return Bytes(to_units(value))


def format_cpu(amount: int) -> str:
    """Thousandths of a core for people: ``1500`` → ``1.5``."""
    return f"{amount / 1000:g}"


def format_bytes(amount: int) -> str:
    """Bytes for people, in the largest binary unit that leaves at least one: ``68719476736`` → ``64Gi``."""
    for suffix in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if abs(amount) >= BINARY[suffix]:
            return f"{round(amount / BINARY[suffix], 1):g}{suffix}"
    return str(amount)
