"""The public Python client.

    async with muster.client.connect("nats://127.0.0.1:4222") as muster:
        job = await muster.submit(image="registry.example.com/llm:3", command=["python", "train.py"], gpus=8, replicas=4)
        async for event in job.follow():
            print(event.state, event.message)

A submission is identified by its id: sending the same id again does nothing, also after a crash of the submitter. What is told
about it are `StatusEvent`s, numbered from 1 without gaps.
"""

import secrets
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
import nats.errors

from muster.bus import envelope, subjects
from muster.bus.client import Bus
from muster.bus.client import connect as connect_bus
from muster.bus.errors import BusError, NoAnswerError, RequestRefusedError
from muster.bus.messages import FINAL_STATES, Cancel, JobState, Progress, StatusEvent, Submit
from muster.bus.operating import (
    PauseRequest,
    PausesReply,
    PausesRequest,
    PolicyReply,
    PolicyRequest,
    ResumeRequest,
)
from muster.bus.queries import (
    ExplainReply,
    ExplainRequest,
    GangsReply,
    GangsRequest,
    NodesReply,
    NodesRequest,
    QueuesReply,
    QueuesRequest,
)
from muster.bus.submit_errors import make_submit
from muster.model.pauses import ACTS, Act
from muster.model.units import QueueName

Reply = TypeVar("Reply", bound=msgspec.Struct)
HEARTBEAT_SECONDS = 1.0
CONNECT_SECONDS = 5.0
STARTED: frozenset[JobState] = frozenset({"Running", "Succeeded", "Failed", "Cancelled", "Rejected"})


class RejectedError(Exception):
    """Muster refused the submission; `event` tells which fields are wrong."""

    def __init__(self, event: StatusEvent) -> None:
        super().__init__(event.message or event.reason)
        self.event = event


class Job:
    """One submission."""

    def __init__(self, muster: "Muster", submission_id: str) -> None:
        self._muster = muster
        self.id = submission_id
        self.job = ""
        """``namespace/name`` once it is known."""

    async def follow(self) -> AsyncIterator[StatusEvent]:
        """Every status event from the first on, until the submission has ended."""
        async for event in self._muster.follow(self.id):
            self.job = event.job or self.job
            yield event

    async def wait(self, states: Iterable[JobState] = FINAL_STATES) -> StatusEvent:
        """The first event in one of these states; by default the end of the job. Use asyncio.timeout to limit it."""
        wanted = frozenset(states)
        last: StatusEvent | None = None
        async for event in self.follow():
            last = event
            if event.state in wanted:
                return event
        assert last is not None
        return last

    async def accepted(self) -> StatusEvent:
        """Wait until Muster has taken the submission.

        Raises:
            RejectedError: it was refused.
        """
        event = await self.wait({"Accepted", *FINAL_STATES})
        if event.state == "Rejected":
            raise RejectedError(event)
        return event

    async def cancel(self, reason: str = "") -> None:
        """Cancel it; cancelling what has ended does nothing."""
        await self._muster.cancel(self.id, reason)

    async def explain(self) -> ExplainReply:
        """Why it waits or where it runs."""
        return await self._muster.explain(self.job or self.id)


