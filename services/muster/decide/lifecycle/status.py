"""A submission's life as its owner is told it: numbered steps, each once, in order.

    Accepted ─► Queued ─► Scheduled ─► Running ─► Succeeded | Failed
                  ▲            │           │ (told again with reason Preempting: it is asked to leave)
                  │            └─ Preempted ─► (Queued) ─► Scheduled ─► Resumed ─► …
                  └─ restarted by a policy     Cancelled and Rejected end it at any point

`observe` says where a job stands, `advance` which steps lead there from the last one told. Both look at objects and the
last step only, so that after a restart the number goes on where the stream stands.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from muster.decide.lifecycle.actions import Leaving, Waiting
from muster.decide.lifecycle.gangs import tally
from muster.decide.lifecycle.jobspec import SpecError, read_spec
from muster.decide.lifecycle.podgroups import MinimumError, minimum_of
from muster.decide.lifecycle.vcjob import standing_of
from muster.decide.reasons import count
from muster.decide.warnings import format_moment
from muster.model.pods import Pod
from muster.model.workloads import Workload

State = Literal[
    "Accepted", "Rejected", "Queued", "Scheduled", "Running", "Preempted", "Resumed", "Succeeded", "Failed", "Cancelled"
]
FINAL: frozenset[State] = frozenset({"Rejected", "Succeeded", "Failed", "Cancelled"})
HAD_ROOM: frozenset[State] = frozenset({"Scheduled", "Running", "Resumed"})
PREEMPTING = "Preempting"
"""Reason of a step that tells a running job to write a checkpoint: details say until when, and for whom."""
LEFT = "Preempted"
REPEAT_AFTER = 10.0
"""Seconds between two Queued steps that differ in position alone."""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job stands now."""

    state: State
    reason: str = ""
    message: str = ""
    position: int = 0
    retries: int = 0
    """Restarts that the job itself caused; a loss of room without a new one is a preemption."""
    leaving: Leaving | None = None
    """Its pods are asked to leave; of a job that waits: for whom they left."""
    checkpoint_at: float = 0.0
    """When its last checkpoint was complete, Unix seconds; 0 when none is known."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step as it is told; `number` counts from 1 without gaps."""

    state: State
    number: int
    at: float
    reason: str = ""
    message: str = ""
    position: int = 0
    retries: int = 0
    preempted: bool = False
    """Room was lost and Resumed has not been told yet."""
    told: dict[str, Any] = {}
    """For the owner: ``evict_at``, ``for``, ``checkpoint_at``, where they are known."""

    @property
    def details(self) -> dict[str, Any]:
        """What the next `advance` needs of this step, as it travels, and what the owner is told."""
        details: dict[str, Any] = dict(self.told)
        if self.retries:
            details["retries"] = self.retries
        if self.preempted:
            details["preempted"] = True
        return details


TOLD = frozenset({"evict_at", "for", "checkpoint_at"})
"""Details that are the owner's."""


def observe(
    job: Workload,
    pods: Sequence[Pod],
    waiting: Waiting | None,
    *,
    leaving: Leaving | None = None,
    checkpoint_at: float = 0.0,
) -> Observed:
    """Where a job stands, from itself and its pods, why it waits or leaves, and its last checkpoint."""
    observe_kind = _observe_vcjob if job.kind == "vcjob" else _observe_batch_job
    observed = observe_kind(job, pods, waiting)
    return msgspec.structs.replace(observed, leaving=leaving, checkpoint_at=checkpoint_at)


def _observe_vcjob(job: Workload, pods: Sequence[Pod], waiting: Waiting | None) -> Observed:
    standing = standing_of(job)
    state = job.status.get("state") or {}
    reason, message = str(state.get("reason") or ""), str(state.get("message") or "")
    ends: Mapping[str, State] = {
        "Completed": "Succeeded",
        "Failed": "Failed",
        "Terminated": "Failed",
        "Aborted": "Cancelled",
    }
    if standing.phase in ends:
        return Observed(state=ends[standing.phase], reason=reason, message=message, retries=standing.retries)
    if standing.phase == "Restarting":
        return Observed(state="Queued", reason="Restarting", message=message, retries=standing.retries)
    try:
        minimum = read_spec(job.spec).minimum
    except SpecError as error:
        return Observed(state="Queued", reason="InvalidSpec", message=str(error))
    held = Waiting(code=reason, message=message) if reason and standing.phase == "Pending" and not pods else None
    return _by_pods(pods, minimum, waiting or held, retries=standing.retries)


def _observe_batch_job(job: Workload, pods: Sequence[Pod], waiting: Waiting | None) -> Observed:
    for condition in job.status.get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            return Observed(state="Succeeded")
        if condition.get("type") == "Failed":
            reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
            return Observed(state="Failed", reason=reason, message=message)
    template = (job.spec.get("template") or {}).get("metadata") or {}
    try:
        minimum = minimum_of(job.annotations, template.get("annotations") or {})
    except MinimumError as error:
        return Observed(state="Queued", reason="InvalidAnnotation", message=str(error))
    return _by_pods(pods, minimum, waiting, retries=0)


