"""How many cards stay open for what usually comes: a quantile of how much demand has risen within the lead time before.

    demand ┤      ╭─╮          rise(t) = most demand within [t, t + lead] − demand(t)
           ┤  ╭───╯ ╰──╮       kept open = quantile of rise over the past day
           ┼──┴────────┴──► buckets of five minutes

Without a past nothing is known, and nothing is kept for it: floors and spare cards are the policy's.
"""

import math
from collections.abc import Sequence

from muster.decide.idle.memory import BUCKET_SECONDS, Demanded
from muster.model.policy import Idle


def cards_kept(past: Sequence[Demanded], idle: Idle) -> int:
    """Cards that stay open beside those in use, by the past of one pool."""
    reach = max(1, math.ceil(idle.lead / BUCKET_SECONDS))
    rises = sorted(_rises(past, reach))
    if not rises or not idle.quantile:
        return 0
    return rises[min(len(rises) - 1, math.ceil(idle.quantile * len(rises)) - 1)]


def _rises(past: Sequence[Demanded], reach: int) -> list[int]:
    """One number for each bucket that has its whole lead time behind it. Buckets that nobody saw count as the one before."""
    if not past:
        return []
    filled: list[int] = []
    for one, following in zip(past, [*past[1:], None], strict=True):
        until = following.bucket if following is not None else one.bucket + 1
        filled += [one.cards] * (until - one.bucket)
    return [max(filled[at : at + reach + 1]) - filled[at] for at in range(len(filled) - reach)]
