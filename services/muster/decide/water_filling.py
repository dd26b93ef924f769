"""The shares of all queues, split from the top down, exactly (see `muster.decide.shares` for what the words mean).

siblings: each has what it is entitled to
what is left of their parent's share goes to those that still ask, by weight, until each has all it may have
(what it asks within its capability) or nothing is left
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from muster.decide.shares import GPU, Amounts, Tree
from muster.decide.waiting.weights import weighed
from muster.model.units import QueueName


def set_shares(
    tree: Tree,
    total: Mapping[str, int],
    demand: Mapping[QueueName, Amounts],
    history: Mapping[QueueName, Mapping[str, int]] | None = None,
    *,
    kinds: Sequence[str] = (),
) -> None:
    """Give every queue its share: entitled, then the rest by weight among siblings that still ask, from the top down.

    ``demand`` is usage plus what placeable gangs ask, by queue with their parents. ``history``: what each queue had on average
    in the past; it moves the weights of the rest, see `muster.decide.waiting.weights`. ``kinds``: names of kinds of cards; what
    is asked of one above its own limit is no demand for cards either.
    """
    tree.shares = {name: {} for name in tree.queues}
    for resource, amount in total.items():
        had = {name: past.get(resource, 0) for name, past in history.items()} if history else {}
        within = _within(tree, resource, demand, kinds if resource == GPU else ())
        _split(tree, None, resource, Fraction(amount), within, had=had)


def _within(
    tree: Tree, resource: str, demand: Mapping[QueueName, Amounts], kinds: Sequence[str]
) -> dict[QueueName, Fraction]:
    """What each queue asks of the resource and its own capability lets it have."""
    most = {}
    for name, queue in tree.queues.items():
        asked = demand.get(name, {})
        limits = queue.capability
        above = sum(max(0, asked.get(kind, 0) - limits.amounts.get(kind, asked.get(kind, 0))) for kind in kinds)
        limit = limits.get(resource)
        within = asked.get(resource, 0) - above
        most[name] = Fraction(within if limit is None else min(within, limit))
    return most


def _split(
    tree: Tree,
    parent: QueueName | None,
    resource: str,
    amount: Fraction,
    limit: Mapping[QueueName, Fraction],
    *,
    had: Mapping[QueueName, int],
) -> None:
    children = tree.children.get(parent, [])
    if not children:
        return
    share = {name: Fraction(tree.entitled(name, resource)) for name in children}
    left = amount - sum((min(share[name], limit[name]) for name in children), Fraction(0))
    hungry = [name for name in children if limit[name] > share[name] and tree.governed(name, resource)]
    while left > 0 and hungry:
        weights = weighed({name: max(1, tree.queues[name].weight) for name in hungry}, had)
        together = sum(weights.values())
        grant = {name: left * weights[name] / together for name in hungry}
        full = [name for name in hungry if share[name] + grant[name] >= limit[name]]
        for name in full or hungry:
            more = limit[name] - share[name] if full else grant[name]
            share[name] += more
            left -= more
        hungry = [name for name in hungry if name not in full] if full else []
    for name in children:
        tree.shares[name][resource] = share[name]
        _split(tree, name, resource, share[name], limit, had=had)