def _by_pods(pods: Iterable[Pod], minimum: int, waiting: Waiting | None, *, retries: int) -> Observed:
    counted = tally(pods)
    # A pod that failed had its room: what becomes of the job then is for its policies, and is no preemption.
    if counted.pods and counted.bound + counted.failed >= minimum:
        running = counted.running + counted.succeeded + counted.failed >= minimum
        return Observed(state="Running" if running else "Scheduled", retries=retries)
    if waiting is None:
        return Observed(state="Queued", retries=retries)
    return Observed(
        state="Queued", reason=waiting.code, message=waiting.message, position=waiting.position, retries=retries
    )


def advance(last: Step | None, observed: Observed, *, now: float) -> tuple[Step, ...]:
    """The steps from the last one told to what is observed; () when there is nothing new to tell."""
    steps: list[Step] = []

    def tell(
        state: State, *, preempted: bool = False, told: Observed | None = None, details: dict[str, Any] | None = None
    ) -> None:
        before = steps[-1] if steps else last
        steps.append(
            Step(
                state=state,
                number=(before.number if before is not None else 0) + 1,
                at=now,
                reason=told.reason if told is not None else "",
                message=told.message if told is not None else "",
                position=told.position if told is not None else 0,
                retries=observed.retries,
                preempted=preempted,
                told=details or {},
            )
        )

    if last is not None and last.state in FINAL:
        return ()
    if last is None and observed.state in {"Rejected", "Cancelled"}:
        # Ended before it began: nothing was accepted.
        tell(observed.state, told=observed)
        return tuple(steps)
    if last is None:
        tell("Accepted")
    here = steps[-1] if steps else last
    assert here is not None
    state, preempted = here.state, here.preempted
    target = observed.state
    if target == "Accepted":
        return tuple(steps)
    if target in {"Failed", "Cancelled", "Rejected"}:
        tell(target, told=observed)
        return tuple(steps)
    if target == "Queued":
        if state in HAD_ROOM and observed.retries <= here.retries:
            tell("Preempted", preempted=True, told=_left(here, observed), details=_facts(here, observed))
        elif state in HAD_ROOM or state == "Accepted" or _worth_telling(here, observed, now=now):
            tell("Queued", preempted=preempted, told=observed)
        return tuple(steps)
    if state == "Accepted":
        tell("Queued")
        state = "Queued"
    if state in {"Queued", "Preempted"}:
        tell("Scheduled", preempted=preempted)
        state = "Scheduled"
    if target in {"Running", "Succeeded"} and state == "Scheduled":
        tell("Resumed" if preempted else "Running", details=_checkpoint(observed) if preempted else None)
    if target == "Succeeded":
        tell("Succeeded", told=observed)
    elif not steps and state in HAD_ROOM:
        _tell_warning(here, observed, tell)
    return tuple(steps)


def _tell_warning(here: Step, observed: Observed, tell: Callable[..., None]) -> None:
    """A job that has its room is asked to leave, or not any more: its state is told again."""
    state: State = "Scheduled" if here.state == "Scheduled" else "Running"
    leaving = observed.leaving
    if leaving is None or not leaving.warned:
        if here.reason == PREEMPTING:
            tell(state, preempted=here.preempted)
        return
    facts = _facts(here, observed)
    if here.reason == PREEMPTING and (here.told.get("for"), here.told.get("evict_at")) == (
        facts.get("for"),
        facts.get("evict_at"),
    ):
        return
    why = f" ({leaving.message})" if leaving.message else ""
    message = (
        f"{count(max(leaving.pods, leaving.warned), 'pod')} of it may stay until {format_moment(leaving.evict_at)},"
        f" then {leaving.room_for} gets the room{why}; write a checkpoint"
    )
    tell(
        state,
        preempted=here.preempted,
        told=Observed(state=state, reason=PREEMPTING, message=message, retries=observed.retries),
        details=facts,
    )


def _left(here: Step, observed: Observed) -> Observed:
    """A job whose room was lost, with the plan that took it where one did."""
    leaving = observed.leaving
    room_for = leaving.room_for if leaving is not None else str(here.told.get("for") or "")
    if not room_for:
        return observed
    why = f": {leaving.message}" if leaving is not None and leaving.message else ""
    return msgspec.structs.replace(observed, reason=LEFT, message=f"its pods left for {room_for}{why}", position=0)


def _facts(here: Step, observed: Observed) -> dict[str, Any]:
    leaving = observed.leaving
    facts = _checkpoint(observed)
    room_for = leaving.room_for if leaving is not None else here.told.get("for")
    evict_at = (leaving.evict_at if leaving is not None else 0.0) or here.told.get("evict_at")
    if room_for:
        facts["for"] = room_for
    if room_for and evict_at:
        facts["evict_at"] = evict_at
    return facts


def _checkpoint(observed: Observed) -> dict[str, Any]:
    return {"checkpoint_at": observed.checkpoint_at} if observed.checkpoint_at else {}


def _worth_telling(last: Step, observed: Observed, *, now: float) -> bool:
    if last.state not in {"Queued", "Preempted"}:
        return False
    if not observed.reason:
        return False
    if last.reason != observed.reason:
        return True
    return last.position != observed.position and now - last.at >= REPEAT_AFTER
