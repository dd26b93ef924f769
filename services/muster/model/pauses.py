"""Pauses: what people have told Muster not to do for now, everywhere or in one queue and the queues below it."""

from typing import Literal

import msgspec

from muster.model.units import QueueName

Act = Literal["bind", "evict", "cordon"]
ACTS: tuple[Act, ...] = ("bind", "evict", "cordon")


class Pause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One act is paused until somebody resumes it."""

    act: Act
    queue: QueueName = QueueName("")
    """'' is everywhere."""
    by: str = ""
    """Who asked for it."""
    reason: str = ""
    since: float = 0.0
    """Unix seconds."""
