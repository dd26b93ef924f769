"""What people are told of reservations: those that wait for their own, and those that others' keep out."""

from muster.decide.memory import Reservation
from muster.decide.reasons import Reason, count

MOST_NODES = 2
Numbers = dict[str, int | str]
Said = tuple[str, str, Numbers]


def place_of(reservation: Reservation) -> str:
    """``rack-b``, ``n1``, ``n1, n2 and 3 more nodes``."""
    if reservation.domain:
        return reservation.domain
    nodes = reservation.nodes
    if len(nodes) <= MOST_NODES + 1:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:MOST_NODES])} and {count(len(nodes) - MOST_NODES, 'more node')}"


def clock(at: float) -> str:
    """``14:35 UTC``, rounded up."""
    minutes = -int(-at // 60)
    return f"{minutes // 60 % 24:02}:{minutes % 60:02} UTC"


def _numbers(reservation: Reservation) -> Numbers:
    numbers: Numbers = {"reserved": place_of(reservation), "reserved_nodes": len(reservation.nodes)}
    if reservation.start:
        numbers["estimated_start"] = int(reservation.start)
    return numbers


def waits_for_its_own(reservation: Reservation, code: str, message: str, numbers: Numbers) -> Said:
    """For the gang of the reservation; ``code``, ``message`` and ``numbers`` say what it lacks now.

    It is what it lacks that it waits for, until somebody knows when that will be there.
    """
    if reservation.start is None:
        return code, message, numbers | _numbers(reservation)
    when = (
        f"expected free about {clock(reservation.start)}"
        if reservation.start
        else "what is there leaves, or may be asked to"
    )
    place = place_of(reservation)
    text = f"{message}; {place} {'are' if ', ' in place else 'is'} reserved for it: {when}"
    return Reason.RESERVED, text, numbers | _numbers(reservation)


def kept_out(reservation: Reservation, *, duration: float | None) -> Said:
    """For a gang that would fit if the room were not reserved."""
    place, gang = place_of(reservation), reservation.gang
    if reservation.start and duration is not None:
        why = f"until about {clock(reservation.start)}, and this job would still run then"
    elif reservation.start:
        why = f"until about {clock(reservation.start)}; a job that says when it ends (muster.dev/expected-duration) or may be preempted could use it"
    else:
        why = "for as long as nobody knows when that starts; a job that may be preempted could use it"
    numbers: Numbers = {"held_for": gang, **_numbers(reservation)}
    if reservation.start:
        numbers["until"] = int(reservation.start)
        del numbers["estimated_start"]
    return Reason.HELD_FOR_OTHERS, f"it fits, but free room on {place} is kept for {gang} {why}", numbers
