"""Why gangs wait, and for whom their pods leave, as was last said on DECISIONS.

Read from a little before now on; what was said earlier of a gang that still waits is asked for once, by its subject.
A later decision of any kind about the gang (a bind, an undo) makes the reason void.
"""

from collections.abc import Callable

import nats.errors
import nats.js.errors

from muster.bus.client import Bus
from muster.bus.envelope import decode
from muster.bus.errors import NotConnectedError, UndecodableError
from muster.bus.messages import Decision
from muster.bus.ordered import Delivery, OrderedReader
from muster.bus.streams import StreamName, stream_info
from muster.bus.subjects import decision_subject
from muster.decide.explaining.fixes import fixes_of
from muster.decide.lifecycle.actions import Leaving, Waiting
from muster.decide.reasons import CURED_BY_NODES, Reason
from muster.model.units import Sequence

READ_BACK = 2_000
"""Messages before the last one that are read at the start."""
QUOTA = frozenset(
    {
        Reason.QUEUE_CAPABILITY, Reason.QUEUE_CLOSED, Reason.QUEUE_UNKNOWN, Reason.PAUSED, Reason.NAMESPACE_NOT_ALLOWED,
        Reason.PRIORITY_NOT_ALLOWED,
    }
)  # fmt: skip
"""Reasons of the queue, which more nodes would not cure."""
VOIDING = frozenset({"bind", "undo", "preempt", "restart"})
MAKE_LEAVE = frozenset({"preempt", "move"})
WOULD = "WOULD_"
"""Codes that begin so tell what an actor that only observes would do: nothing happens."""


def waiting_from(decision: Decision) -> Waiting:
    """The reason as the lifecycle core takes it, with what would cure it."""
    fixes = fixes_of(decision.code, decision.numbers)
    message = decision.message
    if fixes:
        end = "" if message.endswith(("?", "?)")) else "."
        message = f"{message}{end} To fix it: {', or '.join(fixes)}"
    return Waiting(
        code=decision.code,
        message=message,
        position=decision.position,
        quota=decision.code in QUOTA or "capability" in decision.numbers,
        nodes_help=decision.code in CURED_BY_NODES,
    )


def leaving_from(decision: Decision) -> Leaving:
    """For whom pods leave, as the lifecycle core takes it."""
    room_for = str(decision.numbers.get("for") or "")
    why = decision.message.partition(f" for {room_for}: ")[2]
    pods = decision.numbers.get("pods")
    return Leaving(
        room_for=room_for,
        cause=decision.code,
        message=why,
        pods=pods if isinstance(pods, int) else 0,
        at=decision.at,
    )


class Decisions:
    """See the module. `changed` hears of every gang about which something new was said."""

    def __init__(self, bus: Bus, *, changed: Callable[[str], None]) -> None:
        """Nothing is read before `run`."""
        self._bus = bus
        self._changed = changed
        self._waiting: dict[str, Waiting] = {}
        self._leaving: dict[str, Leaving] = {}
        self._asked: set[str] = set()

    def waiting(self, gang: str) -> Waiting | None:
        """Why this gang waits, None when nothing is said."""
        return self._waiting.get(gang)

    def leaving(self, gang: str) -> Leaving | None:
        """For whom pods of this gang leave or left, None when nothing is said."""
        return self._leaving.get(gang)

    def forget(self, gang: str) -> None:
        """The gang is gone."""
        self._leaving.pop(gang, None)
        self._waiting.pop(gang, None)
        self._asked.discard(gang)

    async def ask(self, gang: str) -> None:
        """Look up what was last said of a gang of which nothing was heard yet; once.

        Raises:
            NotConnectedError: the server did not answer.
        """
        if gang in self._asked or gang in self._waiting:
            return
        try:
            said = await self._last("pending", gang)
            bound = await self._last("bind", gang)
        except (nats.errors.Error, TimeoutError) as error:
            raise NotConnectedError(
                f"the last decision about {gang} could not be read: {error or 'timeout'}"
            ) from error
        self._asked.add(gang)
        if gang in self._waiting or said is None or (bound is not None and bound.at >= said.at):
            return
        self._waiting[gang] = waiting_from(said)
        self._changed(gang)

    async def run(self) -> None:
        """Follow until cancelled."""
        reader = OrderedReader(self._bus, StreamName.DECISIONS)
        info = await stream_info(self._bus, StreamName.DECISIONS)
        if info is not None and info.state.last_seq > READ_BACK:
            reader.sequence = Sequence(info.state.last_seq - READ_BACK)
        async for batch in reader.batches():
            if batch.reset:
                self._asked.clear()
            for delivery in batch.deliveries:
                self._apply(delivery)

    def _apply(self, delivery: Delivery) -> None:
        try:
            decision = decode(Decision, delivery.body, delivery.headers)
        except UndecodableError as error:
            self._bus.observer.warning("a decision cannot be read", subject=delivery.subject, error=str(error))
            return
        gang = decision.gang
        if not gang or decision.code.startswith(WOULD):
            return
        if decision.verb in MAKE_LEAVE:
            self._leaving[gang] = leaving_from(decision)
            self._changed(gang)
        elif decision.verb == "bind":
            self._leaving.pop(gang, None)
        if decision.verb == "pending":
            waiting = waiting_from(decision)
            if self._waiting.get(gang) != waiting:
                self._waiting[gang] = waiting
                self._changed(gang)
        elif decision.verb in VOIDING and self._waiting.pop(gang, None) is not None:
            self._changed(gang)

    async def _last(self, verb: str, gang: str) -> Decision | None:
        try:
            found = await self._bus.jetstream.get_last_msg(StreamName.DECISIONS, decision_subject(verb, gang))
        except nats.js.errors.NotFoundError:
            return None
        try:
            return decode(Decision, found.data or b"", found.headers)
        except UndecodableError:
            return None
