"""Whether any node may take the pods at all: levels that nobody knows, resources that no node has, predicates that leave none."""

from muster.decide.asks import Ask, RoleAsk
from muster.decide.explaining.words import Numbers, Why
from muster.decide.fleet import Fleet
from muster.decide.placement.feasibility import Admission, admission
from muster.decide.reasons import Reason, count
from muster.decide.room import Room
from muster.decide.spelling import meant
from muster.decide.topology import resolve
from muster.model.pods import Shape

MOST_VALUES = 4
SAID = {
    "selector": "do not match the nodeSelector",
    "affinity": "do not match the node affinity",
    "volumes": "cannot reach its volumes",
    "taints": "have a taint that is not tolerated",
    "unschedulable": "are cordoned",
    "not ready": "are not ready",
    "withheld": "were idle and are cordoned by Muster, which gives them back for jobs that fit there",
    "card kind": "have no such cards",
}


def unknown_level(room: Room, ask: Ask) -> Why | None:
    """A topology level that there is not."""
    for topology in (ask.gang.topology, *(role.topology for role in ask.roles)):
        unknown = resolve(room.fleet, topology).unknown
        if unknown:
            known = room.fleet.topology.known
            levels = ", ".join(known)
            return Why(
                Reason.TOPOLOGY_LEVEL_UNKNOWN,
                f"asks for one {unknown}, but there is no such topology level; levels here: {levels}{meant(unknown, known)}",
                {"level": unknown, "levels": levels},
            )
    return None


def no_node(room: Room, role: RoleAsk) -> Why | None:
    """A role that no node may take, however empty."""
    fleet = room.fleet
    found = admission(fleet, role.shape)
    request = role.shape.request
    vector = fleet.vector(request)
    if vector is None:
        missing = [name for name, amount in request.extended if amount and name not in fleet.dimensions]
        return Why(Reason.NEVER_FITS, f"asks {', '.join(missing)}, which no node has", {"resource": ", ".join(missing)})
    if found.rows.any():
        return None
    refusals = found.refusals()
    if request.share is not None and not fleet.shares_cards.any():
        return Why(
            Reason.SHARING_NOT_AVAILABLE,
            f"asks a share of a card, but none of the {count(fleet.size, 'node')} has a device plugin that gives out shares",
            {"nodes": fleet.size},
        )
    numbers: Numbers = {"nodes": fleet.size}
    numbers.update({name.replace(" ", "_"): number for name, number in refusals.items()})
    parts = ", ".join(f"{number} {SAID[name]}" for name, number in refusals.items())
    parts += _selector_doubt(fleet, role.shape, found, numbers)
    what = f"{role.name}: " if role.name else ""
    return Why(Reason.NO_MATCHING_NODE, f"{what}none of {count(fleet.size, 'node')} may take it: {parts}", numbers)


def _selector_doubt(fleet: Fleet, shape: Shape, found: Admission, numbers: Numbers) -> str:
    """The label of the selector that no node has, with the values that there are."""
    if found.passes["selector"].any():
        return ""
    for key, value in shape.node_selector:
        values = fleet.column(key).values
        if value in values:
            continue
        numbers["selector"] = f"{key}={value}"
        numbers["labels"] = ", ".join(sorted(values)[:MOST_VALUES])
        if not values:
            keys = {key for node in fleet.nodes for key in node.labels}
            return f"; no node has a label {key}{meant(key, keys)}"
        more = ", …" if len(values) > MOST_VALUES else ""
        return f"; none has {key}={value}, there are {numbers['labels']}{more}{meant(value, values)}"
    return ""
