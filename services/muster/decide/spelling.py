"""What was likely meant by a word or a quantity that is not known."""

import difflib
import re
from collections.abc import Iterable

from muster.model.quantity import FORM

AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)")
SUFFIXES = {
    "k": ("k", "Ki"), "kb": ("k", "Ki"), "kib": ("Ki",), "ki": ("Ki",),
    "mb": ("M", "Mi"), "mib": ("Mi",), "mi": ("Mi",),
    "g": ("G", "Gi"), "gb": ("G", "Gi"), "gib": ("Gi",), "gi": ("Gi",),
    "t": ("T", "Ti"), "tb": ("T", "Ti"), "tib": ("Ti",), "ti": ("Ti",),
    "pb": ("P", "Pi"), "pib": ("Pi",), "pi": ("Pi",),
}  # fmt: skip
"""Lower-case suffixes that people write → those of Kubernetes."""


def likely(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The known word that was likely meant, '' when none is near."""
    words = sorted(known)
    plain = _plain(word)
    for one in words:
        if _plain(one) == plain:
            return one
    near = difflib.get_close_matches(plain, [_plain(one) for one in words], n=1, cutoff=cutoff)
    return next((one for one in words if near and _plain(one) == near[0]), "")


def _plain(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


def meant(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """``; did you mean gpu?``, '' when nothing is near."""
    found = likely(word, known, cutoff=cutoff)
    return f"; did you mean {found}?" if found else ""


def quantity_doubt(text: str) -> str:
    """Why a text is no quantity above or at 0, with the likely meaning; '' when it is one."""
    if text.startswith("-") and FORM.fullmatch(text) is not None:
        return f"{text} is below 0"
    if FORM.fullmatch(text) is not None:
        return ""
    matched = AMOUNT.fullmatch(text.strip())
    suffixes = SUFFIXES.get(matched[2].lower(), ()) if matched else ()
    if matched and suffixes:
        return f"{text} is no quantity; did you mean {' or '.join(matched[1] + suffix for suffix in suffixes)}?"
    return f"{text!r} is no quantity such as 2, 500m or 64Gi"
