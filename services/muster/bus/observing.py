"""How the bus tells what it meets: any structlog logger is an `Observer`."""

from typing import Any, Protocol


class Observer(Protocol):
    """Takes events of the bus; the names are sentences, the fields plain values."""

    def info(self, event: str, **fields: Any) -> Any:
        """Something worth knowing."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Something that should not happen often."""


class Silence:
    """An observer that drops everything, for scripts that report by other means."""

    def info(self, event: str, **fields: Any) -> None:
        """Drop it."""

    def warning(self, event: str, **fields: Any) -> None:
        """Drop it."""
