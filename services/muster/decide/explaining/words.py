"""What the questions of an explanation share: a reason before it is tied to a gang, and the words for what is asked."""

from typing import NamedTuple

from muster.decide.asks import Ask, RoleAsk
from muster.decide.reasons import count
from muster.model.pods import Shape, TopologyWish
from muster.model.quantity import format_bytes, format_cpu

Numbers = dict[str, int | str]


class Why(NamedTuple):
    """A reason before it is tied to a gang."""

    code: str
    message: str
    numbers: Numbers
    never: bool = False
    """Nothing but a change of the job or its queue will help: it stands in no line."""


def asked_roles(ask: Ask) -> list[RoleAsk]:
    """Roles without which the minimum is not reached; every waiting one when any of them would do."""
    needed = [role for role in ask.roles if role.need]
    if sum(role.need for role in needed) >= ask.minimum > 0:
        return needed
    waiting = [role for role in ask.roles if role.waiting]
    spare = sum(len(role.waiting) for role in waiting)
    # A role may be left out when the others can still make up the gang's minimum.
    return [role for role in waiting if role.need or spare - len(role.waiting) < max(ask.minimum, 1)]


def wishes(ask: Ask) -> list[tuple[RoleAsk | None, TopologyWish, int]]:
    """The gang's own wish, and that of every role, with how many pods it is for."""
    gang = (None, ask.gang.topology, ask.minimum or 1)
    return [gang, *((role, role.topology, role.need or len(role.waiting)) for role in ask.roles)]


def asks_text(ask: Ask) -> str:
    """``4 pods × 8 cards``."""
    parts = []
    for role in ask.roles:
        number = role.need or (len(role.waiting) if len(ask.roles) > 1 else ask.minimum or len(role.waiting))
        if number:
            parts.append(f"{count(number, 'pod')} × {request_text(role.shape)}")
    return " + ".join(parts) or "nothing"


def request_text(shape: Shape) -> str:
    """``8 cards``, ``a share of a card (8192 MiB)``, ``2 cores, 4 GiB``."""
    request = shape.request
    if request.share is not None:
        parts = [f"{request.share.memory_mib} MiB"] if request.share.memory_mib else []
        parts += [f"{request.share.core_percent} %"] if request.share.core_percent else []
        return f"a share of a card ({', '.join(parts)})" if parts else "a share of a card"
    if request.cards:
        return count(request.cards, "card")
    if request.cpu or request.memory:
        return f"{format_cpu(request.cpu)} cores, {format_bytes(request.memory)}"
    return "no resources"
