"""What operators ask of Muster, and the answers (request/reply on ``muster.api.<tenant>.<verb>``).

Whether a tenant is an operator is said by the policy (tenants.<name>.operator); everybody else is refused with
``not-allowed``. Times are Unix seconds.
"""

from typing import Annotated, Any

import msgspec

from muster.model.pauses import Act, Pause
from muster.model.units import QueueName

Text = Annotated[str, msgspec.Meta(max_length=500)]


class PauseRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Do none of this until it is resumed: everywhere, or in one queue and the queues below it."""

    acts: tuple[Act, ...]
    queue: QueueName = QueueName("")
    reason: Text = ""
    by: Text = ""
    """Who asks; '' is the tenant."""


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Lift the pauses of these acts in exactly this place."""

    acts: tuple[Act, ...]
    queue: QueueName = QueueName("")
    by: Text = ""


class PausesRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is paused now?"""


class PausesReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is paused now, and which pauses this request made or lifted."""

    at: float
    pauses: tuple[Pause, ...] = ()
    changed: tuple[Pause, ...] = ()


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which policy is in force?"""


class PolicyReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policy that the scheduler decides by, with every default."""

    at: float
    loaded_at: float
    source: str = ""
    """The file that it is from; '' when no file is named."""
    problem: str = ""
    """Why the file as it is now is not in force; '' when it is."""
    policy: dict[str, Any] = {}
