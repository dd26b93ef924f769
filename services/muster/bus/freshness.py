"""Which clock messages count: what a reader of STATE may say about how fresh its view is (commit protocol, rule I). Pure.

    clock ──► claimed ── the stream was seen to hold nothing more ──► counted: the view is complete up to its freshness
                 │
                 └── void: a newer epoch, or a stray message that may have overwritten what the clock vouches for

STATE keeps the last message of each subject, so a reader that is behind does not see what was superseded. A clock tells the truth
about a view only at a moment at which everything that STATE held was applied. What was counted stays true: a view never goes back.
"""

from collections.abc import Mapping

from muster.bus.messages import Clock


def version_number(resource_version: str) -> int:
    """A resourceVersion for comparison; -1 when it is not a number and so comes before nothing."""
    return int(resource_version) if resource_version.isdecimal() else -1


def later_of(known: Mapping[str, str], told: Mapping[str, str]) -> dict[str, str]:
    """By kind the later resourceVersion; what is no number is replaced by what was told last."""
    merged = dict(known)
    for kind, version in told.items():
        if kind not in merged or version_number(version) < 0 or version_number(version) > version_number(merged[kind]):
            merged[kind] = version
    return merged


class Claims:
    """The clocks of one view of STATE; see the module."""

    def __init__(self) -> None:
        """No clock was seen."""
        self.claimed: Clock | None = None
        """The last clock, while nothing voids it."""
        self.counted: Clock | None = None
        """The last clock that counted."""
        self.freshness: dict[str, str] = {}
        """By kind, the resourceVersion up to which the view is complete. It never goes back, also not with a watcher that does."""

    @property
    def open(self) -> bool:
        """There is a clock that has not counted yet."""
        return self.claimed is not None and self.claimed is not self.counted

    def tell(self, clock: Clock) -> None:
        """A clock came."""
        self.claimed = clock

    def void(self) -> None:
        """What the clocks so far vouch for may have been overwritten, or was vouched for by a watcher that was replaced."""
        self.claimed = None

    def count(self, clock: Clock) -> None:
        """After this clock, and unvoided, the stream was seen to hold nothing that the view did not show."""
        self.counted = clock
        self.freshness = later_of(self.freshness, clock.freshness)
