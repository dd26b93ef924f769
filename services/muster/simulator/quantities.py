"""Quantities in the one spelling the API server shows: 0.5 → 500m, 1024Mi → 1Gi, 2000m → 2, 1000 → 1k.

The family of the suffix (binary, decimal, exponent) is kept; a binary amount below 1024 becomes a decimal one; what is
finer than a billionth is rounded up. Source of the rules: apimachinery's resource.Quantity.
"""

from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from muster.model.quantity import BINARY, DECIMAL, FORM, QuantityError

_DECIMAL_SUFFIX = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIXES = ("", *BINARY)
_BILLIONTH = Decimal("1e-9")


@lru_cache(maxsize=8192)
def _canonical_text(text: str) -> str:
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise QuantityError(f"quantity: {text!r} must be a number with an optional suffix, e.g. 500m, 64Gi, 1e3")
    number, exponent, suffix = match.groups()
    if suffix in BINARY:
        amount = Decimal(number) * BINARY[suffix]
        if abs(amount) >= 1024:
            return _binary(amount)
    else:
        amount = Decimal(number) * (Decimal(f"1{exponent}") if exponent else DECIMAL[suffix or ""])
    mantissa, power = _thousands(amount)
    if exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX[power]}"


def _binary(amount: Decimal) -> str:
    whole = int(amount.to_integral_value(rounding=ROUND_CEILING))
    step = 0
    while step < len(_BINARY_SUFFIXES) - 1 and whole % 1024 == 0:
        whole //= 1024
        step += 1
    return f"{whole}{_BINARY_SUFFIXES[step]}"


def _thousands(amount: Decimal) -> tuple[int, int]:
    """A whole mantissa and the greatest power of ten, a multiple of three from -9 to 18, that give the amount."""
    units = int((amount / _BILLIONTH).to_integral_value(rounding=ROUND_CEILING))
    if units == 0:
        return 0, 0
    power = -9
    while power < 18 and units % 1000 == 0:
        units //= 1000
        power += 3
    return units, power


def canonical_quantity(value: str | float) -> str:
    """The spelling a client gets back; QuantityError names the text that is no quantity."""
    if isinstance(value, int) and not isinstance(value, bool) and value % 1000:
        return str(value)
    return _canonical_text(str(value))
