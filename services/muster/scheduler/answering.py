"""What a leading scheduler serves on the bus: questions, and proposals.

muster.api.<tenant>.{explain,gangs,nodes,queues}   answered from the last snapshot
muster.api.<tenant>.{pause,resume,pauses,policy}   for operators, see `operating`
muster.propose.{preempt,withdraw,cordon,…}         answered by a round of the leadership
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec

from muster.bus import subjects
from muster.bus.client import Bus, Question, Served
from muster.bus.errors import RequestRefusedError
from muster.bus.operating import PauseRequest, PausesRequest, PolicyRequest, ResumeRequest
from muster.bus.proposals import (
    CordonProposal,
    PlanProposal,
    RememberProposal,
    UncordonProposal,
    WithdrawProposal,
)
from muster.bus.queries import ExplainRequest, GangsRequest, NodesRequest, QueuesRequest
from muster.scheduler.operating import Operating
from muster.scheduler.proposals import Proposals
from muster.scheduler.queries import Queries, UnknownJobError

Q = TypeVar("Q", bound=msgspec.Struct)
P = TypeVar("P", PlanProposal, WithdrawProposal, CordonProposal, UncordonProposal, RememberProposal)


@contextlib.asynccontextmanager
async def answering(bus: Bus, queries: Queries, proposals: Proposals, operating: Operating) -> AsyncIterator[None]:
    """Serve while the context lasts; proposals that wait at its end are refused."""
    served = [
        await _serve(bus, "explain", ExplainRequest, queries.explain),
        await _serve(bus, "gangs", GangsRequest, queries.gangs),
        await _serve(bus, "nodes", NodesRequest, queries.nodes),
        await _serve(bus, "queues", QueuesRequest, queries.queues),
        await bus.serve(subjects.api_filter("pause"), PauseRequest, operating.pause),
        await bus.serve(subjects.api_filter("resume"), ResumeRequest, operating.resume),
        await bus.serve(subjects.api_filter("pauses"), PausesRequest, operating.pauses),
        await bus.serve(subjects.api_filter("policy"), PolicyRequest, operating.policy),
        await _serve_proposals(bus, "preempt", PlanProposal, proposals),
        await _serve_proposals(bus, "withdraw", WithdrawProposal, proposals),
        await _serve_proposals(bus, "cordon", CordonProposal, proposals),
        await _serve_proposals(bus, "uncordon", UncordonProposal, proposals),
        await _serve_proposals(bus, "remember", RememberProposal, proposals),
    ]
    try:
        yield
    finally:
        proposals.close()
        for service in served:
            await service.stop()


async def _serve(
    bus: Bus, verb: str, question: type[Q], answer: Callable[[Q], msgspec.Struct | Awaitable[msgspec.Struct]]
) -> Served:
    async def handle(asked: Q, _place: Question) -> msgspec.Struct:
        try:
            told = answer(asked)
            return told if isinstance(told, msgspec.Struct) else await told
        except UnknownJobError as error:
            raise RequestRefusedError("not-found", str(error)) from error

    handler: Callable[[Q, Question], Awaitable[msgspec.Struct]] = handle
    return await bus.serve(subjects.api_filter(verb), question, handler)


async def _serve_proposals(bus: Bus, verb: str, question: type[P], proposals: Proposals) -> Served:
    async def handle(asked: P, _place: Question) -> msgspec.Struct:
        return await proposals.propose(asked)

    return await bus.serve(subjects.propose_subject(verb), question, handle)