class Muster:
    """One connection of one tenant; see the module. Made by `connect`."""

    def __init__(self, bus: Bus, *, tenant: str) -> None:
        self._bus = bus
        self.tenant = tenant

    async def submit(
        self,
        *,
        id: str | None = None,  # noqa: A002  (its name on the wire)
        namespace: str | None = None,
        name: str | None = None,
        manifest: dict[str, Any] | None = None,
        **short: Any,
    ) -> Job:
        """Hand in a job, as a manifest or by the fields of `ShortJob`; returns when it is stored durably.

        Raises:
            SubmissionError: fields have the wrong form; it names each with what would be right.
            QueueFullError: too many submissions wait.
            NotConnectedError: nothing was sent.
        """
        submission_id = id or f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
        values: dict[str, Any] = {"id": submission_id}
        if namespace is not None:
            values["namespace"] = namespace
        if name is not None:
            values["name"] = name
        if manifest is not None:
            values["manifest"] = manifest
        if short or manifest is None:
            values["short"] = short
        return await self.send(make_submit(values))

    async def send(self, submission: Submit) -> Job:
        """Hand in a submission as it stands."""
        await self._bus.publish(
            subjects.jobs_submit(self.tenant),
            submission,
            message_id=f"submit-{self.tenant}-{submission.id}",
            about=submission.id,
            traceparent=submission.traceparent or "",
        )
        return Job(self, submission.id)

    def job(self, submission_id: str) -> Job:
        """A submission that was made before."""
        return Job(self, submission_id)

    async def cancel(self, submission_id: str, reason: str = "") -> None:
        """Cancel a submission; it may even arrive later than this.

        Raises:
            msgspec.ValidationError: no submission id.
        """
        cancellation = msgspec.convert({"id": submission_id, "reason": reason}, Cancel)
        await self._bus.publish(subjects.jobs_cancel(self.tenant), cancellation, about=submission_id)

    async def progress(self, job: str, *, step: int, checkpoint_at: float | None = None) -> None:
        """Tell how far a job is; ``job`` is ``namespace/name``, ``checkpoint_at`` Unix seconds."""
        await self._bus.publish(
            subjects.jobs_progress(self.tenant, job), Progress(step=step, checkpoint_at=checkpoint_at)
        )

    async def follow(self, submission_id: str) -> AsyncIterator[StatusEvent]:
        """Status events of one submission, from the first on, in order, each once, until its end."""
        subscription = await self._bus.jetstream.subscribe(
            subjects.status_subject(self.tenant, submission_id),
            ordered_consumer=True,
            idle_heartbeat=HEARTBEAT_SECONDS,
        )
        seen = 0
        try:
            while True:
                try:
                    message = await subscription.next_msg(timeout=HEARTBEAT_SECONDS)
                except (TimeoutError, nats.errors.TimeoutError):
                    continue
                event = envelope.decode(StatusEvent, message.data, dict(message.headers or {}))
                if event.number <= seen:
                    continue
                seen = event.number
                yield event
                if event.state in FINAL_STATES:
                    return
        finally:
            await subscription.unsubscribe()

    async def explain(self, job: str, *, namespace: str = "") -> ExplainReply:
        """Why a job waits or where it runs.

        Raises:
            RequestRefusedError: no such job.
            NoAnswerError: no scheduler answers.
        """
        return await self._ask("explain", ExplainRequest(job=job, namespace=namespace), ExplainReply)

    async def gangs(self, *, namespace: str = "", queue: str = "", finished: bool = False) -> GangsReply:
        """Gangs in the order in which they would be served."""
        return await self._ask("gangs", GangsRequest(namespace=namespace, queue=queue, finished=finished), GangsReply)

    async def nodes(self, *, domain: str = "") -> NodesReply:
        """Nodes with what every card carries."""
        return await self._ask("nodes", NodesRequest(domain=domain), NodesReply)

    async def queues(self, *, queue: str = "") -> QueuesReply:
        """Queues with used, deserved, capability and who waits."""
        return await self._ask("queues", QueuesRequest(queue=queue), QueuesReply)

    async def pause(self, *acts: Act, queue: str = "", reason: str = "", by: str = "") -> PausesReply:
        """Pause acts (all of them when none is named), everywhere or in one queue; for operators.

        Raises:
            RequestRefusedError: the tenant is no operator, or there is no such queue.
        """
        asked = PauseRequest(acts=acts or ACTS, queue=QueueName(queue), reason=reason, by=by)
        return await self._ask("pause", asked, PausesReply)

    async def resume(self, *acts: Act, queue: str = "", by: str = "") -> PausesReply:
        """Lift pauses of acts (all of them when none is named) in exactly this place; for operators.

        Raises:
            RequestRefusedError: the tenant is no operator.
        """
        asked = ResumeRequest(acts=acts or ACTS, queue=QueueName(queue), by=by)
        return await self._ask("resume", asked, PausesReply)

    async def pauses(self) -> PausesReply:
        """What is paused now."""
        return await self._ask("pauses", PausesRequest(), PausesReply)

    async def policy(self) -> PolicyReply:
        """The policy that the scheduler decides by; for operators."""
        return await self._ask("policy", PolicyRequest(), PolicyReply)

    async def _ask(self, verb: str, question: msgspec.Struct, reply: type[Reply]) -> Reply:
        return await self._bus.request(subjects.api_subject(self.tenant, verb), question, reply)


@asynccontextmanager
async def connect(
    url: str = "nats://127.0.0.1:4222", *, tenant: str = "default", seconds: float = CONNECT_SECONDS
) -> AsyncIterator[Muster]:
    """Connect to Muster's NATS as a tenant.

    Raises:
        NotConnectedError: no server answers there.
    """
    bus = await connect_bus(url, name="muster-client", seconds=seconds)
    try:
        yield Muster(bus, tenant=tenant)
    finally:
        await bus.close()


__all__ = [
    "BusError",
    "Job",
    "Muster",
    "NoAnswerError",
    "RejectedError",
    "RequestRefusedError",
    "StatusEvent",
    "connect",
]
