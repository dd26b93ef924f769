"""In which order the roles of a gang are tried: which is placed first decides what is left for the others."""

from muster.decide.asks import Ask
from muster.model.pods import Shape


def size_key(shape: Shape) -> tuple[int, int, int, int, int]:
    """How large a pod is: cards, then shares, then CPU and memory."""
    request = shape.request
    share = request.share
    return (
        request.cards,
        share.memory_mib if share is not None else 0,
        share.core_percent if share is not None else 0,
        request.cpu,
        request.memory,
    )


def role_orders(ask: Ask) -> list[tuple[int, ...]]:
    """Orders in which roles are tried: largest first, as declared, smallest first; each only once."""
    declared = tuple(range(len(ask.roles)))
    if len(declared) == 1:
        return [declared]
    largest = tuple(
        sorted(declared, key=lambda number: (tuple(-part for part in size_key(ask.roles[number].shape)), number))
    )
    smallest = tuple(reversed(largest))
    bound = tuple(
        sorted(
            declared, key=lambda n: (not ask.roles[n].shape.node_selector, *(-p for p in size_key(ask.roles[n].shape)))
        )
    )
    return list(dict.fromkeys((largest, bound, declared, smallest)))
